//! Calls that are watched without end: windows, and what is forgotten between them.

use super::*;
use crate::passive::live::LiveWindow;
use crate::passive::words::{self, PassiveVerdict};
use crate::passive::{ClientProcess, limits};

const SECOND: i64 = 1_000_000;

/// A wire whose windows end when the test says so.
fn live() -> Wire {
    Wire { ends_windows: false, ..Wire::new() }
}

impl Wire {
    /// A call on a connection of its own, which the server answers after `think_us`.
    fn short(&mut self, at_us: i64, port: u16, think_us: i64) {
        self.opens(at_us, port, 100);
        self.asks(at_us + 200, port, 0);
        self.answers(at_us + 200 + think_us, port, 0);
        let [asked, answered] = [1_000 + REQUEST.len() as u32, 5_000 + ANSWER.len() as u32];
        self.segment(at_us + 300 + think_us, (false, port), FIN | ACK, [answered, asked], 509, b"");
        self.segment(at_us + 400 + think_us, (true, port), FIN | ACK, [asked, answered + 1], 502, b"");
        self.segment(at_us + 500 + think_us, (false, port), ACK, [answered + 1, asked + 1], 509, b"");
    }

    fn ends(&mut self, at_us: i64) -> LiveWindow {
        self.live.sweep(Wire::time(at_us));
        self.live.end_window(Wire::time(at_us))
    }
}

#[test]
fn each_window_has_a_verdict_and_the_sum_has_one_too() {
    let mut wire = live();
    for (i, port) in (40_000..40_010).enumerate() {
        wire.short(i as i64 * 50_000, port, 20_000);
    }
    let slow = wire.ends(SECOND);
    assert_eq!((slow.verdict(), slow.seen.sums.answered), (PassiveVerdict::Caused, 10));
    assert_eq!(slow.servers.len(), 1);
    assert_eq!(slow.servers[0].findings[0].cause.id, "server-think");
    for (i, port) in (40_010..40_040).enumerate() {
        wire.short(SECOND + i as i64 * 20_000, port, 200);
    }
    let quick = wire.ends(2 * SECOND);
    assert_eq!((quick.verdict(), quick.seen.sums.answered), (PassiveVerdict::Healthy, 30));
    assert_eq!(quick.seen.packets.all, 30 * 8);
    let nothing = wire.ends(3 * SECOND);
    assert_eq!((nothing.verdict(), nothing.servers.len()), (PassiveVerdict::Inconclusive, 0));
    assert_eq!(wire.live.so_far().seen.sums.answered, 40);
    // Connections are forgotten in another order than they are in a capture that is read whole.
    let (whole, sum) = (wire.observer.finish(), wire.live.finish());
    assert_eq!(format!("{:?}", sum.sums), format!("{:?}", whole.sums));
    assert_eq!(ids(&sum), ids(&whole));
}

#[test]
fn connections_that_have_ended_are_forgotten() {
    let mut wire = live();
    for second in 0..40 {
        let ports = 20_000 + 100 * second as u16..;
        for (i, port) in ports.take(100).enumerate() {
            wire.short(second * SECOND + i as i64 * 5_000, port, 100);
        }
        let window = wire.ends((second + 1) * SECOND);
        assert!(window.open <= 200, "{} are kept", window.open);
    }
    wire.opens(41 * SECOND, 30_000, 100);
    assert_eq!(wire.ends(43 * SECOND).open, 1, "it may go on");
    assert_eq!(wire.ends(700 * SECOND).open, 0, "it was idle for long");
    let seen = wire.live.finish();
    assert_eq!((seen.sums.connections, seen.sums.answered, seen.sums.evicted), (4_001, 4_000, 0));
}

