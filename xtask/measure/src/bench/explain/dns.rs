//! A name server for one name: it gives the reply that a case needs, with the delay that it needs
//! (RFC 1035).

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_netbox::NetBox;

use super::case::CaseNameServer;

/// The name by which a server is called.
pub(crate) const NAME: &str = "server.test";
/// An unused address in the server's range: packets to it vanish.
pub(crate) const NOBODY: &str = "10.99.2.200";

const PORT: u16 = 53;
/// How often it looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// The running name server; ends when dropped.
#[derive(Debug)]
pub(crate) struct Dns {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The resolv.conf for it.
pub(crate) fn resolv_conf(how: CaseNameServer, at: Ipv4Addr) -> String {
    let dead = if how.dead_before { format!("nameserver {NOBODY}\n") } else { String::new() };
    format!("{dead}nameserver {at}\noptions timeout:1 attempts:2\n")
}

impl Dns {
    pub(crate) fn start(net: &NetBox, how: CaseNameServer) -> Result<Dns> {
        let at = net.server().ip();
        let socket = net.server().run(|| UdpSocket::bind((at, PORT)))?.context("a name server")?;
        socket.set_read_timeout(Some(LOOK))?;
        let nobody = how.dead_first.then(|| NOBODY.parse()).transpose()?;
        let addresses = (net.server().ip(), nobody, how.v6.then(|| net.server().ip6()));
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !told.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
                let mute = how.mute_v6 && kind(&buffer[..n]) == Some(28);
                let Some(answer) = answer(&buffer[..n], addresses).filter(|_| !mute) else { continue };
                let later = socket.try_clone();
                let delay = Duration::from_millis(how.delay_ms);
                // Each reply waits for itself, so that two questions at once take as long as one.
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    if let Ok(socket) = later {
                        let _ = socket.send_to(&answer, from);
                    }
                });
            }
        });
        Ok(Dns { stop, thread: Some(thread) })
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The server's IPv4 address, a dead one before it, and its IPv6 address.
type Addresses = (Ipv4Addr, Option<Ipv4Addr>, Option<Ipv6Addr>);

/// The kind of records that a question is for.
fn kind(question: &[u8]) -> Option<u16> {
    let mut end = 12;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    Some(u16::from_be_bytes(question.get(end + 1..end + 3)?.try_into().ok()?))
}

/// The reply to a question: an address of the right kind, or none.
fn answer(question: &[u8], (v4, nobody, v6): Addresses) -> Option<Vec<u8>> {
    let mut end = 12;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    let kind = u16::from_be_bytes(question.get(end + 1..end + 3)?.try_into().ok()?);
    let question_end = end + 5;
    let data: Vec<Vec<u8>> = match (kind, v6) {
        (1, _) => nobody.into_iter().chain([v4]).map(|a| a.octets().to_vec()).collect(),
        (28, Some(v6)) => vec![v6.octets().to_vec()],
        _ => Vec::new(),
    };
    // PTR: the name does not exist (NXDOMAIN). Another kind: the name has no such record.
    let code = if kind == 12 { 3 } else { 0 };
    let mut out = question.get(..2)?.to_vec();
    out.extend([0x85, 0x80 | code, 0, 1, 0, data.len() as u8, 0, 0, 0, 0]);
    out.extend(question.get(12..question_end)?);
    for data in data {
        // A pointer to the question's name; class IN, time to live 0, so that no cache keeps it.
        out.extend([0xc0, 12, question[end + 1], question[end + 2], 0, 1, 0, 0, 0, 0, 0, data.len() as u8]);
        out.extend(data);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: u8) -> Vec<u8> {
        let mut q = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        q.extend(b"\x06server\x04test\x00");
        q.extend([0, kind, 0, 1]);
        q
    }

    #[test]
    fn answers() {
        let both = (Ipv4Addr::new(10, 99, 2, 1), None, Some(Ipv6Addr::LOCALHOST));
        let a = answer(&ask(1), both).expect("an answer");
        assert_eq!((a[..2].to_vec(), a[7], &a[a.len() - 4..]), (vec![0x12, 0x34], 1, &[10, 99, 2, 1][..]));
        assert_eq!(answer(&ask(28), both).expect("an answer")[7], 1);
        assert_eq!((kind(&ask(28)), kind(b"short")), (Some(28), None));
        assert_eq!(answer(&ask(28), (both.0, None, None)).expect("an answer")[7], 0, "no such address");
        let two = answer(&ask(1), (both.0, Some(Ipv4Addr::LOCALHOST), None)).expect("an answer");
        assert_eq!((two[7], &two[two.len() - 4..]), (2, &[10, 99, 2, 1][..]), "the dead one first");
        assert_eq!(answer(&ask(12), both).expect("an answer")[3] & 15, 3, "NXDOMAIN");
        assert_eq!(answer(&ask(1)[..20], both), None, "cut short");
    }
}
