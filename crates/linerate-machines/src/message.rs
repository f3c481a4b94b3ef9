//! What agents send while they measure: an interval each second, and a last word at the end.

use aws_lc_rs::digest::{Context, SHA256, digest};
use linerate_load::Outcome;
use serde::{Deserialize, Serialize};

use crate::figures::Figures;

/// A message of an agent. Its place in the order of the agent's messages makes adding it up
/// idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    /// [`SCHEMA`](crate::document::SCHEMA).
    pub schema: String,
    /// The run.
    pub run: String,
    /// The agent's name.
    pub agent: String,
    /// Which start of the agent.
    pub incarnation: String,
    /// Number of the message, from 0.
    pub seq: u64,
    /// What it says.
    pub word: Word,
}

/// The two kinds of message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// What was measured since the message before.
    Interval {
        /// Whole seconds from the start of measuring to the interval's beginning.
        second: u64,
        /// Requests in flight at its end.
        in_flight: u64,
        /// Connections open at its end.
        open: u64,
        /// What was measured.
        figures: Box<Figures>,
    },
    /// The agent has ended.
    Final {
        /// SHA-256 over the digests of all messages before, in their order, as hexadecimal digits.
        digest: String,
        /// All that was measured, without the series and without saved responses.
        outcome: Box<Outcome>,
    },
}

/// Digest of a message's bytes.
pub type MessageDigest = [u8; 32];

/// The digest of one message.
pub fn digest_of(bytes: &[u8]) -> MessageDigest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// The digest of a sequence of messages, by their digests.
pub fn digest_of_all<'a>(digests: impl IntoIterator<Item = &'a MessageDigest>) -> String {
    let mut context = Context::new(&SHA256);
    digests.into_iter().for_each(|one| context.update(one));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Message {
    /// Under this name the broker drops a second copy.
    pub fn id(&self) -> String {
        format!("{}/{}/{}/{}", self.run, self.agent, self.incarnation, self.seq)
    }

    /// As it is sent and spooled: one line of JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
