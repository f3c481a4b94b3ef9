//! How bytes flow, and how flow control stops them.

use std::time::Duration;

use bytes::Bytes;

use super::{Subject, pattern};
use crate::{NetErrorKind, Transport, TransportLimits};

pub fn echo_of_all_sizes<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    bed.echo = true;
    let (client, _) = bed.pair();
    let mut expected = Vec::new();
    for size in [0, 1, 2, 3, 100, 1460, 4095, 4096, 4097, 65_535, 65_536, 65_537, 200_000, 1 << 20] {
        let bytes = pattern(size);
        bed.net.send(client, &bytes).expect("can send");
        expected.extend_from_slice(&bytes);
        bed.until("the echo", |bed| bed.received(client) == expected.len());
    }
    assert!(bed.of(client).received == expected);
}

pub fn many_small_sends_keep_their_order<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let whole = pattern(50_000);
    let mut rest = &whole[..];
    let mut size = 0;
    while !rest.is_empty() {
        size = (size % 11 + 1).min(rest.len());
        let (piece, more) = rest.split_at(size);
        bed.net.send(client, piece).expect("can send");
        rest = more;
    }
    bed.until("all bytes", |bed| bed.received(server) == whole.len());
    assert!(bed.of(server).received == whole);
}

pub fn paused_bytes_wait<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.pause(server);
    bed.for_a_while(Duration::from_millis(5));
    let whole = pattern(subject.bulk);
    bed.net.send(client, &whole).expect("can send");
    bed.for_a_while(Duration::from_millis(50));
    let early = bed.received(server);
    assert!(early < whole.len() / 2, "back-pressure: {early} came");
    assert!(bed.net.unsent(client) > 0, "more than the wire buffers");
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == whole.len());
    assert!(bed.of(server).received == whole);
}

pub fn what_waits_is_counted_and_drained<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.pause(server);
    bed.net.send(client, &pattern(subject.bulk)).expect("can send");
    assert!(bed.net.unsent(client) <= (subject.wire_len)(subject.bulk));
    // On a busy machine that takes longer than a while.
    bed.until("some have left", |bed| bed.net.unsent(client) < subject.bulk);
    bed.for_a_while(Duration::from_millis(20));
    let waiting = bed.net.unsent(client);
    assert!(waiting > 0);
    assert_eq!(bed.of(client).drained, 0);
    bed.net.send(client, &pattern(1000)).expect("can send");
    assert_eq!(bed.net.unsent(client), waiting + (subject.wire_len)(1000));
    bed.net.resume(server);
    bed.until("drained", |bed| bed.of(client).drained > 0);
    assert_eq!(bed.net.unsent(client), 0);
    bed.until("all bytes", |bed| bed.received(server) == subject.bulk + 1000);
    bed.for_a_while(Duration::from_millis(20));
    assert_eq!(bed.of(client).drained, 1, "said once");
}

pub fn lent_and_copied_bytes_keep_their_order<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let source = pattern(subject.bulk);
    let lent = bed.net.lend(source.clone().into());
    let mut expected = Vec::new();
    bed.net.pause(server);
    let part = subject.bulk / 4;
    for (i, from) in (0..subject.bulk).step_by(part).enumerate() {
        let range = from..(from + part).min(source.len());
        bed.net.send_lent(client, lent, range.clone()).expect("can send");
        expected.extend_from_slice(&source[range]);
        for _ in 0..3 {
            let note = format!("<between {i}>");
            bed.net.send(client, note.as_bytes()).expect("can send");
            expected.extend_from_slice(note.as_bytes());
        }
        bed.net.send_lent(client, lent, 7..7).expect("nothing is something too");
        bed.for_a_while(Duration::from_millis(2));
    }
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == expected.len());
    assert!(bed.of(server).received == expected);
    assert_eq!(bed.net.unsent(client), 0);
}

