//! Requests compiled once to bytes, with the few slots that change.

use std::sync::Arc;

use super::body::Body;
use super::fill;
use super::framing::Expect;
use super::request::{Rendered, RequestSpec, TemplateError, Values};
use super::slot_parser::{self, Parser};
use super::slots::{self, TemplatePiece};
use super::spec;

/// A compiled request.
///
/// ```
/// use linerate_http::client::{RequestSpec, Template, Values};
///
/// let spec = RequestSpec {
///     method: "GET".to_owned(),
///     target: "/items/{{seq}}".to_owned(),
///     fields: vec![("Host".to_owned(), "a".to_owned())],
///     ..RequestSpec::default()
/// };
/// let mut out = Vec::new();
/// Template::compile(&spec, &[])?.render(&Values { seq: 7, now_ms: 0, seed: 0, row: &[] }, &mut out);
/// assert_eq!(out, b"GET /items/7 HTTP/1.1\r\nHost: a\r\n\r\n");
/// # Ok::<(), linerate_http::client::TemplateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    method: Box<str>,
    head: Vec<TemplatePiece>,
    body: Vec<TemplatePiece>,
    /// The whole request, if nothing in it changes.
    fixed: Option<Box<[u8]>>,
    /// The body's length varies: Content-Length is computed for each request, at the end of the
    /// head.
    varying_length: bool,
    /// Part of the body is sent without copying.
    shares: bool,
    closes: bool,
    hint: usize,
}

impl Template {
    /// Compiles `spec`. `columns` are the names that `{{NAME.COLUMN}}` may use, as `"NAME.COLUMN"`,
    /// in the order of [`Values::row`].
    ///
    /// # Errors
    /// The request is not a valid HTTP/1.1 message (RFC 9112, sections 3 and 5), or a slot is
    /// unknown.
    pub fn compile(spec: &RequestSpec, columns: &[String]) -> Result<Template, TemplateError> {
        spec::check(spec)?;
        let mut parser = Parser::new(columns);
        let mut head = vec![TemplatePiece::literal(format!("{} ", spec.method))];
        head.extend(parser.target(spec)?);
        head.push(TemplatePiece::literal(" HTTP/1.1\r\n"));
        for (name, value) in &spec.fields {
            head.push(TemplatePiece::literal(format!("{name}: ")));
            head.extend(parser.value(name, value)?);
            head.push(TemplatePiece::literal("\r\n"));
        }
        let body = parser.body(spec)?;
        let varying_length = body.iter().any(|p| matches!(p, TemplatePiece::Slot(_)));
        if varying_length {
            head.push(TemplatePiece::literal("Content-Length: "));
        } else {
            let length: usize = body.iter().map(TemplatePiece::len_hint).sum();
            if spec::announces_length(&spec.method, length) {
                head.push(TemplatePiece::literal(format!("Content-Length: {length}\r\n")));
            }
            head.push(TemplatePiece::literal("\r\n"));
        }
        let head = slots::join(head);
        let hint = head.iter().chain(&body).map(TemplatePiece::len_hint).sum::<usize>() + 24;
        let closes = spec::closes(spec);
        let shares = body.iter().any(|piece| matches!(piece, TemplatePiece::Shared(..)));
        let mut template = Template {
            method: spec.method.as_str().into(),
            head,
            body,
            fixed: None,
            varying_length,
            shares,
            closes,
            hint,
        };
        if template.head.iter().chain(&template.body).all(|p| matches!(p, TemplatePiece::Literal(_))) {
            let mut bytes = Vec::new();
            template.render(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut bytes);
            template.hint = bytes.len();
            template.fixed = Some(bytes.into());
        }
        Ok(template)
    }

    /// Sends bytes unchanged, even if malformed. They count as not idempotent, because that cannot
    /// be known. Their first word decides how the response is framed.
    pub fn raw(bytes: &Body) -> Template {
        let mut pieces = Vec::new();
        for part in bytes.parts() {
            let raw = Body::raw(Arc::clone(&part.bytes));
            // Raw bytes have no slots that could be invalid.
            pieces.extend(slot_parser::parse_body(&raw, &[], &mut 0).unwrap_or_default());
        }
        let body = slots::join(pieces);
        let first = bytes.parts().first().map_or(&b""[..], |part| &part.bytes);
        let word = first.split(|b| !b.is_ascii_uppercase()).next().unwrap_or_default();
        let framed = matches!(word, b"HEAD" | b"CONNECT");
        let method = if framed { String::from_utf8_lossy(word).into_owned() } else { String::new() };
        let shares = body.iter().any(|piece| matches!(piece, TemplatePiece::Shared(..)));
        let hint = bytes.len();
        let mut template = Template {
            method: method.into(),
            head: Vec::new(),
            body,
            fixed: None,
            varying_length: false,
            shares,
            closes: false,
            hint,
        };
        if !shares {
            let mut whole = Vec::new();
            template.render(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut whole);
            template.fixed = Some(whole.into());
        }
        template
    }

