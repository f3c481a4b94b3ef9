//! A run while it lasts: shown, and ended when the user asks for it.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::plan::abort::AbortWatch;
use linerate_load::{Outcome, Plan, Running, Snapshot};
use linerate_report::live::{self, Scene, Screen};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::capture::Counted;
use crate::fault::{CommandFault, Exit};
use crate::terminal;

/// How often the picture is drawn: the eye follows, and the machine that is measured is left alone.
const FRAME: Duration = Duration::from_millis(200);
/// Time between two lines if the output cannot be redrawn.
const LINE: Duration = Duration::from_secs(1);
/// How long after the end of a second its line comes: a sending thread publishes it only then.
const BEHIND: Duration = Duration::from_millis(150);
/// How often the conditions that end the run are checked.
const LOOK: Duration = Duration::from_millis(100);
/// Longest sleep between two looks at whether the run has ended.
const NAP: Duration = Duration::from_millis(50);

/// A second signal within this time counts as the same one. Reason: `timeout` signals its child and
/// then its group, microseconds apart; people cannot press Ctrl-C twice so fast.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// Set by the first Ctrl-C, SIGTERM or SIGHUP (the terminal was closed). A second signal ends the
/// process at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Servers that this process started end with it.
    pub(crate) fn listen() -> Result<Interrupt, CommandFault> {
        Interrupt::listen_then(linerate_lab::servers::kill_all)
    }

    /// Listens from now on; before a second signal ends the process, `last` is called.
    pub(crate) fn listen_then(last: impl Fn() + Send + 'static) -> Result<Interrupt, CommandFault> {
        let interrupt = Interrupt::default();
        let flag = Arc::clone(&interrupt.0);
        let mut wanted = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP, &std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted)
            .map_err(|e| CommandFault::ours(format!("signals cannot be listened to: {e}")))?;
        let wait = move || {
            let mut first = None;
            for _ in signals.forever() {
                flag.store(true, Ordering::Relaxed);
                if first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL {
                    last();
                    std::process::exit(Exit::Interrupted as i32);
                }
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?;
        Ok(interrupt)
    }

    /// Whether the user asked to stop.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this process was started with a signal ignored, as `nohup` does with SIGHUP: then it
/// stays so. `status` is `/proc/self/status`.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Nothing,
    Lines,
    Picture,
}

impl View {
    fn of(quiet: bool, scene: &Scene) -> View {
        match quiet {
            true => View::Nothing,
            false if terminal::can_redraw() && terminal::rows() > scene.height() => View::Picture,
            false => View::Lines,
        }
    }
}

/// Shows a run while it lasts.
pub(super) struct Display {
    scene: Scene,
    view: View,
    screen: Screen,
    colour: bool,
    next: Instant,
}

impl Display {
    /// Nothing yet.
    pub(super) fn new(plan: &Plan, quiet: bool) -> Display {
        let scene = Scene::of(plan);
        let view = View::of(quiet, &scene);
        let colour = terminal::style(&stderr()).colour;
        let next = Instant::now() + if view == View::Picture { Duration::ZERO } else { LINE + BEHIND };
        Display { scene, view, screen: Screen::new(), colour, next }
    }

    /// Whether it is time for a new picture or line.
    fn is_due(&mut self) -> bool {
        if self.view == View::Nothing || Instant::now() < self.next {
            return false;
        }
        self.next += if self.view == View::Picture { FRAME } else { LINE };
        true
    }

    /// Draws a picture or writes a line.
    pub(super) fn show(&mut self, snapshot: &Snapshot, stopping: bool) {
        match self.view {
            View::Nothing => {}
            View::Picture => {
                let columns = terminal::columns();
                let width = columns.min(linerate_report::limits::WIDTH);
                // A picture higher than the terminal would scroll away a copy of itself each time.
                let height = self.scene.height().min(terminal::rows().saturating_sub(1));
                let mut picture = Buffer::empty(Rect::new(0, 0, width, height));
                live::draw(&self.scene, snapshot, stopping, picture.area, &mut picture);
                let _ = self.screen.show(&picture, columns, self.colour, &mut stderr());
            }
            View::Lines => {
                let _ = writeln!(stderr(), "{}", live::plain_line(&self.scene, snapshot));
            }
        }
    }

    /// Removes the picture.
    pub(super) fn clear(&mut self) {
        if stderr().is_terminal() {
            let _ = self.screen.clear(terminal::columns(), &mut stderr());
        }
    }
}

/// Watches a run to its end.
pub(super) fn to_the_end(
    plan: &Plan,
    running: Running,
    quiet: bool,
    interrupt: &Interrupt,
    counted: Option<&Counted>,
) -> Outcome {
    let mut display = Display::new(plan, quiet);
    let mut nap = Duration::from_millis(1);
    let mut stopping = false;
    let mut abort = AbortWatch::new(&plan.abort_on);
    let mut aborted = None;
    let mut looked = Instant::now();
    while !running.finished() {
        if interrupt.asked() && !stopping {
            stopping = true;
            running.stop();
        }
        if !stopping && !plan.abort_on.is_empty() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            aborted = abort.look(&running.snapshot());
            if aborted.is_some() {
                stopping = true;
                running.stop();
            }
        }
        if display.is_due() {
            let mut snapshot = running.snapshot();
            if let Some(counted) = counted {
                counted.show_in(&mut snapshot);
            }
            display.show(&snapshot, stopping);
        }
        thread::sleep(nap);
        // A run of ten requests ends at once; a long one need not be looked at so often.
        nap = (nap * 2).min(NAP);
    }
    display.clear();
    let mut outcome = running.join();
    if aborted.is_some() && !interrupt.asked() {
        outcome.interrupted = false;
        outcome.aborted = aborted;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_stays_ignored() {
        let status = "Name:\tlinerate\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(SIGHUP, status));
        assert!(!is_ignored(SIGINT, status));
        assert!(!is_ignored(SIGHUP, ""));
        assert!(!is_ignored(SIGHUP, "SigIgn:\twhat\n"));
    }
}
