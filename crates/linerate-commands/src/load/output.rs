//! Results to a file: whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::fault::{CommandFault, said};

/// The destination of results for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputSink {
    Stdout,
    File(PathBuf),
}

impl OutputSink {
    /// From what follows a flag.
    pub(crate) fn new(path: &Path) -> OutputSink {
        let is_stdout = ["-", "/dev/stdout"].iter().any(|name| path == Path::new(name));
        if is_stdout { OutputSink::Stdout } else { OutputSink::File(path.to_owned()) }
    }

    /// Whether it can be written to, before anything is run; `flag` names it.
    pub(crate) fn probe(&self, flag: &str) -> Result<(), CommandFault> {
        match self {
            OutputSink::File(path) => {
                can_be_written(flag, path, "name a file in a folder that exists, or - for standard output")
            }
            OutputSink::Stdout => Ok(()),
        }
    }

    /// Writes the text: to a file beside it first, which then takes its name.
    pub(crate) fn write(&self, text: &str) -> Result<(), CommandFault> {
        let written = match self {
            OutputSink::Stdout => {
                io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
            }
            // A pipe or a device has no place beside it.
            OutputSink::File(path) if is_special(path) => write_whole(path, text, false),
            OutputSink::File(path) => {
                let beside = beside(path);
                let done = write_whole(&beside, text, true).and_then(|()| fs::rename(&beside, path));
                if done.is_err() {
                    let _ = fs::remove_file(&beside);
                }
                done
            }
        };
        written.map_err(|e| self.fault(&e))
    }

    fn fault(&self, error: &io::Error) -> CommandFault {
        let name = match self {
            OutputSink::Stdout => "standard output".to_owned(),
            OutputSink::File(path) => path.display().to_string(),
        };
        CommandFault::ours(format!("the results could not be written to {name}: {}", said(error)))
    }
}

/// Lines that are written one after the other, as they come.
#[derive(Debug)]
pub(crate) struct LineSink {
    sink: OutputSink,
    file: Option<File>,
}

impl LineSink {
    /// A file is begun anew.
    pub(crate) fn create(sink: &OutputSink) -> Result<LineSink, CommandFault> {
        let file = match sink {
            OutputSink::Stdout => None,
            OutputSink::File(path) => Some(File::create(path).map_err(|e| sink.fault(&e))?),
        };
        Ok(LineSink { sink: sink.clone(), file })
    }

    /// Writes a line, which ends with a line end.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), CommandFault> {
        let written = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None => io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
        };
        written.map_err(|e| self.sink.fault(&e))
    }
}

/// Where a command's document and its page go.
#[derive(Clone, Debug)]
pub(crate) struct ReportSinks {
    pub(crate) json: Option<OutputSink>,
    pub(crate) html: Option<OutputSink>,
}

impl ReportSinks {
    /// Both, if they can be written to.
    pub(crate) fn of(json: Option<&Path>, html: Option<&Path>) -> Result<ReportSinks, CommandFault> {
        apart(&[("--json", json), ("--html", html)])?;
        let sinks = ReportSinks { json: json.map(OutputSink::new), html: html.map(OutputSink::new) };
        for (flag, sink) in [("--json", &sinks.json), ("--html", &sinks.html)] {
            sink.as_ref().map_or(Ok(()), |sink| sink.probe(flag))?;
        }
        Ok(sinks)
    }

    /// Whether what people read goes to standard error, because standard output has one of them.
    pub(crate) fn to_stderr(&self) -> bool {
        [&self.json, &self.html].contains(&&Some(OutputSink::Stdout))
    }

    /// Writes both; `what` names the document if it has to be kept elsewhere.
    pub(crate) fn write(
        &self,
        what: &str,
        json: &str,
        html: impl FnOnce() -> String,
    ) -> Result<(), CommandFault> {
        let written = self.json.as_ref().map_or(Ok(()), |sink| sink.write(json));
        let kept = self.json.is_some() && written.is_ok();
        let page = self.html.as_ref().map_or(Ok(()), |sink| sink.write(&html()));
        let done = CommandFault::all([written, page]);
        done.map_err(|fault| if kept { fault } else { rescued(fault, what, json) })
    }
}

