//! A diagnosis: causes, causes ruled out, and limits.

use crate::call::{Call, Streamed};
use crate::evidence::{Grounds, Proof, Trial};
use crate::handshake::Handshake;
use crate::predict::Prediction;
use crate::record::{Record, median_of};
use crate::rule::{Cause, Fix};
use crate::shown::Shown;
use crate::signs::tls;
use crate::stats::Estimate;
use crate::times::Times;

/// A cause, named. It can only be made from [`Grounds`].
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    id: &'static str,
    title: String,
    cost_ms: f64,
    proof: Proof,
    trials: Vec<Trial>,
    dose: Option<Estimate>,
    by_time: bool,
    behind: bool,
    fails: bool,
    evidence: Vec<String>,
    fixes: &'static [Fix],
    verify: &'static str,
    predicted: Option<Prediction>,
}

impl Verdict {
    /// `cause` costs `cost_ms` milliseconds a call, on these grounds.
    pub(crate) fn new(cause: &'static Cause, cost_ms: f64, grounds: Grounds) -> Verdict {
        let proof = grounds.proof();
        let by_time = matches!(grounds, Grounds::Seen { .. });
        let (mut trials, mut evidence) = (Vec::new(), Vec::new());
        match grounds {
            Grounds::Moved(trial) => trials.push(trial),
            Grounds::Counted { words, .. } | Grounds::Seen { words, .. } => evidence.push(words),
        }
        Verdict {
            id: cause.id,
            title: cause.title.to_owned(),
            cost_ms,
            proof,
            trials,
            dose: None,
            by_time,
            behind: false,
            fails: false,
            evidence,
            fixes: cause.fixes,
            verify: cause.verify,
            predicted: None,
        }
    }

    /// With how the time follows the strength of the lever.
    pub(crate) fn with_dose(mut self, dose: Option<Estimate>) -> Verdict {
        self.dose = dose;
        self
    }

    /// With what the call will take without it.
    pub(crate) fn predicting(mut self, predicted: Option<Prediction>) -> Verdict {
        self.predicted = predicted;
        self
    }

    /// With more evidence.
    pub(crate) fn saying(mut self, words: impl Into<String>) -> Verdict {
        self.evidence.push(words.into());
        self
    }

    /// At most that sure.
    pub(crate) fn at_most(mut self, proof: Proof) -> Verdict {
        self.proof = self.proof.min(proof);
        self
    }

    /// One step less sure.
    pub(crate) fn less_sure(mut self) -> Verdict {
        self.proof = match self.proof {
            Proof::Proved => Proof::Likely,
            Proof::Likely | Proof::Possible => Proof::Possible,
        };
        self
    }

    /// It stands on times that were seen, and on no experiment or counter.
    pub(crate) fn is_by_time(&self) -> bool {
        self.by_time
    }

    /// Behind another that is the reason for it.
    pub(crate) fn behind(mut self) -> Verdict {
        self.behind = true;
        self
    }

    /// The call fails by it: that counts, whatever time it takes.
    pub(crate) fn failing(mut self) -> Verdict {
        self.fails = true;
        self
    }

    /// The call fails by it.
    pub fn fails(&self) -> bool {
        self.fails
    }

    /// With a title of its own.
    pub(crate) fn titled(mut self, title: &str) -> Verdict {
        self.title = title.to_owned();
        self
    }

    /// Its stable name.
    pub fn id(&self) -> &'static str {
        self.id
    }

    /// One line in plain words.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Milliseconds it costs the call.
    pub fn cost_ms(&self) -> f64 {
        self.cost_ms
    }

    /// How sure it is.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The same as a number between 0 and 1: what is left for chance and for what looks alike.
    pub fn confidence(&self) -> f64 {
        let chance = self.trials.first().map_or(0.0, |t| t.p_value);
        match self.proof {
            Proof::Proved => 0.99 - chance.min(0.09),
            Proof::Likely => 0.75,
            Proof::Possible => 0.4,
        }
    }

    /// Experiments behind it, the deciding one first.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// How the time follows the strength of the first experiment's lever: milliseconds for each
    /// millisecond.
    pub fn dose(&self) -> Option<Estimate> {
        self.dose
    }

    /// Observations and counts that support the verdict.
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }

    /// Changes that remove the cause, by software.
    pub fn fixes(&self) -> &'static [Fix] {
        self.fixes
    }

    /// A caution for running the same command again to verify the fix; empty where there is
    /// none.
    pub fn verify(&self) -> &'static str {
        self.verify
    }

    /// The predicted time of the call once the cause is fixed, where it can be predicted.
    pub fn predicted(&self) -> Option<Prediction> {
        self.predicted
    }

    /// Its rank: cost, weighted by the strength of the proof.
    pub(crate) fn weight(&self) -> f64 {
        let sure = match self.proof {
            Proof::Proved => 1.0,
            Proof::Likely => 0.8,
            Proof::Possible => 0.4,
        };
        self.cost_ms * sure * if self.behind { 0.3 } else { 1.0 }
    }
}