pub fn shared_bytes_keep_their_order<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let source = Bytes::from(pattern(subject.bulk));
    let mut expected = Vec::new();
    bed.net.pause(server);
    for (i, from) in (0..subject.bulk).step_by(subject.bulk / 4).enumerate() {
        let piece = source.slice(from..(from + subject.bulk / 4).min(source.len()));
        expected.extend_from_slice(&piece);
        bed.net.send_shared(client, piece).expect("can send");
        let note = format!("<between {i}>");
        bed.net.send(client, note.as_bytes()).expect("can send");
        expected.extend_from_slice(note.as_bytes());
        bed.net.send_shared(client, Bytes::new()).expect("nothing is something too");
        bed.for_a_while(Duration::from_millis(2));
    }
    assert!(bed.net.unsent(client) > 0, "more than the wire buffers");
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == expected.len());
    assert!(bed.of(server).received == expected);
    assert_eq!(bed.net.unsent(client), 0);
}

pub fn lent_ranges_are_checked<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let lent = bed.net.lend(b"0123456789".to_vec().into());
    let beyond = bed.net.send_lent(client, lent, 5..11);
    assert_eq!(beyond.map_err(|e| e.kind), Err(NetErrorKind::Misuse));
    bed.net.send_lent(client, lent, 5..10).expect("within");
    bed.until("the bytes", |bed| bed.received(server) == 5);
    assert_eq!(bed.of(server).received, b"56789");
}

pub fn the_limit_of_unsent_bytes_holds<T: Transport>(subject: &Subject<T>) {
    let limit = subject.bulk / 2;
    let mut bed = subject.bed_with(TransportLimits { unsent_bytes: limit, ..TransportLimits::default() });
    let (client, server) = bed.pair();
    bed.net.pause(server);
    let piece = pattern(limit / 8);
    let mut accepted = 0;
    let refused = loop {
        match bed.net.send(client, &piece) {
            Ok(()) => accepted += piece.len(),
            Err(error) => break error,
        }
        assert!(accepted < 4 * subject.bulk, "the limit is never met");
        bed.for_a_while(Duration::from_millis(1));
    };
    assert_eq!(refused.kind, NetErrorKind::NoMemory);
    assert!(bed.net.unsent(client) <= limit);
    bed.net.resume(server);
    bed.until("what was accepted", |bed| bed.received(server) == accepted);
    bed.net.send(client, b"there is room again").expect("can send");
    bed.until("the rest", |bed| bed.received(server) == accepted + 19);
}

pub fn low_water_holds_nothing_back_for_ever<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.net.set_low_water(server, 100);
    bed.net.send(client, &pattern(40)).expect("can send");
    bed.for_a_while(Duration::from_millis(5));
    bed.net.send(client, &pattern(70)).expect("can send");
    bed.until("the mark is passed", |bed| bed.received(server) == 110);
    bed.net.send(client, &pattern(10)).expect("can send");
    bed.for_a_while(Duration::from_millis(5));
    bed.net.set_low_water(server, 1);
    bed.until("the mark is gone", |bed| bed.received(server) == 120);
    bed.net.set_low_water(server, 100);
    bed.net.send(client, b"last").expect("can send");
    bed.net.close(client, crate::Close::Now);
    bed.until("the end below the mark", |bed| bed.of(server).ended);
    assert_eq!(bed.received(server), 124);
}

/// Each time as much as the wire holds and more, on both ends of a connection; what follows is whole, and comes at once.
pub fn what_is_not_looked_at_may_be_discarded<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let whole = pattern(subject.bulk);
    for (to, from) in [(client, server), (server, client), (client, server)] {
        let before = bed.received(to);
        bed.unseen.insert(to, whole.len() as u64 - 1000);
        bed.net.send(from, &whole).expect("can send");
        bed.until("all bytes", |bed| bed.received(to) == before + whole.len());
        assert_eq!(bed.unseen[&to], 0);
        bed.net.send(from, b"little").expect("can send");
        bed.until("a few bytes", |bed| bed.received(to) == before + whole.len() + 6);
        let end = &bed.of(to).received[before + whole.len() - 1000..];
        assert!(end[..1000] == whole[whole.len() - 1000..] && &end[1000..] == b"little");
    }
}

