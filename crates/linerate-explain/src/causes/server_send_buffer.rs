//! The server's send buffer is too small for the path: on a connection that is warm a response
//! still takes many round trips.
//!
//! Evidence: on a warm connection the response comes in bursts of the same size, a round trip
//! apart, and these do not grow from call to call as a congestion window does. Our own receive
//! window is larger.

use crate::call::ms;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::signs::{bursts, streams};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "server-send-buffer",
    title: "the server's send buffer is too small for this path: on a warm connection, too, the response takes many round trips",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("its send buffer is full"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "What the server sends stays in its send buffer until the client has acknowledged it. A program that sets that buffer itself (SO_SNDBUF) keeps it \
         at that size, however far the client is: each round trip brings one buffer full. On the same machine nobody notices; at 40 ms a buffer \
         of 16 kB carries 400 kB a second.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("one buffer full"),
        PictureStep::Wait(40.0, "the buffer is full until the ACK"),
        PictureStep::From("the next buffer full"),
        PictureStep::Wait(40.0, "and so on"),
        PictureStep::From("the last one"),
    ],
    more: &[
        fix("macOS", "no SO_SNDBUF in the program; sysctl net.inet.tcp.autosndbufmax"),
        fix("Windows", "no SO_SNDBUF: the system sizes it by itself (ISB)"),
        fix("JDK", "no setSendBufferSize; a server socket hands its setting to all it accepts"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "remove setsockopt(SO_SNDBUF): it switches the kernel's own sizing off; else at least the path's rate times its round trip",
    },
    RuleFix { software: "nginx", change: "listen without sndbuf=" },
    RuleFix { software: "Netty, Vert.x", change: "no ChannelOption.SO_SNDBUF" },
    RuleFix { software: "Apache httpd", change: "SendBufferSize 0, which is the system's" },
    RuleFix { software: "HAProxy", change: "no tune.sndbuf.client" },
    RuleFix { software: "Linux servers", change: "net.ipv4.tcp_wmem's maximum: 4 MiB and more" },
];

/// Round trips on a warm connection from which on that is not healthy.
const ROUND_TRIPS: usize = 4;
/// Warm calls that tell.
const CALLS: usize = 4;
/// How much a burst may grow from the first warm calls to the last.
const GROWS: f64 = 1.5;

fn judge(record: &Record) -> Judgement {
    let (warm, rtt) = (bursts::warm(record), record.rtt_ms());
    if warm.len() < CALLS {
        return Judgement::Silent;
    }
    let late = &warm[warm.len() / 2..];
    if bursts::round_trips(record) < ROUND_TRIPS as f64 {
        return Judgement::Silent;
    }
    let alike = late.iter().filter(|b| b.bytes.len() >= ROUND_TRIPS && b.are_alike(rtt)).count();
    let window = median(&late.iter().map(bursts::Bursts::window).collect::<Vec<_>>());
    let at_first = median(&warm[..2].iter().map(bursts::Bursts::window).collect::<Vec<_>>());
    if 3 * alike < 2 * late.len() || window > GROWS * at_first {
        return excluded(format!(
            "on a warm connection the response comes in {} bursts, which grow or differ",
            bursts::round_trips(record)
        ));
    }
    if streams::limited_by_window(record) {
        return excluded("larger HTTP/2 windows of ours take the bursts away");
    }
    if streams::may_be_limited(record) && streams::window_trial(record).is_none() {
        return Judgement::Open(format!(
            "the response comes in bursts of {window:.0} bytes, and our HTTP/2 window of {} is smaller than it: which one limits is not told",
            record.settings.window
        ));
    }
    // Ours may be what limits: then it is no larger than what comes in one round trip.
    let ours = record.reused().iter().map(|c| f64::from(c.facts.rcv_wnd)).fold(0.0, f64::max);
    if ours > 0.0 && ours < 2.0 * window {
        return Judgement::Open(format!(
            "the response comes in bursts of {window:.0} bytes, and our own receive window of {ours:.0} is hardly larger: which one \
             limits is not told"
        ));
    }
    let group = record.group();
    let trips = bursts::round_trips(record);
    let words = format!(
        "on a connection that has carried {} calls a response of {} bytes still takes {trips:.0} round trips of {}: bursts of {window:.0} \
         bytes each, which do not grow from call to call as a congestion window does",
        warm.len(),
        group.first().and_then(|c| c.answer()).map_or(0, |a| a.body_bytes),
        say(rtt)
    );
    let cost = median_of(&group, |c| c.receive);
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Seen { words, alone: true });
    let slowest = group.iter().map(|c| ms(c.total)).fold(0.0, f64::max);
    Judgement::Named(Box::new(verdict.saying(format!(
        "the slowest of these calls took {}; a program that writes a piece and waits for the caller's word each time looks the same",
        say(slowest)
    ))))
}
