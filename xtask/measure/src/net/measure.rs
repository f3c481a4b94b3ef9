//! The box measured: how exact its delay is, how much goes through it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use linerate_netbox::{Namespace, NetBox};

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct NetMeasureOptions {
    /// One-way delays to check, milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "0,1,20,100")]
    delays: Vec<u64>,
    /// Round trips for each.
    #[arg(long, default_value_t = 100)]
    trips: usize,
    /// Seconds of transfer.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Measures and prints.
pub(crate) fn run(options: &NetMeasureOptions) -> Result<()> {
    ensure!(options.trips > 0 && options.seconds > 0.0, "at least one round trip and some time");
    println!("| one-way delay | round trip asked | least | median | 99 of 100 |");
    println!("| --- | --- | --- | --- | --- |");
    for ms in &options.delays {
        let net = NetBox::builder().delay(Duration::from_millis(*ms)).start()?;
        let mut trips = trips(&net, options.trips)?;
        trips.sort();
        let at = |q: f64| trips[((trips.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
        println!("| {ms} ms | {} ms | {:.3} ms | {:.3} ms | {:.3} ms |", 2 * ms, at(0.0), at(0.5), at(0.99));
    }
    let net = NetBox::builder().start()?;
    println!(
        "{:.2} Gbit/s of payload from server to client, MTU 1500, no offloads",
        gigabits(&net, options)?
    );
    let report = net.report();
    println!("frames up {}, down {}, missed {}", report.up.delivered, report.down.delivered, report.missed);
    Ok(())
}

fn socket(of: &Namespace) -> Result<UdpSocket> {
    let s = of.run(|| UdpSocket::bind((of.ip(), 0)))??;
    s.set_read_timeout(Some(PATIENCE))?;
    Ok(s)
}

fn trips(net: &NetBox, n: usize) -> Result<Vec<Duration>> {
    let (client, server) = (socket(net.client())?, socket(net.server())?);
    let to = server.local_addr()?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = [0; 64];
        for _ in 0..n {
            let (bytes, from) = server.recv_from(&mut buffer)?;
            server.send_to(&buffer[..bytes], from)?;
        }
        Ok(())
    });
    let mut all = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        client.send_to(b"?", to)?;
        client.recv(&mut [0; 64]).context("no answer")?;
        all.push(start.elapsed());
    }
    echo.join().map_err(|_| anyhow::anyhow!("the echo ended early"))??;
    Ok(all)
}

fn gigabits(net: &NetBox, options: &NetMeasureOptions) -> Result<f64> {
    let ip = net.server().ip();
    let listener = net.server().run(|| TcpListener::bind((ip, 0)))??;
    let at: SocketAddr = listener.local_addr()?;
    std::thread::spawn(move || {
        if let Ok((mut stream, _)) = listener.accept() {
            // Until the client has enough.
            while stream.write_all(&[0; 64 << 10]).is_ok() {}
        }
    });
    let mut stream = net.client().run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (start, mut total, mut buffer) = (Instant::now(), 0, vec![0; 256 << 10]);
    while start.elapsed().as_secs_f64() < options.seconds {
        total += stream.read(&mut buffer)?;
    }
    Ok(total as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9)
}
