//! `linerate serve` as a process, for the tests that talk to it.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod frames;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_skips::{need, skip_part};

/// How long a test waits for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. Killed when the test fails before its end.
pub(crate) struct Server {
    child: Child,
    lines: Mutex<Receiver<String>>,
    /// Lines that say with what it responds, kept apart from all other lines.
    answering: Arc<Mutex<Vec<String>>>,
    /// The first address that it listens at.
    pub(crate) address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts one on a port of its own.
pub(crate) fn serve(arguments: &[&str]) -> Server {
    let mut all = vec!["--listen", "127.0.0.1:0"];
    all.extend_from_slice(arguments);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    command.arg("serve").args(all);
    started(command)
}

/// Starts what is a `linerate serve` in the end.
pub(crate) fn started(mut command: Command) -> Server {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (say, lines) = mpsc::channel();
    let answering: Arc<Mutex<Vec<String>>> = Arc::default();
    let answers = Arc::clone(&answering);
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            if line.starts_with("answering ") {
                answers.lock().unwrap().push(line);
                continue;
            }
            // The test may be over.
            let _ = say.send(line);
        }
    });
    let mut server = Server { child, lines: Mutex::new(lines), answering, address: String::new() };
    server.address = server.listening();
    server
}

impl Server {
    /// The next line it says.
    pub(crate) fn line(&self) -> String {
        self.lines.lock().unwrap().recv_timeout(PATIENCE).expect("it says something")
    }

    /// The address of the next line, which must be one of listening.
    pub(crate) fn listening(&self) -> String {
        let line = self.line();
        let place = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
        let plain = place.strip_prefix("http://").or(place.strip_prefix("https://"));
        plain.unwrap_or(place).to_owned()
    }

    /// The status line of its response.
    pub(crate) fn answering(&self) -> String {
        let begin = std::time::Instant::now();
        loop {
            if let Some(line) = self.answering.lock().unwrap().first() {
                return line.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "it says what it answers with");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its memory, in kB.
    pub(crate) fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How many file descriptors it has.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// A number of `/stats`, by what stands before it there; 0 if that is not there.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = self.get("/stats");
        let Some((_, rest)) = stats.split_once(name) else { return 0 };
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// The response to a request on a new connection.
    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.address, path)
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether it is over.
    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its exit code, and what else it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let said: Vec<String> = self.lines.lock().unwrap().iter().collect();
        (self.child.wait().unwrap().code(), said.join("\n"))
    }

    /// Ends it by SIGTERM: the same.
    pub(crate) fn stop(self) -> (Option<i32>, String) {
        self.signal("-TERM");
        self.end()
    }
}

pub(crate) fn connect(to: &str) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap_or_else(|e| panic!("{to}: {e}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn get(to: &str, path: &str) -> String {
    let mut stream = connect(to);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether io_uring is available here; if not, that is reported.
pub(crate) fn transports() -> Vec<&'static str> {
    match linerate_net::uring::Uring::new() {
        Ok(_) => vec!["epoll", "uring"],
        Err(e) => {
            skip_part("over uring", need::IO_URING, e);
            vec!["epoll"]
        }
    }
}
