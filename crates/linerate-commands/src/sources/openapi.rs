//! `--openapi FILE`: one request for each operation of an OpenAPI 3 description (JSON or YAML), with values from its examples,
//! defaults and schemas.
//!
//! The description is walked as plain values, following `$ref` wherever it stands: 3.0 and 3.1 differ in what schemas may
//! say, not in where things are. Only safe methods (RFC 9110 section 9.2.1) are sent unless the user asks for all: a load test that
//! deletes is no accident to allow.

mod document;
mod parameters;
mod schema;

use std::path::Path;

use linerate_load::plan::file::RouteKeys;
use linerate_load::plan::limits::MAX_REQUESTS;
use linerate_load::plan::parts::{encode_target, has_field, literal};
use linerate_load::plan::units::quoted;
use linerate_load::plan::{Expectation, Order, Request};
use yaml_serde::Value;

use self::document::{OpenapiDocument, text};
use self::parameters::{Parts, pairs};
use super::limits::MAX_OPENAPI_BYTES;
use super::{PlanSource, SourceError, SourceProtocol, count_of, listed, origin_of, read_text, split_url};

/// Methods that an operation may have, and whether they are safe.
const METHODS: [(&str, bool); 8] = [
    ("get", true),
    ("head", true),
    ("options", true),
    ("post", false),
    ("put", false),
    ("patch", false),
    ("delete", false),
    ("trace", false),
];

/// What the user decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Also methods that change something: POST, PUT, PATCH, DELETE.
    pub(crate) unsafe_methods: bool,
}

/// Reads a description.
pub(crate) fn load(path: &Path, options: Options) -> Result<PlanSource, SourceError> {
    parse(&read_text(path, MAX_OPENAPI_BYTES)?, path, options)
}

fn parse(text: &str, path: &Path, options: Options) -> Result<PlanSource, SourceError> {
    let document = OpenapiDocument::parse(text, path)?;
    let (url, base) = server(&document).map_err(|why| SourceError::file(path, why))?;
    let mut taken = OpenapiRequests { base, ..OpenapiRequests::default() };
    let paths = document.root("paths").and_then(Value::as_mapping);
    for (template, item) in paths.into_iter().flatten() {
        if let Some(template) = template.as_str() {
            taken.path(&document, template, item, options);
        }
    }
    if taken.requests.len() > MAX_REQUESTS {
        let n = taken.requests.len();
        return Err(SourceError::file(
            path,
            format!("has {n} operations; at most {MAX_REQUESTS} are possible"),
        ));
    }
    if taken.requests.is_empty() {
        let why = match taken.left_out.as_slice() {
            [] if taken.not_safe.is_empty() => "describes no operations".to_owned(),
            [] => format!("describes no GET, HEAD or OPTIONS, only {}", listed(&taken.not_safe)),
            left_out => format!("describes no operation that a request can be made of: {}", listed(left_out)),
        };
        return Err(SourceError::file(path, why));
    }
    let notes = taken.notes(path, &document);
    Ok(PlanSource {
        url,
        requests: taken.requests,
        order: Order::Weighted,
        pace: None,
        wire: SourceProtocol::default(),
        route: RouteKeys::default(),
        notes,
    })
}

/// The first server's origin, when it has one, and the path that all operations' paths are added to.
fn server(document: &OpenapiDocument) -> Result<(Option<String>, String), String> {
    let Some(server) = document.root("servers").and_then(|s| s.get(0)) else {
        return Ok((None, String::new()));
    };
    let mut url = text(server, "url").unwrap_or("/").to_owned();
    let variables = server.get("variables").and_then(Value::as_mapping);
    for (name, variable) in variables.into_iter().flatten() {
        if let (Some(name), Some(default)) =
            (name.as_str(), variable.get("default").and_then(document::plain))
        {
            url = url.replace(&format!("{{{name}}}"), &default);
        }
    }
    if url.contains('{') {
        return Err(format!("servers[0].url {} has a variable without a default", quoted(&url)));
    }
    let base = |path: &str| path.split(['?', '#']).next().unwrap_or("").trim_end_matches('/').to_owned();
    if url.contains("://") {
        let (origin, path) = split_url(&url).map_err(|why| format!("servers[0].url: {why}"))?;
        return Ok((Some(origin_of(&origin)), base(&path)));
    }
    let path = base(&url);
    Ok((None, if path.is_empty() || path.starts_with('/') { path } else { format!("/{path}") }))
}

