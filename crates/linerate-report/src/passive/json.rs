//! As a document of [`crate::schema::passive`].

use std::collections::BTreeMap;

use linerate_explain::passive::findings::{Confidence, Finding};
use linerate_explain::passive::{
    ConnectionSummary, MarkCounts, Marks, Observation, ObservedCall, Traced, words,
};

use super::{Watched, carried, worst};
use crate::schema::passive as schema;

/// The document as indented JSON, with a line end.
pub fn to_string(watched: &Watched<'_>) -> String {
    // Serialisation fails only for maps whose keys are not strings, and the document has none.
    let mut text = serde_json::to_string_pretty(&document(watched)).unwrap_or_default();
    text.push('\n');
    text
}

/// The document as one line of JSON, with a line end: the last line of those that are written while
/// packets are watched.
pub fn to_line(watched: &Watched<'_>) -> String {
    // As above.
    let mut text = serde_json::to_string(&document(watched)).unwrap_or_default();
    text.push('\n');
    text
}

/// The document as data, before it is serialised.
pub fn document(watched: &Watched<'_>) -> schema::Document {
    let Watched { source, seen, findings } = *watched;
    let worst = worst(watched);
    schema::Document {
        schema: "linerate.diagnosis/1".to_owned(),
        mode: "passive".to_owned(),
        source: source.to_owned(),
        verdict: words::verdict(seen, findings).name().to_owned(),
        summary: words::headline(seen, findings),
        call: worst.map(call),
        segments: worst.map_or_else(Vec::new, segments),
        causes: findings.iter().map(cause).collect(),
        ruled_out: Vec::new(),
        limits: words::limits(seen),
        counts: counts(seen),
        tcp: tcp(&seen.marks),
        slowest: seen.slowest.iter().map(call).collect(),
        connections: seen.connections.iter().map(connection).collect(),
    }
}

/// Milliseconds to the microsecond.
pub(super) fn ms(ns: i64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

fn tcp(marks: &MarkCounts) -> BTreeMap<String, u64> {
    Marks::ALL.into_iter().map(|(mark, name, _)| (name.to_owned(), marks.of(mark))).collect()
}

fn counts(seen: &Observation) -> BTreeMap<String, u64> {
    let (p, s) = (&seen.packets, &seen.sums);
    [
        ("packets", p.all),
        ("packets_tcp", p.tcp),
        ("packets_dropped", p.dropped),
        ("fragments", p.fragments),
        ("bytes", p.bytes),
        ("connections", s.connections),
        ("connections_http", s.http),
        ("connections_http2", s.http2),
        ("connections_tls", s.tls),
        ("connections_tls_read", s.tls_access.read),
        ("calls_timed", s.timed),
        ("connections_reset", s.reset),
        ("requests", s.requests),
        ("answers", s.answers),
        ("interim", s.interim),
        ("answered", s.answered),
        ("unanswered", s.unanswered),
        ("pipelined", s.pipelined),
        ("upgrades", s.upgrades),
        ("holes", s.holes),
        ("heads_cut", s.heads_cut),
        ("segments_lost", seen.late.lost),
        ("segments_overtaken", seen.late.overtaken),
        ("segments_needless", seen.late.needless),
    ]
    .into_iter()
    .map(|(name, n)| (name.to_owned(), n))
    .collect()
}

fn call(c: &ObservedCall) -> schema::Call {
    schema::Call {
        connection: c.connection,
        method: c.method.clone(),
        target: c.target.clone(),
        status: c.status,
        dns_ms: None,
        connect_ms: ms(c.connect_ns),
        tls_ms: None,
        send_ms: ms(c.send_ns),
        wait_ms: ms(c.network_ns + c.queued_ns + c.think_ns),
        network_ms: ms(c.network_ns),
        queued_ms: ms(c.queued_ns),
        server_ms: ms(c.think_ns),
        receive_ms: ms(c.receive_ns),
        total_ms: ms(c.total_ns),
        rtt_ms: c.rtt_known.then(|| ms(c.network_ns)),
        seen: c
            .notes
            .iter()
            .map(|n| schema::Seen {
                id: n.cause.id.to_owned(),
                at_ms: ms(n.at_ns - c.start_ns),
                cost_ms: ms(n.cost_ns),
                text: n.text.clone(),
            })
            .collect(),
    }
}

/// A call's segments.
pub(crate) fn segments(call: &ObservedCall) -> Vec<schema::Segment> {
    call.segments.iter().map(|s| segment(s, call.start_ns)).collect()
}

fn segment(s: &Traced, start_ns: i64) -> schema::Segment {
    schema::Segment {
        at_ms: ms(s.time_ns - start_ns),
        from: if s.from_client { "client" } else { "server" }.to_owned(),
        flags: s.flags,
        seq: s.seq,
        ack: s.ack,
        bytes: s.len,
        window: s.window,
        marks: Marks::ALL
            .into_iter()
            .filter(|(m, ..)| s.marks.has(*m))
            .map(|(_, name, _)| name.to_owned())
            .collect(),
    }
}

fn cause(f: &Finding) -> schema::Cause {
    schema::Cause {
        seen: seen_cause(f),
        experiments: Vec::new(),
        evidence: f.evidence.clone(),
        fixes: f
            .fixes
            .iter()
            .map(|x| schema::Fix { software: x.software.to_owned(), change: x.change.to_owned() })
            .collect(),
        verify: f.verify.to_owned(),
    }
}

pub(super) fn sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    }
}

/// A cause without what supports it.
pub(super) fn seen_cause(f: &Finding) -> schema::SeenCause {
    schema::SeenCause {
        id: f.cause.id.to_owned(),
        title: f.title.to_owned(),
        cost_ms: ms(f.cost_ns),
        confidence: sure(f.confidence).to_owned(),
        proof: "seen".to_owned(),
        calls: f.calls,
        of: f.of,
        server: f.server.map(|server| server.to_string()),
    }
}

fn connection(c: &ConnectionSummary) -> schema::Connection {
    let h = c.handshake;
    schema::Connection {
        id: c.id,
        client: c.client.to_string(),
        server: c.server.to_string(),
        carried: carried(c.carried).to_owned(),
        requests: c.requests,
        answers: c.answers,
        segments: c.segments,
        bytes: c.bytes,
        syns: h.map(|h| h.syns),
        rtt_ms: h.and_then(|h| h.to_server_ns.zip(h.to_client_ns)).map(|(a, b)| ms(a + b)),
        reset: c.reset,
        client_tcp: tcp(&c.marks[0]),
        server_tcp: tcp(&c.marks[1]),
    }
}
