//! For a terminal: the verdict in a few lines of plain words, the call as a picture, then what the verdict stands on.

use linerate_explain::evidence::Trial;
use linerate_explain::outside_in;
use linerate_explain::packets::Packets;
use linerate_explain::{Diagnosis, Verdict, Whole};

use super::page::shares;
use super::words::{self, time, total_ms};
use super::{Since, picture, process};
use crate::{Style, diagram, units};

/// The diagnosis as text.
pub fn to_string(diagnosis: &Diagnosis, since: Option<&Since>, style: Style) -> String {
    let style = Style { width: style.width.clamp(40, WIDEST), ..style };
    let mut page = DiagnosisText { style, text: String::new() };
    page.verdict(diagnosis);
    page.picture(diagnosis);
    page.captured(diagnosis);
    page.parts(diagnosis);
    page.outside_in(diagnosis);
    for (i, cause) in diagnosis.causes.iter().enumerate() {
        page.cause(i + 1, cause, diagnosis);
    }
    page.process(diagnosis);
    page.list("Ruled out", diagnosis.ruled_out.iter().map(|r| format!("{}: {}", r.cause.id, r.why)));
    // The first one is the verdict then, and was said.
    let said = usize::from(diagnosis.whole == Whole::Inconclusive);
    page.list("Limits", diagnosis.limits.iter().skip(said).cloned());
    page.line("");
    page.calls(diagnosis, "");
    if let Some(since) = since {
        page.since(since);
    }
    page.text
}

/// What of it fits a screen: the verdict, the picture, the places and the limits; of further causes a fix each.
/// Without a verdict all of it: what was looked at is what there is.
pub fn to_screen(diagnosis: &Diagnosis, since: Option<&Since>, style: Style) -> String {
    if diagnosis.whole == Whole::Inconclusive {
        return to_string(diagnosis, since, style);
    }
    let style = Style { width: style.width.clamp(40, WIDEST), ..style };
    let mut page = DiagnosisText { style, text: String::new() };
    page.verdict(diagnosis);
    page.picture(diagnosis);
    if diagnosis.whole != Whole::Healthy {
        // Where nothing is wrong, the place "the wire" says the same.
        page.captured(diagnosis);
    }
    if diagnosis.call.fresh {
        page.parts(diagnosis);
    } else {
        let of_protocols = [words::tls(diagnosis, style.unicode), words::http2(diagnosis)];
        for words in of_protocols.into_iter().flatten() {
            page.paragraph("", 0, &words);
        }
    }
    page.heading("Outside in");
    for layer in outside_in::of(diagnosis) {
        let room = usize::from(style.width.min(TEXT)).saturating_sub(24);
        let words = match diagnosis.whole {
            Whole::Healthy => words::layer_in_a_line(&layer, room),
            _ => words::layer_alone(&layer),
        };
        page.paragraph(&format!("  {:<21} ", layer.place.words()), 24, &words);
    }
    for (i, cause) in diagnosis.causes.iter().enumerate().skip(1) {
        page.cause_in_short(i + 1, cause, diagnosis);
    }
    page.list("Limits", diagnosis.limits.iter().cloned());
    page.line("");
    page.calls(diagnosis, "; --summary full has the rest");
    if let Some(since) = since {
        page.since(since);
    }
    page.text
}

/// Columns beyond which lines do not grow. Reason: two diagrams fit beside each other; longer lines are hard to read.
const WIDEST: u16 = 120;
/// Columns of the parts' names and times.
const BESIDE_BARS: usize = 38;
/// Columns of running text.
const TEXT: u16 = 100;

/// One sentence about the captured packets: how many, and the remarkable ones.
pub(super) fn captured(p: &Packets) -> String {
    let packets =
        units::several(p.packets, "packet of our calls was captured", "packets of our calls were captured");
    let marks: Vec<String> = p.marks.iter().map(|(words, n)| format!("{words} {n}")).collect();
    match marks.is_empty() {
        true => format!("{packets}; none is remarkable."),
        false => format!("{packets}; remarkable among them: {}.", marks.join(", ")),
    }
}

