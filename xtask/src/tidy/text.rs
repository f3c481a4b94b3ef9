//! Rules for every text file: words, links, and required files.

use std::path::Path;

use super::finding::{File, TidyFinding};
use super::lexer::lex;

/// Words that say "not finished". Put together here so that this file may name them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Prefixes of paths on a particular machine.
const MACHINE: [&str; 4] =
    [concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("/tmp/tar", "get"), concat!("/home", "/")];

/// Words at which a new reader would wonder: paths in backticks that begin so must exist.
const OUR_FOLDERS: [&str; 7] = ["crates/", "xtask/", "docs/", "bench/", "fuzz/", ".ci/", ".github/"];

/// Phrases to avoid in Markdown and comments, in lower case, each with its replacement.
const WORDS: [(&str, &str); 22] = [
    ("a tenth or two", "10-20 %"),
    ("the last tenth", "the last 10 %"),
    ("there is that which", "some"),
    ("gone on with", "continued"),
    ("goes on with", "continues"),
    ("go on with", "continue"),
    ("going on with", "continuing"),
    ("were told", "got"),
    ("may be had", "is available"),
    ("held against", "compared with"),
    ("hold against", "compare with"),
    ("came to nothing", "failed"),
    ("comes to nothing", "fails"),
    ("speaks of", "mentions"),
    ("stand still", "stop, are blocked"),
    ("whatsoever", "at all"),
    ("whosoever", "the caller, the client, the server"),
    ("he who", "the client, the server, the reader"),
    ("used connection", "reused connection"),
    ("out of descriptors", "out of file descriptors"),
    ("hitherto", "until now"),
    ("thereof", "of it"),
];

/// Sections of a version in CHANGELOG.md, as Keep a Changelog names them.
const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// Checks one file.
pub(crate) fn check(f: &File, root: &Path, found: &mut Vec<TidyFinding>) {
    if f.path == "CHANGELOG.md" {
        changelog(f, found);
    }
    for (i, line) in f.text.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|w| stands_alone(line, w)) {
            found.push(TidyFinding::new(
                &f.path,
                i + 1,
                "unfinished",
                format!("{word}: finish it or put it into an issue"),
            ));
        }
        for start in MACHINE.iter().filter(|m| stands_alone(line, m)) {
            found.push(TidyFinding::new(
                &f.path,
                i + 1,
                "machine",
                format!("{start} is a path of somebody's machine"),
            ));
        }
        if f.path.ends_with(".md") {
            links(f, i + 1, line, root, found);
        }
    }
    words(f, found);
}

/// Names phrases of [`WORDS`], also across the end of a line.
fn words(f: &File, found: &mut Vec<TidyFinding>) {
    let prose = prose(f);
    for (i, (number, line)) in prose.iter().enumerate() {
        let next = prose.get(i + 1).filter(|(n, _)| *n == number + 1).map_or("", |(_, l)| l);
        let both = format!("{line} {next}");
        for (phrase, better) in WORDS {
            let begins_here = |at: &usize| *at < line.len();
            for _ in whole_words(&both, phrase).filter(begins_here) {
                let what = format!("\"{phrase}\": better \"{better}\"");
                found.push(TidyFinding::new(&f.path, *number, "words", what));
            }
        }
    }
}

/// Lines of Markdown or of comments, in lower case, without code: line from 1 and text.
fn prose(f: &File) -> Vec<(usize, String)> {
    let lines: Vec<(usize, String)> = match f.path.rsplit('.').next() {
        Some("md") => f.text.lines().enumerate().map(|(i, l)| (i + 1, l.trim().to_owned())).collect(),
        Some("rs") => lex(&f.text).prose,
        _ => Vec::new(),
    };
    let mut fenced = false;
    let mut outside = |line: &str| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    };
    let spans_out = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
    lines.into_iter().filter(|(_, l)| outside(l)).map(|(n, l)| (n, spans_out(&l))).collect()
}

