//! A run while it lasts. [`draw`] is a pure function of what is known; [`Screen`] puts its picture
//! on a terminal below what is there already and takes it away again, without raw mode and without
//! an alternate screen: whatever ends the program, the terminal is as it was.

mod events;
mod screen;

use std::fmt::Write as _;
use std::time::Duration;

use linerate_load::Snapshot;
use linerate_load::outcome::MachineNow;
use linerate_load::plan::units::shown_duration;
use linerate_load::plan::{Pace, Stop};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Look, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use crate::units;

pub use screen::Screen;

/// The TCP events in words, without a limit of width.
pub fn tcp_words(snapshot: &Snapshot) -> String {
    events::row(snapshot, usize::MAX).iter().map(|span| span.content.as_ref()).collect()
}

/// Rows of the view, without the one for a TCP of our own.
const HEIGHT: u16 = 12;

const CHART: u16 = 3;
const LABEL: u16 = 11;

/// The facts that do not change during the run.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// First line: what is sent where.
    pub title: String,
    /// Second line: how.
    pub doing: String,
    /// When it ends.
    pub stop: Stop,
    /// Time at the start that is not measured.
    pub warm_up: Duration,
    /// Whether the times are counted from when requests were due.
    pub open_loop: bool,
    /// Whether the run records no latencies (`--throughput`).
    pub throughput: bool,
    /// Whether TCP is our own (`--io xdp`): it has a row then.
    pub own_tcp: bool,
}

impl Scene {
    /// Of a plan.
    pub fn of(plan: &linerate_load::Plan) -> Scene {
        Scene {
            title: crate::summary::requested(plan),
            doing: crate::summary::done(plan, &linerate_load::Outcome::default()),
            stop: match &plan.pace {
                Pace::Trace(times) if plan.stop.duration.is_none() => {
                    Stop { duration: times.last().map(|ns| Duration::from_nanos(*ns)), ..plan.stop }
                }
                _ => plan.stop,
            },
            warm_up: plan.warm_up,
            open_loop: plan.counts_from_due(),
            throughput: plan.throughput,
            own_tcp: plan.io.is_user_space(),
        }
    }

    /// Rows of the view.
    pub fn height(&self) -> u16 {
        HEIGHT + u16::from(self.own_tcp)
    }

    /// The progress of the run, in words.
    pub fn progress_words(&self, snapshot: &Snapshot) -> String {
        self.progress(snapshot).1
    }