/// Requests made so far, and what gave none.
#[derive(Debug, Default)]
struct OpenapiRequests {
    base: String,
    requests: Vec<Request>,
    /// `POST /users (why)`.
    left_out: Vec<String>,
    not_safe: Vec<String>,
    /// `POST /users (why)`: sent without the body that it may have.
    bodiless: Vec<String>,
    authenticated: Vec<String>,
}

impl OpenapiRequests {
    /// All operations of a path.
    fn path(&mut self, document: &OpenapiDocument, template: &str, item: &Value, options: Options) {
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(why) => return self.left_out.push(format!("{template} ({why})")),
        };
        for (method, safe) in METHODS {
            let Some(operation) = item.get(method) else { continue };
            let shown = format!("{} {template}", method.to_ascii_uppercase());
            if !safe && !options.unsafe_methods {
                self.not_safe.push(shown);
                continue;
            }
            match self.request(document, template, item, operation, method) {
                Ok(request) => self.requests.push(request),
                Err(why) => self.left_out.push(format!("{shown} ({why})")),
            }
        }
    }

    fn request(
        &mut self,
        document: &OpenapiDocument,
        template: &str,
        item: &Value,
        operation: &Value,
        method: &str,
    ) -> Result<Request, String> {
        if item.get("servers").is_some() || operation.get("servers").is_some() {
            return Err("it has a server of its own".to_owned());
        }
        let method = method.to_ascii_uppercase();
        let mut parts = Parts::new(template);
        for parameter in parameters::of(document, item, operation)? {
            parts.add(document, parameter)?;
        }
        let (path, mut fields) = parts.finish()?;
        let body = match operation.get("requestBody") {
            Some(body) => match self::body(document, body)? {
                Ok(body) => Some(body),
                Err(why) => {
                    self.bodiless.push(format!("{method} {template} ({why})"));
                    None
                }
            },
            None => None,
        };
        if let Some((media, _)) = &body {
            fields.push(("Content-Type".to_owned(), media.clone()));
        }
        self.note_security(document, operation, &fields, &format!("{method} {template}"));
        let path = format!("{}{path}", self.base);
        Ok(Request {
            name: text(operation, "operationId")
                .map_or_else(|| format!("{method} {template}"), str::to_owned),
            weight: 1.0,
            method,
            path: literal(&encode_target(&path)).into_owned(),
            fields: fields.into_iter().map(|(name, value)| (name, literal(&value).into_owned())).collect(),
            body: body.map(|(_, text)| literal(&text).into_owned().into()),
            expect: Expectation::default(),
        })
    }

    /// An operation that asks for authentication, which a description can't give.
    fn note_security(
        &mut self,
        document: &OpenapiDocument,
        operation: &Value,
        fields: &[(String, String)],
        shown: &str,
    ) {
        let required =
            operation.get("security").or_else(|| document.root("security")).and_then(Value::as_sequence);
        let optional = |alternative: &Value| alternative.as_mapping().is_none_or(|m| m.is_empty());
        let required = required.is_some_and(|r| !r.is_empty() && !r.iter().any(optional));
        if required && !has_field(fields, "authorization") {
            self.authenticated.push(shown.to_owned());
        }
    }

    fn notes(&self, path: &Path, document: &OpenapiDocument) -> Vec<String> {
        let file = path.display();
        let mut notes = Vec::new();
        if !self.left_out.is_empty() {
            let operations = count_of(self.left_out.len(), "operation is", "operations are");
            notes.push(format!("{file}: {operations} left out: {}", listed(&self.left_out)));
        }
        if !self.not_safe.is_empty() {
            let operations = count_of(self.not_safe.len(), "operation is", "operations are");
            let why = "since they change something and were not asked for";
            notes.push(format!("{file}: {operations} left out, {why}: {}", listed(&self.not_safe)));
        }
        if !self.bodiless.is_empty() {
            let operations = count_of(self.bodiless.len(), "operation is", "operations are");
            let why = "sent without a body, which is optional and cannot be made";
            notes.push(format!("{file}: {operations} {why}: {}", listed(&self.bodiless)));
        }
        if !self.authenticated.is_empty() {
            let schemes = document.root("components").and_then(|c| c.get("securitySchemes")?.as_mapping());
            let names: Vec<String> = schemes
                .into_iter()
                .flat_map(|s| s.keys())
                .filter_map(|k| k.as_str().map(str::to_owned))
                .collect();
            let operations = count_of(self.authenticated.len(), "operation asks", "operations ask");
            let by = if names.is_empty() { String::new() } else { format!(" ({})", listed(&names)) };
            notes
                .push(format!("{file}: {operations} for authentication{by}: add it with --user or --header"));
        }
        notes
    }
}

