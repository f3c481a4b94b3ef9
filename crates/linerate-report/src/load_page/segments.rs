//! Segments that were counted one by one, by `--capture` or by a TCP of our own.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::markup::escape;
use crate::schema::outcome::{Document, SegmentCounts};
use crate::units;

/// A table of all events, ours and the server's; nothing where nobody counted.
pub(super) fn section(out: &mut String, document: &Document) {
    let Some(segments) = &document.tcp.segments else { return };
    out.push_str("<section><h2>TCP segments</h2><div class=\"wide\"><table id=\"segments\"><thead><tr><th class=\"l\">segments</th><th>sent</th><th>received</th></tr></thead><tbody>");
    let ways = [&segments.sent, &segments.received];
    row(out, "all", &ways.map(|way| Some(way.segments)));
    let names: BTreeSet<&String> = ways.iter().flat_map(|way| way.events.keys()).collect();
    for name in names {
        let of = |way: &SegmentCounts| way.events.get(name).copied();
        row(out, &name.replace('_', " "), &ways.map(of));
    }
    out.push_str("</tbody></table></div>");
    if segments.missed > 0 && segments.source == "capture" {
        let missed = units::several(segments.missed, "packet", "packets");
        let _ = write!(out, "<p class=\"source\">At least: {missed} found no room in the capture.</p>");
    }
    out.push_str("</section>");
}

fn row(out: &mut String, name: &str, counts: &[Option<u64>]) {
    let _ = write!(out, "<tr><th class=\"l\" scope=\"row\">{}</th>", escape(name));
    for count in counts {
        let _ = write!(out, "<td>{}</td>", count.map_or("-".to_owned(), units::count));
    }
    out.push_str("</tr>");
}
