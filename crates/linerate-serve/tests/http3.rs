//! HTTP/3 over UDP on the loopback: requests, bodies, drains, limits, and clients that break rules.
#![allow(clippy::unwrap_used)]

mod h3_client;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linerate_quic::QuicOptions;
use linerate_serve::{
    Content, FileRoot, Handle, Limits, Request, Response, ServerOptions, SharedContent, TlsIdentity,
    TlsOptions, spawn, spawn_site, spawn_with,
};

use h3_client::{H3TestClient, data, first_datagram, head};

/// Codes of RFC 9114, section 8.1.
mod code {
    pub(crate) const NO_ERROR: u64 = 0x100;
    pub(crate) const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    pub(crate) const FRAME_UNEXPECTED: u64 = 0x105;
    pub(crate) const EXCESSIVE_LOAD: u64 = 0x107;
    pub(crate) const MESSAGE_ERROR: u64 = 0x10e;
    pub(crate) const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;
    pub(crate) const QPACK_ENCODER_STREAM_ERROR: u64 = 0x201;
}

/// Options of a server that speaks HTTP/3, and its certificate in DER.
fn options() -> (ServerOptions, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = TlsIdentity::from_pem(("cert.pem", cert.as_bytes()), ("key.pem", key.as_bytes())).unwrap();
    let mut tls = TlsOptions::new(identity);
    tls.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = Some(tls.build().unwrap());
    let options = ServerOptions { tls, http3: true, threads: 1, ..ServerOptions::default() };
    (options, made.cert.der().to_vec())
}

fn address(server: &Handle) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.addr().port()))
}

/// A server with the demo routes, and a client.
fn demo() -> (Handle, H3TestClient, Vec<u8>) {
    let (options, cert) = options();
    let server = spawn(options).unwrap();
    let client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    (server, client, cert)
}

#[test]
fn requests_have_their_responses() {
    let (server, mut client, _) = demo();
    let hello = client.get("/");
    assert_eq!((hello.status(), &hello.body[..]), ("200", &b"Hello, World!\n"[..]));
    assert_eq!(hello.field("alt-svc"), None, "it knows already");
    assert_eq!(client.get("/nothing").status(), "404");
    let sizes = [0, 1, 1000, 100_000, 5_000_000];
    let streams = sizes.map(|size| client.begin("GET", &format!("/bytes/{size}"), &[], None));
    for (stream, size) in streams.into_iter().zip(sizes) {
        assert_eq!(client.response(stream).body.len(), size);
    }
    let head = client.begin("HEAD", "/bytes/1000", &[], None);
    let head = client.response(head);
    assert_eq!((head.field("content-length"), head.body.len()), (Some("1000"), 0));
    let stats = String::from_utf8(client.get("/stats").body).unwrap();
    assert!(stats.contains("\"HTTP/3.0\":9"), "{stats}");
    drop(client);
    server.stop();
}

#[test]
fn bodies_arrive_whole() {
    let (server, mut client, _) = demo();
    for size in [0, 1, 5_000, 70_000, 1_000_000] {
        let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        let stream = client.begin("POST", "/echo", &[], Some(&body));
        let response = client.response(stream);
        assert_eq!((response.status(), response.body == body), ("200", true), "{size} bytes");
    }
    // In pieces, with a frame that nobody knows between them.
    let stream = client.open();
    client.send(stream, &head("POST", "/upper", &[]), false);
    for piece in [&data(b"hel")[..], &[0x21, 2, 9, 9], &data(b"lo")] {
        client.send(stream, piece, false);
        client.step();
    }
    client.send(stream, b"", true);
    assert_eq!(client.response(stream).body, b"HELLO");
    drop(client);
    server.stop();
}

/// Handlers that wait hold up nobody else, and end in any order.
#[test]
fn streams_do_not_wait_for_each_other() {
    let (server, mut client, _) = demo();
    let slow = client.begin("GET", "/delay/300", &[], None);
    let quick: Vec<_> = (0..100).map(|_| client.begin("GET", "/", &[], None)).collect();
    for stream in quick {
        assert_eq!(client.response(stream).status(), "200");
    }
    assert_eq!(client.response(slow).status(), "200");
    drop(client);
    server.stop();
}

