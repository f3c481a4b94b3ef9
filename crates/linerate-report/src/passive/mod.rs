//! The observations of `linerate explain` in packets: as text, as a document ([`json`]), as a
//! page ([`page`]), and while they are made ([`live`]).

pub mod json;
pub mod live;
pub mod page;

use linerate_explain::passive::findings::{Confidence, Finding};
use linerate_explain::passive::packet::flag;
use linerate_explain::passive::words::{self, PassiveVerdict};
use linerate_explain::passive::{
    Carried, ConnectionSummary, MarkCounts, Marks, Observation, ObservedCall, Traced,
};

use crate::diagram::{self, Arrow, Diagram, DiagramRow};
use crate::style::Style;
use crate::{limits, units};

/// An observation and its findings.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The origin of the packets, in words.
    pub source: &'a str,
    /// The observation that the findings are based on.
    pub seen: &'a Observation,
    /// The causes, most costly first.
    pub findings: &'a [Finding],
}

fn ms(ns: i64, unicode: bool) -> String {
    if ns == 0 { "0".to_owned() } else { units::time_ns(ns as f64, unicode) }
}

/// Rows of the diagram in a terminal; the page and the JSON have more. Reason: one screen.
const ROWS: usize = 30;

/// The whole report for a terminal.
pub fn to_text(watched: &Watched<'_>, style: Style) -> String {
    let style = Style { width: style.width.min(limits::WIDTH), ..style };
    let Watched { source, seen, findings } = *watched;
    let mut out = String::new();
    for (i, text) in words::headline(seen, findings).iter().enumerate() {
        let text = style.wrapped("", text);
        line(&mut out, &if i == 0 { coloured(words::verdict(seen, findings), &text, style) } else { text });
    }
    line(
        &mut out,
        &style
            .dim(&style.wrapped("", &format!("From {source}: {} packets.", units::count(seen.packets.all)))),
    );
    for finding in findings {
        finding_text(&mut out, finding, style);
    }
    slowest_text(&mut out, &seen.slowest, style);
    if let Some(call) = worst(watched) {
        out.push('\n');
        out.push_str(&diagram::to_text(&diagram_of(call).shortened(ROWS), style));
    }
    connections_text(&mut out, seen, style);
    let doubts = words::limits(seen);
    if !doubts.is_empty() {
        line(&mut out, &format!("\n{}", style.bold("What this cannot tell")));
        doubts.iter().for_each(|d| line(&mut out, &style.wrapped("  ", &format!("- {d}"))));
    }
    out
}

/// The call to look at: that of the first finding, else the slowest.
pub(crate) fn worst<'a>(watched: &Watched<'a>) -> Option<&'a ObservedCall> {
    let example = watched.findings.first().and_then(|f| f.example.as_ref());
    example.or(watched.seen.slowest.first()).filter(|c| !c.segments.is_empty())
}

fn coloured(verdict: PassiveVerdict, text: &str, style: Style) -> String {
    match verdict {
        PassiveVerdict::Healthy => style.good(text),
        PassiveVerdict::Caused => style.bad(text),
        PassiveVerdict::Inconclusive => style.warn(text),
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn finding_text(out: &mut String, f: &Finding, style: Style) {
    let sure = sure(f);
    line(
        out,
        &format!(
            "\n{}",
            style.bold(&format!(
                "{}: {} a call, {} of {} calls{} ({sure})",
                f.cause.id,
                ms(f.cost_ns, style.unicode),
                f.calls,
                f.of,
                f.server.map_or(String::new(), |server| format!(" to {server}"))
            ))
        ),
    );
    line(out, &style.wrapped("  ", f.title));
    f.evidence.iter().for_each(|e| line(out, &style.wrapped("  ", &format!("seen: {e}"))));
    f.fixes.iter().for_each(|fix| {
        line(out, &style.wrapped("  ", &format!("change: {}: {}", fix.software, fix.change)))
    });
    line(out, &style.wrapped("  ", &format!("verify: {}", f.verify)));
}

/// How sure a finding is, in the words of the contract.
pub(crate) fn sure(f: &Finding) -> &'static str {
    match f.confidence {
        Confidence::Likely => "seen: likely",
        Confidence::Possible => "seen: possible",
    }
}

fn slowest_text(out: &mut String, calls: &[ObservedCall], style: Style) {
    if calls.is_empty() {
        return;
    }
    let head = format!(
        "{:>9} {:>9} {:>8} {:>9} {:>9} {:>9}  call",
        "total", "connect", "send", "network", "server", "receive"
    );
    line(out, &format!("\n{}\n{}", style.bold("Slowest calls"), style.dim(&head)));
    for call in calls {
        let of = |ns| ms(ns, style.unicode);
        let whole = Style { width: u16::MAX, ..style };
        let name = whole.wrapped("", &format!("{} {} {}", call.method, call.target, call.status));
        line(
            out,
            &format!(
                "{:>9} {:>9} {:>8} {:>9} {:>9} {:>9}  {name}",
                of(call.total_ns),
                of(call.connect_ns),
                of(call.send_ns),
                of(call.network_ns),
                of(call.think_ns),
                of(call.receive_ns)
            ),
        );
        if call.queued_ns > 0 {
            let text = format!("behind earlier answers for {}", of(call.queued_ns));
            line(out, &style.wrapped("          ", &text));
        }
        for note in &call.notes {
            line(out, &style.warn(&style.wrapped("          ", &format!("seen: {}", note.text))));
        }
    }
}

/// Connections listed in a terminal; the rest are in the JSON and the page. Reason: one screen.
const CONNECTIONS: usize = 12;

fn connections_text(out: &mut String, seen: &Observation, style: Style) {
    let mut listed: Vec<&ConnectionSummary> = seen.connections.iter().collect();
    if listed.is_empty() {
        return;
    }
    listed.sort_by_key(|c| std::cmp::Reverse((trouble(c), c.requests)));
    line(out, &format!("\n{}", style.bold("Connections")));
    for c in listed.iter().take(CONNECTIONS) {
        let rtt = c.handshake.and_then(|h| h.to_server_ns.zip(h.to_client_ns)).map(|(a, b)| a + b);
        let rtt =
            rtt.map_or("opening not seen".to_owned(), |ns| format!("round trip {}", ms(ns, style.unicode)));
        let text = format!(
            "{} > {}: {}, {}, {}, {}, {rtt}{}",
            c.client,
            c.server,
            carried(c.carried),
            units::several(c.requests, "request", "requests"),
            units::several(c.answers, "answer", "answers"),
            units::several(c.segments[0] + c.segments[1], "segment", "segments"),
            marks_of(c)
        );
        line(out, &style.wrapped("  ", &text));
    }
    let more = seen.sums.connections.saturating_sub(listed.len().min(CONNECTIONS) as u64);
    if more > 0 {
        line(
            out,
            &style.dim(&format!("  and {}", units::several(more, "connection more", "connections more"))),
        );
    }
}

fn trouble(c: &ConnectionSummary) -> u64 {
    c.marks.iter().flat_map(MarkCounts::seen).map(|(_, n)| n).sum()
}

/// The protocol of the connection, in words.
pub(crate) fn carried(c: Carried) -> &'static str {
    match c {
        Carried::Nothing => "no data",
        Carried::Http => "HTTP/1",
        Carried::Tls => "TLS",
        Carried::Http2 => "HTTP/2",
        Carried::Other => "no HTTP",
    }
}

