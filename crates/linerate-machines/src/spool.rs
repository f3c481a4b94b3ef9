//! The agent's own file: the run, then each message, as lines of JSON. Nothing is lost with the broker.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::document::{RunDocument, Takeover};
use crate::message::AgentMessage;

/// Longest line that is read back. Reason: far above any message that a broker takes.
const LONGEST: u64 = 64 << 20;

/// The first line: what another broker needs to know of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpooledRun {
    /// What the agents carried out.
    pub document: RunDocument,
    /// When they started, nanoseconds since 1970 on the coordinator's clock.
    pub go: u64,
    /// The order by which this share was taken over from another agent.
    #[serde(default)]
    pub takeover: Option<Takeover>,
}

/// A spool file that is being written.
#[derive(Debug)]
pub struct Spool(File);

impl Spool {
    /// Creates the file. An existing one is never overwritten.
    pub fn create(path: &Path) -> io::Result<Spool> {
        OpenOptions::new().write(true).create_new(true).open(path).map(Spool)
    }

    /// Appends a message in one write.
    pub fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let mut line = Vec::with_capacity(message.len() + 1);
        line.extend_from_slice(message);
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// What a spool holds.
#[derive(Debug, Default)]
pub struct Spooled {
    /// The run; `None` in a file whose first line is torn.
    pub run: Option<SpooledRun>,
    /// The messages, with their bytes as they were sent.
    pub messages: Vec<(AgentMessage, Vec<u8>)>,
    /// Lines that are no message: a line that a crash or a full disk cut short.
    pub torn: u64,
}

/// Reads a spool back.
pub fn read(path: &Path) -> io::Result<Spooled> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut spooled = Spooled::default();
    loop {
        let mut line = Vec::new();
        let read = io::Read::take(&mut reader, LONGEST).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(spooled);
        }
        let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
        if !is_whole {
            spooled.torn += 1;
        } else if let Ok(message) = serde_json::from_slice::<AgentMessage>(&line) {
            spooled.messages.push((message, line));
        } else if let Ok(run) = serde_json::from_slice::<SpooledRun>(&line) {
            spooled.run = Some(run);
        } else {
            spooled.torn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::SCHEMA;
    use crate::message::MessageWord;

    #[test]
    fn a_torn_line_is_counted_and_the_rest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let message = |seq| AgentMessage {
            schema: SCHEMA.to_owned(),
            run: "r".to_owned(),
            agent: "a".to_owned(),
            incarnation: "1".to_owned(),
            part: 0,
            seq,
            word: MessageWord::Interval { second: seq, in_flight: 0, open: 0, figures: Box::default() },
        };
        let mut spool = Spool::create(&path).unwrap();
        for seq in 0..3 {
            spool.append(&message(seq).to_bytes().unwrap()).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read.torn, 1);
        let ids: Vec<_> = read.messages.iter().map(|(m, _)| m.id()).collect();
        assert_eq!(ids, ["r/a/1.0/0", "r/a/1.0/1"]);
        assert_eq!(read.messages[1].1, message(1).to_bytes().unwrap());
        assert_eq!(Spool::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
