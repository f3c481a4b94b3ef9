//! Values of HTML by a simple selector: `input[name=csrf]@value`, `#cart .total`, `ul > li`.
//!
//! It reads tags as they stand and builds no tree. Elements are nested by their end tags; an element
//! whose end tag may be left out ends at the next one of its kind.

/// Parts of a selector. Reason: a bit each.
const PARTS: usize = 16;
/// Open elements. Reason: an end tag is looked for among them.
const DEPTH: usize = 200;

/// Elements that have no content.
const VOID: [&[u8]; 13] = [
    b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta", b"source",
    b"track", b"wbr",
];
/// Elements whose content has no tags.
const RAW: [&[u8]; 4] = [b"script", b"style", b"textarea", b"title"];
/// Elements whose end tag is often left out.
const UNCLOSED: [&[u8]; 7] = [b"p", b"li", b"td", b"tr", b"option", b"dt", b"dd"];

/// A selector, and what is taken of the first element that it finds.
#[derive(Clone, Debug)]
pub(crate) struct CssSelector {
    parts: Vec<ElementTest>,
    /// An attribute; `None`: its text.
    attribute: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct ElementTest {
    /// The parent must match what stands before, not just an ancestor.
    is_child: bool,
    tag: Option<String>,
    /// Attributes and the value that each must have, if any.
    attributes: Vec<(String, Option<String>)>,
    classes: Vec<String>,
}

/// A start tag.
struct StartTag<'a> {
    name: &'a [u8],
    attributes: Vec<(&'a [u8], &'a [u8])>,
}

#[derive(Clone, Copy)]
struct OpenElement<'a> {
    name: &'a [u8],
    /// The parts that match with this element as the last one, and those of its ancestors.
    own: u32,
    above: u32,
}

impl CssSelector {
    /// Reads a selector, and an attribute's name behind `@`.
    ///
    /// # Errors
    /// In words, what would be right.
    pub(crate) fn parse(text: &str) -> Result<CssSelector, String> {
        let (selector, attribute) = match text.rsplit_once('@') {
            Some((selector, name)) if !name.contains([']', '"', '\'']) => (selector, Some(name)),
            _ => (text, None),
        };
        if attribute.is_some_and(|name| name.is_empty() || name.contains(char::is_whitespace)) {
            return Err("behind @ stands the name of an attribute: input[name=csrf]@value".to_owned());
        }
        let parts = SelectorParser { rest: selector.trim() }.parts()?;
        Ok(CssSelector { parts, attribute: attribute.map(str::to_ascii_lowercase) })
    }

    /// The value of the first element that matches.
    pub(crate) fn find(&self, html: &[u8]) -> Option<Vec<u8>> {
        let mut open: Vec<OpenElement<'_>> = Vec::new();
        let mut rest = html;
        while let Some(at) = memchr::memchr(b'<', rest) {
            rest = &rest[at..];
            if let Some(comment) = rest.strip_prefix(b"<!--") {
                rest = memchr::memmem::find(comment, b"-->").map_or(&[][..], |end| &comment[end + 3..]);
            } else if rest.get(1) == Some(&b'/') {
                let name = name_of(&rest[2..]);
                close(&mut open, name);
                rest = &rest[2 + name.len()..];
            } else if rest.get(1).is_some_and(u8::is_ascii_alphabetic) {
                let (tag, after) = start_tag(&rest[1..]);
                rest = after;
                let element = self.opened(&mut open, &tag);
                if element.own >> (self.parts.len() - 1) & 1 == 1
                    && let Some(value) = self.value(&tag, rest)
                {
                    return Some(value);
                }
                if is_one_of(tag.name, &RAW) {
                    rest = raw_text(tag.name, rest).1;
                } else if !is_one_of(tag.name, &VOID) {
                    if open.len() == DEPTH {
                        return None;
                    }
                    open.push(element);
                }
            } else {
                rest = &rest[1..];
            }
        }
        None
    }

