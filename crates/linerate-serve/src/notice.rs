//! Messages of a server to its operators.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_net::{NetError, Time};

use crate::Address;

/// Something the operator should know. Reported once, not for every request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A handler held the loop, so everything else on its thread waited.
    Blocked {
        /// Method and path of the request.
        route: String,
        /// For at least this long.
        at_least: Duration,
    },
    /// Connections cannot be accepted: file descriptors or memory are used up.
    AcceptFails(String),
    /// Connections can be accepted again.
    AcceptWorks,
    /// The access log cannot be written.
    AccessLogFails(String),
    /// The access log cannot be opened anew; it is tried again each second.
    AccessLogStays(String),
    /// The access log can be written again.
    AccessLogWorks,
    /// The access log is written more slowly than lines come.
    AccessLogBehind,
    /// The interface does not support everything requested: fewer threads, or a slower mode.
    Interface(String),
    /// A client spoke TLS to an address that speaks plain HTTP; `None`: the address is unknown.
    TlsToPlainPort(Option<Address>),
    /// Packets are no longer recorded: the file has reached its size, or the disk is full.
    CaptureEnds(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Blocked { route, at_least } => write!(
                f,
                "the handler of {route} held its loop for {} ms or more: every other connection of this thread waited \
                 (use linerate_serve::blocking for work that blocks)",
                at_least.as_millis()
            ),
            Notice::AcceptFails(why) => write!(
                f,
                "no connection can be accepted ({why}); those that are open are served, idle ones are closed, others wait \
                 for their turn (ulimit -n and --max-connections say how many there can be)"
            ),
            Notice::AcceptWorks => f.write_str("connections can be accepted again"),
            Notice::AccessLogFails(why) => {
                write!(f, "the access log can't be written ({why}); requests are answered, lines are lost")
            }
            Notice::AccessLogStays(why) => {
                write!(f, "the access log can't be opened anew ({why}); lines go to the file that was open")
            }
            Notice::Interface(what) | Notice::CaptureEnds(what) => f.write_str(what),
            Notice::AccessLogBehind => {
                f.write_str("the access log is written too slowly; requests are answered, lines are lost")
            }
            Notice::TlsToPlainPort(at) => {
                let at = at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
                write!(
                    f,
                    "a client spoke TLS{at}, where plain HTTP is spoken; it was answered with 400 (said once)"
                )
            }
            Notice::AccessLogWorks => f.write_str("the access log can be written again"),
        }
    }
}

/// How long accepting must have worked before it is reported. Reason: each connection that ends
/// lets one in, and the next attempt fails again.
const CALM: Duration = Duration::from_secs(2);
/// After that time it is checked once more. Reason: a thread without a CPU for seconds could not
/// fail.
const AGAIN: Duration = Duration::from_millis(500);
/// A problem that returns sooner than this needs twice the time until its end is reported, up to
/// this long. Reason: a server at its limit for hours must not fill a log.
const MOST_CALM: Duration = Duration::from_secs(64);

/// A shortage that several threads may see at once; its begin and its end are each reported once.
#[derive(Clone, Debug)]
pub(crate) struct Lack {
    notices: Notices,
    state: Arc<Mutex<Lacking>>,
    is_felt: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Lacking {
    /// When it was last seen; `None`: no shortage was reported.
    since: Option<Time>,
    /// When it had first not been seen for long enough.
    calm_at: Option<Time>,
    /// How long that is.
    calm: Duration,
    /// When its end was last reported.
    over: Option<Time>,
}

impl Lack {
    pub(crate) fn new(notices: Notices) -> Lack {
        let state = Lacking { since: None, calm_at: None, calm: CALM, over: None };
        Lack { notices, state: Arc::new(Mutex::new(state)), is_felt: Arc::default() }
    }

    /// Whether a thread cannot accept, or recently could not.
    pub(crate) fn is_felt(&self) -> bool {
        self.is_felt.load(Relaxed)
    }

    /// A thread cannot accept.
    pub(crate) fn felt(&self, now: Time, why: NetError) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_felt.store(true, Relaxed);
        state.calm_at = None;
        if state.since.replace(now).is_some() {
            return;
        }
        let soon = state.over.is_some_and(|over| now < over + MOST_CALM);
        state.calm = if soon { (state.calm * 2).min(MOST_CALM) } else { CALM };
        self.notices.tell(&Notice::AcceptFails(why.to_string()));
    }

