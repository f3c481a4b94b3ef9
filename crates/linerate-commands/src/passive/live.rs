//! `linerate explain --capture --port N` without end: a verdict for each window, on a screen or as
//! JSON lines, until the user leaves.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write, stdout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossterm::terminal::disable_raw_mode;
use linerate_explain::passive::CaptureLimits;
use linerate_explain::passive::live::{LiveObserver, LiveWindow};
use linerate_report::live::Screen;
use linerate_report::passive::live::{LiveProgress, LiveView, draw, to_json};
use linerate_report::passive::{Watched, json};
use linerate_report::schema::live::LiveCpu;
use linerate_report::units;
use linerate_serve::ProcessFigures;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::owners::ProcessFinder;
use super::{PortCapture, Wanted, report};
use crate::args::PassiveArgs;
use crate::fault::{CommandFault, Exit};
use crate::keyboard::{Keyboard, LeavingKey, PLAIN, text, used};
use crate::load::Interrupt;
use crate::load::output::{LineSink, ReportSinks};
use crate::terminal;

/// Time between two verdicts where no flag says another. Reason: a server with ten calls a second then
/// has enough of them in it.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait for packets between two looks at the keyboard and the clock.
const NAP: Duration = Duration::from_millis(50);
/// Time between two looks at all connections, and between two pictures.
const TICK: Duration = Duration::from_secs(1);

/// Where windows are shown.
enum WindowView {
    /// On a terminal, each over the one before.
    Screen(Screen, Option<Keyboard>),
    /// One after the other.
    Pages,
    Nowhere,
}

/// The last window, with what stands beside it.
struct LastWindow {
    window: LiveWindow,
    total: LiveWindow,
    window_s: f64,
    own_cpu: LiveCpu,
    names: BTreeMap<u32, String>,
}

/// What is watched, and how far it is.
struct LiveRun {
    opened: PortCapture,
    observer: LiveObserver,
    processes: ProcessFinder,
    began: Instant,
    window_began: Instant,
    cpu_before: [f64; 2],
    last: Option<LastWindow>,
}

/// Watches until the user leaves, or for the time that is given; then reports all of it.
pub(super) fn run(
    args: &PassiveArgs,
    wanted: &Wanted<'_>,
    sinks: &ReportSinks,
) -> Result<Exit, CommandFault> {
    let opened = PortCapture::of(args)?;
    let mut lines = sinks.json.as_ref().map(LineSink::create).transpose()?;
    let interrupt = Interrupt::listen_then(|| drop(disable_raw_mode()))?;
    let interval = args.interval.unwrap_or(INTERVAL);
    let mut shown = WindowView::of(wanted.quiet, sinks);
    if !matches!(shown, WindowView::Screen(..)) {
        // A script that starts the calls to watch waits for this line.
        let every = units::short_seconds(interval.as_secs_f64());
        let _ = writeln!(
            io::stderr(),
            "watching {}: a verdict every {every} s; Ctrl-C ends it and reports",
            opened.source
        );
    }
    let mut watching = LiveRun::of(opened);
    let end = wanted.budget.map(|budget| watching.began + budget);
    let mut ticked = Instant::now();
    let left = loop {
        watching.packets(interval)?;
        let ended = watching.window_began.elapsed() >= interval;
        if ended {
            watching.end_window(&mut lines)?;
        }
        if ended || ticked.elapsed() >= TICK {
            ticked = Instant::now();
            watching.observer.sweep(now_ns());
            if !shown.show(&watching, interval, ended)? {
                break None;
            }
        }
        let key = shown.key();
        if interrupt.asked() || key.is_some() || end.is_some_and(|end| Instant::now() >= end) {
            break key.or_else(|| interrupt.asked().then_some(LeavingKey::Interrupt));
        }
    };
    drop(shown);
    watching.finish(lines, sinks, left == Some(LeavingKey::Interrupt))
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl LiveRun {
    fn of(opened: PortCapture) -> LiveRun {
        let now = Instant::now();
        LiveRun {
            observer: LiveObserver::new(CaptureLimits::default(), Some(opened.port)),
            processes: ProcessFinder::of(opened.port),
            opened,
            began: now,
            window_began: now,
            cpu_before: own_cpu(),
            last: None,
        }
    }

    /// Takes the packets of the next moment.
    fn packets(&mut self, interval: Duration) -> Result<(), CommandFault> {
        let rest = interval.saturating_sub(self.window_began.elapsed());
        // A poll of 0 ms would spin until the window ends.
        let wait = NAP.min(rest).max(Duration::from_millis(1));
        let observer = &mut self.observer;
        self.opened.packets(wait, |packet| observer.packet(packet))?;
        self.processes.look(&mut self.observer);
        Ok(())
    }

    fn end_window(&mut self, lines: &mut Option<LineSink>) -> Result<(), CommandFault> {
        self.observer.dropped(self.opened.capture.dropped());
        let window = self.observer.end_window(now_ns());
        let window_s = self.window_began.elapsed().as_secs_f64();
        self.window_began = Instant::now();
        let cpu = own_cpu();
        let [user_s, kernel_s] =
            [0, 1].map(|at| ((cpu[at] - self.cpu_before[at]).max(0.0) * 100.0).round() / 100.0);
        self.cpu_before = cpu;
        let core_share = ((user_s + kernel_s) / window_s.max(1e-3) * 1e4).round() / 1e4;
        let names = self.processes.names(&window);
        let total = self.observer.so_far();
        let own_cpu = LiveCpu { user_s, kernel_s, core_share };
        self.last = Some(LastWindow { window, total, window_s, own_cpu, names });
        if let Some((lines, view)) = lines.as_mut().zip(self.view()) {
            let watched_s = self.began.elapsed().as_secs_f64();
            lines.line(&to_json(&view, &self.opened.source, watched_s, SystemTime::now()))?;
        }
        Ok(())
    }

    fn view(&self) -> Option<LiveView<'_>> {
        self.last.as_ref().map(|last| LiveView {
            window: &last.window,
            total: &last.total,
            window_s: last.window_s,
            own_cpu: last.own_cpu,
            names: &last.names,
            serving: &self.processes.serving,
        })
    }

    fn progress(&self, interval: Duration) -> LiveProgress {
        let (packets, requests) = self.observer.progress();
        LiveProgress {
            watched_s: self.began.elapsed().as_secs_f64(),
            next_s: interval.saturating_sub(self.window_began.elapsed()).as_secs_f64(),
            packets,
            requests,
        }
    }

    /// The report on all that was seen; as JSON, the last line.
    fn finish(
        mut self,
        lines: Option<LineSink>,
        sinks: &ReportSinks,
        interrupted: bool,
    ) -> Result<Exit, CommandFault> {
        self.observer.dropped(self.opened.capture.dropped());
        if let Some(why) = &self.processes.failed {
            let _ = writeln!(io::stderr(), "note: the processes are not known: {why}");
        }
        let seen = self.observer.finish();
        report(&seen, &self.opened.source, sinks, interrupted, |watched: &Watched<'_>| {
            lines.map_or(Ok(()), |mut lines| lines.line(&json::to_line(watched)))
        })
    }
}

