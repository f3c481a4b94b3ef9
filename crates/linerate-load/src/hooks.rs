//! Functions of a plan's script that make bodies, sign requests and judge responses.
//!
//! No JavaScript runs here: a program that has a runtime for it installs it, once, before the first run.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::Duration;

use crate::plan::flow::PlanScript;

/// A script of a plan, in the thread that calls it: there it has a runtime of its own.
pub trait RequestHooks: Debug + Send {
    /// Calls a function with one argument, as JSON. Returns the JSON of its value; `None`: it is undefined.
    ///
    /// # Errors
    /// What it threw, on one line, with where.
    fn call(&mut self, function: &str, argument: &str) -> Result<Option<String>, String>;

    /// The CPU time that it has taken until now.
    fn spent(&self) -> Duration;
}

/// Loads a script with these variables of the environment, and finds functions of these names in it.
///
/// # Errors
/// The script's file, line and column, and what is wrong.
pub type LoadHooks =
    fn(&PlanScript, &[(String, String)], functions: &[&str]) -> Result<Box<dyn RequestHooks>, String>;

static LOAD: OnceLock<LoadHooks> = OnceLock::new();

/// Says how scripts are loaded, in each thread that sends. The first one stays.
///
/// ```
/// linerate_load::hooks::install(|script, _env, _functions| Err(format!("{}: no scripts here", script.file)));
/// ```
pub fn install(load: LoadHooks) {
    // The first one stays.
    let _ = LOAD.set(load);
}

pub(crate) fn load(
    script: &PlanScript,
    env: &[(String, String)],
    functions: &[&str],
) -> Result<Box<dyn RequestHooks>, String> {
    let load = LOAD.get().ok_or_else(|| format!("{}: this program runs no scripts", script.file))?;
    load(script, env, functions)
}
