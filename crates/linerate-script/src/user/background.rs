//! Timers, requests in the background, and promises: what runs when the function of a script has returned.

use std::rc::Rc;
use std::time::Duration;

use rquickjs::{Array, Ctx, Function, Object, Promise, Result, Runtime, Value};

use super::http::answers;
use super::requests;
use super::state::UserState;
use super::values::{Natives, cut_off, thrown};
use crate::action::{QueuedRequest, UserAction};
use crate::limits::BATCH;

pub(super) fn install<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("startTimer", move |ctx: Ctx<'js>| {
        if of.is_loading.get() {
            return Err(thrown(&ctx, "timers cannot be used in the init context"));
        }
        of.has_background.set(true);
        Ok(now_ms(&of))
    })?;
    let of = Rc::clone(state);
    natives.add("pauseUntil", move |ctx: Ctx<'js>, due_ms: f64| {
        let left = Duration::try_from_secs_f64((due_ms - now_ms(&of)).max(0.0) / 1e3);
        pause_for(&ctx, &of, left.unwrap_or(Duration::MAX))
    })?;
    let of = Rc::clone(state);
    natives.add("queue", move |ctx: Ctx<'js>, entry: Array<'js>| queue(&ctx, &of, &entry))?;
    let of = Rc::clone(state);
    natives.add("sendQueued", move |ctx: Ctx<'js>| {
        let queued = of.queued.take();
        let many = queued.len();
        answers(&ctx, &of, queued, (many, many), false)
    })?;
    let of = Rc::clone(state);
    natives.add("throwsOnFailure", move || of.program.options().is_some_and(|options| options.throw))
}

fn now_ms(state: &UserState) -> f64 {
    state.host.now().as_nanos() as f64 / 1e6
}

/// Pauses the user.
pub(super) fn pause_for(ctx: &Ctx<'_>, state: &UserState, time: Duration) -> Result<()> {
    if state.is_stopped() {
        return Err(cut_off(ctx));
    }
    state.ask(UserAction::Sleep(time));
    if state.is_stopped() { Err(cut_off(ctx)) } else { Ok(()) }
}

/// Makes a request that leaves with the others at the next turn.
fn queue<'js>(ctx: &Ctx<'js>, state: &UserState, entry: &Array<'js>) -> Result<()> {
    if state.is_loading.get() {
        return Err(thrown(ctx, "making http requests in the init context is not supported"));
    }
    let request: QueuedRequest = requests::build(ctx, state, entry)?;
    let mut queued = state.queued.borrow_mut();
    if queued.len() >= BATCH {
        return Err(thrown(ctx, &format!("more than {BATCH} asynchronous requests at a time")));
    }
    queued.push(request);
    state.has_background.set(true);
    Ok(())
}

/// Tells the script's promises that nobody caught from those that somebody did.
pub(super) fn watch_promises(runtime: &Runtime, state: &Rc<UserState>) {
    let of = Rc::clone(state);
    runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, is_handled| {
        of.has_background.set(true);
        let noted: Result<()> = native(&ctx, "promised").and_then(|f| f.call((promise, reason, is_handled)));
        if noted.is_err() {
            // It is out of memory or cut off: its call ends with that.
            drop(ctx.catch());
        }
    })));
}

fn native<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>> {
    let natives: Object<'js> = ctx.globals().get("__linerate")?;
    natives.get(name)
}

/// Forgets what a call has left behind that was cut off.
pub(super) fn forget(ctx: &Ctx<'_>, state: &UserState) -> Result<()> {
    if state.has_background.replace(false) {
        state.queued.borrow_mut().clear();
        native(ctx, "forget")?.call::<_, ()>(())?;
    }
    Ok(())
}

/// Runs what is in the background to its end, as k6's event loop does.
pub(super) fn settle(ctx: &Ctx<'_>, state: &UserState) -> Result<()> {
    while ctx.execute_pending_job() {}
    if !state.has_background.get() {
        return Ok(());
    }
    let turn = native(ctx, "turn")?;
    while turn.call::<_, bool>(())? {
        while ctx.execute_pending_job() {}
    }
    Ok(())
}

/// What a promise came to. One that nobody settles is worth nothing.
pub(super) fn outcome<'js>(ctx: &Ctx<'js>, promise: &Promise<'js>) -> Result<Value<'js>> {
    promise.result().unwrap_or_else(|| Ok(Value::new_undefined(ctx.clone())))
}
