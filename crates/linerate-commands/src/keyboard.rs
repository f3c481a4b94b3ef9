//! The keyboard and the picture of commands that show a screen until the user leaves.

use std::io::{IsTerminal, stdin};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyModifiers, read};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns and rows where no terminal says its size.
pub(crate) const PLAIN: (u16, u16) = (200, 40);

/// The keyboard while the picture stands: keys come at once, and are not shown.
#[derive(Debug)]
pub(crate) struct Keyboard {
    /// From a thread of its own, because reading a terminal that was closed may not return.
    keys: Receiver<LeavingKey>,
}

/// A key by which the user leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeavingKey {
    /// q or Esc.
    Quit,
    /// Ctrl-C, which is a key like others here.
    Interrupt,
}

impl Keyboard {
    /// Takes the keyboard, if standard input is a terminal.
    pub(crate) fn take() -> Option<Keyboard> {
        let (tell, keys) = mpsc::channel();
        let listen = move || {
            while let Ok(event) = read() {
                if leaves(&event).is_some_and(|key| tell.send(key).is_err()) {
                    return;
                }
            }
        };
        if !stdin().is_terminal() || enable_raw_mode().is_err() {
            return None;
        }
        let keyboard = Keyboard { keys };
        thread::Builder::new().name("keyboard".to_owned()).spawn(listen).ok()?;
        Some(keyboard)
    }

    /// Whether a key says within this time that the user leaves.
    pub(crate) fn leaves_within(&self, time: Duration) -> Option<LeavingKey> {
        match self.keys.recv_timeout(time) {
            Ok(key) => Some(key),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(time);
                None
            }
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let _ = disable_raw_mode();
    }
}

fn leaves(event: &Event) -> Option<LeavingKey> {
    let Event::Key(key) = event else { return None };
    match key.code {
        KeyCode::Esc | KeyCode::Char('q' | 'Q') => Some(LeavingKey::Quit),
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(LeavingKey::Interrupt)
        }
        _ => None,
    }
}

/// The picture without empty rows at its end.
pub(crate) fn used(picture: &Buffer) -> Buffer {
    let blank = |y: &u16| (0..picture.area.width).all(|x| picture[(x, *y)].symbol().trim().is_empty());
    let rows = picture.area.height - (0..picture.area.height).rev().take_while(blank).count() as u16;
    let mut shown = picture.clone();
    shown.resize(Rect { height: rows, ..picture.area });
    shown
}

/// The same as lines of text.
pub(crate) fn text(picture: &Buffer) -> String {
    let picture = used(picture);
    let row = |y: u16| (0..picture.area.width).map(|x| picture[(x, y)].symbol()).collect::<String>();
    (0..picture.area.height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_leaves_and_other_keys_do_not() {
        let key = |code, modifiers| leaves(&Event::Key(crossterm::event::KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(LeavingKey::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(LeavingKey::Interrupt));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), None);
    }
}
