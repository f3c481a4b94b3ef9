//! `linerate help`: the pages of the book in a terminal, and the help of a command.

mod markdown;
mod search;
mod topics;

use std::io;

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::fault::{CommandFault, Exit};
use crate::terminal;

use self::topics::{RECIPES, TOPICS, Topic};

/// Read a page of the book, or the help of a command; search all of them for words
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:\n  linerate help            the topics\n  linerate help how-long   \
                             for how long, with how many connections?\n  linerate help load       the flags of \
                             load\n  linerate help bearer     pages, flags and causes with this word")]
pub(crate) struct HelpArgs {
    /// Topic, command, cause of `explain`, or words to look for; all topics if left out
    #[arg(value_name = "TOPIC|WORD")]
    pub(crate) topic: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &HelpArgs) -> Result<Exit, CommandFault> {
    let style = terminal::style(&io::stdout());
    let asked = args.topic.join(" ");
    let name = asked.trim();
    if name.is_empty() {
        return terminal::print(&topics()).map(|()| Exit::Fine);
    }
    if let Some(topic) = TOPICS.iter().chain(&RECIPES).find(|t| t.name.eq_ignore_ascii_case(name)) {
        return terminal::print(&markdown::to_text(topic.text, style)).map(|()| Exit::Fine);
    }
    let mut command = Cli::shown(&[]);
    command.build();
    if let Some(found) = command.find_subcommand_mut(name) {
        let mut found = found.clone();
        return terminal::print(&found.render_long_help().to_string()).map(|()| Exit::Fine);
    }
    if linerate_explain::pages::of(name).is_some() {
        return crate::why::run(name, None);
    }
    let found = search::all(name, &command);
    if found.is_empty() {
        return Err(unknown(name));
    }
    terminal::print(&search::shown(&found, name, style)).map(|()| Exit::Fine)
}

fn unknown(name: &str) -> CommandFault {
    let commands: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let topics = TOPICS.iter().map(|t| t.name);
    CommandFault::input(format!(
        "there is no topic and no command {name:?}, and no page, flag or cause has these words"
    ))
    .hint(format!("topics are {}", topics.collect::<Vec<_>>().join(", ")))
    .hint(format!("commands are {}", commands.join(", ")))
}

fn topics() -> String {
    let line = |t: &Topic| format!("  {:<16} {}\n", t.name, t.title);
    format!(
        "Topics: linerate help TOPIC\n\n{}\nlinerate help COMMAND prints the flags of a command, \
         linerate help CAUSE the page of a cause,\nlinerate help WORD where a word stands in all of them.\n",
        TOPICS.iter().map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use linerate_report::Style;

    use super::*;

    #[test]
    fn every_page_fits_a_terminal() {
        for topic in TOPICS.iter().chain(&RECIPES) {
            let text = markdown::to_text(topic.text, Style::default());
            assert!(text.len() > 500, "{}: {text}", topic.name);
            for line in text.lines().filter(|l| !l.starts_with("    ") && !l.starts_with("  |")) {
                let words = line.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
                assert!(line.chars().count() <= 80 || words > 40, "{}: {line}", topic.name);
            }
        }
    }

    #[test]
    fn every_recipe_of_the_book_is_a_topic() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/recipes");
        for entry in std::fs::read_dir(folder).expect("book/recipes") {
            let name = entry.expect("listed").file_name().to_string_lossy().into_owned();
            let known = RECIPES.iter().any(|r| name == format!("{}.md", r.name));
            assert!(known, "{name} is no topic");
        }
    }

    #[test]
    fn names_of_topics_commands_and_causes_differ() {
        let command = Cli::command();
        for topic in TOPICS.iter().chain(&RECIPES) {
            let is_command = command.get_subcommands().any(|c| c.get_name() == topic.name);
            assert!(!is_command, "{}", topic.name);
            assert!(linerate_explain::pages::of(topic.name).is_none(), "{}", topic.name);
        }
    }
}
