//! The text below the flags of a command's help, laid out for the width of the terminal. clap breaks
//! lines where they end, and knows neither the columns of examples nor commands to be copied.

use clap::Command;

/// Between an example and what it is for.
const GAP: &str = "  ";

/// The command with the texts of its subcommands laid out for this many columns.
pub(crate) fn laid_out(command: Command, columns: usize) -> Command {
    command.mut_subcommands(|sub| {
        let text = sub.get_after_long_help().map(|text| of(&text.to_string(), columns));
        match text {
            Some(text) => sub.after_long_help(text),
            None => sub,
        }
    })
}

fn of(text: &str, columns: usize) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let lines: Vec<&str> = paragraph.lines().collect();
        match lines.as_slice() {
            [title, rest @ ..] if title.starts_with("Example") => {
                format!("{title}\n{}", examples(rest, columns))
            }
            _ => lines.join(" "),
        }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// As they are where they fit, else what each is for above it.
fn examples(lines: &[&str], columns: usize) -> String {
    if lines.iter().all(|line| line.chars().count() <= columns) {
        return lines.join("\n");
    }
    let mut all: Vec<(&str, &str)> = Vec::new();
    for line in lines {
        let is_purpose = line.starts_with("    ");
        let line = line.trim();
        match all.last_mut() {
            Some((_, purpose)) if is_purpose => *purpose = line,
            _ => all.push(line.split_once(GAP).map_or((line, ""), |(example, of)| (example, of.trim()))),
        }
    }
    let shown = all.iter().map(|(example, purpose)| {
        let purpose = if purpose.is_empty() { String::new() } else { format!("  # {purpose}\n") };
        purpose + &broken(example, columns)
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// A command that a shell takes as one, on as many lines as it needs.
fn broken(example: &str, columns: usize) -> String {
    let (mut text, mut width) = (String::from(" "), 1);
    for word in words(example) {
        let len = word.chars().count();
        if width + 1 + len + 2 > columns && width > 4 {
            text += " \\\n     ";
            width = 5;
        }
        text += " ";
        text += &word;
        width += 1 + len;
    }
    text
}

/// Words as a shell has them: a blank between quotes is no end.
fn words(example: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in example.split(' ') {
        match all.last_mut() {
            Some(open) if !open.matches('\'').count().is_multiple_of(2) => *open += &format!(" {part}"),
            _ => all.push(part.to_owned()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Examples:\n  linerate load URL     as fast as it goes\n  linerate load --check 'p99<50ms' URL\n              \
                        in a pipeline\n\nExit codes: 0 fine;\n1 not";

    #[test]
    fn what_stands_between_quotes_is_not_broken() {
        let expected = "  linerate load -H \\\n      'Accept: */*' URL";
        assert_eq!(broken("linerate load -H 'Accept: */*' URL", 26), expected);
    }

    #[test]
    fn it_stays_where_it_fits() {
        assert_eq!(of(TEXT, 80), TEXT.replace("fine;\n1", "fine; 1"));
    }

    #[test]
    fn what_an_example_is_for_stands_above_it_where_columns_are_few() {
        assert_eq!(
            of(TEXT, 36),
            "Examples:\n  # as fast as it goes\n  linerate load URL\n  # in a pipeline\n  linerate load --check \
             'p99<50ms' \\\n      URL\n\nExit codes: 0 fine; 1 not"
        );
    }
}
