//! Measurements of one core: counters, histograms, samples. No lock, no allocation per request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_client::{RequestsEnd as Ended, Run, Stamp};
use linerate_http::ResetCode;
use linerate_http::client::{HeadFlaw, HeadFlaws};
use linerate_net::{TcpInfo, TcpTotals, Time};

use super::kinds::Kinds;
use super::silence::SilenceTracker;
use super::tallies::{NameTallies, NameTally};
use crate::flows::journeys::{Journeys, StepEnd};
use crate::histogram::Histogram;
use crate::limits::{BAD_SAMPLES, SAMPLE_HEAD_BYTES, SAVED_BYTES, SLOWEST, UNSOLICITED_BYTES};
use crate::outcome::{
    AddressCounts, Bad, Bytes, Connections, Failure, Failures, NamedFigures, Outcome, Requests, Sample,
    Saved, Segments, Tcp, TcpEvents, Window,
};
use crate::request_log::{CoreLog, RequestEnd, ResponseTimes, Sender};

/// Statuses are three digits (RFC 9110 section 15); anything else never gets here.
const STATUSES: usize = 1000;

/// A core's figures.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) measure_from: Time,
    pub(crate) requests: Requests,
    pub(crate) bad: Bad,
    pub(crate) failures: Failures,
    pub(crate) bytes: Bytes,
    /// Bytes that came during the warm-up.
    received_before: u64,
    pub(crate) connections: Connections,
    pub(crate) tcp: Tcp,
    /// What TCP had gone through when measuring began.
    tcp_before: (TcpEvents, Option<TcpTotals>),
    /// Of good responses: from due in an open loop, from sent in a closed one.
    pub(crate) latency: Histogram,
    /// How long requests without a good response were waited for, counted the same way.
    pub(crate) waited: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) tls: Histogram,
    pub(crate) lateness: Histogram,
    /// Both from sent, in an open loop.
    from_sent: Option<Histogram>,
    waited_from_sent: Option<Histogram>,
    /// Responses whose first byte came in an earlier turn than their end: first byte, and whole, from
    /// sent.
    split_first: Histogram,
    split_whole: Histogram,
    status: Box<[u64; STATUSES]>,
    named: NameTallies,
    slowest: Vec<Sample>,
    slowest_floor: u64,
    bad_samples: Vec<Sample>,
    /// The first bytes that came without a request.
    unsolicited: Option<Sample>,
    last_answer: Time,
    /// When the last request failed, or was given up.
    last_lost: Time,
    /// Responses since measuring began, also to requests of the warm-up.
    arrived: u64,
    /// What came until the end of sending, once that is over.
    window: Option<Window>,
    no_latencies: bool,
    pub(crate) silence: SilenceTracker,
    /// What became of attempts to connect, where there are several addresses.
    addresses: BTreeMap<SocketAddr, AddressCounts>,
    grpc_status: BTreeMap<u16, u64>,
    tolerated: BTreeMap<String, u64>,
    saver: Saver,
    log: Option<CoreLog>,
    journeys: Option<Journeys>,
    /// Whether figures by name are told while the run lasts.
    tells_names: bool,
}

/// Keeps whole responses: `any` from the beginning, and `bad` bad ones after them.
#[derive(Debug, Default)]
pub(crate) struct Saver {
    any: u32,
    bad: u32,
    bytes: usize,
    saved: Vec<Saved>,
}

impl Saver {
    /// Whether another response could be kept.
    #[inline]
    pub(crate) fn wants(&self) -> bool {
        self.any > 0 || self.bad > 0
    }

    fn take(&mut self, response: Saved) {
        let left = match (self.any, response.bad) {
            (1.., _) => &mut self.any,
            (0, true) => &mut self.bad,
            (0, false) => return,
        };
        *left = left.saturating_sub(1);
        self.bytes += response.bytes.len();
        if self.bytes > SAVED_BYTES {
            (self.any, self.bad) = (0, 0);
            return;
        }
        self.saved.push(response);
    }
}

/// Bytes as text that steers no terminal.
fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// What requests that are due at the end of a run have waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// Every connection carries as many requests as it may.
    Places,
    /// So do those that are open, and others are wanted.
    Connections,
    /// The server admits no streams.
    Streams,
    /// There are free places.
    Nothing,
}

