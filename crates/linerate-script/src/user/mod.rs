//! A user: a script with a runtime of its own, on a stack of its own, so that it may pause inside any call.

mod background;
mod codec;
mod http;
mod modules;
mod natives;
mod requests;
mod stack;
mod state;
#[cfg(test)]
mod tests;
mod urls;
mod values;

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Module, Object, Runtime, Value};
use serde_json::Value as Json;

use crate::action::{CallEnd, ScriptCall, UserAction, UserReply, UserRequest, UserResponse};
use crate::exchange::UserJars;
use crate::limits::{SCRIPT_STACK, STACK_BYTES};
use crate::metrics::RunMetrics;
use crate::program::ScriptProgram;
use stack::OwnStack;
use state::UserState;

pub use state::{RunFacts, ScriptHost};

/// What a script exports.
#[derive(Clone, Debug, Default)]
pub struct ScriptExports {
    /// JSON of `options`.
    pub options: Json,
    /// Names of its functions.
    pub functions: Vec<String>,
}

/// Why a script cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It uses what there is not here.
    #[error("{0}")]
    Refused(String),
    /// It threw, or is no JavaScript.
    #[error("{0}")]
    Threw(String),
    /// It called `exec.test.abort`.
    #[error("the script aborted the run: {0}")]
    Aborted(String),
}

/// A user. Between two replies it rests, wherever its script is.
///
/// ```
/// # use linerate_script::doc::{files, host, metrics};
/// use linerate_script::{CallEnd, ScriptCall, ScriptProgram, ScriptUser, UserAction, UserReply};
/// use std::sync::Arc;
///
/// let source = "import { sleep } from 'k6'; export default function () { sleep(2); return __VU; }";
/// let program = Arc::new(ScriptProgram::new("/s.js", Vec::new(), files(source)));
/// let (mut user, _exports) = ScriptUser::load(program, host(), metrics(), 7)?;
/// let call = ScriptCall { function: "default".to_owned(), ..ScriptCall::default() };
/// let UserAction::Sleep(time) = user.resume(UserReply::Call(call)) else { panic!() };
/// assert_eq!(time.as_secs(), 2);
/// let UserAction::Ended(end) = user.resume(UserReply::Slept) else { panic!() };
/// assert_eq!(end, CallEnd::Returned(Some("7".to_owned())));
/// # Ok::<(), linerate_script::LoadError>(())
/// ```
pub struct ScriptUser {
    state: Rc<UserState>,
    stack: OwnStack,
}

impl fmt::Debug for ScriptUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptUser").field("number", &self.state.number).finish_non_exhaustive()
    }
}

impl ScriptUser {
    /// Loads the script for the user of this number, and runs its init code.
    ///
    /// # Errors
    /// The script cannot be loaded.
    pub fn load(
        program: Arc<ScriptProgram>,
        host: Rc<dyn ScriptHost>,
        metrics: Arc<Mutex<RunMetrics>>,
        number: u64,
    ) -> Result<(ScriptUser, ScriptExports), LoadError> {
        let state = Rc::new(UserState::new(program, host, metrics, number));
        let loaded = Rc::new(std::cell::RefCell::new(None));
        let (inside, out) = (Rc::clone(&state), Rc::clone(&loaded));
        let stack = OwnStack::begin(STACK_BYTES, Box::new(move || live(&inside, &out)));
        let user = ScriptUser { state, stack };
        // It says once that it is there.
        user.state.wanted();
        let exports = loaded.borrow_mut().take();
        exports
            .unwrap_or_else(|| Err(LoadError::Threw("the script ended while it was loaded".to_owned())))
            .map(|exports| (user, exports))
    }

    /// Continues with a reply, up to what the user wants next. [`UserReply::Call`] is for a user whose last call has ended.
    pub fn resume(&mut self, reply: UserReply) -> UserAction {
        self.state.give(reply);
        self.stack.go_on();
        self.state.wanted().unwrap_or(UserAction::Ended(CallEnd::Stopped))
    }

    /// The jars of its cookies.
    pub fn jars(&self) -> UserJars {
        self.state.jars.clone()
    }

