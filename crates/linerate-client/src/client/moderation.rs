//! When responses may collect before they are read, as a network card lets packets collect before it interrupts. A
//! server that answers every few microseconds would have each response read, and each next request sent, by system calls
//! of its own. It reads no clock.

use std::time::Duration;

use linerate_net::Time;

use super::limits::{
    COLLECT_LEAST, COLLECT_MOST, COLLECT_NOT, COLLECT_NOT_MOST, COLLECT_PART, COLLECT_RESPONSES,
};

/// How quickly responses come, and whether it is the server that they wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moderation {
    /// From one response to the next, smoothed, nanoseconds.
    each_ns: u64,
    /// When responses were read last.
    read: Time,
    /// The responses that were read last had collected.
    collected: bool,
    not_before: Time,
    /// The pause of the last time that the server had to wait.
    pause: Duration,
}

impl Moderation {
    /// So many responses were read; so many requests were in flight.
    pub(super) fn read(&mut self, responses: u32, in_flight: u32, now: Time) {
        if responses == 0 {
            return;
        }
        let each = (now - self.read).as_nanos() as u64 / u64::from(responses);
        // A pause of the program is not the server's.
        let each = each.min(COLLECT_MOST.as_nanos() as u64);
        self.each_ns = self.each_ns - self.each_ns / 8 + each / 8;
        self.read = now;
        let was_waited_for = 2 * responses > in_flight;
        if !std::mem::take(&mut self.collected) {
            return;
        }
        if was_waited_for {
            self.pause = (2 * self.pause).clamp(COLLECT_NOT, COLLECT_NOT_MOST);
            self.not_before = now + self.pause;
        } else {
            self.pause = Duration::ZERO;
        }
    }

    /// How long responses may collect from now on, if they may.
    pub(super) fn collect(&mut self, in_flight: u32, now: Time) -> Option<Duration> {
        if now < self.not_before {
            return None;
        }
        let each = Duration::from_nanos(self.each_ns);
        // How long a call is in flight, by Little's law.
        let in_flight = each.saturating_mul(in_flight);
        let time = (in_flight / COLLECT_PART).min(COLLECT_MOST);
        self.collected = time >= COLLECT_LEAST && time >= each * COLLECT_RESPONSES;
        self.collected.then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Responses that come one by one, each so long after the one before.
    fn after(each: Duration, in_flight: u32) -> (Moderation, Time) {
        let (mut moderation, mut now) = (Moderation::default(), Time::ZERO);
        for _ in 0..100 {
            now = now + each;
            moderation.read(1, in_flight, now);
        }
        (moderation, now)
    }

    fn collects(each: Duration, in_flight: u32) -> Option<Duration> {
        let (mut moderation, now) = after(each, in_flight);
        moderation.collect(in_flight, now)
    }

    #[test]
    fn responses_collect_for_an_eighth_of_the_time_that_calls_are_in_flight() {
        let time = collects(7 * US, 100).unwrap();
        assert!(time > 80 * US && time <= 88 * US, "{time:?}");
        assert_eq!(collects(7 * US, 1000), Some(COLLECT_MOST));
    }

    #[test]
    fn responses_do_not_collect_where_that_gains_nothing() {
        let few = collects(7 * US, 10);
        let quick = collects(US, 100);
        let slow = collects(200 * US, 1000);
        let rare = collects(Duration::from_millis(20), 1000);
        assert_eq!([few, quick, slow, rare], [None; 4]);
    }

    /// All responses are there each time: the server has waited for the client.
    #[test]
    fn a_client_that_the_server_waits_for_reads_at_once_and_tries_again_ever_more_rarely() {
        let (mut moderation, mut now) = after(7 * US, 100);
        let (begun, mut collected) = (now, 0);
        while now < begun + Duration::from_secs(1) {
            if let Some(time) = moderation.collect(100, now) {
                collected += 1;
                now = now + time;
            }
            now = now + 700 * US;
            moderation.read(100, 100, now);
        }
        assert!((8..20).contains(&collected), "{collected}");
        // A server that does not wait any more.
        now = now + COLLECT_NOT_MOST;
        assert!(moderation.collect(100, now).is_some());
        moderation.read(12, 100, now + 84 * US);
        assert!(moderation.collect(100, now + 84 * US).is_some());
    }
}