/// The checks that a response failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseVerdict {
    pub(crate) bad_status: bool,
    pub(crate) bad_body: bool,
    /// A body that is looked at could not be decoded.
    pub(crate) bad_encoding: bool,
    pub(crate) bad_tag: bool,
    /// The trailer that was expected was missing or had another value.
    pub(crate) bad_trailer: bool,
    /// A value that its flow takes was missing.
    pub(crate) bad_take: bool,
    /// It was not as its step of a flow expects.
    pub(crate) bad_expect: bool,
}

impl ResponseVerdict {
    /// Nothing is bad. Without a branch for each, because every response is asked.
    #[inline]
    pub(crate) fn is_good(self) -> bool {
        !(self.bad_status
            | self.bad_body
            | self.bad_encoding
            | self.bad_tag
            | self.bad_trailer
            | self.bad_take
            | self.bad_expect)
    }

    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            ResponseVerdict { bad_status: true, .. } => Some("bad status"),
            ResponseVerdict { bad_encoding: true, .. } => Some("bad encoding"),
            ResponseVerdict { bad_body: true, .. } => Some("bad body"),
            ResponseVerdict { bad_trailer: true, .. } => Some("bad trailer"),
            ResponseVerdict { bad_expect: true, .. } => Some("not as expected"),
            ResponseVerdict { bad_take: true, .. } => Some("value missing"),
            ResponseVerdict { bad_tag: true, .. } => Some("bad tag"),
            _ => None,
        }
    }
}

/// A response, or several alike: how they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedResponse<'a> {
    pub(crate) now: Time,
    /// When the first byte came, if that was in an earlier turn.
    pub(crate) first_byte: Option<Time>,
    pub(crate) status: u16,
    pub(crate) verdict: ResponseVerdict,
    pub(crate) head: &'a [u8],
    /// Beginning of the body as it came.
    pub(crate) body: &'a [u8],
    /// Why the body could not be decoded.
    pub(crate) problem: Option<&'a str>,
    /// The whole body, where it is to be kept.
    pub(crate) whole: Option<&'a [u8]>,
}

impl RecordedResponse<'_> {
    fn times(&self, run: &Run) -> ResponseTimes {
        let Stamp { sent, due, .. } = run.stamp;
        ResponseTimes {
            first_byte_ns: self.first_byte.unwrap_or(self.now).nanos_since(sent),
            from_sent_ns: self.now.nanos_since(sent),
            from_due_ns: self.now.nanos_since(due),
        }
    }
}

impl Recorder {
    pub(crate) fn new(measure_from: Time, open_loop: bool, kinds: &Kinds, no_latencies: bool) -> Recorder {
        Recorder {
            measure_from,
            requests: Requests::default(),
            bad: Bad::default(),
            failures: Failures::default(),
            bytes: Bytes::default(),
            received_before: 0,
            connections: Connections::default(),
            tcp: Tcp::default(),
            tcp_before: Default::default(),
            latency: Histogram::new(),
            waited: Histogram::new(),
            connect: Histogram::new(),
            tls: Histogram::new(),
            lateness: Histogram::new(),
            from_sent: open_loop.then(Histogram::new),
            waited_from_sent: open_loop.then(Histogram::new),
            split_first: Histogram::new(),
            split_whole: Histogram::new(),
            status: Box::new([0; STATUSES]),
            named: NameTallies::new(kinds),
            slowest: Vec::with_capacity(SLOWEST),
            slowest_floor: 0,
            bad_samples: Vec::new(),
            unsolicited: None,
            last_answer: Time::ZERO,
            last_lost: Time::ZERO,
            arrived: 0,
            window: None,
            no_latencies,
            silence: SilenceTracker::new(measure_from),
            addresses: BTreeMap::new(),
            grpc_status: BTreeMap::new(),
            tolerated: BTreeMap::new(),
            saver: Saver::default(),
            log: None,
            journeys: kinds.journeys().cloned(),
            tells_names: false,
        }
    }

