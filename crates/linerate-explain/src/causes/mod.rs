//! The causes, one file each: what it looks like, what would prove it, what it costs, and what to
//! change in the software that people run. A rule is two pure functions over what was observed:
//! which probes it still wants, and its judgement.

mod accept_queue;
mod bufferbloat;
mod client_nagle;
mod cold_start;
mod compression;
mod connection_limit;
mod cork;
mod dead_address;
mod dns_slow;
mod dns_timeout;
mod expect_continue;
mod h2_flow_control;
mod h2_head_of_line;
mod h2_stream_limit;
mod idle_restart;
mod in_the_process;
mod ipv6_fallback;
mod keep_alive_race;
mod late_close;
mod no_keep_alive;
mod packet_loss;
mod path_mtu;
mod pinned;
mod ports_exhausted;
mod proxy_buffering;
mod rate_limit;
mod redirects;
mod reverse_dns;
mod send_buffer;
mod server_nagle;
mod server_queueing;
mod server_send_buffer;
mod server_think;
mod slow_start;
mod stopped;
mod syn_loss;
mod time_wait;
mod tiny_writes;
mod tls_full_handshake;
mod tls_hello_retry;
mod tls_long_chain;
mod tls_old_version;
mod tls_slow_key;
mod zero_window;

use crate::evidence::{Exclusion, Trial};
use crate::probe::{CallProbe, Experiment, Lane, Probe};
use crate::record::Record;
use crate::verdict::Verdict;

/// A change in one piece of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Which software.
    pub software: &'static str,
    /// The change to make there.
    pub change: &'static str,
}

/// The judgement of a rule on the observations.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It is the cause, or one of them.
    Named(Box<Verdict>),
    /// It was tested, or what was seen excludes it.
    RuledOut(Exclusion),
    /// It could not be tested here; what would be needed.
    Open(String),
    /// There was no sign of it.
    Silent,
}

/// Something was seen that cannot be where the cause is.
fn excluded(words: impl Into<String>) -> Judgement {
    Judgement::RuledOut(Exclusion::seen(words))
}

/// An experiment that did not move `ms` milliseconds: ruled out where its interval excludes them,
/// else unclear.
fn not_moved(trial: &Trial, ms: f64, words: &str) -> Judgement {
    Exclusion::by_interval(trial, ms, words).map_or_else(Judgement::Open, Judgement::RuledOut)
}

/// Whether an experiment is to be made: the first time, and once more where a busy machine makes
/// its noise too wide to tell.
fn again(record: &Record, experiment: Experiment, trial: Option<&Trial>, ms: f64) -> bool {
    const ENOUGH: usize = 10;
    match trial {
        None => !record.tried(experiment),
        Some(trial) => {
            let few = trial.without.len().max(trial.with.len()) < ENOUGH;
            trial.is_unclear(ms) && few && !record.given_up.contains(&experiment)
        }
    }
}

/// A cause and its rule.
#[derive(Debug)]
pub struct Cause {
    /// Its stable name.
    pub id: &'static str,
    /// One line in plain words.
    pub title: &'static str,
    /// Changes that remove it.
    pub fixes: &'static [Fix],
    /// A caution for running the same command again to verify the fix; empty where there is
    /// none.
    pub verify: &'static str,
    /// The probes that would tell more, when there is a sign of it; none when all is known.
    pub(crate) wants: fn(&Record) -> Vec<Block>,
    /// The judgement.
    pub(crate) judge: fn(&Record) -> Judgement,
}

pub(crate) use ports_exhausted::NO_PORT;
pub(crate) use server_think::WORK_MS;
pub(crate) use stopped::proved as is_stopped;
pub(crate) use time_wait::seen_in_packets;

/// Most fixes are verified by the same command.
pub(crate) const AGAIN: &str = "";

