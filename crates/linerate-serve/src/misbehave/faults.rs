//! The faults, and their symptoms from outside.

use std::str::FromStr;
use std::time::Duration;

/// One kind of misbehaviour, as `--misbehave NAME[=VALUE]` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MisbehaviourKind {
    /// `nagle-split`: head and body of a response are written separately with Nagle's algorithm on.
    /// Symptom: the first call of a connection is fast, the others take about 40 ms more (the
    /// client's delayed ACK). With the client's QUICKACK the delay is gone.
    NagleSplit,
    /// `tiny-chunks[=BYTES]` (1): bodies leave in chunks of this size, each with its own write.
    /// Symptom: a packet per chunk; large responses take long at full CPU.
    TinyChunks(usize),
    /// `close-after=N`: the connection ends after N requests. Symptom: constantly new connections;
    /// pipelined requests after the N-th get no response.
    CloseAfter(u32),
    /// `stall=MS`: half of each response, a pause, the other half. Symptom: the first byte is
    /// early, the last late.
    Stall(Duration),
    /// `slow-read[=BYTES_PER_S]` (65536): bodies are read slowly through a small window. Symptom:
    /// an upload waits on a zero window (`tcpi_rwnd_limited`).
    SlowRead(u64),
    /// `accept-delay=MS`: a pause after each accepted connection, with a backlog of one. Symptom:
    /// with several connections at once, connecting takes 1, 2, 3 ... seconds, because SYNs are
    /// lost at a full queue.
    AcceptDelay(Duration),
    /// `no-100-continue`: never sends `100 Continue`. Symptom: clients that wait for it send their
    /// body a second late.
    No100Continue,
    /// `think=MS`: works this long on each request. Symptom: the first byte is late by that,
    /// whatever the network.
    Think(Duration),
    /// `think=MIN-MAX`: works for a uniformly distributed number of milliseconds. Symptom: as
    /// `think`, with varying times.
    ThinkBetween(Duration, Duration),
    /// `think=exp:MS`: works this long on average, exponentially distributed. Symptom: most calls
    /// are quick, some take several times as long.
    ThinkAbout(Duration),
    /// `late-body=MS`: the head of a response leaves at once, its body after this much work.
    /// Symptom: the first byte is early and the rest late, as with a stalled second write, but no
    /// acknowledgement makes it come earlier.
    LateBody(Duration),
    /// `lanes=N`: works on at most N requests at once. Symptom: with `think`, the time grows with
    /// the concurrency.
    Lanes(usize),
    /// `workers=N`: serves at most N connections at once; others are accepted and wait until one
    /// ends. Symptom: while N connections are held open, a call on a new one waits as long as they
    /// live.
    Workers(usize),
    /// `idle-close=MS`: closes a connection that was silent this long, without announcing it in a
    /// response. Symptom: requests on reused connections fail by a reset or a close, and succeed on
    /// new ones.
    IdleClose(Duration),
    /// `no-keep-alive`: closes after every response. Symptom: each call pays for a connection.
    NoKeepAlive,
}

/// A `--misbehave` that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFaultError {
    /// The name is unknown.
    #[error("there is no misbehaviour {name:?}; known are {KNOWN}")]
    Unknown {
        /// The given name.
        name: String,
    },
    /// The value is missing or invalid.
    #[error("{name} needs {wanted}, as in {example}")]
    Value {
        /// The name of the fault.
        name: String,
        /// The value that it needs.
        wanted: &'static str,
        /// An example.
        example: &'static str,
    },
}

/// All names, for messages and help.
pub const KNOWN: &str = "nagle-split, tiny-chunks[=BYTES], close-after=N, stall=MS, slow-read[=BYTES_PER_S], accept-delay=MS, \
                         no-100-continue, think=MS, think=MS-MS, think=exp:MS, late-body=MS, lanes=N, workers=N, idle-close=MS, \
                         no-keep-alive";

/// The longest pause. Reason: a test that waits for an hour by mistake should report that instead.
const LONGEST: u64 = 600_000;

