//! A plain JSON path (`$.a.b[0]`), followed through a document without parsing the rest of it.

/// Steps of a path. Reason: a person writes it.
const MAX_STEPS: usize = 64;

/// A path from the root of a document to one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath {
    steps: Vec<PathStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Name(String),
    Index(usize),
}

impl JsonPath {
    /// Reads `$.name`, `['any name']` and `[0]`.
    pub(crate) fn parse(text: &str) -> Result<JsonPath, String> {
        let mut rest = text.strip_prefix('$').ok_or("a JSON path begins with $, as in $.user.id")?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let step;
            (step, rest) = if let Some(tail) = rest.strip_prefix('.') {
                let end = tail.find(['.', '[']).unwrap_or(tail.len());
                let name = &tail[..end];
                if name.is_empty() || name == "*" {
                    return Err("a JSON path has plain names alone, as in $.user.id".to_owned());
                }
                (PathStep::Name(name.to_owned()), &tail[end..])
            } else if let Some(tail) = rest.strip_prefix('[') {
                in_brackets(tail)?
            } else {
                return Err(format!("{rest} does not continue a JSON path; write for example $.items[0].id"));
            };
            steps.push(step);
            if steps.len() > MAX_STEPS {
                return Err(format!("a JSON path has at most {MAX_STEPS} steps"));
            }
        }
        Ok(JsonPath { steps })
    }

    /// The value: strings without quotes and escapes, all others as they are written. `None`: there
    /// is none, or it is null, or the document is not JSON up to there.
    pub(crate) fn find(&self, document: &[u8]) -> Option<Vec<u8>> {
        let mut scan = JsonScan { rest: document };
        for step in &self.steps {
            match step {
                PathStep::Name(name) => scan.enter_member(name)?,
                PathStep::Index(index) => scan.enter_element(*index)?,
            }
        }
        scan.value()
    }
}

/// `0]` or `'name']`, and what follows.
fn in_brackets(text: &str) -> Result<(PathStep, &str), String> {
    let wrong = || "write [0] or ['a name'] in a JSON path".to_owned();
    if let Some(quote) = text.chars().next().filter(|c| ['\'', '"'].contains(c)) {
        let (name, tail) = text[1..].split_once(quote).ok_or_else(wrong)?;
        return Ok((PathStep::Name(name.to_owned()), tail.strip_prefix(']').ok_or_else(wrong)?));
    }
    let (index, tail) = text.split_once(']').ok_or_else(wrong)?;
    Ok((PathStep::Index(index.parse().map_err(|_| wrong())?), tail))
}

/// The rest of a document, at the beginning of a value.
struct JsonScan<'a> {
    rest: &'a [u8],
}

impl<'a> JsonScan<'a> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.blank();
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    /// The bytes of a string, without its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let mut at = 0;
        loop {
            at += memchr::memchr2(b'"', b'\\', self.rest.get(at..)?)?;
            if self.rest[at] == b'"' {
                let string = &self.rest[..at];
                self.rest = &self.rest[at + 1..];
                return Some(string);
            }
            at += 2;
        }
    }

    /// To the value of a member of the object that begins here: the first of that name.
    fn enter_member(&mut self, name: &str) -> Option<()> {
        self.take(b'{')?;
        loop {
            let key = self.string()?;
            self.take(b':')?;
            let is_it = match key.contains(&b'\\') {
                true => unescaped(key)? == name.as_bytes(),
                false => key == name.as_bytes(),
            };
            if is_it {
                return Some(());
            }
            self.skip()?;
            self.take(b',')?;
        }
    }

    fn enter_element(&mut self, index: usize) -> Option<()> {
        self.take(b'[')?;
        for _ in 0..index {
            self.skip()?;
            self.take(b',')?;
        }
        self.blank();
        (self.rest.first() != Some(&b']')).then_some(())
    }

    /// Over one value, whatever its depth, without recursion. Returns its text.
    fn skip(&mut self) -> Option<&'a [u8]> {
        self.blank();
        let start = self.rest;
        let mut depth = 0_usize;
        loop {
            self.blank();
            match *self.rest.first()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.rest = &self.rest[1..];
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.rest = &self.rest[1..];
                }
                b',' | b':' if depth > 0 => {
                    self.rest = &self.rest[1..];
                    continue;
                }
                _ => self.word()?,
            }
            if depth == 0 {
                return Some(&start[..start.len() - self.rest.len()]);
            }
        }
    }

    /// Over a number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        let length = self.rest.iter().take_while(|b| is_part(b)).count();
        self.rest = &self.rest[length..];
        (length > 0).then_some(())
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        self.blank();
        if self.rest.first() == Some(&b'"') {
            return unescaped(self.string()?);
        }
        Some(self.skip()?).filter(|text| *text != b"null").map(<[u8]>::to_vec)
    }
}

