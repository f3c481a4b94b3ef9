//! Targeted drops: "the first SYN", "the third data segment of each connection", "all IPv6".

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;

use crate::limits::FLOWS;
use crate::packet::{FrameFacts, FrameFlow, FrameKind};

/// Selects frames to drop: `KIND[=WHICH][/flow]`.
///
/// `KIND` is `syn`, `syn-ack`, `data` (TCP with bytes), `ack` (TCP with nothing but an ACK), `fin`,
/// `rst`, `tcp`, `udp`, `icmp`, `too-big`, `ipv4`, `ipv6` or `any`. `WHICH` is `N` (the N-th,
/// counted from 1; `1` is the default), `N-M`, `every:N` or `all`. With `/flow` each connection has
/// its own count, from its SYN on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRule {
    kind: RuleKind,
    which: Which,
    per_flow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleKind {
    Syn,
    SynAck,
    Data,
    Ack,
    Fin,
    Rst,
    Tcp,
    Udp,
    Icmp,
    TooBig,
    V4,
    V6,
    Any,
}

const KINDS: [(&str, RuleKind); 13] = [
    ("syn", RuleKind::Syn),
    ("syn-ack", RuleKind::SynAck),
    ("data", RuleKind::Data),
    ("ack", RuleKind::Ack),
    ("fin", RuleKind::Fin),
    ("rst", RuleKind::Rst),
    ("tcp", RuleKind::Tcp),
    ("udp", RuleKind::Udp),
    ("icmp", RuleKind::Icmp),
    ("too-big", RuleKind::TooBig),
    ("ipv4", RuleKind::V4),
    ("ipv6", RuleKind::V6),
    ("any", RuleKind::Any),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// From the first to the last number, counted from 1.
    Range(u64, u64),
    Every(u64),
    All,
}

impl Which {
    fn includes(self, n: u64) -> bool {
        match self {
            Which::Range(a, b) => (a..=b).contains(&n),
            Which::Every(k) => n.is_multiple_of(k),
            Which::All => true,
        }
    }
}

impl DropRule {
    fn is_about(&self, p: &FrameFacts) -> bool {
        let tcp = match p.kind {
            FrameKind::Tcp(t) => Some(t),
            _ => None,
        };
        match self.kind {
            RuleKind::Syn => tcp.is_some_and(|t| t.syn && !t.ack),
            RuleKind::SynAck => tcp.is_some_and(|t| t.syn && t.ack),
            RuleKind::Data => tcp.is_some_and(|t| t.payload > 0),
            RuleKind::Ack => tcp.is_some_and(|t| t.ack && t.payload == 0 && !t.syn && !t.fin && !t.rst),
            RuleKind::Fin => tcp.is_some_and(|t| t.fin),
            RuleKind::Rst => tcp.is_some_and(|t| t.rst),
            RuleKind::Tcp => tcp.is_some(),
            RuleKind::Udp => p.kind == FrameKind::Udp,
            RuleKind::Icmp => matches!(p.kind, FrameKind::Icmp | FrameKind::IcmpTooBig),
            RuleKind::TooBig => p.kind == FrameKind::IcmpTooBig,
            RuleKind::V4 => !p.v6,
            RuleKind::V6 => p.v6,
            RuleKind::Any => true,
        }
    }
}

/// A rule that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no frames: KIND[=WHICH][/flow] with KIND one of {kinds}, WHICH N, N-M, every:N or all, as in syn=1, \
     data=3/flow, udp=all",
    kinds = KINDS.map(|k| k.0).join(", ")
)]
pub struct ParseRuleError(String);

impl FromStr for DropRule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<DropRule, ParseRuleError> {
        let error = || ParseRuleError(text.to_owned());
        let (rest, per_flow) = match text.strip_suffix("/flow") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (kind, which) = rest.split_once('=').unwrap_or((rest, "1"));
        let kind = KINDS.iter().find(|k| k.0 == kind).ok_or_else(error)?.1;
        let number = |s: &str| s.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(error);
        let which = if which == "all" {
            Which::All
        } else if let Some(n) = which.strip_prefix("every:") {
            Which::Every(number(n)?)
        } else if let Some((a, b)) = which.split_once('-') {
            let (a, b) = (number(a)?, number(b)?);
            if a > b {
                return Err(error());
            }
            Which::Range(a, b)
        } else {
            let n = number(which)?;
            Which::Range(n, n)
        };
        Ok(DropRule { kind, which, per_flow })
    }
}

impl fmt::Display for DropRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|k| k.1 == self.kind).map_or("?", |k| k.0);
        match self.which {
            Which::Range(a, b) if a == b => write!(f, "{name}={a}")?,
            Which::Range(a, b) => write!(f, "{name}={a}-{b}")?,
            Which::Every(n) => write!(f, "{name}=every:{n}")?,
            Which::All => write!(f, "{name}=all")?,
        }
        f.write_str(if self.per_flow { "/flow" } else { "" })
    }
}

/// Rules and their counters.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<DropRule>,
    /// Counts over all flows.
    counted: Vec<u64>,
    flows: HashMap<FrameFlow, CountedFlow>,
    /// Flows, the oldest first.
    order: VecDeque<FrameFlow>,
}

