//! A running server, or a running load, while it runs: what `linerate top` shows. [`draw`] is a
//! pure function of two looks at it.

mod load;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use serde::{Deserialize, Serialize};

use crate::units;

pub use load::Load;

/// `/stats/loops` of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Loops {
    /// Each event loop.
    pub loops: Vec<Loop>,
    /// Connections over the limit.
    pub refused: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Handlers that held their loop.
    pub blocked: u64,
    /// Addresses that the server listens at.
    pub listening: Vec<String>,
    /// Figures of the process.
    pub process: TopProcess,
    /// Of a load generator: what its run is like. Its loops are cores, their `requests` are those
    /// sent, `accepted` are connections opened, and `waiting` are requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// One event loop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Loop {
    /// Requests read.
    pub requests: u64,
    /// Responses from 2xx to 5xx.
    pub by_class: [u64; 4],
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// These by what they wait for.
    pub states: States,
    /// Handlers that wait.
    pub waiting: u64,
    /// Responses that are being made.
    pub streaming: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// CPU time of its thread.
    pub cpu_ns: u64,
    /// Time spent in loop turns.
    pub busy_ns: u64,
    /// How long it has been in its turn now.
    pub in_turn_us: u64,
}

/// Connections by what they wait for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct States {
    /// The next request.
    pub idle: u64,
    /// The rest of a head.
    pub head: u64,
    /// The rest of a body.
    pub body: u64,
    /// The handler's response.
    pub handler: u64,
    /// The client, to take a response.
    pub write: u64,
}

/// The server's process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopProcess {
    /// CPU time used.
    pub cpu_s: f64,
    /// Start, in seconds since 1970.
    pub started_at: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Most that may be open.
    pub most_files: u64,
}

/// `/stats/flows` of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// Connections of the server.
    pub total: u64,
    /// Its listening sockets.
    pub listeners: Vec<ListeningQueue>,
    /// The connections with the longest queues.
    pub flows: Vec<Flow>,
}

/// A listening socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListeningQueue {
    /// Address it is bound to.
    pub local: String,
    /// Connections that wait to be accepted.
    pub waiting: u64,
    /// How many may.
    pub room: u64,
}

/// A TCP connection and its queues.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// The server's end.
    pub local: String,
    /// The client's.
    pub remote: String,
    /// TCP's state.
    pub state: String,
    /// Received and not read by the server.
    pub unread_bytes: u64,
    /// Not sent yet; the kernel counts them among those not acknowledged.
    pub unsent_bytes: u64,
    /// Sent and not acknowledged.
    pub unacked_bytes: u64,
}

impl Flow {
    fn queued(&self) -> u64 {
        self.unread_bytes + self.unsent_bytes + self.unacked_bytes
    }
}

/// One look at a server.
#[derive(Clone, Debug, Default)]
pub struct ServerLook {
    /// Its loops.
    pub loops: Loops,
    /// Its connections.
    pub flows: Flows,
}

/// Headings of the loops.
const LOOP: [&str; 7] = ["loop", "requests/s", "open", "waiting", "CPU", "busy", "turn now"];

/// Columns of the names of totals.
const LABEL: usize = 13;

/// Shows what happened between two looks that are `elapsed` apart; `now` is in seconds since 1970.
pub fn draw(
    title: &str,
    before: &ServerLook,
    after: &ServerLook,
    elapsed: Duration,
    now: f64,
    area: Rect,
    buf: &mut Buffer,
) {
    render(lines(title, before, after, elapsed, now, area), area, buf);
}

/// Puts as many lines as fit into an area; where one is too long it ends in an ellipsis.
pub(crate) fn render(lines: Vec<Line<'static>>, area: Rect, buf: &mut Buffer) {
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        fitted(line, usize::from(area.width)).render(Rect { y, height: 1, ..area }, buf);
    }
}

