//! Whether calls wait because they follow one another too soon, and whether the server itself says
//! so.

use std::time::Duration;

use crate::call::{Answer, Call};
use crate::evidence::Trial;
use crate::probe::Experiment;
use crate::record::Record;

/// Used if a refusal does not say when to retry.
const AGAIN: Duration = Duration::from_secs(1);

/// The server refuses a call because too many came: 429 (RFC 6585, section 4), or 503 with a time
/// to come again (RFC 9110, section 15.6.4). When it may be called again.
pub(crate) fn refused(answer: &Answer) -> Option<Duration> {
    let after = answer.field("retry-after");
    let asked = answer.status == 429 || answer.status == 503 && after.is_some();
    // A date (RFC 9110, section 10.2.3) is not read: it would need the server's clock.
    let seconds = after.and_then(|a| a.trim().parse().ok()).map_or(AGAIN, Duration::from_secs);
    asked.then_some(seconds)
}

/// Calls that were refused so, and all that were answered.
pub(crate) fn refusals(record: &Record) -> (Vec<&Answer>, usize) {
    let calls = record.calls().map(|(_, c)| c).chain(record.bursts().flatten());
    let answers: Vec<&Answer> = calls.filter_map(Call::answer).collect();
    let all = answers.len();
    (answers.into_iter().filter(|a| refused(a).is_some()).collect(), all)
}

/// Calls right after the one before, against calls after a pause.
pub(crate) fn trial(record: &Record) -> Option<Trial> {
    let name = "a pause before the call";
    let [without, with] = [0, 1].map(|arm| times(record, arm));
    Trial::of(name, "the pace", without, with)
}

/// Times that calls of an arm waited; refused calls don't count.
fn times(record: &Record, arm: u8) -> Vec<f64> {
    let calls = record.calls().filter(|(p, _)| p.experiment == Experiment::Paced && p.arm == arm);
    let answered = calls.filter(|(_, c)| c.answer().is_some_and(|a| a.status < 400) && !c.lossy());
    answered.map(|(_, c)| crate::call::ms(c.wait)).collect()
}

/// Of the calls right after another and of those after a pause: how many failed with 503, of how
/// many.
pub(crate) fn unavailable(record: &Record) -> [(usize, usize); 2] {
    [0, 1].map(|arm| {
        let calls = record.calls().filter(|(p, _)| p.experiment == Experiment::Paced && p.arm == arm);
        calls.filter_map(|(_, c)| c.answer()).fold((0, 0), |(bad, all), answer| {
            (bad + usize::from(matches!(answer.status, 429 | 503)), all + 1)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_refusal() {
        let answer = |status, after: Option<&str>| Answer {
            status,
            fields: after.iter().map(|a| ("retry-after".to_owned(), (*a).to_owned())).collect(),
            ..Answer::default()
        };
        assert_eq!(refused(&answer(429, Some("7"))), Some(Duration::from_secs(7)));
        assert_eq!(refused(&answer(429, None)), Some(AGAIN));
        assert_eq!(refused(&answer(503, Some("Wed, 21 Oct 2015 07:28:00 GMT"))), Some(AGAIN));
        assert_eq!((refused(&answer(503, None)), refused(&answer(200, Some("1")))), (None, None));
    }
}
