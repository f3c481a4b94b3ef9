//! `--save-responses DIR`: one file per response, in a folder that contains nothing else.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use linerate_load::outcome::Saved;

use crate::fault::{CommandFault, said};

/// Responses that are kept: this many from the beginning, and as many bad ones after them.
pub(crate) const RESPONSES: u32 = 100;

/// Characters of a request's name in a file's name.
const NAME: usize = 40;

/// Makes the folder, before anything is sent; one that is there must be empty.
pub(super) fn prepare(folder: &Path) -> Result<(), CommandFault> {
    let cannot = |e: &std::io::Error| {
        CommandFault::input(format!("--save-responses: {} cannot be used: {}", folder.display(), said(e)))
    };
    match fs::create_dir(folder) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(cannot(&e).hint("name a folder in one that exists")),
    }
    let mut entries = fs::read_dir(folder).map_err(|e| cannot(&e).hint("name a folder"))?;
    if entries.next().is_some() {
        return Err(CommandFault::input(format!("--save-responses: {} is not empty", folder.display()))
            .hint("name a new folder, so that no file is taken for another run's"));
    }
    Ok(())
}

/// Writes them, in the order in which they came.
pub(super) fn write(folder: &Path, saved: &[Saved]) -> Result<String, CommandFault> {
    let mut saved: Vec<&Saved> = saved.iter().collect();
    saved.sort_by_key(|s| s.at_us);
    let (mut first, mut bad) = (0, 0);
    saved.retain(|s| {
        first += 1;
        bad += u32::from(first > RESPONSES && s.bad);
        first <= RESPONSES || (s.bad && bad <= RESPONSES)
    });
    for (n, response) in saved.iter().enumerate() {
        let path = folder.join(name(n + 1, response));
        // Never over a file or a link that was put there meanwhile.
        let written = File::options().write(true).create_new(true).open(&path);
        let written = written.and_then(|mut file| file.write_all(&response.bytes));
        written.map_err(|e| {
            CommandFault::ours(format!("{} could not be written: {}", path.display(), said(&e)))
        })?;
    }
    Ok(format!("{} of the responses are in {}", saved.len(), folder.display()))
}

/// `001-200-GET_index.http`: sorts by time, and is a name in any folder.
fn name(n: usize, response: &Saved) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let request: String = response.request.chars().take(NAME).map(safe).collect();
    format!("{n:03}-{}-{}.http", response.status, request.trim_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(at_us: u64, bad: bool, request: &str) -> Saved {
        Saved { at_us, status: 200, bad, request: request.to_owned(), bytes: b"HTTP".to_vec() }
    }

    #[test]
    fn names_stay_in_the_folder_and_sort() {
        for (request, expected) in [
            ("GET /", "001-200-GET.http"),
            ("../../etc/passwd\0\n", "001-200-etc_passwd.http"),
            ("", "001-200-.http"),
            (&"ü/".repeat(100), "001-200-.http"),
        ] {
            assert_eq!(name(1, &saved(0, false, request)), expected);
        }
        assert!(name(9, &saved(0, false, "z")) < name(10, &saved(0, false, "a")));
    }

    #[test]
    fn the_first_and_then_bad_ones() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<_> = (0..500).rev().map(|i| saved(i, i % 2 == 0, "r")).collect();
        write(folder.path(), &all).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 * RESPONSES as usize);
        // A second run overwrites no file.
        assert!(write(folder.path(), &all).is_err());
        assert!(prepare(folder.path()).is_err());
        assert!(prepare(&folder.path().join("a/b")).is_err());
        assert!(prepare(&folder.path().join("new")).is_ok() && prepare(&folder.path().join("new")).is_ok());
    }
}
