//! What a record costs in allocations once a connection is warm.

mod identity;

use std::net::{Ipv4Addr, SocketAddr};

use allocation_counter::measure;
use identity::{CLIENT, LOCALHOST, SERVER, client_options, identity, layer};
use linerate_net::Listener;
use linerate_net::layer::{Layer, Session};
use linerate_tls::{ServerOptions, TlsLayer, TlsSession, Version};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
const RECORDS: u64 = 50;

/// Both ends of a connection that is ready.
fn ready(version: Version) -> (TlsLayer, TlsSession, TlsSession) {
    let mut options = client_options(&LOCALHOST);
    options.most = version;
    let mut layer = layer(&options, &ServerOptions::new(identity(&LOCALHOST)));
    let mut client = layer.connect(CLIENT, PEER).expect("a session").expect("with TLS");
    let mut server = layer.accept(Listener::new(0), SERVER, PEER).expect("with TLS");
    let mut wire = Vec::new();
    client.begin(&mut wire);
    for _ in 0..3 {
        server.open(&mut wire, &mut |_| ());
        wire.clear();
        server.reply(&mut wire);
        client.open(&mut wire, &mut |_| ());
        wire.clear();
        client.reply(&mut wire);
    }
    assert!(client.is_ready() && server.is_ready());
    (layer, client, server)
}

/// rustls makes a vector for each record it seals and for each that it opens; nothing of ours comes on top.
#[test]
fn a_record_takes_one_allocation_at_each_end() {
    for (version, len) in [Version::Tls12, Version::Tls13].into_iter().flat_map(|v| [(v, 300), (v, 16 << 10)])
    {
        let (_layer, mut client, mut server) = ready(version);
        let mut wire = Vec::new();
        let bytes = vec![b'x'; len];
        let mut got = 0;
        let mut one = || {
            wire.clear();
            client.seal(&bytes, &mut wire);
            server.open(&mut wire, &mut |plain| got += plain.len());
        };
        one();
        let allocated = measure(|| (0..RECORDS).for_each(|_| one()));
        assert_eq!(got as u64, (RECORDS + 1) * len as u64);
        assert!(allocated.count_total <= 2 * RECORDS, "{version:?}, {len} bytes: {allocated:?}");
    }
}

/// Over io_uring and user-space TCP a record comes in pieces: 32 KiB stayed with each connection.
#[test]
fn a_record_that_came_in_pieces_leaves_no_buffer_of_its_size() {
    let left = |piece: usize| {
        let (_layer, mut client, mut server) = ready(Version::Tls13);
        let (mut wire, mut got) = (Vec::new(), 0);
        client.seal(&[b'x'; 30_000], &mut wire);
        let measured = measure(|| {
            for piece in wire.chunks_mut(piece) {
                server.open(piece, &mut |plain| got += plain.len());
            }
        });
        assert_eq!(got, 30_000);
        measured.bytes_current
    };
    // What the thread keeps is there from then on.
    left(1000);
    for piece in [1000, 4096, 10_000] {
        assert!(left(piece) <= 3 << 10, "{piece} bytes at a time: {} bytes", left(piece));
    }
}
