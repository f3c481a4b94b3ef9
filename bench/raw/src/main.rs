//! `linerate-bench-raw serve|serve-uring|serve-h2|serve-h3|serve-tls|epoll|uring|h2|h3|run`: each command's error message lists its
//! options.

mod args;
mod child;

use std::io::Write;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use args::Args;
use linerate_bench_raw::{
    client, epoll, h2_client, h2_server, h3_client, h3_server, ring_server, server, sys, tls_server, uring,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("serve") => serve(words),
        Some("serve-uring") => serve_by_ring(words),
        Some("serve-h2") => serve_h2(words),
        Some("serve-h3") => serve_h3(words),
        Some("serve-tls") => serve_tls(words),
        Some("epoll") => send(words, "epoll"),
        Some("uring") => send(words, "uring"),
        Some("h2") => send(words, "h2"),
        Some("h3") => send_h3(words),
        Some("run") => child::run(words),
        _ => bail!(
            "usage: linerate-bench-raw serve|serve-uring|serve-h2|serve-h3|serve-tls|epoll|uring|h2|h3|run [--option value]..."
        ),
    }
}

fn print_line(v: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{v}")?;
    Ok(out.flush()?)
}

fn serve(words: impl Iterator<Item = String>) -> Result<()> {
    let known = [
        "listen",
        "body",
        "response",
        "close-after",
        "stall-ms",
        "stall-every-ms",
        "wait-ms",
        "core",
        "spin",
        "until-stdin-ends",
    ];
    let a = Args::parse(words, &known)?;
    let stall = match (a.maybe("stall-ms")?, a.maybe("stall-every-ms")?) {
        (Some(lasts), Some(every)) if lasts < every => {
            Some((Duration::from_millis(lasts), Duration::from_millis(every)))
        }
        (None, None) => None,
        _ => bail!("--stall-ms and --stall-every-ms go together, the first below the second"),
    };
    let content = match a.maybe::<String>("response")? {
        Some(file) => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            server::RawContent::given(&text).with_context(|| file)?
        }
        None => server::RawContent::text(a.or("body", 13)?),
    };
    let options = server::RawServerOptions {
        listen: a.or("listen", SocketAddrV4::new([127, 0, 0, 1].into(), 0))?,
        content,
        close_after: a.maybe("close-after")?,
        stall,
        wait: a.maybe("wait-ms")?.map(Duration::from_millis),
        core: a.maybe("core")?,
        spin: a.or("spin", false)?,
        until_stdin_ends: a.or("until-stdin-ends", false)?,
    };
    sys::raise_descriptor_limit();
    sys::end_on_signal();
    let (server, at) = server::RawServer::bind(options).context("cannot listen")?;
    print_line(&json!({ "listening": at.to_string() }))?;
    let seen = server.run()?;
    print_line(&json!({
        "requests": seen.requests, "connections": seen.connections, "first_us": seen.first_us,
        "last_us": seen.last_us, "stalls_us": seen.stalls, "ticks_us": seen.ticks, "cpu_s": sys::cpu_seconds(),
    }))
}

fn serve_by_ring(words: impl Iterator<Item = String>) -> Result<()> {
    let a = Args::parse(words, &["listen", "body"])?;
    sys::raise_descriptor_limit();
    sys::end_on_signal();
    let at = a.or("listen", SocketAddrV4::new([127, 0, 0, 1].into(), 0))?;
    let (server, at) = ring_server::RawRingServer::bind(at, a.or("body", 13)?).context("cannot listen")?;
    print_line(&json!({ "listening": at.to_string() }))?;
    Ok(server.run()?)
}

fn serve_h2(words: impl Iterator<Item = String>) -> Result<()> {
    let a = Args::parse(words, &["listen", "body", "spin", "until-stdin-ends", "tls-cert", "tls-key"])?;
    let tls = match (a.maybe::<String>("tls-cert")?, a.maybe::<String>("tls-key")?) {
        (Some(cert), Some(key)) => Some(tls(&cert, &key, b"h2")?),
        (None, None) => None,
        _ => bail!("--tls-cert and --tls-key go together"),
    };
    let options = h2_server::RawStreamServerOptions {
        listen: a.or("listen", SocketAddrV4::new([127, 0, 0, 1].into(), 0))?,
        body: a.or("body", 13)?,
        spin: a.or("spin", false)?,
        until_stdin_ends: a.or("until-stdin-ends", false)?,
        tls,
    };
    sys::raise_descriptor_limit();
    sys::end_on_signal();
    let (server, at) = h2_server::RawStreamServer::bind(options).context("cannot listen")?;
    print_line(&json!({ "listening": at.to_string() }))?;
    let requests = server.run()?;
    print_line(&json!({ "requests": requests, "cpu_s": sys::cpu_seconds() }))
}

