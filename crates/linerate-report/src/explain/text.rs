//! For a terminal: the verdict in a few lines of plain words, then what it stands on, then the call as a picture.

use linerate_explain::evidence::{Proof, Trial};
use linerate_explain::{Diagnosis, Verdict, Whole};

use super::sequence;
use crate::Style;

/// The diagnosis as text.
pub fn to_string(diagnosis: &Diagnosis, style: Style) -> String {
    let mut page = Page { style, text: String::new() };
    page.verdict(diagnosis);
    page.parts(diagnosis);
    for (i, cause) in diagnosis.causes.iter().enumerate() {
        page.cause(i + 1, cause, &diagnosis.url);
    }
    page.list("Ruled out", diagnosis.ruled_out.iter().map(|r| format!("{}: {}", r.id, r.why)));
    page.list("Limits", diagnosis.limits.iter().cloned());
    page.heading("The call");
    page.text.push_str(&sequence::draw(&diagnosis.call, style));
    page.line(
        &style.dim(&format!(
            "{} calls in {:.1} s, to {}",
            diagnosis.calls, diagnosis.took_s, diagnosis.address
        )),
    );
    page.text
}

/// A time to three digits or so.
pub(super) fn time(ms: f64) -> String {
    match ms {
        _ if ms < 1.0 => format!("{ms:.2} ms"),
        _ if ms < 100.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}

struct Page {
    style: Style,
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A paragraph, broken at the width; lines after the first begin with `indent` spaces.
    fn paragraph(&mut self, first: &str, indent: usize, words: &str) {
        let width = usize::from(self.style.width.clamp(40, 110));
        let mut line = first.to_owned();
        let mut empty = true;
        // What comes from a server must not steer the terminal.
        let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        for word in words.split_whitespace() {
            if !empty && line.chars().count() + 1 + word.chars().count() > width {
                self.line(&line);
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.line(&line);
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

    /// At most five lines.
    fn verdict(&mut self, d: &Diagnosis) {
        let total = d.dns_ms + d.call.total.as_secs_f64() * 1e3;
        match d.whole {
            Whole::Healthy => {
                let trips = if d.call.fresh { 2.0 } else { 1.0 };
                let network = (d.rtt_ms * trips).min(total);
                let words = format!(
                    "Nothing is wrong: your call takes {}, of which {} is the network.",
                    time(total),
                    time(network)
                );
                let good = self.style.good(&words);
                self.line(&good);
            }
            Whole::Inconclusive => {
                let why = d.limits.first().map_or("something is wrong", String::as_str);
                self.paragraph("", 0, &format!("No cause can be named: {why}."));
            }
            Whole::Caused => {
                let Some(first) = d.causes.first() else { return };
                let head = format!(
                    "{} of {}: {}.",
                    time(first.cost_ms()),
                    time(total.max(first.cost_ms())),
                    first.title()
                );
                self.paragraph("", 0, &head);
                let mut rest = format!("{}: {}", first.id(), sure(first.proof()));
                if let Some(trial) = first.trials().first() {
                    rest.push_str(&format!(
                        "; with {} the part in question takes {} instead of {}",
                        trial.changed,
                        time(trial.after_ms()),
                        time(trial.before_ms())
                    ));
                }
                self.paragraph("", 0, &format!("{rest}."));
                if let [_, more @ ..] = d.causes.as_slice()
                    && !more.is_empty()
                {
                    let more: Vec<String> =
                        more.iter().map(|c| format!("{} ({})", c.id(), time(c.cost_ms()))).collect();
                    self.paragraph("", 0, &format!("Besides: {}.", more.join(", ")));
                }
            }
        }
    }

    fn parts(&mut self, d: &Diagnosis) {
        let call = &d.call;
        let total = d.dns_ms + call.total.as_secs_f64() * 1e3;
        self.heading(if call.fresh {
            "Where the time goes (a new connection)"
        } else {
            "Where the time goes (a kept connection)"
        });
        let ms = |t: std::time::Duration| t.as_secs_f64() * 1e3;
        let parts = [
            ("name lookup", d.dns_ms),
            ("connect", ms(call.connect)),
            ("send", ms(call.send)),
            ("wait for the first byte", ms(call.wait)),
            ("receive", ms(call.receive)),
            ("unexplained", ms(call.unexplained())),
        ];
        for (name, part) in parts.iter().filter(|(name, part)| *part > 0.0 || *name == "unexplained") {
            let bar = (part / total.max(1e-9) * 30.0).round() as usize;
            let sign = if self.style.unicode { "\u{2588}" } else { "#" };
            self.line(format!("  {name:<24}{:>10}  {}", time(*part), sign.repeat(bar)).trim_end());
        }
        self.line(&format!("  {:<24}{:>10}  (network round trip {})", "all", time(total), time(d.rtt_ms)));
    }

    fn cause(&mut self, n: usize, cause: &Verdict, url: &str) {
        self.heading(&format!("Cause {n}: {}", cause.id()));
        self.paragraph("  ", 2, &format!("{}.", cause.title()));
        let level = match cause.proof() {
            Proof::Proved => self.style.bad(cause.proof().name()),
            _ => self.style.warn(cause.proof().name()),
        };
        self.line(&format!(
            "  costs {} a call; {level} (confidence {:.2})",
            time(cause.cost_ms()),
            cause.confidence()
        ));
        for trial in cause.trials() {
            self.trial(trial);
        }
        for evidence in cause.evidence() {
            self.paragraph("  - ", 4, evidence);
        }
        self.line("  What to change:");
        for fix in cause.fixes() {
            self.paragraph("    ", 8, &format!("{}: {}", fix.software, fix.change));
        }
        self.paragraph("  Verify: ", 10, &cause.verify().replace("{url}", url));
    }

    fn trial(&mut self, trial: &Trial) {
        let words = format!(
            "experiment: {} ({}): {} without, {} with; it takes away {} ({} to {}), p = {:.4}, {} and {} calls in random order",
            trial.name,
            trial.changed,
            time(trial.before_ms()),
            time(trial.after_ms()),
            time(trial.effect.value),
            time(trial.effect.low),
            time(trial.effect.high),
            trial.p_value,
            trial.without.len(),
            trial.with.len()
        );
        self.paragraph("  - ", 4, &words);
    }
}

fn sure(proof: Proof) -> &'static str {
    match proof {
        Proof::Proved => "proved by experiment or by the kernel's own counters",
        Proof::Likely => {
            "likely: it was seen, and what else could be was ruled out as far as it can be from here"
        }
        Proof::Possible => "possible: it was seen, and others are as well possible",
    }
}
