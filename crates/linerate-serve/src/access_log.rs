//! The access log: a line per response, written by a thread of its own so that a slow disk slows no request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use linerate_http::server::{HttpDate, RequestHead, push_decimal};
use linerate_net::Time;
use linerate_tls::TlsInfo;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::content::users::credentials;
use crate::notice::{Notice, Notices};

/// Bytes of lines that are handed over together, and how long they may wait for that. Reason: one hand-over per line would
/// cost more than the line.
const BATCH: usize = 16 << 10;
pub(crate) const BATCH_TIME: Duration = Duration::from_millis(250);
/// Batches that wait for the disk; beyond it, lines are dropped and counted. Reason: a disk that stands still must not fill
/// our memory.
const WAITING: usize = 256;

/// How often a file that could not be opened anew is tried. Reason: nobody asks a second time.
const AGAIN: Duration = Duration::from_secs(1);

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// `host - user [date] "request" status bytes`
    Common,
    /// The same with `"referer" "user-agent"`.
    #[default]
    Combined,
    /// The same with the duration in seconds behind it, to the microsecond.
    CombinedTime,
    /// A JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "common" => Ok(LogFormat::Common),
            "combined" => Ok(LogFormat::Combined),
            "combined-time" => Ok(LogFormat::CombinedTime),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!(
                "there is no log format {text:?}; known are common, combined, combined-time, json"
            )),
        }
    }
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

enum Message {
    Lines(Vec<u8>),
    Reopen,
    /// All lines before are written: say so.
    Flush(SyncSender<()>),
}

/// An access log: cheap to clone, shared by all threads.
///
/// ```
/// use linerate_serve::{AccessLog, LogFormat, LogTarget, Notices, ServerOptions};
///
/// let log = AccessLog::open(LogTarget::Stdout, LogFormat::default(), Notices::default())?;
/// let options = ServerOptions { access_log: Some(log), ..ServerOptions::default() };
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessLog {
    format: LogFormat,
    to_writer: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    /// The writer shall open the file anew, and had no room for the message.
    overdue: Arc<AtomicBool>,
    notices: Notices,
}

impl AccessLog {
    /// Opens it. Its thread ends when the last clone is gone.
    ///
    /// # Errors
    /// When the file can't be opened for appending.
    pub fn open(target: LogTarget, format: LogFormat, notices: Notices) -> io::Result<AccessLog> {
        let sink = LogSink::open(&target)?;
        let (to_writer, messages) = mpsc::sync_channel(WAITING);
        let overdue = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            target,
            sink,
            failing: false,
            stale: None,
            overdue: Arc::clone(&overdue),
            notices: notices.clone(),
        };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(messages))?;
        Ok(AccessLog { format, to_writer, dropped: Arc::default(), overdue, notices })
    }

    /// Opens the file anew, after it was renamed (log rotation).
    pub fn reopen(&self) {
        // Too many lines wait: the writer does it before its next ones.
        if self.to_writer.try_send(Message::Reopen).is_err() {
            self.overdue.store(true, Relaxed);
        }
    }

    /// Waits until the lines handed over so far are written, at most for `limit`.
    pub fn flush(&self, limit: Duration) {
        let (done, written) = mpsc::sync_channel(1);
        if self.to_writer.try_send(Message::Flush(done)).is_ok() {
            // Too slow: what is not written by then is lost, as the disk has it.
            let _ = written.recv_timeout(limit);
        }
    }

    /// Lines dropped because the disk was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// The thread that writes.
struct Writer {
    target: LogTarget,
    sink: LogSink,
    /// The last lines could not be written.
    failing: bool,
    /// The file could not be opened anew, tried last at this time.
    stale: Option<Instant>,
    overdue: Arc<AtomicBool>,
    notices: Notices,
}

impl Writer {
    fn run(mut self, messages: Receiver<Message>) {
        for message in messages {
            let again = self.stale.is_some_and(|tried| tried.elapsed() >= AGAIN);
            if self.overdue.swap(false, Relaxed) || again {
                self.reopen();
            }
            match message {
                Message::Lines(lines) => self.write(&lines),
                Message::Reopen => self.reopen(),
                // The caller may have stopped waiting.
                Message::Flush(done) => {
                    let _ = done.try_send(());
                }
            }
        }
    }

