//! SYNs or SYN-ACKs get lost: a connection takes a second or more.
//!
//! Evidence: the kernel counts the SYN's retransmissions and the time they took
//! (`tcpi_total_retrans`, `tcpi_total_rto_time`).

use super::accept_queue;
use crate::call::Call;
use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded, nothing_beside};
use crate::signs::new_connections::{lost_only_at_once, syns};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "syn-loss",
    title: "SYNs are lost on the way or dropped by the server's machine: connecting takes a second or more",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::New,
    pause: Some("lost: until it is sent again"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Spared(Call::syn_again),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[],
        // A full queue drops SYNs as a path does. That it may be full hides nothing.
        asks: &[&accept_queue::CAUSE],
        wants: nothing_beside,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The first packet of a connection (SYN), or the answer to it, gets lost. The caller cannot know that, and waits a whole second before \
         it asks again: no earlier measurement tells it how long an answer takes. Every later packet is repaired much faster.",
    lanes: ENDS,
    picture: &[
        PictureStep::LostTo("SYN"),
        PictureStep::Wait(1000.0, "until the SYN is sent again"),
        PictureStep::To("SYN again"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Linux, macOS",
        "look for drops: nstat -az, netstat -s; a host firewall that limits new connections",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the connection's first packet had to be sent again",
    fixes: &[
        fix(
            "the server",
            "a longer accept queue (listen's backlog and net.core.somaxconn), or accept faster",
        ),
        fix("the network", "look for drops; a firewall that drops SYNs looks the same"),
    ],
    verify: "nstat TcpExtListenOverflows TcpExtListenDrops on the server",
    pause: Some("lost: until it is sent again"),
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "firewalls, load balancers",
        change: "limits on new connections (nft limit rate, conntrack table full, SYN proxies)",
    },
    RuleFix {
        software: "the server's machine",
        change: "nstat -az TcpExtListenOverflows TcpExtListenDrops TcpExtTCPReqQFullDrop: a full accept queue drops SYNs, too",
    },
    RuleFix { software: "any client", change: "keep connections, so that the handshake is paid once" },
];

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let (again, all) = syns(record);
    if again.is_empty() {
        return if all >= 3 {
            excluded(format!("all of {all} SYNs were answered"))
        } else {
            Judgement::Silent
        };
    }
    if matches!(judged.of(&accept_queue::CAUSE), Judgement::Named(v) if v.proof() > Proof::Possible) {
        return Judgement::Silent;
    }
    // A path loses SYNs of connections that are opened alone, too. What the rest means, `accept-queue` says.
    if lost_only_at_once(record).is_some() {
        return Judgement::Silent;
    }
    let times: Vec<f64> = again.iter().map(|c| ms(c.connect)).collect();
    let rtt = record.rtt_ms();
    let cost = median(&times) - rtt;
    // The time that the kernel spent in timeouts, as part of the time that these connections took
    // beyond the others.
    let counted: f64 = again.iter().map(|c| f64::from(c.connect_facts.total_rto_time_ms)).sum();
    let excess: f64 = times.iter().map(|t| t - rtt).sum();
    let lossy = record.calls().filter(|(_, c)| c.facts.total_retrans > 0 && !c.syn_again()).count();
    let words = format!(
        "{} of {all} new connections had to send their SYN again: they took {}, the others {}",
        again.len(),
        say(median(&times)),
        say(median_of(&record.fresh().into_iter().filter(|c| !c.syn_again()).collect::<Vec<_>>(), |c| c
            .connect))
    );
    let share = if counted > 0.0 { counted / excess.max(1e-6) } else { 0.85 };
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Counted { words, share })
        .saying("counted by our kernel (tcpi_total_retrans while connecting)".to_owned());
    // Where most calls lose segments, connections that are kept do not help: the path does.
    let stand = record.reused();
    let path_loses = !stand.is_empty() && 2 * stand.iter().filter(|c| c.lossy()).count() >= stand.len();
    let verdict = if path_loses { verdict.behind() } else { verdict };
    Judgement::Named(Box::new(if lossy == 0 {
        verdict.saying(
            "calls on connections that stand lose nothing: it concerns SYNs (a limit on new connections, or a full accept queue: \
             look at ListenOverflows on the server)",
        )
    } else {
        verdict.saying(format!(
            "{lossy} calls on connections that stand lost segments, too: the path loses packets of all kinds"
        ))
    }))
}
