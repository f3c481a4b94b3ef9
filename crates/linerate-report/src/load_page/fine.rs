//! The beginning of a run in small steps: curves above each other.

use std::fmt::Write as _;

use super::chart::{self, ChartLine, Scale};
use super::points::{self, Point};
use crate::diagram::{self, Arrow, Diagram, DiagramRow};
use crate::markup::escape;
use crate::passive;
use crate::schema::fine::FineInterval;
use crate::schema::outcome::Document;
use crate::units;

/// Steps that are drawn. Reason: 2 s of 10 ms each, or 20 s of 100 ms; the seconds show the rest.
const STEPS: usize = 200;

/// Values that are shown as whole numbers.
const WHOLE: Scale = Scale::Linear(1.0);

/// What is drawn: nothing where there are too few for a curve.
fn drawn(document: &Document) -> &[FineInterval] {
    match document.series_fine.as_deref().unwrap_or_default() {
        steps if steps.len() > 2 => &steps[..steps.len().min(STEPS)],
        _ => &[],
    }
}

/// Whether they reach as far as the seconds, whose last one ends at `end_s`.
pub(super) fn covers(document: &Document, end_s: Option<f64>) -> bool {
    drawn(document).last().is_some_and(|last| end_s.is_some_and(|end| last.t_s >= 0.99 * end))
}

/// Draws them; nothing where there are none.
pub(super) fn section(out: &mut String, document: &Document, points: &[Point]) {
    let steps = drawn(document);
    let Some(last) = steps.last() else { return };
    let times: Vec<f64> = steps.iter().map(|step| step.t_s).collect();
    let begins = std::iter::once(0.0).chain(times.iter().copied());
    let lasted: Vec<f64> = times.iter().zip(begins).map(|(end, begin)| (end - begin).max(1e-3)).collect();
    let line = |name, class, of: &dyn Fn(&FineInterval, f64) -> Option<f64>| ChartLine {
        name,
        class,
        values: steps.iter().zip(&lasted).map(|(step, lasted)| of(step, *lasted)).collect(),
    };
    let _ = write!(
        out,
        "<section id=\"fine\"><h2>The first {} s in small steps</h2><div class=\"diagrams{}\">",
        units::three_digits(last.t_s),
        // Curves above each other, packets beside them.
        if document.tcp.first_connection.is_some() { " stack" } else { "" }
    );
    // Curves that are zero throughout say nothing.
    let is_there =
        |lines: &[ChartLine<'_>]| lines.iter().any(|l| l.values.iter().flatten().any(|n| *n > 0.0));
    let silent = points::silences(document, points);
    let mut draw = |title, lines: &[ChartLine<'_>], scale, shown: &dyn Fn(f64) -> String| {
        if let Some(svg) = chart::over_time(title, (&times, &silent), lines, scale, shown) {
            let _ = write!(out, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
        }
    };
    let rate = [line("rate", "b", &|step, _| Some(step.rate_rps))];
    draw("Responses per second", &rate, Scale::Linear(0.01), &units::rate);
    let wrong = [
        line("failed", "bad", &|step, _| Some(step.failed as f64)),
        line("unknown", "a", &|step, _| Some(step.unknown as f64)),
        line("bad", "b", &|step, _| Some(step.bad as f64)),
    ];
    if is_there(&wrong) {
        draw("Failed, unknown and bad requests", &wrong, WHOLE, &|v| units::count(v as u64));
    }
    let bytes = [
        line("received", "b", &|step, lasted| Some(step.bytes_received as f64 / lasted)),
        line("sent", "a", &|step, lasted| Some(step.bytes_sent as f64 / lasted)),
    ];
    draw("Bytes per second", &bytes, WHOLE, &units::bytes);
    let cpu =
        [line("server", "a", &|step, _| step.server_busy), line("client", "b", &|step, _| step.client_busy)];
    let is_known = steps.iter().any(|step| step.server_busy.is_some());
    let (title, cpu) =
        if is_known { ("Busy cores", &cpu[..]) } else { ("Busy cores of the client", &cpu[1..]) };
    draw(title, cpu, Scale::Linear(0.01), &|v| format!("{v:.2}"));
    let in_flight = [line("in flight", "a", &|step, _| step.in_flight.map(|n| n as f64))];
    draw("Requests in flight", &in_flight, WHOLE, &|v| units::count(v as u64));
    let events =
        |of: fn(&FineInterval) -> Option<u64>| move |step: &FineInterval, _: f64| of(step).map(|n| n as f64);
    let again = [
        line("retransmitted", "bad", &events(|step| step.retransmissions)),
        line("duplicate ACKs", "a", &events(|step| step.duplicate_acks)),
    ];
    if is_there(&again) {
        draw("Segments retransmitted, and duplicate ACKs", &again, WHOLE, &|v| units::count(v as u64));
    }
    let windows = [
        line("closed", "bad", &events(|step| step.zero_windows)),
        line("full", "b", &events(|step| step.windows_full)),
    ];
    if is_there(&windows) {
        draw("Segments with a closed or full window", &windows, WHOLE, &|v| units::count(v as u64));
    }
    packets(out, document);
    out.push_str("</div></section>");
}

/// Rows of the picture of packets. Reason: as high as three curves.
const ROWS: usize = 40;

/// The first connection's packets, beside the curves.
fn packets(out: &mut String, document: &Document) {
    let Some(packets) = document.tcp.first_connection.as_deref().filter(|p| !p.is_empty()) else { return };
    let span = packets.last().map_or(0.0, |p| p.at_ms);
    // A pause is shown from a twelfth of the whole on, and from half a millisecond.
    let least = (span / 12.0).max(0.5);
    let mut rows = Vec::new();
    let mut before = 0.0;
    for p in packets {
        let ms = p.at_ms - before;
        if ms >= least {
            rows.push(DiagramRow::Pause { ms, why: String::new(), bad: false });
        }
        before = p.at_ms;
        rows.push(DiagramRow::Arrow(Arrow {
            at_ms: p.at_ms,
            to_server: p.from == "client",
            label: passive::label(p.flags, p.bytes, p.ack),
            notes: p.marks.iter().map(|mark| mark.replace('_', " ")).collect(),
            bad: !p.marks.is_empty(),
        }));
    }
    let shown = units::several(packets.len() as u64, "packet", "packets");
    let title = format!("The first {shown} of the first connection");
    let diagram = Diagram { title: title.clone(), lanes: ["client", "server"].map(str::to_owned), rows }
        .shortened(ROWS);
    let svg = diagram::to_svg(&diagram);
    let _ = write!(out, "<figure id=\"packets\"><figcaption>{}</figcaption>{svg}</figure>", escape(&title));
}
