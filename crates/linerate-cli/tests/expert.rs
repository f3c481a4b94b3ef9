//! tshark's expert remarks on `--io xdp` over a link without loss. Needs root and tshark.

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::answer;
use namespaces::{Cable, Namespace, OUR_V4, OURS, THEIR_V4, THEIRS};

const PORT: u16 = 8080;
const A_WHILE: Duration = Duration::from_secs(20);
/// The address of our client.
const FROM: &str = "10.77.0.9";
/// Remarks of tshark that indicate no fault. Connections begin, end and are reset here, and windows
/// open. The kernel's client that does not read closes its window, which ours fills and probes. It
/// probes as Linux does, with a sequence number that was already acknowledged, and tshark takes
/// that for keep-alive.
const FINE: [&str; 12] = [
    "Connection establish",
    "Connection finish",
    "Connection reset (RST)",
    "This frame initiates the connection closing",
    "This frame undergoes the connection closing",
    "TCP window update",
    "TCP window specified by the receiver is now completely full",
    "TCP Zero Window segment",
    "TCP Zero Window Probe",
    "ACK to a TCP Zero Window Probe",
    "TCP keep-alive segment",
    "ACK to a TCP keep-alive segment",
];

/// A process that ends with the test.
struct Process(Child);

impl Process {
    /// Starts it, and waits for a line with this text on its standard error.
    fn start(within: &Namespace, mut command: Command, ready: &str) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = within.run(|| command.spawn().expect("it starts"));
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains(ready) {
            assert!(lines.read_line(&mut said).expect("words") > 0, "it ended: {said}");
        }
        // Keeps the pipe open for later output.
        thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(within: &Namespace, flags: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("serve").args(["--threads", "1"]).args(flags.split(' '));
    Process::start(within, command, "listening on")
}

/// A capture on the kernel's end of the cable.
struct Capture {
    tshark: Process,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Capture {
    fn start(cable: &Cable) -> Capture {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("packets.pcapng");
        let mut command = Command::new("tshark");
        command.args(["-i", THEIRS, "-f", "tcp", "-B", "64", "-q", "-w"]).arg(&file);
        let tshark = Process::start(&cable.theirs, command, "Capturing on");
        let capture = Capture { tshark, file, _dir: dir };
        // The line comes before tshark captures: only packets in the file show that it is at work.
        while capture.len() < 1000 {
            cable.theirs.run(|| TcpStream::connect((OUR_V4, 9)).map(drop).unwrap_or_default());
            thread::sleep(Duration::from_millis(20));
        }
        capture
    }

    fn len(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |m| m.len())
    }

    /// Ends it; what tshark remarks, with how often and the first frame, and how many SYNs it saw
    /// for this port.
    fn end(mut self) -> (BTreeMap<String, (usize, String)>, usize) {
        // Packets that are not in the file yet.
        let mut before = 0;
        while self.len() > before {
            before = self.len();
            thread::sleep(Duration::from_millis(300));
        }
        let pid = self.tshark.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        self.tshark.0.wait().expect("it ends");
        // Checksums of what the kernel sends are left to a card that does not exist.
        const CHECK: [&str; 4] = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
        let ours = format!("(ip.src == {OUR_V4} || ip.src == {FROM})");
        let bad = format!("{ours} && (tcp.checksum.status != 1 || ip.checksum.status != 1)");
        assert_eq!(self.read(&CHECK, &bad, &["frame.number"]), "", "checksums");
        let port = format!("tcp.port == {PORT}");
        let remarks = self.read(
            &[],
            &format!("{port} && _ws.expert"),
            &["ip.src", "_ws.expert.message", "frame.number", "tcp.stream", "tcp.seq"],
        );
        let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for line in remarks.lines() {
            let mut columns = line.split('\t');
            let (source, messages) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
            for message in messages.split(';').filter(|m| !FINE.iter().any(|fine| m.contains(fine))) {
                let key = format!("{source}: {message}");
                found.entry(key).or_insert_with(|| (0, line.to_owned())).0 += 1;
            }
        }
        let syns =
            self.read(&[], &format!("{port} && tcp.flags.syn == 1 && tcp.flags.ack == 0"), &["ip.src"]);
        (found, syns.lines().count())
    }

