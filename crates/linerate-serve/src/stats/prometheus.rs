//! The text format of Prometheus (version 0.0.4), written line by line.

use std::fmt::{Display, Write};

use crate::stats::process::ProcessFigures;

/// Escapes a label's value.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A page of metrics: each family has its help and type before its samples.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// The text so far.
    pub fn into_text(self) -> String {
        self.0
    }

    /// Writes the head of a family; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample of the current family. `labels`: `name="value"`, separated by commas; values
    /// must not contain quotes or line breaks.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    /// Writes a family of one sample.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Writes a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "counter", help, value);
    }

    /// Writes a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "gauge", help, value);
    }

    /// Writes the samples of a histogram of times. `labels`: the labels besides the bucket's end,
    /// with a trailing comma. `buckets`: their ends in nanoseconds, each with its own count.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        buckets: impl IntoIterator<Item = (u64, u64)>,
        count: u64,
        sum_ns: u64,
    ) {
        let mut sum = 0;
        for (end, n) in buckets {
            sum += n;
            let _ = writeln!(self.0, "{name}_bucket{{{labels}le=\"{}\"}} {sum}", seconds(end));
        }
        let alone = labels.trim_end_matches(',');
        let braced = if alone.is_empty() { String::new() } else { format!("{{{alone}}}") };
        let _ = writeln!(self.0, "{name}_bucket{{{labels}le=\"+Inf\"}} {count}");
        let _ = writeln!(self.0, "{name}_sum{braced} {}\n{name}_count{braced} {count}", seconds(sum_ns));
    }

    /// Writes the kernel's figures of this process, named as in Prometheus' own clients.
    pub fn process(&mut self, process: &ProcessFigures) {
        let help = "User and system CPU time of the process.";
        if let Some(seconds) = process.cpu_seconds {
            self.one("process_cpu_seconds_total", "counter", help, seconds);
        }
        if let Some(at) = process.started_at {
            self.gauge("process_start_time_seconds", "When the process started, since 1970.", at);
        }
        let rest = [
            ("process_resident_memory_bytes", "Memory that is resident.", process.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory.", process.virtual_bytes),
            ("process_threads", "Threads of the process.", process.threads),
            ("process_open_fds", "Open file descriptors.", process.open_files),
            ("process_max_fds", "Most file descriptors that may be open.", process.most_files),
        ];
        for (name, help, value) in rest {
            if let Some(value) = value {
                self.gauge(name, help, value);
            }
        }
    }
}

/// Exact: nine decimals, without trailing zeros.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [(0, "0"), (1, "0.000000001"), (2_500_000, "0.0025"), (10_000_000_000, "10")] {
            assert_eq!(seconds(ns), text);
        }
    }
}
