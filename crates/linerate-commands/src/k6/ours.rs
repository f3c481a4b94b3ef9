//! `linerate load SCRIPT.js`: a script of k6, with exit codes of ours.

use std::path::Path;

use super::fault::K6Exit;
use super::run_script;
use crate::args::{Cli, Command, K6RunArgs, LoadArgs};
use crate::fault::{CommandFault, Exit};

/// Whether the URL of `load` names a script.
pub(crate) fn is_script(url: Option<&str>) -> bool {
    url.is_some_and(|url| {
        !url.contains("://") && Path::new(url).extension().is_some_and(|kind| kind == "js" || kind == "ts")
    })
}

/// Runs the script.
pub(crate) fn load(args: &LoadArgs) -> Result<Exit, CommandFault> {
    let args = as_k6(args)?;
    match run_script(&args) {
        Ok(exit) => Ok(ours(exit)),
        Err(fault) => {
            let exit = ours(fault.exit);
            let (words, hint) = match fault.words.split_once("\nhint: ") {
                Some((words, hint)) => (words.to_owned(), Some(hint.to_owned())),
                None => (fault.words, None),
            };
            let fault = CommandFault::with(exit, words);
            Err(hint.into_iter().fold(fault, |fault, hint| fault.hint(hint)))
        }
    }
}

/// The exit code of ours that means the same.
fn ours(exit: K6Exit) -> Exit {
    match exit {
        K6Exit::Fine => Exit::Fine,
        K6Exit::ThresholdsFailed | K6Exit::ScriptAborted | K6Exit::MarkedFailed => Exit::CheckFailed,
        K6Exit::SetupTimeout | K6Exit::TeardownTimeout => Exit::CheckFailed,
        K6Exit::BadOptions | K6Exit::ScriptThrew => Exit::BadInput,
        K6Exit::Other => Exit::Ours,
        K6Exit::Interrupted => Exit::Interrupted,
    }
}

/// The flags that mean something to a script. Others are refused.
fn as_k6(args: &LoadArgs) -> Result<K6RunArgs, CommandFault> {
    let url = args.url.clone().unwrap_or_default();
    let bare = Cli::typed(["linerate".into(), "load".into(), url.as_str().into()].to_vec());
    let Ok(Cli { command: Some(Command::Load(bare)) }) = bare else {
        return Err(CommandFault::ours("the command line of a script is not understood"));
    };
    let without = LoadArgs { users: None, duration: None, quiet: bare.quiet, json: None, ..args.clone() };
    if format!("{without:?}") != format!("{bare:?}") {
        return Err(CommandFault::input("with a script, load takes --users N, -d, --json and -q alone")
            .hint("the script's options say the rest; see linerate k6 run --help for k6's flags"));
    }
    let vus = match &args.users {
        Some(users) if users.stages.is_some() => {
            return Err(CommandFault::input("with a script, --users is a number")
                .hint("write stages into the script's options, or take linerate k6 run --stage"));
        }
        users => users.as_ref().map(|users| users.most),
    };
    Ok(K6RunArgs {
        script: url.into(),
        vus,
        duration: args.duration.map(|time| format!("{}ms", time.as_millis())),
        summary_export: args.json.clone(),
        quiet: args.quiet,
        ..K6RunArgs::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Result<K6RunArgs, CommandFault> {
        let words = ["linerate", "load"].iter().chain(words).map(Into::into).collect();
        let Ok(Cli { command: Some(Command::Load(args)) }) = Cli::typed(words) else { panic!("no load") };
        as_k6(&args)
    }

    #[test]
    fn flags_that_a_script_knows_are_passed_on() {
        let args = typed(&["s.js", "--users", "7", "-d", "1m", "--json", "out.json"]).unwrap();
        assert_eq!((args.vus, args.duration.as_deref()), (Some(7), Some("60000ms")));
        assert!(typed(&["s.js", "-c", "7"]).is_err() && typed(&["s.js", "--users", "1..5@2s"]).is_err());
        assert!(is_script(Some("a/b.js")) && !is_script(Some("http://h/b.js")) && !is_script(None));
    }
}
