//! `linerate k6 run`: scripts of k6, with its summary and its exit codes.

mod arrivals;
mod fault;
mod finish;
mod given;
mod host;
pub(crate) mod ours;
mod send;
mod shared;
mod threads;
mod worker;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linerate_net::machine;
use linerate_script::{
    CallEnd, LoadError, RunMetrics, ScriptCall, ScriptExports, ScriptHost, ScriptOptions, ScriptProgram,
    ScriptUser, judge,
};

use crate::args::{K6Args, K6Command, K6RunArgs};
use crate::load::Interrupt;
pub(crate) use fault::{K6Exit, K6Fault};
use finish::RunEnd;
use host::{DiskFiles, RunHost};
use send::ScriptClients;
use shared::{CutSignal, EarlyEnd, RunShared, locked};
use worker::{RunPlan, ScenarioRun, Worker};

/// Runs a command line of k6.
pub(crate) fn run(args: &K6Args) -> u8 {
    let K6Command::Run(args) = &args.what;
    run_script(args).unwrap_or_else(|fault| {
        eprintln!("error: {}", fault.words);
        fault.exit
    }) as u8
}

/// Runs a script to its end.
pub(crate) fn run_script(args: &K6RunArgs) -> Result<K6Exit, K6Fault> {
    let path = whole_path(&args.script)?;
    let program = Arc::new(ScriptProgram::new(&path, given::env(args)?, Box::new(DiskFiles)));
    let shared = Arc::new(RunShared::new());
    let host = Rc::new(RunHost { shared: Arc::clone(&shared), start: Cell::new(machine::monotonic_now()) });
    let metrics = Arc::new(Mutex::new(RunMetrics::new(&[])));
    let as_host = Rc::clone(&host) as Rc<dyn ScriptHost>;
    let (user, exports) =
        ScriptUser::load(Arc::clone(&program), as_host, Arc::clone(&metrics), 0).map_err(|e| {
            let exit =
                if matches!(e, LoadError::Aborted(_)) { K6Exit::ScriptAborted } else { K6Exit::ScriptThrew };
            K6Fault::new(exit, with_hint(e.to_string()))
        })?;
    let options = options(args, &exports)?;
    program.set_options(options.clone());
    // Metrics of the script have their parts from the thresholds on.
    let mut fresh = RunMetrics::new(&options.thresholds);
    fresh.merge(&locked(&metrics));
    judge(&fresh, &options.thresholds, Duration::ZERO)
        .map_err(|why| K6Fault::new(K6Exit::BadOptions, why.to_string()))?;
    *locked(&metrics) = fresh;
    for warning in &options.warnings {
        eprintln!("warning: {warning}");
    }
    let run = ScriptRun { args, program, options: Arc::new(options), shared, host, metrics, exports };
    run.run(user)
}

/// Why a script cannot be loaded, with a hint where the syntax of TypeScript may be why.
fn with_hint(why: String) -> String {
    if why.contains("SyntaxError") && why.contains(".ts:") {
        format!("{why}\nhint: types of TypeScript are not supported; let a compiler write it as JavaScript")
    } else {
        why
    }
}

fn whole_path(script: &Path) -> Result<String, K6Fault> {
    let wrong = |why: String| K6Fault::new(K6Exit::ScriptThrew, format!("{}: {why}", script.display()));
    let path = std::fs::canonicalize(script).map_err(|e| wrong(crate::fault::said(&e)))?;
    path.to_str().map(str::to_owned).ok_or_else(|| wrong("the path is no UTF-8".to_owned()))
}

/// Options of the script and of the command line, sound.
fn options(args: &K6RunArgs, exports: &ScriptExports) -> Result<ScriptOptions, K6Fault> {
    let bad = |why: String| K6Fault::new(K6Exit::BadOptions, why);
    let options = ScriptOptions::read(given::merged(args, &exports.options)?);
    let options = options.map_err(|why| bad(why.to_string()))?;
    for scenario in &options.scenarios {
        if !exports.functions.contains(&scenario.exec) {
            let why = format!("scenario {}: the script exports no function {}", scenario.name, scenario.exec);
            return Err(bad(why));
        }
    }
    Ok(options)
}

/// A run of a script.
struct ScriptRun<'a> {
    args: &'a K6RunArgs,
    program: Arc<ScriptProgram>,
    options: Arc<ScriptOptions>,
    shared: Arc<RunShared>,
    host: Rc<RunHost>,
    /// Of setup and teardown, and in the end of the whole run.
    metrics: Arc<Mutex<RunMetrics>>,
    exports: ScriptExports,
}

