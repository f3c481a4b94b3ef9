//! `--form`: bodies of multipart/form-data (RFC 7578), written as curl takes them.

use std::path::Path;
use std::sync::Arc;

use linerate_http::client::{Body, BodyPart};

use super::InvalidPlan;
use super::body::read_file;
use super::units::quoted;

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    name: String,
    value: BodyPart,
    filename: Option<String>,
    content_type: Option<String>,
}

impl FormField {
    /// Parses `NAME=VALUE`, `NAME=@FILE` or `NAME=<FILE`, optionally followed by `;type=TYPE` and
    /// `;filename=NAME`. Slots are filled in a value given in the text; a file is sent unchanged.
    /// `folder` is where relative paths start.
    ///
    /// # Errors
    /// The error in the text, and the right form.
    pub fn parse(text: &str, folder: &Path) -> Result<FormField, InvalidPlan> {
        let known = || "write NAME=VALUE, or NAME=@FILE;type=TYPE;filename=NAME".to_owned();
        let Some((name, rest)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("{} has no name: {}", quoted(text), known()).into());
        };
        let (value, mut rest) = word(rest)?;
        let (file, attached) = match value.as_bytes().first() {
            Some(b'@') => (Some(&value[1..]), true),
            Some(b'<') => (Some(&value[1..]), false),
            _ => (None, false),
        };
        let mut field = FormField {
            name: name.to_owned(),
            value: match file {
                Some(file) => {
                    let path = folder.join(file);
                    let read = read_file(&path);
                    let bytes =
                        read.map_err(|why| format!("{name}: {} cannot be read: {why}", path.display()))?;
                    BodyPart { bytes, slots: false }
                }
                None => BodyPart { bytes: value.as_bytes().into(), slots: true },
            },
            filename: file.filter(|_| attached).map(base_name),
            content_type: file.filter(|_| attached).map(|file| type_of(file).to_owned()),
        };
        while let Some(more) = rest.strip_prefix(';') {
            let (key, value) = more.trim_start().split_once('=').unwrap_or((more, ""));
            let (value, after) = word(value)?;
            match key {
                "type" if is_type(&value) => field.content_type = Some(value),
                "type" => {
                    return Err(format!(
                        "{} is no media type: write for example type=text/plain",
                        quoted(&value)
                    )
                    .into());
                }
                "filename" => field.filename = Some(value),
                _ => {
                    return Err(format!(
                        "{} is not known here: known are type and filename; a value with ; stands in double quotes",
                        quoted(key)
                    ).into());
                }
            }
            rest = after;
        }
        Ok(field)
    }

    /// Reads `NAME=VALUE` in which no sign has a meaning but slots.
    ///
    /// # Errors
    /// It has no name.
    pub fn plain(text: &str) -> Result<FormField, InvalidPlan> {
        let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = named.ok_or_else(|| format!("{} has no name: write NAME=VALUE", quoted(text)))?;
        let value = BodyPart { bytes: value.as_bytes().into(), slots: true };
        Ok(FormField { name: name.to_owned(), value, filename: None, content_type: None })
    }

    fn head(&self) -> String {
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", escaped(&self.name));
        if let Some(filename) = &self.filename {
            head.push_str(&format!("; filename=\"{}\"", escaped(filename)));
        }
        head.push_str("\r\n");
        if let Some(content_type) = &self.content_type {
            head.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        head + "\r\n"
    }

    fn holds(&self, boundary: &str) -> bool {
        let found = |text: &[u8]| memchr::memmem::find(text, boundary.as_bytes()).is_some();
        found(&self.value.bytes) || found(self.head().as_bytes())
    }
}

/// A value up to `;` or in double quotes, and what follows it. `\"` and `\\` in quotes stand for
/// the second character.
fn word(text: &str) -> Result<(String, &str), String> {
    let Some(quoted_text) = text.strip_prefix('"') else {
        // The sign of a file may stand before quotes.
        if let Some((sign, true)) =
            text.get(..1).map(|sign| (sign, matches!(sign, "@" | "<") && text[1..].starts_with('"')))
        {
            let (value, rest) = word(&text[1..])?;
            return Ok((format!("{sign}{value}"), rest));
        }
        let end = text.find(';').unwrap_or(text.len());
        return Ok((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted_text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &quoted_text[at + 1..])),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    Err(format!("{} opens a quotation that does not end", quoted(text)))
}

/// Escapes what would end a quoted parameter, as browsers and curl do.
fn escaped(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

fn base_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn is_type(text: &str) -> bool {
    let visible = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    visible && text.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty())
}

/// The types that curl knows by the end of a file's name.
fn type_of(path: &str) -> &'static str {
    let end = Path::new(path).extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    match end.as_deref() {
        Some("gif") => "image/gif",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain",
        Some("htm" | "html") => "text/html",
        Some("pdf") => "application/pdf",
        Some("xml") => "application/xml",
        _ => "application/octet-stream",
    }
}

