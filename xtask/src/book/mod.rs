//! `book`: lays out the book's sources, checks their links and spelling, and builds them with
//! mdBook. Pages of docs/ keep their place, so that links between files hold in both.

mod causes;
mod links;
mod page;
mod spelling;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::page::BookPage;
use xtask::shell;

/// The flags of `book`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BookOptions {
    /// Lay out and check, without mdBook
    #[arg(long)]
    pub(crate) check: bool,
}

/// Checks and builds; `false` when something was found.
pub(crate) fn run(options: &BookOptions) -> Result<bool> {
    let causes = causes::pages()?;
    let (summary, pages) = laid_out(shell::root(), causes)?;
    let mut found = links::check(&pages);
    found.extend(links::missing_files(&pages, shell::root()));
    match spelling::check(&pages)? {
        Some(words) => found.extend(words),
        None => println!("hunspell is missing (packages hunspell and hunspell-en-us): no spell check"),
    }
    for f in &found {
        println!("{f}");
    }
    let folder = shell::target_dir().join("book");
    write(&folder, &summary, &pages)?;
    println!("{} pages in {}", pages.len(), Path::new("target/book").display());
    if !options.check {
        match shell::find("mdbook") {
            Some(mdbook) => shell::run(shell::program(mdbook).arg("build").arg(&folder))?,
            None => println!("mdbook is missing (cargo install --locked mdbook): no HTML"),
        }
    }
    Ok(found.is_empty())
}

/// The summary and all pages that it names.
fn laid_out(root: &Path, causes: Vec<(String, BookPage)>) -> Result<(String, Vec<BookPage>)> {
    let written = std::fs::read_to_string(root.join("book/SUMMARY.md")).context("book/SUMMARY.md")?;
    let listed: String = causes.iter().map(|(id, page)| format!("  - [{id}]({})\n", page.path)).collect();
    // The summary stands at the root of the laid-out sources.
    let summary = written.replace("<!-- causes -->\n", &listed).replace("](../", "](");
    let summary = summary.lines().map(from_the_root).collect::<Vec<_>>().join("\n") + "\n";
    let mut pages = Vec::new();
    for path in targets(&summary).filter(|p| !causes.iter().any(|(_, page)| page.path == *p)) {
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| format!("the page {path}"))?;
        pages.push(BookPage { path, text });
    }
    pages.extend(causes.into_iter().map(|(_, page)| page));
    let known: Vec<String> = pages.iter().map(|p| p.path.clone()).collect();
    for page in &mut pages {
        page.text = links::outside(page, &known, root);
    }
    Ok((summary, pages))
}

/// Links of the summary to pages beside it.
fn from_the_root(line: &str) -> String {
    match line.split_once("](") {
        Some((name, target)) if in_the_book(target) => {
            let at_root =
                ["README.md)", "ARCHITECTURE.md)", "CONTRIBUTING.md)", "SECURITY.md)", "CHANGELOG.md)"];
            let folder = if at_root.contains(&target) { "" } else { "book/" };
            format!("{name}]({folder}{target}")
        }
        _ => line.to_owned(),
    }
}

/// Whether a link of the summary leads to a page of book/, or to one at the root.
fn in_the_book(target: &str) -> bool {
    target.ends_with(".md)")
        && (!target.contains('/') || target.starts_with("recipes/") || target.starts_with("chapters/"))
}

/// What the summary links to.
fn targets(summary: &str) -> impl Iterator<Item = String> {
    summary.lines().filter_map(|l| l.split_once("](")).map(|(_, t)| t.trim_end_matches(')').to_owned())
}

fn write(folder: &Path, summary: &str, pages: &[BookPage]) -> Result<()> {
    let source = folder.join("src");
    if source.exists() {
        std::fs::remove_dir_all(&source)?;
    }
    std::fs::create_dir_all(&source)?;
    for name in ["book.toml", "book.css"] {
        std::fs::copy(shell::root().join("book").join(name), folder.join(name)).context(name)?;
    }
    std::fs::write(source.join("SUMMARY.md"), summary)?;
    for page in pages {
        let file: PathBuf = source.join(&page.path);
        std::fs::create_dir_all(file.parent().unwrap_or(&source))?;
        std::fs::write(file, &page.text)?;
    }
    let pictures = shell::root().join("docs/pictures");
    for entry in std::fs::read_dir(&pictures).into_iter().flatten() {
        let entry = entry?;
        let to = source.join("docs/pictures");
        std::fs::create_dir_all(&to)?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_and_links_hold() {
        let cause =
            BookPage { path: "causes/one.md".into(), text: "# one\n\n[back](../book/why.md)\n".into() };
        let (summary, pages) = laid_out(shell::root(), vec![("one".into(), cause)]).expect("laid out");
        assert!(summary.contains("  - [one](causes/one.md)"), "{summary}");
        assert!(summary.contains("(book/start.md)") && summary.contains("(docs/PLAN.md)"), "{summary}");
        assert!(pages.len() > 20);
        assert_eq!(links::check(&pages), [""; 0]);
        assert_eq!(links::missing_files(&pages, shell::root()), [""; 0]);
    }

    #[test]
    fn every_written_page_is_in_the_summary() {
        let summary = std::fs::read_to_string(shell::root().join("book/SUMMARY.md")).expect("there");
        for folder in ["book", "book/chapters", "book/recipes", "docs", "docs/lab"] {
            for entry in std::fs::read_dir(shell::root().join(folder)).expect(folder) {
                let name = entry.expect("listed").file_name().to_string_lossy().into_owned();
                let listed = name == "SUMMARY.md" || summary.contains(&format!("{name})"));
                assert!(!name.ends_with(".md") || listed, "{folder}/{name} is not in book/SUMMARY.md");
            }
        }
    }

    #[test]
    fn the_spelling_is_right() {
        let (_, mut pages) = laid_out(shell::root(), Vec::new()).expect("laid out");
        // `cargo xtask book` reads all; those of docs/ are full of other programs' names.
        pages.retain(|p| !p.path.starts_with("docs/") && p.path != "CHANGELOG.md");
        match spelling::check(&pages).expect("hunspell runs") {
            Some(words) => assert_eq!(words, [""; 0]),
            None => linerate_skips::skip("hunspell", "hunspell is not installed"),
        }
    }
}
