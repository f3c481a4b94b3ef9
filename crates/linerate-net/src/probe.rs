//! The features that this kernel offers to transports, found by trying, with reasons in words.

use std::{fs, io};

use crate::sys::ring_check::{RingCheckStep, check_ring};
use crate::sys::{has_pwait2, thread};

/// A feature of the kernel that a transport uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    /// The feature's name.
    pub name: &'static str,
    /// The first Linux version that has it.
    pub since: &'static str,
    /// The substitute that linerate uses without it.
    pub without: &'static str,
    /// Why it is unusable here; `None` if it works.
    pub missing: Option<String>,
}

/// Why this machine cannot run a transport, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// The features found in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The kernel's version, as `uname -r` prints it.
    pub kernel: String,
    /// Every feature that was tried, in order.
    pub facilities: Vec<Facility>,
}

/// The meaning of ENOMEM here.
const NO_MEMORY: &str = "its rings count as locked memory, and the limit is too low (ulimit -l)";

/// The meaning of EINVAL here.
const UNKNOWN: &str = "this kernel does not know it";

const RING: &str = "io_uring";
const DEFERRED: &str = "io_uring with deferred work (SINGLE_ISSUER, DEFER_TASKRUN)";
const BUFFERS: &str = "io_uring's provided buffer rings";
const MULTISHOT: &str = "io_uring's multishot receive";
const INSTALL: &str = "io_uring's FIXED_FD_INSTALL";
const OPTIONS: &str = "io_uring's socket commands";
const PWAIT2: &str = "epoll_pwait2";

impl Probe {
    /// Tries each feature; takes one or two milliseconds.
    pub fn run() -> Probe {
        let checked = check_ring();
        let failed = checked.as_ref().err().map(|(step, error)| (*step, reason(error)));
        let extras = checked.unwrap_or_default();
        let needed = |step: RingCheckStep| match &failed {
            Some((at, why)) if *at == step => Some(why.clone()),
            Some((at, _)) if *at < step => Some("what it builds on is missing".to_owned()),
            _ => None,
        };
        let extra = |has: bool| (!has).then(|| UNKNOWN.to_owned());
        let uring = "the io_uring transport cannot be used";
        let row = |name, since, without, missing| Facility { name, since, without, missing };
        let facilities = vec![
            row(RING, "5.1", uring, needed(RingCheckStep::Ring)),
            row(DEFERRED, "6.1", uring, needed(RingCheckStep::Deferred)),
            row(BUFFERS, "5.19", uring, needed(RingCheckStep::Buffers)),
            row(MULTISHOT, "6.0", uring, needed(RingCheckStep::Multishot)),
            row(
                INSTALL,
                "6.8",
                "no TCP counters of accepted connections over io_uring",
                extra(extras.install),
            ),
            row(
                OPTIONS,
                "6.7",
                "accepted connections end by FIN where a reset was asked for",
                extra(extras.options),
            ),
            row(PWAIT2, "5.11", "epoll waits in whole milliseconds", extra(has_pwait2())),
        ];
        Probe { kernel: kernel_version(), facilities }
    }

    /// Whether the io_uring transport works here; if not, why.
    pub fn uring(&self) -> Result<(), Unavailable> {
        let first = self.facilities.iter().take(4).find_map(|f| f.missing.as_ref().map(|why| (f, why)));
        match first {
            None => Ok(()),
            Some((Facility { name, since, .. }, why)) => {
                // Name the version only if a newer kernel would help.
                let versions = match why == UNKNOWN {
                    true => format!(" (Linux {}; since Linux {since})", self.kernel),
                    false => String::new(),
                };
                Err(Unavailable(format!("{name} cannot be used: {why}{versions}")))
            }
        }
    }

    /// All missing features.
    pub fn missing(&self) -> impl Iterator<Item = &Facility> {
        self.facilities.iter().filter(|facility| facility.missing.is_some())
    }
}

