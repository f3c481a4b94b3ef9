//! `[[request]]`: what is sent, with the places of its parts for errors.

use std::sync::Arc;

use toml::de::DeValue;

use linerate_http::client::{Body, RequestPart, RequestSpec, Template, TemplateError};

use super::error::FileError;
use super::table::{Item, Table, scalar};
use crate::plan::env;
use crate::plan::form::{FormField, multipart};
use crate::plan::parts::{
    COMPRESSED, basic_auth, escaped_in_json, has_field, is_token, parse_statuses, set_field,
};
use crate::plan::units::quoted;
use crate::plan::{DataSet, Expectation, Request};

/// Keys of a request that may also stand at the top, for all of them.
pub(super) const SHARED_KEYS: &[&str] = &[
    "method",
    "headers",
    "user",
    "compressed",
    "body",
    "body_file",
    "json",
    "form",
    "expect_status",
    "expect_body",
    "expect_trailer",
];

/// Keys of a request alone.
pub(super) const OWN_KEYS: &[&str] = &["name", "weight", "path", "raw", "expect"];

/// Keys that would change nothing in bytes that are sent as they are.
const MADE_KEYS: [&str; 9] =
    ["path", "method", "headers", "user", "compressed", "body", "body_file", "json", "form"];

pub(super) const BODY_KEYS: [&str; 4] = ["body", "body_file", "json", "form"];

/// A request, and where its parts stand.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    pub(super) request: Request,
    /// Fields of a form. The body is made of them once the data is known.
    form: Vec<FormField>,
    /// Scheme and authority, where the path is a whole URL.
    pub(super) origin: Option<String>,
    table: Table<'a>,
    method: Option<Item<'a>>,
    body: Option<Item<'a>>,
    fields: Vec<(String, Item<'a>)>,
}

/// Reads a `[[request]]`; what it does not say itself, `top` may say. `made`: the slot of a body that is made for it.
pub(super) fn read<'a>(
    table: Table<'a>,
    top: &Table<'a>,
    made: Option<&str>,
) -> Result<Placed<'a>, FileError> {
    if let Some(item) = table.get("raw").cloned() {
        return read_raw(table, top, &item);
    }
    let shared = |key: &str| table.get(key).or_else(|| top.get(key)).cloned();
    let body_item = body_item(&table)?.or(body_item(top)?);
    let body_item = body_item.filter(|_| made.is_none());
    let made = made.map(|slot| Body::from(format!("{{{{{slot}}}}}")));
    let body = made.map_or_else(|| body_item.as_ref().map(read_body).transpose(), |made| Ok(Some(made)))?;
    let (mut fields, items) = read_fields(&table, top)?;
    let form =
        body_item.as_ref().filter(|item| item.key == "form").map(read_form).transpose()?.unwrap_or_default();
    if let (true, Some((_, item))) =
        (!form.is_empty(), items.iter().find(|(n, _)| n.eq_ignore_ascii_case("Content-Type")))
    {
        return Err(
            item.error("a form brings its own Content-Type, which names the boundary; leave this one out")
        );
    }
    if body_item.as_ref().is_some_and(|item| item.key == "json") && !has_field(&fields, "Content-Type") {
        fields.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    let method_item = shared("method");
    let method = match &method_item {
        Some(item) => read_method(item)?,
        None if body.is_some() => "POST".to_owned(),
        None => "GET".to_owned(),
    };
    let (origin, path) = table.read("path", read_path)?.unwrap_or_default();
    let name = table.read("name", |item| read_name(item).map(str::to_owned))?;
    let at = origin.as_deref().unwrap_or_default();
    let named = |path: &str| if path.is_empty() { String::new() } else { format!("{method} {at}{path}") };
    let request = Request {
        name: name.unwrap_or_else(|| named(&path)),
        weight: table.read("weight", Item::positive)?.unwrap_or(1.0),
        expect: read_expectation(&shared)?,
        method,
        path,
        fields,
        body,
    };
    Ok(Placed { form, request, origin, table, method: method_item, body: body_item, fields: items })
}

