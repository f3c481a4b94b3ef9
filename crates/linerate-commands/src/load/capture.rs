//! `--capture auto`: the segments of our connections, counted one by one beside the run. What counts is pure; a thread takes the packets.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_explain::passive::packet::flag;
use linerate_explain::passive::{LinkType, Marks, Packet, RemarkedSegment, Tally, Traced};
use linerate_load::outcome::{
    CapturedPacket, FineSample, FineSegments, Interval, SegmentCounts, SegmentEvent, Segments,
};
use linerate_load::{Outcome, Plan, Snapshot};
use linerate_net::capture::{Capture, CaptureError, CaptureOptions, interface_towards};

use crate::fault::{CommandFault, said};

/// Bytes kept of each packet. Reason: an IPv6 header with some extensions and a TCP header with all its options are no longer.
const SNAP: u32 = 160;
/// Longest wait for packets before the order to end is looked at.
const WAIT: Duration = Duration::from_millis(20);
/// How long packets are taken after the end. Reason: the kernel hands over those it has within 10 ms; others may keep the port busy.
const LATE: Duration = Duration::from_millis(500);
/// Seconds kept one by one; beyond, pairs are merged, as in the series. Reason: a week must not grow memory.
const SECONDS: usize = 4096;
/// Milliseconds kept one by one. Reason: a run of 16 s, in 3 MB; the steps of longer ones are of 100 ms.
const MILLISECONDS: usize = 16_384;

/// Packets kept of the first connection. Reason: handshake, slow start and some requests, on one page.
const TRACED: usize = 60;

/// The events that a capture tells, and its marks for them.
const EVENTS: [(SegmentEvent, Marks); SegmentEvent::ALL.len()] = [
    (SegmentEvent::Retransmission, Marks::RETRANSMISSION),
    (SegmentEvent::FastRetransmission, Marks::FAST_RETRANSMISSION),
    (SegmentEvent::SpuriousRetransmission, Marks::SPURIOUS_RETRANSMISSION),
    (SegmentEvent::DuplicateAck, Marks::DUPLICATE_ACK),
    (SegmentEvent::OutOfOrder, Marks::OUT_OF_ORDER),
    (SegmentEvent::ZeroWindow, Marks::ZERO_WINDOW),
    (SegmentEvent::ZeroWindowProbe, Marks::ZERO_WINDOW_PROBE),
    (SegmentEvent::WindowFull, Marks::WINDOW_FULL),
];

/// Packets of our connections are kept by the kernel from now on.
pub(super) struct Opened {
    capture: Capture,
    servers: Vec<SocketAddr>,
}

/// Begins to capture the packets of a plan's connections; why that cannot be, in words.
pub(super) fn open(plan: &Plan) -> Result<Opened, String> {
    if plan.route.unix.is_some() {
        return Err("a Unix socket has none".to_owned());
    }
    let servers = plan.all_addresses();
    let Some(first) = servers.first() else { return Err("there is no target".to_owned()) };
    let towards = interface_towards(first.ip());
    let elsewhere = |ip: IpAddr| ip != first.ip() && interface_towards(ip) != towards;
    if let Some(other) = servers.iter().find(|server| elsewhere(server.ip())) {
        return Err(format!("{first} and {other} are reached through different interfaces"));
    }
    // One port can be chosen by the kernel; of several, all packets pass the filter.
    let port = servers.iter().all(|s| s.port() == first.port()).then_some(first.port());
    let options =
        CaptureOptions { towards: Some(first.ip()), port, snap: Some(SNAP), ..CaptureOptions::default() };
    match Capture::open(&options) {
        Ok(capture) => Ok(Opened { capture, servers }),
        Err(e @ CaptureError::NotPermitted) => Err(format!(
            "{e} (root has it; so has a program after: sudo setcap cap_net_raw+ep $(command -v linerate))"
        )),
        Err(e) => Err(e.to_string()),
    }
}

/// Segments of a run, part by part.
#[derive(Debug)]
struct SegmentParts {
    unit: Duration,
    /// Units in each part.
    width: usize,
    /// Parts that are kept.
    most: usize,
    parts: Vec<Segments>,
}

impl SegmentParts {
    fn new(unit: Duration, most: usize) -> SegmentParts {
        SegmentParts { unit, width: 1, most, parts: Vec::new() }
    }

    /// The part that this time since the beginning belongs to.
    fn at(&mut self, since: Duration) -> Option<&mut Segments> {
        let unit = usize::try_from(since.as_nanos() / self.unit.as_nanos()).ok()?;
        while unit / self.width >= self.most {
            let merged = self.parts.chunks(2).map(|pair| {
                pair.iter().fold(nothing(), |mut sum, part| {
                    sum.merge(part);
                    sum
                })
            });
            self.parts = merged.collect();
            self.width *= 2;
        }
        let part = unit / self.width;
        if self.parts.len() <= part {
            self.parts.resize_with(part + 1, nothing);
        }
        Some(&mut self.parts[part])
    }
}

