//! What a record costs in allocations once a connection is warm.

mod identity;

use std::net::{Ipv4Addr, SocketAddr};

use allocation_counter::measure;
use identity::{CLIENT, LOCALHOST, SERVER, client_options, identity, layer};
use linerate_net::Listener;
use linerate_net::layer::{Layer, Session};
use linerate_tls::{ServerOptions, Version};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
const RECORDS: u64 = 50;

/// rustls makes a vector for each record it seals and for each that it opens; nothing of ours comes on top.
#[test]
fn a_record_takes_one_allocation_at_each_end() {
    for (version, len) in [Version::Tls12, Version::Tls13].into_iter().flat_map(|v| [(v, 300), (v, 16 << 10)])
    {
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
        wire.clear();
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
