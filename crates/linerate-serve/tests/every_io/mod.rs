//! A server on every TCP: the kernel's by epoll and io_uring, and our own over a cable to a kernel's client.
#![allow(clippy::unwrap_used)]

#[path = "../../../linerate-net/tests/namespaces/mod.rs"]
pub(crate) mod namespaces;

use std::io;
use std::net::SocketAddr;

use linerate_serve::{Draining, Handle, Io, ServerOptions};
use linerate_skips::{need, skip_part};

use namespaces::{Cable, OUR_V4, OURS};

/// Runs a test on a server over epoll, over io_uring where that can be had, and, as root, over AF_XDP: the server at one end of a
/// cable, the test with the kernel's TCP at the other.
pub(crate) fn with(
    options: ServerOptions,
    spawn: impl Fn(ServerOptions) -> io::Result<Handle> + Sync,
    test: impl Fn(Handle),
) {
    // Each server has an end of its own.
    let options = || ServerOptions { draining: Draining::default(), ..options.clone() };
    for io in [Io::Epoll, Io::Uring] {
        match spawn(ServerOptions { io, ..options() }) {
            Ok(server) => test(server),
            Err(error) if io == Io::Uring => skip_part("over uring", need::IO_URING, error),
            Err(error) => panic!("{error}"),
        }
    }
    let Some(cable) = Cable::for_part("over xdp", 2) else { return };
    let listen = vec![SocketAddr::from((OUR_V4, 0)).into()];
    let options = ServerOptions { io: Io::Xdp, interface: Some(OURS.to_owned()), listen, ..options() };
    let server = cable.ours.run(|| spawn(options)).unwrap();
    // This thread stays there: the test's own, and what is over xdp comes last.
    cable.theirs.enter();
    test(server);
}
