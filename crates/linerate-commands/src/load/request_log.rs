//! `--log-requests FILE`: written by a thread of its own while the run lasts.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use linerate_load::request_log::{Receiver, Sender, channel, requests};
use linerate_load::{Outcome, Plan};
use linerate_report::request_log::{Form, Lines};
use linerate_report::schema::outcome as schema;

use crate::fault::{CommandFault, said};

/// Endings of names that mean JSON lines.
const JSON_LINES: [&str; 3] = ["jsonl", "ndjson", "json"];

/// Bytes of text that are written at once.
const TEXT: usize = 64 << 10;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Logging {
    thread: JoinHandle<Written>,
    path: PathBuf,
}

/// What has come of it.
#[derive(Debug, Default)]
struct Written {
    lines: u64,
    left_out: u64,
    error: Option<io::Error>,
}

/// A queue for a run that has not begun.
#[derive(Debug)]
pub(super) struct ReadyLog {
    entries: Receiver,
    path: PathBuf,
    lines: Lines,
}

/// Where the run hands its requests over, and the log that will take them.
pub(super) fn prepare(path: &Path, plan: &Plan) -> (Sender, ReadyLog) {
    let is_json = path.extension().is_some_and(|e| JSON_LINES.iter().any(|known| e == *known));
    let form = if is_json { Form::JsonLines } else { Form::Csv };
    let (to, entries) = channel();
    (to, ReadyLog { entries, path: path.to_owned(), lines: Lines::new(form, plan) })
}

impl ReadyLog {
    /// The run has begun.
    pub(super) fn start(self) -> Result<Logging, CommandFault> {
        let path = self.path.clone();
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || self.write())
            .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?;
        Ok(Logging { thread, path })
    }

    fn write(self) -> Written {
        let mut written = Written::default();
        written.error = self.write_to(&mut written).err();
        // Whatever comes now is taken and counted, so that no core waits for room.
        while let Some(chunk) = self.entries.next() {
            written.left_out += requests(&chunk);
        }
        written.left_out += self.entries.left_out();
        written
    }

    /// Writes, and counts what the file has. It ends with a whole line, also on a full disk.
    fn write_to(&self, written: &mut Written) -> io::Result<()> {
        let mut out = Out { file: File::create(&self.path)?, bytes: 0, text: Vec::new() };
        out.text.extend_from_slice(self.lines.head().as_bytes());
        out.write()?;
        while let Some(chunk) = self.entries.next() {
            let mut held = 0;
            for entry in &chunk {
                // Responses that came together may be many, and one of them is a line too.
                for one in entry.each() {
                    self.lines.write(&one, &mut out.text);
                    held += 1;
                    if out.text.len() >= TEXT {
                        written.count(std::mem::take(&mut held), out.write())?;
                    }
                }
            }
            written.count(held, out.write())?;
        }
        Ok(())
    }
}

impl Written {
    /// Counts lines that were written, or are lost.
    fn count(&mut self, lines: u64, done: io::Result<()>) -> io::Result<()> {
        let sum = if done.is_ok() { &mut self.lines } else { &mut self.left_out };
        *sum += lines;
        done
    }
}

/// The file, and what goes into it next.
struct Out {
    file: File,
    bytes: u64,
    text: Vec<u8>,
}

impl Out {
    fn write(&mut self) -> io::Result<()> {
        let done = self.file.write_all(&self.text);
        if done.is_ok() {
            self.bytes += self.text.len() as u64;
        } else {
            // A pipe has no length.
            let _ = self.file.set_len(self.bytes);
        }
        self.text.clear();
        done
    }
}

impl Logging {
    /// Waits for the last line. Missing lines cause a warning; a file that could not be written is a fault.
    pub(super) fn finish(self, outcome: &mut Outcome) -> (schema::RequestLog, Option<CommandFault>) {
        let Written { lines, left_out, error } = self.thread.join().unwrap_or_default();
        let path = self.path.display();
        let fault = error.map(|e| {
            CommandFault::ours(format!("{path}: the requests could not be written: {}", said(&e)))
                .hint(format!("it has the first {lines} of them"))
        });
        if left_out > 0 && fault.is_none() {
            let all = lines + left_out;
            outcome.warnings.push(format!(
                "{path} lacks {left_out} of {all} requests: they came faster than it could be written"
            ));
        }
        (schema::RequestLog { lines, left_out }, fault)
    }
}