    /// Whether every request is the same.
    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// The request, if every one is the same.
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Whether part of the body is sent without copying: [`Template::render_parts`] is then the
    /// better way to render.
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// The large stretches of the body that requests share.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.body
            .iter()
            .filter_map(|piece| if let TemplatePiece::Shared(bytes, _) = piece { Some(bytes) } else { None })
    }

    /// Renders one request stretch by stretch. `scratch` is memory for copied bytes; its contents
    /// are lost.
    pub fn render_parts(&self, v: &Values<'_>, scratch: &mut Vec<u8>, mut each: impl FnMut(Rendered<'_>)) {
        scratch.clear();
        self.render_head(v, scratch);
        self.body.iter().for_each(|piece| piece.render_part(v, scratch, &mut each));
        if !scratch.is_empty() {
            each(Rendered::Copied(scratch));
        }
    }

    /// Appends one request to `out`.
    pub fn render(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        if let Some(fixed) = &self.fixed {
            out.extend_from_slice(fixed);
            return;
        }
        out.reserve(self.hint);
        self.render_head(v, out);
        self.body.iter().for_each(|piece| piece.render(v, out));
    }

    #[inline(always)]
    fn render_head(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        self.head.iter().for_each(|piece| piece.render(v, out));
        if self.varying_length {
            let length: usize = self.body.iter().map(|piece| piece.len(v)).sum();
            slots::decimal(length as u64, out);
            out.extend_from_slice(b"\r\n\r\n");
        }
    }

    /// Checks a row before it is used: a cell must not end a line, or have a space where that would
    /// change the request.
    ///
    /// # Errors
    /// The cell, by its column's number, and what is wrong with it.
    pub fn check_row(&self, row: &[Box<[u8]>]) -> Result<(), CellError> {
        let mut in_target = true;
        let mut cell = Vec::new();
        self.check_numbers(row)?;
        for piece in &self.head {
            match piece {
                TemplatePiece::Literal(bytes) => in_target &= !bytes.contains(&b'\n'),
                // Only bodies have shared stretches.
                TemplatePiece::Shared(..) => {}
                TemplatePiece::Slot(slot) => {
                    let Some(column) = slot.column() else { continue };
                    if column >= row.len() {
                        return Err(CellError { column, at: 0, byte: None, is_no_number: false });
                    }
                    cell.clear();
                    slot.render(&Values { seq: 0, now_ms: 0, seed: 0, row }, &mut cell);
                    let good = |b: u8| match in_target {
                        true => spec::in_target(b),
                        false => super::parse::in_value(b),
                    };
                    if let Some(at) = cell.iter().position(|b| !good(*b)) {
                        return Err(CellError { column, at, byte: Some(cell[at]), is_no_number: false });
                    }
                }
            }
        }
        Ok(())
    }

    /// Cells of the body that must be numbers.
    fn check_numbers(&self, row: &[Box<[u8]>]) -> Result<(), CellError> {
        let mut cell = Vec::new();
        for piece in &self.body {
            let TemplatePiece::Slot(slot) = piece else { continue };
            let Some(column) = slot.column().filter(|_| slot.is_number()) else { continue };
            cell.clear();
            slot.render(&Values { seq: 0, now_ms: 0, seed: 0, row }, &mut cell);
            if !fill::is_json_number(&cell) {
                return Err(CellError { column, at: 0, byte: None, is_no_number: true });
            }
        }
        Ok(())
    }

    /// How the response is framed.
    pub fn expect(&self) -> Expect {
        match &*self.method {
            "HEAD" => Expect::Head,
            "CONNECT" => Expect::Connect,
            _ => Expect::Usual,
        }
    }

    /// Whether sending it twice has the effect of sending it once (RFC 9110, section 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.has_head() && matches!(&*self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
    }

    fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Whether the request says `Connection: close`, and so is the last on its connection (RFC
    /// 9112, section 9.6).
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Approximate size of a request, bytes.
    pub fn len_hint(&self) -> usize {
        self.hint
    }
}

/// A cell of a data file that is invalid where a template uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellError {
    /// Its column, by the order given to [`Template::compile`].
    pub column: usize,
    /// Bytes from its start.
    pub at: usize,
    /// The invalid byte; `None` if the row lacks the column.
    pub byte: Option<u8>,
    /// It is no number, true, false or null of JSON, as the filter `number` wants it.
    pub is_no_number: bool,
}

impl std::fmt::Display for CellError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.byte {
            Some(b) => {
                write!(f, "byte {} of the cell is {:?}, which may not stand there", self.at, char::from(b))
            }
            None if self.is_no_number => f.write_str("it is no number of JSON, as |number wants it"),
            None => f.write_str("the row has no such column"),
        }
    }
}

impl std::error::Error for CellError {}
