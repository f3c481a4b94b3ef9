//! What a reader must find once: a cause by its value, an error by its type.

use super::finding::{File, TidyFinding};
use super::imports::without_tests;
use super::lexer::lex;

/// The folder of the causes' values.
const CAUSES: &str = "crates/linerate-explain/src/causes/";
/// Crates that speak of causes.
const SPEAKERS: [&str; 3] =
    ["crates/linerate-explain/src/", "crates/linerate-report/src/", "crates/linerate-commands/src/"];

/// Causes by id as text, and public functions whose error is text. There may be none.
pub(crate) fn check(files: &[File], found: &mut Vec<TidyFinding>) {
    let ids: Vec<String> = files.iter().filter(|f| f.path.starts_with(CAUSES)).flat_map(ids).collect();
    for f in files.iter().filter(|f| is_product(&f.path)) {
        if SPEAKERS.iter().any(|crate_| f.path.starts_with(crate_)) {
            found.extend(literals(f, &ids));
        }
        found.extend(string_errors(f));
    }
}

fn is_product(path: &str) -> bool {
    let tests = path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") && !tests
}

/// The ids of the causes that a file defines. One of a single word may mean something else elsewhere.
fn ids(f: &File) -> Vec<String> {
    let lines = before_tests(&f.text);
    let id = |line: &str| line.trim().strip_prefix("id: \"")?.strip_suffix("\",").map(str::to_owned);
    lines.filter_map(id).filter(|id| id.contains('-')).collect()
}

fn before_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"))
}

/// Lines that name a cause by its id as text: but for its own definition none.
fn literals(f: &File, ids: &[String]) -> Vec<TidyFinding> {
    let defines = |line: &str| f.path.starts_with(CAUSES) && line.trim_start().starts_with("id: ");
    let code = before_tests(&f.text).enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        !line.starts_with("//") && !defines(line)
    });
    let mut found = Vec::new();
    for (n, line) in code {
        for id in ids.iter().filter(|id| line.contains(&format!("\"{id}\""))) {
            let what = format!("{id} as text: name its value in causes/");
            found.push(TidyFinding::new(&f.path, n + 1, "cause-literal", what));
        }
    }
    found
}

/// Public functions whose error is a text: a caller can do nothing with it but print it.
fn string_errors(f: &File) -> Vec<TidyFinding> {
    let code = without_tests(&lex(&f.text).code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub ") {
        let item = &code[at + 4..];
        let head = &item[..item.find(['{', ';']).unwrap_or(item.len())];
        let mut words = head.split_whitespace();
        let Some(name) = words.by_ref().take(4).skip_while(|word| *word != "fn").nth(1) else { continue };
        let Some((_, returned)) = head.split_once("->") else { continue };
        let (returned, _) = returned.split_once(" where ").unwrap_or((returned, ""));
        let returned = returned.split_whitespace().collect::<String>().replace(",>", ">");
        if returned.starts_with("Result<") && returned.ends_with(",String>") {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            let what = format!("`{name}` returns a text as its error: give it a type");
            found.push(TidyFinding::new(&f.path, 0, "string-error", what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let cause = File { path: format!("{CAUSES}a.rs"), text: "    id: \"a-cause\",\n".into() };
        let mut found = Vec::new();
        check(&[cause, File { path: path.into(), text: text.into() }], &mut found);
        found.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_cause_is_named_by_its_value_outside_of_tests() {
        let text = "fn f() { g(\"a-cause\") }\n// \"a-cause\"\n#[cfg(test)]\nmod tests { \"a-cause\" }";
        assert_eq!(found("crates/linerate-report/src/b.rs", text).len(), 1);
        assert_eq!(found("crates/linerate-report/src/tests.rs", text).len(), 0);
        assert_eq!(found("crates/linerate-serve/src/b.rs", text).len(), 0);
        assert_eq!(found("crates/linerate-explain/src/causes/b.rs", text).len(), 1);
    }

    #[test]
    fn a_public_error_has_a_type() {
        let text = "pub fn a(x: &str) -> Result<u8, String> {}\nfn b() -> Result<u8, String> {}\n\
                    pub(crate) fn c() -> Result<u8, String> {}\npub async fn d<T>(\n) -> Result<\nT,\nString,\n> where T: A {}\n\
                    pub fn e() -> Result<String, Error> {}";
        let found = found("crates/linerate-lab/src/b.rs", text);
        assert_eq!(
            found.iter().filter(|f| f.starts_with("`a`") || f.starts_with("`d`")).count(),
            2,
            "{found:?}"
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
