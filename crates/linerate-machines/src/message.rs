//! What agents send while they measure: an interval each second, and a last word at the end.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, digest};
use linerate_load::Outcome;
use linerate_load::request_log::{LogEntry, RequestEnd, ResponseTimes};
use serde::{Deserialize, Serialize};

use crate::figures::IntervalFigures;

/// A message of an agent. Its place in the order of the agent's messages makes adding it up
/// idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentMessage {
    /// [`SCHEMA`](crate::document::SCHEMA).
    pub schema: String,
    /// The run.
    pub run: String,
    /// The agent's name.
    pub agent: String,
    /// Which start of the agent.
    pub incarnation: String,
    /// Which of the agent's shares: see [`RunShare::part`](crate::document::RunShare::part).
    #[serde(default)]
    pub part: u32,
    /// Number of the message of this share, from 0.
    pub seq: u64,
    /// What it says.
    pub word: MessageWord,
}

/// The two kinds of message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageWord {
    /// Figures since the message before.
    Interval {
        /// Whole seconds from the start of measuring to the interval's beginning.
        second: u64,
        /// Requests in flight at its end.
        in_flight: u64,
        /// Connections open at its end.
        open: u64,
        /// The figures of this interval alone.
        figures: Box<IntervalFigures>,
    },
    /// What became of requests, one by one.
    Requests {
        /// The requests.
        entries: Vec<LoggedRequest>,
        /// Requests before them that are in no message: they were too many.
        left_out: u64,
    },
    /// The agent has ended.
    Final {
        /// SHA-256 over the digests of all messages before, in their order, as hexadecimal digits.
        digest: String,
        /// Whether it was told to end before the run did.
        #[serde(default)]
        left: bool,
        /// All that was measured, without the series and without saved responses.
        outcome: Box<Outcome>,
    },
}

/// An entry of the log of requests, in the order of [`LogEntry`]'s fields: as short as JSON allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedRequest(
    u64,
    u32,
    u32,
    u16,
    u16,
    u16,
    String,
    i64,
    i64,
    Option<[u64; 3]>,
    #[serde(default)] Option<u64>,
);

impl LoggedRequest {
    /// As it is sent.
    pub fn of(entry: &LogEntry) -> LoggedRequest {
        let LogEntry { number, step, count, request, thread, status, end, due_ns, sent_ns, user, times } =
            *entry;
        let times = times.map(|t| [t.first_byte_ns, t.from_sent_ns, t.from_due_ns]);
        LoggedRequest(
            number,
            step,
            count,
            request,
            thread,
            status,
            end.word().to_owned(),
            due_ns,
            sent_ns,
            times,
            user,
        )
    }

    /// How many requests it stands for.
    pub fn requests(&self) -> u64 {
        u64::from(self.2)
    }

    /// The entry; `None`: its end has a word that is unknown here.
    pub fn entry(&self) -> Option<LogEntry> {
        let LoggedRequest(
            number,
            step,
            count,
            request,
            thread,
            status,
            ref end,
            due_ns,
            sent_ns,
            times,
            user,
        ) = *self;
        let end = RequestEnd::of_word(end)?;
        let times = times.map(|[first_byte_ns, from_sent_ns, from_due_ns]| ResponseTimes {
            first_byte_ns,
            from_sent_ns,
            from_due_ns,
        });
        Some(LogEntry { number, step, count, request, thread, status, end, due_ns, sent_ns, user, times })
    }
}

/// Requests that a message has at most. Reason: 200 kB, and a broker takes 1 MB.
pub(crate) const LOGGED: usize = 2_000;

/// Messages with requests that an agent sends in a second at most. Reason: 10,000 requests/s are 1 MB/s
/// on each broker's disk.
pub(crate) const LOGS_PER_SECOND: u64 = 5;

/// Digest of a message's bytes.
pub type MessageDigest = [u8; 32];

/// The digest of one message.
pub fn digest_of(bytes: &[u8]) -> MessageDigest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// Which messages of an agent there are, and the digest over their digests in their order. The
/// memory that it takes does not grow with messages that come in their order.
#[derive(Clone)]
pub struct Digests {
    /// Over all messages before `next`.
    before: Context,
    next: u64,
    /// Messages that came before an earlier one did.
    ahead: BTreeMap<u64, MessageDigest>,
}

