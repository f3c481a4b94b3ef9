//! A page for each cause, made from what `linerate explain --why ID` prints.

use anyhow::{Context, Result, ensure};

use super::page::BookPage;
use xtask::shell;

/// All causes with their pages.
pub(super) fn pages() -> Result<Vec<(String, BookPage)>> {
    println!("building linerate, which prints the pages of the causes");
    // With a test beside it, cargo builds it as the tests do; else it would build the libraries again.
    let words = ["build", "--quiet", "--workspace", "--bin", "linerate", "--test", "help"];
    shell::run(shell::cargo().args(words))?;
    let print = |words: &[&str]| {
        let mut c = shell::program(shell::target_dir().join("debug/linerate"));
        c.args(["explain", "--why"]).args(words);
        c.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("COLUMNS", "100");
        shell::output(&mut c)
    };
    let ids = ids(&print(&[])?);
    ensure!(ids.len() > 20, "linerate explain --why lists only {} causes", ids.len());
    let page = |id: String| {
        let text = to_markdown(&print(&[&id])?).with_context(|| format!("the page of {id}"))?;
        Ok((id.clone(), BookPage { path: format!("causes/{id}.md"), text }))
    };
    ids.into_iter().map(page).collect()
}

/// The ids that `linerate explain --why` lists.
fn ids(list: &str) -> Vec<String> {
    let rows = list.lines().filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    rows.filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

/// A page of the terminal as Markdown: lines without an indent are headings, the picture is code.
fn to_markdown(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let mut out = format!("# {}\n\n", lines.next()?);
    let mut code = false;
    for line in lines {
        let heading = !line.starts_with(' ') && !line.is_empty();
        let picture = heading && line.starts_with("A picture");
        if heading && code {
            out.push_str("```\n\n");
            code = false;
        }
        match line {
            // The first paragraph, the title in words, is prose.
            _ if heading && out.matches("\n## ").count() == 0 && !line.starts_with("What it is") => {
                out.push_str(&format!("{line}\n"));
            }
            _ if heading => out.push_str(&format!("## {line}\n\n")),
            _ if code => out.push_str(&format!("{line}\n")),
            _ if line.trim_start().starts_with("linerate ") => {
                out.push_str(&format!("```text\n{}\n```\n", line.trim()));
            }
            _ => out.push_str(&format!("{}\n", line.strip_prefix("  ").unwrap_or(line))),
        }
        if picture {
            out.push_str("```text\n");
            code = true;
        }
    }
    if code {
        out.push_str("```\n");
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminals_page_becomes_markdown() {
        let text = "an-id\nThe title\ngoes on.\n\nWhat it is\n  Words and\n  more.\n\nA picture (an example)\n  a   b\n\
                    \n  |-->|\n\nWhat to change\n  - nginx: this\n    and that\n\nIs it that?\n  linerate explain URL\n";
        let expected = "# an-id\n\nThe title\ngoes on.\n\n## What it is\n\nWords and\nmore.\n\n## A picture (an example)\n\n\
                        ```text\n  a   b\n\n  |-->|\n\n```\n\n## What to change\n\n- nginx: this\n  and that\n\n## Is it \
                        that?\n\n```text\nlinerate explain URL\n```\n";
        assert_eq!(to_markdown(text).expect("a page"), expected);
    }

    #[test]
    fn ids_are_the_first_words_of_rows() {
        let list = "Causes that have a page: linerate explain --why ID\n\n  one-a   words\n          more\n  two  x\n";
        assert_eq!(ids(list), ["one-a", "two"]);
    }
}