    /// An element opens below those that are open.
    fn opened<'a>(&self, open: &mut Vec<OpenElement<'a>>, tag: &StartTag<'a>) -> OpenElement<'a> {
        let is_same = |last: &OpenElement<'_>| last.name.eq_ignore_ascii_case(tag.name);
        if is_one_of(tag.name, &UNCLOSED) && open.last().is_some_and(is_same) {
            open.pop();
        }
        let parent = open.last().map_or(0, |parent| parent.own);
        let above = open.last().map_or(0, |parent| parent.own | parent.above);
        let mut own = 0;
        for (i, part) in self.parts.iter().enumerate() {
            let before = if part.is_child { parent } else { above };
            let follows = i == 0 || before >> (i - 1) & 1 == 1;
            own |= u32::from(follows && part.matches(tag)) << i;
        }
        OpenElement { name: tag.name, own, above }
    }

    fn value(&self, tag: &StartTag<'_>, content: &[u8]) -> Option<Vec<u8>> {
        match &self.attribute {
            Some(name) => tag.get(name).map(decoded),
            None if is_one_of(tag.name, &RAW) => Some(decoded(raw_text(tag.name, content).0)),
            None if is_one_of(tag.name, &VOID) => None,
            None => Some(text_of(tag.name, content)),
        }
    }
}

impl ElementTest {
    fn matches(&self, tag: &StartTag<'_>) -> bool {
        let is_tag = |name: &String| name.as_bytes().eq_ignore_ascii_case(tag.name);
        let has = |(name, value): &(String, Option<String>)| {
            let found = tag.get(name);
            found.is_some_and(|found| value.as_ref().is_none_or(|value| decoded(found) == value.as_bytes()))
        };
        let class = tag.get("class").unwrap_or_default();
        let has_class = |name: &String| class.split(u8::is_ascii_whitespace).any(|c| c == name.as_bytes());
        self.tag.as_ref().is_none_or(is_tag)
            && self.attributes.iter().all(has)
            && self.classes.iter().all(has_class)
    }
}

impl<'a> StartTag<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        let is_it = |(n, _): &&(&[u8], &[u8])| n.eq_ignore_ascii_case(name.as_bytes());
        self.attributes.iter().find(is_it).map(|(_, value)| *value)
    }
}

struct SelectorParser<'a> {
    rest: &'a str,
}

impl SelectorParser<'_> {
    fn parts(mut self) -> Result<Vec<ElementTest>, String> {
        let mut parts = Vec::new();
        let mut is_child = false;
        while !self.rest.is_empty() {
            let part = ElementTest { is_child, ..self.part()? };
            parts.push(part);
            let rest = self.rest.trim_start();
            let after = rest.strip_prefix('>').map(str::trim_start);
            if after.is_none() && rest.len() == self.rest.len() && !rest.is_empty() {
                return Err(unreadable(rest));
            }
            is_child = after.is_some();
            self.rest = after.unwrap_or(rest);
            if is_child && self.rest.is_empty() {
                return Err("behind > stands the child".to_owned());
            }
        }
        match parts.len() {
            0 => Err("the selector is empty; write for example css:input[name=csrf]@value".to_owned()),
            1..=PARTS => Ok(parts),
            n => Err(format!("the selector has {n} parts; at most {PARTS} are possible")),
        }
    }

    fn part(&mut self) -> Result<ElementTest, String> {
        let mut part = ElementTest::default();
        let begun = self.rest.len();
        if let Some(rest) = self.rest.strip_prefix('*') {
            self.rest = rest;
        } else if self.rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            part.tag = Some(self.name()?);
        }
        while let Some(sign) = self.rest.chars().next().filter(|c| "#.[".contains(*c)) {
            self.rest = &self.rest[1..];
            match sign {
                '#' => part.attributes.push(("id".to_owned(), Some(self.name()?))),
                '.' => part.classes.push(self.name()?),
                _ => part.attributes.push(self.attribute()?),
            }
        }
        if self.rest.len() == begun { Err(unreadable(self.rest)) } else { Ok(part) }
    }

    fn name(&mut self) -> Result<String, String> {
        let is_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err(unreadable(self.rest));
        }
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// `name]`, `name=value]`, `name="value"]`.
    fn attribute(&mut self) -> Result<(String, Option<String>), String> {
        let name = self.name()?;
        if let Some(rest) = self.rest.strip_prefix(']') {
            self.rest = rest;
            return Ok((name, None));
        }
        let value = self.rest.strip_prefix('=').ok_or_else(|| unreadable(self.rest))?;
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        let value = if quote.is_some() { &value[1..] } else { value };
        let (value, rest) = value.split_once(quote.unwrap_or(']')).ok_or("a [ has no ]")?;
        let rest = if quote.is_some() { rest.strip_prefix(']').ok_or("a [ has no ]")? } else { rest };
        self.rest = rest;
        Ok((name, Some(value.to_owned())))
    }
}

