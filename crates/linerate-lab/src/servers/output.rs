//! What a server prints: its URL, and its last words.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{LOOK, OUTPUT_LINE, OUTPUT_LINES};

/// How long last words are waited for. Reason: they are in the pipe when a process ends, unless
/// another one keeps it open.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
struct OutputLines {
    last: VecDeque<String>,
    url: Option<String>,
}

/// The output of a process, read by threads that end with it.
#[derive(Debug)]
pub(super) struct Output {
    lines: Arc<Mutex<OutputLines>>,
    open: Arc<AtomicUsize>,
}

impl Output {
    /// Reads both streams.
    pub(super) fn read<A, B>(out: Option<A>, err: Option<B>) -> Output
    where
        A: Read + Send + 'static,
        B: Read + Send + 'static,
    {
        let output = Output { lines: Arc::default(), open: Arc::default() };
        if let Some(out) = out {
            output.follow(out);
        }
        if let Some(err) = err {
            output.follow(err);
        }
        output
    }

    fn follow(&self, stream: impl Read + Send + 'static) {
        let (lines, open) = (Arc::clone(&self.lines), Arc::clone(&self.open));
        open.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            let mut from = BufReader::new(stream);
            let mut line = Vec::new();
            loop {
                line.clear();
                // A server may print without line ends for ever.
                match from.by_ref().take(OUTPUT_LINE as u64).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => keep(&lines, &line),
                }
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// The first URL that was printed.
    pub(super) fn url(&self) -> Option<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).url.clone()
    }

    /// Waits for what is still in the pipes.
    pub(super) fn settle(&self) {
        let begun = Instant::now();
        while self.open.load(Ordering::SeqCst) > 0 && begun.elapsed() < SETTLE {
            thread::sleep(LOOK);
        }
    }

    /// The last lines, each on a line of its own after a line end; empty where nothing was said.
    pub(super) fn last_words(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.last.is_empty() {
            return "; it printed nothing".to_owned();
        }
        let shown: Vec<String> = lines.last.iter().map(|line| format!("\n    | {line}")).collect();
        format!("; its last lines:{}", shown.concat())
    }
}

fn keep(lines: &Mutex<OutputLines>, line: &[u8]) {
    let text: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect();
    if text.trim().is_empty() {
        return;
    }
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.url.is_none() {
        lines.url = url_in(&text);
    }
    if lines.last.len() == OUTPUT_LINES {
        lines.last.pop_front();
    }
    lines.last.push_back(text);
}

/// A URL with a host in a line, as one can connect to it.
pub(super) fn url_in(line: &str) -> Option<String> {
    let at = line.find("http://").or_else(|| line.find("https://"))?;
    let ends = |c: char| c.is_whitespace() || "\"'<>(),;|`".contains(c);
    let url = line[at..].split(ends).next()?.trim_end_matches('.');
    let (scheme, rest) = url.split_once("://")?;
    if rest.is_empty() || rest.starts_with('/') {
        return None;
    }
    // All addresses: of them the loopback one is the nearest.
    let rest = match rest {
        r if r.starts_with("0.0.0.0") => r.replacen("0.0.0.0", "127.0.0.1", 1),
        r if r.starts_with("[::]") => r.replacen("[::]", "[::1]", 1),
        r if r.starts_with("*:") => r.replacen('*', "127.0.0.1", 1),
        r => r.to_owned(),
    };
    let path = if rest.contains('/') { "" } else { "/" };
    Some(format!("{scheme}://{rest}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_found_as_servers_print_them() {
        for (line, url) in [
            ("listening on http://127.0.0.1:8080", Some("http://127.0.0.1:8080/")),
            ("Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...", Some("http://127.0.0.1:8000/")),
            ("Server running at https://localhost:3000.", Some("https://localhost:3000/")),
            ("up: \"http://[::]:8080/api\",", Some("http://[::1]:8080/api")),
            ("listening on http://*:80", Some("http://127.0.0.1:80/")),
            ("see http://", None),
            ("ready", None),
        ] {
            assert_eq!(url_in(line).as_deref(), url, "{line}");
        }
    }

    #[test]
    fn a_flood_of_output_is_bounded_and_the_last_of_it_is_kept() {
        let many: String = (0..1000).map(|i| format!("line {i}\n")).collect();
        let endless = vec![b'x'; 100_000];
        let output = Output::read(Some(std::io::Cursor::new(many)), Some(std::io::Cursor::new(endless)));
        while output.open.load(Ordering::SeqCst) > 0 {
            thread::sleep(LOOK);
        }
        let words = output.last_words();
        assert!(words.len() < OUTPUT_LINES * (OUTPUT_LINE + 8) + 100, "{}", words.len());
        assert_eq!(words.lines().count(), OUTPUT_LINES + 1);
    }
}