#[test]
fn files_come_with_their_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 253) as u8).collect();
    std::fs::write(folder.path().join("large.bin"), &bytes).unwrap();
    let (options, cert) = options();
    let root = Some(FileRoot::open(folder.path()).unwrap());
    let content = SharedContent::new(Content { root, routes: false, ..Content::default() });
    let server = spawn_site(options, content).unwrap();
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert!(client.get("/large.bin").body == bytes);
    let part = client.begin("GET", "/large.bin", &[("range", "bytes=1000000-1000009")], None);
    let part = client.response(part);
    assert_eq!((part.status(), &part.body[..]), ("206", &bytes[1_000_000..1_000_010]));
    drop(client);
    server.stop();
}

#[test]
fn handlers_see_the_version_and_the_peer() {
    let (options, cert) = options();
    let server = spawn_with(options, || {
        |request: Request| async move {
            let tls = request.tls().map(|tls| tls.agreed.alpn.clone().unwrap_or_default());
            let text =
                format!("{} {:?} {}", request.head().version().name(), tls, request.peer().unwrap().ip());
            Response::text(text)
        }
    })
    .unwrap();
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert_eq!(client.get("/").body, b"HTTP/3.0 Some(\"h3\") 127.0.0.1");
    drop(client);
    server.stop();
}

/// What was received has its response, and the connection ends without an error.
#[test]
fn a_drain_loses_no_request() {
    let (server, mut client, _) = demo();
    assert_eq!(client.get("/").status(), "200");
    let streams: Vec<_> = (0..20).map(|_| client.begin("GET", "/delay/200", &[], None)).collect();
    client.step();
    let large = client.begin("GET", "/bytes/3000000", &[], None);
    (0..5).for_each(|_| client.step());
    let stopping = std::thread::spawn(move || server.stop());
    for stream in streams {
        let response = client.response(stream);
        assert_eq!((response.status(), response.ended), ("200", true), "{:?}", client.lost);
    }
    assert_eq!(client.response(large).body.len(), 3_000_000);
    assert_eq!(client.code(), code::NO_ERROR);
    stopping.join().unwrap();
}

#[test]
fn an_idle_connection_ends_without_an_error() {
    let (options, cert) = options();
    let limits = Limits { idle_time: Duration::from_millis(1500), ..Limits::default() };
    let server = spawn(ServerOptions { limits, ..options }).unwrap();
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert_eq!(client.get("/").status(), "200");
    client.until("the end", |client| client.lost.is_some());
    drop(client);
    server.stop();
}

/// A client that breaks a rule loses its connection; others do not notice.
#[test]
fn rules_are_enforced_over_the_wire() {
    let (server, mut other, cert) = demo();
    let connect = || H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    let mut client = connect();
    let stream = client.open();
    client.send(stream, &data(b"no head"), false);
    assert_eq!(client.code(), code::FRAME_UNEXPECTED);
    let mut client = connect();
    let encoder = client.open_one_way();
    client.send(encoder, &[2], true);
    assert_eq!(client.code(), code::CLOSED_CRITICAL_STREAM);
    let mut client = connect();
    let stream = client.begin("GET", "/", &[("connection", "close")], None);
    assert_eq!(client.response(stream).reset, Some(code::MESSAGE_ERROR));
    assert_eq!(client.get("/").status(), "200", "the connection stays");
    assert_eq!(other.get("/").status(), "200");
    drop((client, other));
    server.stop();
}

/// CVE-2023-44487 over HTTP/3.
#[test]
fn requests_that_are_begun_and_cancelled_have_a_limit() {
    let (server, mut client, _) = demo();
    for _ in 0..2000 {
        if client.lost.is_some() {
            break;
        }
        for _ in 0..20 {
            let stream = client.begin("GET", "/delay/1000", &[], None);
            client.reset(stream, 0x10c);
        }
        client.step();
    }
    assert_eq!(client.code(), code::EXCESSIVE_LOAD);
    drop(client);
    server.stop();
}

