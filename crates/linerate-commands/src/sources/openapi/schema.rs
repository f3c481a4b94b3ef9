//! A value that fits a schema: the example, default or first choice it gives, or one made from its
//! type.

use linerate_load::plan::units::quoted;
use serde_json::{Map, Number, Value as Json};
use yaml_serde::Value;

use super::document::{OpenapiDocument, json, text};
use crate::sources::limits::{MAX_SAMPLE_LENGTH, MAX_SCHEMA_DEPTH, MAX_SCHEMA_STEPS, OPTIONAL_DEPTH};

const ENDLESS: &str = "its schema refers to itself without end";

/// Makes a value. The error says which part of the schema gives none.
pub(super) fn sample(document: &OpenapiDocument, schema: &Value) -> Result<Json, String> {
    Sampler { document, steps: 0 }.sample(schema, 0)
}

struct Sampler<'a> {
    document: &'a OpenapiDocument,
    steps: usize,
}

impl<'a> Sampler<'a> {
    fn sample(&mut self, schema: &'a Value, depth: usize) -> Result<Json, String> {
        self.steps += 1;
        if depth > MAX_SCHEMA_DEPTH {
            return Err(ENDLESS.to_owned());
        }
        if self.steps > MAX_SCHEMA_STEPS {
            return Err("its schema is too large".to_owned());
        }
        let schema = self.document.resolve(schema)?;
        if let Some(given) = given(schema) {
            return json(given);
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_sequence) {
            return self.all_of(schema, parts, depth);
        }
        for key in ["oneOf", "anyOf"] {
            if let Some(choices) = schema.get(key).and_then(Value::as_sequence) {
                return self.first_of(choices, depth);
            }
        }
        match type_of(schema) {
            Some("object") => self.object(schema, depth).map(Json::Object),
            Some("array") => self.array(schema, depth),
            Some("string") => string(schema).map(Json::String),
            Some("integer") => number(schema, true).map(Json::Number),
            Some("number") => number(schema, false).map(Json::Number),
            Some("boolean") => Ok(Json::Bool(true)),
            Some("null") => Ok(Json::Null),
            Some(other) => Err(format!("the type {} is not known", quoted(other))),
            None => Err("its schema has no type and no example".to_owned()),
        }
    }

    /// Objects are merged; of anything else the first part that gives a value counts.
    fn all_of(&mut self, schema: &'a Value, parts: &'a [Value], depth: usize) -> Result<Json, String> {
        let mut merged = Map::new();
        let mut other = None;
        for part in parts {
            match self.sample(part, depth + 1) {
                Ok(Json::Object(entries)) => merged.extend(entries),
                Ok(value) => other = other.or(Some(value)),
                // A part may only narrow the others: a description, a list of required properties.
                Err(why) if type_of(self.document.resolve(part)?).is_some() => return Err(why),
                Err(_) => {}
            }
        }
        if schema.get("properties").is_some() {
            merged.extend(self.object(schema, depth)?);
        }
        match other {
            Some(value) if merged.is_empty() => Ok(value),
            None if merged.is_empty() => Err("allOf gives no value".to_owned()),
            _ => Ok(Json::Object(merged)),
        }
    }

    fn first_of(&mut self, choices: &'a [Value], depth: usize) -> Result<Json, String> {
        let mut first_error = None;
        for choice in choices {
            match self.sample(choice, depth + 1) {
                Ok(Json::Null) => {}
                Ok(value) => return Ok(value),
                Err(why) => first_error = first_error.or(Some(why)),
            }
        }
        Err(first_error.unwrap_or_else(|| "there is nothing to choose from".to_owned()))
    }

