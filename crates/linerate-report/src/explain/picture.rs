//! The call as a sequence diagram: of its packets where they were captured, else of what the call itself saw.

use std::time::Duration;

use linerate_explain::call::{Call, CallStage, Why};
use linerate_explain::causes::{CLIENT_NAGLE, Cause, SERVER_NAGLE};
use linerate_explain::handshake::Handshake;
use linerate_explain::{Diagnosis, passive};

use super::words::{capital, time};
use crate::diagram::{Arrow, Diagram, DiagramRow};

/// Rows of a diagram. Reason: one screen; the JSON has all.
const ROWS: usize = 30;
/// Receives drawn one by one; beyond it they are summed up.
const DRAWN: usize = 6;

/// The call that stands for all; or, where an experiment decided, a call without the change and one with it.
pub(super) fn of(d: &Diagnosis, unicode: bool) -> Vec<Diagram> {
    let cause = d.causes.first().map(|verdict| verdict.cause());
    let packets = d.shown.packets.as_deref();
    if let Some(arms) = d.shown.arms.as_deref() {
        let [without, with] = packets.map_or([None, None], |p| p.arms.each_ref().map(Option::as_ref));
        let took = |call: &Call| time(ms(call.total), unicode);
        let changed = format!("{}: {}", capital(&arms.name), took(&arms.with));
        return vec![
            titled(
                format!("As it is: {}{}", took(&arms.without), looked_up(d, unicode)),
                &arms.without,
                without,
                cause,
            ),
            titled(changed, &arms.with, with, None),
        ];
    }
    let seen = packets.and_then(|p| p.call.as_ref());
    let kind = if d.call.fresh { "a new connection" } else { "a kept connection" };
    let title = format!("The call, on {kind}: {}{}", time(ms(d.call.total), unicode), looked_up(d, unicode));
    vec![titled(title, &d.call, seen, cause)]
}

/// The lookup of its name, which comes before what is drawn.
fn looked_up(d: &Diagnosis, unicode: bool) -> String {
    if d.dns_ms > 0.0 { format!(", after a lookup of {}", time(d.dns_ms, unicode)) } else { String::new() }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn titled(
    title: String,
    call: &Call,
    seen: Option<&passive::ObservedCall>,
    cause: Option<&Cause>,
) -> Diagram {
    match seen {
        // Packets do not show what a handshake's flights are; the call knows.
        Some(seen) if call.tls.is_none() => Diagram { title, ..of_packets(seen, cause) },
        _ => Diagram { title, lanes: lanes(), rows: rows(call, cause) },
    }
    .shortened(ROWS)
}

/// The packets of a call of our own: it is known what they carry, and whose they are.
fn of_packets(seen: &passive::ObservedCall, cause: Option<&Cause>) -> Diagram {
    let mut diagram = crate::passive::diagram_of(seen);
    let pauses = diagram
        .rows
        .iter()
        .filter_map(|r| if let DiagramRow::Pause { ms, .. } = r { Some(*ms) } else { None });
    let longest = pauses.fold(0.0, f64::max);
    for row in &mut diagram.rows {
        // Packets show that nothing came; why, the named cause tells.
        if let DiagramRow::Pause { ms, why, bad } = row
            && *ms >= longest
            && why == WORKS
            && let Some(reason) = cause.and_then(|c| c.pause)
        {
            reason.clone_into(why);
            *bad = true;
        }
        match row {
            DiagramRow::Arrow(arrow) => arrow.label = plain(&arrow.label, arrow.to_server),
            DiagramRow::Pause { why, .. } => {
                if why == "nothing from the client" {
                    "nothing from us".clone_into(why);
                }
                // One end is we ourselves.
                let is = |cause: &&&Cause| cause.packets.and_then(|p| p.pause) == Some(why.as_str());
                if let Some(ours) = [&CLIENT_NAGLE, &SERVER_NAGLE].iter().find(is).and_then(|c| c.pause) {
                    ours.clone_into(why);
                }
            }
            DiagramRow::LeftOut(_) => {}
        }
    }
    let port = |end: std::net::SocketAddr| format!(":{}", end.port());
    let [client, server] = seen.ends.map_or_else(Default::default, |(c, s)| [port(c), port(s)]);
    diagram.lanes = [format!("client {client}"), format!("server {server}")];
    diagram
}

/// `PSH ACK 82 bytes ack 81` is `request, 82 bytes`; what carries no data keeps its flags.
fn plain(label: &str, to_server: bool) -> String {
    let label = label.split(" ack ").next().unwrap_or_default();
    let Some((flags, bytes)) = label.find(|c: char| c.is_ascii_digit()).map(|at| label.split_at(at)) else {
        return label.to_owned();
    };
    let what = if to_server { "request" } else { "answer" };
    let end = if flags.contains("FIN") { ", FIN" } else { "" };
    format!("{what}, {bytes}{end}")
}

fn lanes() -> [String; 2] {
    ["client".to_owned(), "server".to_owned()]
}

/// What crossed, with pauses between.
fn rows(call: &Call, cause: Option<&Cause>) -> Vec<DiagramRow> {
    let arrows = arrows(call);
    // A pause is shown from a twelfth of the whole on, and from half a millisecond.
    let least = (ms(call.total) / 12.0).max(0.5);
    let longest = arrows.windows(2).map(|w| w[1].at_ms - w[0].at_ms).fold(0.0, f64::max);
    let mut rows = Vec::new();
    let mut before: Option<&Arrow> = None;
    for arrow in &arrows {
        if let Some((b, gap)) = before.map(|b| (b, arrow.at_ms - b.at_ms)).filter(|(_, gap)| *gap >= least) {
            let blamed = cause.filter(|c| gap >= longest && gap * 2.0 > ms(call.total) && c.is_met_by(call));
            let why = blamed.and_then(|c| c.pause).unwrap_or_else(|| between(b, arrow));
            rows.push(DiagramRow::Pause { ms: gap, why: why.to_owned(), bad: blamed.is_some() });
        }
        rows.push(DiagramRow::Arrow(arrow.clone()));
        before = Some(arrow);
    }
    if let Some(failure) = call.failure() {
        let why = if failure.why == Why::TimedOut { "nothing more: we gave up" } else { "then it failed" };
        let rest = ms(call.total) - before.map_or(0.0, |b| b.at_ms);
        rows.push(DiagramRow::Pause { ms: rest.max(0.0), why: why.to_owned(), bad: true });
    }
    rows
}

/// What packets alone show of a server that sends nothing.
const WORKS: &str = "the server works";
/// What stands for receives that are not drawn one by one.
const MORE: &str = " more receives, ";

fn between(before: &Arrow, after: &Arrow) -> &'static str {
    match (before.to_server, after.to_server) {
        (true, true) => "nothing from us",
        (false, true) => "nothing from us",
        (true, false) => "until the server answers",
        // Many receives are drawn as one.
        (false, false) if after.label.contains(MORE) || before.label.contains(MORE) => "the answer goes on",
        (false, false) => "nothing from the server",
    }
}