/// A request whose bytes are those of a file, head and all.
fn read_raw<'a>(table: Table<'a>, top: &Table<'a>, item: &Item<'a>) -> Result<Placed<'a>, FileError> {
    if let Some(other) = MADE_KEYS.iter().find_map(|key| table.get(key)) {
        let message = format!("raw sends the file as it is, so {} would change nothing", other.key);
        return Err(other.source.error(other.key_span.clone(), message));
    }
    if let Some(tag) = top.get("tag") {
        let message = "tag numbers requests, and the bytes of raw are sent as they are";
        return Err(tag.source.error(tag.key_span.clone(), message));
    }
    let bytes = read_file(item, "raw")?;
    if bytes.is_empty() {
        return Err(item.error("this file is empty; write a request into it: a head, an empty line, a body"));
    }
    let name = table.read("name", |item| read_name(item).map(str::to_owned))?;
    let shared = |key: &str| table.get(key).or_else(|| top.get(key)).cloned();
    let request = Request {
        name: name.map_or_else(|| Ok(format!("raw {}", item.text("a file's name")?)), Ok)?,
        weight: table.read("weight", Item::positive)?.unwrap_or(1.0),
        expect: read_expectation(&shared)?,
        method: String::new(),
        path: "/".to_owned(),
        fields: Vec::new(),
        body: Some(Body::raw(bytes)),
    };
    let (form, fields) = (Vec::new(), Vec::new());
    Ok(Placed { form, request, origin: None, table, method: None, body: None, fields })
}

fn read_expectation<'a>(shared: &impl Fn(&str) -> Option<Item<'a>>) -> Result<Expectation, FileError> {
    Ok(Expectation {
        status: shared("expect_status").as_ref().map(read_statuses).transpose()?.unwrap_or_default(),
        body: shared("expect_body").as_ref().map(read_expected_body).transpose()?,
        trailer: shared("expect_trailer").as_ref().map(read_trailer).transpose()?,
        response: None,
    })
}

pub(super) fn read_name<'a>(item: &Item<'a>) -> Result<&'a str, FileError> {
    let name = item.text("a string")?;
    match name.trim().is_empty() || name.chars().any(char::is_control) {
        true => Err(item.error("name must be a word or a few; reports show it")),
        false => Ok(name),
    }
}

fn read_method(item: &Item<'_>) -> Result<String, FileError> {
    let method = item.text("a method such as \"GET\" or \"POST\"")?;
    if !is_token(method) {
        return Err(
            item.error(format!("{} is no method; write for example \"GET\" or \"POST\"", quoted(method)))
        );
    }
    if method.bytes().any(|b| b.is_ascii_lowercase()) && is_known_method(&method.to_ascii_uppercase()) {
        let upper = method.to_ascii_uppercase();
        return Err(
            item.error(format!("methods are written in capitals (RFC 9110 section 9.1): \"{upper}\""))
        );
    }
    Ok(method.to_owned())
}

fn is_known_method(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT")
}

/// A path, and before it the scheme and authority of a whole URL.
fn read_path(item: &Item<'_>) -> Result<(Option<String>, String), FileError> {
    let path = item.text("a path such as \"/users?page=1\"")?;
    if let Some((scheme, rest)) = path.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let why = match () {
            () if authority.is_empty() => "the URL has no host",
            () if authority.contains('{') => "the host of a URL has no slots",
            () if authority.contains('@') => "write user = \"NAME:PASSWORD\" beside the URL, not in it",
            () => "",
        };
        if !why.is_empty() {
            return Err(item.error(format!("path: {why}")));
        }
        let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
        let slash = if path.starts_with('/') { "" } else { "/" };
        return Ok((Some(origin), format!("{slash}{path}")));
    }
    if path.is_empty() {
        return Err(
            item.error("path is empty; write \"/\" for the root, or leave it out for the path of url")
        );
    }
    Ok((None, path.to_owned()))
}

/// Whether it is a scheme of HTTP's.
pub(super) fn is_scheme(text: &str) -> bool {
    text.eq_ignore_ascii_case("http") || text.eq_ignore_ascii_case("https")
}

pub(super) fn read_statuses(item: &Item<'_>) -> Result<Vec<u16>, FileError> {
    let mut statuses = Vec::new();
    for one in item.one_or_more() {
        let text = one.scalar()?;
        statuses.extend(parse_statuses(&text).map_err(|why| one.error(format!("expect_status: {why}")))?);
    }
    match statuses.is_empty() {
        true => Err(item.error("expect_status is empty; leave it out to take 100 to 399 as good")),
        false => Ok(statuses),
    }
}

