//! How connections are closed.

use std::time::Duration;

use super::{Subject, pattern};
use crate::{Close, NetErrorKind, Time, Transport, TransportLimits};

pub fn the_end_comes_after_the_bytes<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for size in [0, 1, 1000, 300_000] {
        let (client, server) = bed.pair();
        let bytes = pattern(size);
        bed.net.send(client, &bytes).expect("can send");
        bed.net.close(client, Close::Now);
        bed.until("the end", |bed| bed.of(server).ended);
        assert_eq!(bed.of(server).received, bytes, "{size} bytes before the end");
        bed.net.close(server, Close::Now);
    }
}

pub fn now_sends_what_waits<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let lent = bed.net.lend(pattern(subject.bulk).into());
    bed.net.pause(server);
    bed.net.send_lent(client, lent, 0..subject.bulk).expect("can send");
    bed.net.send(client, b"and the last").expect("can send");
    bed.for_a_while(Duration::from_millis(10));
    bed.net.close(client, Close::Now);
    assert_eq!(bed.net.unsent(client), 0, "gone for the application");
    bed.net.resume(server);
    bed.until("the end", |bed| bed.of(server).ended);
    assert_eq!(bed.received(server), subject.bulk + 12);
    assert!(bed.of(server).received.ends_with(b"and the last"));
}

pub fn the_last_bytes_come_before_the_end<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for how in [Close::Now, Close::AfterPeer, Close::Lingering] {
        for size in [1, 1000, 70_000, subject.bulk] {
            let (client, server) = bed.pair();
            // Bytes sent before it may still be unsent.
            bed.net.send(client, b"first").expect("can send");
            bed.net.send_last(client, &pattern(size), how).expect("can send");
            assert_eq!(bed.net.unsent(client), 0, "gone for the application");
            bed.until("the end", |bed| bed.received(server) == size + 5 && bed.of(server).ended);
            assert!(bed.of(server).received.ends_with(&pattern(size)), "{size} bytes, {how:?}");
            bed.net.close(server, Close::Now);
        }
    }
}

/// Bytes that the application never read must not destroy a last response that had time to leave.
pub fn the_last_bytes_leave_though_something_is_unread<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.pause(client);
    bed.net.send(server, b"never read").expect("can send");
    bed.for_a_while(Duration::from_millis(20));
    bed.net.send_last(client, b"the last", Close::Lingering).expect("can send");
    bed.until("the last bytes", |bed| bed.of(server).received == b"the last");
}

pub fn after_peer_waits_for_the_peer<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.close(client, Close::AfterPeer);
    bed.for_a_while(Duration::from_millis(100));
    assert!(!bed.of(server).ended, "our FIN waits for the peer's");
    let start = bed.net.now();
    bed.net.close(server, Close::Lingering);
    // The peer answers our FIN with its own at once, so lingering ends long before its limit and
    // frees the slots.
    bed.for_a_while(Duration::from_millis(50));
    // A turn need not end when a connection does.
    let limit = start + Duration::from_millis(800);
    while bed.net.unfinished() > 0 && bed.net.now() < limit {
        bed.for_a_while(Duration::from_millis(5));
    }
    assert_eq!(bed.net.unfinished(), 0, "both are over");
    let (next, other) = bed.pair();
    assert!(next.slot() + other.slot() <= 1, "both slots are free again");

    // If the peer's FIN has come already, this is a plain close.
    bed.net.close(other, Close::Now);
    bed.until("the end", |bed| bed.of(next).ended);
    bed.net.close(next, Close::AfterPeer);
    bed.for_a_while(Duration::from_millis(20));
    assert!(bed.pair().0.slot() <= 1);
}

pub fn after_peer_does_not_wait_for_ever<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let start = bed.net.now();
    bed.net.close(client, Close::AfterPeer);
    bed.until("our FIN", |bed| bed.of(server).ended);
    let took = bed.net.now() - start;
    assert!(took >= Duration::from_millis(900), "a second: {took:?}");
    // A turn must end for it even if nothing else happens.
    bed.for_a_while(Duration::from_millis(10));
}

