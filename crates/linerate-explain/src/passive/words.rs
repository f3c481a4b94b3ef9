//! The observation in plain words: the verdict, the five lines, and the figures to doubt.

use super::findings::{Confidence, Finding, is_wide, missing};
use super::flow::ms;
use super::limits::{CLIENTS, COSTS, SERVERS, SLOW_NS};
use super::{Ending, Observation};

/// The possible verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassiveVerdict {
    /// The capture has calls, and nothing in its packets costs them time beyond network and server.
    Healthy,
    /// Something was seen to cost time.
    Caused,
    /// Too little was seen to say.
    Inconclusive,
}

impl PassiveVerdict {
    /// As in machine-readable results.
    pub fn name(self) -> &'static str {
        match self {
            PassiveVerdict::Healthy => "healthy",
            PassiveVerdict::Caused => "caused",
            PassiveVerdict::Inconclusive => "inconclusive",
        }
    }
}

/// The verdict of an observation and its findings.
pub fn verdict(seen: &Observation, findings: &[Finding]) -> PassiveVerdict {
    let s = &seen.sums;
    if findings.iter().any(|f| f.confidence >= Confidence::Likely) {
        PassiveVerdict::Caused
    } else if s.answered == 0
        || !findings.is_empty()
        || s.unanswered > s.answered
        || unexplained(seen).is_some()
    {
        PassiveVerdict::Inconclusive
    } else {
        PassiveVerdict::Healthy
    }
}

/// Of so many calls one is enough to be told.
const FEW: u64 = 5;
/// Share of the time from which on it is told.
const MUCH: f64 = 0.4;

/// What costs time, and why it does the packets do not show.
fn unexplained(seen: &Observation) -> Option<String> {
    let s = &seen.sums;
    if s.paused > 0 && (FEW * s.paused >= s.answered || s.paused_ns as f64 >= MUCH * s.total_ns as f64) {
        return Some(format!(
            "{} of {} paused in the middle for {}, and the packets do not show why (a server that makes it as it goes looks the same)",
            s.paused,
            several(s.answered, "response", "responses"),
            ms(s.paused_ns / i64::try_from(s.paused).unwrap_or(i64::MAX))
        ));
    }
    let network = s.rtt_min_ns.or(s.rtt_bound_ns).unwrap_or(0);
    let [_, nine, ..] = s.total_quantiles_ns;
    (is_wide(seen) && nine >= SLOW_NS.saturating_add(2 * network)).then(|| {
        format!(
            "one in ten calls takes {} or more, and packets that may show why are missing in the capture",
            ms(nine)
        )
    })
}

