//! Requests compiled for HTTP/2 and HTTP/3: a field block encoded once, with the few fields that change.

use std::sync::Arc;

use super::framing::Expect;
use super::request::{Rendered, RequestSpec, TemplateError, Values};
use super::slot_parser::Parser;
use super::slots::{TemplatePiece, TemplateSlot};
use super::spec;
use crate::h2::{field, field_name, length};

/// How a protocol encodes fields.
#[derive(Clone, Copy, Debug)]
pub struct StreamFieldCoding {
    /// Appends what fields begin with.
    pub(crate) prefix: fn(&mut Vec<u8>),
    /// Appends a field: its name and value.
    pub(crate) line: fn(&[u8], &[u8], &mut Vec<u8>),
    /// Appends the name of a field whose value follows, as `length` begins it.
    pub(crate) name: fn(&[u8], &mut Vec<u8>),
}

impl StreamFieldCoding {
    /// HTTP/2's (RFC 7541). HTTP/3's is [`QPACK`](crate::h3::QPACK).
    pub const HPACK: StreamFieldCoding = StreamFieldCoding { prefix: |_| (), line: field, name: field_name };

    /// Appends what fields begin with.
    pub fn begin(&self, out: &mut Vec<u8>) {
        (self.prefix)(out);
    }

    /// Appends a field, whose name is in lower case.
    pub fn put(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        (self.line)(name, value, out);
    }
}

/// A request compiled for HTTP/2 (RFC 9113, section 8.3.1) or HTTP/3 (RFC 9114, section 4.3.1).
///
/// It says the same as its [`Template`](super::Template): the Host field is `:authority`, fields
/// about the connection are left out.
#[derive(Clone, Debug)]
pub struct StreamTemplate {
    expect: Expect,
    block: Vec<FieldBlockPart>,
    body: Vec<TemplatePiece>,
    /// The whole field block, if nothing in it changes.
    fixed: Option<Box<[u8]>>,
    /// The length of a body that does not vary.
    body_len: Option<u64>,
}

/// A part of a field block.
#[derive(Clone, Debug)]
enum FieldBlockPart {
    /// Fields, encoded.
    Fields(Vec<u8>),
    /// The value of a field whose name stands before it.
    Value(Vec<TemplatePiece>),
    /// The value of Content-Length.
    Length,
}

impl StreamTemplate {
    /// Compiles `spec` for HTTP/2, as [`Template::compile`](super::Template::compile) does, for
    /// requests over `https` or `http`.
    ///
    /// # Errors
    /// The request cannot be sent over HTTP/2, or a slot is unknown.
    pub fn compile(
        spec: &RequestSpec,
        columns: &[String],
        https: bool,
    ) -> Result<StreamTemplate, TemplateError> {
        StreamTemplate::compile_coded(spec, columns, https, StreamFieldCoding::HPACK)
    }

    /// As [`compile`](StreamTemplate::compile), with fields encoded for either protocol.
    ///
    /// # Errors
    /// The request cannot be sent over them, or a slot is unknown.
    pub fn compile_coded(
        spec: &RequestSpec,
        columns: &[String],
        https: bool,
        coding: StreamFieldCoding,
    ) -> Result<StreamTemplate, TemplateError> {
        spec::check_streamed(spec)?;
        let mut parser = Parser::new(columns);
        let mut block = Block::of(coding);
        let mut authority = None;
        let target = parser.target(spec)?;
        let mut fields = Vec::new();
        for (name, value) in &spec.fields {
            let pieces = parser.value(name, value)?;
            let name = name.to_ascii_lowercase();
            match &*name {
                "host" => authority = Some(pieces),
                "connection" | "keep-alive" | "proxy-connection" | "upgrade" => {}
                _ => fields.push((name, pieces)),
            }
        }
        let body = parser.body(spec)?;
        block.field(b":method", vec![TemplatePiece::literal(spec.method.as_bytes())]);
        block.field(b":scheme", vec![TemplatePiece::literal(if https { "https" } else { "http" })]);
        block.field(b":authority", authority.unwrap_or_default());
        block.field(b":path", target);
        for (name, pieces) in fields {
            block.field(name.as_bytes(), pieces);
        }
        let varies = body.iter().any(|piece| matches!(piece, TemplatePiece::Slot(_)));
        let len: usize = body.iter().map(TemplatePiece::len_hint).sum();
        if varies {
            block.part(b"content-length", FieldBlockPart::Length);
        } else if spec::announces_length(&spec.method, len) {
            block.field(b"content-length", vec![TemplatePiece::literal(len.to_string())]);
        }
        let (block, fixed) = block.end();
        Ok(StreamTemplate {
            expect: if spec.method == "HEAD" { Expect::Head } else { Expect::Usual },
            fixed,
            block,
            body,
            body_len: (!varies).then_some(len as u64),
        })
    }

