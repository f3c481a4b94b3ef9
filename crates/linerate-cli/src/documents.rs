//! Saved documents: read with a limit, and told apart by their schema.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use linerate_report::schema::{comparison, diagnosis, outcome};
use serde_json::Value;

use crate::fault::{Fault, said};

/// Bytes of a document. Reason: one with a thousand rounds, or with all segments of a diagnosis,
/// has some hundred kB.
const MOST: u64 = 64 << 20;

/// A saved document.
#[derive(Debug)]
pub(crate) enum Document {
    Outcome(Box<outcome::Document>),
    Comparison(Box<comparison::Document>),
    /// Only shown again, so its fields are read as they come.
    Diagnosis(Box<Value>),
}

impl Document {
    /// In words, with an article.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Document::Outcome(_) => "the outcome of a load run",
            Document::Comparison(_) => "a comparison",
            Document::Diagnosis(_) => "a diagnosis",
        }
    }
}

/// The text of a file that `flag` names.
pub(crate) fn read(flag: &str, path: &Path) -> Result<String, Fault> {
    let shown = path.display();
    let cannot = |e: &std::io::Error| {
        Fault::input(format!("{flag}: {shown} cannot be read: {}", said(e)))
            .hint("name a file that linerate wrote with --json FILE")
    };
    let about = fs::metadata(path).map_err(|e| cannot(&e))?;
    if !about.is_file() {
        // To read a pipe may take for ever.
        let what = if about.is_dir() { "a folder" } else { "no ordinary file" };
        return Err(Fault::input(format!("{flag}: {shown} is {what}")).hint("name a document in a file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| cannot(&e))?;
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    if bytes.len() as u64 > MOST {
        return Err(Fault::input(format!("{flag}: {shown} is larger than {} MiB", MOST >> 20))
            .hint("no document of linerate is; was it written with --json FILE?"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Fault::input(format!("{flag}: {shown} is no text")).hint("name a JSON document of linerate")
    })
}

/// The document of a text; an error says what is wrong with it.
pub(crate) fn parse(file: &str, text: &str) -> Result<Document, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| match e.classify() {
        serde_json::error::Category::Eof => format!("{file} ends in the middle, at line {}", e.line()),
        _ => format!("{file} is no JSON document: line {}, column {}", e.line(), e.column()),
    })?;
    let Some(schema) = value.get("schema").and_then(Value::as_str).map(str::to_owned) else {
        return Err(format!("{file} has no \"schema\", so it is no document of linerate"));
    };
    let wrong = |e: serde_json::Error| format!("{file} says it is {schema}, but it is not: {e}");
    match schema.as_str() {
        outcome::SCHEMA => {
            serde_json::from_value(value).map(|d| Document::Outcome(Box::new(d))).map_err(wrong)
        }
        comparison::SCHEMA => {
            serde_json::from_value(value).map(|d| Document::Comparison(Box::new(d))).map_err(wrong)
        }
        diagnosis::SCHEMA => Ok(Document::Diagnosis(Box::new(value))),
        other => Err(format!(
            "{file} has the schema {other:?}; known are {}, {} and {}",
            outcome::SCHEMA,
            comparison::SCHEMA,
            diagnosis::SCHEMA
        )),
    }
}
