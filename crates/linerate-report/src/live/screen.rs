//! A picture that is redrawn in place at the end of what a terminal shows.

use std::io::{self, Write};

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::style::{Attribute, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use ratatui::backend::IntoCrossterm;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Puts pictures on a terminal, each over the one before.
#[derive(Debug, Default)]
pub struct Screen {
    /// Columns used in each line of the picture that stands there.
    standing: Vec<u16>,
}

impl Screen {
    /// A blank screen.
    pub fn new() -> Screen {
        Screen::default()
    }

    /// Shows `picture` in place of the one before. `columns`: the terminal's width now.
    pub fn show(
        &mut self,
        picture: &Buffer,
        columns: u16,
        colour: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(4096);
        queue!(bytes, BeginSynchronizedUpdate)?;
        self.back(columns, &mut bytes)?;
        self.standing.clear();
        for y in picture.area.top()..picture.area.bottom() {
            let used = used_columns(picture, y);
            // Before the text: behind a full line some terminals would erase its last column.
            queue!(bytes, Clear(ClearType::UntilNewLine))?;
            for x in picture.area.left()..picture.area.left() + used {
                paint(&picture[(x, y)], colour, &mut bytes)?;
            }
            queue!(bytes, Print("\r\n"))?;
            self.standing.push(used);
        }
        // After the window changed its size, something of the old picture may stand below.
        queue!(bytes, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Takes the picture away.
    pub fn clear(&mut self, columns: u16, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        let rows = self.rows(columns);
        self.back(columns, &mut bytes)?;
        // Line by line: what is erased from the first cell of the screen on, tmux keeps above it.
        for _ in 0..rows {
            queue!(bytes, Clear(ClearType::UntilNewLine), Print("\r\n"))?;
        }
        if rows > 0 {
            queue!(bytes, Clear(ClearType::FromCursorDown), MoveToPreviousLine(rows))?;
        }
        self.standing.clear();
        out.write_all(&bytes)?;
        out.flush()
    }

    /// The rows that the picture takes. A terminal made narrower since has broken its lines in two.
    fn rows(&self, columns: u16) -> u16 {
        self.standing.iter().map(|used| used.div_ceil(columns.max(1)).max(1)).sum()
    }

    /// Moves to the picture's first line.
    fn back(&self, columns: u16, bytes: &mut Vec<u8>) -> io::Result<()> {
        let rows = self.rows(columns);
        if rows > 0 {
            queue!(bytes, MoveToPreviousLine(rows))?;
        }
        Ok(())
    }
}

fn used_columns(picture: &Buffer, y: u16) -> u16 {
    let blank = |x: &u16| picture[(*x, y)].symbol().trim().is_empty();
    let area = picture.area;
    let trailing = (area.left()..area.right()).rev().take_while(blank).count();
    area.width - trailing as u16
}

fn paint(cell: &Cell, colour: bool, bytes: &mut Vec<u8>) -> io::Result<()> {
    let plain = cell.fg == Color::Reset && cell.modifier.is_empty();
    if !colour || plain {
        return queue!(bytes, Print(cell.symbol()));
    }
    if cell.fg != Color::Reset {
        queue!(bytes, SetForegroundColor(cell.fg.into_crossterm()))?;
    }
    for (modifier, attribute) in [(Modifier::BOLD, Attribute::Bold), (Modifier::DIM, Attribute::Dim)] {
        if cell.modifier.contains(modifier) {
            queue!(bytes, SetAttribute(attribute))?;
        }
    }
    queue!(bytes, Print(cell.symbol()), SetAttribute(Attribute::Reset), ResetColor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    fn picture(lines: &[&str], width: u16) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, lines.len() as u16));
        for (y, line) in lines.iter().enumerate() {
            buffer.set_string(0, y as u16, line, Style::new().fg(Color::Green));
        }
        buffer
    }

    fn shown(screen: &mut Screen, picture: &Buffer, columns: u16, colour: bool) -> String {
        let mut out = Vec::new();
        screen.show(picture, columns, colour, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_first_picture_moves_nothing_and_the_next_covers_it() {
        let mut screen = Screen::new();
        let p = picture(&["ab", "c"], 10);
        assert!(!shown(&mut screen, &p, 80, false).contains("\x1b[2F"));
        assert!(shown(&mut screen, &p, 80, false).contains("\x1b[2F"));
    }

    #[test]
    fn without_colour_only_the_cursor_is_steered() {
        let text = shown(&mut Screen::new(), &picture(&["ab"], 10), 80, false);
        assert!(text.contains("\x1b[Kab\r\n"), "{text:?}");
        assert!(!text.contains("\x1b[38"), "{text:?}");
    }

    #[test]
    fn a_terminal_made_narrower_has_more_rows_to_cover() {
        let mut screen = Screen::new();
        let p = picture(&["0123456789", "x"], 10);
        shown(&mut screen, &p, 80, false);
        assert!(shown(&mut screen, &p, 4, false).contains("\x1b[4F"));
    }

    #[test]
    fn clear_leaves_nothing_and_nothing_twice() {
        let mut screen = Screen::new();
        shown(&mut screen, &picture(&["ab"], 10), 80, false);
        let mut out = Vec::new();
        screen.clear(80, &mut out).expect("memory");
        assert_eq!(out, b"\x1b[1F\x1b[K\r\n\x1b[J\x1b[1F");
        out.clear();
        screen.clear(80, &mut out).expect("memory");
        assert_eq!(out, b"");
    }
}
