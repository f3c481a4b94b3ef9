//! Errors that point into a plan file.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::plan::limits::MAX_SHOWN_CHARS;

/// An error in a plan file: its place, what would be right, and the line with a mark under the
/// place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    path: String,
    message: String,
    place: Option<PlanPlace>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PlanPlace {
    line: usize,
    column: usize,
    /// The line, or what of it fits around the place; one character per column.
    text: String,
    /// Characters of it before the marked ones.
    before: usize,
    marked: usize,
}

impl FileError {
    /// About the file as a whole.
    pub(super) fn whole(path: &Path, message: impl Into<String>) -> FileError {
        FileError { path: path.display().to_string(), message: message.into(), place: None }
    }

    /// About the bytes `span` of `text`.
    pub(super) fn at(path: &Path, text: &str, span: Range<usize>, message: impl Into<String>) -> FileError {
        FileError { place: Some(PlanPlace::of(text, span)), ..FileError::whole(path, message) }
    }

    /// The same with its reason.
    pub(super) fn because(self, reason: &str) -> FileError {
        FileError { message: format!("{}: {reason}", self.message), ..self }
    }

    /// Line, from 1; `None` when the error is about the whole file.
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|p| p.line)
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> Option<usize> {
        self.place.as_ref().map(|p| p.column)
    }

    /// The problem, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl PlanPlace {
    fn of(text: &str, span: Range<usize>) -> PlanPlace {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let before = text[line_start..start].chars().count();
        let marked = text[start..end.min(line_end)].trim_end().chars().count().max(1);
        // A long line is shown from a bit before the place on.
        let skipped = if before + marked.min(20) > MAX_SHOWN_CHARS { before - 20.min(before) } else { 0 };
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = line.chars().skip(skipped).take(MAX_SHOWN_CHARS).map(visible).collect();
        PlanPlace {
            line: text[..line_start].matches('\n').count() + 1,
            column: before + 1,
            marked: marked.min((shown.chars().count() + 1).saturating_sub(before - skipped)).max(1),
            text: shown,
            before: before - skipped,
        }
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else { return write!(f, "{}: {}", self.path, self.message) };
        let PlanPlace { line, column, text, before, marked } = place;
        let number = line.to_string();
        writeln!(f, "{}:{line}:{column}: {}", self.path, self.message)?;
        writeln!(f, "  {number} | {}", text.trim_end())?;
        write!(f, "  {:width$} | {:before$}{}", "", "", "^".repeat(*marked), width = number.len())
    }
}

impl std::error::Error for FileError {}
