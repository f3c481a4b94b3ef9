//! Parameters in paths, queries, header fields and cookies, written as their style says.

use linerate_load::plan::parts::is_token;
use linerate_load::plan::units::quoted;
use serde_json::Value as Json;
use yaml_serde::Value;

use super::document::{OpenapiDocument, text};
use super::{example, given_example};
use crate::sources::{encode, encode_component};

/// A path with its parameters filled in, and what else they make.
#[derive(Debug)]
pub(super) struct Parts {
    path: String,
    query: Vec<String>,
    fields: Vec<(String, String)>,
    cookies: Vec<String>,
}

/// The parameters of an operation and, unless it has its own of the same name and place, of its
/// path.
pub(super) fn of<'a>(
    document: &'a OpenapiDocument,
    item: &'a Value,
    operation: &'a Value,
) -> Result<Vec<&'a Value>, String> {
    let mut all: Vec<&Value> = Vec::new();
    for owner in [operation, item] {
        for parameter in owner.get("parameters").and_then(Value::as_sequence).into_iter().flatten() {
            let parameter = document.resolve(parameter)?;
            let same = |p: &&Value| {
                text(p, "name") == text(parameter, "name") && text(p, "in") == text(parameter, "in")
            };
            if !all.iter().any(same) {
                all.push(parameter);
            }
        }
    }
    Ok(all)
}

impl Parts {
    pub(super) fn new(template: &str) -> Parts {
        Parts { path: template.to_owned(), query: Vec::new(), fields: Vec::new(), cookies: Vec::new() }
    }

    /// Adds a parameter that is required, or that the description gives an example for.
    pub(super) fn add(&mut self, document: &OpenapiDocument, parameter: &Value) -> Result<(), String> {
        let name = text(parameter, "name").ok_or("a parameter has no name")?;
        let place =
            text(parameter, "in").ok_or_else(|| format!("parameter {} has no place", quoted(name)))?;
        let required = parameter.get("required").and_then(Value::as_bool).unwrap_or(place == "path");
        let described = described(parameter);
        if !required && given_example(document, described)?.is_none() {
            return Ok(());
        }
        let value =
            example(document, described).map_err(|why| format!("parameter {}: {why}", quoted(name)))?;
        let style =
            Style::of(parameter, place).map_err(|why| format!("parameter {}: {why}", quoted(name)))?;
        self.write(name, place, &value, &style).map_err(|why| format!("parameter {}: {why}", quoted(name)))
    }

    fn write(&mut self, name: &str, place: &str, value: &Json, style: &Style) -> Result<(), String> {
        match place {
            "path" => {
                let text = style.joined(value, ",", |t| encode_component(t.as_bytes()))?;
                if text.is_empty() {
                    return Err("its value is empty, which no path segment may be".to_owned());
                }
                self.path = self.path.replace(&format!("{{{name}}}"), &text);
            }
            "query" => self.query.extend(style.pairs(name, value)?),
            // OpenAPI says that these three are described elsewhere.
            "header"
                if ["accept", "content-type", "authorization"]
                    .iter()
                    .any(|n| n.eq_ignore_ascii_case(name)) => {}
            "header" => {
                let text = style.joined(value, ",", str::to_owned)?;
                if !is_token(name) || text.chars().any(char::is_control) {
                    return Err("no header field can be made of it".to_owned());
                }
                self.fields.push((name.to_owned(), text));
            }
            "cookie" => self.cookies.extend(style.pairs(name, value)?),
            other => return Err(format!("its place {} is not known", quoted(other))),
        }
        Ok(())
    }

    /// The path with its query, and the fields.
    pub(super) fn finish(self) -> Result<(String, Vec<(String, String)>), String> {
        if let Some(name) = self.path.split_once('{').and_then(|(_, rest)| rest.split('}').next()) {
            return Err(format!("its path has no parameter {}", quoted(name)));
        }
        let mut fields = self.fields;
        if !self.cookies.is_empty() {
            fields.push(("Cookie".to_owned(), self.cookies.join("; ")));
        }
        let path = if self.path.starts_with('/') { self.path } else { format!("/{}", self.path) };
        let query = self.query.join("&");
        Ok((if query.is_empty() { path } else { format!("{path}?{query}") }, fields))
    }
}

/// The object that contains schema and examples: the parameter, or its only media type.
fn described(parameter: &Value) -> &Value {
    let content = parameter.get("content").and_then(Value::as_mapping);
    content.and_then(|c| c.values().next()).unwrap_or(parameter)
}