/// A head that does not come whole ends its connection.
#[test]
fn half_a_head_is_not_waited_for() {
    let (options, cert) = options();
    let limits = Limits { header_time: Duration::from_millis(300), ..Limits::default() };
    let server = spawn(ServerOptions { limits, ..options }).unwrap();
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    let stream = client.open();
    client.send(stream, &head("GET", "/", &[])[..10], false);
    assert_eq!(client.code(), code::NO_ERROR, "as over HTTP/2");
    drop(client);
    server.stop();
}

/// A client that reads nothing holds no more than the windows, and the others are served.
#[test]
fn slow_readers_hold_up_nobody() {
    let (server, mut other, cert) = demo();
    let mut small = QuicOptions::default();
    (small.stream_window, small.connection_window) = (2000, 4000);
    let mut deaf = H3TestClient::new(address(&server), &cert, &small);
    deaf.is_deaf = true;
    for _ in 0..50 {
        deaf.begin("GET", "/bytes/10000000", &[], None);
    }
    (0..20).for_each(|_| deaf.step());
    for _ in 0..20 {
        assert_eq!(other.get("/bytes/100000").body.len(), 100_000);
    }
    drop((deaf, other));
    server.stop();
}

/// Connections count together with those of TCP.
#[test]
fn connections_over_the_limit_are_refused() {
    let (options, cert) = options();
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = spawn(ServerOptions { limits, ..options }).unwrap();
    let tcp = std::net::TcpStream::connect(address(&server)).unwrap();
    let mut first = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert_eq!(first.get("/").status(), "200");
    let mut second = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert_eq!(second.code(), code::EXCESSIVE_LOAD);
    assert_eq!(first.get("/").status(), "200");
    drop((tcp, first, second));
    server.stop();
}

/// A client whose address changes keeps its connection, whichever thread it has (RFC 9000, section 9).
#[test]
fn a_client_that_moves_keeps_its_connection() {
    let (options, cert) = options();
    let server = spawn(ServerOptions { threads: 4, ..options }).unwrap();
    for _ in 0..4 {
        let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
        for _ in 0..6 {
            assert_eq!(client.get("/bytes/10000").body.len(), 10_000, "{:?}", client.lost);
            client.moves();
        }
    }
    server.stop();
}

/// The capacity of 4,096 bytes that the server announces, on a stream of QPACK's encoder.
const TABLE: [u8; 4] = [2, 0x3f, 0xe1, 0x1f];

/// A whole request that needs an entry.
fn needs_an_entry() -> Vec<u8> {
    let mut section = Vec::new();
    let fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/echo")];
    linerate_http::h3::section_prefix(&mut section);
    for (name, value) in fields {
        linerate_http::h3::field_line(name.as_bytes(), value.as_bytes(), &mut section);
    }
    // Required Insert Count 1, and the newest entry.
    section[0] = 2;
    section.push(0x80);
    let mut out = Vec::new();
    linerate_http::h3::put_frame(linerate_http::h3::frame_kind::HEADERS, &section, &mut out);
    out
}