impl Default for Digests {
    fn default() -> Digests {
        Digests { before: Context::new(&SHA256), next: 0, ahead: BTreeMap::new() }
    }
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digests").field("next", &self.next).field("ahead", &self.ahead.len()).finish()
    }
}

impl Digests {
    /// Whether this message is there.
    pub fn contains(&self, seq: u64) -> bool {
        seq < self.next || self.ahead.contains_key(&seq)
    }

    /// One more message, unless it is there.
    pub fn insert(&mut self, seq: u64, digest: &MessageDigest) {
        if self.contains(seq) {
            return;
        }
        self.ahead.insert(seq, *digest);
        while let Some(digest) = self.ahead.remove(&self.next) {
            self.before.update(&digest);
            self.next += 1;
        }
    }

    /// How many there are without a gap.
    pub fn count(&self) -> u64 {
        self.next
    }

    /// The highest number of a message.
    pub fn highest(&self) -> Option<u64> {
        self.ahead.last_key_value().map(|(seq, _)| *seq).or(self.next.checked_sub(1))
    }

    /// Whether there are no gaps before this number, and no messages from it on.
    pub fn are_all_below(&self, end: u64) -> bool {
        self.next == end && self.ahead.is_empty()
    }

    /// The gaps before this number.
    pub fn missing_below(&self, end: u64) -> Vec<u64> {
        (self.next..end).filter(|seq| !self.ahead.contains_key(seq)).collect()
    }

    /// SHA-256 over the digests of all messages without a gap, as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.before.clone().finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl AgentMessage {
    /// Under this name the broker drops a second copy.
    pub fn id(&self) -> String {
        format!("{}/{}/{}.{}/{}", self.run, self.agent, self.incarnation, self.part, self.seq)
    }

    /// As it is sent and spooled: one line of JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::outcome::{AgreedParameters, HandshakeCounts};

    use super::*;
    use crate::document::SCHEMA;

    #[test]
    fn a_logged_request_is_read_back() {
        let times = Some(ResponseTimes { first_byte_ns: 1, from_sent_ns: 2, from_due_ns: 3 });
        let end = RequestEnd::Bad("bad status");
        let entry = LogEntry {
            number: 1 << 40,
            step: 4,
            count: 2,
            request: 1,
            thread: 3,
            status: 503,
            end,
            due_ns: -5,
            sent_ns: 7,
            user: Some(9),
            times,
        };
        let bytes = serde_json::to_vec(&LoggedRequest::of(&entry)).unwrap();
        assert!(bytes.len() < 80, "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(serde_json::from_slice::<LoggedRequest>(&bytes).unwrap().entry(), Some(entry));
    }

    /// The keys of these maps are structs, which JSON does not have as keys.
    #[test]
    fn a_last_message_with_handshakes_is_read_back() {
        let mut handshakes = HandshakeCounts { full: 3, ..HandshakeCounts::default() };
        for (alpn, count) in [(None, 1), (Some("h2".to_owned()), 2)] {
            let agreed = AgreedParameters { version: "TLSv1.3".to_owned(), cipher: "x".to_owned(), alpn };
            handshakes.agreed.insert(agreed, count);
        }
        let outcome = Outcome { tls: Some(handshakes.clone()), ..Outcome::default() };
        let message = AgentMessage {
            schema: SCHEMA.to_owned(),
            run: "r".to_owned(),
            agent: "a".to_owned(),
            incarnation: "1".to_owned(),
            part: 0,
            seq: 0,
            word: MessageWord::Final { digest: String::new(), left: false, outcome: Box::new(outcome) },
        };
        let bytes = message.to_bytes().unwrap();
        let MessageWord::Final { outcome, .. } = serde_json::from_slice::<AgentMessage>(&bytes).unwrap().word
        else {
            panic!("it is the last message");
        };
        assert_eq!(outcome.tls, Some(handshakes));
    }
}
