//! How a client is built.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderName;

use super::board::SharedBoard;
use super::error::Error;
use super::limits::{DEPTH, PIPES};
use super::options::CallOptions;
use super::target::Target;
use super::{Client, Inner};
use crate::Resend;

/// Builds a [`Client`]. Each setting has a default that suits a server nearby.
#[derive(Clone, Debug)]
#[must_use = "build() makes the client"]
pub struct Builder {
    url: String,
    tag: Option<String>,
    options: CallOptions,
}

impl Builder {
    pub(super) fn new(url: &str) -> Builder {
        Builder { url: url.to_owned(), tag: None, options: CallOptions::default() }
    }

    /// Connections, at most; 1 to 1024. By default 4. The client opens them when calls wait.
    pub fn pipes(mut self, pipes: u32) -> Builder {
        self.options.pipes = pipes;
        self
    }

    /// Requests in flight on each connection, at most; 1 to 16384. By default 64; 1 turns pipelining off.
    pub fn depth(mut self, depth: u32) -> Builder {
        self.options.depth = depth;
        self
    }

    /// Calls that wait or are in flight, at most. By default 16384. Further calls wait in their futures, in order.
    pub fn queue(mut self, calls: u32) -> Builder {
        self.options.queue = calls;
        self
    }

    /// From handing a request over to its whole response. By default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.options.timeout = timeout;
        self
    }

    /// For a connection to be established. By default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.options.connect_timeout = timeout;
        self
    }

    /// From the time a request is the oldest on its connection to the first byte of its response. By default 30 s.
    pub fn first_byte_timeout(mut self, timeout: Duration) -> Builder {
        self.options.first_byte_timeout = timeout;
        self
    }

    /// How long a connection stays open without requests. By default 50 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Builder {
        self.options.idle_timeout = timeout;
        self
    }

    /// Bytes of a response's head, at most; 64 KiB by default and at the most.
    pub fn max_head(mut self, bytes: usize) -> Builder {
        self.options.max_head = bytes;
        self
    }

    /// Bytes of a response's body, at most. By default 16 MiB.
    pub fn max_body(mut self, bytes: usize) -> Builder {
        self.options.max_body = bytes;
        self
    }

    /// Bytes of a body whose caller has gone that are read to keep its connection. By default 256 KiB; beyond them the
    /// client closes the connection.
    pub fn max_discarded(mut self, bytes: usize) -> Builder {
        self.options.max_discarded = bytes;
        self
    }

    /// Attempts to connect, one after the other, that fail before the calls that wait fail. By default 3.
    pub fn connect_attempts(mut self, attempts: u32) -> Builder {
        self.options.connect_attempts = attempts;
        self
    }

    /// Which requests are sent again after their connection was lost. By default [`Resend::Idle`]: idempotent ones, if
    /// the server had responded on that connection (RFC 9112 section 9.3.1).
    pub fn resend(mut self, resend: Resend) -> Builder {
        self.options.resend = resend;
        self
    }

    /// A field that carries a number in each request and that the server copies into the response. The client then
    /// matches responses by it instead of by order. A response whose tag names no request in flight closes its
    /// connection with [`Error::Mismatch`].
    pub fn tag(mut self, field: &str) -> Builder {
        self.tag = Some(field.to_owned());
        self
    }

    /// The client. It opens no connection before the first call.
    ///
    /// # Errors
    /// [`Error::Builder`]: the URL or a setting makes no sense.
    pub fn build(mut self) -> Result<Client, Error> {
        let problem = |what: String| Err(Error::Builder(what));
        let target = Target::parse(&self.url)?;
        let o = &mut self.options;
        for (name, value, most) in [("pipes", o.pipes, PIPES), ("depth", o.depth, DEPTH)] {
            if value == 0 || value > most {
                return problem(format!("{name} is {value}\nhint: take 1 to {most}"));
            }
        }
        if o.queue == 0 {
            return problem("queue is 0: no call would ever be sent\nhint: take 1 or more".to_owned());
        }
        let durations = [o.timeout, o.connect_timeout, o.first_byte_timeout];
        if durations.iter().any(Duration::is_zero) {
            return problem("a timeout is 0: no call could succeed\nhint: take 1 ms or more".to_owned());
        }
        if let Some(tag) = self.tag {
            match HeaderName::try_from(&tag) {
                Ok(name) => o.tag = Some(name),
                Err(_) => return problem(format!("the tag {tag:?} is no field name")),
            }
        }
        o.host = target.field.clone();
        o.seed = RandomState::new().hash_one(0);
        let window = u64::from(o.pipes) * u64::from(o.depth) * 2;
        let shared = Arc::new(SharedBoard::new(o.queue as usize));
        let window = window.clamp(2, u64::from(o.queue).max(2));
        let inner = Inner { shared, window, options: self.options, target, started: Mutex::new(false) };
        Ok(Client(Arc::new(inner)))
    }
}