pub fn the_end_comes_within_what_is_not_looked_at<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let whole = pattern(subject.bulk);
    bed.unseen.insert(client, whole.len() as u64 * 10);
    bed.net.send(server, &whole).expect("can send");
    bed.net.close(server, crate::Close::Now);
    bed.until("the end", |bed| bed.of(client).ended);
    assert_eq!(bed.received(client), whole.len());
}

pub fn both_directions_at_once<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let whole = pattern(subject.bulk);
    bed.net.send(client, &whole).expect("can send");
    bed.net.send(server, &whole).expect("can send");
    bed.until("all bytes both ways", |bed| {
        bed.received(client) == whole.len() && bed.received(server) == whole.len()
    });
    assert!(bed.of(client).received == whole && bed.of(server).received == whole);
}

pub fn a_flood_starves_nobody<T: Transport>(subject: &Subject<T>) {
    let limits = TransportLimits { reads_per_turn: 2, receive_bytes: 8192, ..TransportLimits::default() };
    let mut bed = subject.bed_with(limits);
    let (loud, loud_server) = bed.pair();
    let (quiet, quiet_server) = bed.pair();
    let whole = pattern(subject.bulk);
    bed.net.pause(loud_server);
    bed.net.send(loud, &whole).expect("can send");
    bed.for_a_while(Duration::from_millis(20));
    bed.net.resume(loud_server);
    bed.net.send(quiet, b"may I?").expect("can send");
    bed.until("the quiet one's bytes", |bed| bed.received(quiet_server) == 6);
    assert!(bed.received(loud_server) < whole.len(), "the quiet one did not wait for all of the flood");
    bed.until("the flood", |bed| bed.received(loud_server) == whole.len());
    assert!(bed.of(loud_server).received == whole);
}

pub fn claims_may_wait<T: Transport>(subject: &Subject<T>) {
    // Fewer buffers than connections that have received something.
    let mut bed = subject.bed_with(TransportLimits { receive_buffers: 4, ..TransportLimits::default() });
    let pairs: Vec<_> = (0..20).map(|_| bed.pair()).collect();
    let whole = pattern(3000);
    bed.held = Some(Vec::new());
    for (client, _) in &pairs {
        bed.net.send(*client, &whole).expect("can send");
    }
    bed.for_a_while(Duration::from_millis(5));
    while let Some(held) = bed.held.take().filter(|held| !held.is_empty()) {
        for data in held {
            bed.receive(data);
        }
        bed.held = Some(Vec::new());
        bed.for_a_while(Duration::from_millis(2));
    }
    bed.held = None;
    bed.until("all bytes", |bed| pairs.iter().all(|(_, server)| bed.received(*server) == whole.len()));
    assert!(pairs.iter().all(|(_, server)| bed.of(*server).received == whole));
}

pub fn pause_before_the_bytes_are_taken<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    bed.held = Some(Vec::new());
    bed.net.send(client, b"claimed").expect("can send");
    bed.until("the claim", |bed| bed.held.as_ref().is_some_and(|h| h.iter().any(|d| d.conn() == server)));
    bed.net.pause(server);
    for data in bed.held.take().unwrap_or_default() {
        bed.receive(data);
    }
    bed.net.resume(server);
    bed.until("the bytes", |bed| bed.received(server) == 7);
    assert_eq!(bed.of(server).received, b"claimed");
}

pub fn pause_and_resume_many_times<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let whole = pattern(subject.bulk);
    bed.net.send(client, &whole).expect("can send");
    for round in 0..200 {
        match round % 4 {
            0 => bed.net.pause(server),
            1 => {
                bed.net.resume(server);
                bed.net.pause(server);
            }
            2 => {
                bed.net.resume(server);
                bed.net.resume(server);
            }
            _ => bed.for_a_while(Duration::from_micros(100)),
        }
        if round % 3 == 0 {
            bed.for_a_while(Duration::from_micros(50));
        }
    }
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == whole.len());
    assert!(bed.of(server).received == whole);
}