/// Refuses one place for two outputs, of which the later one would replace the other. Each is a flag and what follows it.
pub(crate) fn apart(outputs: &[(&str, Option<&Path>)]) -> Result<(), CommandFault> {
    let given = outputs.iter().filter_map(|(flag, path)| Some((*flag, place((*path)?)?)));
    let given: Vec<(&str, PathBuf)> = given.collect();
    for (at, (flag, place)) in given.iter().enumerate() {
        if let Some((other, _)) = given[..at].iter().find(|(_, earlier)| earlier == place) {
            let place =
                if place == Path::new("-") { "standard output".into() } else { place.display().to_string() };
            return Err(CommandFault::input(format!("{other} and {flag} cannot both go to {place}"))
                .hint("name another file for one of them"));
        }
    }
    Ok(())
}

/// What a path names, the same for all its spellings; `None` for a device, in which nothing replaces anything.
fn place(path: &Path) -> Option<PathBuf> {
    if OutputSink::new(path) == OutputSink::Stdout {
        return Some("-".into());
    }
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    let place = fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned());
    let is_device = fs::metadata(&place).is_ok_and(|m| m.file_type().is_char_device());
    (!is_device).then_some(place)
}

/// Keeps a document where a file of the user's could not be written; the fault then says where it is.
pub(crate) fn rescued(fault: CommandFault, what: &str, json: &str) -> CommandFault {
    let path = std::env::temp_dir().join(format!("linerate-{what}-{}.json", std::process::id()));
    match OutputSink::File(path.clone()).write(json) {
        Ok(()) => fault.hint(format!("the document is in {} instead", path.display())),
        Err(_) => fault,
    }
}

/// Whether the file that a flag names can be written; `right`: what would be.
pub(crate) fn can_be_written(flag: &str, path: &Path, right: &'static str) -> Result<(), CommandFault> {
    let cannot = |e: &io::Error| {
        CommandFault::input(format!("{flag}: {} cannot be written: {}", path.display(), said(e))).hint(right)
    };
    if path == Path::new("-") {
        return Err(CommandFault::input(format!(
            "{flag}: - is no file, and standard output has the summary"
        ))
        .hint("name a file or a pipe"));
    }
    if path.is_dir() {
        let fault = CommandFault::input(format!("{flag}: {} is a folder", path.display()));
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
        let sink = OutputSink::new(&path);
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
            OutputSink::new(&folder.path().join("no/out.json")).probe("--json").expect_err("no such folder");
        assert_eq!(fault.exit, crate::fault::Exit::BadInput);
        assert!(OutputSink::new(folder.path()).probe("--json").is_err());
    }

    #[test]
    fn two_outputs_have_two_places() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("in")).expect("a folder");
        std::os::unix::fs::symlink(at("a"), at("link")).expect("a link");
        let said = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|name| if name == "-" { name.into() } else { at(name) });
            apart(&[("--json", Some(&one)), ("--csv", None), ("--html", Some(&other))])
        };
        for (one, other) in [("a", "a"), ("a", "in/../a"), ("a", "./a"), ("-", "-")] {
            let fault = said(one, other).expect_err(other);
            assert_eq!(fault.exit, crate::fault::Exit::BadInput);
            assert!(fault.to_string().contains("--json and --html cannot both go to "), "{fault}");
        }
        said("a", "in/a").expect("two files");
        said("link", "a").expect("the link does not lead to a file yet");
        fs::write(at("a"), "").expect("written");
        assert!(said("link", "a").is_err());
        let null = Path::new("/dev/null");
        apart(&[("--json", Some(null)), ("--html", Some(null))]).expect("it keeps nothing");
        assert!(apart(&[("--json", Some("/dev/stdout".as_ref())), ("--html", Some("-".as_ref()))]).is_err());
    }

    #[test]
    fn a_full_disk_is_ours() {
        let sink = OutputSink::new(Path::new("/dev/full"));
        sink.probe("--json").expect("it opens");
        assert_eq!(sink.write("text").expect_err("it is full").exit, crate::fault::Exit::Ours);
    }
}
