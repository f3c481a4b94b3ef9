//! The functions that our modules are built on.

use std::rc::Rc;
use std::time::Duration;

use linerate_base::Random;
use rquickjs::function::Opt;
use rquickjs::{Ctx, Object, Result, Value};

use super::state::UserState;
use super::values::{Natives, statuses, tags_of, thrown, value_of};
use super::{background, codec, http, urls};
use crate::metrics::{MetricId, MetricKind, SampleUnit};
use crate::program::ScriptProgram;
use crate::sample::SampleTags;

/// Puts all of them under one name.
pub(super) fn install(ctx: &Ctx<'_>, state: &Rc<UserState>) -> Result<()> {
    let natives = Natives { ctx: ctx.clone(), object: Object::new(ctx.clone())? };
    basics(&natives, state)?;
    metrics(&natives, state)?;
    data(&natives, state)?;
    execution(&natives, state)?;
    http::install(&natives, state)?;
    background::install(&natives, state)?;
    codec::install(&natives)?;
    urls::install(&natives)?;
    let globals = ctx.globals();
    globals.set("__linerate", natives.object)?;
    let env = Object::new(ctx.clone())?;
    for (name, value) in state.program.env() {
        env.set(name.as_str(), value.as_str())?;
    }
    globals.set("__ENV", env)?;
    globals.set("__VU", state.number)?;
    globals.set("__ITER", 0)
}

/// The globals of a call.
pub(super) fn set_globals(ctx: &Ctx<'_>, state: &UserState) -> Result<()> {
    let globals = ctx.globals();
    globals.set("__ITER", state.iteration.get())?;
    let place = state.place.borrow();
    if !place.env.is_empty() {
        let env: Object<'_> = globals.get("__ENV")?;
        for (name, value) in place.env.iter() {
            env.set(name.as_str(), value.as_str())?;
        }
    }
    Ok(())
}

fn basics<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("sleep", move |ctx: Ctx<'js>, seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds.max(0.0));
        let time = time.map_err(|_| thrown(&ctx, "sleep() needs a number of seconds"))?;
        if of.is_loading.get() { Ok(()) } else { background::pause_for(&ctx, &of, time) }
    })?;
    let of = Rc::clone(state);
    natives.add("log", move |level: String, text: String| of.host.log(&level, &text))?;
    let of = Rc::clone(state);
    natives.add("seed", move |seed: f64| *of.random.borrow_mut() = Random::new(seed.to_bits()))?;
    let of = Rc::clone(state);
    natives.add("random", move || of.random.borrow_mut().unit())?;
    let of = Rc::clone(state);
    natives.add("enterGroup", move |ctx: Ctx<'js>, name: String| {
        of.enter_group(&name).map_err(|why| thrown(&ctx, &why))?;
        Ok::<_, rquickjs::Error>(of.host.now().as_nanos() as f64)
    })?;
    let of = Rc::clone(state);
    natives.add("leaveGroup", move |since: f64| {
        let nanos = (of.host.now().as_nanos() as f64 - since).max(0.0);
        of.leave_group(Duration::from_nanos(nanos as u64));
    })
}

fn metrics<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("check", move |ctx: Ctx<'js>, name: String, passes: bool, tags: Opt<Value<'js>>| {
        let custom = tags_of(&ctx, tags.0)?;
        of.sampled(|metrics, tags| {
            let tags = SampleTags { custom: &custom, check: Some(&name), ..tags };
            metrics.check(&name, passes, &tags);
        });
        Ok::<_, rquickjs::Error>(())
    })?;
    let of = Rc::clone(state);
    natives.add("metric", move |ctx: Ctx<'js>, kind: String, name: String, is_time: bool| {
        if !of.is_loading.get() {
            return Err(thrown(&ctx, "metrics must be declared in the init context"));
        }
        let kind = MetricKind::named(&kind).ok_or_else(|| thrown(&ctx, "there is no such kind of metric"))?;
        let unit = if is_time { SampleUnit::Time } else { SampleUnit::Plain };
        let id = of.metrics().register(&name, kind, unit);
        id.map(|id| id.0).map_err(|why| thrown(&ctx, &why))
    })?;
    let of = Rc::clone(state);
    natives.add("addSample", move |ctx: Ctx<'js>, id: u32, value: f64, tags: Opt<Value<'js>>| {
        if !value.is_finite() {
            of.host.log("warning", "a sample that is no number was not counted");
            return Ok::<_, rquickjs::Error>(false);
        }
        let custom = tags_of(&ctx, tags.0)?;
        of.sampled(|metrics, tags| metrics.add(MetricId(id), value, &SampleTags { custom: &custom, ..tags }));
        Ok(true)
    })
}