/// The flights of a TLS handshake.
fn handshake(tls: &Handshake, push: &mut impl FnMut(Duration, bool, String, bool)) {
    let retried = tls.is_retried();
    for (i, trip) in tls.trips.iter().enumerate() {
        let ours = match (i, retried) {
            (0, _) if tls.is_resumed() => "ClientHello, ticket",
            (0, _) => "ClientHello",
            (_, true) => "ClientHello again",
            (_, false) => "keys, Finished",
        };
        push(trip.sent, true, ours.to_owned(), false);
        if trip.bytes == 0 {
            continue;
        }
        let theirs = match (i, retried) {
            (0, true) => "HelloRetryRequest",
            (1, false) => "Finished",
            _ => "ServerHello",
        };
        let certificates = tls.seen.as_ref().map_or(0, |seen| seen.certificates);
        let with = if theirs == "ServerHello" && certificates > 0 { ", certificates" } else { "" };
        let bytes = crate::units::several(trip.bytes, "byte", "bytes");
        push(trip.ended, false, format!("{theirs}{with}, {bytes}"), false);
    }
}

fn arrows(call: &Call) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let mut push = |at: Duration, to_server, label: String, bad| {
        arrows.push(Arrow { at_ms: ms(at), to_server, label, bad, ..Arrow::default() });
    };
    let connected = !call.failure().is_some_and(|f| f.stage == CallStage::Connect);
    if call.fresh {
        push(Duration::ZERO, true, "SYN".to_owned(), false);
        if call.syn_again() {
            let again = call.connect_facts.total_retrans;
            push(call.connect / 2, true, format!("SYN again, {again} times"), true);
        }
        if connected {
            push(call.connect, false, "SYN, ACK".to_owned(), false);
        }
    }
    if !connected {
        return arrows;
    }
    let opened = call.opening();
    if let Some(tls) = call.tls.as_deref() {
        handshake(tls, &mut push);
        if call.failure().is_some_and(|f| f.stage == CallStage::Tls) {
            return arrows;
        }
    }
    match call.held_for_continue {
        Some(held) => {
            push(opened, true, "request head, Expect".to_owned(), false);
            if let Some(at) = call.continued {
                push(at, false, "100 Continue".to_owned(), false);
            }
            push(opened + held, true, "request body".to_owned(), false);
        }
        None => push(opened, true, "request".to_owned(), false),
    }
    let receives = &call.receives;
    let label = |bytes: u64, i: usize| {
        let part = match (i == 0, i + 1 == receives.len()) {
            (true, true) => "answer",
            (true, false) => "answer begins",
            (false, true) => "answer ends",
            (false, false) => "answer goes on",
        };
        format!("{part}, {}", crate::units::several(bytes, "byte", "bytes"))
    };
    let mut receive = |i: usize| push(receives[i].at, false, label(receives[i].bytes.into(), i), false);
    if receives.len() <= DRAWN {
        (0..receives.len()).for_each(receive);
        return arrows;
    }
    let last = receives.len() - 1;
    receive(0);
    let bytes: u64 = receives[1..last].iter().map(|r| u64::from(r.bytes)).sum();
    let words = format!("{}{MORE}{}", last - 1, crate::units::several(bytes, "byte", "bytes"));
    push(receives[last / 2].at, false, words, false);
    let end = label(receives[last].bytes.into(), last);
    push(receives[last].at, false, end, false);
    arrows
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_explain::call::{ProbeResponse, ReceivedBytes};

    use super::*;
    use linerate_explain::causes;

    #[test]
    fn a_pause_is_a_loss_only_in_a_call_that_met_one() {
        let at = Duration::from_millis(100);
        let mut call = Call {
            fresh: true,
            wait: at,
            total: at,
            receives: vec![ReceivedBytes { at, bytes: 80 }],
            end: Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() })),
            ..Call::default()
        };
        let why = |call: &Call, cause: &str| {
            rows(call, causes::find(cause)).into_iter().find_map(|row| match row {
                DiagramRow::Pause { why, .. } => Some(why),
                _ => None,
            })
        };
        assert_eq!(why(&call, "packet-loss").as_deref(), Some("until the server answers"));
        assert_eq!(why(&call, "server-think").as_deref(), Some(WORKS));
        call.facts.total_retrans = 1;
        assert_eq!(why(&call, "packet-loss").as_deref(), Some("lost: until it is sent again"));
    }
}
