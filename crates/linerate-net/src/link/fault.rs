//! Faults on any link: packets are lost, delayed, duplicated, reordered or corrupted, by rates and
//! a seed, separately for each direction. For tests and for teaching. Over a link in virtual time,
//! the same seed gives the same result.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::faults::Dice;
use super::late::Late;
use super::{Checksums, Faults, Link};
use crate::{Time, Waker};

/// Bytes held back in each direction; more are dropped and counted. Reason: 64 MiB are 50 ms at 10
/// Gbit/s.
const HELD_BYTES: usize = 64 << 20;
/// Spare buffers kept for the next packets that are held back.
const SPARE: usize = 4096;
/// The longest delay. Reason: TCP gives up long before it.
const LONGEST: Duration = Duration::from_secs(60);

/// The faults of each direction. Written `loss=1%,delay=20ms,out:dup=0.5%`: see
/// [`FaultOptions::from_str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// Determines everything that is random.
    pub seed: u64,
    /// Faults of incoming packets.
    pub incoming: Faults,
    /// Faults of outgoing packets.
    pub outgoing: Faults,
}

impl Default for FaultOptions {
    fn default() -> Self {
        FaultOptions { seed: 1, incoming: Faults::default(), outgoing: Faults::default() }
    }
}

impl FaultOptions {
    /// The same faults for one of several links, with a random sequence of its own.
    pub fn for_link(self, index: usize) -> FaultOptions {
        FaultOptions { seed: self.seed.wrapping_add((index as u64) << 32), ..self }
    }
}

const EXPECTED: &str = "write for example loss=1%,dup=0.5%,reorder=1%,reorder-by=5ms,corrupt=0.01%,delay=20ms,seed=7; in: or out: \
                        before a key means packets that come in or go out alone";

/// Parses a share of 1 (`1%`, `0.5%` or `0.01`) into millionths.
fn share(text: &str) -> Option<u32> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.parse::<f64>().ok()? / unit;
    (0.0..=1.0).contains(&share).then(|| (share * 1e6).round() as u32)
}

/// Parses a time with its unit: `20ms`, `500us`, `1.5s`.
fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (time <= LONGEST).then_some(time)
}

impl FromStr for FaultOptions {
    type Err = String;

    /// Parses `KEY=VALUE,...`. A key applies to both directions unless `in:` or `out:` precedes it.
    /// The error says what would be right.
    ///
    /// - `loss`, `dup`, `reorder` and `corrupt` are shares (`1%`).
    /// - `delay` and `reorder-by` (default 1 ms) are times (`20ms`, at most 60 s).
    /// - `seed` is a number.
    fn from_str(text: &str) -> Result<FaultOptions, String> {
        let mut options = FaultOptions::default();
        for part in text.split(',').map(str::trim) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is no KEY=VALUE; {EXPECTED}"))?;
            let (both, key) = match key.split_once(':') {
                None => ([true, true], key),
                Some(("in", key)) => ([true, false], key),
                Some(("out", key)) => ([false, true], key),
                Some(_) => return Err(format!("{part:?}: a direction is in or out; {EXPECTED}")),
            };
            if key == "seed" && both == [true, true] {
                options.seed = value.parse().map_err(|_| format!("{part:?}: a seed is a whole number"))?;
                continue;
            }
            let ways = [&mut options.incoming, &mut options.outgoing];
            for (faults, _) in ways.into_iter().zip(both).filter(|(_, meant)| *meant) {
                set(faults, key, value).map_err(|why| format!("{part:?}: {why}; {EXPECTED}"))?;
            }
        }
        Ok(options)
    }
}

fn set(faults: &mut Faults, key: &str, value: &str) -> Result<(), &'static str> {
    let a_share = || share(value).ok_or("a share is between 0% and 100%");
    let a_time = || time(value).ok_or("a time has a unit, us, ms or s, and is at most 60s");
    match key {
        "loss" => faults.loss_ppm = a_share()?,
        "dup" => faults.duplicate_ppm = a_share()?,
        "reorder" => faults.reorder_ppm = a_share()?,
        "corrupt" => faults.corrupt_ppm = a_share()?,
        "delay" => faults.delay = a_time()?,
        "reorder-by" => faults.reorder_by = a_time()?,
        _ => return Err("known are loss, dup, reorder, reorder-by, corrupt, delay and seed"),
    }
    Ok(())
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Packets that reached this stage.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets held back so that others could overtake them.
    pub reordered: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets corrupted.
    pub corrupted: u64,
    /// Packets held back and then dropped: the limit was reached, or the link had no room when they
    /// were due.
    pub dropped: u64,
}