fn data<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("sharedLength", move |name: String| of.program.array(&name).map(|items| items.len()))?;
    let of = Rc::clone(state);
    natives.add("shareArray", move |ctx: Ctx<'js>, name: String, items: Vec<String>| {
        if !of.is_loading.get() {
            return Err(thrown(&ctx, "SharedArray must be made in the init context"));
        }
        of.program.share(&name, items.into_iter().map(String::into_boxed_str).collect());
        Ok(())
    })?;
    let of = Rc::clone(state);
    natives.add("sharedItem", move |ctx: Ctx<'js>, name: String, at: f64| -> Result<Value<'js>> {
        let items = of.program.array(&name);
        match items.as_ref().and_then(|items| items.get(at as usize)) {
            Some(item) => Ok(rquickjs::String::from_str(ctx, item)?.into_value()),
            None => Ok(Value::new_undefined(ctx)),
        }
    })?;
    let of = Rc::clone(state);
    natives.add("open", move |ctx: Ctx<'js>, path: String, is_binary: bool| -> Result<Value<'js>> {
        if !of.is_loading.get() {
            return Err(thrown(&ctx, "open() can be used in the init context alone"));
        }
        let path = ScriptProgram::path_of(of.program.path(), &path);
        let bytes = of.program.file(&path).map_err(|why| thrown(&ctx, &format!("open {path}: {why}")))?;
        value_of(&ctx, &bytes, is_binary)
    })
}

fn execution<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("execution", move |ctx: Ctx<'js>, what: String| fact(&ctx, &of, &what))?;
    let of = Rc::clone(state);
    natives.add("abort", move |ctx: Ctx<'js>, reason: String| {
        of.abort(&reason);
        Err::<(), _>(thrown(&ctx, &format!("test aborted: {reason}")))
    })?;
    let of = Rc::clone(state);
    natives.add("failTest", move |reason: String| of.host.fail(&reason))?;
    let of = Rc::clone(state);
    natives.add("optionsJson", move || {
        of.program.options().map_or_else(|| "{}".to_owned(), |options| options.source.to_string())
    })?;
    natives.add("textSummary", |ctx: Ctx<'js>, data: String, indent: String, colors: bool| {
        let data = serde_json::from_str(&data).map_err(|e| thrown(&ctx, &format!("textSummary: {e}")))?;
        Ok::<_, rquickjs::Error>(crate::summary::text_summary(&data, &indent, colors))
    })?;
    tags(natives, state)
}

fn tags<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("wideTag", move |name: String| {
        let wide = of.wide.borrow();
        let own = wide.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        own.or_else(|| match name.as_str() {
            "group" => Some(of.group().to_string()),
            "scenario" => Some(of.place.borrow().scenario.to_string()),
            _ => None,
        })
    })?;
    let of = Rc::clone(state);
    natives.add("setWideTag", move |name: String, value: Option<String>| {
        for tags in [&of.own_tags, &of.wide] {
            let mut tags = tags.borrow_mut();
            tags.retain(|(known, _)| *known != name);
            tags.extend(value.clone().map(|value| (name.clone(), value)));
        }
    })?;
    let of = Rc::clone(state);
    natives.add("setExpected", move |ranges: Option<Vec<Vec<u16>>>| {
        *of.expected.borrow_mut() = ranges.map(|ranges| statuses(&ranges));
    })
}

fn fact<'js>(ctx: &Ctx<'js>, state: &UserState, what: &str) -> Result<Value<'js>> {
    let (place, facts) = (state.place.borrow(), state.host.facts());
    if what.starts_with("scenario.") && place.scenario.is_empty() {
        return Err(thrown(ctx, "getting scenario information outside of the VU context is not supported"));
    }
    let text = |text: &str| Ok(rquickjs::String::from_str(ctx.clone(), text)?.into_value());
    let number = |n: f64| {
        let is_whole = n.fract() == 0.0 && n.abs() < 2e9;
        Ok(if is_whole { Value::new_int(ctx.clone(), n as i32) } else { Value::new_float(ctx.clone(), n) })
    };
    match what {
        "scenario.name" => text(&place.scenario),
        "scenario.executor" => text(&place.executor),
        "scenario.startTime" => number((facts.start_ms + place.after.as_secs_f64() * 1e3).floor()),
        "scenario.iterationInInstance" | "scenario.iterationInTest" => number(place.in_scenario as f64),
        "instance.iterationsInterrupted" => number(facts.interrupted as f64),
        "instance.iterationsCompleted" => number(facts.completed as f64),
        "instance.vusActive" => number(facts.active as f64),
        "instance.vusInitialized" => number(facts.users as f64),
        "instance.currentTestRunDuration" => number(facts.elapsed_ms),
        "vu.iteration" | "vu.iterationInScenario" => number(state.iteration.get() as f64),
        "vu.id" => number(state.number as f64),
        _ => Err(thrown(ctx, &format!("exec.{what} is not supported"))),
    }
}
