//! The call as a sequence diagram: client on the left, server on the right, time downwards, long pauses cut short.

use std::time::Duration;

use linerate_explain::call::{Call, Why};

use super::text::time;
use crate::Style;

/// Something that crosses.
struct Arrow {
    at: Duration,
    /// To the server.
    right: bool,
    label: String,
}

/// Between the lanes, characters.
const WIDTH: usize = 44;
/// Receives drawn one by one; beyond it they are summed up.
const DRAWN: usize = 6;

/// Draws it.
pub(super) fn draw(call: &Call, style: Style) -> String {
    let (line, left, right, bar) =
        if style.unicode { ('\u{2500}', '\u{25c0}', '\u{25b6}', '\u{2502}') } else { ('-', '<', '>', '|') };
    let mut text = format!("  {:>10}  client{}server\n", "", " ".repeat(WIDTH - 8));
    let mut before: Option<Duration> = None;
    for arrow in arrows(call) {
        if let Some(gap) = before.map(|b| arrow.at.saturating_sub(b)).filter(|g| g.as_secs_f64() > 2e-3) {
            let words = format!("... {} ...", time(gap.as_secs_f64() * 1e3));
            let words = style.dim(&format!("{words:^WIDTH$}"));
            text.push_str(&format!("  {:>10}  {bar}{words}{bar}\n", ""));
        }
        let label = format!(" {} ", arrow.label);
        let room = (WIDTH - 2).saturating_sub(label.chars().count());
        let (a, b) = (room / 2, room - room / 2);
        let dash = |n: usize| line.to_string().repeat(n);
        let body = if arrow.right {
            format!("{}{label}{}{right}", dash(a + 1), dash(b))
        } else {
            format!("{left}{}{label}{}", dash(a), dash(b + 1))
        };
        let at = time(arrow.at.as_secs_f64() * 1e3);
        text.push_str(&format!("  {at:>10}  {bar}{body}{bar}\n"));
        before = Some(arrow.at);
    }
    if let Some(failure) = call.failure() {
        let word = if failure.why == Why::TimedOut { "gave up" } else { "failed" };
        text.push_str(&format!("  {:>10}  {bar} {word}\n", time(call.total.as_secs_f64() * 1e3)));
    }
    text
}

fn arrows(call: &Call) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let mut push = |at, right, label: String| arrows.push(Arrow { at, right, label });
    if call.fresh {
        push(Duration::ZERO, true, "SYN".to_owned());
        if call.syn_again() {
            push(call.connect / 2, true, format!("SYN again, {} times", call.connect_facts.total_retrans));
        }
        push(call.connect, false, "SYN, ACK".to_owned());
    }
    if call.failure().is_some_and(|f| f.stage == linerate_explain::call::Stage::Connect) {
        arrows.truncate(1);
        return arrows;
    }
    match call.held_for_continue {
        Some(held) => {
            push(call.connect, true, "request head, Expect".to_owned());
            if let Some(at) = call.continued {
                push(at, false, "100 Continue".to_owned());
            }
            push(call.connect + held, true, "request body".to_owned());
        }
        None => push(call.connect, true, "request".to_owned()),
    }
    let label = |bytes: u64, first: bool, last: bool| {
        let part = match (first, last) {
            (true, true) => "answer",
            (true, false) => "answer begins",
            (false, true) => "answer ends",
            (false, false) => "answer goes on",
        };
        format!("{part}, {bytes} B")
    };
    let receives = &call.receives;
    if receives.len() <= DRAWN {
        for (i, r) in receives.iter().enumerate() {
            push(r.at, false, label(r.bytes.into(), i == 0, i + 1 == receives.len()));
        }
    } else {
        let middle = &receives[1..receives.len() - 1];
        let bytes: u64 = middle.iter().map(|r| u64::from(r.bytes)).sum();
        push(receives[0].at, false, label(receives[0].bytes.into(), true, false));
        push(middle[middle.len() / 2].at, false, format!("{} more receives, {bytes} B", middle.len()));
        let last = receives[receives.len() - 1];
        push(last.at, false, label(last.bytes.into(), false, true));
    }
    arrows
}
