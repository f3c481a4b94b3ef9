//! The kernel's report about this process, for metrics. Names and meanings are those of
//! Prometheus' own clients.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// Figures of this process. `None` where the kernel does not report one.
#[derive(Debug, Default)]
pub struct ProcessFigures {
    /// User and system CPU time.
    pub cpu_seconds: Option<f64>,
    /// System CPU time, which is part of it.
    pub kernel_seconds: Option<f64>,
    /// Start, in seconds since 1970.
    pub started_at: Option<f64>,
    /// Virtual memory.
    pub virtual_bytes: Option<u64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// Limit on open file descriptors.
    pub most_files: Option<u64>,
}

impl ProcessFigures {
    /// The current figures.
    pub fn now() -> ProcessFigures {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let limits = text("/proc/self/limits");
        let most_files =
            limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
        ProcessFigures {
            open_files: open_files(),
            // "unlimited" is not a number.
            most_files: most_files.and_then(|n| n.parse().ok()),
            ..ProcessFigures::of(&text("/proc/self/stat"), &text("/proc/stat"))
        }
    }

    /// Parses the contents of `/proc/self/stat` and `/proc/stat`.
    fn of(own: &str, all: &str) -> ProcessFigures {
        // After the name, which may contain anything; the first number there is field 3 of
        // proc_pid_stat(5).
        let fields: Vec<&str> =
            own.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        let booted = all.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        ProcessFigures {
            cpu_seconds: number(14).zip(number(15)).map(|(user, system)| seconds(user + system)),
            kernel_seconds: number(15).map(seconds),
            threads: number(20),
            started_at: booted.zip(number(22)).map(|(booted, ticks)| booted + seconds(ticks)),
            virtual_bytes: number(23),
            resident_bytes: number(24).map(|pages| pages * page_size() as u64),
            ..ProcessFigures::default()
        }
    }
}

/// Number of open descriptors. Since Linux 6.2 the directory's size has it; before, they are
/// counted.
fn open_files() -> Option<u64> {
    let folder = fs::metadata("/proc/self/fd").ok()?;
    match folder.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64),
        size => Some(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let own = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 1000 8192000 500 18446744073709551615\n";
        let process = ProcessFigures::of(own, "cpu  1 2\nbtime 1700000000\n");
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, Some(300.0 / ticks));
        assert_eq!(process.started_at, Some(1_700_000_000.0 + 1000.0 / ticks));
        assert_eq!((process.threads, process.virtual_bytes), (Some(3), Some(8_192_000)));
        assert_eq!(process.resident_bytes, Some(500 * page_size() as u64));
        assert!(ProcessFigures::of("", "").cpu_seconds.is_none());
    }

    #[test]
    fn this_process_has_all_of_them() {
        let process = ProcessFigures::now();
        assert!(process.open_files.is_some_and(|n| (3..100_000).contains(&n)), "{process:?}");
        assert!(process.most_files >= process.open_files, "{process:?}");
        assert!(process.started_at.is_some_and(|at| at > 1.5e9) && process.cpu_seconds.is_some());
    }
}