    /// How the response is framed.
    pub fn expect(&self) -> Expect {
        self.expect
    }

    /// The field block of every request, if nothing in it changes and there is no body.
    #[inline]
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref().filter(|_| self.body_len == Some(0))
    }

    /// The large stretches of the body that requests share.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.body
            .iter()
            .filter_map(|piece| if let TemplatePiece::Shared(bytes, _) = piece { Some(bytes) } else { None })
    }

    /// Appends the field block of a request.
    pub fn render_block(&self, v: &Values<'_>, out: &mut Vec<u8>) {
        if let Some(fixed) = &self.fixed {
            return out.extend_from_slice(fixed);
        }
        for part in &self.block {
            match part {
                FieldBlockPart::Fields(bytes) => out.extend_from_slice(bytes),
                FieldBlockPart::Value(pieces) => render_value(pieces, v, out),
                FieldBlockPart::Length => {
                    let len: usize = self.body.iter().map(|piece| piece.len(v)).sum();
                    let digits = len.to_string();
                    length(digits.len(), out);
                    out.extend_from_slice(digits.as_bytes());
                }
            }
        }
    }

    /// Renders a request's body stretch by stretch. `scratch` is memory for copied bytes; its
    /// contents are lost.
    pub fn render_body(&self, v: &Values<'_>, scratch: &mut Vec<u8>, mut each: impl FnMut(Rendered<'_>)) {
        scratch.clear();
        self.body.iter().for_each(|piece| piece.render_part(v, scratch, &mut each));
        if !scratch.is_empty() {
            each(Rendered::Copied(scratch));
        }
    }
}

/// Appends a value's length and the value.
fn render_value(pieces: &[TemplatePiece], v: &Values<'_>, out: &mut Vec<u8>) {
    // Text that is made from the time or at random is rendered once.
    if pieces.iter().any(|piece| matches!(piece, TemplatePiece::Slot(TemplateSlot::Made(_)))) {
        let mut text = Vec::new();
        pieces.iter().for_each(|piece| piece.render(v, &mut text));
        length(text.len(), out);
        return out.extend_from_slice(&text);
    }
    length(pieces.iter().map(|piece| piece.len(v)).sum(), out);
    pieces.iter().for_each(|piece| piece.render(v, out));
}

/// A field block while it is compiled.
struct Block {
    coding: StreamFieldCoding,
    parts: Vec<FieldBlockPart>,
    /// Encoded fields that are not in `parts` yet.
    fields: Vec<u8>,
}

impl Block {
    fn of(coding: StreamFieldCoding) -> Block {
        let mut fields = Vec::new();
        (coding.prefix)(&mut fields);
        Block { coding, parts: Vec::new(), fields }
    }

    fn field(&mut self, name: &[u8], value: Vec<TemplatePiece>) {
        let put = self.coding.line;
        match &value[..] {
            [] => put(name, b"", &mut self.fields),
            [TemplatePiece::Literal(text)] => put(name, text, &mut self.fields),
            _ => self.part(name, FieldBlockPart::Value(value)),
        }
    }