    /// Counts a request that was sent for it.
    pub fn record(&self, request: &UserRequest, response: &UserResponse) {
        self.state.record(request, response);
    }

    /// Counts an iteration: how long it took, milliseconds.
    pub fn iterated(&self, ms: f64) {
        self.state.sampled(|metrics, tags| {
            metrics.add(crate::metrics::built_in::ITERATIONS, 1.0, &tags);
            metrics.add(crate::metrics::built_in::ITERATION_DURATION, ms, &tags);
        });
    }
}

impl Drop for ScriptUser {
    /// Lets the script end by itself: what it holds belongs to its stack.
    fn drop(&mut self) {
        // Once for a call that is under way, once for the user.
        for _ in 0..2 {
            if !self.stack.has_ended() {
                self.state.give(UserReply::Stop);
                self.stack.go_on();
            }
        }
    }
}

type Loaded = Rc<std::cell::RefCell<Option<Result<ScriptExports, LoadError>>>>;

/// The life of a user, on its own stack.
fn live(state: &Rc<UserState>, loaded: &Loaded) {
    let started = start(state);
    let (runtime, context) = match started {
        Ok(both) => both,
        Err(error) => {
            *loaded.borrow_mut() = Some(Err(LoadError::Threw(format!("no JavaScript runtime: {error}"))));
            return;
        }
    };
    context.with(|ctx| {
        let module = match load(&ctx, state) {
            Ok((module, exports)) => {
                *loaded.borrow_mut() = Some(Ok(exports));
                module
            }
            Err(error) => {
                *loaded.borrow_mut() = Some(Err(error));
                return;
            }
        };
        let mut call = match pause(state) {
            Some(call) => call,
            None => return,
        };
        let mut arguments = CallArguments::default();
        loop {
            let end = run(&ctx, state, &module, &mut arguments, call);
            call = match state.ask(UserAction::Ended(end)) {
                UserReply::Call(call) => call,
                _ => return,
            };
        }
    });
    drop(context);
    drop(runtime);
}

/// After loading: waits for the first call.
fn pause(state: &UserState) -> Option<ScriptCall> {
    match state.ask(UserAction::Ended(CallEnd::Returned(None))) {
        UserReply::Call(call) => Some(call),
        _ => None,
    }
}

fn start(state: &Rc<UserState>) -> rquickjs::Result<(Runtime, Context)> {
    let runtime = Runtime::new()?;
    runtime.set_memory_limit(state.host.memory());
    runtime.set_max_stack_size(SCRIPT_STACK);
    let watched = Rc::clone(state);
    runtime.set_interrupt_handler(Some(Box::new(move || watched.interrupts())));
    background::watch_promises(&runtime, state);
    runtime.set_loader(modules::ScriptResolver(Rc::clone(state)), modules::ScriptLoader(Rc::clone(state)));
    let context = Context::full(&runtime)?;
    Ok((runtime, context))
}

/// Runs the init code, and finds what the script exports.
fn load<'js>(ctx: &Ctx<'js>, state: &Rc<UserState>) -> Result<(Object<'js>, ScriptExports), LoadError> {
    let result = load_module(ctx, state).catch(ctx);
    state.is_loading.set(false);
    state.lasting_jars.set(state.jars.0.borrow().len());
    if let Some(why) = state.take_refusal() {
        return Err(LoadError::Refused(why));
    }
    if let Some(reason) = state.take_abort() {
        return Err(LoadError::Aborted(reason));
    }
    result.map_err(|error| LoadError::Threw(state.overrun().unwrap_or_else(|| words(&error))))
}

