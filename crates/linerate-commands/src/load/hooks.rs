//! The script of a plan, in a runtime of each thread that sends.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_load::hooks::RequestHooks;
use linerate_load::plan::flow::PlanScript;
use linerate_net::{Time, machine};
use linerate_script::limits::{HOOKS_MEMORY, LONGEST_HOOK};
use linerate_script::{
    CallEnd, RunFacts, RunMetrics, ScriptCall, ScriptFiles, ScriptHost, ScriptProgram, ScriptUser,
    UserAction, UserReply,
};

/// How null is told as an exception.
const NOTHING_THROWN: &str = "a value was thrown: Null";

/// How QuickJS says that its memory is used up.
const OUT_OF_MEMORY: &str = "InternalError: out of memory";

/// A loaded script.
#[derive(Debug)]
struct PlanHooks {
    program: Arc<ScriptProgram>,
    spent: Duration,
}

thread_local! {
    /// The runtimes of this thread, and the program that each runs. A thread that sends has one for each host of its plan.
    static USERS: RefCell<Vec<(Arc<ScriptProgram>, ScriptUser)>> = const { RefCell::new(Vec::new()) };
}

/// The only file of a script that travels with its plan.
struct OwnFile {
    path: String,
    text: String,
}

impl ScriptFiles for OwnFile {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path == self.path {
            true => Ok(self.text.clone().into_bytes()),
            false => Err("the script of a plan reads no other file; write all of it into one".to_owned()),
        }
    }
}

/// What a script of a plan may see: the time.
#[derive(Debug)]
struct HooksHost;

impl ScriptHost for HooksHost {
    fn now(&self) -> Time {
        machine::monotonic_now()
    }

    // A line for each request would drown all others.
    fn log(&self, _level: &str, _text: &str) {}

    fn facts(&self) -> RunFacts {
        RunFacts::default()
    }

    fn fail(&self, _reason: &str) {}

    fn longest_run(&self) -> Duration {
        LONGEST_HOOK
    }

    fn memory(&self) -> usize {
        HOOKS_MEMORY
    }
}

/// Loads a script of a plan.
pub(crate) fn load(
    script: &PlanScript,
    env: &[(String, String)],
    functions: &[&str],
) -> Result<Box<dyn RequestHooks>, String> {
    let path = format!("/{}", script.file.trim_start_matches("./").trim_start_matches('/'));
    let files = OwnFile { path: path.clone(), text: script.text.clone() };
    let program = Arc::new(ScriptProgram::new(&path, env.to_vec(), Box::new(files)));
    let in_file = |why: String| match why.contains(&script.file) {
        true => why,
        false => format!("{}: {why}", script.file),
    };
    let (_, exported) = begin(&program).map_err(in_file)?;
    if let Some(missing) = functions.iter().find(|name| !exported.iter().any(|known| known == *name)) {
        let known = if exported.is_empty() { "none".to_owned() } else { exported.join(", ") };
        let file = &script.file;
        return Err(format!(
            "{file}: no function {missing:?} is exported (exported: {known}); write export function {missing}(request) {{ ... }}"
        ));
    }
    Ok(Box::new(PlanHooks { program, spent: Duration::ZERO }))
}

fn begin(program: &Arc<ScriptProgram>) -> Result<(ScriptUser, Vec<String>), String> {
    let metrics = Arc::new(Mutex::new(RunMetrics::new(&[])));
    let loaded = ScriptUser::load(Arc::clone(program), Rc::new(HooksHost), metrics, 1);
    let (user, exports) = loaded.map_err(|e| on_one_line(&e.to_string()))?;
    Ok((user, exports.functions))
}

/// An exception with the first place of its stack, which begins with the script's path.
fn on_one_line(text: &str) -> String {
    // QuickJS may have no room for an error then.
    if text == NOTHING_THROWN || text.starts_with(OUT_OF_MEMORY) {
        return format!("it ran out of its {} MiB of memory, or threw null", HOOKS_MEMORY >> 20);
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.find_map(|line| line.strip_prefix("at ")) {
        Some(place) => format!("{first} (at {})", place.trim_start_matches('/').replace("(/", "(")),
        None => first.to_owned(),
    }
}

impl PlanHooks {
    fn invoke(&self, function: &str, argument: &str) -> Result<Option<String>, String> {
        let call = ScriptCall {
            function: function.to_owned(),
            argument: Some(Arc::from(argument)),
            ..ScriptCall::default()
        };
        let ended = USERS.with_borrow_mut(|users| {
            let own = users.iter().position(|(program, _)| Arc::ptr_eq(program, &self.program));
            let own = match own {
                Some(own) => own,
                None => {
                    users.push((Arc::clone(&self.program), begin(&self.program)?.0));
                    users.len() - 1
                }
            };
            match users[own].1.resume(UserReply::Call(call)) {
                UserAction::Ended(end) => Ok(end),
                UserAction::Send(_) | UserAction::Sleep(_) => {
                    // What waits for a reply never gets one.
                    users.swap_remove(own);
                    Err(format!("{function}: a hook can neither send requests nor pause"))
                }
            }
        });
        match ended? {
            CallEnd::Returned(value) => Ok(value),
            CallEnd::Threw(why) => Err(format!("{function}: {}", on_one_line(&why))),
            CallEnd::Aborted(why) => Err(format!("{function}: aborted: {why}")),
            CallEnd::Stopped => Err(format!("{function}: it was stopped")),
        }
    }
}

impl RequestHooks for PlanHooks {
    fn call(&mut self, function: &str, argument: &str) -> Result<Option<String>, String> {
        let began = machine::thread_cpu_time_ns();
        let returned = self.invoke(function, argument);
        self.spent += Duration::from_nanos(machine::thread_cpu_time_ns().saturating_sub(began));
        returned
    }

    fn spent(&self) -> Duration {
        self.spent
    }
}

impl Drop for PlanHooks {
    /// Ends the runtime of this thread, if it has one for this script.
    fn drop(&mut self) {
        USERS.with_borrow_mut(|users| users.retain(|(program, _)| !Arc::ptr_eq(program, &self.program)));
    }
}