#[test]
fn a_call_that_waits_is_told_and_counts_where_it_ends() {
    let mut wire = live();
    wire.opens(0, 40_000, 100);
    wire.asks(1_000, 40_000, 0);
    let first = wire.ends(2 * SECOND);
    assert_eq!(
        (first.waiting.calls, first.waiting.oldest_ns / 1_000, first.seen.sums.answered),
        (1, 1_999_000, 0),
        "{first:?}"
    );
    let silent = wire.ends(3 * SECOND);
    assert_eq!(silent.servers[0].waiting.calls, 1, "it is listed though nothing came");
    wire.answers(3 * SECOND, 40_000, 0);
    let second = wire.ends(4 * SECOND);
    assert_eq!((second.waiting.calls, second.seen.sums.answered), (0, 1));
    assert_eq!(second.seen.slowest[0].total_ns / 1_000, 3 * SECOND - 1_000 + 101);
}

#[test]
fn a_server_that_is_not_there_is_told_while_it_is_watched() {
    let mut wire = live();
    for at in [0, 1, 3] {
        wire.segment(at * SECOND, (true, 40_000), SYN, [999, 0], 64_240, b"");
    }
    let ids = |window: &LiveWindow| window.findings.iter().map(|f| f.cause.id).collect::<Vec<_>>();
    assert_eq!(ids(&wire.ends(5 * SECOND)), Vec::<&str>::new(), "the next SYN may be answered");
    assert_eq!(ids(&wire.ends(13 * SECOND)), ["syn-loss"]);
}

fn brief(clients: &[ClientProcess]) -> Vec<(Option<u32>, u64, u64)> {
    clients.iter().map(|c| (c.pid, c.calls, c.assumed)).collect()
}

#[test]
fn calls_belong_to_the_process_that_has_the_connection() {
    let mut wire = live();
    wire.opens(0, 40_000, 100);
    wire.opens(1_000, 40_001, 100);
    for n in 0..3 {
        wire.asks(10_000 + i64::from(n) * 10_000, 40_000, n);
        wire.answers(11_000 + i64::from(n) * 10_000, 40_000, n);
    }
    let ends = wire.live.unowned();
    assert_eq!(ends.len(), 2);
    // Calls before the sockets were looked up count as well.
    ends.iter().for_each(|(client, server)| {
        wire.live.owned(*client, *server, client.port().into());
    });
    assert!(wire.live.unowned().is_empty());
    wire.asks(50_000, 40_001, 0);
    wire.answers(51_000, 40_001, 0);
    wire.short(60_000, 40_002, 100);
    let window = wire.ends(SECOND);
    // Two processes have the address: whose the third connection was is not known.
    let clients = &window.servers[0].clients;
    assert_eq!(brief(clients), [(Some(40_000), 3, 0), (None, 1, 0), (Some(40_001), 1, 0)]);
    wire.asks(SECOND + 50_000, 40_001, 1);
    wire.answers(SECOND + 51_000, 40_001, 1);
    wire.short(SECOND + 60_000, 40_003, 100);
    let window = wire.ends(2 * SECOND);
    assert_eq!(brief(&window.servers[0].clients), [(Some(40_001), 2, 1)], "no other was seen");
}

#[test]
fn what_was_dropped_makes_the_next_window_doubtful_too() {
    let mut wire = live();
    wire.live.dropped(50);
    wire.ends(SECOND);
    let mut slow = |second: i64| {
        for (i, port) in (40_000..40_010).enumerate() {
            wire.short(second * SECOND + i as i64 * 50_000, port + second as u16 * 10, 20_000);
        }
        let window = wire.ends((second + 1) * SECOND);
        (window.verdict(), window.seen.packets.dropped)
    };
    assert_eq!(slow(1), (PassiveVerdict::Inconclusive, 0));
    assert_eq!(slow(2), (PassiveVerdict::Caused, 0));
}

#[test]
fn tables_that_are_full_are_told() {
    let mut wire = live();
    for server in 0..limits::SERVERS as u16 + 8 {
        wire.server = 8_000 + server;
        wire.short(i64::from(server) * 1_000, 40_000, 100);
    }
    let window = wire.ends(SECOND);
    assert_eq!((window.servers.len(), window.seen.left_out.servers), (limits::SERVERS + 1, 8));
    let told = words::limits(&window.seen);
    assert!(told.iter().any(|text| text.contains("beyond the first 32")), "{told:?}");
}
