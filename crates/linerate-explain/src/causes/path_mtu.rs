//! Packets of full size vanish on the way, and nobody says so (a path-MTU black hole).
//!
//! Symptom: the handshake works, small things pass, large ones hang. Experiment: smaller segments (TCP_MAXSEG).

use super::{Block, Cause, Fix, Judgement, say};
use crate::call::{Call, Stage, Why, ms};
use crate::evidence::{Grounds, Proof};
use crate::probe::{CallProbe, Experiment, Lane, Probe};
use crate::record::{Record, median_of};
use crate::stats::median;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "path-mtu",
    title: "packets of full size vanish on the way without a word (path-MTU black hole)",
    fixes: FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "firewalls",
        change: "let ICMP \"fragmentation needed\" and ICMPv6 \"packet too big\" through",
    },
    Fix {
        software: "tunnels (VPN, PPPoE, overlay networks)",
        change: "clamp the MSS to the path's MTU (nft ... tcp option maxseg size set rt mtu), or lower the interface's MTU",
    },
    Fix { software: "Linux", change: "net.ipv4.tcp_mtu_probing=1 at both ends" },
];

/// Segments that pass nearly everywhere: IPv6 guarantees 1280 bytes of packet.
pub(crate) const SMALL: u32 = 1000;
/// And those that pass even where 1000 do not (RFC 9293: 536).
pub(crate) const SMALLEST: u32 = 536;
/// A stall that mends itself by probing takes this long at least.
const STALL_MS: f64 = 600.0;

/// Calls that connected and then hung, and those that stood still for a long time within.
fn stuck(record: &Record) -> Vec<&Call> {
    record
        .observed()
        .filter(|c| {
            let hung = c.failure().is_some_and(|f| f.why == Why::TimedOut && f.stage != Stage::Connect);
            let stood =
                ms(c.longest_gap().max(c.wait)) > STALL_MS && c.facts.total_retrans + c.facts.rcv_ooopack > 0;
            hung || stood
        })
        .collect()
}

fn wants(record: &Record) -> Vec<Block> {
    let observed = record.observed().count();
    let stuck = stuck(record).len();
    if stuck == 0 || 2 * stuck < observed || !record.settings.may_repeat || record.tried(Experiment::Segment)
    {
        return Vec::new();
    }
    let probe = |arm: u8, bytes| {
        let mut probe = CallProbe::plain(Experiment::Segment, arm, Lane::Fresh);
        probe.writes = record.settings.writes;
        probe.levers.max_segment = Some(bytes);
        Probe::Call(Box::new(probe))
    };
    super::singles(vec![probe(1, SMALL), probe(1, SMALL), probe(2, SMALLEST), probe(1, SMALL)])
}

fn judge(record: &Record) -> Judgement {
    let stuck = stuck(record);
    if stuck.is_empty() {
        return Judgement::Silent;
    }
    let small: Vec<&Call> = [1, 2].into_iter().flat_map(|arm| record.arm(Experiment::Segment, arm)).collect();
    let tried = record.calls().filter(|(p, _)| p.experiment == Experiment::Segment).count();
    if tried == 0 {
        return Judgement::Open("calls hang after the handshake; telling a path-MTU black hole needs them repeated (--repeat-unsafe)".to_owned());
    }
    let took = median_of(&small, |c| c.total);
    let hung = median(&stuck.iter().map(|c| ms(c.total)).collect::<Vec<_>>());
    if small.len() * 2 < tried || took > hung / 3.0 {
        return Judgement::RuledOut(format!("smaller segments (TCP_MAXSEG {SMALL}) do not help either"));
    }
    let words = format!(
        "{} of {} calls hang ({} and no further); with segments of {SMALL} bytes {} of {tried} are answered, in {}",
        stuck.len(),
        record.observed().count(),
        say(hung),
        small.len(),
        say(took)
    );
    let share = if small.len() == tried { 1.0 } else { 0.5 };
    let verdict = Verdict::new(&CAUSE, hung - took, Grounds::Counted { words, share });
    Judgement::Named(Box::new(if share < 1.0 { verdict.at_most(Proof::Likely) } else { verdict }))
}
