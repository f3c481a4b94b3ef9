//! `linerate help`: the pages of the book in a terminal, and the help of a command.

mod markdown;

use std::io;

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::fault::{Exit, Fault};
use crate::terminal;

/// Read a page of the book, or the help of a command
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:\n  linerate help            the topics\n  linerate help how-long   \
                             for how long, with how many connections?\n  linerate help load       the flags of load")]
pub(crate) struct HelpArgs {
    /// Topic, command, or cause of `explain`; all topics if left out
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
}

/// A page that the program carries.
struct Topic {
    name: &'static str,
    title: &'static str,
    text: &'static str,
}

macro_rules! topic {
    ($name:literal, $title:literal) => {
        Topic { name: $name, title: $title, text: include_str!(concat!("../../pages/", $name, ".md")) }
    };
}

/// In the order of the book.
const TOPICS: [Topic; 26] = [
    topic!("start", "the first five minutes"),
    topic!("load-testing", "closed and open loop, and what a closed loop leaves out"),
    topic!("how-long", "for how long, and with how many connections"),
    topic!("doubts", "when not to believe a figure"),
    topic!("ci", "load tests as a gate in CI"),
    topic!("plans", "plan files: several requests, data, checks"),
    topic!("tcp-events", "what TCP did during a run"),
    topic!("why", "why a call is slow: how to ask, and every cause"),
    topic!("proofs", "how explain works, and how often it is right"),
    topic!("captures", "what packets show: --pcap and --capture"),
    topic!("comparing", "two servers or builds in turns, and the highest rate"),
    topic!("machines", "one load from many machines"),
    topic!("serving", "the server: limits, files, HTTPS, metrics"),
    topic!("configuration", "the server's configuration file"),
    topic!("conformance", "what the server refuses, and what public test suites say"),
    topic!("library", "the server as a Rust library"),
    topic!("client-library", "calling a server from a program"),
    topic!("xdp", "kernel bypass with --io xdp"),
    topic!("user-space-tcp", "the TCP behind --io xdp"),
    topic!("json", "the JSON documents and their schemas"),
    topic!("client", "how the client reads and writes HTTP"),
    topic!("http2", "the client's HTTP/2"),
    topic!("architecture", "how the code is organised"),
    topic!("performance", "how fast it is, beside which peer"),
    topic!("truth", "what load reports about broken servers"),
    topic!("network", "a bad network to test in"),
];

/// Runs the command.
pub(crate) fn run(args: &HelpArgs) -> Result<Exit, Fault> {
    let style = terminal::style(&io::stdout());
    let Some(name) = args.topic.as_deref() else {
        return terminal::print(&topics()).map(|()| Exit::Fine);
    };
    if let Some(topic) = TOPICS.iter().find(|t| t.name == name) {
        return terminal::print(&markdown::to_text(topic.text, style)).map(|()| Exit::Fine);
    }
    let mut command = Cli::shown();
    command.build();
    if let Some(found) = command.find_subcommand_mut(name) {
        let mut found = found.clone();
        return terminal::print(&found.render_long_help().to_string()).map(|()| Exit::Fine);
    }
    if linerate_explain::pages::of(name).is_some() {
        return crate::why::run(name, None);
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> Fault {
    let commands: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let topics = TOPICS.iter().map(|t| t.name);
    Fault::input(format!("there is no topic and no command {name:?}"))
        .hint(format!("topics are {}", topics.collect::<Vec<_>>().join(", ")))
        .hint(format!("commands are {}", commands.join(", ")))
}

fn topics() -> String {
    let line = |t: &Topic| format!("  {:<16} {}\n", t.name, t.title);
    format!(
        "Topics: linerate help TOPIC\n\n{}\nlinerate help COMMAND prints the flags of a command, \
         linerate help CAUSE the page of a cause.\n",
        TOPICS.iter().map(line).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use linerate_report::Style;

    use super::*;

    #[test]
    fn every_page_fits_a_terminal() {
        for topic in &TOPICS {
            let text = markdown::to_text(topic.text, Style::default());
            assert!(text.len() > 500, "{}: {text}", topic.name);
            for line in text.lines().filter(|l| !l.starts_with("    ") && !l.starts_with("  |")) {
                let words = line.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
                assert!(line.chars().count() <= 80 || words > 40, "{}: {line}", topic.name);
            }
        }
    }

    #[test]
    fn names_of_topics_commands_and_causes_differ() {
        let command = Cli::command();
        for topic in &TOPICS {
            let is_command = command.get_subcommands().any(|c| c.get_name() == topic.name);
            assert!(!is_command, "{}", topic.name);
            assert!(linerate_explain::pages::of(topic.name).is_none(), "{}", topic.name);
        }
    }
}