/// Where `phrase` is in the text with no letter, digit or hyphen beside it.
fn whole_words<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(phrase).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back().is_some_and(part);
        let after = text[at + phrase.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

/// Whether `word` is in the line with no letter, digit or path beside it.
fn stands_alone(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(word).any(|(i, _)| {
        let before = line[..i].chars().next_back().is_some_and(|c| part(c) || c == '.' || c == '}');
        let after = line[i + word.len()..].chars().next().is_some_and(part);
        !before && (word.ends_with('/') || !after)
    })
}

/// Relative links and our own paths in backticks must lead somewhere.
fn links(f: &File, number: usize, line: &str, root: &Path, found: &mut Vec<TidyFinding>) {
    let here = Path::new(&f.path).parent().unwrap_or(Path::new(""));
    for (i, _) in line.match_indices("](") {
        let target = line[i + 2..].split([')', ' ']).next().unwrap_or("");
        let path = target.split('#').next().unwrap_or("");
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !elsewhere && !path.is_empty() && !root.join(here).join(path).exists() {
            found.push(TidyFinding::new(&f.path, number, "link", format!("{target} leads nowhere")));
        }
    }
    for (i, span) in line.split('`').enumerate() {
        let ours = OUR_FOLDERS.iter().any(|o| span.starts_with(o)) && !span.contains([' ', '*', '{', '<']);
        // A path that names a place and not an existing file contains a placeholder.
        if i % 2 == 1 && ours && !root.join(span).exists() {
            found.push(TidyFinding::new(&f.path, number, "link", format!("{span} does not exist")));
        }
    }
}

/// Lines of a version belong to one of its sections.
fn changelog(f: &File, found: &mut Vec<TidyFinding>) {
    let sections = f.text.lines().enumerate().filter_map(|(i, l)| Some((i + 1, l.strip_prefix("### ")?)));
    for (line, name) in sections.filter(|(_, name)| !SECTIONS.contains(name)) {
        let what = format!("{name}: sections are {}", SECTIONS.join(", "));
        found.push(TidyFinding::new(&f.path, line, "changelog", what));
    }
}

/// Files that must be there, and what they must say.
const REQUIRED: [(&str, &str); 12] = [
    ("README.md", "cargo run --release -- demo"),
    ("README.md", "cargo xtask test"),
    ("LICENSE-MIT", "MIT License"),
    ("LICENSE-APACHE", "Apache License"),
    ("CONTRIBUTING.md", "cargo xtask test"),
    ("SECURITY.md", ""),
    ("CHANGELOG.md", "\n## [Unreleased]\n"),
    ("ARCHITECTURE.md", "Invariants"),
    ("docs/PERFORMANCE.md", "cargo xtask bench load"),
    (".ci/run", "cargo xtask test"),
    ("crates/linerate-http/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/linerate-net/src/limits.rs", "pub"),
];

/// Checks that they are.
pub(crate) fn required(files: &[File], found: &mut Vec<TidyFinding>) {
    for (path, says) in REQUIRED {
        match files.iter().find(|f| f.path == path) {
            None => found.push(TidyFinding::new(path, 0, "required", "must exist")),
            Some(f) if !f.text.contains(says) => {
                found.push(TidyFinding::new(path, 0, "required", format!("must say: {says}")));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        check(&File { path: path.into(), text: text.into() }, xtask::shell::root(), &mut found);
        found.iter().map(|f| f.rule).collect()
    }

    #[test]
    fn words_that_say_unfinished() {
        for word in UNFINISHED {
            assert_eq!(rules("a.toml", &format!("# {word}: later")), ["unfinished"]);
        }
        assert_eq!(rules("a.toml", "todo = \"warn\"\nMASTODON"), [""; 0]);
    }

    #[test]
    fn sections_of_the_changelog() {
        let good = "## [Unreleased]\n\n### Added\n\n#### Load\n\n### Fixed\n";
        assert_eq!(rules("CHANGELOG.md", good), [""; 0]);
        assert_eq!(rules("CHANGELOG.md", "### Load\n"), ["changelog"]);
        assert_eq!(rules("docs/A.md", "### Load\n"), [""; 0]);
    }

    fn phrases(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        words(&File { path: path.into(), text: text.into() }, &mut found);
        found.iter().map(|f| (f.line, f.what.clone())).collect()
    }

    #[test]
    fn each_phrase_names_its_replacement() {
        for (phrase, better) in WORDS {
            let what = format!("\"{phrase}\": better \"{better}\"");
            let found = [(1, what)];
            assert_eq!(phrases("docs/A.md", &format!("One ({phrase}).")), found);
            for begin in ["//", "///", "//!"] {
                assert_eq!(phrases("a.rs", &format!("{begin} One {phrase}, two.")), found);
            }
            assert_eq!(phrases("a.rs", &format!("f(); // {}", phrase.to_uppercase())), found);
            assert_eq!(phrase, phrase.to_lowercase());
            assert_eq!(phrases("docs/A.md", better), []);
        }
    }

    #[test]
    fn phrases_are_found_across_lines_once() {
        let broken = WORDS.iter().find(|(p, _)| p.contains(' ')).expect("of several words").0;
        let broken = broken.replacen(' ', "\n    /// ", 1);
        let found = phrases("a.rs", &format!("    /// One {broken} two.\n    /// Three."));
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [1]);
        assert_eq!(phrases("a.rs", &broken.replace("/// ", "x(); // y\n// ")), []);
    }

    #[test]
    fn code_strings_and_longer_words_are_free() {
        let (phrase, _) = WORDS[0];
        assert_eq!(phrases("docs/A.md", &format!("`{phrase}` x{phrase} {phrase}s {phrase}-x")), []);
        assert_eq!(phrases("docs/A.md", &format!("```text\n{phrase}\n```")), []);
        assert_eq!(phrases("a.rs", &format!("f(\"// {phrase}\"); let {phrase} = 1;")), []);
        assert_eq!(phrases("a.toml", &format!("# {phrase}")), []);
    }

    #[test]
    fn paths_of_a_machine() {
        assert_eq!(rules("a.rs", concat!("\"/ro", "ot/x\"")), ["machine"]);
        assert_eq!(rules("a.rs", concat!("see /wo", "rk/main")), ["machine"]);
        assert_eq!(rules("a.rs", concat!("http://a/ro", "ots, /wo", "rker, docs/wo", "rking")), [""; 0]);
    }

    #[test]
    fn links_lead_somewhere() {
        assert_eq!(
            rules("README.md", "[a](Cargo.toml) [b](https://example.org) [c](#here) `xtask/Cargo.toml`"),
            [""; 0]
        );
        assert_eq!(rules("README.md", "[a](no-such-file.md) `crates/no-such-crate/`"), ["link", "link"]);
        assert_eq!(rules("docs/A.md", "[a](../Cargo.toml) `crates/<name>/`"), [""; 0]);
    }
}
