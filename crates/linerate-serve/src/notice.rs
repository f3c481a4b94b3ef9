//! What a server has to say to the people who run it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_net::{NetError, Time};

/// Something the operator should know. Each is said once, not for every request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A handler held the loop: everything else on its thread waited meanwhile.
    Blocked {
        /// Method and path of the request.
        route: String,
        /// For at least so long.
        at_least: Duration,
    },
    /// Connections can't be accepted: descriptors or memory are used up.
    AcceptFails(String),
    /// They can again.
    AcceptWorks,
    /// The access log can't be written.
    AccessLogFails(String),
    /// It can again.
    AccessLogWorks,
    /// The interface does not give all that was hoped for: fewer threads, or a slower way.
    Interface(String),
    /// Packets are no longer written down: the file has its size, or the disk is full.
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
            Notice::Interface(what) | Notice::CaptureEnds(what) => f.write_str(what),
            Notice::AccessLogWorks => f.write_str("the access log can be written again"),
        }
    }
}

/// How long accepting must have worked before that is said. Reason: each connection that ends lets one in, and the next fails
/// again.
const CALM: Duration = Duration::from_secs(2);

/// What several threads may lack at once, said once when it begins and once when it is over.
#[derive(Clone, Debug)]
pub(crate) struct Lack {
    notices: Notices,
    /// When it was last felt; `None`: nothing is lacking, as far as anybody was told.
    since: Arc<Mutex<Option<Time>>>,
    is_felt: Arc<AtomicBool>,
}

impl Lack {
    pub(crate) fn new(notices: Notices) -> Lack {
        Lack { notices, since: Arc::default(), is_felt: Arc::default() }
    }

    /// Whether any thread can't accept, or could not a moment ago.
    pub(crate) fn is_felt(&self) -> bool {
        self.is_felt.load(Relaxed)
    }

    /// A thread can't accept.
    pub(crate) fn felt(&self, now: Time, why: NetError) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_felt.store(true, Relaxed);
        if since.replace(now).is_none() {
            self.notices.tell(&Notice::AcceptFails(why.to_string()));
        }
    }

    /// A thread can. Returns when to ask again, while the end of it has not been said.
    pub(crate) fn over(&self, now: Time) -> Option<Time> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let calm = (*since)? + CALM;
        if now < calm {
            return Some(calm);
        }
        *since = None;
        self.is_felt.store(false, Relaxed);
        self.notices.tell(&Notice::AcceptWorks);
        None
    }
}

/// Who is told.
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
    /// Standard error, a line each.
    fn default() -> Self {
        Notices::new(|notice| eprintln!("linerate serve: {notice}"))
    }
}

impl Notices {
    /// Tells `tell`.
    pub fn new(tell: impl Fn(&Notice) + Send + Sync + 'static) -> Notices {
        Notices { tell: Arc::new(tell), collected: Arc::default() }
    }

    /// Keeps them, for tests.
    pub fn collecting() -> Notices {
        let collected: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let list = Arc::clone(&collected);
        let tell = move |notice: &Notice| {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
        };
        Notices { tell: Arc::new(tell), collected }
    }

    /// Those kept so far by [`Notices::collecting`].
    pub fn collected(&self) -> Vec<Notice> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tell(&self, notice: &Notice) {
        (self.tell)(notice);
    }
}
