//! What a step takes from its response: a value by a JSON path, a regular expression, a CSS selector,
//! a header field or a cookie.

use regex::bytes::{Regex, RegexBuilder};

use super::css::CssSelector;
use super::jar::SetCookie;
use super::json_path::JsonPath;
use crate::limits::{REGEX_BYTES, TAKEN_BYTES};

/// Where a value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Extractor {
    /// `json:$.a.b[0]`: of the body.
    Json(JsonPath),
    /// `regex:...`: of the body; the first group, or all that matched.
    Regex(Regex),
    /// `css:input[name=csrf]@value`: of the body.
    Css(CssSelector),
    /// `header:Name`, or `header:Name:regex:...`.
    Header(String, Option<Regex>),
    /// `cookie:name`: of this response.
    Cookie(String),
}

impl Extractor {
    /// Reads what a plan file writes.
    ///
    /// # Errors
    /// In words, what would be right.
    pub(crate) fn parse(text: &str) -> Result<Extractor, String> {
        const KNOWN: &str = "write \"json:$.token\", \"regex:id=(\\\\d+)\", \"css:input[name=csrf]@value\", \"header:Location\", \
                             \"header:Location:regex:/items/(\\\\d+)\" or \"cookie:session\"";
        let (kind, rest) = text.split_once(':').ok_or_else(|| format!("{text:?} takes nothing; {KNOWN}"))?;
        match kind {
            "json" => Ok(Extractor::Json(JsonPath::parse(rest)?)),
            "regex" => Ok(Extractor::Regex(regex(rest)?)),
            "header" => {
                let (name, pattern) = match rest.split_once(":regex:") {
                    Some((name, pattern)) => (name, Some(regex(pattern)?)),
                    None => (rest, None),
                };
                match super::is_token(name) {
                    true => Ok(Extractor::Header(name.to_owned(), pattern)),
                    false => Err(format!("{name:?} is no header name; {KNOWN}")),
                }
            }
            "cookie" if super::is_token(rest) => Ok(Extractor::Cookie(rest.to_owned())),
            "cookie" => Err(format!("{rest:?} is no cookie name; {KNOWN}")),
            "css" => Ok(Extractor::Css(CssSelector::parse(rest)?)),
            other => Err(format!("{other:?} is nothing to take from; {KNOWN}")),
        }
    }

    /// Whether it looks at the body.
    pub(crate) fn wants_body(&self) -> bool {
        matches!(self, Extractor::Json(_) | Extractor::Regex(_) | Extractor::Css(_))
    }

    /// The value in the fields and cookies of a response's head.
    pub(crate) fn in_head<'f>(
        &self,
        mut fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        cookies: &[SetCookie],
    ) -> Option<Vec<u8>> {
        let value = match self {
            Extractor::Header(name, pattern) => {
                let (_, value) = fields.find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))?;
                match pattern {
                    Some(pattern) => captured(pattern, value)?,
                    None => value.to_vec(),
                }
            }
            Extractor::Cookie(name) => {
                let cookie = cookies.iter().rev().find(|cookie| cookie.name == name.as_bytes())?;
                cookie.value.clone()
            }
            Extractor::Json(_) | Extractor::Regex(_) | Extractor::Css(_) => return None,
        };
        bounded(value)
    }

    /// The value in a body without its coding.
    pub(crate) fn in_body(&self, body: &[u8]) -> Option<Vec<u8>> {
        match self {
            Extractor::Json(path) => bounded(path.find(body)?),
            Extractor::Regex(pattern) => bounded(captured(pattern, body)?),
            Extractor::Css(selector) => bounded(selector.find(body)?),
            Extractor::Header(..) | Extractor::Cookie(_) => None,
        }
    }
}

fn bounded(value: Vec<u8>) -> Option<Vec<u8>> {
    Some(value).filter(|value| value.len() <= TAKEN_BYTES)
}

/// A regular expression whose matching takes time in proportion to the text.
pub(super) fn regex(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("the regular expression is empty".to_owned());
    }
    let built = RegexBuilder::new(pattern).size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES).build();
    built.map_err(|e| {
        let why = e.to_string();
        format!("{pattern:?} is no regular expression: {}", why.lines().last().unwrap_or_default().trim())
    })
}

fn captured(pattern: &Regex, text: &[u8]) -> Option<Vec<u8>> {
    let captures = pattern.captures(text)?;
    let found = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
    found.map(|found| found.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_body(take: &str, body: &str) -> Option<String> {
        let found = Extractor::parse(take).unwrap().in_body(body.as_bytes());
        found.map(|value| String::from_utf8(value).unwrap())
    }

    fn of_head(take: &str, fields: &[(&str, &str)]) -> Option<String> {
        let fields: Vec<_> = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        let cookies: Vec<_> = fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie"))
            .filter_map(|(_, value)| SetCookie::parse(value))
            .collect();
        let found = Extractor::parse(take).unwrap().in_head(fields.iter().copied(), &cookies);
        found.map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn values_of_bodies_and_heads() {
        assert_eq!(of_body("json:$.t", "{\"t\":\"abc\"}").as_deref(), Some("abc"));
        let form = "<input name=\"csrf\" value=\"k3y\">";
        assert_eq!(of_body("regex:name=\"csrf\" value=\"([^\"]+)\"", form).as_deref(), Some("k3y"));
        assert_eq!(of_body("regex:c.rf", form).as_deref(), Some("csrf"));
        assert_eq!(of_body("regex:none", form), None);
        let head = [("Location", "/items/42?x"), ("Set-Cookie", "s=1; Path=/"), ("set-cookie", "s=2")];
        assert_eq!(of_head("header:location", &head).as_deref(), Some("/items/42?x"));
        assert_eq!(of_head("header:Location:regex:/items/(\\d+)", &head).as_deref(), Some("42"));
        assert_eq!(of_head("cookie:s", &head).as_deref(), Some("2"));
        assert_eq!(of_head("cookie:t", &head), None);
    }

    #[test]
    fn what_takes_nothing_is_an_error() {
        for text in [
            "",
            "token",
            "json:a",
            "regex:",
            "regex:(",
            "header:",
            "header:a b",
            "cookie:",
            "css:a:hover",
            "xpath:/a",
        ] {
            assert!(Extractor::parse(text).is_err(), "{text}");
        }
        assert!(Extractor::parse("regex:(a{1000}){1000}{1000}").is_err());
    }

    #[test]
    fn a_value_that_is_too_long_is_not_taken() {
        let body = format!("{{\"t\":\"{}\"}}", "a".repeat(TAKEN_BYTES + 1));
        assert_eq!(of_body("json:$.t", &body), None);
    }
}