fn unreadable(rest: &str) -> String {
    format!("{rest:?} is no part of a selector; tag, #id, .class, [name], [name=value], a space and > are")
}

fn is_one_of(name: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// The name at the beginning of a tag.
fn name_of(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|b| b.is_ascii_whitespace() || matches!(b, b'>' | b'/'));
    &text[..end.unwrap_or(text.len())]
}

/// A start tag behind its `<`, and what follows it.
fn start_tag(text: &[u8]) -> (StartTag<'_>, &[u8]) {
    let name = name_of(text);
    let mut rest = &text[name.len()..];
    let mut attributes = Vec::new();
    loop {
        let skipped = rest.iter().take_while(|b| b.is_ascii_whitespace() || **b == b'/').count();
        rest = &rest[skipped..];
        match rest.first() {
            None => return (StartTag { name, attributes }, rest),
            Some(b'>') => return (StartTag { name, attributes }, &rest[1..]),
            Some(_) => {}
        }
        let is_end = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'>' | b'/' | b'=');
        // A name may begin with an equals sign, so that each turn goes on.
        let len = 1 + rest[1..].iter().position(is_end).unwrap_or(rest.len() - 1);
        let (attribute, after) = rest.split_at(len);
        let mut value = &[][..];
        rest = after;
        if let Some(given) = after.trim_ascii_start().strip_prefix(b"=") {
            let given = given.trim_ascii_start();
            (value, rest) = match given.first() {
                Some(quote @ (b'"' | b'\'')) => {
                    let end = memchr::memchr(*quote, &given[1..]).map_or(given.len(), |end| end + 1);
                    (&given[1..end], given.get(end + 1..).unwrap_or_default())
                }
                _ => {
                    let end = given.iter().position(|b| b.is_ascii_whitespace() || *b == b'>');
                    given.split_at(end.unwrap_or(given.len()))
                }
            };
        }
        attributes.push((attribute, value));
    }
}

/// The content of an element without tags in it, and what follows.
fn raw_text<'a>(name: &[u8], text: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let is_end = |at: &usize| {
        text[*at..].get(1) == Some(&b'/')
            && text[*at..].get(2..2 + name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name))
    };
    let end = memchr::memchr_iter(b'<', text).find(is_end).unwrap_or(text.len());
    text.split_at(end)
}

/// An end tag closes the last open element of its name, and those in it.
fn close(open: &mut Vec<OpenElement<'_>>, name: &[u8]) {
    if let Some(at) = open.iter().rposition(|element| element.name.eq_ignore_ascii_case(name)) {
        open.truncate(at);
    }
}

