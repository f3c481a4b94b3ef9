//! Rules for Rust files.

use super::finding::{File, TidyFinding};
use super::lexer::{Lexed, lex};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

/// The only folders that may say `unsafe`.
const UNSAFE_MAY: [&str; 3] =
    ["crates/linerate-net/src/sys/", "crates/linerate-bypass/src/abi/", "crates/linerate-bypass/src/kernel/"];

/// Macros and attributes that are left behind, not meant. Put together here so that this file may
/// name them.
const LEFT_BEHIND: [&str; 4] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!("), concat!("#[ig", "nore")];

/// Checks one file.
pub(crate) fn check(f: &File, found: &mut Vec<TidyFinding>) {
    let lexed = lex(&f.text);
    let lines = f.text.lines().count();
    if lines > FILE_LINES {
        let what = format!("{lines} lines, more than {FILE_LINES}: would it be two rooms?");
        found.push(TidyFinding::new(&f.path, 0, "long-file", what));
    }
    for function in functions(&lexed.code).into_iter().filter(|x| x.lines > FUNCTION_LINES) {
        let what = format!("`{}` has {} lines, more than {FUNCTION_LINES}", function.name, function.lines);
        found.push(TidyFinding::new(&f.path, function.line, "long-function", what));
    }
    for (i, line) in lexed.code.lines().enumerate() {
        if has_word(line, "unsafe") && !UNSAFE_MAY.iter().any(|p| f.path.starts_with(p)) {
            found.push(TidyFinding::new(
                &f.path,
                i + 1,
                "unsafe",
                format!("unsafe code outside {}", UNSAFE_MAY.join(", ")),
            ));
        }
        for left in LEFT_BEHIND.iter().filter(|l| line.contains(*l)) {
            found.push(TidyFinding::new(&f.path, i + 1, "left-behind", format!("{left} was left behind")));
        }
    }
    commented_out(f, &lexed, found);
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(i, _)| {
        let before = line[..i].chars().next_back().is_some_and(part);
        let after = line[i + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

/// A comment that ends like a statement and begins like one is disabled code.
fn commented_out(f: &File, lexed: &Lexed, found: &mut Vec<TidyFinding>) {
    const BEGINS: [&str; 12] = [
        "let ", "use ", "pub ", "fn ", "if ", "for ", "while ", "match ", "return ", "self.", "impl ", "mod ",
    ];
    for (line, text) in &lexed.comments {
        let call = text.ends_with(");") && text.find('(').is_some_and(|i| is_path(&text[..i]));
        let ends = text.ends_with(';') || text.ends_with(" {") || text.ends_with("},");
        if call || (ends && BEGINS.iter().any(|b| text.starts_with(b))) {
            found.push(TidyFinding::new(
                &f.path,
                *line,
                "commented-out",
                format!("commented-out code: {text}"),
            ));
        }
    }
}

fn is_path(s: &str) -> bool {
    !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || "_.:!".contains(c))
}

/// A function found in code.
#[derive(Debug, PartialEq)]
struct Function<'a> {
    name: &'a str,
    line: usize,
    /// From its `fn` to its closing brace.
    lines: usize,
}

/// All functions with a body, inner ones too. `code` has no comments and no strings.
fn functions(code: &str) -> Vec<Function<'_>> {
    let mut all = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let begins = code[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        let rest = &code[at + 3..];
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        if !begins || name.is_empty() {
            continue;
        }
        if let Some(end) = end_of_body(rest) {
            let line = code[..at].matches('\n').count() + 1;
            all.push(Function { name, line, lines: rest[..end].matches('\n').count() + 1 });
        }
    }
    all
}

/// The end of the body that follows a signature; `None`: a semicolon follows.
fn end_of_body(signature: &str) -> Option<usize> {
    let (mut braces, mut others) = (0, 0);
    for (i, c) in signature.char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others -= 1,
            ';' if braces == 0 && others == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && others == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        check(&File { path: path.into(), text: text.into() }, &mut found);
        found.iter().map(|f| f.rule).collect()
    }

    #[test]
    fn functions_are_measured() {
        let code = "fn a(x: [u8; 3]) -> u8 {\n  if x { 1 } else { 2 }\n}\ntrait T { fn b(&self); }\nfn c() { fn d() {\n} }\n";
        let all: Vec<_> = functions(code).iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(all, [("a", 1, 3), ("c", 5, 2), ("d", 5, 2)]);
    }

    #[test]
    fn sizes() {
        let long = format!("fn f() {{\n{}}}\n", "    a();\n".repeat(70));
        assert_eq!(rules("a.rs", &long), ["long-function"]);
        assert_eq!(rules("a.rs", &format!("fn f() {{\n{}}}\n", "    a();\n".repeat(68))), [""; 0]);
        assert_eq!(rules("a.rs", &"const A: u8 = 1;\n".repeat(801)), ["long-file"]);
        assert_eq!(rules("a.rs", &"const A: u8 = 1;\n".repeat(800)), [""; 0]);
    }

    #[test]
    fn unsafe_has_one_home() {
        let code = "fn f() { unsafe { g() } }";
        assert_eq!(rules("crates/linerate-net/src/epoll/mod.rs", code), ["unsafe"]);
        assert_eq!(rules("crates/linerate-net/src/sys/epoll.rs", code), [""; 0]);
        assert_eq!(rules("crates/linerate-bypass/src/abi/mod.rs", code), [""; 0]);
        assert_eq!(rules("crates/linerate-bypass/src/world.rs", code), ["unsafe"]);
        assert_eq!(
            rules("a.rs", "#![forbid(unsafe_code)]\n// unsafe in words\nconst A: &str = \"unsafe\";"),
            [""; 0]
        );
    }

    #[test]
    fn what_is_left_behind() {
        for left in LEFT_BEHIND {
            assert_eq!(rules("a.rs", &format!("{left}]")), ["left-behind"]);
        }
    }

    #[test]
    fn code_in_comments() {
        assert_eq!(rules("a.rs", "// let x = 1;"), ["commented-out"]);
        assert_eq!(rules("a.rs", "// self.f(x);"), ["commented-out"]);
        assert_eq!(rules("a.rs", "// foo::bar(x);"), ["commented-out"]);
        assert_eq!(rules("a.rs", "// if it waits, it waits here;"), ["commented-out"]);
        assert_eq!(rules("a.rs", "// We let x be; see above (there);\n// A word."), [""; 0]);
    }
}