/// Segments of a run.
#[derive(Debug)]
struct Seconds {
    /// When measuring begins, nanoseconds since 1970; what came before is not counted.
    from_ns: i64,
    seconds: SegmentParts,
    fine: SegmentParts,
    all: Segments,
    /// The client's end of the first connection that was opened, and its first packets.
    first: Option<SocketAddr>,
    packets: Vec<Traced>,
}

impl Seconds {
    fn new(from: SystemTime) -> Seconds {
        let since = from.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Seconds {
            from_ns: i64::try_from(since).unwrap_or(i64::MAX),
            seconds: SegmentParts::new(Duration::from_secs(1), SECONDS),
            fine: SegmentParts::new(Duration::from_millis(1), MILLISECONDS),
            all: nothing(),
            first: None,
            packets: Vec::new(),
        }
    }

    /// Keeps it if it is one of the first connection's first ones. Connections open before measuring begins.
    fn trace(&mut self, told: &RemarkedSegment) {
        let opens = told.segment.from_client && told.segment.flags & flag::SYN != 0;
        if self.first.is_none() && opens {
            self.first = Some(told.client);
        }
        if self.first == Some(told.client) && self.packets.len() < TRACED {
            self.packets.push(told.segment);
        }
    }

    /// What was kept of the first connection.
    fn first_connection(&self) -> Vec<CapturedPacket> {
        let begin = self.packets.first().map_or(0, |packet| packet.time_ns);
        let names = |marks: Marks| {
            let given = Marks::ALL.into_iter().filter(move |(mark, ..)| marks.has(*mark));
            given.map(|(_, name, _)| name.to_owned()).collect()
        };
        let packet = |p: &Traced| CapturedPacket {
            at_ns: u64::try_from(p.time_ns - begin).unwrap_or(0),
            from_server: !p.from_client,
            flags: p.flags,
            seq: p.seq,
            ack: p.ack,
            bytes: p.len,
            window: p.window,
            marks: names(p.marks),
        };
        self.packets.iter().map(packet).collect()
    }

    /// The parts and the sum that a time belongs to.
    fn at(&mut self, time_ns: i64) -> Option<[&mut Segments; 3]> {
        let since = Duration::from_nanos(u64::try_from(time_ns.checked_sub(self.from_ns)?).ok()?);
        Some([self.seconds.at(since)?, self.fine.at(since)?, &mut self.all])
    }

    fn count(&mut self, told: &RemarkedSegment) {
        self.trace(told);
        let Traced { time_ns, from_client, marks, .. } = told.segment;
        for segments in self.at(time_ns).into_iter().flatten() {
            let counts = if from_client { &mut segments.sent } else { &mut segments.received };
            counts.segments += 1;
            for (event, mark) in EVENTS.iter().filter(|_| !marks.is_empty()) {
                counts.add(*event, u64::from(marks.has(*mark)));
            }
        }
    }

    /// Packets that found no room in the capture's buffer.
    fn missed(&mut self, time_ns: i64, packets: u64) {
        for segments in self.at(time_ns).into_iter().flatten() {
            segments.missed += packets;
        }
    }

    /// Puts each part into the interval that it ends in.
    fn join(&self, series: &mut [Interval]) {
        let SegmentParts { width, parts, .. } = &self.seconds;
        let mut parts = parts.iter().enumerate().peekable();
        let intervals = series.len();
        for (at, interval) in series.iter_mut().enumerate() {
            let mut sum = nothing();
            // Ends are whole seconds, but for the last one; a thousandth is more than rounding takes.
            let is_last = at + 1 == intervals;
            let ends_in = |i: usize| {
                let (begin, end) = ((i * width) as f64, ((i + 1) * width) as f64);
                end <= interval.t_s + 1e-3 || (is_last && begin < interval.t_s - 1e-3)
            };
            while let Some((_, part)) = parts.next_if(|(i, _)| ends_in(*i)) {
                sum.merge(part);
            }
            interval.segments = Some(sum);
        }
    }

