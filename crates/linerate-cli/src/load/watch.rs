//! A run while it lasts: shown, and ended when the user asks for it.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::{Outcome, Plan, Running};
use linerate_report::live::{self, Scene, Screen};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::fault::{Exit, Fault};
use crate::terminal;

/// How often the picture is drawn: the eye follows, and the machine that is measured is left alone.
const FRAME: Duration = Duration::from_millis(200);
/// How often a line is printed where nothing can be redrawn.
const LINE: Duration = Duration::from_secs(1);
/// Longest sleep between two looks at whether the run has ended.
const NAP: Duration = Duration::from_millis(50);

/// Raised by the first Ctrl-C (or SIGTERM); the second one ends the process at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Interrupt, Fault> {
        let flag = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down and raises it, the second finds it up.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                Exit::Interrupted as i32,
                Arc::clone(&flag.0),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag.0)))
            .map_err(|e| Fault::ours(format!("signals cannot be listened to: {e}")))?;
        }
        Ok(flag)
    }

    /// Whether the user asked for the end.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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

/// Watches a run to its end.
pub(super) fn to_the_end(plan: &Plan, running: Running, quiet: bool, interrupt: &Interrupt) -> Outcome {
    let scene = Scene::of(plan);
    let view = View::of(quiet, &scene);
    let every = if view == View::Picture { FRAME } else { LINE };
    let colour = terminal::style(&stderr()).colour;
    let mut screen = Screen::new();
    let mut next = Instant::now() + if view == View::Picture { Duration::ZERO } else { LINE };
    let mut nap = Duration::from_millis(1);
    let mut stopping = false;
    while !running.finished() {
        if interrupt.asked() && !stopping {
            stopping = true;
            running.stop();
        }
        if view != View::Nothing && Instant::now() >= next {
            next += every;
            let snapshot = running.snapshot();
            if view == View::Picture {
                let columns = terminal::columns();
                let width = columns.min(linerate_report::limits::WIDTH);
                let mut picture = Buffer::empty(Rect::new(0, 0, width, scene.height()));
                live::draw(&scene, &snapshot, stopping, picture.area, &mut picture);
                let _ = screen.show(&picture, columns, colour, &mut stderr());
            } else {
                let _ = writeln!(stderr(), "{}", live::plain_line(&scene, &snapshot));
            }
        }
        thread::sleep(nap);
        // A run of ten requests ends at once; a long one need not be looked at so often.
        nap = (nap * 2).min(NAP);
    }
    if stderr().is_terminal() {
        let _ = screen.clear(terminal::columns(), &mut stderr());
    }
    running.join()
}