/// The same as lines, at most as high as `area`.
fn lines(
    title: &str,
    before: &ServerLook,
    after: &ServerLook,
    elapsed: Duration,
    now: f64,
    area: Rect,
) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let change = Change { before: &before.loops, after: &after.loops, elapsed };
    let (bold, dim) = (Look::new().add_modifier(Modifier::BOLD), Look::new().add_modifier(Modifier::DIM));
    let of = match &after.loops.load {
        Some(load) => load.title.clone(),
        None => format!("listening on {}", after.loops.listening.join(", ")),
    };
    let head = format!("  up {}  {of}", up(&after.loops, now));
    let mut lines = vec![Line::from(vec![Span::styled(title.to_owned(), bold), Span::styled(head, dim)])];
    match &after.loops.load {
        Some(load) => lines.extend(load::rows(load, &change)),
        None => lines.extend([
            labelled("requests", requests(&change)),
            labelled("connections", connections(&change, width)),
        ]),
    }
    lines.extend([
        labelled("bytes", bytes(&change)),
        labelled("process", process(&change)),
        labelled("queues", queues(&after.flows)),
    ]);
    lines = lines.into_iter().flat_map(|line| wrapped(line, width)).collect();
    lines.push(Line::default());
    let own = before.loops.loops.iter().zip(&after.loops.loops).enumerate();
    if after.loops.load.is_some() {
        lines.push(Line::styled(load::CORES, bold));
        lines.extend(own.map(|(i, (before, after))| load::core_row(i, before, after, elapsed)));
    } else {
        lines.push(Line::styled(loop_columns(width, LOOP), bold));
        lines.extend(own.map(|(i, (before, after))| loop_row(i, before, after, elapsed, width)));
    }
    let room = height.saturating_sub(lines.len());
    if !after.flows.flows.is_empty() && room > 1 {
        let columns = FlowColumns::of(width, after.loops.load.is_some());
        lines.push(Line::styled(columns.row(["local", "remote", "state", "unread", "unsent"]), bold));
        let mut flows: Vec<&Flow> = after.flows.flows.iter().collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.queued()));
        lines.extend(flows.into_iter().take(room - 1).map(|flow| columns.flow(flow)));
    }
    lines.truncate(height);
    lines
}

/// Breaks a line between words, the rest below its text.
fn wrapped(line: Line<'static>, width: usize) -> Vec<Line<'static>> {
    let (mut lines, mut rest) = (Vec::new(), line);
    while rest.width() > width && lines.len() < MOST_LINES {
        let text: Vec<char> = rest.spans.iter().flat_map(|span| span.content.chars()).collect();
        let Some(at) = (LABEL + 1..width + 1).rev().find(|at| text[*at] == ' ') else { break };
        let (mut left, mut below) = (at, vec![Span::raw(" ".repeat(LABEL))]);
        let mut head = Vec::new();
        for span in rest.spans {
            let (first, second): (String, String) =
                (span.content.chars().take(left).collect(), span.content.chars().skip(left).collect());
            left -= first.chars().count();
            // No blank begins a line.
            let second = if below.len() == 1 { second.trim_start().to_owned() } else { second };
            head.extend((!first.is_empty()).then(|| Span::styled(first, span.style)));
            below.extend((!second.is_empty()).then(|| Span::styled(second, span.style)));
        }
        lines.push(Line::from(head));
        rest = Line::from(below);
    }
    lines.push(rest);
    lines
}

/// Lines that one may take beside its last. Reason: the tables below need room, too.
const MOST_LINES: usize = 2;

/// Truncates a line to the width.
fn fitted(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let (mut room, mut spans) = (width.saturating_sub(1), Vec::new());
    for span in line.spans {
        let part: String = span.content.chars().take(room).collect();
        room -= part.chars().count();
        spans.push(Span::styled(part, span.style));
    }
    spans.push(Span::raw("…"));
    Line { spans, ..Line::default() }.style(line.style)
}

/// A line with a name before it.
pub(crate) fn labelled(label: &str, text: Vec<Span<'static>>) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{label:<LABEL$}"), Look::new().add_modifier(Modifier::BOLD))];
    spans.extend(text);
    Line::from(spans)
}

/// Two looks at the loops.
struct Change<'a> {
    before: &'a Loops,
    after: &'a Loops,
    elapsed: Duration,
}

impl Change<'_> {
    /// How much a counter of all loops grew in a second. A server that was started anew counts from
    /// 0.
    fn rate(&self, of: impl Fn(&Loop) -> u64) -> f64 {
        let sum = |loops: &Loops| loops.loops.iter().map(&of).sum::<u64>();
        sum(self.after).saturating_sub(sum(self.before)) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn now(&self, of: impl Fn(&Loop) -> u64) -> u64 {
        self.after.loops.iter().map(of).sum()
    }
}