fn read_expected_body(item: &Item<'_>) -> Result<String, FileError> {
    match item.text("the text that a good answer contains")? {
        "" => Err(item.error("expect_body is empty; leave it out to take any body as good")),
        text => Ok(text.to_owned()),
    }
}

/// `"grpc-status: 0"`.
fn read_trailer(item: &Item<'_>) -> Result<(String, String), FileError> {
    const WHAT: &str = "a trailer's name and value, such as \"grpc-status: 0\"";
    let text = item.text(WHAT)?;
    let (name, value) = text.split_once(':').unwrap_or_default();
    match is_token(name) {
        true => Ok((name.to_owned(), value.trim().to_owned())),
        false => Err(item.error(format!("expect_trailer must be {WHAT}, not {}", quoted(text)))),
    }
}

/// Fields as they are sent, and where those of them stand that come from `headers`.
type Headers<'a> = (Vec<(String, String)>, Vec<(String, Item<'a>)>);

/// Fields from `headers`, `user` and `compressed`: the request's own before those at the top.
fn read_fields<'a>(table: &Table<'a>, top: &Table<'a>) -> Result<Headers<'a>, FileError> {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut items = Vec::new();
    for place in [table, top] {
        let given: Vec<String> = fields.iter().map(|(name, _)| name.clone()).collect();
        let free = |name: &str| !given.iter().any(|g| g.eq_ignore_ascii_case(name));
        for header in place.read("headers", |i| i.entries("a table of names and values"))?.unwrap_or_default()
        {
            if !is_token(&header.key) {
                let message = format!("{} is no header name", quoted(&header.key));
                return Err(header.source.error(header.key_span.clone(), message));
            }
            for value in header.one_or_more().into_iter().filter(|_| free(&header.key)) {
                fields.push((header.key.clone(), value.scalar()?));
                items.push((header.key.clone(), value));
            }
        }
        if let Some(item) = place.get("user") {
            let user = item.text("\"NAME:PASSWORD\"")?;
            if has_field(&fields[given.len()..], "authorization") {
                return Err(item.error("user and the header Authorization say the same; keep one"));
            }
            if free("authorization") {
                let (name, value) = basic_auth(user);
                fields.push((name, value));
            }
        }
        if place.read("compressed", Item::flag)? == Some(true) && free(COMPRESSED.0) {
            set_field(&mut fields, COMPRESSED.0, COMPRESSED.1);
        }
    }
    Ok((fields, items))
}

/// The one key that says what the body is.
fn body_item<'a>(table: &Table<'a>) -> Result<Option<Item<'a>>, FileError> {
    let mut given = BODY_KEYS.iter().filter_map(|key| table.get(key));
    let first = given.next().cloned();
    if let (Some(first), Some(second)) = (&first, given.next()) {
        let message = format!("{} and {} are both given; a request has one body", first.key, second.key);
        return Err(second.source.error(second.key_span.clone(), message));
    }
    Ok(first)
}

fn read_body(item: &Item<'_>) -> Result<Body, FileError> {
    match item.key.as_str() {
        "body" => Ok(item.text("a string; json takes tables, body_file a file's name")?.into()),
        "json" => {
            let mut text = String::new();
            write_json(item, true, &mut text)?;
            Ok(text.into())
        }
        "form" => Ok(Body::default()),
        _ => read_body_file(item),
    }
}

fn read_form(item: &Item<'_>) -> Result<Vec<FormField>, FileError> {
    const WHAT: &str = "an array such as [\"name=value\", \"file=@photo.png;type=image/png\"]";
    let folder = item.source.path.parent().unwrap_or(std::path::Path::new(""));
    let field = |one: &Item<'_>| {
        FormField::parse(one.text("strings such as \"name=value\"")?, folder)
            .map_err(|why| one.error(format!("form: {why}")))
    };
    match item.array(WHAT)? {
        fields if fields.is_empty() => Err(item.error(format!("form must be {WHAT}, not an empty one"))),
        fields => fields.iter().map(field).collect(),
    }
}

