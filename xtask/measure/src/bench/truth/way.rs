//! A way in which a server misbehaves: what it does, what is sent to it, and what `load` has to say
//! of it.

use linerate_broken::Broken;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruthWay {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// The server's fault, for the page.
    pub(crate) what: &'static str,
    pub(crate) server: fn() -> Broken,
    pub(crate) over: Over,
    /// Actions on the server during the run: milliseconds after the first request.
    pub(crate) steps: &'static [Step],
    pub(crate) shape: TruthShape,
    pub(crate) named: &'static [TruthExpectation],
    pub(crate) truth: Truth,
}

/// The protocol of a way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    /// HTTP/1.1 in clear text.
    Http1,
    /// HTTP/2: the server in clear text, and the same by TLS (`true`) for programs that speak HTTP/2 there alone.
    Http2(fn(bool) -> Broken),
    /// HTTP/1.1 by TLS.
    Tls,
}

/// When, and what.
pub(crate) type Step = (u64, fn(&Broken));

/// The requests: the same for every program, as far as it can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruthShape {
    pub(crate) connections: u32,
    pub(crate) stop: TruthEnd,
    /// Requests per second: an open loop.
    pub(crate) rate: Option<u32>,
    pub(crate) depth: u32,
    /// Seconds that one request may take.
    pub(crate) timeout: u32,
    /// More flags, of `load` alone.
    pub(crate) more: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruthEnd {
    Requests(u32),
    Seconds(u32),
}

impl TruthWay {
    /// The flags of `load`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let protocol = match self.over {
            Over::Http2(_) => Some("--http2".to_owned()),
            Over::Http1 | Over::Tls => None,
        };
        self.shape.flags().into_iter().chain(protocol).collect()
    }
}

impl TruthShape {
    /// `n` requests, in a closed loop over eight connections.
    pub(crate) const fn requests(n: u32) -> TruthShape {
        TruthShape { connections: 8, stop: TruthEnd::Requests(n), rate: None, depth: 1, timeout: 1, more: "" }
    }

    /// `n` seconds.
    pub(crate) const fn seconds(n: u32) -> TruthShape {
        TruthShape { stop: TruthEnd::Seconds(n), ..TruthShape::requests(0) }
    }

    /// In an open loop.
    pub(crate) const fn rate(self, per_second: u32) -> TruthShape {
        TruthShape { rate: Some(per_second), ..self }
    }

    pub(crate) const fn more(self, flags: &'static str) -> TruthShape {
        TruthShape { more: flags, ..self }
    }

    pub(crate) const fn timeout(self, seconds: u32) -> TruthShape {
        TruthShape { timeout: seconds, ..self }
    }

    pub(crate) const fn depth(self, depth: u32) -> TruthShape {
        TruthShape { depth, ..self }
    }

    pub(crate) const fn connections(self, connections: u32) -> TruthShape {
        TruthShape { connections, ..self }
    }

    /// Seconds of a run that is bounded by time.
    pub(crate) fn time(&self) -> Option<u32> {
        match self.stop {
            TruthEnd::Seconds(s) => Some(s),
            TruthEnd::Requests(_) => None,
        }
    }

    /// The flags of `load`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut words = vec![format!("-c {}", self.connections)];
        match self.stop {
            TruthEnd::Requests(n) => words.push(format!("-n {n}")),
            TruthEnd::Seconds(s) => words.push(format!("-d {s}s")),
        }
        words.extend(self.rate.map(|r| format!("--rate {r}")));
        words.extend((self.depth > 1).then(|| format!("-p {}", self.depth)));
        words.push(format!("--timeout {}s", self.timeout));
        words.extend((!self.more.is_empty()).then(|| self.more.to_owned()));
        words.iter().flat_map(|w| w.split(' ')).map(str::to_owned).collect()
    }
}

/// How `load` names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TruthExpectation {
    /// This figure of its document is not 0.
    Counts(&'static str),
    /// This figure is at least so much.
    AtLeast(&'static str, f64),
    /// This figure is at most so much.
    AtMost(&'static str, f64),
    /// Its summary has these words.
    Says(&'static str),
}

/// The figure that is compared with the server's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Errors but surplus responses, against requests that were never served.
    Unserved,
    /// Unsolicited responses, compared with replies that are one too many.
    Surplus,
    /// Responses out of order, against those that the server swapped.
    Swapped,
    /// Errors, of those that were due by rate and time; the server served the rest.
    Due,
    /// The time without a server; in an open loop also the requests that were due in it.
    Down,
    /// Errors, against connections whose handshake the server broke off, of these and the requests it read.
    Handshakes,
}