/// How a value becomes text.
#[derive(Debug)]
struct Style {
    name: String,
    explode: bool,
    allow_reserved: bool,
    /// Written as JSON, because `content` declares it.
    json: bool,
}

impl Style {
    fn of(parameter: &Value, place: &str) -> Result<Style, String> {
        let usual = if matches!(place, "query" | "cookie") { "form" } else { "simple" };
        let name = text(parameter, "style").unwrap_or(usual);
        let known: &[&str] = match place {
            "query" => &["form", "spaceDelimited", "pipeDelimited", "deepObject"],
            "cookie" => &["form"],
            _ => &["simple"],
        };
        if !known.contains(&name) {
            return Err(format!("the style {} in the {place} is not made", quoted(name)));
        }
        let flag = |key: &str| parameter.get(key).and_then(Value::as_bool);
        let media =
            parameter.get("content").and_then(Value::as_mapping).and_then(|c| c.keys().next()?.as_str());
        Ok(Style {
            name: name.to_owned(),
            explode: flag("explode").unwrap_or(name == "form"),
            allow_reserved: flag("allowReserved").unwrap_or(false),
            json: media.is_some_and(|m| m == "application/json" || m.ends_with("+json")),
        })
    }

    /// One text: `1`, `1,2`, `a,1,b,2` or, exploded, `a=1,b=2`.
    fn joined(
        &self,
        value: &Json,
        between: &str,
        encoded: impl Fn(&str) -> String,
    ) -> Result<String, String> {
        if self.json {
            return Ok(encoded(&value.to_string()));
        }
        Ok(match value {
            Json::Array(items) => items
                .iter()
                .map(|i| primitive(i).map(|t| encoded(&t)))
                .collect::<Result<Vec<_>, _>>()?
                .join(between),
            Json::Object(entries) => {
                let equals = if self.explode && self.name == "simple" { "=" } else { between };
                let entry = |(k, v): (&String, &Json)| {
                    primitive(v).map(|v| format!("{}{equals}{}", encoded(k), encoded(&v)))
                };
                entries.iter().map(entry).collect::<Result<Vec<_>, _>>()?.join(between)
            }
            one => encoded(&primitive(one)?),
        })
    }

    /// `name=value` as often as the style says.
    fn pairs(&self, name: &str, value: &Json) -> Result<Vec<String>, String> {
        const RESERVED: &[u8] = b":/?@!$'()*,;";
        let encoded = |text: &str| {
            encode(text.as_bytes(), |b| {
                b.is_ascii_alphanumeric()
                    || b"-._~".contains(&b)
                    || (self.allow_reserved && RESERVED.contains(&b))
            })
        };
        let name = encode_component(name.as_bytes());
        let pair = |name: &str, value: &Json| primitive(value).map(|v| format!("{name}={}", encoded(&v)));
        match value {
            Json::Object(entries) if self.name == "deepObject" => {
                let entry =
                    |(k, v)| pair(&format!("{name}%5B{}%5D", encode_component(String::as_bytes(k))), v);
                entries.iter().map(entry).collect()
            }
            Json::Object(entries) if self.explode && !self.json => {
                entries.iter().map(|(k, v)| pair(&encode_component(k.as_bytes()), v)).collect()
            }
            Json::Array(items) if self.explode && !self.json => {
                items.iter().map(|i| pair(&name, i)).collect()
            }
            value => {
                let between = match self.name.as_str() {
                    "spaceDelimited" => "%20",
                    "pipeDelimited" => "%7C",
                    _ => ",",
                };
                Ok(vec![format!("{name}={}", self.joined(value, between, encoded)?)])
            }
        }
    }
}

/// The entries of an object as a form's body.
pub(super) fn pairs(value: &Json) -> Result<String, String> {
    let Json::Object(entries) = value else { return Err("a form is made of an object".to_owned()) };
    let mut written = Vec::new();
    for (name, value) in entries {
        let items = match value {
            Json::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        for item in items {
            written.push(format!(
                "{}={}",
                encode_component(name.as_bytes()),
                encode_component(shown(item).as_bytes())
            ));
        }
    }
    Ok(written.join("&"))
}

/// A value as text: strings without quotes, the rest as JSON.
pub(super) fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

fn primitive(value: &Json) -> Result<String, String> {
    match value {
        Json::Array(_) | Json::Object(_) => Err("its value is nested, which no style can write".to_owned()),
        other => Ok(shown(other)),
    }
}
