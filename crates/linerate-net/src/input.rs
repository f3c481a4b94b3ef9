//! Files that a user names, opened and read without blocking forever. A named pipe would block
//! until another process writes to it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a pipe may have no writer at the start. Reason: a writer that waits for a reader needs
/// a moment once there is one.
const WRITER: Duration = Duration::from_secs(1);
/// How long a pipe's writer may be silent. Reason: the writer may compute its output; one that
/// hangs is an error.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause between two polls. Reason: too short for a user to notice, long enough to cost no CPU.
const NAP: Duration = Duration::from_millis(5);

/// An open file, pipe or device.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    metadata: Metadata,
    /// At least one byte was read.
    begun: bool,
}

impl InputFile {
    /// Opens a file for reading. A pipe need not have a writer yet.
    ///
    /// # Errors
    /// As opening a file.
    pub fn open(path: &Path) -> io::Result<InputFile> {
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let metadata = file.metadata()?;
        Ok(InputFile { file, metadata, begun: false })
    }

    /// Its metadata, as the file system reports it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn read_pipe(&mut self, into: &mut [u8], writer: Duration, silence: Duration) -> io::Result<usize> {
        let begin = Instant::now();
        loop {
            let why = match self.file.read(into) {
                Ok(0) if !self.begun && !into.is_empty() => {
                    if begin.elapsed() < writer {
                        sleep(NAP);
                        continue;
                    }
                    "it is a pipe that nobody writes to"
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    // A writer is connected, but it may never write.
                    if begin.elapsed() < silence {
                        sleep(NAP);
                        continue;
                    }
                    "it is a pipe whose writer is silent"
                }
                read => {
                    self.begun |= read.is_ok();
                    return read;
                }
            };
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
    }
}

impl Read for InputFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.metadata.file_type().is_fifo() {
            return self.read_pipe(into, WRITER, SILENCE);
        }
        loop {
            match self.file.read(into) {
                // A terminal at which the user has not typed yet.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(NAP),
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        (folder, path)
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_not_waited_for() {
        let (_folder, path) = pipe();
        let mut input = InputFile::open(&path).expect("opened");
        let error = input.read_pipe(&mut [0; 10], NAP, SILENCE).expect_err("nobody writes");
        assert_eq!(error.to_string(), "it is a pipe that nobody writes to");
    }

    #[test]
    fn a_writer_that_is_silent_is_not_waited_for() {
        let (_folder, path) = pipe();
        let mut input = InputFile::open(&path).expect("opened");
        let writer = OpenOptions::new().write(true).open(&path).expect("there is a reader");
        let error = input.read_pipe(&mut [0; 10], WRITER, NAP).expect_err("it is silent");
        assert_eq!(error.to_string(), "it is a pipe whose writer is silent");
        drop(writer);
    }

    #[test]
    fn what_a_program_writes_is_read_to_its_end() {
        let (_folder, path) = pipe();
        let theirs = path.clone();
        let writer = std::thread::spawn(move || {
            // Blocks until the reader has opened the pipe.
            let mut pipe = OpenOptions::new().write(true).open(theirs)?;
            for _ in 0..3 {
                pipe.write_all(&[7; 100_000])?;
                sleep(NAP);
            }
            Ok::<_, io::Error>(())
        });
        let mut all = Vec::new();
        InputFile::open(&path).and_then(|mut input| input.read_to_end(&mut all)).expect("read");
        assert_eq!(all, vec![7; 300_000]);
        writer.join().expect("no panic").expect("written");
    }

    #[test]
    fn files_and_devices_are_read_as_ever() {
        let read = |path: &str| {
            let mut all = Vec::new();
            InputFile::open(Path::new(path))
                .and_then(|input| input.take(100).read_to_end(&mut all))
                .map(|_| all)
        };
        assert_eq!(read("/dev/null").expect("empty"), b"");
        assert_eq!(read("/dev/zero").expect("endless"), [0; 100]);
        assert!(!read("/proc/self/status").expect("a text").is_empty());
        assert!(read("/").is_err() && read("/no/such/file").is_err());
    }
}
