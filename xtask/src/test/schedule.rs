//! Which test program starts next: what each needs of the machine, and what runs beside it.

/// What a program needs of the machine beside processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuietNeed {
    /// Nothing: it may wait for its turn at any moment.
    No,
    /// It judges times, and hardly computes: beside it run few others, and none that computes.
    Judges,
    /// It measures, counts what the machine does, or fills it: nothing runs beside it.
    Alone,
}

/// Test programs that need a quiet machine, each with its reason.
const NEEDS: &[(&str, QuietNeed, &str)] = &[
    ("explain", QuietNeed::Alone, "judges latencies of calls that it makes"),
    ("explain_bad_servers", QuietNeed::Judges, "judges latencies of calls that it makes"),
    ("explain_missed", QuietNeed::Judges, "judges latencies of calls that it makes"),
    ("explain_tls", QuietNeed::Judges, "judges latencies of calls that it makes"),
    ("client", QuietNeed::Judges, "counts what a server saw of calls that are cut"),
    ("serve_robust", QuietNeed::Alone, "drains a server under load"),
    ("serve_signals", QuietNeed::Alone, "drains a server under load"),
    ("top", QuietNeed::Alone, "fills the queues of a server"),
    ("expert", QuietNeed::Alone, "judges latencies of calls that it makes"),
    ("demo", QuietNeed::Alone, "compares ways of sending"),
    ("compare", QuietNeed::Alone, "gives servers and client cores of their own"),
    ("find", QuietNeed::Judges, "looks for the highest rate of a server"),
    ("load_truth", QuietNeed::Alone, "compares latencies with what a server counted"),
    ("load_capture", QuietNeed::Alone, "captures packets of the loopback interface"),
    ("passive", QuietNeed::Alone, "captures packets of the loopback interface"),
    ("serve_scale", QuietNeed::Alone, "opens as many connections as a process may"),
    ("xdp", QuietNeed::Judges, "steers packets of its interfaces"),
    ("xdp_conformance", QuietNeed::Alone, "steers packets of its interfaces"),
    ("xdp_gaps", QuietNeed::Judges, "steers packets of its interfaces"),
    ("xdp_large", QuietNeed::Judges, "steers packets of its interfaces"),
    ("xdp_link", QuietNeed::Judges, "steers packets of its interfaces"),
    ("xdp_top", QuietNeed::Judges, "steers packets of its interfaces"),
    ("xdp_trouble", QuietNeed::Judges, "steers packets of its interfaces"),
    ("real", QuietNeed::Alone, "measures the network that it makes"),
];

/// Programs of which only a part needs the machine alone: those of its tests whose name has this in
/// it. The other tests run as a program without a wish for quiet.
const PARTS: &[(&str, &str, &str)] =
    &[("linerate_explain", "driver::", "judges latencies of calls that it makes")];

/// Programs that begin first where an earlier run is not known: these take longest.
const LONG: [&str; 8] =
    ["load_bad", "machines", "https_servers", "client_real", "conformance", "serve_slow", "jetty", "layer"];

/// Programs whose tests mostly wait (for delays of a network, for timers, for what must not come),
/// and how many of their tests run at a time.
const PATIENT: [(&str, u32); 5] = [
    ("machines", 8),
    ("explain_missed", 4),
    ("client", 4),
    ("explain_bad_servers", 4),
    ("xdp_conformance", 6),
];

/// Programs that judge times and run at once. Reason: each makes packets that another one waits for.
const JUDGES_AT_ONCE: usize = 2;

/// Programs at once, for each processor, however little they compute. Reason: memory, ports.
const MAX_PER_CORE: usize = 2;

/// Processors that a program is taken to use where no run of it is known.
const GUESS: f64 = 1.0;

/// Less than this is not counted on: a program that waits may compute at any moment.
const LEAST: f64 = 0.5;

/// What the scheduler knows of a program, and how it ran the last time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProgramNeed {
    pub(super) quiet: QuietNeed,
    /// Seconds that it takes; only the order matters.
    pub(super) seconds: f64,
    /// Processors that it uses on average.
    pub(super) cores: f64,
}

impl ProgramNeed {
    /// A build beside test programs. It takes what is left of the processors.
    pub(super) const BUILD: ProgramNeed = ProgramNeed { quiet: QuietNeed::No, seconds: 0.0, cores: 0.0 };

    /// By the name of a target and which of its tests run; `last`: seconds and processor seconds of
    /// the last run.
    pub(super) fn of(name: &str, tests: Tests, last: Option<(f64, f64)>) -> ProgramNeed {
        let quiet = match tests {
            Tests::All => {
                NEEDS.iter().find(|(known, ..)| *known == name).map_or(QuietNeed::No, |(_, quiet, _)| *quiet)
            }
            Tests::With(_) => QuietNeed::Alone,
            Tests::Without(_) => QuietNeed::No,
        };
        let guess = || {
            let order = LONG.iter().rev().zip(1..);
            let long = order.into_iter().find(|(known, _)| **known == name);
            f64::from(long.map_or(0, |(_, seconds)| seconds))
        };
        let (seconds, cores) = match last {
            Some((seconds, cpu)) => (seconds, (cpu / seconds.max(0.1)).max(LEAST)),
            None => (guess(), GUESS),
        };
        ProgramNeed { quiet, seconds, cores }
    }
}