    /// How far the run is (0 to 1), if its end is known, and the words for it.
    fn progress(&self, snapshot: &Snapshot) -> (Option<f64>, String) {
        if !snapshot.measuring && !self.warm_up.is_zero() {
            let share = snapshot.elapsed.as_secs_f64() / self.warm_up.as_secs_f64();
            let words =
                format!("warming up: {} of {}", seconds(snapshot.elapsed), shown_duration(self.warm_up));
            return (Some(share.min(1.0)), words);
        }
        let measured = snapshot.elapsed.saturating_sub(self.warm_up);
        let sent = snapshot.requests.sent;
        let by_time = self.stop.duration.map(|all| measured.as_secs_f64() / all.as_secs_f64().max(1e-9));
        let by_count = self.stop.requests.map(|all| sent as f64 / all.max(1) as f64);
        // Whichever comes first ends the run: the one that is further on.
        if by_count.unwrap_or(0.0) > by_time.unwrap_or(0.0) {
            let all = units::count(self.stop.requests.unwrap_or(0));
            return (by_count.map(|s| s.min(1.0)), format!("{} of {all} requests", units::count(sent)));
        }
        let words = match self.stop.duration {
            Some(all) => format!("{} of {}", seconds(measured.min(all)), shown_duration(all)),
            None => seconds(measured),
        };
        (by_time.map(|s| s.min(1.0)), words)
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

/// The rate now: of the last whole second, or since the start before there is one.
fn rate_now(scene: &Scene, snapshot: &Snapshot) -> f64 {
    if let Some(last) = snapshot.series.last() {
        return last.rate_rps;
    }
    let measured = snapshot.elapsed.saturating_sub(scene.warm_up).as_secs_f64();
    if measured > 0.0 { snapshot.requests.answered as f64 / measured } else { 0.0 }
}

/// Machines that are named one by one. Reason: a line of a terminal.
const MACHINES: usize = 8;

/// One line for a log: what a run without a terminal shows once a second.
pub fn plain_line(scene: &Scene, snapshot: &Snapshot) -> String {
    let (_, mut progress) = scene.progress(snapshot);
    if let Some(old) = snapshot.old {
        let _ = write!(progress, " (figures are {} s old)", old.as_secs());
    }
    let r = &snapshot.requests;
    if !snapshot.measuring && !scene.warm_up.is_zero() {
        // Nothing of it is counted, which must not look like a server that is dead.
        let open = units::several(snapshot.open, "connection", "connections");
        let received = units::bytes(snapshot.bytes.received as f64);
        return format!("{progress}: {open}, {received} received");
    }
    let mut line = match scene.stop.duration {
        Some(all) if snapshot.elapsed > scene.warm_up + all && snapshot.in_flight > 0 => {
            let late = units::several(snapshot.in_flight, "response", "responses");
            format!("{progress}: waits for {late}")
        }
        _ => format!("{progress}: {}/s", units::rate(rate_now(scene, snapshot))),
    };
    if !scene.throughput && !snapshot.ranked().is_empty() {
        for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
            let found = snapshot.ranked().percentile(percent);
            let least = if found.at_least { ">= " } else { "" };
            line += &format!(", {name} {least}{}", units::time_ns(found.ns as f64, true));
        }
    }
    line +=
        &format!(", {} answered, {} failed", units::count(r.answered), units::count(r.failed + r.unknown));
    if snapshot.bad.total() > 0 {
        line += &format!(", {} bad", units::count(snapshot.bad.total()));
    }
    if let Some(stack) = &snapshot.stack {
        line += &format!(", {} of segments resent", resent(stack.retransmits, stack.segments_out));
        if stack.overrun > 0 {
            line += &format!(", {} overrun", units::count(stack.overrun));
        }
    }
    line += &events::words(snapshot);
    if snapshot.machines.len() > 1 {
        line += &format!("; {}", machines(snapshot));
    }
    line
}

/// The rate of each machine.
fn machines(snapshot: &Snapshot) -> String {
    let machine = |machine: &MachineNow| match machine.ended {
        true => format!("{} has ended", machine.name),
        false => format!("{} {}/s", machine.name, units::rate(machine.answered as f64)),
    };
    let shown: Vec<String> = snapshot.machines.iter().take(MACHINES).map(machine).collect();
    let more = match snapshot.machines.len().saturating_sub(MACHINES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// Draws the view into `area`, which should be [`Scene::height`] rows high and at least
/// [`crate::limits::LEAST_WIDTH`] wide. With fewer rows it shrinks the chart first, then drops the
/// row of TCP, then the second line. `stopping`: the user asked for the end.
pub fn draw(scene: &Scene, snapshot: &Snapshot, stopping: bool, area: Rect, buf: &mut Buffer) {
    let missing = scene.height().saturating_sub(area.height);
    let room = usize::from(area.width.saturating_sub(LABEL));
    let mut rows = Rows { area, next: 0, buf };
    rows.text(&scene.title, Modifier::BOLD);
    if missing <= CHART {
        rows.text(&scene.doing, Modifier::DIM);
    }
    progress(&mut rows, scene, snapshot);
    chart(&mut rows, scene, snapshot, CHART - missing.min(CHART - 1));
    rows.labelled(if scene.open_loop { "from due" } else { "latency" }, latency(scene, snapshot, room));
    rows.labelled("answers", answers(snapshot, room));
    rows.labelled("failures", failures(snapshot, room));
    rows.labelled("open", traffic(scene, snapshot, room));
    // In a low area what goes wrong above TCP is worth more.
    if missing < CHART {
        rows.labelled("tcp", events::row(snapshot, room));
    }
    if scene.own_tcp {
        rows.labelled("segments", segments(snapshot, room));
    }
    let hint = match (stopping, snapshot.old) {
        (true, _) => "ending: waiting for responses; Ctrl-C again leaves at once".to_owned(),
        (false, Some(old)) => format!("these figures are {} s old: no agent can report", old.as_secs()),
        (false, None) if snapshot.machines.len() > 1 => {
            format!("{}; Ctrl-C ends the run", machines(snapshot))
        }
        (false, None) => "Ctrl-C ends the run and reports what was measured".to_owned(),
    };
    rows.text(&hint, Modifier::DIM);
}

struct Rows<'a> {
    area: Rect,
    next: u16,
    buf: &'a mut Buffer,
}

impl Rows<'_> {
    /// The next `height` rows, cut where the area ends.
    fn take(&mut self, height: u16) -> Rect {
        let top = self.next.min(self.area.height);
        let height = height.min(self.area.height - top);
        self.next = top + height;
        Rect { y: self.area.y + top, height, ..self.area }
    }

    fn line(&mut self, line: Line<'_>) {
        let row = self.take(1);
        line.render(row, self.buf);
    }

    /// A line of text; where it is too long it ends in an ellipsis, behind a whole clause if it has several.
    fn text(&mut self, text: &str, modifier: Modifier) {
        let width = usize::from(self.area.width);
        let mut shown: String = text.chars().take(width).collect();
        if text.chars().count() > width && shown.pop().is_some() {
            match shown.rfind(", ").max(shown.rfind("; ")) {
                Some(end) => shown.replace_range(end.., " …"),
                None => shown.push('…'),
            }
        }
        self.line(Line::styled(shown, Look::new().add_modifier(modifier)));
    }

    fn labelled(&mut self, label: &str, mut spans: Vec<Span<'static>>) {
        let width = usize::from(LABEL);
        spans.insert(0, Span::styled(format!("{label:<width$}"), Look::new().add_modifier(Modifier::BOLD)));
        self.line(Line::from(spans));
    }
}

fn progress(rows: &mut Rows<'_>, scene: &Scene, snapshot: &Snapshot) {
    let row = rows.take(1);
    let (share, words) = scene.progress(snapshot);
    let bar = usize::from(row.width).saturating_sub(words.chars().count() + 2);
    let Some(share) = share else {
        Line::from(words).render(row, rows.buf);
        return;
    };
    let full = (share * bar as f64).round() as usize;
    let colour = if snapshot.measuring { Color::Green } else { Color::Yellow };
    Line::from(vec![
        Span::styled("█".repeat(full), Look::new().fg(colour)),
        Span::styled("░".repeat(bar.saturating_sub(full)), Look::new().add_modifier(Modifier::DIM)),
        Span::raw(format!("  {words}")),
    ])
    .render(row, rows.buf);
}

/// The rate, second by second; each second is as wide as the planned time leaves room for.
fn chart(rows: &mut Rows<'_>, scene: &Scene, snapshot: &Snapshot, height: u16) {
    let area = rows.take(height);
    if area.height == 0 || area.width <= LABEL {
        return;
    }
    let rate = units::rate(rate_now(scene, snapshot));
    // In one row the figure alone says what it is.
    if area.height > 1 {
        let label = Rect { width: LABEL, height: 1, ..area };
        Line::styled("rate", Look::new().add_modifier(Modifier::BOLD)).render(label, rows.buf);
    }
    let number = Rect { y: area.y + 1.min(area.height - 1), height: 1, width: 24.min(area.width), ..area };
    let chart = Rect { x: area.x + 24.min(area.width), width: area.width.saturating_sub(24), ..area };
    Line::from(vec![Span::raw(format!("  {rate}")).bold(), Span::raw(" req/s")]).render(number, rows.buf);
    let room = usize::from(chart.width);
    let planned = scene.stop.duration.map_or(0, |d| d.as_secs_f64().ceil() as usize);
    let each = room.checked_div(planned).unwrap_or(1).max(1);
    let shown = (room / each).max(1);
    let from = snapshot.series.len().saturating_sub(shown);
    let bars: Vec<u64> = snapshot.series[from..]
        .iter()
        .flat_map(|second| std::iter::repeat_n(second.rate_rps.round() as u64, each))
        .collect();
    Sparkline::default().data(&bars).style(Look::new().fg(Color::Cyan)).render(chart, rows.buf);
}

/// As many of the percentiles as there is room for; those that say most stay.
fn latency(scene: &Scene, snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    const CHOICES: [&[&str]; 4] = [
        &["p50", "p90", "p99", "p99.9", "max"],
        &["p50", "p99", "p99.9", "max"],
        &["p50", "p99", "max"],
        &["p99", "max"],
    ];
    let latency = snapshot.ranked();
    if scene.throughput {
        return vec![Span::styled("not measured (--throughput)", Look::new().add_modifier(Modifier::DIM))];
    }
    if latency.is_empty() {
        return Vec::new();
    }
    let pair = |name: &'static str| {
        let percent = name.strip_prefix('p').and_then(|percent| percent.parse().ok()).unwrap_or(100.0);
        let found = latency.percentile(percent);
        let least = if found.at_least { "≥ " } else { "" };
        (name, format!("{least}{}", units::time_ns(found.ns as f64, true)))
    };
    let pairs = |names: &[&'static str]| names.iter().map(|name| pair(name)).collect::<Vec<_>>();
    let width = |(name, value): &(&str, String)| name.len() + value.chars().count() + 3;
    let fits = |pairs: &Vec<(&str, String)>| pairs.iter().map(width).sum::<usize>() <= room + 2;
    let chosen = CHOICES.into_iter().map(pairs).find(fits).unwrap_or_else(|| pairs(&["p99"]));
    let spans = |(name, value): (&'static str, String)| {
        let name = Span::styled(format!("{name} "), Look::new().add_modifier(Modifier::DIM));
        [name, Span::raw(format!("{value}  "))]
    };
    chosen.into_iter().flat_map(spans).collect()
}

/// As many parts as there is room for, and an ellipsis where some are left out.
fn fitted(parts: Vec<(String, Look)>, between: &'static str, room: usize) -> Vec<Span<'static>> {
    let all = parts.len();
    let mut spans = Vec::new();
    let mut used = 0;
    for (i, (part, look)) in parts.into_iter().enumerate() {
        let between = if i == 0 { "" } else { between };
        let mark = if i + 1 < all { 2 } else { 0 };
        let width = between.len() + part.chars().count();
        if i > 0 && used + width + mark > room {
            spans.push(Span::raw(" …"));
            break;
        }
        used += width;
        spans.extend([Span::raw(between), Span::styled(part, look)]);
    }
    spans
}

fn answers(snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    let mut parts = vec![(units::count(snapshot.requests.answered), Look::new())];
    parts.extend(snapshot.status.iter().map(|(status, n)| {
        let look = if *status < 400 { Look::new().fg(Color::Green) } else { Look::new().fg(Color::Red) };
        (format!("{status}: {}", units::count(*n)), look)
    }));
    fitted(parts, "  ", room)
}

fn failures(snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    let r = &snapshot.requests;
    let named = linerate_load::outcome::Failure::ALL
        .into_iter()
        .map(|why| (snapshot.failures.count(why), why.name().replace('_', " ")));
    let others = [(snapshot.bad.total(), "bad"), (r.unknown, "unknown"), (r.unsent, "unsent")];
    let parts: Vec<_> = named
        .chain(others.map(|(n, what)| (n, what.to_owned())))
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| (format!("{what}: {}", units::count(n)), Look::new().fg(Color::Red)))
        .collect();
    if parts.is_empty() {
        return vec![Span::styled("none", Look::new().fg(Color::Green))];
    }
    fitted(parts, "  ", room)
}

fn traffic(scene: &Scene, snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    let measured = snapshot.elapsed.saturating_sub(scene.warm_up).as_secs_f64();
    let per_second = |n: u64| if measured > 0.0 { n as f64 / measured } else { 0.0 };
    let speeds = [
        format!("{}/s in", units::bytes(per_second(snapshot.bytes.received))),
        format!("{}/s out", units::bytes(per_second(snapshot.bytes.sent))),
    ];
    let long = [
        units::several(snapshot.open, "connection", "connections"),
        format!("{} in flight", units::several(snapshot.in_flight, "request", "requests")),
    ];
    let short = [units::count(snapshot.open), format!("{} in flight", units::count(snapshot.in_flight))];
    let with_speeds = |first: [String; 2]| first.into_iter().chain(speeds.clone()).collect::<Vec<_>>();
    let mut parts = with_speeds(long);
    if parts.join(", ").chars().count() > room {
        parts = with_speeds(short);
    }
    fitted(parts.into_iter().map(|part| (part, Look::new())).collect(), ", ", room)
}

/// What user-space TCP does: signs of trouble first, then as much of the rest as fits.
fn segments(snapshot: &Snapshot, room: usize) -> Vec<Span<'static>> {
    let Some(stack) = &snapshot.stack else { return Vec::new() };
    let elapsed = snapshot.elapsed.as_secs_f64();
    let per_second = |n: u64| units::rate(if elapsed > 0.0 { n as f64 / elapsed } else { 0.0 });
    let parts = [
        format!("{}/s in", per_second(stack.segments_in)),
        format!("{}/s out", per_second(stack.segments_out)),
        format!("{} resent", resent(stack.retransmits, stack.segments_out)),
        format!("{} overrun", units::count(stack.overrun)),
        format!("{} open", units::count(stack.connections)),
        format!("{} in TIME-WAIT", units::count(stack.time_wait)),
    ];
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for part in parts {
        let part = if used == 0 { part } else { format!(", {part}") };
        used += part.chars().count();
        if used > room {
            break;
        }
        let lost = part.ends_with("overrun") && stack.overrun > 0;
        spans.push(if lost { Span::styled(part, Look::new().fg(Color::Red)) } else { Span::raw(part) });
    }
    spans
}

/// Retransmitted segments as a share of the segments sent.
fn resent(again: u64, sent: u64) -> String {
    units::percent(again as f64 / sent.max(1) as f64)
}

#[cfg(test)]
mod tests;