/// A string's bytes with its escapes replaced (RFC 8259 section 7).
fn unescaped(string: &[u8]) -> Option<Vec<u8>> {
    if !string.contains(&b'\\') {
        return Some(string.to_vec());
    }
    let quoted = [b"\"", string, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(path: &str, document: &str) -> Option<String> {
        let found = JsonPath::parse(path).unwrap().find(document.as_bytes());
        found.map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn values_are_found_by_their_path() {
        let document = r#" {"skip": {"a": "}]\"", "b": [1, {"c": []}]}, "a": {"b": [10, {"x y": "t\"\u00e9\n"}, true]},
            "n": -1.5e3, "z": null, "o": {"k": [1, 2]}, "": 7, "k\u0065y": "escaped"} "#;
        for (path, found) in [
            ("$.a.b[0]", Some("10")),
            ("$.a.b[1]['x y']", Some("t\"\u{e9}\n")),
            ("$.a.b[2]", Some("true")),
            ("$.a.b[3]", None),
            ("$.a.b.c", None),
            ("$.n", Some("-1.5e3")),
            ("$.z", None),
            ("$.o", Some("{\"k\": [1, 2]}")),
            ("$.key", Some("escaped")),
            ("$['']", Some("7")),
            ("$.missing", None),
            ("$.skip.b[1].c[0]", None),
        ] {
            assert_eq!(find(path, document).as_deref(), found, "{path}");
        }
        assert_eq!(find("$", "\"a\"").as_deref(), Some("a"));
        assert_eq!(find("$[1].id", "[{}, {\"id\": 5}]").as_deref(), Some("5"));
    }

    #[test]
    fn what_is_no_path_is_an_error() {
        for path in ["", "a", "$a", "$.", "$..a", "$.*", "$[", "$[x]", "$['a]", "$[0", "$[-1]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        assert!(JsonPath::parse(&format!("${}", "[0]".repeat(MAX_STEPS + 1))).is_err());
    }

    #[test]
    fn hostile_documents_end() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(find("$[1]", &format!("[{deep}")), None);
        for document in
            ["", "{", "{\"a\"", "{\"a\":", "{\"a\":\"", "{\"a\":\"\\", "{,}", "[1 2]", "}", "{\"b\":}"]
        {
            assert_eq!(find("$.a", document), None, "{document}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_parser(keys in prop::collection::vec("[a-c\"\\\\\u{e9}]{0,3}", 1..6), n in 0usize..6) {
            let mut object = serde_json::Map::new();
            for (i, key) in keys.iter().enumerate() {
                object.insert(key.clone(), serde_json::json!([key, {"v": i}]));
            }
            let key = &keys[n % keys.len()];
            let document = serde_json::Value::Object(object.clone()).to_string();
            let path = JsonPath { steps: vec![PathStep::Name(key.clone()), PathStep::Index(1), PathStep::Name("v".into())] };
            let wanted = object[key][1]["v"].to_string().into_bytes();
            prop_assert_eq!(path.find(document.as_bytes()), Some(wanted));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\a1 ".to_vec()), 0..60)) {
            JsonPath::parse("$.a[1].a").unwrap().find(&bytes);
        }
    }
}