/// The text up to the end of an element, without tags, and without space around it.
fn text_of(name: &[u8], content: &[u8]) -> Vec<u8> {
    let (mut text, mut rest, mut depth) = (Vec::new(), content, 0);
    loop {
        let at = memchr::memchr(b'<', rest).unwrap_or(rest.len());
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let Some(second) = rest.get(1) else { break };
        if *second == b'/' {
            let closed = name_of(&rest[2..]);
            if closed.eq_ignore_ascii_case(name) {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
        } else if second.is_ascii_alphabetic() {
            let opened = name_of(&rest[1..]);
            if opened.eq_ignore_ascii_case(name) && !is_one_of(name, &UNCLOSED) {
                depth += 1;
            } else if opened.eq_ignore_ascii_case(name) {
                break;
            }
        }
        rest = memchr::memchr(b'>', rest).map_or(&[][..], |end| &rest[end + 1..]);
    }
    decoded(text.trim_ascii())
}

/// Text with its character references undone: the common named ones, and numbers.
fn decoded(text: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 10;
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.iter().take(LONGEST).position(|b| *b == b';');
        match end.and_then(|end| Some((end, character(&rest[..end])?))) {
            Some((end, found)) => {
                out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[end + 1..];
            }
            None => out.push(b'&'),
        }
    }
    out.extend_from_slice(rest);
    out
}

fn character(name: &[u8]) -> Option<char> {
    match name {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        b"nbsp" => Some('\u{a0}'),
        [b'#', b'x' | b'X', digits @ ..] => {
            char::from_u32(u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?)
        }
        [b'#', digits @ ..] => char::from_u32(std::str::from_utf8(digits).ok()?.parse().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r##"<!DOCTYPE html><html><head><title>A <b> &amp; C</title>
<script>if (a < b) { document.write("<input name=csrf value=wrong>") }</script>
<!-- <input name="csrf" value="commented"> --></head><body class="shop  dark">
<form id=login action="/in?a=1&amp;b=2"><input type=hidden NAME="csrf" Value='k&#51;y&quot;>'><input name=q>
</form><ul class=list><li>one<li data-id=2>two <i>2</i></li></ul><div><div id=a><p>in</p></div><p>out</p></div>
<a href=/last>Last</a></body></html>"##;

    fn found(selector: &str) -> Option<String> {
        let value = CssSelector::parse(selector).unwrap().find(PAGE.as_bytes());
        value.map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn values_of_the_first_element_that_matches() {
        for (selector, value) in [
            ("input[name=csrf]@value", "k3y\">"),
            ("form#login input[name=\"csrf\"]@value", "k3y\">"),
            ("#login@action", "/in?a=1&b=2"),
            ("title", "A <b> & C"),
            ("body.dark.shop > form@id", "login"),
            ("ul > li", "one"),
            ("li[data-id]", "two 2"),
            ("[data-id]@data-id", "2"),
            ("div > p", "in"),
            ("div div ~p", ""),
            ("* a@href", "/last"),
            ("body > div > p", "out"),
        ] {
            if value.is_empty() {
                assert!(CssSelector::parse(selector).is_err(), "{selector}");
            } else {
                assert_eq!(found(selector).as_deref(), Some(value), "{selector}");
            }
        }
        for selector in ["input[name=none]@value", "head input@value", "form > ul", "div.shop", "input"] {
            assert_eq!(found(selector), None, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_an_error() {
        for text in [
            "",
            "@value",
            "a >",
            "a[",
            "a[b",
            "a[b=",
            "a[b=\"c]",
            "a:first-child",
            "a,b",
            "a@",
            "#",
            ".",
            "a > > b",
        ] {
            assert!(CssSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hostile_pages_end() {
        let selector = CssSelector::parse("a b > c@d").unwrap();
        for piece in
            ["<a>", "</a>", "<a ", "<a =", "<a b='", "<!--", "<script>", "<", "</", "<a b=c", "&#", "<p>"]
        {
            assert_eq!(selector.find(piece.repeat(50_000).as_bytes()), None, "{piece}");
        }
        let text = CssSelector::parse("p").unwrap();
        for cut in 0..PAGE.len() {
            let _ = text.find(&PAGE.as_bytes()[..cut]);
        }
    }
}