pub fn after_peer_sends_what_waits<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.pause(server);
    bed.net.send(client, &pattern(subject.bulk)).expect("can send");
    bed.for_a_while(Duration::from_millis(10));
    bed.net.close(client, Close::AfterPeer);
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == subject.bulk);
    bed.net.close(server, Close::Now);
    bed.for_a_while(Duration::from_millis(50));
    assert!(bed.pair().0.slot() <= 1, "the slots are free again");
}

pub fn lingering_saves_the_last_bytes<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.pause(server);
    // The client still sends after the server has closed: a plain close would send a reset.
    bed.net.send(client, &pattern(100_000)).expect("can send");
    bed.for_a_while(Duration::from_millis(10));
    let answer = pattern(300_000);
    bed.net.send(server, &answer).expect("can send");
    bed.net.close(server, Close::Lingering);
    for _ in 0..20 {
        bed.net.send(client, &pattern(10_000)).expect("the server still takes it");
        bed.for_a_while(Duration::from_millis(1));
    }
    bed.until("the end", |bed| bed.of(client).ended || bed.of(client).failed.is_some());
    assert_eq!(bed.of(client).failed, None);
    assert!(bed.of(client).received == answer);
    bed.net.close(client, Close::Now);
    bed.for_a_while(Duration::from_millis(50));
    assert!(bed.pair().0.slot() <= 1, "the slots are free again");
}

pub fn lingering_does_not_wait_for_ever<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.close(server, Close::Lingering);
    bed.until("the FIN", |bed| bed.of(client).ended);
    let start = bed.net.now();
    bed.for_a_while(Duration::from_millis(500));
    bed.net.send(client, b"still read").expect("can send");
    bed.for_a_while(Duration::from_millis(1500));
    // The server is gone, so it answers with a reset. Some transports report that only at the next
    // send.
    for _ in 0..50 {
        let gone = bed.net.send(client, b"nobody there").is_err() || bed.of(client).failed.is_some();
        if gone {
            break;
        }
        bed.for_a_while(Duration::from_millis(2));
    }
    bed.until("the reset", |bed| bed.of(client).failed.is_some());
    assert!(bed.net.now() - start >= Duration::from_secs(1));
}

pub fn lingering_does_not_read_without_end<T: Transport>(subject: &Subject<T>) {
    let limits = TransportLimits { closing_bytes: 1 << 20, ..TransportLimits::default() };
    let mut bed = subject.bed_with(limits);
    let (client, server) = bed.pair();
    let start = bed.net.now();
    bed.net.send(server, b"the last").expect("can send");
    bed.net.close(server, Close::Lingering);
    bed.until("the last bytes and the FIN", |bed| {
        bed.of(client).received == b"the last" && bed.of(client).ended
    });
    let (piece, most) = (pattern(1 << 20), 48);
    let mut sent = 0;
    while sent < most && bed.net.now() - start < Duration::from_millis(700) {
        if bed.net.unsent(client) == 0 {
            bed.net.send(client, &piece).expect("it is not closed yet");
            sent += 1;
        }
        bed.for_a_while(Duration::from_millis(1));
        let (failed, time) = (bed.of(client).failed, bed.net.now() - start);
        assert!(failed.is_none(), "{failed:?} behind {sent} pieces and {time:?}");
    }
    // The rest is what the kernel's buffers hold.
    assert!(sent < most, "all was read");
    bed.until("the reset", |bed| bed.of(client).failed.is_some());
    assert!(bed.net.now() - start >= Duration::from_secs(1), "a second to read the last bytes");
}

pub fn abort_resets<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.send(client, b"first").expect("can send");
    bed.until("the bytes", |bed| bed.received(server) == 5);
    bed.net.close(client, Close::Abort);
    bed.until("the reset", |bed| bed.of(server).failed.is_some());
    assert_eq!(bed.of(server).failed.map(|e| e.kind), Some(NetErrorKind::Reset));
    assert!(!bed.of(server).ended, "a reset is not an end");
    bed.net.close(server, Close::Now);
}

