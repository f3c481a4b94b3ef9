//! Reasons for which the command ends without success, and the exit codes.

use std::fmt;

/// Exit codes, the same for every subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done and fine.
    Fine = 0,
    /// Done, and a check failed.
    CheckFailed = 1,
    /// Bad input: nothing was run.
    BadInput = 2,
    /// The target could not be reached at all.
    Unreachable = 3,
    /// We failed: a missing capability, a full disk, a bug.
    Ours = 4,
    /// Ended early by the user; the results so far were reported.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

/// The reason for which the command ends: one sentence on what is wrong, and hints on what would be
/// right, each on its own line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandFault {
    pub(crate) exit: Exit,
    message: String,
    hints: Vec<String>,
}

impl CommandFault {
    /// The user's input is at fault.
    pub(crate) fn input(message: impl fmt::Display) -> CommandFault {
        CommandFault { exit: Exit::BadInput, message: message.to_string(), hints: Vec::new() }
    }

    /// It ends with this code.
    pub(crate) fn with(exit: Exit, message: impl fmt::Display) -> CommandFault {
        CommandFault { exit, ..CommandFault::input(message) }
    }

    /// The target cannot be reached.
    pub(crate) fn unreachable(message: impl fmt::Display) -> CommandFault {
        CommandFault { exit: Exit::Unreachable, ..CommandFault::input(message) }
    }

    /// This machine or this program is at fault.
    pub(crate) fn ours(message: impl fmt::Display) -> CommandFault {
        CommandFault { exit: Exit::Ours, ..CommandFault::input(message) }
    }

    /// The user ended it before anything was measured.
    pub(crate) fn interrupted(message: impl fmt::Display) -> CommandFault {
        CommandFault { exit: Exit::Interrupted, ..CommandFault::input(message) }
    }

    /// With a hint on what would be right.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CommandFault {
        self.hints.push(hint.into());
        self
    }

    /// All faults of some steps, each of which was taken whatever came of the others.
    pub(crate) fn all(steps: impl IntoIterator<Item = Result<(), CommandFault>>) -> Result<(), CommandFault> {
        let faults = steps.into_iter().filter_map(Result::err);
        faults.reduce(|all, more| all.and(more)).map_or(Ok(()), Err)
    }

    /// The exit code is that of the first one.
    fn and(mut self, more: CommandFault) -> CommandFault {
        self.message += &format!("\nerror: {}", more.message);
        self.hints.extend(more.hints);
        self
    }
}

impl fmt::Display for CommandFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        self.hints.iter().try_for_each(|hint| write!(f, "\n  hint: {hint}"))
    }
}

/// An I/O error in words, without the kernel's number.
pub(crate) fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl From<&linerate_net::link::xdp::XdpError> for CommandFault {
    fn from(error: &linerate_net::link::xdp::XdpError) -> CommandFault {
        CommandFault::ours(&error.problem).hint(&error.hint)
    }
}

impl From<linerate_load::StartError> for CommandFault {
    fn from(error: linerate_load::StartError) -> CommandFault {
        match error {
            linerate_load::StartError::Plan(why) => CommandFault::input(why),
            linerate_load::StartError::Interface(error) => (&error).into(),
            other => CommandFault::ours(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_line_and_hints_come_last() {
        let steps = [
            Ok(()),
            Err(CommandFault::ours("no x").hint("do x")),
            Ok(()),
            Err(CommandFault::input("no y").hint("do y")),
        ];
        let both = CommandFault::all(steps).expect_err("two faults");
        assert_eq!(both.to_string(), "error: no x\nerror: no y\n  hint: do x\n  hint: do y");
        assert_eq!(both.exit, Exit::Ours);
        assert_eq!(CommandFault::all([Ok(())]), Ok(()));
    }
}
