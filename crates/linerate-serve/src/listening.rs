//! Listening sockets that all threads of a server share: Unix sockets, and sockets opened by
//! others.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linerate_net::machine;
use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::Address;
use crate::limits::{BINDING_TRIES, BINDING_WAIT, SOCKET_ENDS};

/// An existing listening socket, for [`ServerOptions::sockets`](crate::ServerOptions): one that the
/// caller has bound, or one that a service manager passed to the process.
///
/// All threads accept from it. After the server has stopped, it stays open as long as another
/// process holds it.
///
/// ```
/// use linerate_serve::{ListeningSocket, ServerOptions, spawn};
///
/// let socket = ListeningSocket::new(std::net::TcpListener::bind("127.0.0.1:0")?)?;
/// let options = ServerOptions { listen: Vec::new(), sockets: vec![socket], ..ServerOptions::default() };
/// spawn(options)?.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ListeningSocket {
    fd: Arc<OwnedFd>,
    address: Address,
    file: Option<Arc<SocketFile>>,
}

impl ListeningSocket {
    /// Takes over a socket.
    ///
    /// # Errors
    /// It is not a listening TCP or Unix stream socket.
    pub fn new(socket: impl Into<OwnedFd>) -> io::Result<ListeningSocket> {
        let fd: OwnedFd = socket.into();
        let socket = SockRef::from(&fd);
        let unfit = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        if socket.r#type()? != Type::STREAM {
            return Err(unfit("it is no stream socket"));
        }
        if !socket.is_listener()? {
            return Err(unfit("it does not listen"));
        }
        let local = socket.local_addr()?;
        let address = match local.as_socket() {
            Some(at) => Address::Tcp(at),
            None if local.is_unix() => Address::Unix(local.as_pathname().unwrap_or(Path::new("")).into()),
            None => return Err(unfit("it is neither TCP nor a Unix socket")),
        };
        Ok(ListeningSocket { fd: Arc::new(fd), address, file: None })
    }

    /// The sockets that a service manager opened for this process (socket activation,
    /// `LISTEN_FDS`); empty if there are none. Call it once, when the process starts: later calls
    /// return none.
    ///
    /// # Errors
    /// One of them cannot be accepted from.
    pub fn inherited() -> io::Result<Vec<ListeningSocket>> {
        machine::inherited_sockets()?.into_iter().map(ListeningSocket::new).collect()
    }

    /// Its address; for a Unix socket without a path, an empty one.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Binds a Unix socket. Replaces a file that a server left behind, but not one that a server
    /// listens on.
    pub(crate) fn bind(path: &Path) -> io::Result<ListeningSocket> {
        let _alone = lock_folder(path)?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        let file = SocketFile::of(path)?;
        Ok(ListeningSocket { file: Some(Arc::new(file)), ..ListeningSocket::new(listener)?.at(path) })
    }

    fn at(self, path: &Path) -> ListeningSocket {
        ListeningSocket { address: Address::Unix(path.into()), ..self }
    }

    /// Duplicates its descriptor, for a thread.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.as_fd().try_clone_to_owned()
    }

    /// Removes the file of a Unix socket that [`ListeningSocket::bind`] made: no more connections
    /// arrive.
    pub(crate) fn remove_file(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// The file of a Unix socket, removed after its last use, unless another file has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: Box<Path>,
    /// Device and inode of the file.
    identity: (u64, u64),
    gone: AtomicBool,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        // A relative path must keep its meaning when the working directory changes.
        let path = std::path::absolute(path)?.into_boxed_path();
        let identity = identity(&path)?;
        Ok(SocketFile { path, identity, gone: AtomicBool::new(false) })
    }

    fn remove(&self) {
        if !self.gone.swap(true, Ordering::SeqCst)
            && identity(&self.path).is_ok_and(|found| found == self.identity)
        {
            // If the folder has become read-only, the file stays; the next server finds it stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

/// If two servers find the same stale file, neither must remove the other's new one.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    for _ in 0..BINDING_TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(BINDING_WAIT),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another program holds a lock on the folder"))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file, and it is no socket"));
    }
    let found = match try_connect(path) {
        Ok(connection) if hangs_up(&connection) => try_connect(path),
        found => found,
    };
    match found {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It may belong to a server that refuses us, or whose backlog is full.
        Err(_) | Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Whether a server listens. Non-blocking: a server that has stopped accepting, with a full
/// backlog, would block us forever.
fn try_connect(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Whether a connection ends soon although it asked for nothing. The sockets of a process that was
/// killed while it used `io_uring` are closed some time after its end, and until then they listen.
fn hangs_up(mut connection: &Socket) -> bool {
    let waits =
        connection.set_nonblocking(false).and_then(|()| connection.set_read_timeout(Some(SOCKET_ENDS)));
    let gone = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    waits.is_ok() && connection.read(&mut [0]).map_or_else(gone, |bytes| bytes == 0)
}

/// Listens, and tries again until then if the address is in use: the sockets of a process that was
/// killed while it used `io_uring` are closed some time after its end. It blocks the thread.
pub(crate) fn until_free<T>(until: Instant, mut listen: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match listen() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(BINDING_WAIT);
            }
            done => return done,
        }
    }
}

