//! How text may look: colour and characters are additions, never the only carrier of a meaning.

/// Text without control characters: what a server, a peer or a file says must not steer the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The abilities of the terminal or file that shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colour and weight by escape sequences.
    pub colour: bool,
    /// Characters beyond ASCII (bars, the micro sign).
    pub unicode: bool,
    /// Columns of the terminal.
    pub width: u16,
}

impl Default for Style {
    fn default() -> Self {
        Style { colour: false, unicode: true, width: 80 }
    }
}

impl Style {
    /// `text` in bold, if the style has colour.
    pub fn bold(&self, text: &str) -> String {
        self.sgr("1", text)
    }

    /// `text` dimmed, if the style has colour.
    pub fn dim(&self, text: &str) -> String {
        self.sgr("2", text)
    }

    /// `text` in the colour of success, if the style has colour.
    pub fn good(&self, text: &str) -> String {
        self.sgr("32", text)
    }

    /// `text` in the colour of a warning, if the style has colour.
    pub fn warn(&self, text: &str) -> String {
        self.sgr("33", text)
    }

    /// `text` in the colour of failure, if the style has colour.
    pub fn bad(&self, text: &str) -> String {
        self.sgr("1;31", text)
    }

    fn sgr(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A bar of `share` (0 to 1) of `width` columns. A share above 0 is always visible.
    pub fn bar(&self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        if share <= 0.0 {
            return String::new();
        }
        let columns = share.min(1.0) * width as f64;
        if !self.unicode {
            return "#".repeat((columns.round() as usize).max(1));
        }
        let eighths = ((columns * 8.0).round() as usize).max(1);
        "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
    }

    /// `text` broken into lines of at most the style's width, each after `indent`. Control
    /// characters are dropped: what a server sent must not steer the terminal.
    pub fn wrapped(&self, indent: &str, text: &str) -> String {
        let room = usize::from(self.width).saturating_sub(indent.chars().count()).max(20);
        let mut out = String::new();
        let mut used = 0;
        for word in glued(text) {
            let length = word.chars().count();
            if used > 0 && used + 1 + length > room {
                out.push('\n');
                used = 0;
            }
            out.push_str(if used == 0 { indent } else { " " });
            out.extend(word.chars().filter(|c| !c.is_control()));
            used += length + usize::from(used > 0);
        }
        out
    }
}

/// The words of a text; a number stays with its unit.
fn glued(text: &str) -> Vec<String> {
    const UNITS: [&str; 9] = ["s", "ms", "us", "µs", "min", "%", "x", "kB", "MB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let after_number = words.last().is_some_and(|last| last.ends_with(|c: char| c.is_ascii_digit()));
        match words.last_mut() {
            Some(last) if after_number && UNITS.contains(&bare) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_is_still_seen() {
        let ascii = Style { unicode: false, ..Style::default() };
        assert_eq!(ascii.bar(0.0001, 10), "#");
        assert_eq!(Style::default().bar(0.0001, 10), "▏");
        assert_eq!(ascii.bar(0.0, 10), "");
        assert_eq!(ascii.bar(2.0, 4), "####");
        assert_eq!(Style::default().bar(0.5, 3), "█▌");
    }

    #[test]
    fn words_wrap_with_their_indent() {
        let narrow = Style { width: 24, ..Style::default() };
        assert_eq!(narrow.wrapped("  ", "one two three four five six"), "  one two three four\n  five six");
        assert_eq!(
            narrow.wrapped("", "it took, all in all, 10 s, no more"),
            "it took, all in all,\n10 s, no more"
        );
    }

    #[test]
    fn without_colour_no_escape_is_written() {
        let plain = Style::default();
        assert_eq!([plain.bold("a"), plain.bad("b"), plain.dim("c")].concat(), "abc");
        assert!(Style { colour: true, ..plain }.good("x").contains("\x1b[32m"));
    }
}
