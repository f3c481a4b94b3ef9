//! As much of a terminal as our commands use: text, colours, cursor movements, erasing.

/// A colour by its number among the sixteen; `None` is the terminal's own.
pub(super) type Colour = Option<u8>;

/// A character and its look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) character: char,
    pub(super) look: CellStyle,
}

/// Colour and weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CellStyle {
    pub(super) colour: Colour,
    pub(super) bold: bool,
    pub(super) dim: bool,
}

/// The lines that are seen.
pub(super) type Screen = Vec<Vec<Cell>>;

/// Lines kept; older ones are dropped.
const LINES: usize = 2000;

/// A terminal without a lower edge: lines that would scroll away are kept.
pub(super) struct PictureTerminal {
    columns: usize,
    lines: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    look: CellStyle,
    /// Bytes of a character or sequence that is not complete yet.
    pending: Vec<u8>,
    /// Inside a synchronised update.
    updating: bool,
}

impl PictureTerminal {
    pub(super) fn new(columns: usize) -> PictureTerminal {
        PictureTerminal {
            columns,
            lines: vec![Vec::new()],
            row: 0,
            column: 0,
            look: CellStyle::default(),
            pending: Vec::new(),
            updating: false,
        }
    }

    /// Whether no picture is half drawn.
    pub(super) fn whole(&self) -> bool {
        !self.updating && self.pending.is_empty()
    }

    /// The last `rows` lines that have text.
    pub(super) fn screen(&self, rows: usize) -> Screen {
        let blank = |line: &Vec<Cell>| line.iter().all(|c| c.character == ' ');
        let used = self.lines.len() - self.lines.iter().rev().take_while(|l| blank(l)).count();
        self.lines[used.saturating_sub(rows)..used].to_vec()
    }

    /// Takes in what a program wrote.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.pending);
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            match self.one(rest) {
                0 => break,
                n => rest = &rest[n..],
            }
        }
        self.pending = rest.to_vec();
    }

    /// Takes in one character or sequence and returns its length; 0 if it is not complete.
    fn one(&mut self, bytes: &[u8]) -> usize {
        match bytes {
            [b'\n', ..] => self.down(),
            [b'\r', ..] => self.column = 0,
            [0x1b, b'[', rest @ ..] => {
                let Some(end) = rest.iter().position(|b| (0x40..=0x7e).contains(b)) else { return 0 };
                let arguments = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.sequence(&arguments, rest[end]);
                return end + 3;
            }
            [0x1b] => return 0,
            [0x1b, ..] => return 2,
            [b, ..] if *b < b' ' => {}
            _ => {
                let length = match bytes[0] {
                    0..0x80 => 1,
                    0x80..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    _ => 4,
                };
                let Some(text) = bytes.get(..length) else { return 0 };
                std::str::from_utf8(text).unwrap_or("?").chars().for_each(|c| self.put(c));
                return length;
            }
        }
        1
    }

    fn put(&mut self, character: char) {
        if self.column == self.columns {
            self.column = 0;
            self.down();
        }
        let line = &mut self.lines[self.row];
        while line.len() <= self.column {
            line.push(Cell { character: ' ', look: CellStyle::default() });
        }
        line[self.column] = Cell { character, look: self.look };
        self.column += 1;
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push(Vec::new());
        }
        if self.lines.len() > LINES {
            self.lines.remove(0);
            self.row -= 1;
        }
    }

    fn sequence(&mut self, arguments: &str, end: u8) {
        let number = arguments.parse::<usize>().unwrap_or(1);
        match end {
            b'm' => self.look(arguments),
            b'A' | b'F' => {
                self.row = self.row.saturating_sub(number);
                self.column = if end == b'F' { 0 } else { self.column };
            }
            b'G' => self.column = number.saturating_sub(1),
            b'K' => self.lines[self.row].truncate(self.column),
            b'J' => {
                self.lines[self.row].truncate(self.column);
                self.lines.truncate(self.row + 1);
            }
            b'h' | b'l' if arguments == "?2026" => self.updating = end == b'h',
            _ => {}
        }
    }

    fn look(&mut self, arguments: &str) {
        let numbers: Vec<u8> = arguments.split(';').map(|n| n.parse().unwrap_or(0)).collect();
        match numbers.as_slice() {
            [38, 5, colour, ..] => self.look.colour = Some(*colour % 16),
            numbers => numbers.iter().for_each(|n| match n {
                0 => self.look = CellStyle::default(),
                1 => self.look.bold = true,
                2 => self.look.dim = true,
                22 => (self.look.bold, self.look.dim) = (false, false),
                30..=37 => self.look.colour = Some(n - 30),
                90..=97 => self.look.colour = Some(n - 82),
                39 => self.look.colour = None,
                _ => {}
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(screen: &Screen) -> Vec<String> {
        screen.iter().map(|l| l.iter().map(|c| c.character).collect()).collect()
    }

    #[test]
    fn pictures_are_drawn_over_each_other() {
        let mut t = PictureTerminal::new(10);
        t.take("\x1b[?2026hone\r\n\u{2588}two\r\n\x1b[J\x1b[?2026l".as_bytes());
        assert_eq!(text(&t.screen(9)), ["one", "\u{2588}two"]);
        t.take(b"\x1b[?2026h\x1b[2F\x1b[Kx\r\n\x1b[Ky\r\n");
        assert!(!t.whole());
        t.take(b"\x1b[J\x1b[?2026l");
        assert!(t.whole());
        assert_eq!(text(&t.screen(9)), ["x", "y"]);
        assert_eq!(text(&t.screen(1)), ["y"]);
    }

    #[test]
    fn colours_begin_and_end() {
        let mut t = PictureTerminal::new(10);
        t.take(b"\x1b[1;31ma\x1b[0mb\x1b[38;5;10mc\x1b[39m");
        let looks: Vec<CellStyle> = t.screen(1)[0].iter().map(|c| c.look).collect();
        assert_eq!(looks[0], CellStyle { colour: Some(1), bold: true, dim: false });
        assert_eq!((looks[1], looks[2].colour), (CellStyle::default(), Some(10)));
    }

    #[test]
    fn characters_and_sequences_may_come_in_pieces_and_lines_break() {
        let mut t = PictureTerminal::new(3);
        for b in "ab\u{b5}cd\x1b[2K".bytes() {
            t.take(&[b]);
        }
        assert_eq!(text(&t.screen(9)), ["ab\u{b5}", "cd"]);
    }
}