impl TryFrom<TcpListener> for ListeningSocket {
    type Error = io::Error;

    fn try_from(listener: TcpListener) -> io::Result<ListeningSocket> {
        ListeningSocket::new(listener)
    }
}

impl TryFrom<UnixListener> for ListeningSocket {
    type Error = io::Error;

    fn try_from(listener: UnixListener) -> io::Result<ListeningSocket> {
        ListeningSocket::new(listener)
    }
}

/// Binds the Unix sockets among these addresses, once for all threads. The error names the address.
pub(crate) fn bind_all(addresses: &[Address]) -> io::Result<Vec<ListeningSocket>> {
    let unix =
        addresses.iter().filter_map(|at| if let Address::Unix(path) = at { Some((at, path)) } else { None });
    unix.map(|(at, path)| {
        ListeningSocket::bind(path).map_err(|e| io::Error::new(e.kind(), format!("{at}: {e}")))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "it is stale");
        let ours = ListeningSocket::bind(&path).expect("replaced");
        assert_eq!(ours.address(), &Address::Unix(path.as_path().into()));
        let error = ListeningSocket::bind(&path).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(ours);
        assert!(!path.exists(), "it goes with its server");
    }

    #[test]
    fn a_killed_server_whose_socket_is_closed_late_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let killed = UnixListener::bind(&path).expect("bound");
        let end = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(killed);
        });
        ListeningSocket::bind(&path).expect("replaced");
        end.join().expect("ended");
    }

    #[test]
    fn a_server_with_a_full_backlog_is_a_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = SockAddr::unix(&path).expect("short enough");
        let stopped = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        stopped.bind(&address).expect("bound");
        stopped.listen(0).expect("listens");
        let waiting: Vec<Socket> = (0..4)
            .map(|_| {
                let client = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
                client.set_nonblocking(true).expect("does not block");
                let _ = client.connect(&address);
                client
            })
            .collect();
        let (tell, told) = std::sync::mpsc::channel();
        let there = path.clone();
        std::thread::spawn(move || tell.send(ListeningSocket::bind(&there).map(|_| ())));
        let bound = told.recv_timeout(std::time::Duration::from_secs(10)).expect("it does not wait");
        assert_eq!(bound.map_err(|error| error.kind()), Err(io::ErrorKind::AddrInUse));
        assert!(path.exists());
        drop(waiting);
    }

    #[test]
    fn what_is_no_socket_of_ours_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        std::fs::write(&path, "precious").expect("written");
        assert!(ListeningSocket::bind(&path).is_err());
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
        std::fs::remove_file(&path).expect("removed");
        let ours = ListeningSocket::bind(&path).expect("bound");
        // Another server's file took its place.
        std::fs::remove_file(&path).expect("removed");
        let other = UnixListener::bind(&path).expect("bound");
        drop(ours);
        assert!(path.exists());
        drop(other);
    }

    #[test]
    fn only_listening_streams_are_taken() {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(ListeningSocket::new(udp).is_err());
        let (stream, _) = UnixStream::pair().expect("a pair");
        assert!(ListeningSocket::new(stream).is_err());
    }
}