struct DiagnosisText {
    style: Style,
    text: String,
}

impl DiagnosisText {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A paragraph, broken at the width; lines after the first begin with `indent` spaces.
    fn paragraph(&mut self, first: &str, indent: usize, words: &str) {
        let width = self.style.width.min(TEXT).saturating_sub(indent as u16);
        let broken = Style { width, ..self.style }.wrapped("", words);
        let mut lines = broken.lines();
        self.line(&format!("{first}{}", lines.next().unwrap_or_default()));
        for line in lines {
            self.line(&format!("{}{line}", " ".repeat(indent)));
        }
    }

    /// A command in one piece, so that it can be pasted; on a line of its own where it does not fit behind `before`.
    fn command(&mut self, before: &str, command: &str) {
        let columns = before.chars().count() + command.chars().count();
        if columns <= usize::from(self.style.width) {
            return self.line(&format!("{before}{command}"));
        }
        let indent = before.chars().take_while(|c| *c == ' ').count() + 2;
        self.line(before);
        self.line(&format!("{}{command}", " ".repeat(indent)));
    }

    /// How many calls it took, and `more`.
    fn calls(&mut self, d: &Diagnosis, more: &str) {
        let calls = units::several(d.calls as u64, "call", "calls");
        let words = format!("{calls} in {:.1} s, to {}{more}", d.took_s, d.address);
        let dim = self.style.dim(&words);
        self.line(&dim);
    }

    fn heading(&mut self, text: &str) {
        let bold = self.style.bold(text);
        self.line("");
        self.line(&bold);
    }

    fn list(&mut self, name: &str, items: impl Iterator<Item = String>) {
        let mut items = items.peekable();
        if items.peek().is_none() {
            return;
        }
        self.heading(name);
        for item in items {
            self.paragraph("  - ", 4, &item);
        }
    }

    fn time(&self, ms: f64) -> String {
        time(ms, self.style.unicode)
    }

    fn verdict(&mut self, d: &Diagnosis) {
        for (i, line) in words::headline(d, self.style.unicode).iter().enumerate() {
            if let Some(before) = line.strip_suffix(&words::verify(d)) {
                self.command(before, &words::verify(d));
                continue;
            }
            let line = Style { width: self.style.width.min(TEXT), ..self.style }.wrapped("", line);
            for line in line.lines() {
                let shown = match (i, d.whole) {
                    (0, Whole::Healthy) => self.style.good(line),
                    (0, Whole::Caused) => self.style.bad(line),
                    (0, Whole::Inconclusive) => self.style.warn(line),
                    _ => line.to_owned(),
                };
                self.line(&shown);
            }
        }
        if words::is_insecure(d) {
            let shown = self.style.warn(words::INSECURE);
            self.line(&shown);
        }
    }

    fn picture(&mut self, d: &Diagnosis) {
        self.line("");
        let all = picture::of(d, self.style.unicode);
        self.text.push_str(&diagram::beside(&all, self.style));
    }

    fn captured(&mut self, d: &Diagnosis) {
        if let Some(p) = &d.shown.packets {
            let words = captured(p);
            let dim = self.style.dim(&words);
            self.line(&dim);
        }
    }

    fn parts(&mut self, d: &Diagnosis) {
        let total = total_ms(d);
        self.heading(if d.call.fresh {
            "Where the time goes in that call (a new connection)"
        } else {
            "Where the time goes in that call (a kept connection)"
        });
        for (name, part) in shares(d) {
            let room = usize::from(self.style.width).saturating_sub(BESIDE_BARS).clamp(10, 30);
            let bar = self.style.bar(part / total.max(1e-9), room);
            let bar = if bar == "▏" { String::new() } else { bar };
            self.line(&format!("  {name:<24}{:>10}  {bar}", self.time(part)));
        }
        let (all, rtt) = (self.time(total), self.time(d.rtt_ms));
        self.paragraph(
            &format!("  {:<24}{all:>10}  ", "all"),
            BESIDE_BARS,
            &format!("(network round trip {rtt})"),
        );
        let lines = [
            words::tls(d, self.style.unicode),
            words::http2(d),
            words::first_call(d, self.style.unicode),
            words::at_once(d, self.style.unicode),
            words::this_machine(d),
        ];
        for words in lines.into_iter().flatten() {
            self.paragraph("  ", 2, &words);
        }
    }