impl ScriptRun<'_> {
    fn run(self, mut user: ScriptUser) -> Result<K6Exit, K6Fault> {
        let other = |why: String| K6Fault::new(K6Exit::Other, why);
        let interrupt = Interrupt::listen().map_err(|fault| other(fault.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| other(e.to_string()))?;
        let local = tokio::task::LocalSet::new();
        let (setup, broken) = match self.hook(&runtime, &local, &mut user, "setup", None) {
            Ok(value) => (value.map(Arc::<str>::from), None),
            Err(fault) => (None, Some(fault)),
        };
        let plan = Arc::new(RunPlan {
            program: Arc::clone(&self.program),
            shared: Arc::clone(&self.shared),
            setup: setup.clone(),
            threads: threads::count(&self.options),
            runs: ScenarioRun::all(&self.options),
            options: Arc::clone(&self.options),
        });
        let (mut elapsed, mut scripts) = (Duration::ZERO, Duration::ZERO);
        if broken.is_none() {
            let began = Instant::now();
            let before = RunShared::count(&self.shared.script_ns);
            let all =
                threads::run(&plan, &interrupt, self.args.quiet, self.args.no_thresholds).map_err(other)?;
            elapsed = all.elapsed.min(began.elapsed());
            scripts = Duration::from_nanos(RunShared::count(&self.shared.script_ns) - before);
            locked(&self.metrics).merge(&all.metrics);
        }
        let torn = match broken {
            Some(fault) if fault.exit == K6Exit::ScriptThrew || fault.exit == K6Exit::SetupTimeout => {
                Some(fault)
            }
            _ => self.hook(&runtime, &local, &mut user, "teardown", setup.as_ref()).err(),
        };
        let has_summary = self.exports.functions.iter().any(|name| name == "handleSummary");
        let end = RunEnd {
            args: self.args,
            options: &self.options,
            shared: &self.shared,
            metrics: locked(&self.metrics).clone(),
            has_summary,
            elapsed,
            scripts,
            threads: plan.threads,
            setup,
            fault: torn,
        };
        end.finish(&mut user, |user, data| self.summary(&runtime, &local, user, data))
    }

    /// Calls `setup` or `teardown`, if the script has it.
    fn hook(
        &self,
        runtime: &tokio::runtime::Runtime,
        local: &tokio::task::LocalSet,
        user: &mut ScriptUser,
        name: &str,
        data: Option<&Arc<str>>,
    ) -> Result<Option<String>, K6Fault> {
        let is_setup = name == "setup";
        let is_wanted = if is_setup { !self.args.no_setup } else { !self.args.no_teardown };
        if !is_wanted || !self.exports.functions.iter().any(|known| known == name) {
            return Ok(None);
        }
        let (limit, exit) = match is_setup {
            true => (self.options.setup_timeout, K6Exit::SetupTimeout),
            false => (self.options.teardown_timeout, K6Exit::TeardownTimeout),
        };
        let call = ScriptCall { function: name.to_owned(), argument: data.cloned(), ..ScriptCall::default() };
        match self.call(runtime, local, user, call, limit) {
            CallEnd::Returned(value) => Ok(value),
            CallEnd::Threw(why) => Err(K6Fault::new(K6Exit::ScriptThrew, format!("{name}: {why}"))),
            CallEnd::Stopped => {
                Err(K6Fault::new(exit, format!("{name} took more than {} s", limit.as_secs())))
            }
            CallEnd::Aborted(reason) => {
                self.shared.end(EarlyEnd::Aborted(reason.clone()));
                Err(K6Fault::new(K6Exit::ScriptAborted, format!("test aborted: {reason}")))
            }
        }
    }

    fn summary(
        &self,
        runtime: &tokio::runtime::Runtime,
        local: &tokio::task::LocalSet,
        user: &mut ScriptUser,
        data: String,
    ) -> CallEnd {
        let call = ScriptCall {
            function: "handleSummary".to_owned(),
            argument: Some(data.into()),
            ..ScriptCall::default()
        };
        self.call(runtime, local, user, call, Duration::from_secs(120))
    }

    /// A call outside of all scenarios.
    fn call(
        &self,
        runtime: &tokio::runtime::Runtime,
        local: &tokio::task::LocalSet,
        user: &mut ScriptUser,
        call: ScriptCall,
        limit: Duration,
    ) -> CallEnd {
        let plan = RunPlan {
            program: Arc::clone(&self.program),
            options: Arc::clone(&self.options),
            shared: Arc::clone(&self.shared),
            setup: None,
            threads: 1,
            runs: Vec::new(),
        };
        let worker = Worker {
            plan: Arc::new(plan),
            index: 0,
            metrics: Arc::clone(&self.metrics),
            host: Rc::clone(&self.host),
            clients: ScriptClients::new(Arc::clone(&self.options)),
            start: Cell::new(tokio::time::Instant::now()),
            cuts: RefCell::default(),
        };
        local.block_on(runtime, async {
            let cut = CutSignal::default();
            let called = worker.call(user, 0, &cut, call);
            let mut called = std::pin::pin!(called);
            tokio::select! {
                end = &mut called => end,
                () = tokio::time::sleep(limit) => {
                    cut.cut();
                    called.await
                }
            }
        })
    }
}
