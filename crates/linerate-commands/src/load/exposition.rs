//! What a server's page for Prometheus says about its process: parsed and added up. No I/O.

use linerate_report::schema::outcome::ServerSecond;

use super::beside::thin_out;

/// Names of the CPU time and their unit in seconds: those of Prometheus' clients, OpenTelemetry and
/// Micrometer. The first one that is there counts.
const CPU: [(&str, f64); 3] = [
    ("process_cpu_seconds_total", 1.0),
    ("process_cpu_time_seconds_total", 1.0),
    ("process_cpu_time_ns_total", 1e-9),
];
const MEMORY: [(&str, f64); 3] = [
    ("process_resident_memory_bytes", 1.0),
    ("process_memory_usage_bytes", 1.0),
    ("process_working_set_bytes", 1.0),
];
const SWITCHES: [(&str, f64); 2] =
    [("process_context_switches_total", 1.0), ("process_voluntary_context_switches_total", 1.0)];
/// Counted beside voluntary ones, where they are apart.
const INVOLUNTARY: [(&str, f64); 2] = [
    ("process_involuntary_context_switches_total", 1.0),
    ("process_nonvoluntary_context_switches_total", 1.0),
];

/// A process's figures at a moment. `None`: the page does not have one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    cpu_s: Option<f64>,
    rss: Option<f64>,
    switches: Option<f64>,
}

/// Reads a page in the text format. Of several processes on it, the sum counts.
pub(super) fn parse(page: &str) -> Figures {
    let sum = |names: &[(&str, f64)]| {
        names.iter().find_map(|(name, unit)| {
            let values = page.lines().filter_map(sample).filter(|(of, _)| of == name).map(|(_, value)| value);
            values.reduce(|a, b| a + b).map(|sum| sum * unit)
        })
    };
    let involuntary = sum(&INVOLUNTARY).unwrap_or(0.0);
    let switches = sum(&SWITCHES[..1]).or_else(|| Some(sum(&SWITCHES[1..])? + involuntary));
    Figures { cpu_s: sum(&CPU), rss: sum(&MEMORY), switches }
}

/// A line's name and value.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim_start();
    let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
    let rest = match rest.strip_prefix('{') {
        Some(labels) => behind(labels)?,
        None => rest,
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.starts_with('#') && value.is_finite() && value >= 0.0).then_some((name, value))
}

/// What follows the labels. A value may contain any character, quotes behind a backslash.
fn behind(labels: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let end = labels.find(|c| {
        let was_escaped = escaped;
        escaped = quoted && !was_escaped && c == '\\';
        quoted ^= c == '"' && !was_escaped;
        c == '}' && !quoted
    })?;
    labels.get(end + 1..)
}

/// Figures over a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    last: Option<(f64, Figures)>,
    /// CPU time and context switches since the first look.
    pub(super) cpu_s: Option<f64>,
    pub(super) switches: Option<f64>,
    /// The most resident memory.
    pub(super) rss: Option<f64>,
    pub(super) series: Vec<ServerSecond>,
    /// Looks between two that are kept, as a power of two.
    skip: u32,
    looks: u64,
}

/// What a counter has gained. A process that began anew counts from zero.
fn gained(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    let (before, now) = before.zip(now)?;
    Some(if now >= before { now - before } else { now })
}

impl Tally {
    /// A look at `t_s` seconds from the beginning; `is_last`: a part of a second, which does not count as one.
    pub(super) fn add(&mut self, t_s: f64, now: Figures, is_last: bool) {
        self.rss = self.rss.into_iter().chain(now.rss).reduce(f64::max);
        let Some((before_s, before)) = self.last.replace((t_s, now)) else { return };
        let cpu = gained(before.cpu_s, now.cpu_s);
        let sum = |all: Option<f64>, more: Option<f64>| all.into_iter().chain(more).reduce(|a, b| a + b);
        self.cpu_s = sum(self.cpu_s, cpu);
        self.switches = sum(self.switches, gained(before.switches, now.switches));
        self.looks += 1;
        if (is_last && !self.series.is_empty()) || !self.looks.is_multiple_of(1 << self.skip) {
            return;
        }
        let busy = cpu.map(|cpu| cpu / (t_s - before_s).max(1e-9));
        self.series.push(ServerSecond { t_s, busy, rss_mb: now.rss.map(|bytes| bytes / 1e6) });
        self.skip += u32::from(thin_out(&mut self.series));
    }

    /// Whether the page never told the CPU time.
    pub(super) fn lacks_cpu(&self) -> bool {
        self.last.is_some_and(|(_, figures)| figures.cpu_s.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::super::beside::LOOKS;
    use super::*;

    #[test]
    fn pages_of_several_clients_are_read() {
        let page = "# HELP process_cpu_seconds_total Total.\n# TYPE process_cpu_seconds_total counter\n\
                    process_cpu_seconds_total 1.5e1\nprocess_resident_memory_bytes 2.5e+07 1700000000000\n\
                    process_cpu_seconds_total_of_others 9\nprocess_voluntary_context_switches_total 7\n\
                    process_involuntary_context_switches_total 3\n";
        assert_eq!(parse(page), Figures { cpu_s: Some(15.0), rss: Some(2.5e7), switches: Some(10.0) });
        let page = "process_cpu_time_ns_total{a=\"x } \\\" y\",b=\"\"} 2000000000\n\
                    process_cpu_time_ns_total{a=\"z\"} 1000000000\nprocess_context_switches_total 5\n";
        assert_eq!(parse(page), Figures { cpu_s: Some(3.0), rss: None, switches: Some(5.0) });
    }

    #[test]
    fn what_is_no_page_has_no_figures() {
        for page in [
            "",
            "<html>process_cpu_seconds_total",
            "process_cpu_seconds_total{",
            "process_cpu_seconds_total{a=\"",
            "process_cpu_seconds_total NaN\nprocess_resident_memory_bytes +Inf",
            "process_cpu_seconds_total -1",
            "process_cpu_seconds_total",
            "{\"process_cpu_seconds_total\"} 1",
        ] {
            assert_eq!(parse(page), Figures::default(), "{page}");
        }
    }

    fn figures(cpu: f64, rss: f64) -> Figures {
        Figures { cpu_s: Some(cpu), rss: Some(rss), switches: None }
    }

    #[test]
    fn counters_add_up_over_a_restart() {
        let mut tally = Tally::default();
        for (t, cpu, rss) in [(0.0, 10.0, 1e6), (1.0, 10.5, 3e6), (2.0, 0.25, 2e6)] {
            tally.add(t, figures(cpu, rss), false);
        }
        tally.add(2.1, figures(0.5, 2e6), true);
        assert_eq!((tally.cpu_s, tally.rss, tally.switches), (Some(1.0), Some(3e6), None));
        let busy: Vec<_> = tally.series.iter().map(|second| second.busy).collect();
        assert_eq!(busy, [Some(0.5), Some(0.25)]);
        assert!(!tally.lacks_cpu());
        tally.add(3.0, Figures::default(), true);
        assert!(tally.lacks_cpu());
    }

    #[test]
    fn a_week_does_not_grow_memory() {
        let mut tally = Tally::default();
        (0..600_000).for_each(|i| tally.add(f64::from(i), figures(f64::from(i), 1e6), false));
        assert!(tally.series.len() < LOOKS && tally.series.len() > LOOKS / 4);
        assert_eq!(tally.cpu_s, Some(599_999.0));
    }
}
