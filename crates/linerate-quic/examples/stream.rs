//! Two ends in memory, one stream between them: `cargo run -p linerate-quic --example stream`.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use linerate_base::Time;
use linerate_quic::{QuicEndpoint, QuicEvent, QuicOptions, StreamRead};
use rustls::pki_types::PrivateKeyDer;

/// Sends everything that one end has to say to the other, at once. Returns the number of datagrams.
fn carry(from: &mut QuicEndpoint, to: &mut QuicEndpoint, sender: SocketAddr, now: Time) -> usize {
    let (mut out, mut datagrams) = (Vec::new(), 0);
    while let Some(transmit) = from.next_transmit(now, 10, &mut out) {
        for datagram in out.chunks(transmit.segment) {
            to.receive(now, sender, None, transmit.ecn, datagram);
            datagrams += 1;
        }
        out.clear();
    }
    datagrams
}

fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let own = rcgen::generate_simple_self_signed(["a.example".to_owned()])?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.cert.der().clone())?;
    let chain = vec![own.cert.der().clone()];
    let mut server_tls =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    server_tls.alpn_protocols = vec![b"example".to_vec()];
    let mut client_tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client_tls.alpn_protocols = vec![b"example".to_vec()];

    let options = QuicOptions::default();
    let mut client = QuicEndpoint::client(&options, Arc::new(client_tls), 1)?;
    let mut server = QuicEndpoint::server(&options, Arc::new(server_tls), 2)?;
    let (here, there): (SocketAddr, SocketAddr) = ("10.0.0.1:5000".parse()?, "10.0.0.2:443".parse()?);
    client.connect(Time::ZERO, there, "a.example")?;

    for now in (0..100).map(|millisecond| Time::from_nanos(millisecond * 1_000_000)) {
        let datagrams =
            carry(&mut client, &mut server, here, now) + carry(&mut server, &mut client, there, now);
        client.run_timers(now);
        server.run_timers(now);
        while let Some(event) = client.next_event() {
            if let QuicEvent::Connected { conn } = event {
                writeln!(out, "connected, after {datagrams} datagrams in this step")?;
                let stream = client.open(conn, false).ok_or("the server admits no stream")?;
                client.write(conn, stream, b"hello");
                client.finish(conn, stream);
            }
        }
        while let Some(event) = server.next_event() {
            let QuicEvent::Opened { conn, stream } = event else { continue };
            let mut text = Vec::new();
            let end = server.read(conn, stream, |bytes| text.extend_from_slice(bytes));
            writeln!(out, "stream {}: {:?}, {end:?}", stream.id(), String::from_utf8_lossy(&text))?;
            if end == StreamRead::Ended {
                return Ok(());
            }
        }
    }
    Err("the stream did not end in 100 ms".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut std::io::stdout().lock())
}

#[test]
fn the_stream_arrives() -> Result<(), Box<dyn Error>> {
    let mut out = Vec::new();
    show(&mut out)?;
    assert!(String::from_utf8(out)?.ends_with("stream 0: \"hello\", Ended\n"));
    Ok(())
}
