//! bpf(2): the program that steers packets, the map of our sockets, and the link that attaches the
//! program to an interface.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::check;

/// Commands of bpf(2) and their arguments (linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_GET_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;

/// Buffer for the verifier's log if it refuses a program.
const LOG_BYTES: usize = 64 << 10;

/// Calls bpf(2) with an attribute structure whose pointers are valid for what the command does with
/// them.
///
/// # Safety
/// Addresses in `attr` must be valid as the command uses them.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the structure lives through the call, and its size is given; the rest is the caller's
    // promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>() as libc::c_uint)
    };
    check(result as libc::c_int)
}

/// # Safety
/// As [`bpf`]; the command must return a descriptor.
unsafe fn bpf_fd<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The name that tools such as bpftool show.
const NAME: [u8; 16] = *b"linerate\0\0\0\0\0\0\0\0";

#[repr(C)]
#[derive(Default)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
}

/// What a map of the kernel holds (linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// Values by a key of any size (BPF_MAP_TYPE_HASH).
    Hash = 1,
    /// Values by their number (BPF_MAP_TYPE_ARRAY).
    Array = 2,
    /// As a hash; a full one forgets the key that was not used for longest (BPF_MAP_TYPE_LRU_HASH).
    Recent = 9,
    /// Sockets by the number of a receive queue (BPF_MAP_TYPE_XSKMAP).
    Sockets = 17,
}

/// The arguments of calls about an entry of a map.
#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map of the kernel with keys of `K` bytes and values of four.
#[derive(Debug)]
pub(crate) struct BpfMap<const K: usize>(OwnedFd);

impl<const K: usize> BpfMap<K> {
    pub(crate) fn new(kind: MapKind, entries: u32) -> io::Result<BpfMap<K>> {
        let mut attr = MapAttr {
            map_type: kind as u32,
            key_size: K as u32,
            value_size: 4,
            max_entries: entries.max(1),
            name: NAME,
            ..MapAttr::default()
        };
        // SAFETY: the structure has no addresses; the command returns a descriptor.
        unsafe { bpf_fd(MAP_CREATE, &mut attr) }.map(BpfMap)
    }

    fn element(&self, key: Option<&[u8; K]>, value: u64) -> ElementAttr {
        let key = key.map_or(0, |key| key.as_ptr() as u64);
        ElementAttr { map_fd: self.number(), pad: 0, key, value, flags: 0 }
    }

    /// Sets the value of a key. Of a map of sockets it is a socket's descriptor.
    pub(crate) fn set(&self, key: [u8; K], value: u32) -> io::Result<()> {
        let mut attr = self.element(Some(&key), &raw const value as u64);
        // SAFETY: key and value have the sizes of the map, and live through the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(|_| ())
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: [u8; K]) -> Option<u32> {
        let mut value = 0u32;
        let mut attr = self.element(Some(&key), &raw mut value as u64);
        // SAFETY: key and value have the sizes of the map, and live through the call; the kernel writes
        // to the value.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }.ok().map(|_| value)
    }

    /// Removes a key. ENOENT: there is none.
    pub(crate) fn remove(&self, key: [u8; K]) -> io::Result<()> {
        let mut attr = self.element(Some(&key), 0);
        // SAFETY: the key has the size of the map's, and lives through the call.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attr) }.map(|_| ())
    }

    /// The keys, at most `most`.
    pub(crate) fn keys(&self, most: usize) -> Vec<[u8; K]> {
        let mut keys: Vec<[u8; K]> = Vec::new();
        while keys.len() < most {
            let mut next = [0; K];
            let mut attr = self.element(keys.last(), next.as_mut_ptr() as u64);
            // SAFETY: both keys have the size of the map's, and live through the call; the kernel
            // writes to the second.
            if unsafe { bpf(MAP_GET_NEXT_KEY, &mut attr) }.is_err() {
                break;
            }
            keys.push(next);
        }
        keys
    }