/// Media type and text of a request's body; inside, why it cannot be made, where it may be left out.
fn body(document: &OpenapiDocument, body: &Value) -> Result<Result<(String, String), String>, String> {
    let body = document.resolve(body)?;
    let content: Vec<(&str, &Value)> = body
        .get("content")
        .and_then(Value::as_mapping)
        .into_iter()
        .flatten()
        .filter_map(|(media, value)| Some((media.as_str()?, value)))
        .collect();
    let is =
        |wanted: &str| content.iter().find(|(media, _)| media.split(';').next() == Some(wanted)).copied();
    let json = is("application/json")
        .or_else(|| content.iter().find(|(m, _)| m.ends_with("+json")).copied())
        .or_else(|| is("*/*").or_else(|| is("application/*")).map(|(_, value)| ("application/json", value)));
    let made = match (json, is("application/x-www-form-urlencoded"), is("text/plain")) {
        (Some((media, value)), ..) => example(document, value).map(|v| (media, v.to_string())),
        (_, Some((media, value)), _) => example(document, value).and_then(|v| Ok((media, pairs(&v)?))),
        (.., Some((media, value))) => example(document, value).map(|v| (media, parameters::shown(&v))),
        _ => {
            let medias: Vec<String> = content.iter().map(|(media, _)| (*media).to_owned()).collect();
            Err(format!(
                "its body is {}",
                if medias.is_empty() { "not described".to_owned() } else { listed(&medias) }
            ))
        }
    };
    let required = body.get("required").and_then(Value::as_bool).unwrap_or(false);
    match made {
        Ok((media, text)) => Ok(Ok((media.to_owned(), text))),
        Err(why) if !required => Ok(Err(why)),
        Err(why) if why.starts_with("its body") => Err(why),
        Err(why) => Err(format!("its body: {why}")),
    }
}

/// The value of a media type or a parameter: its example, the first of its examples, or one made from its schema.
fn example(document: &OpenapiDocument, described: &Value) -> Result<serde_json::Value, String> {
    if let Some(example) = given_example(document, described)? {
        return document::json(example);
    }
    match described.get("schema") {
        Some(schema) => schema::sample(document, schema),
        None => Err("no example and no schema".to_owned()),
    }
}

/// An example that the description itself gives.
fn given_example<'a>(
    document: &'a OpenapiDocument,
    described: &'a Value,
) -> Result<Option<&'a Value>, String> {
    if let Some(example) = described.get("example") {
        return Ok(Some(example));
    }
    let first = described.get("examples").and_then(Value::as_mapping).and_then(|m| m.values().next());
    match first {
        Some(example) => Ok(document.resolve(example)?.get("value")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
