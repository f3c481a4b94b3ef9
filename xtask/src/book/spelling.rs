//! The spelling of the book, by hunspell and a list of our own words.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result};

use super::page::BookPage;
use xtask::shell;

/// Words that the dictionary lacks, one a line, in lower case and without `'s`.
const OURS: &str = "book/words.txt";

/// Unknown words with their pages; `None` without hunspell or its dictionary.
pub(super) fn check(pages: &[BookPage]) -> Result<Option<Vec<String>>> {
    let Some(hunspell) = shell::find("hunspell") else { return Ok(None) };
    let ours = std::fs::read_to_string(shell::root().join(OURS)).context(OURS)?;
    let ours: BTreeSet<&str> = ours.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for page in pages.iter().filter(|p| spelled(&p.path)) {
        let mut command = shell::program(&hunspell);
        command.args(["-l", "-d", "en_US"]).env("LC_ALL", "C.UTF-8");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.context("cannot start hunspell")?;
        let mut input = child.stdin.take().context("no pipe")?;
        let text = words(&page.text);
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        let _ = writer.join();
        if !output.status.success() {
            return Ok(None);
        }
        let unknown = String::from_utf8_lossy(&output.stdout).into_owned();
        let known = |w: &str| ours.contains(w.to_lowercase().trim_end_matches("'s"));
        let unknown: BTreeSet<&str> = unknown.lines().filter(|w| !known(w)).collect();
        found.extend(
            unknown.into_iter().map(|w| format!("{}: {w}? ({OURS} lists words that are right)", page.path)),
        );
    }
    Ok(Some(found))
}

/// Tables of the lab are records of programs, pages of causes name commands of many systems.
fn spelled(path: &str) -> bool {
    !path.starts_with("docs/lab/") && !path.starts_with("causes/")
}

/// The prose of a page, without code, links' targets, numbers with units, and names with digits.
fn words(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced || line.starts_with("    ") {
            continue;
        }
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let plain = plain.split("](").enumerate().map(|(i, part)| match part.split_once(')') {
            Some((_, after)) if i > 0 => after,
            _ => part,
        });
        for word in
            plain.collect::<Vec<_>>().join(" ").split(|c: char| c.is_whitespace() || "/=<>()[]|".contains(c))
        {
            let code =
                word.contains(|c: char| c.is_ascii_digit() || c == '_' || c == ':' && !word.ends_with(':'));
            let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
            let name = inner.chars().skip(1).any(char::is_uppercase)
                || inner.contains('.')
                || inner.starts_with("--");
            if !code && !name {
                out.push_str(word);
                out.push(' ');
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_is_spelled() {
        let text = "A `xq` word, [zw](qq.md) 10ms CPU.\n\n    codde\n```\nbadd\n```\n";
        assert_eq!(words(text).split_whitespace().collect::<Vec<_>>(), ["A", "word,", "zw"]);
    }
}
