//! `-h` of the commands with the most flags: those that most runs use. `--help` has all of them.

use clap::Command;

/// What `-h` prints, on lines of 80 columns. A list of its own: the texts of `--help` take two lines each.
const TEXTS: [(&str, &str); 3] = [
    ("load", include_str!("short/load.txt")),
    ("serve", include_str!("short/serve.txt")),
    ("explain", include_str!("short/explain.txt")),
];

/// The command, with short helps in place of the long ones if `-h` is what was typed.
pub(super) fn of(command: Command, words: &[std::ffi::OsString]) -> Command {
    let short = words.iter().filter_map(|word| word.to_str()).any(asks);
    if !short {
        return command;
    }
    TEXTS
        .into_iter()
        .fold(command, |all, (name, text)| all.mut_subcommand(name, |sub| sub.override_help(text)))
}

/// `-h`, also behind other short flags: `-kh`.
fn asks(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| !flags.starts_with('-') && flags.ends_with('h'))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// `--name` at the beginning of a line, or behind a short flag.
    fn flags(text: &str) -> Vec<&str> {
        let lines = text.lines().filter(|line| line.trim_start().starts_with('-'));
        lines.filter_map(|line| line.split([' ', ',']).find_map(|word| word.strip_prefix("--"))).collect()
    }

    #[test]
    fn each_has_about_twenty_flags_and_three_examples_within_80_columns() {
        for (name, text) in TEXTS {
            let mut command = Cli::command();
            command.build();
            let sub = command.find_subcommand(name).expect("a command");
            assert!((19..=23).contains(&flags(text).len()), "{name}: {:?}", flags(text));
            for flag in flags(text) {
                assert!(sub.get_arguments().any(|arg| arg.get_long() == Some(flag)), "{name} --{flag}");
            }
            assert_eq!(text.matches(&format!("\n  linerate {name}")).count(), 3, "{name}");
            assert!(text.lines().count() <= 36, "{name}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}");
        }
    }

    #[test]
    fn it_is_printed_for_h_alone() {
        for words in [&["load", "-h"][..], &["load", "-c", "3", "-kh"], &["serve", "-h"], &["explain", "-h"]]
        {
            let words = ["linerate"].iter().chain(words).map(Into::into).collect();
            let said = Cli::typed(words).expect_err("a help").to_string();
            assert!(said.contains("--help has all flags"), "{said}");
        }
    }

    #[test]
    fn the_long_one_of_load_has_all_in_order() {
        let mut command = Cli::command();
        command.build();
        let load = command.find_subcommand_mut("load").expect("a command");
        let long = load.render_long_help().to_string();
        assert!(flags(&long).len() > 80 && long.contains("--ciphers"), "{long}");
        let headings = ["How much, how fast", "What to send", "Checks", "Results", "HTTPS", "How to send"];
        let at: Vec<usize> = headings.iter().map(|h| long.find(&format!("\n{h}:")).expect(h)).collect();
        assert!(at.is_sorted(), "{at:?}");
    }
}