pub fn abort_with_bytes_waiting<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let lent = bed.net.lend(pattern(subject.bulk).into());
    bed.net.pause(server);
    bed.net.send_lent(client, lent, 0..subject.bulk).expect("can send");
    bed.for_a_while(Duration::from_millis(10));
    bed.net.close(client, Close::Abort);
    bed.net.resume(server);
    bed.until("the reset", |bed| bed.of(server).failed.is_some());
    assert!(bed.received(server) < subject.bulk);
    bed.net.close(server, Close::Now);
    let (again, other) = bed.pair();
    bed.net.send(again, b"next").expect("can send");
    bed.until("the next one's bytes", |bed| bed.received(other) == 4);
}

pub fn the_other_direction_works_after_the_end<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    // A lingering close sends the FIN and keeps receiving: the server sees the end and can still
    // respond.
    bed.net.send(client, b"the question").expect("can send");
    bed.net.close(client, Close::Lingering);
    bed.until("the end", |bed| bed.of(server).ended);
    assert_eq!(bed.of(server).received, b"the question");
    for _ in 0..10 {
        bed.net.send(server, &pattern(10_000)).expect("the other direction is open");
        bed.for_a_while(Duration::from_millis(1));
    }
    assert_eq!(bed.of(server).failed, None);
    assert_eq!(bed.net.unsent(server), 0);
    bed.net.close(server, Close::Now);
}

pub fn sending_to_one_that_is_gone_fails<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.close(server, Close::Now);
    bed.until("the end", |bed| bed.of(client).ended);
    let mut told = false;
    for _ in 0..50 {
        // The peer answers the first send with a reset and the next sends fail. None may end the
        // process by SIGPIPE.
        told |= bed.net.send(client, b"anybody?").is_err();
        bed.for_a_while(Duration::from_millis(1));
        told |= bed.of(client).failed.is_some();
    }
    assert!(told, "it is told that nobody is there");
    bed.net.close(client, Close::Now);
}

pub fn bytes_before_a_reset_are_not_reordered<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for _ in 0..20 {
        let (client, server) = bed.pair();
        let bytes = pattern(50_000);
        bed.net.send(client, &bytes).expect("can send");
        bed.turn(Time::ZERO);
        bed.net.close(client, Close::Abort);
        bed.until("the reset", |bed| bed.of(server).failed.is_some());
        assert!(bytes.starts_with(&bed.of(server).received), "a beginning of what was sent");
        bed.net.close(server, Close::Now);
    }
}

pub fn a_reset_behind_the_bytes_is_told<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    // The bytes beyond the peer's first window are still unsent, and a reset by the kernel would destroy
    // it.
    for size in [1, 1000, 50_000] {
        let (client, server) = bed.pair();
        bed.net.pause(server);
        bed.net.send(client, b"a question nobody reads").expect("can send");
        bed.for_a_while(Duration::from_millis(2));
        // As a server that responds to one pipelined request and closes with the next ones unread.
        let answer = pattern(size);
        bed.net.send(server, &answer).expect("can send");
        bed.net.close(server, Close::Now);
        bed.until("the reset", |bed| bed.of(client).failed.is_some());
        assert_eq!(bed.of(client).failed.map(|e| e.kind), Some(NetErrorKind::Reset));
        assert_eq!(bed.of(client).failures, 1, "said once");
        assert_eq!(bed.received(client), size, "what was said before is not lost");
        assert!(bed.of(client).received == answer);
        bed.net.close(client, Close::Now);
    }
}

/// As a server that stops reading because the client does not take its response, just when the
/// client goes.
pub fn a_reset_is_told_though_nothing_is_read<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for turns in 0..12 {
        let (client, server) = bed.pair();
        bed.net.send(client, b"a question").expect("can send");
        bed.until("the question", |bed| bed.received(server) == 10);
        bed.net.pause(client);
        bed.net.send(server, &pattern(subject.bulk)).expect("can send");
        for _ in 0..turns % 4 {
            bed.turn(Time::ZERO);
        }
        bed.net.close(client, Close::Abort);
        for _ in 0..turns / 4 {
            bed.turn(Time::ZERO);
        }
        bed.net.pause(server);
        bed.until("the reset", |bed| bed.of(server).failed.is_some());
        bed.net.close(server, Close::Now);
    }
}

