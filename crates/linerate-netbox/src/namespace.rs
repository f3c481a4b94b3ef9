//! A network namespace without a name. It lives as long as a process is in it or a file holds it,
//! and so leaves nothing behind.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::error::NetBoxError;
use crate::limits;
use crate::packet::Mac;

/// The name of the interface on each side.
pub const INTERFACE: &str = "net0";

/// The client's IPv4 address.
pub const CLIENT_IP: Ipv4Addr = CLIENT.v4;
/// The server's IPv4 address.
pub const SERVER_IP: Ipv4Addr = SERVER.v4;

/// The sides of a line to this machine: a client's namespace and this machine's end, of a number.
///
/// The IPv4 addresses are of the range for benchmarks (RFC 2544), which no network uses. IPv6 is
/// not led over a line: its loopback address cannot be reached from elsewhere.
pub(crate) fn line_sides(number: u8) -> [SideAddresses; 2] {
    let client = SideAddresses { v4: Ipv4Addr::new(198, 18, number, 1), home: Home::Line, ..CLIENT };
    let v4 = Ipv4Addr::new(198, 19, number, 1);
    [client, SideAddresses { v4, home: Home::Here(number), ..SERVER }]
}

impl SideAddresses {
    fn interface(&self) -> String {
        match self.home {
            Home::Own | Home::Line => INTERFACE.to_owned(),
            Home::Here(number) => format!("linerate{number}"),
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Where a side's interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In a namespace of its own.
    Own,
    /// In a namespace of its own, from which all of this machine's addresses are reached.
    Line,
    /// In this machine's namespace, as the interface of this number.
    Here(u8),
}

/// The constants of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SideAddresses {
    pub(crate) name: &'static str,
    pub(crate) home: Home,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) mac: Mac,
}

/// The IPv6 addresses are from the documentation range (RFC 3849). Programs prefer it to IPv4, as
/// on the Internet, which they would not do for unique local addresses (RFC 6724, section 2.1).
pub(crate) const CLIENT: SideAddresses = SideAddresses {
    name: "client",
    home: Home::Own,
    v4: Ipv4Addr::new(10, 99, 1, 1),
    v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, 1),
    mac: [2, 0, 0, 0, 1, 1],
};

pub(crate) const SERVER: SideAddresses = SideAddresses {
    name: "server",
    home: Home::Own,
    v4: Ipv4Addr::new(10, 99, 2, 1),
    v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 2, 1),
    mac: [2, 0, 0, 0, 2, 1],
};

/// One side of the box: a network namespace, and a mount namespace for files of its own.
#[derive(Debug)]
pub struct Namespace {
    place: SideAddresses,
    net: File,
    mounts: File,
    /// A thread that starts all of its processes: they die with it, even if this process is killed.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    files: Vec<(PathBuf, tempfile::NamedTempFile)>,
}

