//! What a step expects of its response.

use std::time::Duration;

use regex::bytes::Regex;

use super::jar::SetCookie;
use super::schema::JsonSchema;
use super::take::{Extractor, regex};

/// What a response must be like.
#[derive(Debug, Default)]
pub(crate) struct StepExpect {
    pub(crate) tests: Vec<ResponseTest>,
    /// What the body must be like.
    pub(crate) schema: Option<BodySchema>,
    /// Longest time to the response.
    pub(crate) max: Option<Duration>,
}

/// A compiled schema of a body.
#[derive(Debug)]
pub(crate) struct BodySchema {
    /// For people: its file.
    shown: String,
    schema: JsonSchema,
}

impl BodySchema {
    /// Compiles a schema that is in this file, if in one.
    ///
    /// # Errors
    /// The file, the place in it, and what would be right.
    pub(crate) fn new(file: Option<&str>, text: &str) -> Result<BodySchema, String> {
        let shown = file.map_or_else(|| "schema".to_owned(), |file| format!("schema {file}"));
        let schema = JsonSchema::parse(text).map_err(|why| format!("{shown}: {why}"))?;
        Ok(BodySchema { shown, schema })
    }

    /// What is wrong with a body, if something is.
    pub(crate) fn of_body(&self, body: &[u8]) -> Option<String> {
        self.schema.problem(body).map(|why| format!("{}: {why}", self.shown))
    }
}

/// A part of a response, and what it must be.
#[derive(Debug)]
pub(crate) struct ResponseTest {
    /// For people.
    shown: String,
    from: Extractor,
    wanted: WantedValue,
}

#[derive(Debug)]
enum WantedValue {
    /// It is there.
    Any,
    Text(String),
    /// Whatever way it is written in.
    Number(f64),
    Matches(Regex),
}

impl ResponseTest {
    /// A test of what `from` takes. `wanted`: a text, a number, or `regex:PATTERN`; `None`: it is there.
    ///
    /// # Errors
    /// In words, what would be right.
    pub(crate) fn new(from: &str, wanted: Option<&str>) -> Result<ResponseTest, String> {
        let value = match wanted {
            None => WantedValue::Any,
            Some(text) => match (text.strip_prefix("regex:"), text.parse::<f64>()) {
                (Some(pattern), _) => WantedValue::Matches(regex(pattern)?),
                (None, Ok(number)) if number.is_finite() => WantedValue::Number(number),
                (None, _) => WantedValue::Text(text.to_owned()),
            },
        };
        let shown = match wanted {
            None => from.to_owned(),
            Some(wanted) => format!("{from} = {wanted}"),
        };
        Ok(ResponseTest { shown, from: Extractor::parse(from)?, wanted: value })
    }

    /// Whether it looks at the body.
    pub(crate) fn wants_body(&self) -> bool {
        self.from.wants_body()
    }

    /// Of a head: what is wrong, if something is.
    pub(crate) fn of_head<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        cookies: &[SetCookie],
    ) -> Option<String> {
        if self.wants_body() { None } else { self.wrong(self.from.in_head(fields, cookies)) }
    }

    /// Of a body: what is wrong, if something is.
    pub(crate) fn of_body(&self, body: &[u8]) -> Option<String> {
        if self.wants_body() { self.wrong(self.from.in_body(body)) } else { None }
    }

    fn wrong(&self, found: Option<Vec<u8>>) -> Option<String> {
        const SHOWN: usize = 60;
        let Some(found) = found else { return Some(format!("{}: there is none", self.shown)) };
        let text = String::from_utf8_lossy(&found);
        let is_right = match &self.wanted {
            WantedValue::Any => true,
            WantedValue::Text(wanted) => text == *wanted,
            WantedValue::Number(wanted) => text.parse() == Ok(*wanted),
            WantedValue::Matches(pattern) => pattern.is_match(&found),
        };
        let shown = || text.chars().take(SHOWN).collect::<String>();
        (!is_right).then(|| format!("{}: it is {:?}", self.shown, shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_as_expected_or_not() {
        let body = br#"{"ok":true,"n":2.0,"name":"ann","null":null,"list":[1]}"#;
        for (from, wanted, wrong) in [
            ("json:$.ok", None, None),
            ("json:$.ok", Some("true"), None),
            ("json:$.n", Some("2"), None),
            ("json:$.n", Some("3"), Some("json:$.n = 3: it is \"2.0\"")),
            ("json:$.name", Some("ann"), None),
            ("json:$.name", Some("regex:^a.n$"), None),
            ("json:$.name", Some("regex:^b"), Some("json:$.name = regex:^b: it is \"ann\"")),
            ("json:$.null", None, Some("json:$.null: there is none")),
            ("json:$.list[1]", None, Some("json:$.list[1]: there is none")),
            ("regex:\"ok\":true", None, None),
            ("regex:failed", None, Some("regex:failed: there is none")),
        ] {
            let test = ResponseTest::new(from, wanted).unwrap();
            assert_eq!(test.of_body(body).as_deref(), wrong, "{from}");
        }
    }

    #[test]
    fn heads_are_as_expected_or_not() {
        let fields: [(&[u8], &[u8]); 1] = [(b"content-type", b"text/html; charset=utf-8")];
        for (wanted, is_right) in [
            (None, true),
            (Some("text/html; charset=utf-8"), true),
            (Some("text/html"), false),
            (Some("regex:^text/html\\b"), true),
        ] {
            let test = ResponseTest::new("header:Content-Type", wanted).unwrap();
            assert_eq!(test.of_head(fields.into_iter(), &[]).is_none(), is_right, "{wanted:?}");
            assert_eq!(test.of_body(b""), None);
        }
    }
}
