//! Saved documents: read with a limit, and told apart by their schema.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use linerate_report::schema::{comparison, diagnosis, lab, outcome, pipelining};
use serde_json::Value;

use crate::fault::{CommandFault, said};

/// Bytes of a document. Reason: one with a thousand rounds, or with all segments of a diagnosis,
/// has some hundred kB.
const MOST: u64 = 64 << 20;

/// A saved document.
#[derive(Debug)]
pub(crate) enum SavedDocument {
    Outcome(Box<outcome::Document>),
    Comparison(Box<comparison::Document>),
    Lab(Box<lab::Document>),
    Pipelining(Box<pipelining::PipeliningDocument>),
    /// Only shown again, so its fields are read as they come.
    Diagnosis(Box<Value>),
}

impl SavedDocument {
    /// In words, with an article.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            SavedDocument::Outcome(_) => "the outcome of a load run",
            SavedDocument::Comparison(_) => "a comparison",
            SavedDocument::Lab(_) => "the figures of a scenario",
            SavedDocument::Pipelining(_) => "a verdict on pipelining",
            SavedDocument::Diagnosis(_) => "a diagnosis",
        }
    }
}

/// What to advise when a file cannot be a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice {
    /// It cannot be read.
    pub(crate) unreadable: &'static str,
    /// It is a folder.
    pub(crate) folder: &'static str,
    /// It is a pipe or a device.
    pub(crate) no_file: &'static str,
    /// It is too large.
    pub(crate) large: &'static str,
}

/// The bytes of a file that `flag` names, at most `most`.
pub(crate) fn read_bytes(
    flag: &str,
    path: &Path,
    most: u64,
    advice: Advice,
) -> Result<Vec<u8>, CommandFault> {
    let fault = |what: String, hint: &str| {
        CommandFault::input(format!("{flag}: {} {what}", path.display())).hint(hint)
    };
    let unreadable = |e: &std::io::Error| fault(format!("cannot be read: {}", said(e)), advice.unreadable);
    let about = fs::metadata(path).map_err(|e| unreadable(&e))?;
    if about.is_dir() {
        return Err(fault("is a folder".to_owned(), advice.folder));
    }
    if !about.is_file() {
        // To read a pipe may take for ever.
        return Err(fault("is no ordinary file".to_owned(), advice.no_file));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| unreadable(&e))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 > most {
        return Err(fault(format!("is larger than {} MiB", most >> 20), advice.large));
    }
    Ok(bytes)
}

/// The text of a file that `flag` names.
pub(crate) fn read(flag: &str, path: &Path) -> Result<String, CommandFault> {
    let shown = path.display();
    let advice = Advice {
        unreadable: "name a file that linerate wrote with --json FILE",
        folder: "name a document in a file",
        no_file: "name a document in a file",
        large: "no document of linerate is; was it written with --json FILE?",
    };
    String::from_utf8(read_bytes(flag, path, MOST, advice)?).map_err(|_| {
        CommandFault::input(format!("{flag}: {shown} is no text")).hint("name a JSON document of linerate")
    })
}

/// The document of a text; an error says what is wrong with it.
pub(crate) fn parse(file: &str, text: &str) -> Result<SavedDocument, String> {
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
            serde_json::from_value(value).map(|d| SavedDocument::Outcome(Box::new(d))).map_err(wrong)
        }
        comparison::SCHEMA => {
            serde_json::from_value(value).map(|d| SavedDocument::Comparison(Box::new(d))).map_err(wrong)
        }
        lab::SCHEMA => serde_json::from_value(value).map(|d| SavedDocument::Lab(Box::new(d))).map_err(wrong),
        pipelining::SCHEMA => {
            serde_json::from_value(value).map(|d| SavedDocument::Pipelining(Box::new(d))).map_err(wrong)
        }
        diagnosis::SCHEMA => Ok(SavedDocument::Diagnosis(Box::new(value))),
        other => Err(format!(
            "{file} has the schema {other:?}; known are {}, {}, {}, {} and {}",
            outcome::SCHEMA,
            comparison::SCHEMA,
            lab::SCHEMA,
            pipelining::SCHEMA,
            diagnosis::SCHEMA
        )),
    }
}