fn read_body_file(item: &Item<'_>) -> Result<Body, FileError> {
    read_file(item, "body").map(Body::text)
}

/// The bytes of a file; `what` it is, for errors.
pub(super) fn read_file(item: &Item<'_>, what: &str) -> Result<Arc<[u8]>, FileError> {
    let name = item.text("a file's name")?;
    let path = item.source.path.parent().unwrap_or(std::path::Path::new("")).join(name);
    let read = crate::plan::body::read_file(&path);
    read.map_err(|why| item.error(format!("{what} file {} cannot be read: {why}", path.display())))
}

/// A value as JSON, without slots.
pub(super) fn plain_json(item: &Item<'_>) -> Result<String, FileError> {
    let mut text = String::new();
    write_json(item, false, &mut text)?;
    Ok(text)
}

/// Writes a value as JSON, keys in the order of the file. `slots`: strings may have some.
fn write_json(item: &Item<'_>, slots: bool, out: &mut String) -> Result<(), FileError> {
    match item.value.get_ref() {
        DeValue::Array(_) => {
            out.push('[');
            for (index, element) in item.array("")?.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_json(element, slots, out)?;
            }
            out.push(']');
        }
        DeValue::Table(_) => {
            out.push('{');
            for (index, entry) in item.entries("")?.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&json_string(&entry.key, slots));
                out.push(':');
                write_json(entry, slots, out)?;
            }
            out.push('}');
        }
        value @ (DeValue::String(_) | DeValue::Datetime(_)) => {
            let text = scalar(value).unwrap_or_default();
            out.push_str(&if slots && is_number_slot(&text) { text } else { json_string(&text, slots) });
        }
        DeValue::Float(n) if n.as_str().ends_with("inf") || n.as_str().ends_with("nan") => {
            return Err(item.error("JSON has no such number"));
        }
        value => out.push_str(&scalar(value).unwrap_or_default()),
    }
    Ok(())
}

/// Whether a string is one slot whose text is a number: it stands without quotes.
fn is_number_slot(text: &str) -> bool {
    let slot = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
    let name = slot.filter(|slot| !slot.contains(['{', '}'])).and_then(|slot| slot.rsplit_once('|'));
    name.is_some_and(|(_, filter)| filter.trim() == "number")
}

fn json_string(text: &str, slots: bool) -> String {
    let text = if slots { escaped_in_json(text) } else { text.to_owned() };
    serde_json::Value::from(text).to_string()
}

