//! The descriptors behind the calls, over sockets in user space. A call returns an errno where it
//! fails.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::HostSecret;
use linerate_net::link::xdp::{self, Steer, Xdp, XdpOptions};
use linerate_net::sockets::{CallFlags, PollEntry, PollSetId, Shutdown, SocketFailure, SocketId, Sockets};
use linerate_net::stack::{Stack, StackOptions, UseOfEcn};

/// The longest wait for packets. Reason: meanwhile nobody looks at the kernel's descriptors.
const WAIT: Duration = Duration::from_millis(5);
/// Of waits that find enough to do, one in so many moves packets, and one in so many looks at the
/// kernel's descriptors. Reason: both are system calls.
const MOVES: u64 = 16;
const LOOKS: u64 = 256;

fn errno(failure: SocketFailure) -> i32 {
    failure.errno
}

/// All connections of the process.
pub(crate) struct World {
    net: Sockets<Xdp>,
    set: PollSetId,
    found: Vec<PollEntry>,
    listening: SocketId,
    /// The socket of each descriptor.
    sockets: Vec<Option<SocketId>>,
    /// Descriptors of closed connections, which stay open for later ones.
    spare: Vec<i32>,
    pub(crate) listener: i32,
    waits: u64,
    pub(crate) how: &'static str,
}

impl World {
    /// Takes the connections to `at`, where the descriptor `listener` would listen.
    pub(crate) fn open(
        interface: &str,
        listener: i32,
        at: SocketAddr,
        backlog: u32,
    ) -> Result<World, String> {
        let opened = xdp::open(&XdpOptions::new(interface, Steer::Listen(vec![at])));
        let mut opened = opened.map_err(|error| error.to_string())?;
        let link = opened.links.pop().ok_or("the interface has no queue")?;
        let options = StackOptions {
            addresses: vec![at.ip()],
            host: HostSecret::of_this_machine(),
            ecn: UseOfEcn::of_this_machine(),
            ..StackOptions::default()
        };
        let mut net = Sockets::new(Stack::new(link, options));
        let set = net.poll_set();
        let listens = net.socket().and_then(|id| {
            net.bind(id, at)?;
            net.listen(id, backlog)?;
            Ok(id)
        });
        let listening = listens.map_err(|failure| format!("listen: errno {}", failure.errno))?;
        Ok(World {
            net,
            set,
            found: Vec::new(),
            listening,
            sockets: Vec::new(),
            spare: Vec::new(),
            listener,
            waits: 0,
            how: opened.how,
        })
    }

    fn socket(&self, fd: i32) -> Option<SocketId> {
        if fd == self.listener {
            return Some(self.listening);
        }
        *self.sockets.get(usize::try_from(fd).ok()?)?
    }

    /// Whether a descriptor is a connection of ours.
    pub(crate) fn has(&self, fd: i32) -> bool {
        fd != self.listener && self.socket(fd).is_some()
    }

    /// Registers a descriptor for readiness, by epoll's bits; `None` removes it.
    pub(crate) fn watch(&mut self, fd: i32, wanted: Option<(u32, u64)>) -> Result<(), i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        let watched = match wanted {
            None => self.net.unwatch(self.set, id),
            Some((wanted, token)) => match self.net.watch(self.set, id, wanted, token) {
                Err(failure) if failure.errno == libc::EEXIST => {
                    self.net.rewatch(self.set, id, wanted, token)
                }
                watched => watched,
            },
        };
        watched.map_err(errno)
    }

    /// Moves packets, and waits for some at most this long.
    fn turn(&mut self, wait: Duration) {
        let until = self.net.now() + wait;
        if let Err(error) = self.net.turn(Some(until)) {
            eprintln!("bypass: the interface is gone: {error}");
            std::process::abort();
        }
    }

    /// Waits for readiness, and tells of it by flags and value. `look` does the same for the
    /// kernel's descriptors, without waiting, and returns how many entries it used or a negative
    /// number.
    pub(crate) fn wait(
        &mut self,
        timeout_ms: i32,
        out: &mut [libc::epoll_event],
        mut look: impl FnMut(&mut [libc::epoll_event]) -> i32,
    ) -> i32 {
        let asked = u64::try_from(timeout_ms).map_or(WAIT, Duration::from_millis);
        loop {
            self.waits += 1;
            if self.waits.is_multiple_of(MOVES) {
                self.turn(Duration::ZERO);
            }
            let mut told = self.tell(out);
            if told == 0 {
                self.turn(asked.min(WAIT));
                told = self.tell(out);
            }
            if told > 0 && !self.waits.is_multiple_of(LOOKS) {
                return told as i32;
            }
            let more = look(&mut out[told..]);
            if more < 0 && told == 0 {
                return more;
            }
            let all = told as i32 + more.max(0);
            // An early end is allowed, unless the program waits without limit.
            if all > 0 || timeout_ms >= 0 {
                return all;
            }
        }
    }

    fn tell(&mut self, out: &mut [libc::epoll_event]) -> usize {
        self.found.clear();
        if let Err(failure) = self.net.poll(self.set, out.len(), &mut self.found) {
            eprintln!("bypass: epoll_wait: errno {}", failure.errno);
            std::process::abort();
        }
        for (place, entry) in out.iter_mut().zip(&self.found) {
            *place = libc::epoll_event { events: entry.readiness, u64: entry.token };
        }
        self.found.len()
    }

    /// The next connection, with a descriptor that `make` provides if none is spare.
    pub(crate) fn accept(&mut self, make: impl FnOnce() -> i32) -> Result<(i32, SocketAddr), i32> {
        let (id, peer) = self.net.accept(self.listening).map_err(errno)?;
        let fd = self.spare.pop().unwrap_or_else(make);
        let Ok(at) = usize::try_from(fd) else {
            self.net.close(id).map_err(errno)?;
            return Err(libc::EMFILE);
        };
        if self.sockets.len() <= at {
            self.sockets.resize(at + 1, None);
        }
        self.sockets[at] = Some(id);
        Ok((fd, peer))
    }

    /// Reads received bytes; `peek`: they stay.
    pub(crate) fn read(&mut self, fd: i32, into: &mut [u8], peek: bool) -> Result<usize, i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        self.net.recv(id, into, CallFlags { peek, ..CallFlags::default() }).map_err(errno)
    }

    /// Sends as much as the send buffer takes.
    pub(crate) fn write<'a>(&mut self, fd: i32, parts: impl Iterator<Item = &'a [u8]>) -> Result<usize, i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        let mut sent = 0;
        for part in parts {
            match self.net.send(id, part, CallFlags::default()) {
                Ok(len) => {
                    sent += len;
                    if len < part.len() {
                        break;
                    }
                }
                Err(_) if sent > 0 => break,
                Err(failure) => return Err(failure.errno),
            }
        }
        Ok(sent)
    }

    /// Shuts directions down (SHUT_RD, SHUT_WR, SHUT_RDWR).
    pub(crate) fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(libc::EINVAL),
        };
        self.net.shutdown(id, how).map_err(errno)
    }

    /// SO_LINGER: whether `close` resets the connection.
    pub(crate) fn reset_at_close(&mut self, fd: i32, resets: bool) -> Result<(), i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        let options = self.net.options_mut(id).map_err(errno)?;
        options.resets_at_close = resets;
        Ok(())
    }

    /// Closes a connection. Its descriptor is kept.
    pub(crate) fn close(&mut self, fd: i32) -> Result<(), i32> {
        let id = self.socket(fd).ok_or(libc::EBADF)?;
        self.sockets[fd as usize] = None;
        self.spare.push(fd);
        self.net.close(id).map_err(errno)
    }
}