    /// Required properties always, the others while they are near the top and can be made.
    fn object(&mut self, schema: &'a Value, depth: usize) -> Result<Map<String, Json>, String> {
        let required = schema.get("required").and_then(Value::as_sequence);
        let required = |name: &str| required.is_some_and(|r| r.iter().any(|n| n.as_str() == Some(name)));
        let mut entries = Map::new();
        for (name, property) in schema.get("properties").and_then(Value::as_mapping).into_iter().flatten() {
            let Some(name) = name.as_str() else { continue };
            let resolved = self.document.resolve(property);
            let read_only = |p: &Value| p.get("readOnly").and_then(Value::as_bool) == Some(true);
            if resolved.as_ref().is_ok_and(|p| read_only(p)) {
                continue;
            }
            if required(name) {
                let value = self.sample(property, depth + 1).map_err(|why| within(name, why))?;
                entries.insert(name.to_owned(), value);
            } else if depth < OPTIONAL_DEPTH
                && let Ok(value) = self.sample(property, depth + 1)
            {
                entries.insert(name.to_owned(), value);
            }
        }
        Ok(entries)
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> Result<Json, String> {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let length = bound("minItems").unwrap_or(1).max(1).min(bound("maxItems").unwrap_or(u64::MAX));
        if length > MAX_SAMPLE_LENGTH {
            return Err(format!("an array of {length} items is too long to make"));
        }
        let Some(items) = schema.get("items").filter(|_| length > 0) else {
            return Ok(Json::Array(Vec::new()));
        };
        let item = self.sample(items, depth + 1).map_err(|why| within("items", why))?;
        if length > 1 && schema.get("uniqueItems").and_then(Value::as_bool) == Some(true) {
            return Err("items that all differ are not made; give it an example".to_owned());
        }
        Ok(Json::Array(vec![item; length as usize]))
    }
}

/// An error with the name of the part it is in.
fn within(name: &str, why: String) -> String {
    if why == ENDLESS { why } else { format!("{name}: {why}") }
}

/// A value that the schema itself contains.
fn given(schema: &Value) -> Option<&Value> {
    let first = |key: &str| schema.get(key).and_then(Value::as_sequence).and_then(|s| s.first());
    schema
        .get("example")
        .or_else(|| first("examples"))
        .or_else(|| schema.get("default"))
        .or_else(|| schema.get("const"))
        .or_else(|| schema.get("enum")?.as_sequence()?.iter().find(|v| !v.is_null()))
}

/// The type, the first but null of several (3.1), or what other keys tell.
fn type_of(schema: &Value) -> Option<&str> {
    let named = match schema.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Sequence(names)) => {
            names.iter().filter_map(Value::as_str).find(|n| *n != "null").or(Some("null"))
        }
        _ => None,
    };
    let has = |key: &str| schema.get(key).is_some();
    named.or_else(|| {
        [
            ("properties", "object"),
            ("additionalProperties", "object"),
            ("items", "array"),
            ("pattern", "string"),
            ("format", "string"),
        ]
        .into_iter()
        .find(|(key, _)| has(key))
        .map(|(_, name)| name)
    })
}

fn string(schema: &Value) -> Result<String, String> {
    let usual = match text(schema, "format").unwrap_or("") {
        "date" => "2024-01-31",
        "date-time" => "2024-01-31T12:00:00Z",
        "time" => "12:00:00Z",
        "duration" => "PT1M",
        "email" | "idn-email" => "user@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "url" | "iri" => "https://example.com/",
        "uri-reference" | "iri-reference" => "/",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        "byte" => "YQ==",
        _ => "a",
    };
    if text(schema, "pattern").is_some() {
        return Err("a string by a pattern is not made; give it an example".to_owned());
    }
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let least = bound("minLength").unwrap_or(0);
    if least > MAX_SAMPLE_LENGTH {
        return Err(format!("a string of {least} characters is too long to make"));
    }
    if usual == "a" {
        let length = least.max(1).min(bound("maxLength").unwrap_or(u64::MAX));
        return Ok("a".repeat(length as usize));
    }
    let length = usual.len() as u64;
    match length >= least && length <= bound("maxLength").unwrap_or(u64::MAX) {
        true => Ok(usual.to_owned()),
        false => Err("its format and its length don't fit together here; give it an example".to_owned()),
    }
}