    /// Reports a full disk once, and its end.
    fn write(&mut self, lines: &[u8]) {
        match (self.sink.write(lines), self.failing) {
            (Err(error), false) => {
                self.failing = true;
                self.notices.tell(&Notice::AccessLogFails(error.to_string()));
            }
            (Ok(()), true) => {
                self.failing = false;
                self.notices.tell(&Notice::AccessLogWorks);
            }
            _ => {}
        }
    }

    /// Stays with the old file until a new one can be opened.
    fn reopen(&mut self) {
        match LogSink::open(&self.target) {
            Ok(sink) => {
                self.sink = sink;
                if self.stale.take().is_some() {
                    self.notices.tell(&Notice::AccessLogWorks);
                }
            }
            Err(error) => {
                if self.stale.replace(Instant::now()).is_none() {
                    self.notices.tell(&Notice::AccessLogStays(error.to_string()));
                }
            }
        }
    }
}

struct LogSink {
    /// `None`: standard output.
    file: Option<File>,
    /// The last write ended in the middle of a line: the disk was full.
    torn: bool,
}

impl LogSink {
    fn open(target: &LogTarget) -> io::Result<LogSink> {
        match target {
            LogTarget::Stdout => Ok(LogSink { file: None, torn: false }),
            LogTarget::File(path) => {
                Ok(LogSink { file: Some(open_file(path)?), torn: ends_in_mid_line(path).unwrap_or(false) })
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.put(b"\n")?;
        }
        self.put(lines)
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match &mut self.file {
                Some(file) => file.write(bytes),
                None => {
                    let mut out = io::stdout().lock();
                    out.write_all(bytes).and_then(|()| out.flush()).map(|()| bytes.len())
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.torn = bytes[n - 1] != b'\n';
                    bytes = &bytes[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Whether the last line of a file has no end: one that a full disk tore before a restart.
fn ends_in_mid_line(path: &Path) -> io::Result<bool> {
    let meta = path.metadata()?;
    if !meta.is_file() || meta.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, meta.len() - 1)?;
    Ok(last != *b"\n")
}

/// Without waiting: opening a named pipe would until somebody reads from it, and nothing could end that.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NXIO) => io::Error::new(e.kind(), "nobody reads from this pipe"),
        _ => e,
    })?;
    // Once open, writing may wait: the log has a thread of its own.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Stands for the address of a client that has none; as nginx writes it.
const UNIX: &str = "unix:";

/// In place of a status: the end of a drain has cut the request before it had a response; as nginx writes it.
pub(crate) const CUT: u16 = 0;
/// In place of a status: the client left before there was a response; as nginx writes it.
pub(crate) const LEFT: u16 = 499;

/// The facts that a log line states about one request and its response.
pub(crate) struct LoggedExchange<'a> {
    /// Unspecified: it came by a Unix socket.
    pub(crate) peer: SocketAddr,
    pub(crate) head: Option<&'a RequestHead>,
    /// Where there is no head: the first line of what came.
    pub(crate) first_line: &'a [u8],
    pub(crate) status: u16,
    /// Bytes of the body that have left.
    pub(crate) bytes: u64,
    /// From the request's head to the last of these bytes.
    pub(crate) took: Duration,
    pub(crate) tls: Option<&'a TlsInfo>,
}

impl LoggedExchange<'_> {
    /// The user whom the request names by Basic authentication, whether its password was right or
    /// not; as nginx and Apache write it.
    fn user(&self) -> Option<String> {
        let field = self.head?.field("authorization")?;
        let (user, _) = credentials(std::str::from_utf8(field).ok()?)?;
        (!user.is_empty()).then_some(user)
    }
}

/// A thread's lines until they are handed over.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    log: AccessLog,
    lines: Vec<u8>,
    count: u64,
    since: Time,
}

impl LogBuffer {
    pub(crate) fn new(log: AccessLog) -> LogBuffer {
        LogBuffer { log, lines: Vec::new(), count: 0, since: Time::ZERO }
    }

    pub(crate) fn add(&mut self, now: Time, date: &HttpDate, line: &LoggedExchange<'_>) {
        if self.lines.is_empty() {
            self.since = now;
        }
        self.count += 1;
        match self.log.format {
            LogFormat::Json => json(&mut self.lines, date, line),
            format => plain(&mut self.lines, date, line, format),
        }
        if self.lines.len() >= BATCH {
            self.hand_over();
        }
    }

    /// When the lines are to be handed over at the latest.
    pub(crate) fn due(&self) -> Option<Time> {
        (!self.lines.is_empty()).then(|| self.since + BATCH_TIME)
    }

