//! Links of the book's pages: those to other pages must lead to a page and a heading of it; those
//! to other files of the repository become links to its web page.

use std::path::Path;

use super::page::{BookPage, REPOSITORY};

/// A link in a line: where its target begins and ends.
fn links(line: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(i) = line[at..].find("](") {
        let begin = at + i + 2;
        let Some(length) = line[begin..].find(')') else { break };
        // Code is no link.
        if line[..begin].matches('`').count().is_multiple_of(2) {
            found.push((begin, begin + length));
        }
        at = begin + length;
    }
    found
}

/// Lines outside of code blocks, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// `target` seen from the page `from`, without `.` and `..`.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The page's text with links to files that are no pages turned into web addresses.
pub(super) fn outside(page: &BookPage, pages: &[String], root: &Path) -> String {
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    let prose: Vec<usize> = prose(&page.text).map(|(i, _)| i).collect();
    for i in prose {
        for (begin, end) in links(&lines[i]).into_iter().rev() {
            let target = lines[i][begin..end].to_owned();
            let path = target.split('#').next().unwrap_or_default();
            if target.contains("://") || path.is_empty() {
                continue;
            }
            let file = resolved(&page.path, path);
            let picture = file.ends_with(".svg") || file.ends_with(".png");
            if !pages.contains(&file) && !picture && root.join(&file).exists() {
                lines[i].replace_range(begin..end, &format!("{REPOSITORY}/{file}"));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// The name that mdBook and GitHub give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Links that lead nowhere.
pub(super) fn check(pages: &[BookPage]) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages {
        for (i, line) in prose(&page.text) {
            for (begin, end) in links(line) {
                let target = &line[begin..end];
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, part) = target.split_once('#').unwrap_or((target, ""));
                let file = if path.is_empty() { page.path.clone() } else { resolved(&page.path, path) };
                let picture = file.ends_with(".svg") || file.ends_with(".png");
                let to = pages.iter().find(|p| p.path == file);
                let there = to.is_some_and(|p| {
                    part.is_empty()
                        || prose(&p.text)
                            .any(|(_, l)| l.starts_with('#') && anchor(l.trim_start_matches('#')) == part)
                });
                if !there && !picture {
                    found.push(format!("{}:{}: the link {target} leads nowhere", page.path, i + 1));
                }
            }
        }
    }
    found
}

/// Files of the project that a page names in code, and that are not there.
pub(super) fn missing_files(pages: &[BookPage], root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages {
        for (i, line) in prose(&page.text) {
            let names = line.split('`').skip(1).step_by(2).filter(|code| is_source(code));
            let missing = names.filter(|name| !root.join(name).exists());
            found.extend(missing.map(|name| format!("{}:{}: there is no file {name}", page.path, i + 1)));
        }
    }
    found
}

/// Whether a piece of code is the path of a source file, from the root of the project.
fn is_source(code: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let source = Path::new(code)
        .extension()
        .is_some_and(|e| ["rs", "py", "toml", "yaml"].contains(&e.to_str().unwrap_or("")));
    source && code.contains('/') && !code.starts_with('/') && code.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> BookPage {
        BookPage { path: path.into(), text: text.into() }
    }

    #[test]
    fn links_lead_to_pages_and_headings() {
        let pages = [
            page("docs/A.md", "# A page\n[b](B.md#one-two) [c](../C.md) [far](https://example.org)\n"),
            page(
                "docs/B.md",
                "# B\n## One, two\n[x](X.md) [y](A.md#nothing) `[z](Z.md)`\n```\n[q](Q.md)\n```\n",
            ),
            page("C.md", "[a](docs/A.md#a-page)\n"),
        ];
        let wrong = |what: &str| format!("docs/B.md:3: the link {what} leads nowhere");
        assert_eq!(check(&pages), [wrong("X.md"), wrong("A.md#nothing")]);
    }

    #[test]
    fn files_that_are_named_are_there() {
        let text =
            "`src/none.rs` `xtask/src/main.rs` `main.rs` `/etc/none.toml` `a b/c.rs`\n```\n`x/y.rs`\n```\n";
        let found = missing_files(&[page("A.md", text)], xtask::shell::root());
        assert_eq!(found, ["A.md:1: there is no file src/none.rs"]);
    }

    #[test]
    fn other_files_are_linked_on_the_web() {
        let text = "[l](../LICENSE-MIT) [a](A.md) [none](../NOTHING)\n";
        let shown = outside(&page("docs/B.md", text), &["docs/A.md".into()], xtask::shell::root());
        assert_eq!(shown, format!("[l]({REPOSITORY}/LICENSE-MIT) [a](A.md) [none](../NOTHING)\n"));
    }
}