#[derive(Debug)]
struct CountedFlow {
    /// The sequence number of its SYN: another number means another connection with the same ports.
    began: Option<u32>,
    of_rule: Vec<u64>,
}

impl Rules {
    pub(crate) fn new(rules: Vec<DropRule>) -> Rules {
        Rules { counted: vec![0; rules.len()], rules, ..Rules::default() }
    }

    /// Whether a rule drops this packet. Each rule counts, whatever the others decide.
    pub(crate) fn drop(&mut self, p: &FrameFacts) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let needs_flow = self.rules.iter().any(|r| r.per_flow);
        let flow = p.flow.filter(|_| needs_flow);
        if let Some(flow) = flow {
            self.admit(flow, p);
        }
        let mut drop = false;
        for (i, rule) in self.rules.iter().enumerate().filter(|(_, r)| r.is_about(p)) {
            let mine = flow.and_then(|f| self.flows.get_mut(&f)).and_then(|c| c.of_rule.get_mut(i));
            let count = match (rule.per_flow, mine) {
                (true, Some(count)) => count,
                (true, None) => continue,
                (false, _) => &mut self.counted[i],
            };
            *count += 1;
            drop |= rule.which.includes(*count);
        }
        drop
    }

    fn admit(&mut self, flow: FrameFlow, p: &FrameFacts) {
        let began = match p.kind {
            FrameKind::Tcp(t) if t.syn => Some(t.sequence),
            _ => None,
        };
        let fresh = || CountedFlow { began, of_rule: vec![0; self.rules.len()] };
        match self.flows.get_mut(&flow) {
            Some(known) if began.is_none() || known.began == began => {}
            Some(known) => *known = fresh(),
            None => {
                self.flows.insert(flow, fresh());
                self.order.push_back(flow);
            }
        }
        if self.flows.len() > FLOWS
            && let Some(oldest) = self.order.pop_front()
        {
            self.flows.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{parse, testing};

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    fn rules(text: &str) -> Rules {
        Rules::new(text.split(' ').map(|r| r.parse().expect("a rule")).collect())
    }

    /// One letter for each frame: x dropped, . passed.
    fn fates(rules: &mut Rules, frames: &[Vec<u8>]) -> String {
        frames.iter().map(|f| if rules.drop(&parse(f)) { 'x' } else { '.' }).collect()
    }

    fn connection(port: u16, isn: u32, data: usize) -> Vec<Vec<u8>> {
        let ends = |flags, seq, n| testing::tcp(([10, 99, 1, 1], port), ([10, 99, 2, 1], 80), flags, seq, n);
        let mut all = vec![ends(SYN, isn, 0), ends(ACK, isn + 1, 0)];
        all.extend((0..data).map(|i| ends(ACK, isn + 1 + i as u32, 1)));
        all
    }

    #[test]
    fn the_first_syn_or_the_third_data_segment() {
        let two = [connection(1, 100, 4), connection(2, 200, 4)].concat();
        assert_eq!(fates(&mut rules("syn"), &two), "x...........");
        assert_eq!(fates(&mut rules("syn=2"), &two), "......x.....");
        assert_eq!(fates(&mut rules("data=3"), &two), "....x.......");
        assert_eq!(fates(&mut rules("data=3/flow"), &two), "....x.....x.");
        assert_eq!(fates(&mut rules("data=2-3/flow"), &two), "...xx....xx.");
        assert_eq!(fates(&mut rules("data=every:3"), &two), "....x....x..");
        assert_eq!(fates(&mut rules("ack=all"), &two), ".x.....x....");
        assert_eq!(fates(&mut rules("syn=all data=4"), &two), "x....xx.....");
        assert_eq!(fates(&mut rules("udp=all ipv6=all too-big=all"), &two), "............");
        assert_eq!(fates(&mut rules("ipv4=all"), &two), "xxxxxxxxxxxx");
    }

    #[test]
    fn a_syn_sent_again_is_the_same_connection_and_a_new_one_is_not() {
        let mut r = rules("syn=1/flow");
        let frames = [connection(1, 100, 0), connection(1, 100, 0), connection(1, 999, 0)].concat();
        assert_eq!(fates(&mut r, &frames), "x...x.");
    }

    #[test]
    fn the_table_of_flows_ends() {
        let mut r = rules("syn=1/flow");
        for i in 0..=FLOWS {
            let from = [10, 99, 1 + (i >> 15) as u8, 1];
            let frame = testing::tcp((from, (i & 0x7fff) as u16), ([10, 99, 2, 1], 80), SYN, 1, 0);
            assert!(r.drop(&parse(&frame)));
        }
        assert_eq!((r.flows.len(), r.order.len()), (FLOWS, FLOWS));
    }

    #[test]
    fn words() {
        for good in ["syn=1", "data=3/flow", "data=2-9", "any=every:10", "ipv6=all"] {
            assert_eq!(good.parse::<DropRule>().expect("it is good").to_string(), good);
        }
        for bad in
            ["", "syn=", "syn=0", "syn=x", "data=9-2", "nothing", "every:3", "syn=every:0", "syn/flows"]
        {
            let e = bad.parse::<DropRule>().expect_err(bad).to_string();
            assert!(e.contains("data=3/flow"), "{e}");
        }
    }
}
