//! A self-contained page of HTML: the verdict in words, the calls as diagrams, and the figures
//! behind them.

use std::fmt::Write as _;

use linerate_explain::passive::words::{self, PassiveVerdict};
use linerate_explain::passive::{ConnectionSummary, ObservedCall};

use super::{Watched, carried, diagram_of, marks_of, ms, sure, worst};
use crate::diagram::{self, Diagram};
use crate::markup::escape;
use crate::schema::outcome::Environment;
use crate::units;

/// How the page looks, in light and dark.
const STYLE: &str = include_str!("page.css");

/// A page: a head line with its verdict (`good`, `warn` or `bad`), and what follows as HTML.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

/// Diagrams beside each other, as far as the page is wide; `svgs` are theirs.
pub fn diagrams(all: &[Diagram], svgs: impl IntoIterator<Item = String>) -> String {
    let mut out = String::from("<div class=\"diagrams\">");
    for (d, svg) in all.iter().zip(svgs) {
        let _ = write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(&d.title));
    }
    out.push_str("</div>");
    out
}

/// The page of what was seen.
pub fn to_string(watched: &Watched<'_>) -> String {
    let Watched { source, seen, findings } = *watched;
    let class = match words::verdict(seen, findings) {
        PassiveVerdict::Healthy => "good",
        PassiveVerdict::Caused => "bad",
        PassiveVerdict::Inconclusive => "warn",
    };
    let mut out = String::new();
    for (i, text) in words::headline(seen, findings).iter().enumerate() {
        let (tag, class) = if i == 0 { ("h1", class) } else { ("p", "lead") };
        let _ = write!(out, "<{tag} class=\"{class}\">{}</{tag}>", escape(text));
    }
    let _ = write!(
        out,
        "<p class=\"source\">From {}: {} packets.</p>",
        escape(source),
        crate::units::count(seen.packets.all)
    );
    for f in findings {
        let _ = write!(
            out,
            "<section><h2>{} <small>{} a call, {} of {} calls{} ({})</small></h2><p>{}</p><ul>",
            escape(f.cause.id),
            ms(f.cost_ns, true),
            f.calls,
            f.of,
            f.server.map_or(String::new(), |server| format!(" to {server}")),
            sure(f),
            escape(f.title)
        );
        for e in &f.evidence {
            let _ = write!(out, "<li><b>Seen:</b> {}</li>", escape(e));
        }
        for fix in f.fixes {
            let _ = write!(
                out,
                "<li><b>Change, {}:</b> <code>{}</code></li>",
                escape(fix.software),
                escape(fix.change)
            );
        }
        let _ = write!(out, "<li><b>Verify:</b> {}</li></ul></section>", escape(f.verify));
    }
    let shown = shown(watched);
    if !shown.is_empty() {
        let all: Vec<Diagram> = shown.into_iter().map(diagram_of).collect();
        let _ = write!(
            out,
            "<section><h2>Calls, segment by segment</h2>{}</section>",
            diagrams(&all, all.iter().map(diagram::to_svg))
        );
    }
    slowest(&mut out, &seen.slowest);
    connections(&mut out, &seen.connections);
    let doubts = words::limits(seen);
    if !doubts.is_empty() {
        out.push_str("<section><h2>What this cannot tell</h2><ul>");
        for d in &doubts {
            let _ = write!(out, "<li>{}</li>", escape(d));
        }
        out.push_str("</ul></section>");
    }
    page("linerate explain", &out)
}

/// The example of each finding and the slowest calls, each once, as many as a page bears.
fn shown<'a>(watched: &Watched<'a>) -> Vec<&'a ObservedCall> {
    const MOST: usize = 6;
    let examples = watched.findings.iter().filter_map(|f| f.example.as_ref());
    let mut shown: Vec<&ObservedCall> = Vec::new();
    for call in worst(watched).into_iter().chain(examples).chain(&watched.seen.slowest) {
        let same = |c: &&ObservedCall| c.connection == call.connection && c.start_ns == call.start_ns;
        if shown.len() < MOST && !call.segments.is_empty() && !shown.iter().any(same) {
            shown.push(call);
        }
    }
    shown
}

fn slowest(out: &mut String, calls: &[ObservedCall]) {
    if calls.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Slowest calls</h2><div class=\"wide\"><table><thead><tr><th>total</th><th>connect</th><th>send</th>\
         <th>network</th><th>behind others</th><th>server</th><th>receive</th><th class=\"l\">call</th><th class=\"l\">seen</th></tr></thead><tbody>",
    );
    for c in calls {
        out.push_str("<tr>");
        for ns in [c.total_ns, c.connect_ns, c.send_ns, c.network_ns, c.queued_ns, c.think_ns, c.receive_ns] {
            let _ = write!(out, "<td>{}</td>", ms(ns, true));
        }
        let notes: Vec<_> = c.notes.iter().map(|n| escape(&n.text)).collect();
        let name = escape(&format!("{} {} {}", c.method, c.target, c.status));
        let _ = write!(out, "<td class=\"l name\">{name}</td><td class=\"l\">{}</td></tr>", notes.join("; "));
    }
    out.push_str("</tbody></table></div></section>");
}

fn connections(out: &mut String, all: &[ConnectionSummary]) {
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Connections</h2><div class=\"wide\"><table><thead><tr><th class=\"l\">client</th><th class=\"l\">server</th>\
         <th class=\"l\">carried</th><th>requests</th><th>answers</th><th>segments</th><th>round trip</th><th class=\"l\">remarkable</th></tr></thead><tbody>",
    );
    for c in all {
        let rtt = c
            .handshake
            .and_then(|h| h.to_server_ns.zip(h.to_client_ns))
            .map_or("-".to_owned(), |(a, b)| ms(a + b, true));
        let marks = marks_of(c);
        let _ = write!(
            out,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{rtt}</td><td class=\"l\">{}</td></tr>",
            c.client,
            c.server,
            carried(c.carried),
            c.requests,
            c.answers,
            c.segments[0] + c.segments[1],
            escape(marks.trim_start_matches("; "))
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// What ran, where and when, at the end of a page.
pub(crate) fn footer(out: &mut String, e: &Environment, started_at: Option<&str>) {
    let more = [Some(e.io.as_str()), started_at].into_iter().flatten().filter(|text| !text.is_empty());
    let _ = write!(
        out,
        "<footer><code>{}</code><br>linerate {}, {}, on {} ({}){}</footer>",
        escape(&e.command),
        escape(&e.version),
        escape(&e.kernel),
        escape(&e.host),
        units::several(u64::from(e.cpus), "core", "cores"),
        more.map(|text| format!(", {}", escape(text))).collect::<String>()
    );
}

/// A section that lists pieces of HTML; nothing where there are none.
pub(crate) fn list(out: &mut String, name: &str, items: impl Iterator<Item = String>) {
    let items: String = items.map(|item| format!("<li>{item}</li>")).collect();
    if !items.is_empty() {
        let _ = write!(out, "<section><h2>{name}</h2><ul>{items}</ul></section>");
    }
}

/// What became of a check, as a piece of HTML; `value` is one too.
pub(crate) fn checked(pass: bool, expr: &str, value: &str) -> String {
    let (tag, class, word) = if pass { ("b", "good", "ok") } else { ("span", "bad", "FAILED") };
    format!("<{tag} class=\"{class}\">{word}</{tag}> <code>{}</code>: {value}", escape(expr))
}
