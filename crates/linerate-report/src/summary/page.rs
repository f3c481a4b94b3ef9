//! The page that the sections of a summary write.

use crate::style::Style;
use crate::units;

/// What a line says of itself before colour does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Good,
    Doubt,
    Bad,
}

/// Text that grows section by section.
pub(super) struct SummaryText {
    pub(super) style: Style,
    pub(super) out: String,
}

/// Where the text of a section begins.
const LABEL: usize = 14;

impl SummaryText {
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    pub(super) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// `label      text`, the text wrapped beside its label.
    pub(super) fn labelled(&mut self, label: &str, text: &str) {
        let indent = " ".repeat(LABEL);
        let wrapped = self.style.wrapped(&indent, text);
        let mut lines = wrapped.lines();
        let first = lines.next().unwrap_or_default().trim_start();
        let label = self.style.bold(&format!("{label:<LABEL$}"));
        self.line(&format!("{label}{first}"));
        for line in lines {
            self.line(line);
        }
    }

    /// A line that stands out, by a word as well as by colour.
    pub(super) fn marked(&mut self, mark: Mark, text: &str) {
        let (word, colour): (&str, fn(&Style, &str) -> String) = match mark {
            Mark::Good => ("ok", Style::good),
            Mark::Doubt => ("note", Style::warn),
            Mark::Bad => ("FAILED", Style::bad),
        };
        let indent = " ".repeat(LABEL);
        let wrapped = self.style.wrapped(&indent, text);
        let first = colour(&self.style, &format!("{word:<LABEL$}"));
        self.line(&format!("{first}{}", wrapped.trim_start()));
    }

    pub(super) fn time(&self, nanos: f64) -> String {
        units::time_ns(nanos, self.style.unicode)
    }
}