impl FromStr for MisbehaviourKind {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<MisbehaviourKind, ParseFaultError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let error = |wanted, example| ParseFaultError::Value { name: name.to_owned(), wanted, example };
        let number = |wanted, example| {
            value.and_then(|v| v.parse::<u64>().ok()).filter(|n| *n > 0).ok_or_else(|| error(wanted, example))
        };
        let millis = |example| {
            let ms = number("milliseconds up to 600000", example)?;
            if ms > LONGEST {
                Err(error("milliseconds up to 600000", example))
            } else {
                Ok(Duration::from_millis(ms))
            }
        };
        let none = |fault| {
            if value.is_some() { Err(error("no value", "--misbehave nagle-split")) } else { Ok(fault) }
        };
        match name {
            "nagle-split" => none(MisbehaviourKind::NagleSplit),
            "no-100-continue" => none(MisbehaviourKind::No100Continue),
            "no-keep-alive" => none(MisbehaviourKind::NoKeepAlive),
            "tiny-chunks" if value.is_none() => Ok(MisbehaviourKind::TinyChunks(1)),
            "tiny-chunks" => {
                Ok(MisbehaviourKind::TinyChunks(number("bytes per chunk", "tiny-chunks=1")? as usize))
            }
            "slow-read" if value.is_none() => Ok(MisbehaviourKind::SlowRead(65_536)),
            "slow-read" => Ok(MisbehaviourKind::SlowRead(number("bytes per second", "slow-read=65536")?)),
            "close-after" => {
                let n = number("a number of requests", "close-after=100")?;
                Ok(MisbehaviourKind::CloseAfter(u32::try_from(n).unwrap_or(u32::MAX)))
            }
            "lanes" => {
                Ok(MisbehaviourKind::Lanes(number("a number of requests at once", "lanes=1")? as usize))
            }
            "workers" => Ok(MisbehaviourKind::Workers(
                number("a number of connections at once", "workers=2")? as usize,
            )),
            "late-body" => millis("late-body=40").map(MisbehaviourKind::LateBody),
            "idle-close" => millis("idle-close=100").map(MisbehaviourKind::IdleClose),
            "stall" => millis("stall=200").map(MisbehaviourKind::Stall),
            "accept-delay" => millis("accept-delay=500").map(MisbehaviourKind::AcceptDelay),
            "think" => think(value.unwrap_or_default())
                .ok_or_else(|| error("milliseconds up to 600000, alone, MIN-MAX or exp:MEAN", "think=40")),
            _ => Err(ParseFaultError::Unknown { name: name.to_owned() }),
        }
    }
}

/// `MS`, `MIN-MAX` or `exp:MEAN`.
fn think(value: &str) -> Option<MisbehaviourKind> {
    let time =
        |text: &str| text.parse().ok().filter(|ms| (1..=LONGEST).contains(ms)).map(Duration::from_millis);
    if let Some(mean) = value.strip_prefix("exp:") {
        return time(mean).map(MisbehaviourKind::ThinkAbout);
    }
    match value.split_once('-') {
        None => time(value).map(MisbehaviourKind::Think),
        Some((least, most)) => {
            let (least, most) = (time(least)?, time(most)?);
            (least <= most).then_some(MisbehaviourKind::ThinkBetween(least, most))
        }
    }
}

/// How long to work on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Think {
    Always(Duration),
    Between(Duration, Duration),
    About(Duration),
}

impl Think {
    /// The time for one request, from a number between 0 and 1.
    pub(crate) fn time(self, chance: f64) -> Duration {
        match self {
            Think::Always(time) => time,
            Think::Between(least, most) => least + (most - least).mul_f64(chance),
            Think::About(mean) => mean.mul_f64(-(1.0 - chance).max(f64::MIN_POSITIVE).ln()),
        }
    }
}