pub fn closing_while_connecting<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let ways = [Close::Now, Close::AfterPeer, Close::Lingering, Close::Abort];
    for how in ways.into_iter().cycle().take(40) {
        let client = bed.connect();
        if how != Close::Now {
            bed.net.send(client, b"never mind").expect("can send");
        }
        bed.net.close(client, how);
        bed.turn(Time::ZERO);
        assert_eq!(bed.of(client).connected, 0);
    }
    bed.for_a_while(Duration::from_millis(20));
    let before = bed.accepted.len();
    let last = bed.connect();
    bed.net.send(last, b"this one stays").expect("can send");
    bed.until("the last one's bytes", |bed| {
        bed.accepted[before..].iter().any(|(server, _)| bed.of(*server).received == b"this one stays")
    });
}

pub fn a_paused_connection_may_be_closed<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    for how in [Close::Now, Close::AfterPeer, Close::Lingering, Close::Abort] {
        let (client, server) = bed.pair();
        bed.net.pause(server);
        bed.net.send(client, b"bytes that are not read").expect("can send");
        bed.for_a_while(Duration::from_millis(2));
        bed.net.close(server, how);
        bed.until("the peer's word", |bed| bed.of(client).ended || bed.of(client).failed.is_some());
        bed.net.close(client, Close::Now);
    }
}

/// As a client of a server whose FIN comes late: connections that only wait for it must not keep it
/// from opening others.
pub fn connections_that_linger_make_room<T: Transport>(subject: &Subject<T>) {
    const PAIRS: u32 = 6;
    let limits = crate::TransportLimits {
        connections: 2 * PAIRS,
        closing_time: Duration::from_secs(60),
        ..crate::TransportLimits::default()
    };
    let mut bed = subject.bed_with(limits);
    let pairs: Vec<_> = (0..PAIRS).map(|_| bed.pair()).collect();
    for ((client, _), how) in pairs.iter().zip([Close::AfterPeer, Close::Lingering].into_iter().cycle()) {
        bed.net.close(*client, how);
    }
    bed.for_a_while(Duration::from_millis(20));
    let mut servers: Vec<_> = pairs.iter().map(|(_, server)| *server).collect();
    let mut failed = 0;
    while !servers.is_empty() {
        let accepted = bed.accepted.len();
        let late = bed.connect();
        bed.for_a_while(Duration::from_millis(5));
        // The accepted end needs a place too: that of a server whose client is gone.
        let gone = |conn: &crate::Conn| bed.of(*conn).ended || bed.of(*conn).failed.is_some();
        let server = servers.remove(servers.iter().position(gone).unwrap_or(0));
        failed += bed.of(server).failures;
        bed.net.close(server, Close::Now);
        bed.until("the next one", |bed| bed.of(late).connected == 1 && bed.accepted.len() > accepted);
    }
    // A layer whose last bytes cannot leave at once resets one connection.
    assert!(failed <= 1, "{failed} ended by a reset");
}

pub fn closing_many_at_once<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject
        .bed_with(crate::TransportLimits { closing_connections: 8, ..crate::TransportLimits::default() });
    let pairs: Vec<_> = (0..30).map(|_| bed.pair()).collect();
    for (client, _) in &pairs {
        bed.net.close(*client, Close::AfterPeer);
    }
    // Beyond the limit the oldest connections stop waiting; the last eight still wait.
    bed.for_a_while(Duration::from_millis(100));
    let is_over = |seen: &super::bed::ObservedConnection| seen.ended || seen.failed.is_some();
    let ended = pairs.iter().filter(|(_, server)| is_over(bed.of(*server))).count();
    if bed.net.name() != "mem" {
        assert_eq!(ended, 22);
    }
}