/// The faults of one direction and the packets held back in it.
struct FaultyDirection {
    faults: Faults,
    dice: Dice,
    held: Late<(IpAddr, Vec<u8>)>,
    held_bytes: usize,
    spare: Vec<Vec<u8>>,
    stats: FaultStats,
}

impl FaultyDirection {
    fn new(faults: Faults, seed: u64) -> FaultyDirection {
        FaultyDirection {
            faults,
            dice: Dice::new(seed),
            held: Late::default(),
            held_bytes: 0,
            spare: Vec::new(),
            stats: FaultStats::default(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.faults.is_nothing()
    }

    fn hold(&mut self, at: Time, to: IpAddr, packet: &[u8]) {
        if self.held_bytes + packet.len() > HELD_BYTES {
            return self.stats.dropped += 1;
        }
        self.held_bytes += packet.len();
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(packet);
        self.held.push(at, (to, buffer));
    }

    /// Decides the fate of a packet. `true`: it passes now, possibly corrupted; otherwise it is
    /// lost or held back.
    fn pass(&mut self, now: Time, to: IpAddr, packet: &mut [u8]) -> bool {
        self.stats.packets += 1;
        if self.dice.loses(&self.faults) {
            self.stats.lost += 1;
            return false;
        }
        let fate = self.dice.fate(&self.faults, packet.len());
        fate.corrupt(packet);
        self.stats.corrupted += u64::from(fate.corrupt.is_some());
        self.stats.reordered += u64::from(fate.later.is_some());
        self.stats.duplicated += u64::from(fate.copy.is_some());
        let after = self.faults.delay + fate.later.unwrap_or_default();
        if let Some(later) = fate.copy {
            self.hold(now + after + later, to, packet);
        }
        if after.is_zero() {
            return true;
        }
        self.hold(now + after, to, packet);
        false
    }

    fn due(&mut self, now: Time) -> Option<(IpAddr, Vec<u8>)> {
        let (to, packet) = self.held.pop(now)?;
        self.held_bytes -= packet.len();
        Some((to, packet))
    }

    fn give_back(&mut self, packet: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(packet);
        }
    }
}

/// A link with faults. Without any it passes every packet on.
pub struct FaultyLink<L> {
    link: L,
    incoming: FaultyDirection,
    outgoing: FaultyDirection,
    scratch: Vec<u8>,
}

impl<L: fmt::Debug> fmt::Debug for FaultyLink<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<L: Link> FaultyLink<L> {
    /// Puts these faults on a link.
    pub fn new(link: L, options: FaultOptions) -> FaultyLink<L> {
        FaultyLink {
            link,
            incoming: FaultyDirection::new(options.incoming, options.seed),
            // A different random sequence, so that both directions do not lose the same packets.
            outgoing: FaultyDirection::new(options.outgoing, options.seed ^ 0x5555_5555_5555_5555),
            scratch: Vec::new(),
        }
    }

    /// The link below.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The link below, mutable.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Counters of the incoming and the outgoing direction.
    pub fn stats(&self) -> (FaultStats, FaultStats) {
        (self.incoming.stats, self.outgoing.stats)
    }

    /// Sends the packets whose delay is over.
    fn release(&mut self) {
        if self.outgoing.held.next().is_none() {
            return;
        }
        let now = self.link.now();
        while let Some((to, packet)) = self.outgoing.due(now) {
            let sent = self.link.transmit(to, packet.len(), |at| at.copy_from_slice(&packet));
            self.outgoing.stats.dropped += u64::from(!sent);
            self.outgoing.give_back(packet);
        }
    }
}

impl<L: Link> Link for FaultyLink<L> {
    fn now(&mut self) -> Time {
        self.link.now()
    }

    fn now_anew(&mut self) -> Time {
        self.link.now_anew()
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let way = &mut self.incoming;
        if way.is_nothing() {
            return self.link.receive(max, take);
        }
        const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let now = self.link.now();
        let mut count = 0;
        while count < max
            && let Some((_, mut packet)) = way.due(now)
        {
            take(&mut packet);
            way.give_back(packet);
            count += 1;
        }
        // Lost and held packets count too: they were taken from the link.
        count
            + self.link.receive(max - count, |packet| {
                if way.pass(now, NOBODY, packet) {
                    take(packet);
                }
            })
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.outgoing.is_nothing() {
            return self.link.transmit(to, len, fill);
        }
        let now = self.link.now();
        let mut packet = std::mem::take(&mut self.scratch);
        packet.clear();
        packet.resize(len, 0);
        fill(&mut packet);
        let sent = !self.outgoing.pass(now, to, &mut packet)
            || self.link.transmit(to, len, |at| at.copy_from_slice(&packet));
        self.scratch = packet;
        sent
    }

