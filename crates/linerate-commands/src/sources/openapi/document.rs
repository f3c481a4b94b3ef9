//! The description as plain values, and references within it.

use std::path::Path;

use linerate_load::plan::units::quoted;
use yaml_serde::Value;

use crate::sources::SourceError;
use crate::sources::decode_percent;
use crate::sources::limits::MAX_SCHEMA_DEPTH;

/// A parsed description.
#[derive(Debug)]
pub(super) struct OpenapiDocument {
    root: Value,
}

impl OpenapiDocument {
    /// JSON when it begins like it, YAML otherwise; errors name line and column.
    pub(super) fn parse(text: &str, path: &Path) -> Result<OpenapiDocument, SourceError> {
        let root: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| {
                let said = e.to_string();
                let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
                SourceError::at(path, e.line(), Some(e.column().max(1)), format!("not JSON: {said}"))
            })?
        } else {
            yaml_serde::from_str(text).map_err(|e| {
                let said = e.to_string();
                let said = said.split(" at line ").next().unwrap_or(&said);
                match e.location() {
                    Some(at) => {
                        SourceError::at(path, at.line(), Some(at.column()), format!("not YAML: {said}"))
                    }
                    None => SourceError::file(path, format!("not YAML: {said}")),
                }
            })?
        };
        check_version(&root).map_err(|why| SourceError::file(path, why))?;
        Ok(OpenapiDocument { root })
    }

    /// A value at the top.
    pub(super) fn root(&self, key: &str) -> Option<&Value> {
        self.root.get(key)
    }

    /// The target of a reference, or the value itself if it is not a reference.
    pub(super) fn resolve<'a>(&'a self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..MAX_SCHEMA_DEPTH {
            let Some(reference) = text(value, "$ref") else { return Ok(value) };
            value = self.find(reference)?;
        }
        Err(format!("{} refers to itself", quoted(text(value, "$ref").unwrap_or(""))))
    }

    /// A JSON pointer in a fragment (RFC 6901 section 6).
    fn find(&self, reference: &str) -> Result<&Value, String> {
        let missing = || format!("{} is not in the description", quoted(reference));
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("{} is in another file", quoted(reference)));
        };
        let pointer = String::from_utf8_lossy(&decode_percent(pointer)).into_owned();
        pointer.split('/').skip(1).try_fold(&self.root, |value, step| {
            let key = step.replace("~1", "/").replace("~0", "~");
            let in_list = || value.as_sequence()?.get(key.parse::<usize>().ok()?);
            value.get(key.as_str()).or_else(in_list).ok_or_else(missing)
        })
    }
}

fn check_version(root: &Value) -> Result<(), String> {
    if root.as_mapping().is_none() {
        return Err("no OpenAPI description: expected is an object with openapi: 3.x.y".to_owned());
    }
    if let Some(version) = root.get("swagger").and_then(plain) {
        return Err(format!("Swagger {version} is not read; convert it to OpenAPI 3"));
    }
    match root.get("openapi").and_then(plain) {
        Some(version) if version == "3" || version.starts_with("3.") => Ok(()),
        Some(version) => Err(format!("OpenAPI {version} is not known; 3.0 and 3.1 are")),
        None => Err("no OpenAPI description: the key openapi is missing, such as openapi: 3.1.0".to_owned()),
    }
}

/// The text under a key.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// A string, number or truth value as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        _ => None,
    }
}

/// A value of the description as JSON.
pub(super) fn json(value: &Value) -> Result<serde_json::Value, String> {
    serde_json::to_value(value).map_err(|e| format!("its example is not JSON: {e}"))
}
