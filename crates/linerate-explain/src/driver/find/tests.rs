use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::*;

fn holder(pid: u32, parent: u32, waits: Waits, ran_ms: u64) -> Holder {
    let ran = Duration::from_millis(ran_ms);
    Holder { pid, parent: Some(parent), name: "server".to_owned(), waits, ran }
}

#[test]
fn a_child_that_inherited_the_socket_does_not_accept() {
    use Waits::{Elsewhere, Perhaps, There};
    let child = |waits, ran| holder(8, 7, waits, ran);
    assert_eq!(accepting(&[], &[]), AcceptingProcess::Nobody);
    assert_eq!(accepting(&[holder(7, 1, Perhaps, 0)], &[]), AcceptingProcess::One(7));
    assert_eq!(accepting(&[holder(7, 1, There, 5), child(Elsewhere, 0)], &[7]), AcceptingProcess::One(7));
    // It works for itself meanwhile.
    assert_eq!(accepting(&[holder(7, 1, There, 5), child(Elsewhere, 900)], &[]), AcceptingProcess::One(7));
    assert_eq!(accepting(&[holder(7, 1, Perhaps, 5), child(Perhaps, 0)], &[7]), AcceptingProcess::One(7));
    // A master and its only worker.
    assert_eq!(accepting(&[holder(7, 1, Perhaps, 0), child(Perhaps, 9)], &[8]), AcceptingProcess::One(8));
}

#[test]
fn each_that_accepts_is_one_of_several() {
    use Waits::{Perhaps, There};
    let master = holder(7, 1, Perhaps, 0);
    let workers = [master.clone(), holder(8, 7, There, 9), holder(9, 7, There, 0)];
    assert_eq!(accepting(&workers, &[8]), AcceptingProcess::Several(vec![8, 9]));
    // They wait in select, and it was the turn of one.
    let unseen = [master, holder(8, 7, Perhaps, 9), holder(9, 7, Perhaps, 0)];
    assert_eq!(accepting(&unseen, &[8]), AcceptingProcess::Several(vec![8, 9]));
    // A parent that accepts beside its child.
    let both = [holder(7, 1, There, 9), holder(8, 7, There, 9)];
    assert_eq!(accepting(&both, &[7]), AcceptingProcess::Several(vec![7, 8]));
}

#[test]
fn what_nothing_shows_is_unclear() {
    use Waits::{Elsewhere, Perhaps};
    let all = [holder(7, 1, Perhaps, 0), holder(8, 7, Perhaps, 0)];
    assert_eq!(accepting(&all, &[]), AcceptingProcess::Unclear(vec![7, 8]));
    let all = [holder(7, 1, Elsewhere, 9), holder(8, 7, Elsewhere, 0)];
    assert_eq!(accepting(&all, &[]), AcceptingProcess::Unclear(vec![7, 8]));
    // Both have the connection: the one that works uses it.
    assert_eq!(accepting(&all, &[7, 8]), AcceptingProcess::One(7));
}

/// A JVM that is asked for 127.0.0.1 listens on ::ffff:127.0.0.1.
#[test]
fn an_address_of_ipv4_in_one_of_ipv6_is_that_address() {
    let listening = |local: &str| TcpSocket {
        state: SocketState::LISTEN,
        local: local.parse().expect("an address"),
        peer: "0.0.0.0:0".parse().expect("an address"),
        receive_queue: 0,
        send_queue: 0,
        inode: 7,
    };
    let takes = |local: &str, to: &str| answers(&listening(local), to.parse().expect("an address"));
    assert!(takes("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
    assert!(takes("127.0.0.1:80", "127.0.0.1:80") && takes("[::]:80", "127.0.0.1:80"));
    assert!(!takes("[::ffff:127.0.0.2]:80", "127.0.0.1:80") && !takes("0.0.0.0:80", "[::1]:80"));
}

/// A Python program that prints its port, and perhaps a number, and ends with its standard input.
struct Program {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Program {
    fn run(text: &str) -> (Program, SocketAddr) {
        let mut child = Command::new("python3")
            .args(["-c", text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Program { child, lines };
        let port = u16::try_from(program.number()).expect("a port");
        (program, ([127, 0, 0, 1], port).into())
    }

    fn number(&mut self) -> u32 {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim().parse().expect("a number")
    }
}

#[test]
fn a_process_that_listens_is_found_and_our_own_is_not() {
    let listens = "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\n\
        print(s.getsockname()[1],flush=True)\nsys.stdin.read()";
    let (program, at) = Program::run(listens);
    let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), at.port());
    assert_eq!(Holders::of(at).only(), Some(program.child.id()));
    assert_eq!(Holders::of(elsewhere).found(&[]), AcceptingProcess::Nobody);
    let own = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    assert_eq!(Holders::of(own.local_addr().expect("an address")).found(&[]), AcceptingProcess::Nobody);
}

/// A parent that accepts, and a child that sleeps: both have the listening socket.
const INHERITS: &str = "
import os, socket, sys, threading, time
s = socket.create_server(('127.0.0.1', 0))
pid = os.fork()
if pid == 0:
    sys.stdin.read()
    os._exit(0)
def serve():
    while True:
        c, _ = s.accept()
        c.sendall(c.recv(10))
        globals().setdefault('kept', []).append(c)
threading.Thread(target=serve, daemon=True).start()
print(s.getsockname()[1], flush=True)
sys.stdin.read()
os.waitpid(pid, 0)
";

#[test]
fn the_parent_that_accepts_is_found_and_not_its_child() {
    let (program, at) = Program::run(INHERITS);
    let holders = Holders::of(at);
    assert_eq!((holders.all.len(), holders.only()), (2, None));
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(b"a").expect("open");
    stream.read_exact(&mut [0]).expect("it answers");
    let ours = [stream.local_addr().expect("open")];
    assert_eq!(holders.found(&ours), AcceptingProcess::One(program.child.id()), "{holders:#?}");
    assert_eq!(holders.handed_to(&ours), None);
}
