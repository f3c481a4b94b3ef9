//! Material shown beside a verdict: the calls of the deciding experiment next to each other, how the
//! time followed the lever, the packets of the calls, the server's process. It decides nothing.

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::packets::Packets;
use crate::probe::{DOSES_MS, Experiment};
use crate::process::ProcessView;
use crate::record::Record;
use crate::signs::tls;
use crate::stats::median;
use crate::verdict::Verdict;

/// Material shown beside a verdict. Each part is there only where it was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownMaterial {
    /// A call of each arm of the experiment that decided the first cause.
    pub arms: Option<Box<Arms>>,
    /// Where a lever had several strengths: each with the times of its calls.
    pub doses: Vec<Dose>,
    /// The packets of our calls, where they could be captured.
    pub packets: Option<Box<Packets>>,
    /// The server's process, when it was named.
    pub process: Option<Box<ProcessView>>,
}

/// Two calls that differ in one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Arms {
    /// The experiment, in words.
    pub name: String,
    /// The one thing that was changed.
    pub changed: String,
    /// The call in the middle of those without the change.
    pub without: Call,
    /// And of those with it.
    pub with: Call,
}

/// One strength of a lever.
#[derive(Clone, Debug, PartialEq)]
pub struct Dose {
    /// The lever, milliseconds.
    pub lever_ms: f64,
    /// Time of each call, milliseconds.
    pub took_ms: Vec<f64>,
}

pub(crate) type Metric = fn(&Call) -> Duration;

/// The parts of a call that experiments compare.
const METRICS: [Metric; 9] = [
    |c| c.receive,
    |c| c.wait,
    |c| c.total,
    |c| c.send + c.wait,
    |c| c.wait + c.receive,
    |c| c.connect,
    tls::took,
    tls::hello,
    tls::flight,
];

/// Experiments with two arms.
const TWO_ARMS: [Experiment; 16] = [
    Experiment::QuickAck,
    Experiment::NoDelay,
    Experiment::Apart,
    Experiment::Expect,
    Experiment::Coding,
    Experiment::Idle,
    Experiment::Segment,
    Experiment::Origin,
    Experiment::SourcePort,
    Experiment::Paced,
    Experiment::Cork,
    Experiment::Resume,
    Experiment::Group,
    Experiment::Version,
    Experiment::Window,
    Experiment::Timed,
];

/// Selects the material to show from the record.
pub(crate) fn of(record: &Record, causes: &[Verdict]) -> ShownMaterial {
    let Some((first, trial)) = causes.first().and_then(|c| Some((c, c.trials().first()?))) else {
        return ShownMaterial::default();
    };
    let Some((arms, metric)) = arms_of(record, trial) else { return ShownMaterial::default() };
    let doses = if first.dose().is_some() { doses_of(record, metric) } else { Vec::new() };
    ShownMaterial { arms: Some(Box::new(arms)), doses, ..ShownMaterial::default() }
}

/// The two arms' calls whose times a trial compares, and by what.
pub(crate) fn calls_of<'a>(record: &'a Record, trial: &Trial) -> Option<([Vec<&'a Call>; 2], Metric)> {
    let mut pairs: Vec<[Vec<&Call>; 2]> =
        TWO_ARMS.iter().map(|e| [0, 1].map(|arm| record.arm(*e, arm))).collect();
    pairs.push([0, 2].map(|arm| record.arm(Experiment::Cork, arm)));
    pairs.push([record.fresh(), record.reused()]);
    for [without, with] in pairs {
        for metric in METRICS {
            let times = |calls: &[&Call]| calls.iter().map(|c| ms(metric(c))).collect::<Vec<_>>();
            if times(&without) == trial.without && times(&with) == trial.with {
                return Some(([without, with], metric));
            }
        }
    }
    None
}

/// A call of each arm.
fn arms_of(record: &Record, trial: &Trial) -> Option<(Arms, Metric)> {
    let ([without, with], metric) = calls_of(record, trial)?;
    let (without, with) = (middle(without, metric)?, middle(with, metric)?);
    Some((Arms { name: trial.name.clone(), changed: trial.changed.clone(), without, with }, metric))
}

/// The call that is nearest to the middle, by what is compared and by all of it: on a busy machine
/// the two may be far apart.
fn middle(calls: Vec<&Call>, metric: Metric) -> Option<Call> {
    let of = |metric: Metric| median(&calls.iter().map(|c| ms(metric(c))).collect::<Vec<_>>());
    let (part, total) = (of(metric), of(|c| c.total));
    let off = |c: &Call| (ms(metric(c)) - part).abs() + (ms(c.total) - total).abs();
    calls.iter().min_by(|a, b| off(a).total_cmp(&off(b))).map(|c| (*c).clone())
}

fn doses_of(record: &Record, metric: Metric) -> Vec<Dose> {
    DOSES_MS
        .iter()
        .zip(0..)
        .map(|(lever, arm)| Dose {
            lever_ms: *lever as f64,
            took_ms: record.times(Experiment::Dose, arm, metric),
        })
        .filter(|d| !d.took_ms.is_empty())
        .collect()
}