    fn outside_in(&mut self, d: &Diagnosis) {
        self.heading("Outside in");
        for layer in outside_in::of(d) {
            self.paragraph(&format!("  {:<21} ", layer.place.words()), 24, &words::layer(&layer));
        }
    }

    fn cause(&mut self, n: usize, cause: &Verdict, d: &Diagnosis) {
        self.heading(&format!("Cause {n}: {}", cause.id()));
        if n > 1 {
            // The first one's is the verdict.
            self.paragraph("  ", 2, &format!("{}.", cause.title()));
        }
        let (cost, level) = (self.time(cause.cost_ms()), words::meaning(cause.proof()));
        self.paragraph("  ", 2, &format!("costs {cost} a call; {level} ({:.2})", cause.confidence()));
        if let Some(words) = words::predicted(cause, self.style.unicode) {
            self.paragraph("  ", 2, &format!("once it is fixed: {words}"));
        }
        for trial in cause.trials() {
            self.trial(trial);
        }
        for evidence in cause.evidence() {
            self.paragraph("  - ", 4, evidence);
        }
        if let Some(seen) = d.shown.packets.as_ref().and_then(|p| p.seen_of(cause.cause())) {
            self.paragraph("  - ", 4, &format!("seen in the packets, too: {seen}"));
        }
        self.line("  What to change:");
        for (software, change) in words::advice(d, cause) {
            self.paragraph("    ", 8, &format!("{software}: {change}"));
        }
        if let Some(command) = words::more_advice(d, cause) {
            self.command("    other software: ", &command);
        }
        self.command("  Verify: ", &words::verify(d));
        if let Some(notes) = words::verify_notes(cause, d) {
            self.paragraph("          ", 10, &format!("({notes})"));
        }
    }

    /// What a cause beside the verdict's costs, how sure it is, and the first thing to change.
    fn cause_in_short(&mut self, n: usize, cause: &Verdict, d: &Diagnosis) {
        self.heading(&format!("Cause {n}: {}", cause.id()));
        let (cost, sure) = (self.time(cause.cost_ms()), cause.proof().name());
        self.paragraph("  ", 2, &format!("{}: {cost} a call, {sure}.", cause.title()));
        if let Some((software, change)) = words::advice(d, cause).first() {
            self.paragraph("  ", 2, &format!("Change ({software}): {change}."));
        }
    }

    fn trial(&mut self, trial: &Trial) {
        let words = format!(
            "experiment: {} ({}): {} without, {} with; it takes away {} ({} to {}), p = {:.4}, {} and {} calls in random order",
            trial.name,
            trial.changed,
            self.time(trial.before_ms()),
            self.time(trial.after_ms()),
            self.time(trial.effect.value),
            self.time(trial.effect.low),
            self.time(trial.effect.high),
            trial.p_value,
            trial.without.len(),
            trial.with.len()
        );
        self.paragraph("  - ", 4, &words);
    }

    fn since(&mut self, since: &Since) {
        self.heading(&since.heading());
        let lines = since.lines(self.style.unicode);
        for (i, words) in lines.iter().enumerate() {
            let last = i + 1 == lines.len();
            let width = self.style.width.min(TEXT);
            for line in (Style { width, ..self.style }).wrapped("  ", words).lines() {
                let shown = match (last, since.is_fine()) {
                    (true, true) => self.style.good(line),
                    (true, false) => self.style.warn(line),
                    _ => line.to_owned(),
                };
                self.line(&shown);
            }
        }
    }

    fn process(&mut self, d: &Diagnosis) {
        let Some(p) = &d.shown.process else { return };
        let (head, lines) = process::lines(p, self.style.unicode);
        self.heading(&head);
        for (name, text) in lines {
            self.paragraph(&format!("  {name:<12}"), 14, &text);
        }
    }
}
