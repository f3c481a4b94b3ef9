//! Values of JavaScript, and functions that it may call.

use rquickjs::function::IntoJsFunc;
use rquickjs::{Array, ArrayBuffer, Ctx, Exception, Function, Object, Result, Value};

use crate::action::ExpectedStatuses;

/// Adds functions to an object.
pub(super) struct Natives<'js> {
    pub(super) ctx: Ctx<'js>,
    pub(super) object: Object<'js>,
}

impl<'js> Natives<'js> {
    pub(super) fn add<P, F: IntoJsFunc<'js, P> + 'js>(&self, name: &str, f: F) -> Result<()> {
        self.object.set(name, Function::new(self.ctx.clone(), f)?)
    }
}

/// An exception of a script's own mistake.
pub(super) fn thrown(ctx: &Ctx<'_>, why: &str) -> rquickjs::Error {
    Exception::throw_message(ctx, why)
}

/// What a script that is cut off gets. It cannot keep it off by catching it: whatever it asks for next, it gets it again.
pub(super) fn cut_off(ctx: &Ctx<'_>) -> rquickjs::Error {
    Exception::throw_message(ctx, "the iteration was cut off")
}

/// Why a tag among these is none.
pub(super) fn wrong_tag(tags: &Value<'_>) -> Result<Option<String>> {
    let Some(object) = tags.as_object() else { return Ok(None) };
    for entry in object.props::<String, Value<'_>>() {
        let (name, value) = entry?;
        if !(value.is_string() || value.is_number() || value.is_bool()) {
            return Ok(Some(format!("the tag {name:?} must be a string, a number or a boolean")));
        }
    }
    Ok(None)
}

/// Tags of one sample, as a script gives them.
pub(super) fn tags_of<'js>(ctx: &Ctx<'js>, value: Option<Value<'js>>) -> Result<Vec<(String, String)>> {
    let is_given = |value: &Value<'js>| !value.is_undefined() && !value.is_null();
    let Some(value) = value.filter(is_given) else { return Ok(Vec::new()) };
    let Some(object) = value.as_object() else { return Err(thrown(ctx, "tags have to be an object")) };
    if let Some(why) = wrong_tag(&value)? {
        return Err(thrown(ctx, &why));
    }
    let mut tags = Vec::new();
    for entry in object.props::<String, Value<'js>>() {
        let (name, value) = entry?;
        tags.push((name, text_of(ctx, &value)?));
    }
    Ok(tags)
}

/// A value as text.
pub(super) fn text_of<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<String> {
    if let Some(text) = value.as_string() {
        return text.to_string();
    }
    let string: Function<'js> = ctx.globals().get("String")?;
    string.call((value.clone(),))
}

/// Bytes as a value of JavaScript.
pub(super) fn value_of<'js>(ctx: &Ctx<'js>, bytes: &[u8], is_binary: bool) -> Result<Value<'js>> {
    if is_binary {
        return Ok(ArrayBuffer::new_copy(ctx.clone(), bytes)?.into_value());
    }
    Ok(rquickjs::String::from_str(ctx.clone(), &String::from_utf8_lossy(bytes))?.into_value())
}

/// The bytes of a text or of an `ArrayBuffer`.
pub(super) fn bytes_of<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Vec<u8>> {
    if value.is_undefined() || value.is_null() {
        return Ok(Vec::new());
    }
    if let Some(text) = value.as_string() {
        return Ok(text.to_string()?.into_bytes());
    }
    if value.as_object().is_some_and(|object| {
        object.is_array_buffer() || object.contains_key("BYTES_PER_ELEMENT").unwrap_or(false)
    }) {
        // Each byte as a letter: the memory of a buffer is JavaScript's own.
        let natives: Object<'js> = ctx.globals().get("__linerate")?;
        let letters: String = natives.get::<_, Function<'js>>("letters")?.call((value.clone(),))?;
        return letters.chars().map(|c| u8::try_from(c).map_err(|_| thrown(ctx, "no bytes"))).collect();
    }
    text_of(ctx, value).map(String::into_bytes)
}

/// Statuses from pairs of numbers.
pub(super) fn statuses(ranges: &[Vec<u16>]) -> ExpectedStatuses {
    let pair = |range: &Vec<u16>| Some((*range.first()?, *range.get(1)?));
    ExpectedStatuses(ranges.iter().filter_map(pair).collect())
}

/// An array of texts.
pub(super) fn texts<'js>(ctx: &Ctx<'js>, all: impl IntoIterator<Item = String>) -> Result<Array<'js>> {
    let array = Array::new(ctx.clone())?;
    for (at, text) in all.into_iter().enumerate() {
        array.set(at, text)?;
    }
    Ok(array)
}