impl Namespace {
    /// Creates a namespace with one interface, whose other end is the device; `files` replace those
    /// of the machine.
    pub(crate) fn new(
        place: SideAddresses,
        other: SideAddresses,
        files: &[(PathBuf, String)],
    ) -> Result<(Namespace, SyncDevice), NetBoxError> {
        let files = written(files)?;
        let paths: Vec<(PathBuf, PathBuf)> =
            files.iter().map(|(at, file)| (at.clone(), file.path().to_owned())).collect();
        let (jobs, work) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("netbox {}", place.name))
            .spawn(move || {
                if ready.send(set_up(place, other, &paths)).is_ok() {
                    work.into_iter().for_each(|job| job());
                }
            })
            .map_err(|e| NetBoxError::io("cannot start a thread", e))?;
        let made = is_ready.recv().unwrap_or_else(|_| Err(NetBoxError::Ended(place.name)));
        let (net, mounts, device) = made?;
        let namespace = Namespace { place, net, mounts, jobs: Some(jobs), thread: Some(thread), files };
        Ok((namespace, device))
    }

    /// Its IPv4 address. All of its /24 is routed to it; a user-space stack may use other addresses
    /// of it.
    pub fn ip(&self) -> Ipv4Addr {
        self.place.v4
    }

    /// Its IPv6 address.
    pub fn ip6(&self) -> Ipv6Addr {
        self.place.v6
    }

    pub(crate) fn place(&self) -> SideAddresses {
        self.place
    }

    /// Other processes enter its network by this path as long as the box is there.
    pub fn network(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.net.as_raw_fd()))
    }

    /// Both addresses.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.place.v4.into(), self.place.v6.into()]
    }

    /// The hardware address of its interface.
    pub fn mac(&self) -> [u8; 6] {
        self.place.mac
    }

    /// The files that replace those of the machine.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(at, _)| at.as_path())
    }

    /// Runs `f` in the namespace, on a new thread. Sockets created there belong to the namespace,
    /// wherever they are used later. The working directory stays what it is.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        std::thread::scope(|s| {
            let inside = s.spawn(|| {
                let folder = std::env::current_dir()?;
                // A thread that shares its root and working directory may not change its mounts.
                unshare(CloneFlags::CLONE_FS)?;
                setns(&self.net, CloneFlags::CLONE_NEWNET)?;
                // This changes the working directory to the root.
                setns(&self.mounts, CloneFlags::CLONE_NEWNS)?;
                std::env::set_current_dir(folder)?;
                Ok(f())
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that dies with the box, even if the box's process is killed. Start it with
    /// [`spawn`](Self::spawn).
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut c = Command::new("setpriv");
        c.args(["--pdeathsig", "KILL", "--"]).arg(program);
        c
    }

    /// Starts a command in the namespace.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self, mut command: Command) -> io::Result<NamespaceProcess> {
        Ok(NamespaceProcess(self.in_thread(move || command.spawn())??, true))
    }

    /// Runs `f` on the namespace's own thread.
    fn in_thread<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> io::Result<R> {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            let _ = done.send(f());
        });
        let gone = || io::Error::other("the namespace has ended");
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Runs a command in the namespace to its end and returns its standard output.
    ///
    /// # Errors
    /// It cannot be started, or it fails; the error includes its standard error.
    pub fn output(&self, mut command: Command) -> io::Result<String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = format!("{command:?}");
        let out = self.in_thread(move || command.output())??;
        if !out.status.success() {
            let error = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(io::Error::other(format!("{words}: {}: {}", out.status, error.trim_end())));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Changes a kernel setting of the namespace, for instance
    /// `net/ipv4/tcp_slow_start_after_idle`.
    ///
    /// # Errors
    /// The setting does not exist in a namespace, or the kernel refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys").join(name);
        self.run(|| std::fs::write(&path, value))?
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    /// TCP ports with a listener in the namespace, on any address.
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn listening(&self) -> io::Result<Vec<u16>> {
        let table = |p| std::fs::read_to_string(p).unwrap_or_default();
        let text = self.run(|| table("/proc/thread-self/net/tcp") + &table("/proc/thread-self/net/tcp6"))?;
        Ok(text.lines().filter_map(listening_port).collect())
    }

    /// Frames dropped because its interface had no room, which the box never saw.
    pub(crate) fn missed(&self) -> u64 {
        let text = self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
        let text = text.and_then(|t| t).unwrap_or_default();
        let interface = self.place.interface();
        let row = text.lines().find_map(|l| l.trim().strip_prefix(interface.as_str())?.strip_prefix(':'));
        // The columns of what was received: bytes, packets, errs, drop.
        row.and_then(|r| r.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

/// A process in a namespace; killed when dropped.
#[derive(Debug)]
pub struct NamespaceProcess(Child, bool);

impl NamespaceProcess {
    /// Whether the process has ended.
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Detaches the process: dropping this does not kill it, but the end of the box does.
    pub fn let_go(&mut self) {
        self.1 = false;
    }
}

impl Deref for NamespaceProcess {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for NamespaceProcess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for NamespaceProcess {
    fn drop(&mut self) {
        if !self.1 {
            return;
        }
        let _ = self.0.kill();
        let start = Instant::now();
        while !self.ended() && start.elapsed() < limits::ENDING {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The result of [`set_up`]: the namespace, its mounts, and the other end of its interface.
type Made = (File, File, SyncDevice);

/// Creates the namespace of the calling thread.
fn set_up(
    place: SideAddresses,
    other: SideAddresses,
    files: &[(PathBuf, PathBuf)],
) -> Result<Made, NetBoxError> {
    let io = |what: &str| {
        let what = format!("{} namespace: {what}", place.name);
        move |e| NetBoxError::io(&what, e)
    };
    if !matches!(place.home, Home::Here(_)) {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
            .map_err(|e| io("cannot be made (that takes root)")(e.into()))?;
        own_files(files).map_err(io("its own files"))?;
    }
    let device = DeviceBuilder::new()
        .name(place.interface())
        .layer(Layer::L2)
        .mac_addr(place.mac)
        .tx_queue_len(limits::INTERFACE_QUEUE)
        .build_sync()
        .map_err(io("no TAP interface (needs /dev/net/tun)"))?;
    device.set_nonblocking(true).map_err(io("TAP interface"))?;
    configure(place, other).map_err(io("ip"))?;
    let handle =
        |kind: &str| File::open(format!("/proc/thread-self/ns/{kind}")).map_err(io("/proc/thread-self/ns"));
    Ok((handle("net")?, handle("mnt")?, device))
}

/// Replaces files of the machine, in this namespace only.
fn own_files(files: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    for (at, file) in files {
        // For a symbolic link, its target is replaced.
        let target =
            at.canonicalize().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", at.display())))?;
        mount(Some(file), &target, none, MsFlags::MS_BIND, none)?;
    }
    Ok(())
}

/// Sets addresses, and the other side as a permanent neighbour, so that ARP is in no measurement.
fn configure(place: SideAddresses, other: SideAddresses) -> io::Result<()> {
    let script = match place.home {
        Home::Own => between_namespaces(place, other),
        Home::Line | Home::Here(_) => {
            // Without it the kernel drops packets of an interface that are from or to 127.0.0.0/8.
            let at = format!("/proc/sys/net/ipv4/conf/{}/route_localnet", place.interface());
            std::fs::write(&at, "1").map_err(|e| io::Error::new(e.kind(), format!("{at}: {e}")))?;
            to_this_machine(place, other)
        }
    };
    run_ip(&script)
}

fn lladdr(mac: Mac) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

fn between_namespaces(place: SideAddresses, other: SideAddresses) -> String {
    let lladdr = lladdr(other.mac);
    let mut script = format!(
        "link set lo up
         link set {INTERFACE} up
         addr add {}/16 dev {INTERFACE}
         neigh replace {} lladdr {lladdr} dev {INTERFACE} nud permanent
",
        place.v4, other.v4
    );
    if Path::new("/proc/sys/net/ipv6").exists() {
        script = format!("link set {INTERFACE} addrgenmode none\n{script}");
        script += &format!(
            "addr add {}/64 dev {INTERFACE} nodad
             neigh replace {} lladdr {lladdr} dev {INTERFACE} nud permanent
",
            place.v6, other.v6
        );
    }
    script
}

/// The client's own loopback interface stays down, so that 127.0.0.0/8 leads over the line too.
fn to_this_machine(place: SideAddresses, other: SideAddresses) -> String {
    let interface = place.interface();
    let (v4, to, lladdr) = (place.v4, other.v4, lladdr(other.mac));
    let mut script = format!(
        "link set {interface} up
         addr add {v4}/32 dev {interface}
         route add {to}/32 dev {interface}
         neigh replace {to} lladdr {lladdr} dev {interface} nud permanent
"
    );
    if Path::new("/proc/sys/net/ipv6").exists() {
        script = format!("link set {interface} addrgenmode none\n{script}");
    }
    if place.home == Home::Line {
        for range in ["127.0.0.0/8", "default"] {
            script += &format!("route add {range} via {to} dev {interface} onlink src {v4}\n");
        }
    }
    script
}

/// Has `ip` run the lines in the calling thread's namespace.
fn run_ip(script: &str) -> io::Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    if !out.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim_end().to_owned()));
    }
    Ok(())
}

fn written(files: &[(PathBuf, String)]) -> Result<Vec<(PathBuf, tempfile::NamedTempFile)>, NetBoxError> {
    let write = |(at, text): &(PathBuf, String)| {
        use std::os::unix::fs::PermissionsExt;
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        Ok((at.clone(), file))
    };
    files.iter().map(write).collect::<io::Result<_>>().map_err(|e| NetBoxError::io("temporary file", e))
}

/// The port, if a row of /proc/net/tcp is a listener.
fn listening_port(row: &str) -> Option<u16> {
    let mut columns = row.split_whitespace().skip(1);
    let (local, _, state) = (columns.next()?, columns.next()?, columns.next()?);
    let port = local.rsplit_once(':')?.1;
    if state == "0A" { u16::from_str_radix(port, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_in_the_kernels_table() {
        let row = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0";
        assert_eq!(listening_port(row), Some(8080));
        assert_eq!(listening_port(&row.replace(" 0A ", " 01 ")), None);
        assert_eq!(listening_port("  sl  local_address rem_address   st"), None);
    }
}
