//! The files in docs/schemas/ are those of the types, and old documents are read.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use super::{bypass, comparison, diagnosis, lab, live, outcome, passive, pipelining};

/// What `explain` writes: of calls that it made, or of packets that it saw (`mode` is `passive`).
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is needed")]
enum Diagnosis {
    Calls(Box<diagnosis::Document>),
    Packets(Box<passive::Document>),
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The schema of a document. Fields that it does not name are allowed: newer versions may add some.
fn of<T: JsonSchema>(name: &str, what: &str) -> (String, String) {
    let mut schema = schema_for!(T).to_value();
    schema["title"] = json!(name);
    schema["description"] = json!(what);
    schema["properties"]["schema"] = json!({ "const": name });
    let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
    (format!("{}.schema.json", name.replace('/', "-")), text)
}

/// To write the files anew: `LINERATE_WRITE_SCHEMAS=1 cargo test -p linerate-report schema`.
#[test]
fn the_schema_files_are_those_of_the_types() {
    let write = std::env::var_os("LINERATE_WRITE_SCHEMAS").is_some();
    for (file, text) in [
        of::<outcome::Document>(outcome::SCHEMA, "What linerate load --json writes."),
        of::<comparison::Document>(comparison::SCHEMA, "What linerate compare --json writes."),
        of::<lab::Document>(lab::SCHEMA, "What linerate lab --json writes."),
        of::<pipelining::PipeliningDocument>(
            pipelining::SCHEMA,
            "What linerate explain --pipelining --json writes.",
        ),
        of::<bypass::BypassDocument>(bypass::SCHEMA, "What linerate bypass --status --json writes."),
        of::<live::LiveDocument>(
            live::SCHEMA,
            "What linerate explain --capture --port N --json writes for each window.",
        ),
        of::<Diagnosis>(diagnosis::SCHEMA, "What linerate explain --json writes."),
    ] {
        let path = folder().join(&file);
        if write {
            std::fs::write(&path, &text).expect("written");
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{file} is not that of its types: write it anew as the comment above says");
    }
}

/// The types of every value of a field, by its path.
fn required(schema: &Value, pointer: &str) -> Vec<String> {
    let names = schema.pointer(pointer).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Within a version no field may become required: documents of the first day lack it.
#[test]
fn documents_of_earlier_versions_are_read_and_have_what_is_required() {
    let first = include_str!("../../tests/saved/outcome-1-first.json");
    let later = include_str!("../../tests/saved/outcome-1-later.json");
    for text in [first, later] {
        let read: outcome::Document = serde_json::from_str(text).expect("an outcome");
        assert_eq!(read.schema, outcome::SCHEMA);
        let document: Value = serde_json::from_str(text).expect("JSON");
        let schema = schema_for!(outcome::Document).to_value();
        for name in required(&schema, "/required") {
            assert!(document.get(&name).is_some(), "{name} is required, and the first documents lack it");
        }
    }
    let text = include_str!("../../tests/saved/comparison-1-first.json");
    let read: comparison::Document = serde_json::from_str(text).expect("a comparison");
    assert_eq!(read.schema, comparison::SCHEMA);
}