/// For how long the process has run.
fn up(loops: &Loops, now: f64) -> String {
    let up = (now - loops.process.started_at).max(0.0) as u64;
    match up {
        0..60 => format!("{up} s"),
        60..3600 => format!("{} min", up / 60),
        3600..86400 => format!("{} h {} min", up / 3600, up % 3600 / 60),
        _ => format!("{} d {} h", up / 86400, up % 86400 / 3600),
    }
}

/// Responses by class.
fn by_class(change: &Change<'_>) -> impl Iterator<Item = Span<'static>> {
    const COLOURS: [Color; 4] = [Color::Green, Color::Green, Color::Yellow, Color::Red];
    COLOURS.into_iter().enumerate().filter_map(|(class, colour)| {
        let rate = change.rate(|l| l.by_class[class]);
        let text = format!("  {}xx {}/s", class + 2, units::rate(rate));
        (rate > 0.0).then(|| Span::styled(text, Look::new().fg(colour)))
    })
}

fn requests(change: &Change<'_>) -> Vec<Span<'static>> {
    let mut spans = vec![Span::raw(format!("{}/s", units::rate(change.rate(|l| l.requests))))];
    spans.extend(by_class(change));
    spans.push(Span::raw(format!(
        "  {}, {}",
        units::several(change.now(|l| l.waiting), "handler waits", "handlers wait"),
        units::several(change.now(|l| l.streaming), "response is being made", "responses are being made")
    )));
    let grown = |of: fn(&Loops) -> u64| of(change.after).saturating_sub(of(change.before));
    for (n, what) in [(grown(|l| l.panics), "panicked"), (grown(|l| l.blocked), "held their loop")] {
        if n > 0 {
            spans.push(Span::styled(format!("  {n} {what}"), Look::new().fg(Color::Red)));
        }
    }
    spans
}

fn connections(change: &Change<'_>, width: usize) -> Vec<Span<'static>> {
    let states = [
        ("idle", change.now(|l| l.states.idle)),
        ("head", change.now(|l| l.states.head)),
        ("body", change.now(|l| l.states.body)),
        ("handler", change.now(|l| l.states.handler)),
        ("write", change.now(|l| l.states.write)),
    ];
    let text = |all: bool| {
        let shown = states.iter().filter(|(_, n)| all || *n > 0);
        let states: Vec<String> = shown.map(|(name, n)| format!("{name} {}", units::count(*n))).collect();
        format!(
            "{} open ({})  {}/s accepted",
            units::count(change.now(|l| l.open)),
            states.join(", "),
            units::rate(change.rate(|l| l.accepted))
        )
        .replace(" ()", "")
    };
    let whole = text(true);
    // States that none is in say least.
    let mut spans = vec![Span::raw(if LABEL + whole.len() <= width { whole } else { text(false) })];
    let refused = change.after.refused.saturating_sub(change.before.refused);
    if refused > 0 {
        spans.push(Span::styled(format!("  {} refused", units::count(refused)), Look::new().fg(Color::Red)));
    }
    spans
}

fn bytes(change: &Change<'_>) -> Vec<Span<'static>> {
    vec![Span::raw(format!(
        "{}/s in, {}/s out",
        units::bytes(change.rate(|l| l.received)),
        units::bytes(change.rate(|l| l.sent))
    ))]
}

fn process(change: &Change<'_>) -> Vec<Span<'static>> {
    let (before, after) = (&change.before.process, &change.after.process);
    let cpu = (after.cpu_s - before.cpu_s).max(0.0) / change.elapsed.as_secs_f64().max(1e-9);
    let mut spans = vec![Span::raw(format!(
        "CPU {}, {} resident, ",
        units::percent(cpu),
        units::bytes(after.resident_bytes as f64)
    ))];
    let files =
        format!("{} of {} files open", units::count(after.open_files), units::count(after.most_files));
    // Near the limit the server cannot accept connections.
    let near = after.most_files > 0 && after.open_files * 10 > after.most_files * 9;
    spans.push(if near { Span::styled(files, Look::new().fg(Color::Red)) } else { Span::raw(files) });
    spans
}

fn queues(flows: &Flows) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (i, first) in flows.listeners.iter().enumerate() {
        if flows.listeners[..i].iter().any(|listener| listener.local == first.local) {
            continue;
        }
        // A loop each has a socket of the same address: the fullest one is what delays clients.
        let alike = flows.listeners.iter().filter(|listener| listener.local == first.local);
        let sockets = alike.clone().count();
        let listener = alike.max_by_key(|listener| listener.waiting).unwrap_or(first);
        let text = format!(
            "{}{}: {} of {} wait to be accepted{}",
            if spans.is_empty() { "" } else { ", " },
            listener.local,
            units::count(listener.waiting),
            units::count(listener.room),
            if sockets > 1 { format!(" (fullest of {sockets})") } else { String::new() }
        );
        let full = listener.room > 0 && listener.waiting * 2 > listener.room;
        spans.push(if full { Span::styled(text, Look::new().fg(Color::Red)) } else { Span::raw(text) });
    }
    if spans.is_empty() {
        spans.push(Span::raw(format!("{} TCP connections", units::count(flows.total))));
    }
    spans
}

/// How much of a counter a second brought.
fn each(before: u64, after: u64, elapsed: Duration) -> f64 {
    after.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(1e-9)
}

/// The cells of a loop, under one another.
fn loop_columns(width: usize, cells: [&str; 7]) -> String {
    let [number, rate, open, waiting, cpu, busy, turn] = cells;
    if width >= 65 {
        format!("{number:<5} {rate:>10} {open:>9} {waiting:>9} {cpu:>7} {busy:>7} {turn:>12}")
    } else {
        format!("{number:<4} {rate:>10} {open:>7} {waiting:>7} {cpu:>7} {busy:>7} {turn:>9}")
    }
}

fn loop_row(number: usize, before: &Loop, after: &Loop, elapsed: Duration, width: usize) -> Line<'static> {
    let cpu = each(before.cpu_ns, after.cpu_ns, elapsed) / 1e9;
    let busy = (each(before.busy_ns, after.busy_ns, elapsed) / 1e9).min(1.0);
    let turn = units::time_ns(after.in_turn_us as f64 * 1000.0, true);
    let text = loop_columns(
        width,
        [
            &number.to_string(),
            &units::rate(each(before.requests, after.requests, elapsed)),
            &units::count(after.open),
            &units::count(after.waiting),
            &units::percent(cpu),
            &units::percent(busy),
            &turn,
        ],
    );
    // The watchdog reports a turn of this length as blocked.
    let look = if after.in_turn_us >= 5000 { Look::new().fg(Color::Red) } else { Look::new() };
    let (rest, turn) = text.split_at(text.len() - turn.len());
    Line::from(vec![Span::raw(rest.to_owned()), Span::styled(turn.to_owned(), look)])
}

/// As much of a connection as fits.
#[derive(Clone, Copy, Debug)]
struct FlowColumns {
    /// Room for an address.
    address: usize,
    /// Room for a queue.
    queue: usize,
    local: bool,
    remote: bool,
}

impl FlowColumns {
    /// In a narrow terminal only the end that differs is shown: the client's of a server, our own
    /// of a load.
    fn of(width: usize, of_load: bool) -> FlowColumns {
        let both = FlowColumns { address: 24, queue: 11, local: true, remote: true };
        match width {
            86.. => both,
            76.. => FlowColumns { address: 21, queue: 9, ..both },
            _ => FlowColumns { address: 21, queue: 10, local: of_load, remote: !of_load },
        }
    }

    fn row(&self, [local, remote, state, unread, unsent]: [&str; 5]) -> String {
        let (address, queue) = (self.address, self.queue);
        let mut text = String::new();
        for (end, _) in [(local, self.local), (remote, self.remote)].into_iter().filter(|(_, shown)| *shown) {
            let mut shown: String = end.chars().take(address).collect();
            if end.chars().count() > address {
                shown.pop();
                shown.push('…');
            }
            text += &format!("{shown:<address$} ");
        }
        text + &format!("{state:<12} {unread:>queue$} {unsent:>queue$}")
    }

    fn flow(&self, flow: &Flow) -> Line<'static> {
        let unread = units::bytes(flow.unread_bytes as f64);
        let unsent = units::bytes((flow.unsent_bytes + flow.unacked_bytes) as f64);
        Line::raw(self.row([&flow.local, &flow.remote, &flow.state, &unread, &unsent]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: u64) -> ServerLook {
        let text = format!(
            "{{\"loops\":[{{\"requests\":{},\"by_class\":[{},0,0,{}],\"accepted\":{},\"open\":12,\"states\":{{\"idle\":9,\
             \"head\":0,\"body\":0,\"handler\":2,\"write\":1}},\"waiting\":2,\"streaming\":1,\"received\":{},\"sent\":{},\
             \"cpu_ns\":{},\"busy_ns\":{},\"in_turn_us\":7000}},{{\"new_key\":1}}],\"refused\":0,\"blocked\":{seconds},\
             \"listening\":[\"127.0.0.1:8080\"],\"process\":{{\"cpu_s\":{seconds},\"started_at\":1000,\
             \"resident_bytes\":20000000,\"open_files\":95,\"most_files\":100}}}}",
            seconds * 1000,
            seconds * 900,
            seconds * 100,
            seconds * 10,
            seconds * 80_000,
            seconds * 160_000,
            seconds * 750_000_000,
            seconds * 500_000_000,
        );
        let flows = "{\"total\":2,\"listeners\":[{\"local\":\"127.0.0.1:8080\",\"waiting\":3,\"room\":4096}],\"flows\":[\
            {\"local\":\"127.0.0.1:8080\",\"remote\":\"127.0.0.1:5\",\"state\":\"established\",\"unread_bytes\":5},\
            {\"local\":\"127.0.0.1:8080\",\"remote\":\"127.0.0.1:6\",\"state\":\"close-wait\",\"unacked_bytes\":2500000}]}";
        ServerLook {
            loops: serde_json::from_str(&text).expect("sound"),
            flows: serde_json::from_str(flows).expect("sound"),
        }
    }

    fn shown(before: &ServerLook, after: &ServerLook, height: u16) -> String {
        within(before, after, 200, height)
    }

    fn within(before: &ServerLook, after: &ServerLook, width: u16, height: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let lines = lines("linerate top", before, after, Duration::from_secs(2), 4600.0, area);
        let lines = lines.into_iter().map(|line| fitted(line, usize::from(width)));
        lines.map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn rates_are_per_second_and_the_longest_queue_is_first() {
        insta::assert_snapshot!(shown(&look(4), &look(6), 40));
    }

    #[test]
    fn in_a_narrow_terminal_nothing_is_cut_unseen() {
        insta::assert_snapshot!(within(&look(4), &look(6), 80, 23));
        insta::assert_snapshot!(within(&look(4), &look(6), 60, 23));
    }

    #[test]
    fn sockets_of_one_address_are_one_queue() {
        let mut after = look(6);
        let mut fuller = after.flows.listeners[0].clone();
        fuller.waiting = 7;
        after.flows.listeners.push(fuller);
        let text = within(&look(4), &after, 80, 23);
        let queues = text.lines().find(|l| l.starts_with("queues ")).expect("a line of queues");
        assert!(queues.ends_with(" 127.0.0.1:8080: 7 of 4,096 wait to be accepted (fullest of 2)"), "{text}");
    }

    #[test]
    fn a_load_shows_its_cores_failures_and_queues() {
        let of = |before: &mut ServerLook, sent: u64| {
            let snapshot = crate::testing::snapshot();
            let scene = crate::live::Scene::of(&crate::testing::plan_closed());
            let mut load = Load::of(&scene, &snapshot);
            load.failures.insert("timeout".to_owned(), sent / 1000);
            before.loops.load = Some(load);
            before.loops.listening.clear();
        };
        let (mut before, mut after) = (look(4), look(6));
        of(&mut before, 4000);
        of(&mut after, 6000);
        let text = serde_json::to_string(&after.loops).expect("plain");
        after.loops = serde_json::from_str(&text).expect("as it was written");
        insta::assert_snapshot!(within(&before, &after, 80, 24));
        insta::assert_snapshot!(within(&before, &after, 60, 24));
    }

    #[test]
    fn a_server_that_was_started_anew_and_a_small_terminal_are_shown_too() {
        let text = shown(&look(6), &look(0), 6);
        assert!(text.lines().count() == 6 && text.contains("0/s"), "{text}");
        shown(&ServerLook::default(), &ServerLook::default(), 24);
    }
}
