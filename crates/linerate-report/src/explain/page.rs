//! As one page of HTML that needs nothing else: the verdict, the call as a diagram, the experiments, what was ruled out.

use std::fmt::Write as _;
use std::time::Duration;

use linerate_explain::outside_in;
use linerate_explain::{Diagnosis, Verdict, Whole};

use super::words::{self, capital, time, total_ms};
use super::{Since, chart, picture, process};
use crate::markup::escape;
use crate::passive::page::{diagrams, page};
use crate::{Environment, diagram};

/// The page of a diagnosis.
pub fn to_string(d: &Diagnosis, since: Option<&Since>, environment: &Environment) -> String {
    let class = match d.whole {
        Whole::Healthy => "good",
        Whole::Caused => "bad",
        Whole::Inconclusive => "warn",
    };
    let mut out = String::new();
    for (i, text) in words::headline(d, true).iter().enumerate() {
        let (tag, class) = if i == 0 { ("h1", class) } else { ("p", "lead") };
        let _ = write!(out, "<{tag} class=\"{class}\">{}</{tag}>", escape(text));
    }
    if words::is_insecure(d) {
        let _ = write!(out, "<p class=\"lead\"><b class=\"warn\">{}</b></p>", words::INSECURE);
    }
    let _ = write!(
        out,
        "<p class=\"source\">{} at {}: {} in {:.1} s.</p>",
        escape(&d.url),
        escape(&d.address),
        crate::units::several(d.calls as u64, "call", "calls"),
        d.took_s
    );
    if let Some(since) = since {
        since_section(&mut out, since);
    }
    let pictures = picture::of(d, true);
    let calls = diagrams(&pictures, diagram::to_svgs(&pictures));
    let _ = write!(out, "<section><h2>{}</h2>{calls}", call_title(d));
    if let Some(p) = &d.shown.packets {
        let _ = write!(out, "<p class=\"source\">{}</p>", escape(&super::text::captured(p)));
    }
    out.push_str("</section>");
    parts(&mut out, d);
    out.push_str("<section><h2>Outside in</h2><div class=\"wide\"><table>");
    for layer in outside_in::of(d) {
        let class = if layer.status == outside_in::Status::Cause { " class=\"bad\"" } else { "" };
        let (place, words) = (layer.place.words(), escape(&words::layer(&layer)));
        let _ = write!(
            out,
            "<tr><th class=\"l\">{place}</th><td class=\"l\"><span{class}>{words}</span></td></tr>"
        );
    }
    out.push_str("</table></div></section>");
    for (i, cause) in d.causes.iter().enumerate() {
        cause_section(&mut out, d, i, cause);
    }
    if let Some(p) = &d.shown.process {
        let (head, lines) = process::lines(p, true);
        let _ = write!(out, "<section><h2>{}</h2><div class=\"wide\"><table>", escape(&head));
        for (name, text) in lines {
            let text = escape(&text);
            let _ = write!(out, "<tr><th class=\"l\">{name}</th><td class=\"l\">{text}</td></tr>");
        }
        out.push_str("</table></div></section>");
    }
    let ruled_out = d.ruled_out.iter().map(|r| format!("<b>{}</b>: {}", r.cause.id, escape(&r.why)));
    list(&mut out, "Ruled out", ruled_out);
    list(&mut out, "Limits", d.limits.iter().map(|l| escape(l)));
    let _ = write!(
        out,
        "<footer><code>{}</code><br>linerate {}, {}, on {}</footer>",
        escape(&environment.command),
        escape(&environment.version),
        escape(&environment.kernel),
        escape(&environment.host)
    );
    page("linerate explain", &out)
}

/// What has changed since the diagnosis that was kept.
fn since_section(out: &mut String, since: &Since) {
    let class = if since.is_fine() { "good" } else { "warn" };
    let _ = write!(out, "<section><h2>{}</h2>", escape(&since.heading()));
    let lines = since.lines(true);
    for (i, text) in lines.iter().enumerate() {
        let (tag, class) = if i + 1 == lines.len() { ("b", class) } else { ("span", "") };
        let _ = write!(out, "<p class=\"lead\"><{tag} class=\"{class}\">{}</{tag}></p>", escape(text));
    }
    out.push_str("</section>");
}

fn call_title(d: &Diagnosis) -> &'static str {
    if d.shown.arms.is_some() { "The call, and the same call with one thing changed" } else { "The call" }
}

fn list(out: &mut String, name: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<section><h2>{name}</h2><ul>");
    for item in items {
        let _ = write!(out, "<li>{item}</li>");
    }
    out.push_str("</ul></section>");
}

