//! The server's process in a few lines.

use std::net::SocketAddr;

use linerate_explain::process::ProcessView;

use super::words::time;
use crate::units;

/// Kinds of threads listed. Reason: beyond it they are few and say little.
const KINDS: usize = 6;

/// What it is about, and each line with its name.
pub(super) fn lines(p: &ProcessView, unicode: bool) -> (String, Vec<(&'static str, String)>) {
    let during = match p.calls {
        0 => String::new(),
        n => format!(", looked at {} during {}", times(p.looks), units::several(n as u64, "call", "calls")),
    };
    let found = if p.found { ", found by its listening socket" } else { "" };
    let head = format!("The server's process {}{found}{during}", p.called());
    let mut lines = Vec::new();
    for (i, doing) in p.threads.iter().filter(|d| d.mean >= 0.05).take(KINDS).enumerate() {
        let name = if i == 0 { "threads" } else { "" };
        lines.push((name, format!("{} {}: {}", threads(doing.mean), doing.what, doing.names.join(", "))));
    }
    lines.extend(listeners(p).into_iter().map(|words| ("accepting", words)));
    if p.turned_away != (0, 0) {
        let (overflows, drops) = p.turned_away;
        let words = format!("{overflows} connections found an accept queue full, {drops} SYNs were dropped");
        lines.push(("turned away", words));
    }
    if !p.sockets.is_empty() {
        let states: Vec<String> = p.sockets.iter().map(|(state, n)| format!("{n} {state}")).collect();
        let mut words = states.join(", ");
        for (queue, what) in [(p.unread, "not read yet"), (p.unsent, "not acknowledged yet")] {
            if queue.0 > 0 {
                let on = units::several(queue.1, "connection", "connections");
                words.push_str(&format!("; {} {what} on {on}", units::bytes(queue.0 as f64)));
            }
        }
        lines.push(("sockets", words));
    }
    if let Some((open, limit)) = p.files {
        let near = if open * 10 >= limit.saturating_mul(9) { ": nearly all are used up" } else { "" };
        let limit = if limit == u64::MAX { "no limit".to_owned() } else { units::count(limit) };
        lines.push(("files", format!("{} open, {limit} allowed{near}", units::count(open))));
    }
    if let Some(jvm) = p.jvm {
        let t = |d: std::time::Duration| time(d.as_secs_f64() * 1e3, unicode);
        let of = |n: u64, one: &str, many: &str, took| match n {
            0 => format!("no {one}"),
            _ => format!("{} ({})", units::several(n, one, many), t(took)),
        };
        let words = [
            of(jvm.collections, "garbage collection", "garbage collections", jvm.collected),
            of(jvm.safepoints, "safepoint", "safepoints", jvm.stopped),
        ];
        lines.push(("pauses", format!("{} meanwhile", words.join(", "))));
    }
    lines.extend(p.notes.iter().map(|note| ("note", note.clone())));
    (head, lines)
}

/// Addresses with their accept queues; those of several sockets that stand alike are one.
fn listeners(p: &ProcessView) -> Vec<String> {
    let mut alike: Vec<(SocketAddr, String, usize)> = Vec::new();
    for l in &p.listeners {
        let room =
            l.limit.map_or(String::new(), |limit| format!(" of at most {}", units::count(limit.into())));
        // A socket for both families shows an IPv4 address as a mapped one.
        let address = SocketAddr::new(l.address.ip().to_canonical(), l.address.port());
        let words = format!("{}{room} wait to be accepted", l.waiting);
        match alike.iter_mut().find(|(to, said, _)| *to == address && *said == words) {
            Some((_, _, sockets)) => *sockets += 1,
            None => alike.push((address, words, 1)),
        }
    }
    let shown = |(address, words, sockets): (SocketAddr, String, usize)| match sockets {
        1 => format!("{address}: {words}"),
        n => format!("{address}, {n} sockets: {words} at each"),
    };
    alike.into_iter().map(shown).collect()
}

/// Over several looks a number of threads is an average.
fn threads(mean: f64) -> String {
    if mean >= 10.0 || (mean - mean.round()).abs() < 0.05 {
        format!("{mean:.0}")
    } else {
        format!("{mean:.1}")
    }
}

fn times(n: usize) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}
