//! The stack over AF_XDP in generic mode: a sender on the same machine leaves segmentation to a card
//! that does not exist, so that packets are larger than a frame. Needs root.

mod namespaces;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use linerate_net::link::xdp::{Steer, Xdp, XdpMode, XdpOptions, open};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{After, Close, Event, ListenOptions, Transport};
use namespaces::{Cable, Namespace, OUR_V4, OUR_V6, OURS, THEIRS};

const PORT: u16 = 8080;
const BYTES: usize = 30_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Byte of the upload at this offset.
fn byte_at(at: usize) -> u8 {
    ((at * 31) >> 7) as u8
}

/// Receives one upload.
fn receive(net: &mut Stack<Xdp>) {
    let until = net.now() + PATIENCE;
    let (mut received, mut events) = (0, Vec::new());
    loop {
        assert!(net.now() < until, "{received} bytes, {:?}, {:?}", net.link().counts(), net.stats());
        net.turn(Some(until), &mut events).expect("a turn");
        for event in events.drain(..) {
            let Event::Readable { conn, data } = event else { continue };
            let after = net.receive(data, |bytes| {
                let wrong = bytes.iter().zip(received..).position(|(byte, at)| *byte != byte_at(at));
                assert_eq!(wrong, None, "behind {received} bytes");
                received += bytes.len();
            });
            match after {
                After::Ended => {
                    assert_eq!(received, BYTES);
                    net.close(conn, Close::Now);
                    return;
                }
                After::Failed(error) => panic!("{error} behind {received} bytes"),
                After::Open | After::Gone => {}
            }
        }
    }
}

/// Uploads from `theirs` to these addresses of an interface of `ours`.
fn uploads_arrive(theirs: &Namespace, ours: &Namespace, interface: &str, at: &[IpAddr]) {
    let at: Vec<SocketAddr> = at.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect();
    let steer = Steer::Listen(at.clone());
    let options = XdpOptions { mode: XdpMode::Generic, ..XdpOptions::new(interface, steer) };
    ours.run(|| {
        let mut opened = open(&options).expect("an interface");
        assert_eq!(opened.how, "generic, copy");
        assert_eq!(opened.notes, Vec::<String>::new(), "frames may be joined");
        let stack = StackOptions { addresses: opened.addresses.clone(), ..StackOptions::default() };
        let mut net = Stack::new(opened.links.remove(0), stack);
        for at in at {
            net.listen(at, &ListenOptions::default()).expect("can listen");
            let upload = || {
                let bytes: Vec<u8> = (0..BYTES).map(byte_at).collect();
                TcpStream::connect(at).expect("a connection").write_all(&bytes).expect("sent");
            };
            thread::scope(|scope| {
                let sending = scope.spawn(|| theirs.run(upload));
                receive(&mut net);
                sending.join().expect("no panic");
            });
            let (counts, stats) = (net.link().counts(), net.stats());
            // The test is about nothing if the kernel sends single segments.
            assert!(stats.packets_in < (BYTES / 4096) as u64, "{stats:?}");
            assert_eq!((counts.too_large, stats.bad_checksum, stats.malformed), (0, 0, 0), "{stats:?}");
        }
    });
}

#[test]
fn uploads_of_packets_larger_than_a_frame_arrive() {
    let Some(cable) = Cable::new(1) else { return };
    uploads_arrive(&cable.theirs, &cable.ours, OURS, &[OUR_V4.into(), OUR_V6.into()]);
    // No segment fits into a frame any more.
    for (end, name) in [(&cable.ours, OURS), (&cable.theirs, THEIRS)] {
        end.must(&format!("ip link set {name} mtu 9000"));
    }
    uploads_arrive(&cable.theirs, &cable.ours, OURS, &[OUR_V4.into(), OUR_V6.into()]);
}

#[test]
fn uploads_to_a_macvlan_arrive() {
    let Some(cable) = Cable::new(1) else { return };
    let address = Ipv4Addr::new(10, 77, 0, 5);
    let host = cable.macvlan("mv0", address);
    uploads_arrive(&cable.theirs, &host, "mv0", &[address.into()]);
}

#[test]
fn uploads_to_a_bridge_arrive() {
    let Some(cable) = Cable::new(1) else { return };
    for line in [
        "ip link add bridge type bridge",
        &format!("ip address flush dev {OURS}"),
        &format!("ip link set {OURS} master bridge"),
        &format!("ip address add {OUR_V4}/24 dev bridge"),
        "ip link set bridge up",
    ] {
        cable.ours.must(line);
    }
    uploads_arrive(&cable.theirs, &cable.ours, "bridge", &[OUR_V4.into()]);
}