fn load_module<'js>(ctx: &Ctx<'js>, state: &Rc<UserState>) -> rquickjs::Result<(Object<'js>, ScriptExports)> {
    natives::install(ctx, state)?;
    ctx.eval::<(), _>(include_str!("../js/start.js"))?;
    ctx.eval::<(), _>(include_str!("../js/background.js"))?;
    let path = state.program.path();
    let source = state.program.file(path).map_err(|why| {
        state.refuse(&format!("{path}: {why}"));
        rquickjs::Error::new_loading_message(path, why)
    })?;
    let module = Module::declare(ctx.clone(), path, source.to_vec())?;
    let (module, promise) = module.eval()?;
    promise.finish::<()>()?;
    let namespace = module.namespace()?;
    let mut exports = ScriptExports::default();
    for key in namespace.keys::<String>() {
        let key = key?;
        let value: Value<'_> = namespace.get(key.as_str())?;
        if value.is_function() {
            exports.functions.push(key);
        } else if key == "options"
            && let Some(text) = ctx.json_stringify(value)?
        {
            let text = text.to_string()?;
            exports.options = serde_json::from_str(&text)
                .map_err(|e| rquickjs::Exception::throw_message(ctx, &format!("options: {e}")))?;
        }
    }
    Ok((namespace, exports))
}

/// The argument of calls, which all of a user's share.
#[derive(Default)]
struct CallArguments<'js>(Option<(Arc<str>, Value<'js>)>);

impl<'js> CallArguments<'js> {
    fn get(&mut self, ctx: &Ctx<'js>, text: &Arc<str>) -> rquickjs::Result<Value<'js>> {
        if let Some((known, value)) = &self.0
            && Arc::ptr_eq(known, text)
        {
            return Ok(value.clone());
        }
        let value = ctx.json_parse(text.as_bytes())?;
        self.0 = Some((Arc::clone(text), value.clone()));
        Ok(value)
    }
}

/// Runs one call to its end.
fn run<'js>(
    ctx: &Ctx<'js>,
    state: &Rc<UserState>,
    module: &Object<'js>,
    arguments: &mut CallArguments<'js>,
    call: ScriptCall,
) -> CallEnd {
    state.begin(call.place, call.iteration);
    let result = invoke(ctx, state, module, arguments, (&call.function, call.argument.as_ref())).catch(ctx);
    if let Some(reason) = state.take_abort() {
        return CallEnd::Aborted(reason);
    }
    let overrun = state.overrun();
    match result {
        _ if overrun.is_some() => CallEnd::Threw(overrun.unwrap_or_default()),
        _ if state.is_stopped() => CallEnd::Stopped,
        Ok(value) => CallEnd::Returned(value),
        Err(error) => CallEnd::Threw(words(&error)),
    }
}

fn invoke<'js>(
    ctx: &Ctx<'js>,
    state: &Rc<UserState>,
    module: &Object<'js>,
    arguments: &mut CallArguments<'js>,
    (name, argument): (&str, Option<&Arc<str>>),
) -> rquickjs::Result<Option<String>> {
    natives::set_globals(ctx, state)?;
    background::forget(ctx, state)?;
    let function: Function<'js> = module.get(name)?;
    let mut value: Value<'js> = match argument {
        Some(text) => function.call((arguments.get(ctx, text)?,))?,
        None => function.call(())?,
    };
    background::settle(ctx, state)?;
    if let Some(promise) = value.as_promise().cloned() {
        value = background::outcome(ctx, &promise)?;
    }
    if value.is_undefined() || value.is_function() {
        return Ok(None);
    }
    ctx.json_stringify(value)?.map(|text| text.to_string()).transpose()
}

/// An exception, with where it was thrown.
fn words(error: &CaughtError<'_>) -> String {
    match error {
        CaughtError::Error(error) => error.to_string(),
        CaughtError::Value(value) => {
            let text = value.as_string().and_then(|text| text.to_string().ok());
            text.unwrap_or_else(|| format!("a value was thrown: {:?}", value.type_of()))
        }
        CaughtError::Exception(exception) => {
            let name: Option<String> = exception.as_object().get("name").ok();
            let message = exception.message().unwrap_or_default();
            let first = match name.filter(|name| !name.is_empty()) {
                Some(name) => format!("{name}: {message}"),
                None => message,
            };
            match exception.stack().filter(|stack| !stack.trim().is_empty()) {
                Some(stack) => format!("{first}\n{}", stack.trim_end()),
                None => first,
            }
        }
    }
}