    /// Keeps this many responses, and as many bad ones after them.
    pub(crate) fn saving(mut self, responses: u32) -> Recorder {
        (self.saver.any, self.saver.bad) = (responses, responses);
        self
    }

    /// Tells figures by name while the run lasts.
    pub(crate) fn telling_names(mut self, tells: bool) -> Recorder {
        self.tells_names = tells;
        self
    }

    /// Figures by name so far, if they are told.
    pub(crate) fn named_so_far(&self) -> BTreeMap<String, NamedFigures> {
        let told = self.named.names.iter().zip(&self.named.tallies).filter(|_| self.tells_names);
        told.map(|(name, tally)| (name.clone(), tally.so_far())).collect()
    }

    /// Hands over what becomes of each request.
    pub(crate) fn logging(mut self, to: Option<Sender>, kinds: &Kinds) -> Recorder {
        self.log = to
            .map(|to| CoreLog::new(to, kinds.place(), kinds.requests(), self.measure_from))
            .map(|log| log.of_users(kinds.journeys()));
        self
    }

    /// Hands over the lines that the log still holds, so that a reader sees them within a second.
    pub(crate) fn hand_over_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.hand_over();
        }
    }

    /// Whether responses are to be kept whole.
    #[inline]
    pub(crate) fn wants_whole(&self) -> bool {
        self.saver.wants()
    }

    pub(crate) fn measuring(&self, now: Time) -> bool {
        now >= self.measure_from
    }

    /// Time since measuring began.
    pub(crate) fn measured(&self, now: Time) -> Duration {
        if self.measuring(now) { now - self.measure_from } else { Duration::ZERO }
    }

    /// Sending ended at this time: what comes from now on does not count for the rate. Only the first
    /// call counts.
    pub(crate) fn close_window(&mut self, at: Time) {
        if self.window.is_some() {
            return;
        }
        self.window =
            Some(Window { answered: self.arrived, bytes: self.bytes, time: at - self.measure_from });
        for tally in &mut self.named.tallies {
            tally.in_window = tally.arrived;
        }
    }

    /// Bytes came; `measuring`: after the warm-up.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize, measuring: bool) {
        let sum = if measuring { &mut self.bytes.received } else { &mut self.received_before };
        *sum += bytes as u64;
    }

    /// Whether a byte came at all, be it during the warm-up.
    pub(crate) fn has_heard(&self) -> bool {
        self.bytes.received > 0 || self.received_before > 0
    }

    pub(crate) fn sent(&mut self, kind: u16, count: u32) {
        self.requests.sent += u64::from(count);
        if let Some(t) = self.named.get_mut(kind) {
            t.requests.sent += u64::from(count);
        }
    }

    /// Requests go out again; `end`: how they were lost.
    pub(crate) fn resent(&mut self, kind: u16, count: u32, end: Ended) {
        let n = u64::from(count);
        let add = |requests: &mut Requests| {
            requests.resent += n;
            match end {
                Ended::Refused => requests.resent_refused += n,
                Ended::StreamReset => requests.resent_reset += n,
                Ended::Broken { .. } => requests.resent_alone += n,
                Ended::Announced | Ended::Lost(_) | Ended::Abandoned(_) => {}
            }
        };
        add(&mut self.requests);
        self.connections.requests_resent += n;
        if let Some(t) = self.named.get_mut(kind) {
            add(&mut t.requests);
        }
    }

    /// Whole responses to all requests of `run`.
    #[inline]
    pub(crate) fn answered(&mut self, run: &Run, answer: &RecordedResponse<'_>, kinds: &Kinds) {
        let n = u64::from(run.count);
        self.silence.response(answer.now, run.stamp.sent);
        if self.measuring(answer.now) {
            self.arrived += n;
            if let Some(t) = self.named.get_mut(run.kind) {
                t.arrived += n;
            }
        }
        if !run.stamp.measured {
            return;
        }
        self.requests.answered += n;
        let is_good = answer.verdict.is_good();
        if !kinds.reads_nothing() {
            self.expected(run, is_good, kinds);
        }
        self.status[answer.status as usize % STATUSES] += n;
        self.last_answer = answer.now;
        if !self.no_latencies {
            self.record_latency(run, answer, is_good, kinds);
        }
        let in_run = self.window.is_none();
        if let Some(t) = self.named.get_mut(run.kind) {
            t.requests.answered += n;
            t.over_time(answer.now.nanos_since(self.measure_from), |interval| {
                interval.answered += if in_run { n } else { 0 }
            });
        }
        if !is_good {
            self.record_bad(run, answer, n, kinds);
        }
        if let Some(log) = &mut self.log {
            let end = answer.verdict.words().map_or(RequestEnd::Good, RequestEnd::Bad);
            let times = (!self.no_latencies).then(|| answer.times(run));
            log.note(run, end, answer.status, times);
        }
        if let Some(body) = answer.whole {
            self.saver.take(Saved {
                at_us: answer.now.nanos_since(self.measure_from) / 1000,
                status: answer.status,
                bad: !is_good,
                request: kinds.get(run.kind).name.clone(),
                bytes: [answer.head, body].concat(),
            });
        }
    }

    /// A response to a step that expects something of it, or a failure, came.
    fn expected(&mut self, run: &Run, is_met: bool, kinds: &Kinds) {
        if !kinds.has_expectation(run.kind) {
            return;
        }
        let n = u64::from(run.count);
        let count = |requests: &mut Requests| {
            requests.expecting += n;
            requests.met += if is_met { n } else { 0 };
        };
        count(&mut self.requests);
        if let Some(t) = self.named.get_mut(run.kind) {
            count(&mut t.requests);
        }
    }

    #[inline]
    fn record_latency(&mut self, run: &Run, answer: &RecordedResponse<'_>, is_good: bool, kinds: &Kinds) {
        let n = u64::from(run.count);
        let from_sent = answer.now.nanos_since(run.stamp.sent);
        let latency =
            if self.from_sent.is_some() { answer.now.nanos_since(run.stamp.due) } else { from_sent };
        if is_good {
            if let Some(histogram) = &mut self.from_sent {
                histogram.record(from_sent, n);
            }
            self.latency.record(latency, n);
            if let Some(t) = self.named.get_mut(run.kind) {
                t.latency.record(latency, n);
                t.over_time(answer.now.nanos_since(self.measure_from), |interval| {
                    interval.good.record(latency, n)
                });
            }
            if let Some(first) = answer.first_byte {
                self.split_first.record(first.nanos_since(run.stamp.sent), n);
                self.split_whole.record(from_sent, n);
            }
        } else {
            self.waited_in_vain(run, answer.now);
        }
        if latency > self.slowest_floor {
            let sample = self.sample(run, Some(latency), Some(answer.status), "slowest", answer.head, kinds);
            self.keep_slowest(sample);
        }
    }

    /// A request was waited for, and no good response came.
    fn waited_in_vain(&mut self, run: &Run, now: Time) {
        if self.no_latencies {
            return;
        }
        let (n, from_sent) = (u64::from(run.count), now.nanos_since(run.stamp.sent));
        let waited = match &mut self.waited_from_sent {
            Some(histogram) => {
                histogram.record(from_sent, n);
                now.nanos_since(run.stamp.due)
            }
            None => from_sent,
        };
        self.waited.record(waited, n);
        if let Some(t) = self.named.get_mut(run.kind) {
            t.waited.record(waited, n);
            t.over_time(now.nanos_since(self.measure_from), |interval| interval.waited.record(waited, n));
        }
    }

    /// A connection to one of several addresses was opened.
    pub(crate) fn reached(&mut self, to: Option<SocketAddr>) {
        if let Some(to) = to {
            self.addresses.entry(to).or_default().opened += 1;
        }
    }

    /// A connection to one of several addresses could not be opened.
    pub(crate) fn not_reached(&mut self, to: SocketAddr, why: &str) {
        let counts = self.addresses.entry(to).or_default();
        counts.failed += 1;
        if counts.why.is_empty() {
            why.clone_into(&mut counts.why);
        }
    }

    /// gRPC's own status of these responses.
    pub(crate) fn grpc(&mut self, run: &Run, status: u16) {
        if run.stamp.measured {
            *self.grpc_status.entry(status).or_insert(0) += u64::from(run.count);
        }
    }

    /// These responses had heads with flaws, and were read all the same.
    #[cold]
    pub(crate) fn flawed(&mut self, run: &Run, flaws: HeadFlaws) {
        for flaw in HeadFlaw::ALL.into_iter().filter(|flaw| run.stamp.measured && flaws.has(*flaw)) {
            *self.tolerated.entry(flaw.name().to_owned()).or_insert(0) += u64::from(run.count);
        }
    }

    /// Of what was due and never left, so many lacked this; so many were due before this part joined the run.
    pub(crate) fn unsent_for(&mut self, (waiting, missed): (u64, u64), lacking: Lacking) {
        self.requests.unsent_missed += missed;
        match lacking {
            Lacking::Places => self.requests.unsent_full += waiting,
            Lacking::Connections => self.requests.unsent_unopened += waiting,
            Lacking::Streams => self.requests.unsent_shut += waiting,
            Lacking::Nothing => {}
        }
    }

    /// `n` requests of a kind were due and never left; each was waited for so long.
    pub(crate) fn unsent(&mut self, kind: Option<u16>, waited: Duration, n: u64) {
        self.requests.unsent += n;
        let tally = kind.and_then(|kind| self.named.get_mut(kind));
        let histograms = match tally {
            Some(t) => {
                t.requests.unsent += n;
                [Some(&mut self.waited), Some(&mut t.waited)]
            }
            None => [Some(&mut self.waited), None],
        };
        if !self.no_latencies {
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            histograms.into_iter().flatten().for_each(|histogram| histogram.record(nanos, n));
        }
    }

    fn record_bad(&mut self, run: &Run, answer: &RecordedResponse<'_>, n: u64, kinds: &Kinds) {
        let verdict = answer.verdict;
        let count = |bad: &mut Bad| match verdict {
            ResponseVerdict { bad_status: true, .. } => bad.status += n,
            ResponseVerdict { bad_encoding: true, .. } => bad.encoding += n,
            ResponseVerdict { bad_body: true, .. } => bad.body += n,
            ResponseVerdict { bad_trailer: true, .. } => bad.trailer += n,
            ResponseVerdict { bad_expect: true, .. } => bad.expect += n,
            ResponseVerdict { bad_take: true, .. } => bad.take += n,
            _ => bad.tag += n,
        };
        count(&mut self.bad);
        if let Some(t) = self.named.get_mut(run.kind) {
            count(&mut t.bad);
            t.over_time(answer.now.nanos_since(self.measure_from), |interval| interval.bad += n);
        }
        if let Some(why) = verdict.words()
            && self.bad_samples.len() < BAD_SAMPLES
        {
            let latency = answer.now.nanos_since(run.stamp.due);
            let mut sample = self.sample(run, Some(latency), Some(answer.status), why, answer.head, kinds);
            sample.why = answer.problem.map_or(sample.why, |problem| format!("{why}: {problem}"));
            sample.body = super::body::shown(answer.head, answer.body);
            sample.sent = kinds.shown(run.kind, run.first, answer.head);
            self.bad_samples.push(sample);
        }
    }

    fn sample(
        &self,
        run: &Run,
        latency_ns: Option<u64>,
        status: Option<u16>,
        why: &str,
        head: &[u8],
        kinds: &Kinds,
    ) -> Sample {
        Sample {
            due_us: run.stamp.due.nanos_since(self.measure_from) as f64 / 1e3,
            latency_us: latency_ns.map(|ns| ns as f64 / 1e3),
            status,
            why: why.to_owned(),
            request: kinds.get(run.kind).name.clone(),
            head: String::from_utf8_lossy(&head[..head.len().min(SAMPLE_HEAD_BYTES)]).into_owned(),
            body: String::new(),
            sent: String::new(),
        }
    }

    fn keep_slowest(&mut self, sample: Sample) {
        let slower = |a: &Sample, b: &Sample| b.latency_us.partial_cmp(&a.latency_us);
        if self.slowest.len() == SLOWEST {
            self.slowest.pop();
        }
        let at = self.slowest.partition_point(|s| slower(s, &sample).is_some_and(|o| o.is_le()));
        self.slowest.insert(at, sample);
        if self.slowest.len() == SLOWEST {
            let floor = self.slowest.last().and_then(|s| s.latency_us).unwrap_or(0.0);
            self.slowest_floor = (floor * 1e3) as u64;
        }
    }

    /// Certainly not answered, as is known now.
    pub(crate) fn failed(
        &mut self,
        run: &Run,
        now: Time,
        (why, detail): (Failure, Option<&str>),
        kinds: &Kinds,
    ) {
        if let Some(detail) = detail {
            self.failures.details.entry(why.name()).or_insert_with(|| detail.to_owned());
        }
        self.note_end(run, RequestEnd::Failed(why));
        self.end_step(run, StepEnd::Lost(why.name()), now);
        if !run.stamp.measured {
            return;
        }
        let n = u64::from(run.count);
        self.requests.failed += n;
        self.last_lost = now;
        self.expected(run, false, kinds);
        self.failures.add(why, n);
        self.silence.failed(now);
        self.waited_in_vain(run, now);
        if let Some(detail) = detail {
            self.failures.explain(why, detail, n);
        }
        if let Some(t) = self.named.get_mut(run.kind) {
            t.requests.failed += n;
            t.over_time(now.nanos_since(self.measure_from), |interval| interval.failed += n);
        }
        if self.bad_samples.len() < BAD_SAMPLES {
            let sample = self.sample(run, None, None, why.name(), b"", kinds);
            self.bad_samples.push(sample);
        }
    }

    /// A user has no response to its request.
    fn end_step(&self, run: &Run, end: StepEnd<'_>, now: Time) {
        if let Some(journeys) = &self.journeys {
            journeys.ended(run.first, end, now);
        }
    }

    /// The server reset the streams of these requests with this code: they have failed.
    pub(crate) fn reset(&mut self, run: &Run, now: Time, (code, detail): (ResetCode, &str), kinds: &Kinds) {
        if run.stamp.measured {
            self.failures.coded(code.name, u64::from(run.count));
        }
        self.failed(run, now, (Failure::Reset, Some(detail)), kinds);
    }

    /// Bytes came that no request had asked for: `n` responses, or what pretends to be some.
    pub(crate) fn unsolicited(&mut self, now: Time, bytes: &[u8], n: u64) {
        if !self.measuring(now) {
            return;
        }
        self.requests.unsolicited_responses += n;
        if self.unsolicited.is_none() {
            self.unsolicited = Some(Sample {
                due_us: now.nanos_since(self.measure_from) as f64 / 1e3,
                latency_us: None,
                status: None,
                why: "unsolicited".to_owned(),
                request: String::new(),
                head: escaped(&bytes[..bytes.len().min(UNSOLICITED_BYTES)]),
                body: String::new(),
                sent: String::new(),
            });
        }
    }

    /// A response that its tag shows to be out of order.
    pub(crate) fn out_of_order(&mut self, run: &Run) {
        if run.stamp.measured {
            self.requests.out_of_order_responses += u64::from(run.count);
        }
    }

    /// A request that counts ended without a response, and its user is still known.
    fn note_end(&mut self, run: &Run, end: RequestEnd) {
        if let Some(log) = self.log.as_mut().filter(|_| run.stamp.measured) {
            log.note(run, end, 0, None);
        }
    }

    /// The outcome is unknown: the server may or may not have acted on them. Nobody waits from now on.
    pub(crate) fn unknown(&mut self, run: &Run, now: Time) {
        self.note_end(run, RequestEnd::Unknown);
        self.end_step(run, StepEnd::Unknown, now);
        if run.stamp.measured {
            let n = u64::from(run.count);
            self.requests.unknown += n;
            self.last_lost = now;
            self.waited_in_vain(run, now);
            if let Some(t) = self.named.get_mut(run.kind) {
                t.requests.unknown += n;
                t.over_time(now.nanos_since(self.measure_from), |interval| interval.unknown += n);
            }
        }
    }

    /// A look at a connection; `before`: what the last one found.
    pub(crate) fn look(&mut self, before: Option<&TcpInfo>, info: &TcpInfo) {
        let tcp = &mut self.tcp;
        tcp.events.look(before, info);
        tcp.looked_at += u64::from(before.is_none());
        tcp.rtt_min_us =
            tcp.rtt_min_us.into_iter().chain((info.min_rtt_us > 0).then_some(info.min_rtt_us)).min();
    }

    /// Measuring begins: what TCP goes through from now on counts.
    pub(crate) fn begin(&mut self, stack: Option<TcpTotals>) {
        self.tcp_before = (self.tcp.events, stack);
    }

    /// TCP events that looks at connections have found since measuring began.
    pub(crate) fn tcp_events(&self) -> TcpEvents {
        self.tcp.events.since(&self.tcp_before.0)
    }

    /// The segments that a TCP of our own has counted since measuring began.
    pub(crate) fn segments(&self, stack: Option<&TcpTotals>) -> Option<Segments> {
        let before = self.tcp_before.1.unwrap_or_default();
        stack.map(|now| Segments::of_stack(now).since(&Segments::of_stack(&before)))
    }

    /// TCP's own counts of all connections, where it has some: they say more than a sample.
    pub(crate) fn tcp_totals(&mut self, totals: &TcpTotals) {
        self.tcp.retransmits = totals.retransmits;
        self.tcp.out_of_order = totals.out_of_order;
        self.tcp.overrun = totals.overrun;
        self.tcp.looked_at = totals.active_opens;
        self.tcp.stack = Some(*totals);
        self.tcp.segments = self.segments(Some(totals));
    }

    /// Statuses seen so far with their counts.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.status.iter().zip(0u16..).filter(|(n, _)| **n > 0).map(|(n, code)| (code, *n))
    }

    /// The time of the last response that counts.
    pub(crate) fn last_answer(&self) -> Time {
        self.last_answer
    }

    /// When the last request that counts had its end, whatever that was.
    pub(crate) fn last_end(&self) -> Time {
        self.last_answer.max(self.last_lost)
    }

    /// The core's outcome, but for what only the whole run knows.
    /// `end`: of what was measured; `now`: of what was waited for.
    pub(crate) fn into_outcome(mut self, end: Time, now: Time) -> Outcome {
        // Waits for room, now that nothing is measured any more.
        drop(self.log.take());
        self.close_window(end);
        let mut outcome = Outcome { status: self.statuses().collect(), ..Outcome::default() };
        outcome.duration = end - self.measure_from;
        outcome.window = self.window.unwrap_or_default();
        outcome.arrived = self.arrived;
        outcome.requests = self.requests;
        outcome.bad = self.bad;
        outcome.failures = self.failures;
        outcome.bytes = self.bytes;
        outcome.connections = self.connections;
        outcome.tcp = self.tcp;
        let events = &self.tcp.events;
        outcome.tcp.zero_window_us = events.rwnd_limited_us;
        if self.tcp.stack.is_none() {
            (outcome.tcp.retransmits, outcome.tcp.out_of_order) = (events.retransmits, events.out_of_order);
        }
        outcome.client.lateness = self.lateness;
        let (from_due, from_sent) = match self.from_sent.take() {
            Some(from_sent) => (Some(self.latency), from_sent),
            None => (None, self.latency),
        };
        let mut first_byte = from_sent.clone();
        first_byte.subtract(&self.split_whole);
        first_byte.merge(&self.split_first);
        outcome.latency = crate::outcome::Latency {
            from_due,
            from_sent,
            connect: self.connect,
            tls: self.tls,
            first_byte,
            waited: self.waited,
            waited_from_sent: self.waited_from_sent,
        };
        outcome.quiet = Some(self.silence.into_quiet(now));
        (outcome.addresses, outcome.grpc_status) = (self.addresses, self.grpc_status);
        outcome.tolerated = self.tolerated;
        outcome.saved = self.saver.saved;
        outcome.samples = self.bad_samples;
        outcome.samples.extend(self.unsolicited);
        outcome.samples.append(&mut self.slowest);
        let named = self.named.tallies.into_iter().map(NameTally::figures);
        outcome.flows = self.journeys.iter().flat_map(Journeys::figures).collect();
        outcome.by_name = self.named.names.into_iter().zip(named).collect();
        outcome
    }
}
