//! Unchanged programs behind a link that loses one in a hundred segments of each direction.

use linerate_netbox::NetBox;
use linerate_skips::{need, skip};

use super::packaged::{HAPROXY, PackagedServer, SECURE_NGINX};
use super::reloads::{Tunnel, backend, reload_by};
use super::workers::wait_for_owners;
use super::*;

const INTERFACE: &str = linerate_netbox::INTERFACE;
const PORT: u16 = 8080;
/// What goes up and comes down.
const BYTES: usize = 100 << 20;
/// Bytes that are sent through a tunnel before they are read again: less than all buffers on their way.
const PIECE: usize = 64 << 10;

fn lossy() -> Option<(NetBox, SocketAddr)> {
    if let Some(why) = NetBox::unavailable() {
        skip(need::NAMESPACES, why);
        return None;
    }
    let net = NetBox::builder().loss(0.01).seed(7).start().expect("a network");
    let at = SocketAddr::new(net.server().ip().into(), PORT);
    Some((net, at))
}

/// Starts it in the server's namespace.
fn start(net: &NetBox, command: Command, at: Option<SocketAddr>) -> PreloadedProgram {
    let start = || PreloadedProgram::start_here(command, at.map(|at| (INTERFACE, at)));
    net.server().run(start).expect("the namespace")
}

/// A download and a tunnel begin before a reload, and end after it; what follows is the new worker's.
fn loses_segments(of: &PackagedServer) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((net, at)) = lossy() else { return };
    let Some((behind, command)) = of.commands(folder.path(), at, 1) else { return };
    net.server().run(|| backend(2)).expect("the namespace");
    let _behind = behind.map(|command| start(&net, command, None));
    let server = start(&net, command, Some(at));
    wait_for_owners(&server, 1);
    let client = of.client(folder.path(), at);
    let passes_both_ways = |tunnel: &mut Tunnel| {
        pattern(4 << 20).chunks(PIECE).for_each(|piece| tunnel.echoes_bytes(piece));
    };
    let served = net.client().run(|| {
        let mut old = Tunnel::through(client.connected());
        let mut slow = BufReader::new(client.connected());
        slow.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        passes_both_ways(&mut old);
        reload_by(of.reload, &server, 2);
        passes_both_ways(&mut old);
        assert!(body(&mut slow) == pattern(20 << 20));
        let mut new = Tunnel::through(client.connected());
        passes_both_ways(&mut new);
        assert!(client.get("/file") == pattern(20 << 20));
        (old, new)
    });
    let of_the_kernel = net.server().run(|| kernel_connections(PORT));
    assert_eq!(of_the_kernel.expect("the namespace"), 0, "{}", server.said());
    drop(served);
}

#[test]
fn haproxy_loses_one_in_a_hundred_segments() {
    loses_segments(&HAPROXY);
}

#[test]
fn nginx_with_tls_loses_one_in_a_hundred_segments() {
    loses_segments(&SECURE_NGINX);
}

#[test]
fn a_hundred_megabytes_arrive_both_ways_though_one_segment_in_a_hundred_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((net, at)) = lossy() else { return };
    let Some(command) = redis(folder.path(), at) else { return };
    let _server = start(&net, command, Some(at));
    let back = net.client().run(|| {
        let mut client = BufReader::new(connected_to(at));
        let value = pattern(BYTES);
        ask(client.get_mut(), &[b"SET", b"key", &value]);
        assert_eq!(reply(&mut client), b"+OK");
        ask(client.get_mut(), &[b"GET", b"key"]);
        assert!(reply(&mut client) == value);
    });
    back.expect("the namespace");
}