/// Where the time goes, as bars.
fn parts(out: &mut String, d: &Diagnosis) {
    let total = total_ms(d);
    let _ = write!(
        out,
        "<section><h2>Where the time goes <small>in that call, on a {} connection; the network's round trip is {}</small></h2><table class=\"parts\">",
        if d.call.fresh { "new" } else { "kept" },
        time(d.rtt_ms, true)
    );
    for (name, ms) in shares(d) {
        let _ = write!(
            out,
            "<tr><th class=\"l\">{name}</th><td>{}</td><td class=\"bar\"><span style=\"width:{:.1}%\"></span></td></tr>",
            time(ms, true),
            (100.0 * ms / total.max(1e-9)).min(100.0)
        );
    }
    let _ = write!(out, "<tr><th class=\"l\">all</th><td>{}</td><td></td></tr></table>", time(total, true));
    let lines = [
        words::tls(d, true),
        words::http2(d),
        words::first_call(d, true),
        words::at_once(d, true),
        words::this_machine(d),
    ];
    for words in lines.into_iter().flatten() {
        let _ = write!(out, "<p>{}</p>", escape(&words));
    }
    out.push_str("</section>");
}

/// The parts of the call that there are, milliseconds.
pub(super) fn shares(d: &Diagnosis) -> Vec<(&'static str, f64)> {
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    let c = &d.call;
    let all = [
        ("name lookup", d.dns_ms),
        ("connect", ms(c.connect)),
        ("TLS handshake", ms(c.tls_took())),
        ("send", ms(c.send)),
        ("wait for the first byte", ms(c.wait)),
        ("receive", ms(c.receive)),
        ("unexplained", ms(c.unexplained())),
    ];
    // Less than a microsecond is nothing that could be explained.
    all.into_iter().filter(|(_, ms)| *ms >= 1e-3).collect()
}

fn cause_section(out: &mut String, d: &Diagnosis, i: usize, cause: &Verdict) {
    let _ = write!(
        out,
        "<section><h2>Cause {}: {} <small>{} a call, {} (confidence {:.2})</small></h2><p>{}.</p>",
        i + 1,
        escape(cause.id()),
        time(cause.cost_ms(), true),
        cause.proof().name(),
        cause.confidence(),
        escape(&capital(cause.title()))
    );
    if let Some(words) = words::predicted(cause, true) {
        let _ = write!(out, "<p><b>Once it is fixed:</b> {}</p>", escape(&words));
    }
    out.push_str("<div class=\"diagrams\">");
    for trial in cause.trials() {
        let _ = write!(
            out,
            "<figure><figcaption>{}: {}</figcaption>{}<p class=\"source\">It takes away {} ({} to {}), p = {:.4}; {} and {} calls in random order.</p></figure>",
            escape(&capital(&trial.name)),
            escape(&trial.changed),
            chart::trial(trial),
            time(trial.effect.value, true),
            time(trial.effect.low, true),
            time(trial.effect.high, true),
            trial.p_value,
            trial.without.len(),
            trial.with.len()
        );
    }
    if let Some(slope) = cause.dose().filter(|_| i == 0 && d.shown.doses.len() > 1) {
        let _ = write!(
            out,
            "<figure><figcaption>Dose and response: each millisecond more makes it {:.2} ms longer ({:.2} to {:.2})</figcaption>{}</figure>",
            slope.value,
            slope.low,
            slope.high,
            chart::doses(&d.shown.doses, slope)
        );
    }
    out.push_str("</div><ul>");
    if let Some(seen) = d.shown.packets.as_ref().and_then(|p| p.seen_of(cause.cause())) {
        let _ = write!(out, "<li><b>Seen in the packets:</b> {}</li>", escape(seen));
    }
    for evidence in cause.evidence() {
        let _ = write!(out, "<li>{}</li>", escape(evidence));
    }
    out.push_str("</ul><p><b>What to change</b></p><table class=\"fixes\">");
    let more = words::more_advice(d, cause).map(|c| ("other software".to_owned(), c));
    for (software, change) in words::advice(d, cause).into_iter().chain(more) {
        let _ = write!(
            out,
            "<tr><th class=\"l\">{}</th><td class=\"l\">{}</td></tr>",
            escape(&software),
            escape(&change)
        );
    }
    let notes =
        words::verify_notes(cause, d).map_or(String::new(), |n| format!(" <small>({})</small>", escape(&n)));
    let verify = escape(&words::verify(d));
    let _ = write!(out, "</table><p><b>Verify:</b> <code>{verify}</code>{notes}</p></section>");
}
