//! A relay that adds time to each round trip: half of it in either direction. It delays bytes, not
//! packets, so it has no losses and no windows of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{RELAY_CHUNK, RELAY_CHUNKS, RELAY_CONNECTIONS};

/// A relay under way. Dropping it ends it.
#[derive(Debug)]
pub struct LabRelay {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl LabRelay {
    /// Relays connections to `to`, with `round_trip` more for each round trip.
    pub fn start(to: SocketAddr, round_trip: Duration) -> io::Result<LabRelay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        let open = Arc::new(AtomicUsize::new(0));
        let accept = move || {
            for client in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                if open.fetch_add(1, Ordering::Relaxed) >= RELAY_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let open = Arc::clone(&open);
                // A connection that cannot be relayed is closed by this.
                let _ = thread::Builder::new().name("relay".to_owned()).spawn(move || {
                    let _ = relay(client, to, round_trip / 2);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        };
        thread::Builder::new().name("relay".to_owned()).spawn(accept)?;
        Ok(LabRelay { address, ends })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for LabRelay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection, until both sides have ended it.
fn relay(client: TcpStream, to: SocketAddr, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let up = thread::Builder::new().spawn(move || one_way(from_client, server, delay))?;
    one_way(from_server, client, delay);
    let _ = up.join();
    Ok(())
}

type Chunk = (Instant, Vec<u8>);

/// Bytes in one direction, each `delay` after it came.
fn one_way(mut from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver): (SyncSender<Chunk>, Receiver<Chunk>) = mpsc::sync_channel(RELAY_CHUNKS);
    let Ok(writer) = thread::Builder::new().spawn(move || write_late(to, &receiver)) else { return };
    let mut buffer = vec![0; RELAY_CHUNK];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..n].to_vec())).is_err() {
            break;
        }
    }
    // An empty chunk is the end, which is as late as everything else.
    let _ = sender.send((Instant::now() + delay, Vec::new()));
    drop(sender);
    let _ = writer.join();
    let _ = from.shutdown(Shutdown::Read);
}

fn write_late(mut to: TcpStream, chunks: &Receiver<Chunk>) {
    while let Ok((due, bytes)) = chunks.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_the_end_come_late_and_whole() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let relay = LabRelay::start(to, Duration::from_millis(30)).unwrap();
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let sent: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let begun = Instant::now();
        client.write_all(&sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(back, sent);
        echo.join().unwrap();
    }
}
