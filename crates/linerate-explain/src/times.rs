//! The calls' times by what a caller waits for: what a second diagnosis is compared with, and what
//! a cause costs in each.

use crate::call::{Call, Why, ms};
use crate::probe::{CallProbe, Experiment, Resolved};
use crate::record::Record;

/// Experiments whose calls with nothing changed are calls as those of the first look.
const ALIKE: [Experiment; 3] = [Experiment::Tail, Experiment::QuickAck, Experiment::SourcePort];

/// The part of a call that a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    /// A call, on a kept connection where the server keeps it.
    Call,
    /// A call that opens its connection.
    New,
    /// A call that opens its connection by a full TLS handshake.
    Full,
    /// The first byte of the response.
    FirstByte,
    /// A call and the lookup of its name before it.
    Lookup,
}

impl CallPart {
    /// All of them.
    pub const ALL: [CallPart; 5] =
        [CallPart::Call, CallPart::New, CallPart::Full, CallPart::FirstByte, CallPart::Lookup];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            CallPart::Call => "call",
            CallPart::New => "new_connection",
            CallPart::Full => "full_handshake",
            CallPart::FirstByte => "first_byte",
            CallPart::Lookup => "with_lookup",
        }
    }

    /// In words, where it is not the call itself.
    pub fn words(self) -> Option<&'static str> {
        match self {
            CallPart::Call => None,
            CallPart::New => Some("on a new connection"),
            CallPart::Full => Some("with a full TLS handshake"),
            CallPart::FirstByte => Some("to the first byte"),
            CallPart::Lookup => Some("with the name's lookup"),
        }
    }

    /// The part by its name.
    pub fn named(name: &str) -> Option<CallPart> {
        CallPart::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// Milliseconds of each call with nothing changed, by part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTimes {
    /// [`CallPart::Call`].
    pub call: Vec<f64>,
    /// [`CallPart::New`].
    pub new: Vec<f64>,
    /// [`CallPart::Full`].
    pub full: Vec<f64>,
    /// [`CallPart::FirstByte`].
    pub first_byte: Vec<f64>,
    /// [`CallPart::Lookup`].
    pub lookup: Vec<f64>,
}

impl CallTimes {
    /// Of a part.
    pub fn of(&self, part: CallPart) -> &[f64] {
        match part {
            CallPart::Call => &self.call,
            CallPart::New => &self.new,
            CallPart::Full => &self.full,
            CallPart::FirstByte => &self.first_byte,
            CallPart::Lookup => &self.lookup,
        }
    }

    /// Of a part, to be filled.
    pub fn of_mut(&mut self, part: CallPart) -> &mut Vec<f64> {
        match part {
            CallPart::Call => &mut self.call,
            CallPart::New => &mut self.new,
            CallPart::Full => &mut self.full,
            CallPart::FirstByte => &mut self.first_byte,
            CallPart::Lookup => &mut self.lookup,
        }
    }

    /// Of what was observed.
    pub(crate) fn seen(record: &Record) -> CallTimes {
        let totals = |calls: &[&Call]| calls.iter().map(|c| ms(c.total)).collect::<Vec<f64>>();
        let calls = explained(record);
        let middle = crate::stats::median(&totals(&calls));
        let in_vain = record.connects().into_iter().take_while(|c| c.error.is_some());
        let gone_by: f64 = in_vain.map(|c| ms(c.took)).sum();
        let lookup = match record.lookups().as_slice() {
            [] if gone_by > 0.0 => vec![gone_by + middle],
            lookups => paid(lookups).iter().map(|l| l + gone_by + middle).collect(),
        };
        // The call that a redirect leads to is a part of the caller's wait.
        let hops = hops_ms(record);
        CallTimes {
            call: totals(&calls).into_iter().map(|t| t + hops).collect(),
            new: totals(&answered_or_hung(record, true)),
            full: totals(&full(record)),
            first_byte: calls.iter().map(|c| ms(c.opening() + c.send + c.wait)).collect(),
            lookup,
        }
    }
}

/// Milliseconds of lookups that a caller pays: where a cache answered all but the first, that.
fn paid(lookups: &[&Resolved]) -> Vec<f64> {
    const CACHED: f64 = 0.3;
    let times: Vec<f64> = lookups.iter().map(|l| ms(l.took)).collect();
    let cached = (2..MANY).contains(&times.len())
        && times[1..].iter().all(|t| *t < CACHED * times[0])
        && times[0] >= LOOKUP_MS;
    if cached { times[..1].to_vec() } else { times }
}

/// So many lookups were made to be compared, and the first may be slow by chance.
const MANY: usize = 10;
/// A lookup that is quicker counts for nothing, milliseconds.
const LOOKUP_MS: f64 = 20.0;

/// Answered calls on new connections whose TLS handshake was a full one, and otherwise as usual.
pub(crate) fn full(record: &Record) -> Vec<&Call> {
    let alike =
        |p: &CallProbe| p.experiment == Experiment::Observe || TLS.contains(&p.experiment) && p.arm == 0;
    let is_full = |c: &Call| c.tls.as_deref().is_some_and(|h| h.seen.is_some() && !h.is_resumed());
    let calls = record.calls().filter(|(p, c)| alike(p) && c.fresh && is_full(c) && c.answer().is_some());
    calls.map(|(_, c)| c).collect()
}

/// Experiments whose first arm has full handshakes as they are.
const TLS: [Experiment; 3] = [Experiment::Resume, Experiment::Group, Experiment::Version];

/// The calls that are explained, and those like them in experiments.
pub(crate) fn explained(record: &Record) -> Vec<&Call> {
    answered_or_hung(record, record.reused().len() < 2)
}

/// Where none was answered, calls of the first look that hung stand for them.
fn answered_or_hung(record: &Record, fresh: bool) -> Vec<&Call> {
    let calls = plain(record, fresh);
    if !calls.is_empty() {
        return calls;
    }
    let hung = |c: &&Call| c.failure().is_some_and(|f| f.why == Why::TimedOut);
    record.observed().filter(hung).collect()
}

/// Answered calls with nothing changed, on new connections or on kept ones.
pub(crate) fn plain(record: &Record, fresh: bool) -> Vec<&Call> {
    let mut calls = if fresh { record.fresh() } else { record.reused() };
    let alike = record.calls().filter(|(p, c)| {
        let as_asked = p.is_plain() && p.writes == record.settings.writes;
        ALIKE.contains(&p.experiment) && as_asked && c.fresh == fresh && c.answer().is_some()
    });
    calls.extend(alike.map(|(_, c)| c));
    calls
}

/// Milliseconds of the hops behind the first call, where a redirect was followed.
pub(crate) fn hops_ms(record: &Record) -> f64 {
    record.calls().filter(|(p, _)| p.experiment == Experiment::Redirect).map(|(_, c)| ms(c.total)).sum()
}
