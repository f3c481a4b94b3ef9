//! The page that the sections of a summary write.

use crate::style::Style;
use crate::units;

/// How much of a summary is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryLength {
    /// The figure, the percentiles in a line, what failed, and the checks: a screen's quarter.
    Short,
    /// All that is out of the ordinary, and the percentiles by row: a run without trouble takes 20 lines.
    Screen,
    /// All sections.
    Full,
}

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
    pub(super) length: SummaryLength,
    /// The last lines are facts that the next ones belong to.
    pub(super) grouped: bool,
    pub(super) out: String,
}

/// A time, or the bound of one.
pub(super) fn bounded(style: Style, nanos: f64, at_least: bool) -> String {
    format!("{}{}", if at_least { ">= " } else { "" }, units::time_ns(nanos, style.unicode))
}

/// Where the text of a section begins.
pub(super) const LABEL: usize = 14;

impl SummaryText {
    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    pub(super) fn blank(&mut self) {
        self.grouped = false;
        self.out.push('\n');
    }

    pub(super) fn is_full(&self) -> bool {
        self.length == SummaryLength::Full
    }

    /// A blank line before facts, unless they follow upon others and room is scarce.
    pub(super) fn gap(&mut self) {
        if self.is_full() || !self.grouped {
            self.blank();
        }
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
        // Notes are the same text in JSON.
        let text = if self.style.unicode { text.to_owned() } else { text.replace('µ', "u") };
        let wrapped = self.style.wrapped(&indent, &text);
        let first = colour(&self.style, &format!("{word:<LABEL$}"));
        self.line(&format!("{first}{}", wrapped.trim_start()));
    }

    pub(super) fn bound(&self, nanos: f64, at_least: bool) -> String {
        bounded(self.style, nanos, at_least)
    }

    pub(super) fn time(&self, nanos: f64) -> String {
        units::time_ns(nanos, self.style.unicode)
    }
}
