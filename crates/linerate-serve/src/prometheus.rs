//! The text format of Prometheus (version 0.0.4), written line by line.

use std::fmt::{Display, Write};

use crate::process::Process;

/// A label's value: what would end it is escaped.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A page of metrics as it grows: each family with its help and its type before its samples.
#[derive(Clone, Debug, Default)]
pub struct Page(String);

impl Page {
    /// The text so far.
    pub fn into_text(self) -> String {
        self.0
    }

    /// The head of a family; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to memory does not fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family before it. `labels`: `name="value"`, with commas between several; values have neither quotation marks
    /// nor line breaks.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    /// A family of one sample.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "counter", help, value);
    }

    /// A gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.one(name, "gauge", help, value);
    }

    /// The samples of a histogram of times. `labels`: those it has beside the bucket's end, with a comma behind. `buckets`: their ends in
    /// nanoseconds, and how many samples each has alone.
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

    /// What the kernel says of this process, by the names of Prometheus' own clients.
    pub fn process(&mut self, process: &Process) {
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

/// Exact: nine digits behind the point, without zeros at the end.
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