    /// Puts each part into the step that its middle is in, and all that came later into the last one.
    fn join_fine(&self, series: &mut [FineSample]) {
        let SegmentParts { unit, width, parts, .. } = &self.fine;
        let width = unit.as_secs_f64() * *width as f64;
        let mut parts = parts.iter().enumerate().peekable();
        let steps = series.len();
        for (at, step) in series.iter_mut().enumerate() {
            let mut sum = nothing();
            let is_in = |i: usize| at + 1 == steps || (i as f64 + 0.5) * width <= step.t_s;
            while let Some((_, part)) = parts.next_if(|(i, _)| is_in(*i)) {
                sum.merge(part);
            }
            step.segments = Some(FineSegments::of(&sum));
        }
    }
}

fn nothing() -> Segments {
    Segments { sent: SegmentCounts::nothing(), received: SegmentCounts::nothing(), missed: 0 }
}

/// What a capture has counted so far, for any thread.
#[derive(Clone)]
pub(super) struct Counted(Arc<Mutex<Seconds>>);

/// A capture beside a run.
pub(super) struct Counting {
    counted: Counted,
    done: Arc<AtomicBool>,
    thread: JoinHandle<Option<String>>,
}

impl Counted {
    fn locked(&self) -> MutexGuard<'_, Seconds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was counted so far.
    pub(super) fn show_in(&self, snapshot: &mut Snapshot) {
        let seconds = self.locked();
        seconds.join(&mut snapshot.series);
        snapshot.segments = Some(seconds.all);
    }
}

impl Opened {
    /// Counts from now on; what is counted in the results begins at `from`.
    pub(super) fn count(self, from: SystemTime) -> Result<Counting, CommandFault> {
        let counted = Counted(Arc::new(Mutex::new(Seconds::new(from))));
        let done = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (counted.clone(), Arc::clone(&done));
        let thread = thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || take(self, &shared, &ended))
            .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?;
        Ok(Counting { counted, done, thread })
    }
}

/// Takes packets to the end; why it ended early.
fn take(opened: Opened, counted: &Counted, done: &AtomicBool) -> Option<String> {
    let Opened { mut capture, servers } = opened;
    let mut tally = Tally::new(&servers);
    let mut told: Vec<RemarkedSegment> = Vec::new();
    let mut ended: Option<Instant> = None;
    loop {
        if ended.is_none() && done.load(Ordering::Relaxed) {
            ended = Some(Instant::now());
        }
        let taken = capture.next(WAIT, |p| {
            let link = LinkType::Raw;
            told.extend(tally.packet(&Packet {
                time_ns: p.time_ns,
                link,
                data: p.data,
                wire_len: p.wire_len,
            }));
        });
        let dropped = capture.dropped();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        {
            let mut seconds = counted.locked();
            told.drain(..).for_each(|told| seconds.count(&told));
            if dropped > 0 {
                seconds.missed(i64::try_from(now).unwrap_or(i64::MAX), dropped);
            }
        }
        match (taken, ended) {
            (Err(e), _) => return Some(format!("segments were counted in part only: {}", said(&e))),
            (Ok(0), Some(_)) => return None,
            (Ok(_), Some(since)) if since.elapsed() > LATE => return None,
            (Ok(_), _) => {}
        }
    }
}

impl Counting {
    /// What it has counted so far.
    pub(super) fn counted(&self) -> &Counted {
        &self.counted
    }

