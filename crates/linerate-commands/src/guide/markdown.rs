//! Markdown as text for a terminal: headings, paragraphs, lists, tables and code.

use linerate_report::Style;

/// Columns of running text.
const TEXT: u16 = 100;

/// The page as text.
pub(super) fn to_text(page: &str, style: Style) -> String {
    let style = Style { width: style.width.clamp(40, TEXT), ..style };
    let mut out = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let mut while_it = |keep: &dyn Fn(&str) -> bool| {
            let mut block = Vec::new();
            while let Some(next) = lines.next_if(|l| keep(l)) {
                block.push(next);
            }
            block
        };
        if let Some(language) = line.strip_prefix("```") {
            let code = while_it(&|l| !l.starts_with("```"));
            lines.next();
            // Lines that rustdoc hides are hidden here, too.
            let hidden = |l: &&str| language.starts_with("rust") && (*l == "#" || l.starts_with("# "));
            code.iter().filter(|l| !hidden(l)).for_each(|l| push(&mut out, &format!("    {l}")));
        } else if line.starts_with('#') {
            let text = line.trim_start_matches('#').trim();
            push(&mut out, &style.bold(&inline(text)));
        } else if line.starts_with("    ") || line.trim().is_empty() {
            push(&mut out, line);
        } else if line.starts_with('|') {
            let mut rows = vec![line];
            rows.extend(while_it(&|l| l.starts_with('|')));
            table(&rows, style, &mut out);
        } else if line.starts_with("<!--") || line.starts_with("![") {
            continue;
        } else if let Some((indent, mark, text)) = item(line) {
            let mut text = text.to_owned();
            let goes_on = |l: &str| !l.trim().is_empty() && item(l).is_none() && !l.starts_with("```");
            for next in while_it(&goes_on) {
                text.push(' ');
                text.push_str(next.trim());
            }
            listed(&format!("{}{mark} ", " ".repeat(indent)), &inline(&text), style, &mut out);
        } else {
            let mut text = line.to_owned();
            let goes_on = |l: &str| {
                !l.trim().is_empty()
                    && item(l).is_none()
                    && !l.starts_with(['|', '#'])
                    && !l.starts_with("```")
            };
            for next in while_it(&goes_on) {
                text.push(' ');
                text.push_str(next);
            }
            push(&mut out, &style.wrapped("", &inline(&text)));
        }
    }
    out
}

fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// An item of a list: its indentation, its mark and its text.
fn item(line: &str) -> Option<(usize, &str, &str)> {
    let text = line.trim_start();
    let (mark, rest) = text.split_once(' ')?;
    let number =
        mark.strip_suffix('.').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    (mark == "-" || mark == "*" || number).then_some((line.len() - text.len(), mark, rest))
}

/// A text behind a mark; further lines stand below its first word.
fn listed(mark: &str, text: &str, style: Style, out: &mut String) {
    let indent = " ".repeat(mark.chars().count());
    let wrapped = style.wrapped(&indent, text);
    push(out, &format!("{mark}{}", wrapped.get(indent.len()..).unwrap_or_default()));
}

/// A table: in columns where they fit, else one row after another.
fn table(rows: &[&str], style: Style, out: &mut String) {
    let cells = |row: &str| -> Vec<String> {
        // A pipe in a cell is written with a backslash.
        let row = row.trim().trim_matches('|').replace("\\|", "\u{1}");
        row.split('|').map(|c| inline(c.trim()).replace('\u{1}', "|")).collect()
    };
    let ruler = |row: &str| row.bytes().all(|b| b"|-: ".contains(&b));
    let rows: Vec<Vec<String>> = rows.iter().filter(|r| !ruler(r)).map(|r| cells(r)).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, i: usize| row.get(i).cloned().unwrap_or_default();
    let width = |i: usize| rows.iter().map(|r| cell(r, i).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    if widths.iter().map(|w| w + 2).sum::<usize>() <= usize::from(style.width) {
        for row in &rows {
            let line: String =
                (0..columns).map(|i| format!("{:<w$}  ", cell(row, i), w = widths[i])).collect();
            push(out, &format!("  {line}"));
        }
        return;
    }
    for row in rows.iter().skip(1) {
        for (i, text) in row.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let heading = rows[0].get(i).filter(|h| !h.is_empty() && i > 0);
            let text = heading.map_or_else(|| text.clone(), |h| format!("{h}: {text}"));
            listed(if i == 0 { "- " } else { "    " }, &text, style, out);
        }
    }
}

/// Text without the marks of links and emphasis.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let Some((begin, end)) = before.rfind('[').zip(after.find(')')) else { break };
        out.push_str(&before[..begin]);
        out.push_str(&before[begin + 1..]);
        let target = &after[2..end];
        if target.contains("://") && target != &before[begin + 1..] {
            out.push_str(&format!(" ({target})"));
        }
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    out.replace("**", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(page: &str, width: u16) -> String {
        to_text(page, Style { width, ..Style::default() })
    }

    #[test]
    fn paragraphs_and_lists_wrap_and_code_stays() {
        let page = "# A *page*\n\nOne two three four five six seven eight nine ten.\n\n- a first item that is long \
                    enough\n  to wrap\n- b\n\n```rust\nlet x;\n# hidden\n```\n\n    linerate load   URL\n";
        let expected = "A *page*\n\nOne two three four five six seven eight\nnine ten.\n\n- a first item that is \
                        long enough to\n  wrap\n- b\n\n    let x;\n\n    linerate load   URL\n";
        assert_eq!(shown(page, 40), expected);
    }

    #[test]
    fn tables_are_columns_or_a_row_after_the_other() {
        let page = "| code | meaning |\n| --- | --- |\n| `0` | all good |\n| `1\\|2` | not |\n";
        assert_eq!(shown(page, 60), "  code   meaning\n  `0`    all good\n  `1|2`  not\n");
        let page = "| code | meaning | more |\n| --- | --- | --- |\n| 0 | a text that is much longer than that | x |\n";
        assert_eq!(
            shown(page, 40),
            "- 0\n    meaning: a text that is much longer\n    than that\n    more: x\n"
        );
    }

    #[test]
    fn links_keep_their_words_and_far_addresses() {
        assert_eq!(inline("see [the page](A.md) and **that**"), "see the page and that");
        assert_eq!(inline("[curl](https://curl.se) x"), "curl (https://curl.se) x");
    }
}
