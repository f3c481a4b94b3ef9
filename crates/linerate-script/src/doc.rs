//! A run in memory, for examples and tests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use linerate_base::Time;

use crate::{RunFacts, RunMetrics, ScriptFiles, ScriptHost};

/// One file, under any name, and others under theirs.
#[derive(Debug, Default)]
pub struct OneFile {
    /// The script.
    pub source: String,
    /// Other files.
    pub others: Vec<(String, String)>,
}

impl ScriptFiles for OneFile {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if let Some((_, text)) = self.others.iter().find(|(name, _)| name == path) {
            return Ok(text.clone().into_bytes());
        }
        if path == "/s.js" { Ok(self.source.clone().into_bytes()) } else { Err("no such file".to_owned()) }
    }
}

/// A host whose clock stands still.
#[derive(Debug, Default)]
pub struct StillHost {
    /// Its time.
    pub now: Cell<Time>,
    /// What was logged.
    pub lines: RefCell<Vec<String>>,
}

impl ScriptHost for StillHost {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn log(&self, level: &str, text: &str) {
        self.lines.borrow_mut().push(format!("{level}: {text}"));
    }

    fn facts(&self) -> RunFacts {
        RunFacts::default()
    }

    fn fail(&self, reason: &str) {
        self.lines.borrow_mut().push(format!("failed: {reason}"));
    }
}

/// A script as the file `/s.js`.
pub fn files(source: &str) -> Box<dyn ScriptFiles> {
    Box::new(OneFile { source: source.to_owned(), others: Vec::new() })
}

/// A host whose clock stands still.
pub fn host() -> Rc<dyn ScriptHost> {
    Rc::new(StillHost::default())
}

/// Metrics without thresholds.
pub fn metrics() -> Arc<Mutex<RunMetrics>> {
    Arc::new(Mutex::new(RunMetrics::new(&[])))
}