fn capital(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

fn several(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// At most five lines, the verdict first.
pub fn headline(seen: &Observation, findings: &[Finding]) -> Vec<String> {
    let s = &seen.sums;
    let calls = several(s.answered, "call", "calls");
    let connections = several(s.http + s.http2, "connection", "connections");
    let mut lines = Vec::new();
    let [median, nine, _, most] = s.total_quantiles_ns;
    let worst = match s.answered {
        1 => format!("it took {}", ms(most)),
        _ => format!("median {}, 90 % within {}, the slowest {}", ms(median), ms(nine), ms(most)),
    };
    match (verdict(seen, findings), findings.first()) {
        (PassiveVerdict::Healthy, _) => {
            lines.push(format!("Nothing in the packets is wrong: {calls} on {connections}; {worst}."));
        }
        (_, Some(f))
            if f.example.is_none()
                && (f.cause.packets.is_some_and(|p| p.of_connections)
                    || f.of == s.connections && s.answered == 0) =>
        {
            lines.push(format!("{}: {}.", capital(f.title), f.evidence.first().map_or("", String::as_str)));
        }
        (_, Some(f)) => {
            let lost = if f.confidence == Confidence::Possible { "perhaps lost" } else { "lost" };
            lines.push(format!(
                "Seen in {} of {}, {} {lost} each: {}.",
                f.calls,
                match f.server {
                    Some(server) => format!("{} to {server}", several(f.of, "call", "calls")),
                    None => calls.clone(),
                },
                ms(f.cost_ns),
                f.title
            ));
            lines.push(format!("{calls} on {connections}: {worst}."));
        }
        _ => match unexplained(seen).filter(|_| s.answered > 0) {
            Some(words) => {
                lines.push(format!("No cause can be named: {words}."));
                lines.push(format!("{calls} on {connections}: {worst}."));
            }
            None => lines.push(no_calls(seen)),
        },
    }
    if s.answered > 0 && s.total_ns > 0 {
        lines.push(parts(seen));
    }
    if s.answered > 0 {
        lines.push(segments(seen));
    }
    if let Some(f) = findings.first() {
        let fix = f
            .fixes
            .first()
            .map_or(String::new(), |fix| format!("To change: {}: {}. ", fix.software, fix.change));
        lines.push(format!("{fix}Packets show it, they do not prove it: {}.", f.verify));
    }
    lines
}

fn no_calls(seen: &Observation) -> String {
    let (p, s) = (&seen.packets, &seen.sums);
    let why = if p.all == 0 {
        "there is no packet in it".to_owned()
    } else if let Some(link) = p.unknown_link.filter(|_| p.tcp == 0) {
        format!(
            "its link type ({link}) is not read; Ethernet, raw IP, Linux cooked (SLL, SLL2), loopback and NFLOG are"
        )
    } else if p.tcp == 0 {
        format!("there is no TCP in its {}", several(p.all, "packet", "packets"))
    } else if s.tls > 0 && s.http + s.http2 == 0 {
        format!(
            "{} carried TLS, of which nothing could be read, and no call was seen in the sizes of its records",
            several(s.tls, "connection", "connections")
        )
    } else if let Some((why, _)) = seen.unread.first().filter(|_| s.requests == 0) {
        format!("HTTP/2 was seen, which cannot be read: {why}")
    } else if s.requests > 0 && s.answers == 0 {
        let why = match s.one_direction < s.connections {
            // The server's segments are there.
            true => "while it was captured the server acknowledged them and did not answer",
            false => "only one direction was captured",
        };
        format!("{} but no answer: {why}", several(s.requests, "request was seen", "requests were seen"))
    } else if s.answers > 0 && s.requests == 0 {
        let why = match s.one_direction < s.connections {
            true => "the capture began behind the requests",
            false => "only one direction was captured",
        };
        format!("{} but no request: {why}", several(s.answers, "answer was seen", "answers were seen"))
    } else if s.requests > 0 {
        "no request's answer came to its end".to_owned()
    } else {
        format!("no HTTP was seen on its {}", several(s.connections, "TCP connection", "TCP connections"))
    };
    format!("Nothing can be said: {why}.")
}

/// The parts of all calls' time.
fn parts(seen: &Observation) -> String {
    let s = &seen.sums;
    let share = |ns: i64| 100.0 * ns as f64 / s.total_ns as f64;
    let parts = [
        ("the server before its first byte", s.think_ns),
        ("receiving", s.receive_ns),
        ("the network's round trip", s.wait_ns),
        ("connecting", s.connect_ns),
        ("sending", s.send_ns),
        ("behind earlier answers", s.queued_ns),
    ];
    let mut parts: Vec<_> = parts.into_iter().filter(|(_, ns)| share(*ns) >= 0.5).collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let parts: Vec<_> = parts.iter().map(|(what, ns)| format!("{what} {:.0} %", share(*ns))).collect();
    format!("Of the calls' time: {}.", parts.join(", "))
}

fn segments(seen: &Observation) -> String {
    let told: Vec<_> = super::Marks::ALL
        .into_iter()
        .filter_map(|(mark, _, words)| Some((seen.marks.of(mark), words)).filter(|(n, _)| *n > 0))
        .map(|(n, words)| format!("{words} {n}"))
        .collect();
    let all = several(seen.packets.tcp, "segment", "segments");
    match told.is_empty() {
        true => format!("Of {all} none was sent again, none came out of order, no window closed."),
        false => format!("Of {all}: {}.", told.join(", ")),
    }
}

/// The figures to doubt, and what would settle them.
pub fn limits(seen: &Observation) -> Vec<String> {
    let mut told = Vec::new();
    match &seen.ending {
        Some(Ending::Truncated { at }) => {
            told.push(format!(
                "the capture ends in the middle of a packet, at byte {at}: what came after is not in it"
            ));
        }
        Some(Ending::Damaged { at, what }) => {
            told.push(format!("the capture is damaged at byte {at} ({what}): what follows was not read"));
        }
        _ => {}
    }
    about_packets(seen, &mut told);
    about_connections(seen, &mut told);
    about_tables(seen, &mut told);
    told
}

fn about_packets(seen: &Observation, told: &mut Vec<String>) {
    let p = &seen.packets;
    let mut say = |n: u64, one: &str, many: &str, what: &str| {
        if n > 0 {
            told.push(format!("{}{what}", several(n, one, many)));
        }
    };
    say(
        p.dropped,
        "packet",
        "packets",
        " found no room and were dropped by the kernel: calls may look cut off",
    );
    say(
        p.cut,
        "packet",
        "packets",
        " captured only in part (a small snap length): what is missing of them was not lost on the way",
    );
    say(
        p.twice,
        "packet",
        "packets",
        " captured twice (the same IP identification within 1 ms) and counted once: no retransmissions",
    );
    say(
        p.fragments,
        "IP fragment of TCP was",
        "IP fragments of TCP were",
        " left out: they are not put together, so their connections have holes",
    );
    let missing = missing(seen);
    if is_wide(seen) {
        say(
            missing,
            "packet",
            "packets",
            " are missing in the capture (dropped, or acknowledged and not in it): with so many no cause is more than possible; a larger \
             buffer (tcpdump -B), a snap length (-s 128) or less load beside it captures more",
        );
    }
    say(
        seen.sums.heads_cut,
        "message",
        "messages",
        " whose head is cut off by the snap length: read by its beginning, and taken to end before the next one",
    );
    say(p.malformed, "packet", "packets", " with broken headers");
    say(
        p.backwards,
        "packet",
        "packets",
        " with an earlier time than the one before: parts of calls may be wrong by as much",
    );
    if let Some(link) = p.unknown_link.filter(|_| p.tcp > 0) {
        told.push(format!("packets of link type {link} were not read"));
    }
}

/// Tables that were full.
fn about_tables(seen: &Observation, told: &mut Vec<String>) {
    let l = seen.left_out;
    for (n, one, many, what) in [
        (
            l.servers,
            "call",
            "calls",
            format!(" to servers beyond the first {SERVERS}, which are judged together"),
        ),
        (
            l.clients,
            "call",
            "calls",
            format!(" of clients beyond the first {CLIENTS}, whose pools of connections are not looked at"),
        ),
        (
            l.costs,
            "cost",
            "costs",
            format!(" beyond the first {COSTS} of a cause, which its median leaves out"),
        ),
    ] {
        if n > 0 {
            told.push(format!("{}{what}", several(n, one, many)));
        }
    }
}

fn about_connections(seen: &Observation, told: &mut Vec<String>) {
    let s = &seen.sums;
    let mut say = |n: u64, one: &str, many: &str, what: &str| {
        if n > 0 {
            told.push(format!("{}{what}", several(n, one, many)));
        }
    };
    let (one, many) = ("connection", "connections");
    let t = s.tls_access;
    say(
        t.without_keys,
        one,
        many,
        " with TLS that were not decrypted: --keylog FILE reads them, with the keys that the client wrote",
    );
    say(t.not_in_log, one, many, " with TLS of which the key log has no secret");
    say(
        t.cbc,
        one,
        many,
        " with TLS in a cipher suite with CBC, which is not decrypted here (AES-GCM and ChaCha20-Poly1305 are)",
    );
    say(
        t.other_suite,
        one,
        many,
        " with TLS in a cipher suite that is not decrypted here (AES-GCM and ChaCha20-Poly1305 are)",
    );
    say(
        t.without_handshake,
        one,
        many,
        " with TLS whose handshake is not in the capture, or not whole, so that no key fits",
    );
    say(t.wrong_keys, one, many, " with TLS whose records the keys of the key log do not open");
    let timed = " timed by the sizes and times of sealed records, the client's and then the server's: what was asked, its status, whether \
                 several calls overlap (HTTP/2) and where a response ends are not known; TLS 1.3's session tickets may pass for the \
                 beginning of the first response";
    say(s.timed, "call", "calls", timed);
    for (why, connections) in &seen.unread {
        say(*connections, one, many, &format!(" with HTTP/2 of which the rest was not read: {why}"));
    }
    let fields = " over HTTP/2 whose method, path or status is not known (\"?\", 0): their fields refer to others that are not in the \
                  capture (HPACK)";
    say(s.unknown_fields, "call", "calls", fields);
    say(s.streams_reset, "stream", "streams", " of HTTP/2 reset before their answer was whole");
    say(
        s.one_direction,
        one,
        many,
        " of which only one direction is in the capture: nothing is said of the other",
    );
    let cut = "what was cut off by the snap length, or packets that the capture lacks";
    let lacks = "the capture lacks packets that arrived";
    let holes = format!(" in the streams: {}", if seen.packets.cut > 0 { cut } else { lacks });
    say(s.holes, "hole", "holes", &holes);
    say(s.cut_by_client, one, many, " that the client reset within a call: it did not wait for the end");
    say(s.unanswered, "request", "requests", " without a whole answer in the capture");
    say(s.orphans, "answer", "answers", " to requests that are not in the capture");
    say(s.evicted, "quiet connection", "quiet connections", " summed up early, to hold memory bounded");
    if s.http + s.http2 > 0 && s.rtt_min_ns.is_none() {
        told.push(
            "no connection's opening is in the capture: the network's round trip is not known, and is within the server's part"
                .to_owned(),
        );
    }
}