/// 1, or the nearest number that the bounds allow.
fn number(schema: &Value, whole: bool) -> Result<Number, String> {
    let value = |key: &str| schema.get(key).and_then(Value::as_f64);
    // In 3.0 exclusiveMinimum says how minimum is meant, in 3.1 it is a bound itself.
    let exclusive = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
    let step = value("multipleOf").filter(|s| *s > 0.0).unwrap_or(if whole { 1.0 } else { 0.0 });
    let away = if step > 0.0 { step } else { 0.5 };
    let least = value("exclusiveMinimum")
        .map(|n| n + away)
        .or_else(|| value("minimum").map(|n| if exclusive("exclusiveMinimum") { n + away } else { n }));
    let most = value("exclusiveMaximum")
        .map(|n| n - away)
        .or_else(|| value("maximum").map(|n| if exclusive("exclusiveMaximum") { n - away } else { n }));
    let start = 1.0_f64.min(most.unwrap_or(f64::INFINITY)).max(least.unwrap_or(f64::NEG_INFINITY));
    let made = if step > 0.0 {
        let up = (start / step).ceil() * step;
        if most.is_some_and(|m| up > m) { (start / step).floor() * step } else { up }
    } else {
        start
    };
    if most.is_some_and(|m| made > m) || least.is_some_and(|l| made < l) {
        return Err("no number lies within its bounds".to_owned());
    }
    let number = if made.fract() == 0.0 && made.abs() < 9e15 {
        Some(Number::from(made as i64))
    } else {
        Number::from_f64(made)
    };
    number.ok_or_else(|| "no number lies within its bounds".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn document(schemas: &str) -> OpenapiDocument {
        let text =
            format!("openapi: 3.1.0\ncomponents:\n  schemas:\n    {}\n", schemas.replace('\n', "\n    "));
        OpenapiDocument::parse(&text, Path::new("api.yaml")).unwrap()
    }

    fn made(schema: &str) -> Result<String, String> {
        let document = document(
            "Name: { type: string, minLength: 3 }\nLoop: { type: object, properties: { next: { $ref: '#/components/schemas/Loop' } } }\nEndless: { type: object, required: [next], properties: { next: { $ref: '#/components/schemas/Endless' } } }\nCircle: { $ref: '#/components/schemas/Circle' }\na~b/c: { const: 7 }",
        );
        let schema: Value = yaml_serde::from_str(schema).unwrap();
        sample(&document, &schema).map(|v| v.to_string())
    }

    #[test]
    fn values_that_fit() {
        for (schema, value) in [
            ("{ type: integer }", "1"),
            ("{ type: integer, minimum: 5 }", "5"),
            ("{ type: integer, minimum: 5, exclusiveMinimum: true }", "6"),
            ("{ type: integer, exclusiveMinimum: 5 }", "6"),
            ("{ type: integer, maximum: -3 }", "-3"),
            ("{ type: integer, exclusiveMaximum: 0 }", "-1"),
            ("{ type: integer, minimum: 7, multipleOf: 5 }", "10"),
            ("{ type: number, maximum: 0.25 }", "0.25"),
            ("{ type: number, minimum: 0, exclusiveMinimum: true, maximum: 2 }", "1"),
            ("{ type: string }", "\"a\""),
            ("{ type: string, minLength: 3 }", "\"aaa\""),
            ("{ type: string, maxLength: 0 }", "\"\""),
            ("{ type: string, format: date }", "\"2024-01-31\""),
            ("{ format: uuid }", "\"00000000-0000-4000-8000-000000000000\""),
            ("{ type: boolean }", "true"),
            ("{ type: [\"null\", integer] }", "1"),
            ("{ type: 'null' }", "null"),
            ("{ enum: [null, b, c] }", "\"b\""),
            ("{ const: 5 }", "5"),
            ("{ type: string, default: d, enum: [e] }", "\"d\""),
            ("{ type: string, examples: [x, y] }", "\"x\""),
            ("{ type: object, example: { b: 1, a: [x] } }", "{\"a\":[\"x\"],\"b\":1}"),
            ("{ type: array, items: { type: integer } }", "[1]"),
            ("{ type: array, minItems: 3, items: { type: boolean } }", "[true,true,true]"),
            ("{ type: array, maxItems: 0, items: { type: integer } }", "[]"),
            ("{ type: array }", "[]"),
            ("{ type: object }", "{}"),
            (
                "{ properties: { a: { type: integer }, b: { type: string, pattern: x }, id: { type: integer, readOnly: true } } }",
                "{\"a\":1}",
            ),
            (
                "{ allOf: [{ properties: { a: { const: 1 } } }, { required: [a] }], properties: { b: { const: 2 } } }",
                "{\"a\":1,\"b\":2}",
            ),
            ("{ allOf: [{ $ref: '#/components/schemas/Name' }] }", "\"aaa\""),
            ("{ oneOf: [{ type: 'null' }, { type: string, pattern: x }, { const: 3 }] }", "3"),
            ("{ anyOf: [{ type: integer }] }", "1"),
            ("{ $ref: '#/components/schemas/a~0b~1c' }", "7"),
            ("{ $ref: '#/components/schemas/Loop' }", "{\"next\":{\"next\":{\"next\":{}}}}"),
        ] {
            assert_eq!(made(schema), Ok(value.to_owned()), "{schema}");
        }
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        let schemas = [
            "{ type: string, pattern: '^a+$' }",
            "{ type: object, required: [a], properties: { a: { type: array, items: { type: string, pattern: x } } } }",
            "{}",
            "{ type: thing }",
            "{ $ref: '#/components/schemas/Missing' }",
            "{ $ref: 'other.yaml#/x' }",
            "{ $ref: '#/components/schemas/Endless' }",
            "{ $ref: '#/components/schemas/Circle' }",
            "{ type: integer, minimum: 5, maximum: 4 }",
            "{ type: integer, minimum: 6, maximum: 9, multipleOf: 5 }",
            "{ type: string, format: uuid, maxLength: 5 }",
            "{ type: string, minLength: 1000000 }",
            "{ type: array, minItems: 1000000, items: { type: integer } }",
            "{ type: array, minItems: 2, uniqueItems: true, items: { type: integer } }",
            "{ oneOf: [] }",
        ];
        let said: String = schemas.iter().map(|s| format!("{s}\n  -> {}\n", made(s).unwrap_err())).collect();
        insta::assert_snapshot!(said);
    }
}