    /// The descriptor's number, by which the instructions name the map while the program is loaded.
    pub(crate) fn number(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

#[repr(C)]
#[derive(Default)]
struct ProgramAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
}

/// A loaded XDP program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads instructions, eight bytes each.
    pub(crate) fn load(instructions: &[u64]) -> io::Result<Program> {
        Program::load_with(instructions, &mut []).or_else(|first| match first.raw_os_error() {
            // The verifier refused it. Load it again with a log, to learn why.
            Some(libc::EINVAL | libc::EACCES) => {
                let mut log = vec![0u8; LOG_BYTES];
                Program::load_with(instructions, &mut log).map_err(|error| {
                    let log = String::from_utf8_lossy(&log);
                    // The last lines of the log have the reason. The program precedes them;
                    // statistics follow.
                    let mut lines =
                        log.trim_end_matches('\0').lines().filter(|l| !l.starts_with("processed "));
                    let said = lines.next_back().unwrap_or_default();
                    if said.is_empty() {
                        error
                    } else {
                        io::Error::new(error.kind(), format!("{error}: {said}"))
                    }
                })
            }
            _ => Err(first),
        })
    }

    fn load_with(instructions: &[u64], log: &mut [u8]) -> io::Result<Program> {
        let license = c"GPL";
        let mut attr = ProgramAttr {
            prog_type: PROG_TYPE_XDP,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            name: NAME,
            expected_attach_type: ATTACH_TYPE_XDP,
            ..ProgramAttr::default()
        };
        if !log.is_empty() {
            (attr.log_level, attr.log_size, attr.log_buf) = (1, log.len() as u32, log.as_mut_ptr() as u64);
        }
        // SAFETY: the instructions and the log are slices of the lengths given, and the licence
        // ends with a zero; all live through the call. The command returns a descriptor.
        unsafe { bpf_fd(PROG_LOAD, &mut attr) }.map(Program)
    }

    /// Runs the program on a frame and returns its verdict.
    #[cfg(test)]
    pub(crate) fn verdict(&self, frame: &[u8]) -> io::Result<u32> {
        #[repr(C)]
        #[derive(Default)]
        struct TestAttr {
            prog_fd: u32,
            retval: u32,
            data_size_in: u32,
            data_size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            rest: [u64; 5],
        }
        let mut attr = TestAttr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: 1,
            ..TestAttr::default()
        };
        // SAFETY: the kernel reads the frame's bytes within its length, and is given nothing to
        // write to.
        unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
        Ok(attr.retval)
    }
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the driver, before the kernel allocates a packet.
    Native,
    /// In the kernel's receive path: slower, and every driver supports it.
    Generic,
}

/// Keeps a program attached to an interface. The kernel detaches it with the last descriptor,
/// however the process ends.
#[derive(Debug)]
pub(crate) struct Attachment {
    link: OwnedFd,
}

impl Attachment {
    pub(crate) fn new(program: &Program, interface: u32, mode: Mode) -> io::Result<Attachment> {
        #[repr(C)]
        #[derive(Default)]
        struct LinkAttr {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
            rest: [u64; 4],
        }
        let mut attr = LinkAttr {
            prog_fd: program.0.as_raw_fd() as u32,
            target_ifindex: interface,
            attach_type: ATTACH_TYPE_XDP,
            // XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE (linux/if_link.h)
            flags: match mode {
                Mode::Native => 1 << 2,
                Mode::Generic => 1 << 1,
            },
            ..LinkAttr::default()
        };
        // SAFETY: the structure has no addresses; the command returns a descriptor.
        unsafe { bpf_fd(LINK_CREATE, &mut attr) }.map(|link| Attachment { link })
    }

    /// Replaces the program atomically: no packet escapes both.
    pub(crate) fn replace(&self, program: &Program) -> io::Result<()> {
        #[repr(C)]
        #[derive(Default)]
        struct UpdateAttr {
            link_fd: u32,
            new_prog_fd: u32,
            flags: u32,
            old_prog_fd: u32,
        }
        let mut attr = UpdateAttr {
            link_fd: self.link.as_raw_fd() as u32,
            new_prog_fd: program.0.as_raw_fd() as u32,
            ..UpdateAttr::default()
        };
        // SAFETY: the structure has no addresses.
        unsafe { bpf(LINK_UPDATE, &mut attr) }.map(|_| ())
    }
}

/// Raises the limit on locked memory as far as the process may; returns the soft limit, bytes.
/// Shared memory counts against it; before Linux 5.11, maps and rings did too.
pub(crate) fn memory_limit_raised() -> io::Result<u64> {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the struct lives through the call.
    if check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) }).is_ok() {
        return Ok(u64::MAX);
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the struct lives through the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) })?;
    Ok(limit.rlim_cur)
}