/// Explains in words why creating an io_uring failed.
pub(crate) fn explain_uring(error: io::Error) -> io::Error {
    match Probe::run().uring() {
        Err(words) => io::Error::new(io::ErrorKind::Unsupported, words),
        Ok(()) if error.raw_os_error() == Some(libc::ENOMEM) => io::Error::new(
            io::ErrorKind::OutOfMemory,
            Unavailable(format!("io_uring cannot be used: {NO_MEMORY}")),
        ),
        Ok(()) => error,
    }
}

fn reason(error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    words(error, disabled.as_deref().map(str::trim))
}

/// `disabled`: the sysctl's value, where there is one.
fn words(error: &io::Error, disabled: Option<&str>) -> String {
    match (error.raw_os_error(), disabled) {
        (Some(libc::EPERM), Some("2")) => {
            "it is disabled by the sysctl kernel.io_uring_disabled=2".to_owned()
        }
        (Some(libc::EPERM), Some("1")) => {
            "the sysctl kernel.io_uring_disabled=1 leaves it to root and the group in kernel.io_uring_group"
                .to_owned()
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "it is not permitted here (a container's seccomp profile usually is the reason)".to_owned()
        }
        (Some(libc::ENOSYS), _) => {
            "the kernel has none (too old, built without it, or hidden by a seccomp profile)".to_owned()
        }
        (Some(libc::ENOMEM), _) => NO_MEMORY.to_owned(),
        (Some(libc::EINVAL), _) | (None, _) => UNKNOWN.to_owned(),
        _ => format!("the kernel says: {error}"),
    }
}

fn kernel_version() -> String {
    thread::kernel_release().unwrap_or_else(|| "of unknown version".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn each_reason_has_its_words() {
        assert_eq!(
            words(&errno(libc::EPERM), Some("2")),
            "it is disabled by the sysctl kernel.io_uring_disabled=2"
        );
        assert!(words(&errno(libc::EPERM), Some("1")).contains("io_uring_group"));
        assert!(words(&errno(libc::EPERM), Some("0")).contains("seccomp"));
        assert!(words(&errno(libc::EPERM), None).contains("seccomp"));
        assert!(words(&errno(libc::ENOSYS), None).contains("too old"));
        assert!(words(&errno(libc::ENOMEM), None).contains("ulimit -l"));
        assert_eq!(words(&errno(libc::EINVAL), None), "this kernel does not know it");
        assert!(words(&errno(libc::EFAULT), None).contains("the kernel says"));
    }

    #[test]
    fn a_transport_that_cannot_be_had_says_what_is_missing_first() {
        let mut probe = Probe::run();
        for facility in &mut probe.facilities {
            facility.missing = None;
        }
        assert_eq!(probe.uring(), Ok(()));
        assert_eq!(probe.missing().count(), 0);
        probe.kernel = "6.0.9".to_owned();
        probe.facilities[1].missing = Some(UNKNOWN.to_owned());
        probe.facilities[6].missing = Some(UNKNOWN.to_owned());
        let said = probe.uring().map_err(|e| e.to_string());
        let expected = "io_uring with deferred work (SINGLE_ISSUER, DEFER_TASKRUN) cannot be used: this kernel does not \
                        know it (Linux 6.0.9; since Linux 6.1)";
        assert_eq!(said, Err(expected.to_owned()));
        assert_eq!(probe.missing().count(), 2);
    }

    #[test]
    fn what_the_probe_says_is_so() {
        let probe = Probe::run();
        assert!(!probe.kernel.is_empty());
        match (probe.uring(), crate::uring::Uring::new()) {
            (Ok(()), Ok(_)) => {}
            (Err(words), Err(error)) => assert_eq!(error.to_string(), words.to_string()),
            (said, was) => panic!("the probe says {said:?}, the transport {:?}", was.map(|_| ())),
        }
    }
}
