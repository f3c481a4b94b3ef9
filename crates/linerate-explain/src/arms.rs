//! Blocks of probes for the arms of an experiment.

use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::signs::{congestion, wait};

/// Each probe on its own.
pub(crate) fn singles(probes: Vec<Probe>) -> Vec<Block> {
    probes.into_iter().map(|p| vec![p]).collect()
}

/// Arms in blocks of one connection: a call that opens it, which does not count, and `n` that do.
/// Right after one another, since the kernel delays acknowledgements only where it has just
/// answered with data (pingpong mode), and forgets that after 40 ms.
pub(crate) fn arms(
    experiment: Experiment,
    arms: u8,
    blocks: u8,
    n: usize,
    shape: impl Fn(&mut CallProbe),
) -> Vec<Block> {
    let block = |arm: u8, block: u8| {
        let lane = Lane::Kept(experiment.first_lane() + arm * blocks + block);
        let mut probe = CallProbe::plain(experiment, arm, lane);
        shape(&mut probe);
        vec![Probe::Call(Box::new(probe)); n + 1]
    };
    (0..blocks).flat_map(|b| (0..arms).map(move |arm| (arm, b))).map(|(arm, b)| block(arm, b)).collect()
}

/// The same blocks on connections that their experiment has not used yet.
pub(crate) fn on_new_lanes(record: &Record, mut blocks: Vec<Block>) -> Vec<Block> {
    let used = |experiment: Experiment| {
        let calls = record.calls().filter(|(p, _)| p.experiment == experiment);
        let lanes =
            calls.filter_map(|(p, _)| if let Lane::Kept(lane) = p.lane { Some(lane + 1) } else { None });
        lanes.max().map_or(0, |next| next - experiment.first_lane())
    };
    for probe in blocks.iter_mut().flatten() {
        if let Probe::Call(call) = probe
            && let Lane::Kept(lane) = &mut call.lane
        {
            *lane += used(call.experiment);
        }
    }
    blocks
}

/// A round trip from which on it pays to make calls side by side, milliseconds.
const FAR_MS: f64 = 10.0;

/// The arms side by side, where time is spent in the network and they cannot disturb one another: the
/// server's own work for all of them together is less than a round trip, and their responses fit the
/// first window. All begin at once, so no order is left to chance.
pub(crate) fn side_by_side(record: &Record, blocks: Vec<Block>) -> Vec<Block> {
    let work = blocks.len() as f64 * wait::beyond_rtt(record);
    let bytes = record.group().first().and_then(|c| c.answer()).map_or(0, |a| a.body_bytes);
    let small = bytes + record.settings.body_bytes < congestion::FIRST_WINDOW;
    let clean = record.observed().all(|c| c.answer().is_some() && !c.lossy() && !c.syn_again());
    if !small || !clean || record.rtt_ms() < FAR_MS || work > record.rtt_ms() {
        return blocks;
    }
    let lane = |block: Block| -> Vec<CallProbe> {
        block.into_iter().filter_map(|p| if let Probe::Call(call) = p { Some(*call) } else { None }).collect()
    };
    vec![vec![Probe::SideBySide(blocks.into_iter().map(lane).collect())]]
}
