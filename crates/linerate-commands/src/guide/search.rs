//! Words looked for in pages, flags and causes.

use clap::{Arg, Command};
use linerate_report::Style;

use super::topics::{RECIPES, TOPICS, Topic};

/// Hits of a kind that are shown. Reason: a screen.
const SHOWN: usize = 8;

/// Something that has all words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hit {
    kind: Kind,
    /// What to type to read it.
    command: String,
    /// A line about it, or from it.
    line: String,
    /// Where the words stand: 3 in the name, 2 in the title, 1 in a heading, 0 in the text.
    rank: u32,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Page,
    Flag,
    Cause,
}

/// All that have each word of `asked`: pages, then flags, then causes, the likeliest of each first.
pub(super) fn all(asked: &str, command: &Command) -> Vec<Hit> {
    let words: Vec<String> = asked.split_whitespace().map(str::to_lowercase).collect();
    let mut found: Vec<Hit> = TOPICS.iter().chain(&RECIPES).filter_map(|topic| page(topic, &words)).collect();
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        let args = sub.get_arguments().filter(|a| !a.is_hide_set());
        found.extend(args.filter_map(|arg| flag(sub.get_name(), arg, &words)));
    }
    let causes = linerate_explain::pages::all();
    found.extend(causes.into_iter().filter_map(|cause| {
        let rank = rank(&words, &[cause.page.what, "", cause.title, cause.id])?;
        let (command, line) = (format!("linerate help {}", cause.id), cause.title.to_owned());
        Some(Hit { kind: Kind::Cause, command, line, rank })
    }));
    found.sort_by_key(|hit| (hit.kind, std::cmp::Reverse(hit.rank)));
    found
}

/// The highest of these texts that has all words, if one has.
fn rank(words: &[String], texts: &[&str]) -> Option<u32> {
    let has = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|w| text.contains(w))
    };
    let at = texts.iter().rposition(|text| has(text))?;
    u32::try_from(at).ok()
}

fn page(topic: &Topic, words: &[String]) -> Option<Hit> {
    let headings: Vec<&str> = topic.text.lines().filter(|l| l.starts_with('#')).collect();
    let rank = rank(words, &[topic.text, &headings.join("\n"), topic.title, topic.name])?;
    // In the text: the line that has most of the words.
    let count = |line: &str| {
        let line = line.to_lowercase();
        words.iter().filter(|w| line.contains(*w)).count()
    };
    let lines = || topic.text.lines().filter(|l| !l.starts_with("```"));
    let most = lines().map(count).max().unwrap_or(0);
    let line = match rank {
        0 | 1 => {
            lines().find(|l| count(l) == most).unwrap_or_default().trim_start_matches(['#', ' ', '|', '-'])
        }
        _ => topic.title,
    };
    let (command, line) = (format!("linerate help {}", topic.name), line.trim().replace("**", ""));
    Some(Hit { kind: Kind::Page, command, line, rank })
}

fn flag(command: &str, arg: &Arg, words: &[String]) -> Option<Hit> {
    let name = arg.get_long().map(|long| format!("--{long}"))?;
    let short = arg.get_short().map(|short| format!("-{short}")).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
    let rank = rank(words, &[&long, "", &help, &format!("{name} {short}")])?;
    Some(Hit { kind: Kind::Flag, command: format!("linerate {command} {name}"), line: help, rank })
}

/// The hits as text.
pub(super) fn shown(found: &[Hit], asked: &str, style: Style) -> String {
    let mut out = String::new();
    for (kind, title) in [(Kind::Page, "Pages"), (Kind::Flag, "Flags"), (Kind::Cause, "Causes of slow calls")]
    {
        let hits: Vec<&Hit> = found.iter().filter(|hit| hit.kind == kind).collect();
        if hits.is_empty() {
            continue;
        }
        out += &format!("{}\n", style.bold(&format!("{title} with {asked:?}")));
        let width = hits.iter().take(SHOWN).map(|hit| hit.command.chars().count()).max().unwrap_or(0);
        for hit in hits.iter().take(SHOWN) {
            out += &one_line(&format!("  {:<width$}  {}", hit.command, hit.line), style);
        }
        if hits.len() > SHOWN {
            out += &format!("  and {} more\n", hits.len() - SHOWN);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// A line that is cut where the terminal ends.
fn one_line(text: &str, style: Style) -> String {
    let width = usize::from(style.width).max(40);
    if text.chars().count() <= width {
        return format!("{}\n", text.trim_end());
    }
    let cut: String = text.chars().take(width - 3).collect();
    format!("{}...\n", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn commands(asked: &str, kind: Kind) -> Vec<String> {
        let found = all(asked, &Cli::command());
        found.into_iter().filter(|hit| hit.kind == kind).map(|hit| hit.command).collect()
    }

    #[test]
    fn words_are_found_in_pages_flags_and_causes() {
        assert_eq!(commands("bearer", Kind::Page)[0], "linerate help json-post");
        assert_eq!(commands("self-signed", Kind::Page)[0], "linerate help self-signed");
        assert_eq!(commands("per-connection", Kind::Flag)[0], "linerate load --per-connection");
        assert_eq!(
            commands("nagle", Kind::Cause),
            ["linerate help client-nagle-delayed-ack", "linerate help server-nagle-delayed-ack"]
        );
        assert_eq!(commands("zyzzyva", Kind::Page), [""; 0]);
    }

    #[test]
    fn all_words_must_be_there_in_any_case() {
        assert!(commands("GitHub Actions", Kind::Page).contains(&"linerate help github-actions".to_owned()));
        assert_eq!(commands("bearer zyzzyva", Kind::Page), [""; 0]);
    }

    #[test]
    fn a_name_goes_before_a_title_and_that_before_the_text() {
        let found = commands("kubernetes", Kind::Page);
        assert_eq!(found[0], "linerate help kubernetes");
        assert!(found.contains(&"linerate help machines".to_owned()), "{found:?}");
    }

    #[test]
    fn hits_fit_the_terminal() {
        let found = all("connection", &Cli::command());
        let text = shown(&found, "connection", Style::default());
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.contains("and ") && text.contains(" more\n"), "{text}");
    }
}