/// TLS with certificate and key of these files, for this protocol alone.
fn tls(cert: &str, key: &str, alpn: &[u8]) -> Result<Arc<rustls::ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

fn serve_tls(words: impl Iterator<Item = String>) -> Result<()> {
    let a = Args::parse(words, &["listen", "body", "tls-cert", "tls-key"])?;
    sys::raise_descriptor_limit();
    sys::end_on_signal();
    let at = a.or("listen", SocketAddrV4::new([127, 0, 0, 1].into(), 0))?;
    let file = |name| a.maybe::<String>(name)?.with_context(|| format!("--{name} FILE is needed"));
    let config = tls(&file("tls-cert")?, &file("tls-key")?, b"http/1.1")?;
    let server = tls_server::RawTlsServer::bind(at, a.or("body", 13)?, config).context("cannot listen")?;
    print_line(&json!({ "listening": server.at()?.to_string() }))?;
    Ok(server.run()?)
}

fn serve_h3(words: impl Iterator<Item = String>) -> Result<()> {
    let a = Args::parse(words, &["listen", "body", "tls-cert", "tls-key", "core"])?;
    sys::end_on_signal();
    if let Some(core) = a.maybe("core")? {
        sys::pin(core)?;
    }
    let at = a.or("listen", SocketAddrV4::new([127, 0, 0, 1].into(), 0))?;
    let file = |name| a.maybe::<String>(name)?.with_context(|| format!("--{name} FILE is needed"));
    let config = tls(&file("tls-cert")?, &file("tls-key")?, b"h3")?;
    let server = h3_server::RawH3Server::bind(at, a.or("body", 13)?, config).context("cannot listen")?;
    print_line(&json!({ "listening": server.at()?.to_string() }))?;
    let requests = server.run()?;
    print_line(&json!({ "requests": requests, "cpu_s": sys::cpu_seconds() }))
}

fn send_h3(words: impl Iterator<Item = String>) -> Result<()> {
    let a = Args::parse(words, &["target", "connections", "depth", "seconds", "core"])?;
    let options = client::RawClientOptions {
        target: a.maybe("target")?.context("--target ADDR:PORT is needed")?,
        connections: a.or("connections", 32)?,
        depth: a.or("depth", 1)?,
        short: false,
        lasts: Duration::from_secs_f64(a.or("seconds", 3.0)?),
        core: a.maybe("core")?,
        receive: None,
        fields: String::new(),
    };
    if let Some(core) = options.core {
        sys::pin(core)?;
    }
    let (counts, datagrams) = h3_client::run(&options)?;
    let seconds = counts.elapsed.as_secs_f64();
    print_line(&json!({
        "answered": counts.answered, "received": counts.received, "seconds": seconds,
        "rate": counts.answered as f64 / seconds, "cpu_s": sys::cpu_seconds(),
        "datagrams": { "sent": datagrams.sent.0, "sends": datagrams.sent.1,
            "received": datagrams.received.0, "receives": datagrams.received.1 },
    }))
}

fn send(words: impl Iterator<Item = String>, how: &str) -> Result<()> {
    let known = ["target", "connections", "depth", "short", "seconds", "core", "receive", "fields"];
    let a = Args::parse(words, &known)?;
    let options = client::RawClientOptions {
        target: a.maybe("target")?.context("--target ADDR:PORT is needed")?,
        connections: a.or("connections", 64)?,
        depth: a.or("depth", 1)?,
        short: a.or("short", false)?,
        lasts: Duration::from_secs_f64(a.or("seconds", 3.0)?),
        core: a.maybe("core")?,
        receive: a.maybe("receive")?,
        fields: a.or("fields", String::new())?,
    };
    sys::raise_descriptor_limit();
    if let Some(core) = options.core {
        sys::pin(core)?;
    }
    let counts = match how {
        "epoll" => epoll::run(&options)?,
        "h2" => h2_client::run(&options)?,
        _ => uring::run(&options)?,
    };
    let seconds = counts.elapsed.as_secs_f64();
    print_line(&json!({
        "answered": counts.answered, "received": counts.received, "broken": counts.broken, "reads": counts.reads,
        "seconds": seconds, "rate": counts.answered as f64 / seconds, "cpu_s": sys::cpu_seconds(),
    }))
}
