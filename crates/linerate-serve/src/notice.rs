//! What a server has to say to the people who run it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    /// The access log can't be written.
    AccessLogFails(String),
    /// It can again.
    AccessLogWorks,
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
            Notice::AccessLogFails(why) => {
                write!(f, "the access log can't be written ({why}); requests are answered, lines are lost")
            }
            Notice::AccessLogWorks => f.write_str("the access log can be written again"),
        }
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
