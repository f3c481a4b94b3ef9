//! What the operator is told, on standard error.

use std::sync::Mutex;

/// Which lines were written once.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Different lines that are told once each, at most.
const MOST: usize = 100;

/// Writes a line.
pub(crate) fn tell(words: &str) {
    crate::kernel::write_error(format!("linerate bypass: {words}\n").as_bytes());
}

/// Writes a line that was not written before.
pub(crate) fn tell_once(words: &str) {
    let Ok(mut told) = TOLD.try_lock() else { return };
    if told.len() < MOST && !told.iter().any(|line| line == words) {
        told.push(words.to_owned());
        tell(words);
    }
}