/// A cause that it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// Its name.
    pub id: &'static str,
    /// The reason, in words.
    pub why: String,
}

/// The whole of it in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// Nothing is wrong.
    Healthy,
    /// At least one cause was found.
    Caused,
    /// Something is wrong, and what could not be told.
    Inconclusive,
}

impl Whole {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Whole::Healthy => "healthy",
            Whole::Caused => "caused",
            Whole::Inconclusive => "inconclusive",
        }
    }
}

/// TLS with the server, over all calls with nothing changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSeen {
    /// The server's certificate was not checked.
    pub insecure: bool,
    /// Parameters negotiated by the first handshake; `None` where no handshake ended.
    pub seen: Option<linerate_tls::Seen>,
    /// Full handshakes.
    pub full: usize,
    /// Handshakes that resumed a session.
    pub resumed: usize,
    /// The server gave something to resume a session by.
    pub gives: bool,
    /// What TCP takes to connect, in the middle, milliseconds.
    pub connect_ms: f64,
    /// Time of a full handshake, in the middle.
    pub full_ms: Option<f64>,
    /// And one that resumes a session.
    pub resumed_ms: Option<f64>,
}

/// Time of handshakes of a kind, milliseconds.
fn middle(handshakes: &[&Handshake], resumed: bool) -> Option<f64> {
    let mut all = handshakes.to_vec();
    all.retain(|h| h.is_resumed() == resumed);
    (!all.is_empty()).then(|| tls::middle(&all, |h| h.took))
}

impl TlsSeen {
    pub(crate) fn of(record: &Record) -> Option<TlsSeen> {
        let settings = record.settings.tls?;
        let usual = tls::usual(record);
        let resumed = usual.iter().filter(|h| h.is_resumed()).count();
        Some(TlsSeen {
            insecure: settings.insecure,
            seen: usual.first().and_then(|h| h.seen.clone()),
            full: usual.len() - resumed,
            resumed,
            gives: tls::gives(record),
            connect_ms: median_of(&record.observed().filter(|c| c.tls.is_some()).collect::<Vec<_>>(), |c| {
                c.connect
            }),
            full_ms: middle(&usual, false),
            resumed_ms: middle(&usual, true),
        })
    }
}

/// The machine that calls, while it did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Share of our calls' time in which we were ready to run and waited for a processor.
    pub waited_share: f64,
    /// Share of the time in which something on the machine waited for a processor
    /// (/proc/pressure/cpu, `some`).
    pub pressure: Option<f64>,
    /// Load of the last minute for each processor.
    pub load: Option<f64>,
    /// Share of the processors' time that another machine of the same host took (steal).
    pub steal: Option<f64>,
}

/// The first call beside later ones, milliseconds beside their connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstCall {
    /// The very first call.
    pub first_ms: f64,
    /// Later ones, in the middle.
    pub later_ms: f64,
    /// Calls after a pause, in the middle, where any were made.
    pub after_pause_ms: Option<f64>,
}

/// What `explain` found.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// In a word.
    pub whole: Whole,
    /// The URL, as it is reported.
    pub url: String,
    /// The request's method.
    pub method: String,
    /// The command that makes this diagnosis again, without secrets.
    pub command: String,
    /// Where it went.
    pub address: String,
    /// Time of the name's lookup, milliseconds; 0 for an address.
    pub dns_ms: f64,
    /// The call that stands for all: the one in the middle of those that were observed.
    pub call: Call,
    /// The times of all calls with nothing changed.
    pub times: Times,
    /// The first call beside later ones, where there were several.
    pub first: Option<FirstCall>,
    /// Round-trip time of the network, milliseconds.
    pub rtt_ms: f64,
    /// Causes, the most expensive first.
    pub causes: Vec<Verdict>,
    /// Causes that were ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Tests that could not be made, and their requirements; and other doubts.
    pub limits: Vec<String>,
    /// Calls made.
    pub calls: usize,
    /// Seconds it took.
    pub took_s: f64,
    /// How many calls the server serves at once, where several at once showed it.
    pub served_at_once: Option<usize>,
    /// TLS with the server; `None`: plain HTTP.
    pub tls: Option<TlsSeen>,
    /// HTTP/2 with the server; `None`: HTTP/1.1.
    pub streamed: Option<Streamed>,
    /// The machine that calls.
    pub machine: Machine,
    /// Material to show beside the verdict: calls, packets, the server's process.
    pub shown: Shown,
}
