//! Finds out what our output streams can show.

use std::io::{self, IsTerminal, Write};

use linerate_report::Style;

use crate::fault::{CommandFault, said};

/// The style for a stream: colour only on a terminal that has it and whose user hasn't refused it
/// (<https://no-color.org>).
pub(crate) fn style(stream: &impl IsTerminal) -> Style {
    let is_terminal = stream.is_terminal();
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    let width = if is_terminal { columns() } else { Style::default().width };
    Style { colour: is_terminal && !refused && !dumb, unicode: unicode(), width }
}

/// The style for text that [`print_beside`] prints.
pub(crate) fn style_beside(to_stderr: bool) -> Style {
    if to_stderr { style(&io::stderr()) } else { style(&io::stdout()) }
}

/// Whether a picture can be redrawn in place on standard error.
pub(crate) fn can_redraw() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    std::io::stderr().is_terminal() && !dumb && unicode() && columns() >= linerate_report::limits::LEAST_WIDTH
}

/// Columns of the terminal.
pub(crate) fn columns() -> u16 {
    let typed = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    crossterm::terminal::size().ok().map(|(columns, _)| columns).or(typed).filter(|c| *c > 0).unwrap_or(80)
}

/// Rows of the terminal.
pub(crate) fn rows() -> u16 {
    crossterm::terminal::size().map_or(24, |(_, rows)| rows)
}

/// Whether the locale's characters are UTF-8 (POSIX: the first of the three that is set decides).
fn unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    is_utf8(["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set))
}

/// Containers, units and CI set none. Their text ends in UTF-8 terminals and browsers.
fn is_utf8(locale: Option<String>) -> bool {
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Prints to standard output. A reader that closed the pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), CommandFault> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandFault::ours(format!("standard output cannot be written: {}", said(&e))))
        }
        _ => Ok(()),
    }
}

/// Writes a line of progress over the one before it, on standard error.
///
/// A line that wraps cannot be written over, so it is cut to the terminal's width.
pub(crate) fn overwrite_line(text: &str) {
    let columns = usize::from(columns()).saturating_sub(1);
    let _ = write!(io::stderr(), "\r\x1b[K{}", cut(text, columns, unicode()));
}

/// The first `columns` columns of a line, with a mark where something is missing.
fn cut(text: &str, columns: usize, unicode: bool) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mark = if unicode { "…" } else { "..." };
    let kept: String = text.chars().take(columns.saturating_sub(mark.chars().count())).collect();
    format!("{}{mark}", kept.trim_end())
}

/// Prints what people read: to standard error where standard output carries the JSON.
pub(crate) fn print_beside(text: &str, to_stderr: bool) -> Result<(), CommandFault> {
    if to_stderr {
        // The reader may have closed the pipe. The JSON contains all of this, so nothing is lost.
        let _ = io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    print(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf8_unless_the_locale_says_otherwise() {
        for (locale, expected) in [
            (None, true),
            (Some("C.UTF-8"), true),
            (Some("de_DE.utf8"), true),
            (Some("C"), false),
            (Some("en_US.ISO-8859-1"), false),
        ] {
            assert_eq!(is_utf8(locale.map(str::to_owned)), expected, "{locale:?}");
        }
    }

    #[test]
    fn a_line_of_progress_never_wraps() {
        assert_eq!(cut("5 of 8  short", 79, true), "5 of 8  short");
        assert_eq!(cut("5 of 8  short", 10, true), "5 of 8  s…");
        assert_eq!(cut("5 of 8  short", 10, false), "5 of 8...");
        assert_eq!(cut("", 79, true), "");
    }
}