    /// A thread can accept. Returns when to call again, until the end has been reported.
    pub(crate) fn over(&self, now: Time) -> Option<Time> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = state.since? + state.calm;
        if now < calm {
            return Some(calm);
        }
        let again = *state.calm_at.get_or_insert(now) + AGAIN;
        if now < again {
            return Some(again);
        }
        (state.since, state.calm_at, state.over) = (None, None, Some(now));
        self.is_felt.store(false, Relaxed);
        self.notices.tell(&Notice::AcceptWorks);
        None
    }
}

/// Clients that speak TLS to a plain HTTP port: reported once for the whole server.
#[derive(Clone, Debug)]
pub(crate) struct Misdirected {
    notices: Notices,
    is_said: Arc<AtomicBool>,
}

impl Misdirected {
    pub(crate) fn new(notices: Notices) -> Misdirected {
        Misdirected { notices, is_said: Arc::default() }
    }

    /// A client connected to this address.
    pub(crate) fn came(&self, at: Option<Address>) {
        if !self.is_said.swap(true, Relaxed) {
            self.notices.tell(&Notice::TlsToPlainPort(at));
        }
    }
}

/// The receiver of notices.
#[derive(Clone)]
pub struct Notices {
    tell: Arc<dyn Fn(&Notice) + Send + Sync>,
    collected: Arc<Mutex<Vec<Notice>>>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Default for Notices {
    /// Emits an event of `tracing` for each.
    fn default() -> Self {
        Notices::new(|notice| match notice {
            Notice::AcceptWorks | Notice::AccessLogWorks | Notice::Interface(_) => tracing::info!("{notice}"),
            _ => tracing::warn!("{notice}"),
        })
    }
}

impl Notices {
    /// Calls `tell` for each.
    pub fn new(tell: impl Fn(&Notice) + Send + Sync + 'static) -> Notices {
        Notices { tell: Arc::new(tell), collected: Arc::default() }
    }

    /// Collects them, for tests.
    pub fn collecting() -> Notices {
        let collected: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let list = Arc::clone(&collected);
        let tell = move |notice: &Notice| {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
        };
        Notices { tell: Arc::new(tell), collected }
    }

    /// The notices collected since [`Notices::collecting`].
    pub fn collected(&self) -> Vec<Notice> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tell(&self, notice: &Notice) {
        (self.tell)(notice);
    }
}

#[cfg(test)]
mod tests {
    use linerate_net::NetErrorKind;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_lack_is_said_once_and_its_end_once() {
        let notices = Notices::collecting();
        let lack = Lack::new(notices.clone());
        let why = NetError::of(NetErrorKind::DescriptorsExhausted);
        assert_eq!(lack.over(at(0)), None);
        for ms in [100, 200, 1900] {
            lack.felt(at(ms), why);
        }
        assert_eq!(lack.over(at(2000)), Some(at(3900)));
        // No thread ran for seconds: they get the time to fail once more, and one does.
        assert_eq!(lack.over(at(9000)), Some(at(9500)));
        lack.felt(at(9100), why);
        assert_eq!(lack.over(at(9500)), Some(at(11_100)));
        assert_eq!(lack.over(at(11_100)), Some(at(11_600)));
        assert_eq!(lack.over(at(11_600)), None);
        assert!(!lack.is_felt());
        assert_eq!(notices.collected(), [Notice::AcceptFails(why.to_string()), Notice::AcceptWorks]);
    }

    #[test]
    fn one_that_comes_again_and_again_is_said_less_and_less_often() {
        let notices = Notices::collecting();
        let lack = Lack::new(notices.clone());
        let why = NetError::of(NetErrorKind::DescriptorsExhausted);
        // For an hour: seen once in 10 s, checked ten times a second.
        for ms in (0..3_600_000).step_by(100) {
            if ms % 10_000 == 0 {
                lack.felt(at(ms), why);
            }
            lack.over(at(ms));
        }
        assert!(notices.collected().len() <= 9, "{:?}", notices.collected());
        // After a quiet time it starts over.
        lack.over(at(3_700_000));
        assert_eq!(lack.over(at(3_701_000)), None);
        lack.felt(at(3_800_000), why);
        assert_eq!(lack.over(at(3_800_000)), Some(at(3_802_000)));
    }
}
