//! What an idle TLS connection costs a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{PeerProcess, ServePeer, Sessions};
use crate::bench::Tools;
use crate::bench::alone::AloneFinding;
use xtask::shell;

const CONNECTIONS: usize = 2_000;
/// An aim, kB.
const AIM: f64 = 8.0;
/// How long servers get to give back what they only needed for the moment.
const SETTLES: Duration = Duration::from_millis(700);

/// Opens connections one by one, asks once on each, says that they are open and holds them until its input ends.
const HOLD: &str = "
import socket, ssl, sys
port, n = int(sys.argv[1]), int(sys.argv[2])
c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
held = []
for _ in range(n):
    s = c.wrap_socket(socket.create_connection(('127.0.0.1', port)))
    s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
    got = b''
    while not got.endswith(b'Hello, World!\\n'):
        piece = s.recv(4096)
        if not piece: sys.exit('closed')
        got += piece
    held.append(s)
print('open', flush=True)
sys.stdin.read()
";

/// Measures each server alone, fresh.
pub(super) fn run(t: &Tools) -> Result<Vec<AloneFinding>> {
    let nginx = one(t, ServePeer::TlsNginx(Sessions::Resumed))?;
    let ours = one(t, ServePeer::TlsLinerate)?;
    println!("  linerate serve {ours:.2} kB each, nginx {nginx:.2} kB each");
    let what = "the server's memory per idle TLS connection (resident, after minus before)";
    let wanted = format!("at most nginx's {nginx:.2} kB (aim: {AIM} kB)");
    Ok(vec![AloneFinding::new(what, wanted, format!("{ours:.2} kB"), ours <= nginx)])
}

fn one(t: &Tools, peer: ServePeer) -> Result<f64> {
    let server = PeerProcess::start(t, peer)?;
    // Memory that the first connections allocate once is not a connection's.
    end(hold(&server, 4)?)?;
    std::thread::sleep(SETTLES);
    let before = server.memory_kb("VmRSS")?;
    let held = hold(&server, CONNECTIONS)?;
    std::thread::sleep(SETTLES);
    let after = server.memory_kb("VmRSS")?;
    end(held)?;
    Ok((after as f64 - before as f64) / CONNECTIONS as f64)
}

fn hold(server: &PeerProcess, n: usize) -> Result<Child> {
    let python = shell::find("python3").context("python3 is not installed")?;
    let mut command = Command::new(python);
    command.args(["-c", HOLD, &server.address.port().to_string(), &n.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
    ensure!(line.trim() == "open", "the connections cannot be opened (is `ulimit -n` above 3,000?)");
    Ok(child)
}

fn end(mut child: Child) -> Result<()> {
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}
