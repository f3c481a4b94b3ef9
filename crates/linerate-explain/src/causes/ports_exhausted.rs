//! This machine has no local port left for that server.
//!
//! Evidence: connect fails with EADDRNOTAVAIL.

use crate::call::Why;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, nothing};
use crate::times::CallPart;
use crate::verdict::Verdict;

pub(crate) static CAUSE: Cause = Cause {
    id: "ports-exhausted",
    title: "this machine has no local port left for that server (most are in TIME_WAIT)",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Here,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "Each connection to the same server takes a port of its own at the caller, out of some 28,000, and keeps it for a minute after it was closed \
         (TIME_WAIT). A program that opens a connection for each call uses them up; then none can be opened at all.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("connection 1, closed"),
        PictureStep::To("connection 2, closed"),
        PictureStep::To("... connection 28,000, closed"),
        PictureStep::Wait(1000.0, "no port is left"),
    ],
    more: &[
        fix("macOS", "sysctl net.inet.ip.portrange.first=10000; net.inet.tcp.msl shorter"),
        fix("Windows", "netsh int ipv4 set dynamicport tcp start=10000 num=55000; TcpTimedWaitDelay"),
        fix(
            "JDK, Node, Go, Python, as callers",
            "one client object for the whole program, and read each response to its end, so that its connection is used again",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any client",
        change: "keep connections and share them: short ones leave a port in TIME_WAIT for a minute",
    },
    RuleFix {
        software: "Linux",
        change: "net.ipv4.tcp_tw_reuse=1; a wider net.ipv4.ip_local_port_range; more source addresses",
    },
    RuleFix {
        software: "nginx, HAProxy as proxies",
        change: "keepalive to the backends; several source addresses (proxy_bind, source)",
    },
];

fn judge(record: &Record) -> Judgement {
    let attempts =
        record.calls().filter(|(_, c)| c.fresh || c.failure().is_some()).count() + record.connects().len();
    let failed = record.calls().filter(|(_, c)| c.failure().is_some_and(|f| f.why == Why::NoPort)).count();
    let probes =
        record.connects().iter().filter(|c| c.error.as_deref().is_some_and(|e| e.contains(NO_PORT))).count();
    if failed + probes == 0 {
        return Judgement::Silent;
    }
    let words =
        format!("{} of {attempts} connections could not even be tried: EADDRNOTAVAIL", failed + probes);
    // A call that cannot be made costs all there is.
    Judgement::Named(Box::new(Verdict::new(&CAUSE, 1e3, Grounds::Counted { words, share: 1.0 })))
}

/// The driver's error for this case.
pub(crate) const NO_PORT: &str = "no local port left";