    /// Takes the last packets, and adds all to the results.
    pub(super) fn finish(self, outcome: &mut Outcome) {
        self.done.store(true, Ordering::Relaxed);
        let trouble =
            self.thread.join().unwrap_or_else(|_| Some("the thread that captured panicked".to_owned()));
        outcome.warnings.extend(trouble);
        let seconds = self.counted.locked();
        seconds.join(&mut outcome.series);
        seconds.join_fine(&mut outcome.series_fine);
        outcome.tcp.segments = Some(seconds.all);
        outcome.first_connection = seconds.first_connection();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(at_ms: i64, from_server: bool, marks: Marks) -> RemarkedSegment {
        let segment = Traced {
            time_ns: 1_000_000_000_000 + at_ms * 1_000_000,
            from_client: !from_server,
            flags: flag::ACK,
            seq: 1,
            ack: 1,
            len: 0,
            window: 500,
            marks,
        };
        RemarkedSegment { client: ([127, 0, 0, 1], 5000).into(), segment }
    }

    fn seconds() -> Seconds {
        Seconds::new(UNIX_EPOCH + Duration::from_secs(1000))
    }

    fn series(ends: impl IntoIterator<Item = u32>) -> Vec<Interval> {
        ends.into_iter().map(|t| Interval { t_s: f64::from(t), ..Interval::default() }).collect()
    }

    #[test]
    fn each_segment_is_in_its_second_and_in_the_sum() {
        let mut counted = seconds();
        for told in [
            told(-1, true, Marks::ZERO_WINDOW),
            told(0, false, Marks::default()),
            told(999, true, Marks::ZERO_WINDOW),
            told(1000, true, Marks::ZERO_WINDOW),
            told(2500, false, Marks::RETRANSMISSION),
            told(3500, false, Marks::RETRANSMISSION),
        ] {
            counted.count(&told);
        }
        counted.missed(1_001_000_000_000, 5);
        let mut series = series(1..=3);
        counted.join(&mut series);
        let of = |i: usize| series[i].segments.expect("counted");
        assert_eq!((of(0).sent.segments, of(0).received.of(SegmentEvent::ZeroWindow)), (1, Some(1)));
        assert_eq!((of(1).received.segments, of(1).missed), (1, 5));
        assert_eq!(of(2).sent.of(SegmentEvent::Retransmission), Some(1));
        assert_eq!(of(2).received.of(SegmentEvent::DuplicateAck), Some(0), "counted, and none");
        assert_eq!(
            counted.all.sent.of(SegmentEvent::Retransmission),
            Some(2),
            "also behind the last interval"
        );
        assert_eq!((counted.all.received.segments, counted.all.missed), (2, 5), "and nothing of the warm-up");
        // A run may end within a second.
        let mut ended = self::series([1, 2]);
        ended.push(Interval { t_s: 2.6, ..Interval::default() });
        counted.join(&mut ended);
        let of_the_rest = ended[2].segments.expect("counted");
        assert_eq!(of_the_rest.sent.of(SegmentEvent::Retransmission), Some(1));
    }

    /// It is kept from its SYN on, before measuring begins, and others are not.
    #[test]
    fn the_first_connection_is_kept_packet_by_packet() {
        let mut counted = seconds();
        let of = |port: u16, at_ms: i64, flags: u8| {
            let told = told(at_ms, false, Marks::default());
            RemarkedSegment {
                client: ([127, 0, 0, 1], port).into(),
                segment: Traced { flags, ..told.segment },
            }
        };
        // One that was open before.
        counted.count(&of(4000, -9, flag::ACK));
        counted.count(&of(5000, -3, flag::SYN));
        counted.count(&of(6000, -2, flag::SYN));
        counted.count(&told(2, true, Marks::DUPLICATE_ACK));
        let kept = counted.first_connection();
        assert_eq!(kept.iter().map(|p| p.at_ns).collect::<Vec<_>>(), [0, 5_000_000]);
        assert!(kept[1].from_server && kept[1].marks == ["duplicate_ack"], "{kept:?}");
        (0..1000).for_each(|at| counted.count(&told(at, false, Marks::default())));
        assert_eq!(counted.first_connection().len(), TRACED);
    }

    #[test]
    fn small_steps_have_what_the_run_has() {
        let mut counted = seconds();
        for (at_ms, marks) in [
            (-1, Marks::DUPLICATE_ACK),
            (3, Marks::DUPLICATE_ACK),
            (9, Marks::WINDOW_FULL),
            (10, Marks::ZERO_WINDOW),
            (29, Marks::RETRANSMISSION),
            (31, Marks::DUPLICATE_ACK),
        ] {
            counted.count(&told(at_ms, at_ms % 2 == 0, marks));
        }
        let mut series = [0.01, 0.02, 0.03].map(|t_s| FineSample { t_s, ..FineSample::default() });
        counted.join_fine(&mut series);
        let of = |i: usize| series[i].segments.expect("counted");
        assert_eq!((of(0).duplicate_acks, of(0).windows_full, of(0).zero_windows), (1, 1, 0));
        assert_eq!(of(1), FineSegments { zero_windows: 1, ..FineSegments::default() });
        // The last one also has what came behind it.
        assert_eq!((of(2).retransmissions, of(2).duplicate_acks), (1, 1));
        let all = FineSegments::of(&counted.all);
        assert_eq!((all.duplicate_acks, all.retransmissions), (2, 1));
    }

    #[test]
    fn long_runs_and_jumping_clocks_are_bounded() {
        let mut counted = seconds();
        for second in [0, 1, 2, 4095, 4096, 3 * 4096, 400_000_000] {
            counted.count(&told(second * 1000, false, Marks::default()));
        }
        assert!(counted.seconds.parts.len() <= SECONDS && counted.fine.parts.len() <= MILLISECONDS);
        assert_eq!(counted.seconds.parts.iter().map(|part| part.sent.segments).sum::<u64>(), 7);

        // Where pairs of the series were merged, several parts are in an interval.
        let mut counted = seconds();
        (0..4).for_each(|second| counted.count(&told(second * 1000, false, Marks::default())));
        let mut series = series([2, 4]);
        counted.join(&mut series);
        assert!(series.iter().all(|i| i.segments.is_some_and(|s| s.sent.segments == 2)));
    }
}
