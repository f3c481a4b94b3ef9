//! What all users of a script share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::options::ScriptOptions;

/// Reads files for a script.
pub trait ScriptFiles: Send + Sync {
    /// The bytes of a file, by its whole path.
    ///
    /// # Errors
    /// In words, why it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// Items of a `SharedArray`, each as JSON.
pub(crate) type SharedItems = Arc<[Box<str>]>;

/// A script, and what its users share: files, arrays, options. Each user loads its source anew.
pub struct ScriptProgram {
    /// Whole path of the script.
    path: String,
    env: Vec<(String, String)>,
    files: Box<dyn ScriptFiles>,
    read: Mutex<HashMap<String, Arc<[u8]>>>,
    arrays: Mutex<HashMap<String, SharedItems>>,
    options: OnceLock<ScriptOptions>,
}

impl fmt::Debug for ScriptProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptProgram").field("path", &self.path).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptProgram {
    /// The script at this whole path, with `__ENV`.
    pub fn new(path: &str, env: Vec<(String, String)>, files: Box<dyn ScriptFiles>) -> ScriptProgram {
        ScriptProgram {
            path: path.to_owned(),
            env,
            files,
            read: Mutex::default(),
            arrays: Mutex::default(),
            options: OnceLock::new(),
        }
    }

    /// Sets the options of the run, once they are known.
    pub fn set_options(&self, options: ScriptOptions) {
        // The first ones stay.
        let _ = self.options.set(options);
    }

    pub(crate) fn options(&self) -> Option<&ScriptOptions> {
        self.options.get()
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// A file, read once.
    pub(crate) fn file(&self, path: &str) -> Result<Arc<[u8]>, String> {
        if let Some(known) = locked(&self.read).get(path) {
            return Ok(Arc::clone(known));
        }
        let bytes: Arc<[u8]> = self.files.read(path)?.into();
        locked(&self.read).insert(path.to_owned(), Arc::clone(&bytes));
        Ok(bytes)
    }

    pub(crate) fn array(&self, name: &str) -> Option<SharedItems> {
        locked(&self.arrays).get(name).cloned()
    }

    pub(crate) fn share(&self, name: &str, items: Vec<Box<str>>) {
        locked(&self.arrays).entry(name.to_owned()).or_insert_with(|| items.into());
    }

    /// The whole path of a file that a script at `base` names.
    pub(crate) fn path_of(base: &str, name: &str) -> String {
        let name = name.strip_prefix("file://").unwrap_or(name);
        let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
        let whole = if name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") };
        let mut parts: Vec<&str> = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_who_names_them() {
        let of = |name| ScriptProgram::path_of("/tests/main/script.js", name);
        assert_eq!(of("./lib/a.js"), "/tests/main/lib/a.js");
        assert_eq!(of("../data/users.json"), "/tests/data/users.json");
        assert_eq!(of("users.csv"), "/tests/main/users.csv");
        assert_eq!(of("/etc/hosts"), "/etc/hosts");
    }
}
