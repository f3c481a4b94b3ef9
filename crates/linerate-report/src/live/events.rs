//! TCP events in one row.

use linerate_load::Snapshot;
use linerate_load::outcome::{SegmentEvent, Segments, TcpEvents};
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::Span;

use super::fitted;
use crate::units;

/// One kind of event: how often so far, how often in the last whole second, and its words.
struct LiveEvent {
    so_far: u64,
    lately: u64,
    words: String,
}

/// The row: the gravest events first, each followed by its count of the last second.
pub(super) fn row(snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    let seen = seen(snapshot);
    let good = |text: String| vec![Span::styled(text, Look::new().fg(Color::Green))];
    match (&snapshot.segments, seen.is_empty()) {
        (Some(s), true) => {
            let all = units::count(s.sent.segments + s.received.segments);
            good(format!("nothing remarkable in {all} segments"))
        }
        (None, true) if snapshot.looked_at == 0 => {
            vec![Span::styled("not looked at", Look::new().add_modifier(Modifier::DIM))]
        }
        (None, true) => {
            let looked = units::several(snapshot.looked_at, "connection", "connections");
            good(format!("nothing lost or held back ({looked} looked at)"))
        }
        _ => {
            let part = |seen: LiveEvent| {
                let lately = if seen.lately > 0 {
                    format!(" (+{})", units::count(seen.lately))
                } else {
                    String::new()
                };
                (
                    format!("{} {}{lately}", units::count(seen.so_far), seen.words),
                    Look::new().fg(Color::Yellow),
                )
            };
            fitted(seen.into_iter().map(part).collect(), ", ", room)
        }
    }
}

/// The same for a line of a log; empty if there were no events.
pub(super) fn words(snapshot: &Snapshot) -> String {
    // The line already counts what user-space TCP retransmitted.
    let retransmits = if snapshot.stack.is_some() { 0 } else { snapshot.tcp.retransmits };
    match &snapshot.segments {
        None if retransmits > 0 => {
            format!(", {} resent", units::several(retransmits, "segment", "segments"))
        }
        None => String::new(),
        Some(_) => seen(snapshot)
            .iter()
            .map(|seen| format!(", {} {}", units::count(seen.so_far), seen.words))
            .collect(),
    }
}

fn seen(snapshot: &Snapshot) -> Vec<LiveEvent> {
    let last = snapshot.series.last();
    let mut seen = match &snapshot.segments {
        Some(segments) => counted(segments, &last.and_then(|i| i.segments).unwrap_or_default()),
        None => looked_at(&snapshot.tcp, &last.map(|i| i.tcp).unwrap_or_default()),
    };
    seen.retain(|seen| seen.so_far > 0);
    seen
}

fn counted(all: &Segments, lately: &Segments) -> Vec<LiveEvent> {
    // Fast and spurious retransmissions already count as retransmissions, and an ACK of a probe is
    // expected.
    const SHOWN: [SegmentEvent; 5] = [
        SegmentEvent::Retransmission,
        SegmentEvent::DuplicateAck,
        SegmentEvent::ZeroWindow,
        SegmentEvent::WindowFull,
        SegmentEvent::OutOfOrder,
    ];
    let both = [(&all.sent, &lately.sent, "out"), (&all.received, &lately.received, "in")];
    let each = |event: SegmentEvent| {
        both.map(|(all, lately, way)| {
            let so_far = all.of(event).unwrap_or(0);
            LiveEvent {
                so_far,
                lately: lately.of(event).unwrap_or(0),
                words: format!("{} {way}", event.words(so_far)),
            }
        })
    };
    SHOWN.into_iter().flat_map(each).collect()
}

fn looked_at(all: &TcpEvents, lately: &TcpEvents) -> Vec<LiveEvent> {
    let seen =
        |of: fn(&TcpEvents) -> u64, words: String| LiveEvent { so_far: of(all), lately: of(lately), words };
    let looks = units::count(all.looks);
    vec![
        seen(|e| e.retransmits, "resent".to_owned()),
        seen(|e| e.out_of_order, "out of order".to_owned()),
        seen(|e| e.reordered, "reordered".to_owned()),
        seen(|e| e.peer_window_closed, format!("of {looks} looks: window closed")),
        seen(|e| e.own_window_closed, format!("of {looks} looks: our window closed")),
        seen(|e| e.rwnd_limited_us / 1000, "ms held by the server's window".to_owned()),
        seen(|e| e.sndbuf_limited_us / 1000, "ms held by our send buffer".to_owned()),
    ]
}