    fn has_room(&mut self) -> bool {
        self.link.has_room()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.release();
        self.link.flush()
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.release();
        let held = [self.incoming.held.next(), self.outgoing.held.next()];
        let until = held.into_iter().flatten().chain(until).min();
        let woken = self.link.wait(until)?;
        if self.outgoing.held.next().is_some() {
            self.flush()?;
        }
        Ok(woken)
    }

    fn waker(&self) -> Waker {
        self.link.waker()
    }

    fn mtu(&mut self, to: IpAddr) -> usize {
        self.link.mtu(to)
    }

    fn expect_flood(&mut self) {
        self.link.expect_flood();
    }

    fn overrun(&self) -> u64 {
        self.link.overrun()
    }

    fn too_large(&self) -> u64 {
        self.link.too_large()
    }

    fn news(&mut self) -> Option<String> {
        self.link.news()
    }

    fn checksums(&self) -> Checksums {
        self.link.checksums()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::sim::{Sim, SimEnd, SimOptions};

    const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn what_is_written_is_what_is_meant() {
        let options: FaultOptions =
            "loss=1%,dup=0.5%,in:reorder=2%,out:delay=20ms,corrupt=0.0001,reorder-by=500us,seed=7"
                .parse()
                .expect("good");
        let common = Faults {
            loss_ppm: 10_000,
            duplicate_ppm: 5_000,
            corrupt_ppm: 100,
            reorder_by: Duration::from_micros(500),
            ..Faults::default()
        };
        let expected = FaultOptions {
            seed: 7,
            incoming: Faults { reorder_ppm: 20_000, ..common },
            outgoing: Faults { delay: Duration::from_millis(20), ..common },
        };
        assert_eq!(options, expected);
        for bad in [
            "",
            "loss",
            "loss=2",
            "loss=-1%",
            "loss=x",
            "delay=20",
            "delay=2h",
            "delay=61s",
            "up:loss=1%",
            "gain=1%",
            "seed=x",
            "in:seed=1",
            "delay=1e3s",
        ] {
            let said = bad.parse::<FaultOptions>().expect_err(bad);
            assert!(said.contains("loss=1%") || said.contains("whole number"), "{bad}: {said}");
        }
    }

    fn faulty(text: &str) -> FaultyLink<SimEnd> {
        let sim =
            Sim::alone(SimOptions { delay: Duration::ZERO, ..SimOptions::default() }).expect("a descriptor");
        FaultyLink::new(sim, text.parse().expect("good"))
    }

    /// Sends `count` numbered packets; returns number and time (us) of those that come back within
    /// a second.
    fn sent(link: &mut FaultyLink<SimEnd>, count: u8) -> Vec<(u8, u64)> {
        let begun = link.now();
        for n in 0..count {
            assert!(link.transmit(TO, 20, |packet| packet.fill(n)));
        }
        link.flush().expect("sent");
        let mut came = Vec::new();
        while link.now() < begun + Duration::from_secs(1) {
            link.wait(Some(begun + Duration::from_secs(1))).expect("waited");
            let now = link.now();
            link.receive(usize::MAX, |packet| came.push((packet[0], now.nanos_since(begun) / 1000)));
        }
        came
    }

    #[test]
    fn without_faults_all_passes_at_once() {
        let came = sent(&mut faulty("loss=0%"), 5);
        assert_eq!(came, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
    }

    #[test]
    fn delays_of_both_directions_add_up_and_keep_the_order() {
        let came = sent(&mut faulty("in:delay=3ms,out:delay=4ms"), 3);
        assert_eq!(came, [(0, 7000), (1, 7000), (2, 7000)]);
    }

    #[test]
    fn packets_are_lost_doubled_and_overtaken_as_asked_and_the_same_again() {
        let run = |text: &str| {
            let mut link = faulty(text);
            let came = sent(&mut link, 200);
            (came, link.stats())
        };
        let (came, (_, out)) = run("out:loss=20%");
        assert_eq!((out.packets, out.lost + came.len() as u64), (200, 200));
        assert!(out.lost > 10, "{out:?}");
        assert_eq!(run("out:loss=20%").0, came, "the same seed");
        assert_ne!(run("out:loss=20%,seed=2").0, came, "another seed");
        let (came, (into, out)) = run("in:dup=20%");
        assert_eq!(came.len() as u64, 200 + into.duplicated);
        assert_eq!(out.packets, 0, "the other direction has none");
        let (came, (_, out)) = run("out:reorder=20%");
        assert_eq!(came.len(), 200);
        assert!(out.reordered > 10 && !came.iter().map(|(n, _)| n).is_sorted());
        let (came, (into, _)) = run("in:corrupt=100%");
        assert_eq!((came.len(), into.corrupted), (200, 200));
    }
}