impl Placed<'_> {
    /// Makes the body of a form, whose boundary must occur nowhere in the data.
    pub(super) fn fill_form(&mut self, seed: u64, data: &[(DataSet, Item<'_>)]) {
        if self.form.is_empty() {
            return;
        }
        let cells = data.iter().flat_map(|(set, _)| set.rows.iter().flatten()).map(String::as_str);
        let (content_type, body) = multipart(&self.form, seed, cells);
        set_field(&mut self.request.fields, "Content-Type", &content_type);
        self.request.body = Some(body);
    }

    /// Compiles it as a run would, and holds the rows of data against it; errors point at the part
    /// that is wrong.
    pub(super) fn check(&self, data: &[(DataSet, Item<'_>)], http2: bool) -> Result<(), FileError> {
        self.check_with(data, http2, &[])
    }

    /// The request as it is compiled.
    fn spec(&self, http2: bool) -> RequestSpec {
        let request = &self.request;
        let mut fields = request.fields.clone();
        if !has_field(&fields, "host") {
            fields.push(("Host".to_owned(), "host".to_owned()));
        }
        if http2 && has_field(&fields, "te") && !has_field(&fields, "connection") {
            fields.push(("Connection".to_owned(), "TE".to_owned()));
        }
        RequestSpec {
            method: request.method.clone(),
            target: if request.path.is_empty() { "/".to_owned() } else { request.path.clone() },
            fields,
            body: request.body.clone().unwrap_or_default(),
        }
    }

    /// All that its slots may name.
    fn columns(&self, data: &[(DataSet, Item<'_>)], names: &[String]) -> Result<Vec<String>, FileError> {
        let env = env::data_set(std::slice::from_ref(&self.request), |name| std::env::var_os(name));
        let env = env.map_err(|(_, e)| self.misplaced(&e))?;
        let sets = data.iter().map(|(set, _)| set).chain(&env);
        let columns = sets.flat_map(|set| set.columns.iter().map(|c| format!("{}.{c}", set.name)));
        Ok(columns.chain(names.iter().cloned()).collect())
    }

    /// Whether it uses the value of a name; all its slots are known.
    pub(super) fn uses(
        &self,
        data: &[(DataSet, Item<'_>)],
        name: &str,
        names: &[String],
    ) -> Result<bool, FileError> {
        let others: Vec<String> = names.iter().filter(|other| *other != name).cloned().collect();
        Ok(Template::compile(&self.spec(false), &self.columns(data, &others)?).is_err())
    }

    /// As [`Placed::check`], with values of these names.
    pub(super) fn check_with(
        &self,
        data: &[(DataSet, Item<'_>)],
        http2: bool,
        names: &[String],
    ) -> Result<(), FileError> {
        if self.request.is_raw() {
            return Ok(());
        }
        let columns = self.columns(data, names)?;
        let template = Template::compile(&self.spec(http2), &columns).map_err(|e| self.misplaced(&e))?;
        if template.is_fixed() {
            return Ok(());
        }
        let mut before = 0;
        for (set, item) in data {
            check_rows(&template, set, before, columns.len()).map_err(|why| {
                item.error(format!(
                    "data {}: {why} (request {})",
                    quoted(&set.name),
                    quoted(&self.shown_name())
                ))
            })?;
            before += set.columns.len();
        }
        Ok(())
    }

    /// An error at its path.
    pub(super) fn at_path(&self, message: impl Into<String>) -> FileError {
        match self.table.get("path") {
            Some(item) => item.error(message),
            None => self.table.source.error(self.table.span.clone(), message),
        }
    }

    fn shown_name(&self) -> String {
        if self.request.name.is_empty() { self.request.method.clone() } else { self.request.name.clone() }
    }

    /// A template's error, at the place in the file.
    fn misplaced(&self, error: &TemplateError) -> FileError {
        let problem = &error.problem;
        match &error.place {
            RequestPart::Method => match &self.method {
                Some(item) => item.error(problem),
                None => self.table.source.error(self.table.span.clone(), problem),
            },
            RequestPart::Target => match self.table.get("path") {
                Some(item) => item.error_within(&self.request.path, error.at, format!("path: {problem}")),
                None => self.table.source.error(self.table.span.clone(), format!("path: {problem}")),
            },
            RequestPart::Field(name) => {
                let wrong = |item: &Item<'_>| {
                    Some(item.error_within(
                        &item.scalar().ok()?,
                        error.at,
                        format!("header {name}: {problem}"),
                    ))
                };
                let given = self
                    .fields
                    .iter()
                    .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                    .find_map(|(_, i)| wrong(i));
                given.unwrap_or_else(|| {
                    self.table.source.error(self.table.span.clone(), format!("header {name}: {problem}"))
                })
            }
            RequestPart::Body => match &self.body {
                Some(item) if item.key == "body" => item.error_within(
                    item.value.get_ref().as_str().unwrap_or(""),
                    error.at,
                    format!("body: {problem}"),
                ),
                Some(item) => item.error(format!("{}, byte {}: {problem}", item.key, error.at)),
                None => self.table.source.error(self.table.span.clone(), format!("body: {problem}")),
            },
        }
    }
}

/// Whether each row of a set may stand where the template uses it; the set's columns begin at
/// `first` of `all`.
fn check_rows(template: &Template, set: &DataSet, first: usize, all: usize) -> Result<(), String> {
    let mut row: Vec<Box<[u8]>> = vec![Box::default(); all];
    for (index, cells) in set.rows.iter().enumerate() {
        for (place, cell) in row[first..].iter_mut().zip(cells) {
            *place = cell.as_bytes().into();
        }
        if let Err(error) = template.check_row(&row) {
            let column = set.columns.get(error.column.saturating_sub(first)).map_or("", String::as_str);
            return Err(format!("row {}, column {}: {error}", index + 1, quoted(column)));
        }
    }
    Ok(())
}