/// As many streams as the server announces wait for QPACK's table, and are served then; one more ends the
/// connection (RFC 9204, section 2.1.2), and so does a table larger than announced.
#[test]
fn sixteen_streams_wait_for_the_table() {
    let (server, mut other, cert) = demo();
    let connect = || {
        let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
        let encoder = client.open_one_way();
        client.send(encoder, &TABLE, false);
        (client, encoder)
    };
    let (mut client, encoder) = connect();
    let mut waiting = Vec::new();
    for nth in 0..16 {
        let stream = client.open();
        client.send(stream, &needs_an_entry(), false);
        client.step();
        client.send(stream, &data(format!("content {nth}").as_bytes()), true);
        waiting.push(stream);
    }
    assert_eq!(client.get("/").status(), "200", "others go on");
    client.send(encoder, &[0x41, b'x', 1, b'1'], false);
    for (nth, stream) in waiting.into_iter().enumerate() {
        let response = client.response(stream);
        let content = format!("content {nth}").into_bytes();
        assert_eq!((response.status(), &response.body), ("200", &content), "{:?}", client.lost);
    }

    let (mut client, _) = connect();
    for _ in 0..17 {
        let stream = client.open();
        client.send(stream, &needs_an_entry(), true);
    }
    assert_eq!(client.code(), code::QPACK_DECOMPRESSION_FAILED);
    let (mut client, encoder) = connect();
    client.send(encoder, &[0x3f, 0xe2, 0x1f], false);
    assert_eq!(client.code(), code::QPACK_ENCODER_STREAM_ERROR);
    // What waits and is given up, again and again, takes nothing from the connection.
    let (mut client, _) = connect();
    for _ in 0..100 {
        let stream = client.open();
        client.send(stream, &[needs_an_entry(), data(&[b'x'; 10_000])].concat(), false);
        client.step();
        client.reset(stream, 0x10c);
        client.step();
    }
    assert_eq!(client.get("/").status(), "200", "{:?}", client.lost);
    assert_eq!(other.get("/").status(), "200");
    drop((client, other));
    server.stop();
}

/// A stream that waits for the table has no more time than one whose head comes slowly.
#[test]
fn entries_that_never_come_are_not_waited_for() {
    let (options, cert) = options();
    let limits = Limits { header_time: Duration::from_millis(300), ..Limits::default() };
    let server = spawn(ServerOptions { limits, ..options }).unwrap();
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    let encoder = client.open_one_way();
    client.send(encoder, &TABLE, false);
    let stream = client.open();
    client.send(stream, &needs_an_entry(), true);
    assert_eq!(client.code(), code::NO_ERROR);
    drop(client);
    server.stop();
}

/// What comes within this time.
fn datagrams(socket: &UdpSocket, within: Duration) -> Vec<Vec<u8>> {
    let (since, mut came, mut datagram) = (Instant::now(), Vec::new(), [0; 2000]);
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while since.elapsed() < within {
        if let Ok((len, _)) = socket.recv_from(&mut datagram) {
            came.push(datagram[..len].to_vec());
        }
    }
    came
}

/// RFC 9000, section 8.1: the address may be somebody else's. The server repeats what is not
/// acknowledged, but not beyond that.
#[test]
fn an_address_that_is_not_proven_gets_three_times_what_it_sent() {
    let (options, cert) = options();
    let server = spawn(options).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = first_datagram(address(&server), &cert, 1);
    socket.send_to(&first, address(&server)).unwrap();
    let sent: usize = datagrams(&socket, Duration::from_secs(4)).iter().map(Vec::len).sum();
    assert!(sent > first.len() / 2 && sent <= 3 * first.len(), "{sent} bytes for {}", first.len());
    server.stop();
}

/// Beyond 200 handshakes that do not end, a client has to prove its address first (RFC 9000, section 8.1.2).
#[test]
fn a_flood_of_first_packets_is_asked_for_proof() {
    let (options, cert) = options();
    let server = spawn(options).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut came, mut datagram) = (Vec::new(), [0; 2000]);
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for number in 0..300 {
        socket.send_to(&first_datagram(address(&server), &cert, number), address(&server)).unwrap();
        let (len, _) = socket.recv_from(&mut datagram).unwrap();
        came.push(datagram[..len].to_vec());
        // All that came, or the socket has no room for the rest.
        socket.set_nonblocking(true).unwrap();
        while let Ok((len, _)) = socket.recv_from(&mut datagram) {
            came.push(datagram[..len].to_vec());
        }
        socket.set_nonblocking(false).unwrap();
    }
    came.extend(datagrams(&socket, Duration::from_millis(300)));
    // A long header of type 3 (RFC 9000, section 17.2.5).
    let retries = came.iter().filter(|datagram| datagram[0] & 0xf0 == 0xf0).count();
    assert_eq!(retries, 100);
    let mut client = H3TestClient::new(address(&server), &cert, &QuicOptions::default());
    assert_eq!(client.get("/").status(), "200", "whoever proves it is served");
    drop(client);
    server.stop();
}