/// Which tests of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tests {
    All,
    /// Those with this in their name.
    With(&'static str),
    /// The others.
    Without(&'static str),
}

/// The parts in which a program runs.
pub(super) fn parts(name: &str) -> Vec<Tests> {
    match PARTS.iter().find(|(known, ..)| *known == name) {
        Some((_, part, _)) => vec![Tests::With(part), Tests::Without(part)],
        None => vec![Tests::All],
    }
}

/// How many tests of a program run at a time, if not as many as there are processors.
pub(super) fn tests_at_a_time(name: &str) -> Option<u32> {
    PATIENT.iter().find(|(known, _)| *known == name).map(|(_, tests)| *tests)
}

/// Which of those that wait starts now: its place in the list, which begins with the longest.
/// Programs without a wish for quiet come first, those that judge times next. So the machine
/// empties twice, as late as it can.
pub(super) fn next(waiting: &[ProgramNeed], running: &[ProgramNeed], cores: usize) -> Option<usize> {
    if running.len() >= cores * MAX_PER_CORE {
        return None;
    }
    let fits = |need: &ProgramNeed| match need.quiet {
        _ if running.is_empty() => true,
        QuietNeed::No => {
            let used: f64 = running.iter().map(|other| other.cores).sum();
            // A program that computes on all processors still runs beside the last one.
            running.iter().all(|other| other.quiet == QuietNeed::No)
                && used + need.cores.min(1.0) <= cores as f64
        }
        QuietNeed::Judges => {
            running.len() < JUDGES_AT_ONCE && running.iter().all(|other| other.quiet == QuietNeed::Judges)
        }
        QuietNeed::Alone => false,
    };
    // None overtakes the ones that want less quiet: else the machine would empty again and again.
    [QuietNeed::No, QuietNeed::Judges, QuietNeed::Alone].into_iter().find_map(|quiet| {
        let mut of_this = waiting.iter().enumerate().filter(|(_, need)| need.quiet == quiet).peekable();
        of_this.peek()?;
        Some(of_this.find(|(_, need)| fits(need)).map(|(at, _)| at))
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(quiet: QuietNeed, cores: f64) -> ProgramNeed {
        ProgramNeed { quiet, seconds: 1.0, cores }
    }

    #[test]
    fn needs_are_known_by_name_and_by_the_last_run() {
        let of = |name, last| ProgramNeed::of(name, Tests::All, last);
        assert_eq!((of("xdp", None).quiet, of("demo", None).quiet), (QuietNeed::Judges, QuietNeed::Alone));
        let explain = parts("linerate_explain").into_iter();
        let explain: Vec<QuietNeed> =
            explain.map(|part| ProgramNeed::of("linerate_explain", part, None).quiet).collect();
        assert_eq!(explain, [QuietNeed::Alone, QuietNeed::No]);
        assert_eq!(parts("xdp"), [Tests::All]);
        let unknown = of("load", None);
        assert_eq!((unknown.quiet, unknown.seconds, unknown.cores), (QuietNeed::No, 0.0, 1.0));
        assert!(of("load_bad", None).seconds > of("layer", None).seconds);
        assert_eq!(of("load", Some((10.0, 15.0))).cores, 1.5);
        assert_eq!(of("load", Some((10.0, 0.1))).cores, LEAST);
        assert_eq!(tests_at_a_time("machines"), Some(8));
        assert!(NEEDS.iter().all(|(.., reason)| !reason.is_empty()));
    }

    #[test]
    fn programs_that_wait_run_beside_those_that_compute() {
        let busy = need(QuietNeed::No, 1.0);
        let waits = need(QuietNeed::No, LEAST);
        assert_eq!(next(&[busy, busy], &[busy], 2), Some(0));
        assert_eq!(next(&[busy], &[busy, busy], 2), None);
        // One that fits overtakes one that does not.
        assert_eq!(next(&[busy, waits], &[busy, waits], 2), Some(1));
        assert_eq!(next(&[waits], &[waits; 4], 2), None);
        // One that takes more than there is runs all the same.
        let greedy = need(QuietNeed::No, 8.0);
        assert_eq!(next(&[greedy], &[], 2), Some(0));
        assert_eq!(next(&[greedy], &[busy], 2), Some(0));
        assert_eq!(next(&[waits], &[greedy], 2), None);
    }

    #[test]
    fn programs_that_judge_times_have_quiet_and_others_are_alone() {
        let (judges, alone, waits) =
            (need(QuietNeed::Judges, LEAST), need(QuietNeed::Alone, 1.0), need(QuietNeed::No, LEAST));
        assert_eq!(next(&[judges, waits], &[waits], 2), Some(1));
        assert_eq!(next(&[judges], &[waits], 2), None);
        assert_eq!(next(&[judges], &[judges], 2), Some(0));
        assert_eq!(next(&[judges], &[judges, judges], 4), None);
        assert_eq!(next(&[alone, judges], &[judges], 2), Some(1));
        assert_eq!(next(&[alone], &[judges], 2), None);
        assert_eq!(next(&[alone, alone], &[], 2), Some(0));
        assert_eq!(next(&[alone], &[alone], 2), None);
        assert_eq!(next(&[waits], &[alone], 2), None);
        assert_eq!(next(&[], &[], 2), None);
    }

    /// Every program runs, and on a machine with one processor too.
    #[test]
    fn all_run_in_the_end() {
        for cores in [1, 2, 16] {
            let kinds = [QuietNeed::Alone, QuietNeed::Judges, QuietNeed::No];
            let mut waiting: Vec<ProgramNeed> =
                (0..30).map(|n| need(kinds[n % 3], n as f64 / 10.0)).collect();
            let mut running: Vec<ProgramNeed> = Vec::new();
            while !waiting.is_empty() {
                while let Some(at) = next(&waiting, &running, cores) {
                    running.push(waiting.remove(at));
                }
                assert!(!running.is_empty(), "{cores} processors: {} wait for nothing", waiting.len());
                running.remove(0);
            }
        }
    }
}