    pub(crate) fn hand_over(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let lines = std::mem::replace(&mut self.lines, Vec::with_capacity(BATCH + 1024));
        let count = std::mem::take(&mut self.count);
        if let Err(TrySendError::Full(_)) = self.log.to_writer.try_send(Message::Lines(lines)) {
            // It comes and goes many times a second: said once, and how many they were at the end.
            if self.log.dropped.fetch_add(count, Relaxed) == 0 {
                self.log.notices.tell(&Notice::AccessLogBehind);
            }
        }
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.hand_over();
    }
}

fn plain(out: &mut Vec<u8>, date: &HttpDate, line: &LoggedExchange<'_>, format: LogFormat) {
    // It never fails on a Vec.
    let _ = match line.peer.ip() {
        ip if ip.is_unspecified() => write!(out, "{UNIX} - "),
        ip => write!(out, "{ip} - "),
    };
    match line.user() {
        // A space would begin the next field.
        Some(user) => user.split(' ').enumerate().for_each(|(i, part)| {
            out.extend_from_slice(if i > 0 { b"\\x20" } else { b"" });
            quoted(out, part.as_bytes());
        }),
        None => out.push(b'-'),
    }
    out.extend_from_slice(b" [");
    // `Sun, 06 Nov 1994 08:49:37 GMT` has all of `06/Nov/1994:08:49:37 +0000`.
    let d = date.as_bytes();
    for (part, end) in [(5..7, b'/'), (8..11, b'/'), (12..16, b':'), (17..25, b' ')] {
        out.extend_from_slice(&d[part]);
        out.push(end);
    }
    out.extend_from_slice(b"+0000] \"");
    match line.head {
        Some(head) => {
            let version = head.version().name();
            for (part, end) in [(head.method_name(), " "), (head.target(), " "), (version, "")] {
                quoted(out, part.as_bytes());
                out.extend_from_slice(end.as_bytes());
            }
        }
        None if line.first_line.is_empty() => out.push(b'-'),
        None => quoted(out, line.first_line),
    }
    out.extend_from_slice(b"\" ");
    match line.status {
        // Programs expect three digits.
        CUT => out.extend_from_slice(b"000"),
        status => push_decimal(out, u64::from(status)),
    }
    out.push(b' ');
    push_decimal(out, line.bytes);
    if format != LogFormat::Common {
        for name in ["referer", "user-agent"] {
            out.extend_from_slice(b" \"");
            quoted(out, line.head.and_then(|h| h.field(name)).unwrap_or(b"-"));
            out.push(b'"');
        }
    }
    if format == LogFormat::CombinedTime {
        let _ = write!(out, " {}.{:06}", line.took.as_secs(), line.took.subsec_micros());
    }
    out.push(b'\n');
}

fn json(out: &mut Vec<u8>, date: &HttpDate, line: &LoggedExchange<'_>) {
    let _ = write!(out, "{{\"time\":{},\"peer\":\"", date.unix());
    let _ =
        if line.peer.ip().is_unspecified() { write!(out, "{UNIX}") } else { write!(out, "{}", line.peer) };
    let _ = write!(out, "\",\"status\":{}", line.status);
    let _ = write!(out, ",\"bytes\":{},\"duration_us\":{}", line.bytes, line.took.as_micros());
    if let Some(head) = line.head {
        let agent = head.field("user-agent").unwrap_or_default();
        let parts = [
            ("method", head.method_name().as_bytes()),
            ("target", head.target().as_bytes()),
            ("host", head.host().unwrap_or_default().as_bytes()),
            ("user_agent", agent),
            ("protocol", head.version().name().as_bytes()),
        ];
        for (name, value) in parts {
            let _ = write!(out, ",\"{name}\":\"");
            escaped(out, value);
            out.push(b'"');
        }
    }
    if let Some(user) = line.user() {
        out.extend_from_slice(b",\"user\":\"");
        escaped(out, user.as_bytes());
        out.push(b'"');
    }
    if let Some(tls) = line.tls {
        let _ = write!(out, ",\"tls_version\":\"{}\"", tls.agreed.version);
        let _ = write!(out, ",\"tls_cipher\":\"{}\",\"tls_resumed\":{}", tls.agreed.cipher, tls.is_resumed);
        if let Some(client) = &tls.client {
            out.extend_from_slice(b",\"client_subject\":\"");
            escaped(out, client.subject.as_bytes());
            out.push(b'"');
        }
    }
    if line.head.is_none() && !line.first_line.is_empty() {
        out.extend_from_slice(b",\"request\":\"");
        escaped(out, line.first_line);
        out.push(b'"');
    }
    out.extend_from_slice(b"}\n");
}

