//! A run as its scripts see it, and the files that they read.

use std::cell::Cell;
use std::sync::{Arc, PoisonError};

use linerate_net::{Time, machine};
use linerate_script::limits::FILE_BYTES;
use linerate_script::{RunFacts, ScriptFiles, ScriptHost};

use super::shared::RunShared;
use crate::fault::said;

/// Files of this machine.
#[derive(Debug)]
pub(super) struct DiskFiles;

impl ScriptFiles for DiskFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let facts = std::fs::metadata(path).map_err(|e| said(&e))?;
        if facts.len() > FILE_BYTES {
            return Err(format!("it has {} bytes, more than {FILE_BYTES}", facts.len()));
        }
        std::fs::read(path).map_err(|e| said(&e))
    }
}

/// The run, in one thread.
#[derive(Debug)]
pub(super) struct RunHost {
    pub(super) shared: Arc<RunShared>,
    /// When the run began.
    pub(super) start: Cell<Time>,
}

impl ScriptHost for RunHost {
    fn now(&self) -> Time {
        machine::monotonic_now()
    }

    fn log(&self, level: &str, text: &str) {
        if level != "info" {
            if let Some(more) = self.shared.note_error(text) {
                eprintln!("{level}: {text}{more}");
            }
            return;
        }
        eprintln!("{level}: {text}");
    }

    fn facts(&self) -> RunFacts {
        let elapsed = (self.now() - self.start.get()).as_secs_f64() * 1e3;
        let wall = self.start.get().as_nanos().wrapping_add(machine::wall_offset_ns()) as f64 / 1e6;
        RunFacts {
            elapsed_ms: elapsed,
            start_ms: wall,
            completed: RunShared::count(&self.shared.completed),
            interrupted: RunShared::count(&self.shared.interrupted),
            active: RunShared::count(&self.shared.active),
            users: RunShared::count(&self.shared.users),
        }
    }

    fn fail(&self, reason: &str) {
        let mut failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| reason.to_owned());
    }
}
