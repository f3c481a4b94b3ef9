//! Just enough of Rust's grammar to distinguish code from comments and strings.

/// A source file taken apart.
#[derive(Debug)]
pub(crate) struct Lexed {
    /// The source with every character of comments, strings and characters replaced by a space;
    /// lines stay lines.
    pub(crate) code: String,
    /// Plain `//` comments (not `///` or `//!`): line from 1 and text.
    pub(crate) comments: Vec<(usize, String)>,
    /// All line comments, doc comments too: line from 1 and text.
    pub(crate) prose: Vec<(usize, String)>,
}

/// Takes a source file apart.
pub(crate) fn lex(source: &str) -> Lexed {
    let mut l = Lexer {
        rest: source,
        line: 1,
        code: String::with_capacity(source.len()),
        comments: Vec::new(),
        prose: Vec::new(),
    };
    while !l.rest.is_empty() {
        l.step();
    }
    Lexed { code: l.code, comments: l.comments, prose: l.prose }
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    code: String,
    comments: Vec<(usize, String)>,
    prose: Vec<(usize, String)>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let after_word = self.code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let text = &self.rest[..end];
            self.prose.push((self.line, text.trim_start_matches(['/', '!']).trim().to_owned()));
            if !text.starts_with("///") && !text.starts_with("//!") {
                self.comments.push((self.line, text[2..].trim().to_owned()));
            }
            self.blank(end);
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment(self.rest));
        } else if let Some(end) = raw_string(self.rest).filter(|_| !after_word) {
            self.blank(end);
        } else if self.rest.starts_with('"') {
            self.blank(string(self.rest));
        } else if let Some(end) = character(self.rest) {
            self.blank(end);
        } else {
            let len = self.rest.chars().next().map_or(0, char::len_utf8);
            self.keep(len);
        }
    }

    fn keep(&mut self, len: usize) {
        let (now, later) = self.rest.split_at(len);
        self.line += now.matches('\n').count();
        self.code.push_str(now);
        self.rest = later;
    }

    fn blank(&mut self, len: usize) {
        let (now, later) = self.rest.split_at(len);
        self.line += now.matches('\n').count();
        self.code.extend(now.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = later;
    }
}

fn block_comment(s: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < s.len() {
        let rest = &s[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    s.len()
}

/// `r"..."`, `r#"..."#`, with `b` or `c` before it: its length.
fn raw_string(s: &str) -> Option<usize> {
    let prefix = s.len() - s.trim_start_matches(['b', 'c']).len();
    let after = s[prefix.min(1)..].strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close)? + close.len();
    Some(s.len() - body.len() + end)
}

fn string(s: &str) -> usize {
    let mut escaped = false;
    for (i, c) in s.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    s.len()
}

/// `'x'` or `'\n'`, but not a lifetime: its length.
fn character(s: &str) -> Option<usize> {
    let mut all = s.strip_prefix('\'')?.char_indices();
    match all.next()?.1 {
        '\\' => s[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map(|(i, _)| i + 3),
        _ => all.next().filter(|(_, c)| *c == '\'').map(|(i, _)| i + 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        lex(source).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn strings_characters_and_comments_are_blank() {
        assert_eq!(code("a \"b \\\" { c\" d"), "a d");
        assert_eq!(code("a r#\"b \" { c\"# d br\"e\" f"), "a d f");
        assert_eq!(code("a /* b /* c */ d */ e // f\ng"), "a e g");
        assert_eq!(code("let c = '{'; let q = '\\''; x"), "let c = ; let q = ; x");
        assert_eq!(code("let c = '\\u{7b}'; x"), "let c = ; x");
        assert_eq!(code("fn f<'a>(x: &'a str) { b'x' }"), "fn f<'a>(x: &'a str) { b }");
        assert_eq!(code("for r in 0..3 { br }"), "for r in 0..3 { br }");
    }

    #[test]
    fn lines_stay_lines() {
        let l = lex("one\n\"two\nthree\"\n// four\nfive");
        assert_eq!(l.code.lines().count(), 5);
        assert_eq!(l.comments, [(4, "four".to_owned())]);
    }

    #[test]
    fn documentation_is_no_comment() {
        let l = lex("/// a\n//! b\nfn f() {} // c");
        assert_eq!(l.comments, [(3, "c".to_owned())]);
        assert_eq!(l.prose, [(1, "a".to_owned()), (2, "b".to_owned()), (3, "c".to_owned())]);
    }
}