/// Text in JSON. Characters that a terminal would obey, or show in another order, are escaped.
pub(crate) fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
        let bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let separator = matches!(c, '\u{2028}' | '\u{2029}');
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            c if c.is_control() || bidirectional || separator => write!(out, "\\u{:04x}", c as u32),
            c => write!(out, "{c}"),
        };
    }
}

/// Nothing that a client sends can end its field of the line.
fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        match b {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => {
                let _ = write!(out, "\\x{b:02x}");
            }
            _ => out.push(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_http::server::{HeadReader, RequestLimits};

    fn line(format: LogFormat) -> String {
        line_of("", format)
    }

    fn line_of(fields: &str, format: LogFormat) -> String {
        let start: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: x\"y\\z\xe9\r\n";
        let text = [start, fields.as_bytes(), b"\r\n"].concat();
        let (head, _) = HeadReader::new(RequestLimits::default()).read(&text, 0).unwrap().unwrap();
        let line = LoggedExchange {
            peer: "1.2.3.4:5".parse().unwrap(),
            head: Some(&head),
            first_line: b"",
            status: 200,
            bytes: 14,
            took: Duration::from_micros(7),
            tls: None,
        };
        let mut out = Vec::new();
        let date = HttpDate::from_unix(784_111_777);
        match format {
            LogFormat::Json => json(&mut out, &date, &line),
            f => plain(&mut out, &date, &line, f),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_formats() {
        let plain = "1.2.3.4 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 14";
        assert_eq!(line(LogFormat::Common), format!("{plain}\n"));
        assert_eq!(line(LogFormat::Combined), format!("{plain} \"-\" \"x\\x22y\\x5cz\\xe9\"\n"));
        let timed = line(LogFormat::Combined).replace('\n', " 0.000007\n");
        assert_eq!(line(LogFormat::CombinedTime), timed);
        assert_eq!("combined-time".parse(), Ok(LogFormat::CombinedTime));
        assert_eq!(
            line(LogFormat::Json),
            "{\"time\":784111777,\"peer\":\"1.2.3.4:5\",\"status\":200,\"bytes\":14,\"duration_us\":7,\"method\":\"GET\",\
             \"target\":\"/a?b\",\"host\":\"h\",\"user_agent\":\"x\\\"y\\\\z\u{fffd}\",\
             \"protocol\":\"HTTP/1.1\"}\n"
        );
    }

    #[test]
    fn the_user_is_named_and_cannot_break_the_line() {
        use base64::Engine;
        use base64::engine::general_purpose::STANDARD;
        let of = |user: &str, format: LogFormat| {
            let token = STANDARD.encode(format!("{user}:secret"));
            let line = line_of(&format!("Authorization: Basic {token}\r\n"), format);
            assert!(!line.contains("secret") && !line.contains(&token), "{line}");
            line
        };
        for (user, text) in [("ann", "ann"), ("", "-"), ("a b] \"\n", "a\\x20b]\\x20\\x22\\x0a")] {
            let line = of(user, LogFormat::Common);
            assert!(line.starts_with(&format!("1.2.3.4 - {text} [06/Nov/1994")), "{line}");
        }
        assert!(of("a\"b", LogFormat::Json).contains(",\"user\":\"a\\\"b\""));
        let other = line_of("Authorization: Bearer abc\r\n", LogFormat::Common);
        assert!(other.starts_with("1.2.3.4 - - [") && !other.contains("abc"), "{other}");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let mut out = Vec::new();
        let text = "a\u{1b}\u{7f}\u{9b}\u{202e}\u{2066}\u{200f}\u{2028}\u{e9}\"\\";
        escaped(&mut out, text.as_bytes());
        let expected = "a\\u001b\\u007f\\u009b\\u202e\\u2066\\u200f\\u2028\u{e9}\\\"\\\\";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_line_that_a_full_disk_tore_swallows_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "whole\nto").unwrap();
        let mut sink = LogSink::open(&LogTarget::File(path.clone())).unwrap();
        sink.write(b"next\n").unwrap();
        // The rest of a write that a full disk cut short.
        sink.put(b"torn").unwrap();
        sink.write(b"last\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\nto\nnext\ntorn\nlast\n");
    }

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        (folder, path)
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for() {
        let (_folder, path) = pipe();
        let error =
            AccessLog::open(LogTarget::File(path), LogFormat::Common, Notices::collecting()).unwrap_err();
        assert_eq!(error.to_string(), "nobody reads from this pipe");
    }

    #[test]
    fn lines_that_the_disk_has_no_time_for_are_said_once_and_counted() {
        let (_folder, path) = pipe();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let notices = Notices::collecting();
        let log = AccessLog::open(LogTarget::File(path), LogFormat::Common, notices.clone()).unwrap();
        let mut buffer = LogBuffer::new(log.clone());
        // More than what waits, what is being written and what the pipe holds.
        for _ in 0..200_000 {
            let line = LoggedExchange {
                peer: "1.2.3.4:5".parse().unwrap(),
                head: None,
                first_line: b"",
                status: 400,
                bytes: 0,
                took: Duration::ZERO,
                tls: None,
            };
            buffer.add(Time::ZERO, &HttpDate::from_unix(0), &line);
        }
        assert!(log.dropped() > 1000, "{}", log.dropped());
        assert_eq!(notices.collected(), [Notice::AccessLogBehind]);
        // The writer's thread continues, to an error.
        drop(reader);
    }

    /// Hands over a line and waits until it is written.
    fn one_line(log: &AccessLog) {
        let mut buffer = LogBuffer::new(log.clone());
        let (peer, took) = ("1.2.3.4:5".parse().unwrap(), Duration::ZERO);
        let line =
            LoggedExchange { peer, head: None, first_line: b"", status: 400, bytes: 0, took, tls: None };
        buffer.add(Time::ZERO, &HttpDate::from_unix(0), &line);
        drop(buffer);
        log.flush(Duration::from_secs(20));
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lines = |name: &str| std::fs::read_to_string(at(name)).unwrap_or_default().lines().count();
        let notices = Notices::collecting();
        let log = AccessLog::open(LogTarget::File(at("log")), LogFormat::Common, notices.clone()).unwrap();
        std::fs::rename(at("log"), at("log.1")).unwrap();
        std::fs::create_dir(at("log")).unwrap();
        log.reopen();
        one_line(&log);
        assert_eq!(lines("log.1"), 1);
        assert!(matches!(&notices.collected()[..], [Notice::AccessLogStays(_)]), "{:?}", notices.collected());
        std::fs::remove_dir(at("log")).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while lines("log") == 0 {
            assert!(Instant::now() < until, "it is not opened anew");
            std::thread::sleep(Duration::from_millis(50));
            one_line(&log);
        }
        assert!(matches!(&notices.collected()[..], [_, Notice::AccessLogWorks]), "{:?}", notices.collected());
    }

    #[test]
    fn a_writer_with_much_to_do_opens_the_file_anew_all_the_same() {
        let (folder, path) = pipe();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let log =
            AccessLog::open(LogTarget::File(path.clone()), LogFormat::Common, Notices::collecting()).unwrap();
        // The pipe is full, and so is the queue.
        while log.to_writer.try_send(Message::Lines(vec![b'x'; BATCH])).is_ok() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        while log.to_writer.try_send(Message::Lines(vec![b'x'; BATCH])).is_ok() {}
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        log.reopen();
        drop(reader);
        log.flush(Duration::from_secs(20));
        let until = Instant::now() + Duration::from_secs(20);
        while !std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
            assert!(Instant::now() < until, "the file is not opened anew");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_full_disk_is_said_once() {
        let Ok(log) =
            AccessLog::open(LogTarget::File("/dev/full".into()), LogFormat::Common, Notices::collecting())
        else {
            return linerate_skips::skip("/dev/full", "there is no /dev/full");
        };
        drop(log);
        let notices = Notices::collecting();
        let log =
            AccessLog::open(LogTarget::File("/dev/full".into()), LogFormat::Common, notices.clone()).unwrap();
        let mut buffer = LogBuffer::new(log);
        for _ in 0..3 {
            let line = LoggedExchange {
                peer: "1.2.3.4:5".parse().unwrap(),
                head: None,
                first_line: b"",
                status: 400,
                bytes: 0,
                took: Duration::ZERO,
                tls: None,
            };
            buffer.add(Time::ZERO, &HttpDate::from_unix(0), &line);
            buffer.hand_over();
        }
        drop(buffer);
        while notices.collected().is_empty() {
            std::thread::yield_now();
        }
        assert!(matches!(&notices.collected()[..], [Notice::AccessLogFails(_)]));
    }
}