/// All of them, in the order in which they are looked at: what hides others first.
pub static ALL: [&Cause; 47] = [
    &stopped::CAUSE,
    &ports_exhausted::CAUSE,
    &dns_timeout::CAUSE,
    &dns_slow::CAUSE,
    &ipv6_fallback::CAUSE,
    &dead_address::CAUSE,
    &path_mtu::CAUSE,
    &bufferbloat::CAUSE,
    &redirects::CAUSE,
    &expect_continue::CAUSE,
    &h2_flow_control::CAUSE,
    &server_nagle::CAUSE,
    &cork::CAUSE,
    &client_nagle::CAUSE,
    &rate_limit::CAUSE,
    &proxy_buffering::CAUSE,
    &tls_full_handshake::CAUSE,
    &tls_old_version::CAUSE,
    &tls_hello_retry::CAUSE,
    &tls_long_chain::CAUSE,
    &tls_slow_key::CAUSE,
    &time_wait::CAUSE,
    &accept_queue::CAUSE,
    &connection_limit::CAUSE,
    &pinned::CAUSE,
    &reverse_dns::CAUSE,
    &syn_loss::CAUSE,
    &zero_window::CAUSE,
    &send_buffer::CAUSE,
    &server_send_buffer::CAUSE,
    &compression::CAUSE,
    &slow_start::CAUSE,
    &idle_restart::CAUSE,
    &tiny_writes::CAUSE,
    &no_keep_alive::CAUSE,
    &keep_alive_race::CAUSE,
    &late_close::CAUSE,
    &packet_loss::CAUSE,
    &h2_head_of_line::CAUSE,
    &h2_stream_limit::CAUSE,
    &in_the_process::THROTTLED,
    &in_the_process::CONTENDED,
    &in_the_process::GC,
    &in_the_process::BLOCKED,
    &cold_start::CAUSE,
    &server_queueing::CAUSE,
    &server_think::CAUSE,
];

/// Nothing more to ask.
pub(crate) fn nothing(_: &Record) -> Vec<Block> {
    Vec::new()
}

/// Probes that are made one right after the other. An experiment's blocks are made in random order.
pub(crate) type Block = Vec<Probe>;

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
        let lane = Lane::Kept(lane_of(experiment) + arm * blocks + block);
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
        lanes.max().map_or(0, |next| next - lane_of(experiment))
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
    let work = blocks.len() as f64 * server_think::beyond_rtt(record);
    let bytes = record.group().first().and_then(|c| c.answer()).map_or(0, |a| a.body_bytes);
    let small = bytes + record.settings.body_bytes < slow_start::FIRST_WINDOW;
    let clean = record.observed().all(|c| c.answer().is_some() && !c.lossy() && !c.syn_again());
    if !small || !clean || record.rtt_ms() < FAR_MS || work > record.rtt_ms() {
        return blocks;
    }
    let lane = |block: Block| -> Vec<CallProbe> {
        block.into_iter().filter_map(|p| if let Probe::Call(call) = p { Some(*call) } else { None }).collect()
    };
    vec![vec![Probe::SideBySide(blocks.into_iter().map(lane).collect())]]
}

/// The first connection of an experiment. Each has its own, so that no arm inherits what another
/// did to a connection.
fn lane_of(experiment: Experiment) -> u8 {
    match experiment {
        Experiment::Observe
        | Experiment::Tail
        | Experiment::Held
        | Experiment::SourcePort
        | Experiment::Cork
        | Experiment::Rested
        | Experiment::Resume
        | Experiment::Group
        | Experiment::Version
        | Experiment::Streams
        | Experiment::HeadOfLine => 0,
        Experiment::Window => 200,
        Experiment::QuickAck => 10,
        Experiment::Dose => 160,
        Experiment::NoDelay => 30,
        Experiment::Apart => 40,
        Experiment::Expect => 60,
        Experiment::Coding => 70,
        Experiment::Redirect => 80,
        Experiment::Burst => 90,
        Experiment::Idle => 100,
        Experiment::Segment => 110,
        Experiment::PerConnection => 120,
        Experiment::Origin => 140,
        Experiment::Paced => 150,
    }
}

/// A time for a sentence: `52 µs`, `0.35 ms`, `43.9 ms`, `1.20 s`.
pub(crate) fn say(ms: f64) -> String {
    match ms {
        0.0 => "0 ms".to_owned(),
        _ if ms.abs() < 0.0995 => format!("{:.0} µs", ms * 1e3),
        _ if ms < 10.0 => format!("{ms:.2} ms"),
        _ if ms < 1000.0 => format!("{ms:.1} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}

/// The rule of that name.
pub fn find(id: &str) -> Option<&'static Cause> {
    ALL.iter().find(|c| c.id == id).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_something_to_change() {
        for (i, cause) in ALL.iter().enumerate() {
            assert!(!cause.fixes.is_empty(), "{}", cause.id);
            assert!(ALL[i + 1..].iter().all(|other| other.id != cause.id), "{}", cause.id);
            assert!(cause.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        }
    }
}