impl WindowView {
    fn of(quiet: bool, sinks: &ReportSinks) -> WindowView {
        if quiet || sinks.to_stderr() {
            return WindowView::Nowhere;
        }
        match stdout().is_terminal() {
            true => WindowView::Screen(Screen::new(), Keyboard::take()),
            // Lines of JSON in a file say the same.
            false if sinks.json.is_some() => WindowView::Nowhere,
            false => WindowView::Pages,
        }
    }

    /// Shows how far it is; false if the terminal was closed.
    fn show(&mut self, watching: &LiveRun, interval: Duration, ended: bool) -> Result<bool, CommandFault> {
        let picture = |(columns, rows): (u16, u16)| {
            let area = Rect::new(0, 0, columns, rows.saturating_sub(1));
            let mut picture = Buffer::empty(area);
            let title = format!("explain --capture --port {}", watching.opened.port);
            draw(&title, watching.progress(interval), watching.view().as_ref(), area, &mut picture);
            picture
        };
        match self {
            WindowView::Nowhere => Ok(true),
            WindowView::Pages if !ended => Ok(true),
            WindowView::Pages => terminal::print(&(text(&picture(PLAIN)) + "\n")).map(|()| true),
            WindowView::Screen(screen, _) => {
                let size = crossterm::terminal::size().unwrap_or(PLAIN);
                let colour = std::env::var_os("NO_COLOR").is_none();
                Ok(screen.show(&used(&picture(size)), size.0, colour, &mut stdout()).is_ok())
            }
        }
    }

    /// The key by which the user leaves, if one was pressed.
    fn key(&self) -> Option<LeavingKey> {
        match self {
            WindowView::Screen(_, Some(keyboard)) => keyboard.leaves_within(Duration::ZERO),
            _ => None,
        }
    }
}

/// CPU time of this process so far, in the program and in the kernel, seconds; 0 where the kernel does not tell.
fn own_cpu() -> [f64; 2] {
    let ProcessFigures { cpu_seconds, kernel_seconds, .. } = ProcessFigures::now();
    let kernel = kernel_seconds.unwrap_or(0.0);
    [cpu_seconds.unwrap_or(0.0) - kernel, kernel]
}