/// ", client: retransmission 2; server: zero window 1".
pub(crate) fn marks_of(c: &ConnectionSummary) -> String {
    let mut out = String::new();
    for (who, marks) in ["client", "server"].iter().zip(&c.marks) {
        let told: Vec<_> = Marks::ALL
            .into_iter()
            .filter_map(|(mark, _, words)| Some((marks.of(mark), words)).filter(|(n, _)| *n > 0))
            .map(|(n, words)| format!("{words} {n}"))
            .collect();
        if !told.is_empty() {
            out.push_str(&format!("; {who}: {}", told.join(", ")));
        }
    }
    out
}

/// A call's segments as a diagram, with the pauses that matter.
pub fn diagram_of(call: &ObservedCall) -> Diagram {
    let (client, server) = call.ends.map_or_else(Default::default, |(c, s)| (c.to_string(), s.to_string()));
    let start = call.segments.first().map_or(call.start_ns, |s| s.time_ns);
    let span = call.segments.last().map_or(0, |s| s.time_ns - start);
    // A pause is shown from a twelfth of the whole on, and from half a millisecond.
    let least = (span / 12).max(500_000);
    let mut rows = Vec::new();
    let mut before: Option<&Traced> = None;
    for (i, s) in call.segments.iter().enumerate() {
        if call.left_out > 0 && i == call.left_out_at {
            rows.push(DiagramRow::LeftOut(call.left_out));
        } else if let Some(b) = before.filter(|b| s.time_ns - b.time_ns >= least) {
            rows.push(pause(call, b, s));
        }
        rows.push(DiagramRow::Arrow(arrow(s, start)));
        before = Some(s);
    }
    Diagram {
        title: format!("{} {} {}: {}", call.method, call.target, call.status, ms(call.total_ns, true)),
        lanes: [format!("client {client}"), format!("server {server}")],
        rows,
    }
}

/// Flags and bytes of a segment, and what it acknowledges.
pub(crate) fn label(set: u8, bytes: u32, ack: u32) -> String {
    let flags =
        [(flag::SYN, "SYN"), (flag::FIN, "FIN"), (flag::RST, "RST"), (flag::PSH, "PSH"), (flag::ACK, "ACK")];
    let mut label: Vec<String> =
        flags.iter().filter(|(f, _)| set & f != 0).map(|(_, n)| (*n).to_owned()).collect();
    if bytes > 0 {
        label.push(units::several(bytes.into(), "byte", "bytes"));
    }
    if set & flag::ACK != 0 && set & flag::SYN == 0 {
        label.push(format!("ack {ack}"));
    }
    label.join(" ")
}

fn arrow(s: &Traced, start: i64) -> Arrow {
    Arrow {
        at_ms: (s.time_ns - start) as f64 / 1e6,
        to_server: s.from_client,
        label: label(s.flags, s.len, s.ack),
        notes: s.marks.words().map(str::to_owned).collect(),
        bad: !s.marks.is_empty(),
    }
}

fn pause(call: &ObservedCall, before: &Traced, after: &Traced) -> DiagramRow {
    let inside = |at: i64, cost: i64| at <= after.time_ns && at + cost >= after.time_ns - 1;
    let note = call.notes.iter().find(|n| inside(n.at_ns, n.cost_ns) && n.at_ns <= before.time_ns);
    let why = match note.and_then(|n| n.cause.packets?.pause) {
        Some(why) => why,
        _ if after.marks.has(Marks::RETRANSMISSION) => "until it is sent again",
        // The response's first byte: everything earlier belongs to the request.
        _ if !after.from_client && after.len > 0 && call.think_ns * 2 > after.time_ns - before.time_ns => {
            "the server works"
        }
        _ if after.from_client => "nothing from the client",
        _ => "nothing from the server",
    };
    let why = why.to_owned();
    DiagramRow::Pause { ms: (after.time_ns - before.time_ns) as f64 / 1e6, why, bad: note.is_some() }
}

#[cfg(test)]
mod tests;