/// A combination of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misbehaviour {
    pub(crate) nagle_split: bool,
    pub(crate) tiny_chunks: Option<usize>,
    pub(crate) close_after: Option<u32>,
    pub(crate) stall: Option<Duration>,
    pub(crate) slow_read: Option<u64>,
    pub(crate) accept_delay: Option<Duration>,
    pub(crate) no_100_continue: bool,
    pub(crate) think: Option<Think>,
    pub(crate) late_body: Option<Duration>,
    pub(crate) lanes: Option<usize>,
    pub(crate) workers: Option<usize>,
    pub(crate) idle_close: Option<Duration>,
    pub(crate) no_keep_alive: bool,
}

impl FromIterator<MisbehaviourKind> for Misbehaviour {
    fn from_iter<I: IntoIterator<Item = MisbehaviourKind>>(faults: I) -> Self {
        let mut how = Misbehaviour::default();
        for fault in faults {
            match fault {
                MisbehaviourKind::NagleSplit => how.nagle_split = true,
                MisbehaviourKind::TinyChunks(n) => how.tiny_chunks = Some(n),
                MisbehaviourKind::CloseAfter(n) => how.close_after = Some(n),
                MisbehaviourKind::Stall(t) => how.stall = Some(t),
                MisbehaviourKind::SlowRead(n) => how.slow_read = Some(n),
                MisbehaviourKind::AcceptDelay(t) => how.accept_delay = Some(t),
                MisbehaviourKind::No100Continue => how.no_100_continue = true,
                MisbehaviourKind::Think(t) => how.think = Some(Think::Always(t)),
                MisbehaviourKind::ThinkBetween(least, most) => how.think = Some(Think::Between(least, most)),
                MisbehaviourKind::ThinkAbout(mean) => how.think = Some(Think::About(mean)),
                MisbehaviourKind::LateBody(t) => how.late_body = Some(t),
                MisbehaviourKind::Workers(n) => how.workers = Some(n),
                MisbehaviourKind::IdleClose(t) => how.idle_close = Some(t),
                MisbehaviourKind::Lanes(n) => how.lanes = Some(n),
                MisbehaviourKind::NoKeepAlive => how.no_keep_alive = true,
            }
        }
        how
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        assert_eq!("stall=200".parse(), Ok(MisbehaviourKind::Stall(Duration::from_millis(200))));
        assert_eq!("tiny-chunks".parse(), Ok(MisbehaviourKind::TinyChunks(1)));
        assert_eq!("lanes=2".parse(), Ok(MisbehaviourKind::Lanes(2)));
        for bad in [
            "",
            "nagle",
            "stall",
            "stall=",
            "stall=x",
            "stall=0",
            "stall=9999999",
            "lanes=-1",
            "nagle-split=1",
            "think",
            "think=50-30",
            "think=0-3",
            "think=exp:x",
            "workers=0",
        ] {
            let error = bad.parse::<MisbehaviourKind>().unwrap_err().to_string();
            assert!(error.contains("known are") || error.contains("as in"), "{bad}: {error}");
        }
        assert_eq!("think=40".parse(), Ok(MisbehaviourKind::Think(Duration::from_millis(40))));
        assert_eq!("think=exp:20".parse(), Ok(MisbehaviourKind::ThinkAbout(Duration::from_millis(20))));
        // Every listed name can be parsed.
        for name in KNOWN.split(", ") {
            let text = name.replace(['[', ']'], "").replace("=BYTES_PER_S", "=5").replace("=BYTES", "=5");
            let text = text.replace("MS", "5").replace("=N", "=5");
            text.parse::<MisbehaviourKind>().unwrap();
        }
    }

    #[test]
    fn times_of_thinking() {
        let ms = Duration::from_millis;
        let between = Think::Between(ms(30), ms(50));
        assert_eq!((between.time(0.0), between.time(0.5)), (ms(30), ms(40)));
        let about = Think::About(ms(20));
        let mean = (0..1000).map(|i| about.time((f64::from(i) + 0.5) / 1000.0)).sum::<Duration>() / 1000;
        assert!(mean.abs_diff(ms(20)) < ms(1), "{mean:?}");
        assert!(about.time(1.0) < Duration::from_secs(60), "chance has an end");
    }
}