    fn read(&self, options: &[&str], filter: &str, fields: &[&str]) -> String {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-Y", filter, "-T", "fields", "-E", "aggregator=;"]);
        command.args(["-d", &format!("tcp.port=={PORT},data")]).args(options);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let out = command.output().expect("tshark");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

fn connected() -> TcpStream {
    let stream = TcpStream::connect_timeout(&(OUR_V4, PORT).into(), A_WHILE).expect("connected");
    stream.set_read_timeout(Some(A_WHILE)).expect("set");
    stream.set_nodelay(true).expect("set");
    stream
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
}

/// The kernel's clients, of all sorts; how many connections they made.
fn ask_in_all_ways() -> usize {
    const SHORT: usize = 20;
    const UPLOAD: usize = 8 << 20;
    for _ in 0..SHORT {
        let mut stream = connected();
        write!(stream, "GET /bytes/600 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut whole = Vec::new();
        stream.read_to_end(&mut whole).expect("the answer");
        assert!(whole.len() > 600);
    }
    // Keep-alive, then pipelined, then a large response, then a large body both ways, on one
    // connection.
    let mut stream = connected();
    let mut reader = BufReader::new(stream.try_clone().expect("the same"));
    for _ in 0..20 {
        ask(&mut stream, "/bytes/600");
        assert_eq!(answer(&mut reader).1.len(), 600);
    }
    stream.write_all("GET /bytes/600 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(64).as_bytes()).expect("sent");
    (0..64).for_each(|_| assert_eq!(answer(&mut reader).1.len(), 600));
    ask(&mut stream, "/bytes/20000000");
    assert_eq!(answer(&mut reader).1.len(), 20_000_000);
    let body = vec![b'x'; UPLOAD];
    write!(stream, "POST /upper HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len())
        .expect("sent");
    stream.write_all(&body).expect("sent");
    assert!(answer(&mut reader).1 == vec![b'X'; UPLOAD]);
    // The server ends it for being idle.
    assert_eq!(reader.read(&mut [0]).expect("the end"), 0);
    drop(stream);
    // We send our FIN before the response arrives.
    let mut stream = connected();
    ask(&mut stream, "/bytes/600");
    stream.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(answer(&mut BufReader::new(stream)).1.len(), 600);
    // The client stops reading for a while: the window closes and opens.
    let mut stream = connected();
    ask(&mut stream, "/bytes/12000000");
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(answer(&mut BufReader::new(stream)).1.len(), 12_000_000);
    // The kernel resets what is closed with bytes unread.
    let mut stream = connected();
    ask(&mut stream, "/bytes/20000");
    while stream.peek(&mut [0; 20_000]).expect("bytes") < 20_000 {
        thread::sleep(Duration::from_millis(1));
    }
    SHORT + 4
}

fn lacks_tshark() -> bool {
    linerate_skips::program("tshark").is_none()
}

#[test]
fn tshark_has_nothing_to_say_against_our_server() {
    if lacks_tshark() {
        return;
    }
    let Some(cable) = Cable::new(1) else { return };
    let flags = format!("--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --idle-timeout 1s");
    let _serving = serve(&cable.ours, &flags);
    without_remarks(&cable, || cable.theirs.run(ask_in_all_ways));
}

#[test]
fn tshark_has_nothing_to_say_against_our_client() {
    if lacks_tshark() {
        return;
    }
    let Some(cable) = Cable::new(1) else { return };
    let _serving = serve(&cable.theirs, &format!("--listen {THEIR_V4}:{PORT}"));
    without_remarks(&cable, || load_in_all_ways(&cable));
}

/// Our client, in all ways; how many connections it made.
fn load_in_all_ways(cable: &Cable) -> usize {
    let ways = [
        ("-c 10 -n 200 --per-connection 1", "bytes/600", 200),
        ("-c 10 -n 2000", "bytes/600", 10),
        ("-c 4 -p 32 -n 2000", "bytes/600", 4),
        ("-c 2 -n 10", "bytes/4000000", 2),
    ];
    for (flags, path, _) in ways {
        let words =
            format!("{flags} --io xdp --interface {OURS} --from {FROM} -t 1 http://{THEIR_V4}:{PORT}/{path}");
        let words: Vec<&str> = words.split(' ').collect();
        let (document, said) = cable.ours.run(|| common::measured(&words));
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(common::number(&document, "/requests/failed"), 0);
    }
    ways.iter().map(|(_, _, connections)| connections).sum()
}

/// Keeps the kernel's end from sending again for reasons that are the machine's: this test may have
/// to wait for a core for longer than the kernel waits before it probes for a lost tail. Nothing is
/// eased for our end.
fn steady(cable: &Cable) {
    cable.theirs.must("sysctl -qw net.ipv4.tcp_early_retrans=0");
    cable.theirs.must(&format!("ip route change 10.77.0.0/24 dev {THEIRS} src {THEIR_V4} rto_min 2s"));
}

/// Repeats the run until tshark has no remark, at most `TRIES` times. A machine whose kernel stalls
/// for some milliseconds causes retransmissions, and these are not under test. A fault of ours
/// would show each time.
fn without_remarks(cable: &Cable, run: impl Fn() -> usize) {
    const TRIES: usize = 3;
    steady(cable);
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let capture = Capture::start(cable);
        let connections = run();
        let (remarks, syns) = capture.end();
        // The absence of remarks only counts for a complete capture.
        if remarks.is_empty() && syns == connections {
            return;
        }
        println!("{remarks:#?}");
        all.push(remarks);
    }
    panic!("each time something: {all:#?}");
}
