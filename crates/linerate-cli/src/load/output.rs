//! Results to a file: whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::fault::{Fault, said};

/// The destination of results for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    File(PathBuf),
}

impl Sink {
    /// From `--json`.
    pub(crate) fn new(path: &Path) -> Sink {
        if path == Path::new("-") { Sink::Stdout } else { Sink::File(path.to_owned()) }
    }

    /// Whether it can be written to, before anything is run; `flag` names it.
    pub(crate) fn probe(&self, flag: &str) -> Result<(), Fault> {
        match self {
            Sink::File(path) => {
                can_be_written(flag, path, "name a file in a folder that exists, or - for standard output")
            }
            Sink::Stdout => Ok(()),
        }
    }

    /// Writes the text: to a file beside it first, which then takes its name.
    pub(crate) fn write(&self, text: &str) -> Result<(), Fault> {
        let written = match self {
            Sink::Stdout => {
                io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
            }
            // A pipe or a device has no place beside it.
            Sink::File(path) if is_special(path) => write_whole(path, text, false),
            Sink::File(path) => {
                let beside = beside(path);
                let done = write_whole(&beside, text, true).and_then(|()| fs::rename(&beside, path));
                if done.is_err() {
                    let _ = fs::remove_file(&beside);
                }
                done
            }
        };
        let name = match self {
            Sink::Stdout => "standard output".to_owned(),
            Sink::File(path) => path.display().to_string(),
        };
        written.map_err(|e| Fault::ours(format!("the results could not be written to {name}: {}", said(&e))))
    }
}

/// Keeps a document where a file of the user's could not be written; the fault then says where it is.
pub(crate) fn rescued(fault: Fault, what: &str, json: &str) -> Fault {
    let path = std::env::temp_dir().join(format!("linerate-{what}-{}.json", std::process::id()));
    match Sink::File(path.clone()).write(json) {
        Ok(()) => fault.hint(format!("the document is in {} instead", path.display())),
        Err(_) => fault,
    }
}

/// Whether the file that a flag names can be written; `right`: what would be.
pub(crate) fn can_be_written(flag: &str, path: &Path, right: &'static str) -> Result<(), Fault> {
    let cannot = |e: &io::Error| {
        Fault::input(format!("{flag}: {} cannot be written: {}", path.display(), said(e))).hint(right)
    };
    if path.is_dir() {
        let fault = Fault::input(format!("{flag}: {} is a folder", path.display()));
        return Err(fault.hint("name a file in it"));
    }
    if is_special(path) {
        return File::options().write(true).open(path).map(drop).map_err(|e| cannot(&e));
    }
    let beside = beside(path);
    File::create(&beside).map_err(|e| cannot(&e))?;
    fs::remove_file(&beside).map_err(|e| cannot(&e))
}

fn write_whole(path: &Path, text: &str, create: bool) -> io::Result<()> {
    let mut file = File::options().write(true).create(create).truncate(create).open(path)?;
    file.write_all(text.as_bytes())?;
    if create { file.sync_all() } else { file.flush() }
}

/// Whether it is there and no ordinary file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| !m.is_file())
}

/// A name in the same folder, of this process alone.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        fs::write(&path, "old").expect("written");
        let sink = Sink::new(&path);
        sink.probe("--json").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        sink.write("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_found_before_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let fault =
            Sink::new(&folder.path().join("no/out.json")).probe("--json").expect_err("no such folder");
        assert_eq!(fault.exit, crate::fault::Exit::BadInput);
        assert!(Sink::new(folder.path()).probe("--json").is_err());
    }

    #[test]
    fn a_full_disk_is_ours() {
        let sink = Sink::new(Path::new("/dev/full"));
        sink.probe("--json").expect("it opens");
        assert_eq!(sink.write("text").expect_err("it is full").exit, crate::fault::Exit::Ours);
    }
}
