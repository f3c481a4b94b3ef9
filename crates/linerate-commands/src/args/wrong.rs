//! What clap says of a command line that it does not take, without guesses that help nobody.

use std::io::Write;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// From this similarity on (Jaro) a name is a slip of the fingers. Reason: `--vus` is no `--user`.
const SIMILAR: f64 = 0.8;

/// The error without guesses that help nobody. `hinted`: a hint of ours follows, so that a guess would deny it.
fn without_guesses(mut error: Error, hinted: bool) -> Error {
    // "to pass '--x' as a value, use '-- --x'": no URL begins with a dash.
    error.remove(ContextKind::Suggested);
    let invalid = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let typed = invalid.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.clone()),
        _ => None,
    });
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
        let Some(guessed) = error.remove(kind) else { continue };
        let near = |name: &String| !hinted && typed.as_ref().is_some_and(|typed| similar(typed, name));
        let kept = match guessed {
            ContextValue::String(name) => near(&name).then_some(ContextValue::String(name)),
            ContextValue::Strings(names) => {
                let names: Vec<String> = names.into_iter().filter(near).collect();
                (!names.is_empty()).then_some(ContextValue::Strings(names))
            }
            other => Some(other),
        };
        match kept {
            Some(kept) => drop(error.insert(kind, kept)),
            // The line of usage has the flag that was guessed.
            None if kind == ContextKind::SuggestedArg => drop(error.remove(ContextKind::Usage)),
            None => {}
        }
    }
    error
}

fn similar(typed: &str, name: &str) -> bool {
    strsim::jaro(typed.trim_start_matches('-'), name.trim_start_matches('-')) >= SIMILAR
}

/// Prints what is wrong. A hint of ours stands right below it, and nothing else does: usage would hide it.
pub(crate) fn print(error: Error, hint: Option<String>) {
    let Some(hint) = hint else {
        let _ = without_guesses(error, false).print();
        return;
    };
    let said = without_guesses(error, true).to_string();
    let wrong = said.split("\n\n").next().unwrap_or_default().trim_end();
    let _ = writeln!(std::io::stderr(), "{wrong}\nhint: {hint}");
}

/// `linerate URL`, or flags of `load` without its name: the command that was meant.
pub(crate) fn meant(error: &Error, typed: &[String]) -> Option<String> {
    let forgotten = matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument);
    let command = typed.first().is_some_and(|word| !word.starts_with('-') && !is_target(word));
    let target = typed.iter().find(|word| is_target(word)).filter(|_| forgotten && !command)?;
    let quoted: Vec<String> = typed.iter().map(|word| shell_words::quote(word).into_owned()).collect();
    let load = format!("linerate load {}", quoted.join(" "));
    if typed.len() > 1 {
        return Some(load);
    }
    let explain = format!("linerate explain {}", shell_words::quote(target));
    Some(format!("{load}    sends requests\n      {explain} says why a call is slow"))
}

/// A URL, or `HOST:PORT`.
fn is_target(word: &str) -> bool {
    let port = |(host, port): (&str, &str)| {
        let port = port.split('/').next().unwrap_or_default();
        !host.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    };
    word.starts_with("http://") || word.starts_with("https://") || word.split_once(':').is_some_and(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    fn said(words: &[&str], hinted: bool) -> String {
        let words = ["linerate"].iter().chain(words).map(Into::into).collect();
        without_guesses(Cli::typed(words).expect_err("refused"), hinted).to_string()
    }

    #[test]
    fn slips_are_guessed_and_nothing_else() {
        assert!(said(&["load", "--conections", "3", "http://a/"], false).contains("'--connections'"));
        assert!(said(&["laod", "http://a/"], false).contains("'load'"));
        assert!(!said(&["laod", "http://a/"], false).contains("'lab'"));
        for (flag, hinted) in [("--vus", false), ("--vus", true), ("--stages", true), ("--conections", true)]
        {
            let said = said(&["load", flag, "3", "http://a/"], hinted);
            assert!(said.contains(flag) && !said.contains("tip:") && !said.contains("Usage"), "{said}");
        }
    }

    #[test]
    fn a_url_alone_names_the_command_that_was_meant() {
        let meant = |words: &[&str]| {
            let all: Vec<String> = words.iter().map(ToString::to_string).collect();
            let typed = std::iter::once("linerate").chain(words.iter().copied()).map(Into::into).collect();
            super::meant(&Cli::typed(typed).expect_err("refused"), &all)
        };
        assert_eq!(
            meant(&["http://a/?x=1&y"]).expect("a hint"),
            "linerate load 'http://a/?x=1&y'    sends requests\n      linerate explain 'http://a/?x=1&y' says why a call is slow"
        );
        assert_eq!(
            meant(&["-c", "10", "localhost:8080/"]).expect("a hint"),
            "linerate load -c 10 localhost:8080/"
        );
        assert_eq!(meant(&["load", "--nope", "http://a/"]), None);
        assert_eq!(meant(&["nothing"]), None);
    }
}
