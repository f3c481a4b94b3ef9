//! `linerate load -h`: the flags that most runs use. `--help` has all of them.

use clap::Command;

/// Flags of `load` that `-h` shows.
const SHOWN: [&str; 22] = [
    "url",
    "connections",
    "pipeline",
    "per_connection",
    "duration",
    "requests",
    "rate",
    "find",
    "warm_up",
    "method",
    "header",
    "body",
    "plan",
    "dry_run",
    "check",
    "expect_status",
    "explain",
    "json",
    "html",
    "quiet",
    "insecure",
    "http2",
];

const AFTER: &str = "\
Examples:
  linerate load http://127.0.0.1:8080/                       64 connections
  linerate load --rate 5k -d 1m http://127.0.0.1:8080/       5000 requests/s
  linerate load --check 'p99<50ms' http://127.0.0.1:8080/    exit code 1 if not

linerate load --help has all flags; linerate help recipes has everyday tasks.";

/// The command, with a short help for `load`.
pub(super) fn of(command: Command) -> Command {
    command.mut_subcommand("load", |load| {
        let hidden = |arg: clap::Arg| {
            let shown = SHOWN.contains(&arg.get_id().as_str()) || arg.get_id() == "help";
            arg.hide_short_help(!shown)
        };
        load.mut_args(hidden).after_help(AFTER)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_is_shown_exists() {
        let mut command = Cli::command();
        command.build();
        let load = command.find_subcommand("load").expect("a command");
        for id in SHOWN {
            assert!(load.get_arguments().any(|arg| arg.get_id() == id), "{id}");
        }
    }

    #[test]
    fn it_fits_a_screen_or_two_and_the_long_one_has_all() {
        let mut command = of(Cli::command());
        command.build();
        let load = command.find_subcommand_mut("load").expect("a command");
        let (short, long) = (load.render_help().to_string(), load.render_long_help().to_string());
        let flags = |text: &str| text.lines().filter(|l| l.trim_start().starts_with('-')).count();
        assert!((20..=24).contains(&flags(&short)), "{short}");
        assert!(flags(&long) > 80 && long.contains("--ciphers"), "{long}");
        assert_eq!(short.matches("\n  linerate load ").count(), 3, "{short}");
        let headings = ["How much, how fast", "What to send", "Checks", "Results", "HTTPS", "How to send"];
        let at: Vec<usize> = headings.iter().map(|h| long.find(&format!("\n{h}:")).expect(h)).collect();
        assert!(at.is_sorted(), "{at:?}");
    }
}
