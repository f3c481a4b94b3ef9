//! How long a TCP connection to this machine takes over a shaped line, which takes root:
//! `cargo run -p linerate-netbox --example round_trip -- 26ms,loss=1%`.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use linerate_netbox::LineShape;

/// The time that a connection over the line takes.
fn connecting(shape: &LineShape) -> Result<Duration, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let net = shape.builder().to_this_machine().start()?;
    let begin = Instant::now();
    net.client().run(|| TcpStream::connect(address))??;
    Ok(begin.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args().nth(1).ok_or("usage: round_trip LINE")?;
    let shape = text.parse()?;
    println!("{shape}: connected after {:.1} ms", connecting(&shape)?.as_secs_f64() * 1e3);
    Ok(())
}

#[test]
fn it_takes_the_round_trip() {
    if let Some(why) = linerate_netbox::NetBox::unavailable() {
        linerate_skips::skip(linerate_skips::need::NAMESPACES, why);
        return;
    }
    let shape = "5ms".parse().expect("a line");
    assert!(connecting(&shape).expect("it connects") >= Duration::from_millis(5));
}