    /// Adds a field whose value changes.
    fn part(&mut self, name: &[u8], value: FieldBlockPart) {
        (self.coding.name)(name, &mut self.fields);
        self.parts.push(FieldBlockPart::Fields(std::mem::take(&mut self.fields)));
        self.parts.push(value);
    }

    /// Its parts; the only one, if nothing in it changes.
    fn end(mut self) -> (Vec<FieldBlockPart>, Option<Box<[u8]>>) {
        let fixed = self.parts.is_empty().then(|| self.fields.as_slice().into());
        self.parts.push(FieldBlockPart::Fields(self.fields));
        (self.parts, fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::Decoder;

    fn spec(fields: &[(&str, &str)], body: &str) -> RequestSpec {
        RequestSpec {
            method: if body.is_empty() { "GET" } else { "POST" }.to_owned(),
            target: "/a?n={{seq}}".to_owned(),
            fields: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            body: body.into(),
        }
    }

    fn rendered(template: &StreamTemplate, seq: u64) -> (Vec<String>, Vec<u8>) {
        let values = Values { seq, now_ms: 5, seed: 1, row: &[] };
        let (mut block, mut fields, mut body) = (Vec::new(), Vec::new(), Vec::new());
        template.render_block(&values, &mut block);
        let line = |n: &[u8], v: &[u8]| format!("{}: {}", n.escape_ascii(), v.escape_ascii());
        Decoder::default().decode(&block, 1 << 16, |n, v| fields.push(line(n, v))).unwrap();
        template.render_body(&values, &mut Vec::new(), |part| match part {
            Rendered::Copied(bytes) => body.extend_from_slice(bytes),
            Rendered::Shared(bytes, range) => body.extend_from_slice(&bytes[range]),
        });
        (fields, body)
    }

    #[test]
    fn fields_are_as_http_2_wants_them() {
        let fields = [
            ("Host", "example.com:80"),
            ("Accept", "*/*"),
            ("Connection", "keep-alive"),
            ("TE", "trailers"),
            ("X-Id", "{{seq}}-{{rand_text:3|json}}"),
        ];
        let template = StreamTemplate::compile(&spec(&fields, "n={{seq}}"), &[], true).unwrap();
        assert!(template.fixed().is_none());
        let (fields, body) = rendered(&template, 1234);
        assert_eq!(body, b"n=1234");
        let expected = [
            ":method: POST",
            ":scheme: https",
            ":authority: example.com:80",
            ":path: /a?n=1234",
            "accept: */*",
            "te: trailers",
        ];
        assert_eq!(fields[..6], expected);
        assert!(fields[6].starts_with("x-id: 1234-") && fields[6].len() == 14, "{}", fields[6]);
        assert_eq!(fields[7], "content-length: 6");
    }

    #[test]
    fn what_does_not_change_is_one_block() {
        let mut spec = spec(&[("Host", "h")], "");
        spec.target = "/".to_owned();
        let template = StreamTemplate::compile(&spec, &[], false).unwrap();
        assert_eq!(template.fixed(), Some(&b"\x82\x86\x01\x01h\x84"[..]));
        spec.body = "with a body".into();
        let template = StreamTemplate::compile(&spec, &[], false).unwrap();
        assert!(template.fixed().is_none());
        assert_eq!(rendered(&template, 0).1, b"with a body");
    }

    #[test]
    fn what_has_no_place_in_http_2_is_refused() {
        for field in [("TE", "gzip"), ("Upgrade", "websocket")] {
            let error = StreamTemplate::compile(&spec(&[("Host", "h"), field], ""), &[], true).unwrap_err();
            assert!(error.to_string().contains("HTTP/2"), "{error}");
        }
        let mut connect = spec(&[("Host", "h")], "");
        connect.method = "CONNECT".to_owned();
        let error = StreamTemplate::compile(&connect, &[], true).unwrap_err();
        assert!(error.to_string().contains("HTTP/2"), "{error}");
    }
}