/// The value of Content-Type and the body of a form. The boundary is derived from `seed`. It occurs
/// in no field and in none of the `cells` that slots may insert.
pub fn multipart<'a>(
    fields: &[FormField],
    seed: u64,
    cells: impl Iterator<Item = &'a str> + Clone,
) -> (String, Body) {
    let free = |boundary: &String| {
        !fields.iter().any(|field| field.holds(boundary))
            && !cells.clone().any(|cell| cell.contains(boundary))
    };
    let boundary = (0..).map(|n| boundary(seed, n)).find(free).unwrap_or_default();
    let literal = |text: String| BodyPart { bytes: Arc::from(text.into_bytes()), slots: false };
    let mut body = Body::default();
    let mut before = "";
    for field in fields {
        body.push(literal(format!("{before}--{boundary}\r\n{}", field.head())));
        body.push(field.value.clone());
        before = "\r\n";
    }
    body.push(literal(format!("{before}--{boundary}--\r\n")));
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// The `n`-th boundary of a seed.
fn boundary(seed: u64, n: u64) -> String {
    let stream = linerate_base::derive(seed, 0x666f_726d);
    format!(
        "linerate-{:016x}{:016x}",
        linerate_base::nth(stream, 2 * n),
        linerate_base::nth(stream, 2 * n + 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[&str], folder: &Path) -> (String, String) {
        let fields: Vec<_> = fields.iter().map(|text| FormField::parse(text, folder).unwrap()).collect();
        let (content_type, body) = multipart(&fields, 7, [].into_iter());
        (content_type, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn fields_are_written_as_the_rfc_has_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a;b.txt"), "{{raw}}").unwrap();
        let (content_type, body) = form(
            &[
                "user={{csv.name}}",
                "empty=",
                "q\"t=\"a;b\\\"c\"",
                "file=@\"a;b.txt\"",
                "other=@\"a;b.txt\";type=image/png;filename=\"x\"",
                "text=<\"a;b.txt\"",
                "json={};type=application/json",
            ],
            folder.path(),
        );
        let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        let part = |head: &str, value: &str| {
            format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
        };
        let expected = [
            part("name=\"user\"", "{{csv.name}}"),
            part("name=\"empty\"", ""),
            part("name=\"q%22t\"", "a;b\"c"),
            part("name=\"file\"; filename=\"a;b.txt\"\r\nContent-Type: text/plain", "{{raw}}"),
            part("name=\"other\"; filename=\"x\"\r\nContent-Type: image/png", "{{raw}}"),
            part("name=\"text\"", "{{raw}}"),
            part("name=\"json\"\r\nContent-Type: application/json", "{}"),
        ];
        assert_eq!(body, format!("{}--{boundary}--\r\n", expected.concat()));
        // RFC 2046, section 5.1.1.
        assert!(boundary.len() <= 70 && boundary.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    }

    #[test]
    fn a_boundary_occurs_in_nothing_that_is_sent() {
        let (first, second) = (boundary(7, 0), boundary(7, 1));
        let field = FormField::parse(&format!("a=x{first}"), Path::new("")).unwrap();
        let (content_type, _) = multipart(std::slice::from_ref(&field), 7, [].into_iter());
        assert!(content_type.ends_with(&second), "{content_type}");
        let (content_type, _) = multipart(&[field], 7, [&*second].into_iter());
        assert!(content_type.ends_with(&boundary(7, 2)), "{content_type}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("name", "has no name"),
            ("=x", "has no name"),
            ("a=@none", "none cannot be read: there is no such file"),
            ("a=b;typ=x", "\"typ\" is not known here"),
            ("a=b;type=text", "is no media type"),
            ("a=b;type=\"text/x\r\nX: y\"", "is no media type"),
            ("a=\"b", "does not end"),
        ] {
            let error = FormField::parse(text, Path::new("")).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
