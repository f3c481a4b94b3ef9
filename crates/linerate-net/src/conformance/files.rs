//! How transports send files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use super::{Subject, pattern};
use crate::{Close, NetErrorKind, Transport, TransportLimits};

/// A file without a name: closing it deletes it.
fn file(bytes: &[u8]) -> Arc<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let mut file = options.open(std::env::temp_dir()).expect("a file");
    file.write_all(bytes).expect("written");
    Arc::new(file)
}

pub fn files_keep_their_order_among_other_bytes<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let source = pattern(subject.bulk);
    let (file, lent) = (file(&source), bed.net.lend(source.clone().into()));
    let mut expected = Vec::new();
    bed.net.pause(server);
    let part = subject.bulk / 6;
    for (i, from) in (0..subject.bulk).step_by(part).enumerate() {
        let to = (from + part).min(source.len());
        let head = format!("<head {i}>");
        bed.net.send_file(client, head.as_bytes(), &file, from as u64..to as u64).expect("can send");
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&source[from..to]);
        bed.net.send_lent(client, lent, 3..5000).expect("can send");
        expected.extend_from_slice(&source[3..5000]);
        // The second range continues where the first ended: the transport sees one range.
        bed.net.send_file(client, &[], &file, 0..1000).expect("can send");
        bed.net.send_file(client, &[], &file, 1000..1001).expect("can send");
        expected.extend_from_slice(&source[..1001]);
        bed.net.send_file(client, b"<nothing>", &file, 7..7).expect("nothing is something too");
        expected.extend_from_slice(b"<nothing>");
        bed.for_a_while(Duration::from_millis(2));
    }
    assert!(bed.net.unsent(client) > 0, "more than the wire buffers");
    bed.net.resume(server);
    bed.until("all bytes", |bed| bed.received(server) == expected.len());
    assert!(bed.of(server).received == expected);
    assert_eq!(bed.net.unsent(client), 0);
}

pub fn what_waits_of_a_file_is_counted_and_drained<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let source = pattern(subject.bulk);
    bed.net.pause(server);
    bed.net.send_file(client, b"", &file(&source), 0..source.len() as u64).expect("can send");
    assert!(bed.net.unsent(client) <= (subject.wire_len)(subject.bulk));
    // On a busy machine that takes longer than a while.
    bed.until("some have left", |bed| bed.net.unsent(client) < subject.bulk);
    bed.for_a_while(Duration::from_millis(20));
    let waiting = bed.net.unsent(client);
    assert!(waiting > 0);
    assert_eq!(bed.of(client).drained, 0);
    bed.net.send_file(client, b"head", &file(b"0123456789"), 2..10).expect("can send");
    let (head, part) = ((subject.wire_len)(4), (subject.wire_len)(8));
    assert_eq!(bed.net.unsent(client), waiting + head + part);
    bed.net.resume(server);
    bed.until("drained", |bed| bed.of(client).drained > 0);
    assert_eq!(bed.net.unsent(client), 0);
    bed.until("all bytes", |bed| bed.received(server) == subject.bulk + 12);
    assert!(bed.of(server).received.ends_with(b"head23456789"));
    bed.for_a_while(Duration::from_millis(20));
    assert_eq!(bed.of(client).drained, 1, "said once");
}

pub fn the_limit_of_unsent_bytes_holds_for_files<T: Transport>(subject: &Subject<T>) {
    let limit = subject.bulk / 2;
    let mut bed = subject.bed_with(TransportLimits { unsent_bytes: limit, ..TransportLimits::default() });
    let (client, server) = bed.pair();
    bed.net.pause(server);
    let piece = limit / 8;
    let file = file(&pattern(piece));
    let mut accepted = 0;
    let refused = loop {
        match bed.net.send_file(client, b"", &file, 0..piece as u64) {
            Ok(()) => accepted += piece,
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

pub fn closing_sends_what_waits_of_a_file<T: Transport>(subject: &Subject<T>) {
    for how in [Close::Now, Close::AfterPeer, Close::Lingering] {
        let mut bed = subject.bed();
        let (client, server) = bed.pair();
        let source = pattern(subject.bulk);
        bed.net.pause(client);
        // The transport now holds the only reference to the file.
        bed.net.send_file(server, b"", &file(&source), 0..source.len() as u64).expect("can send");
        bed.net.close(server, how);
        bed.for_a_while(Duration::from_millis(5));
        bed.net.resume(client);
        bed.until("all bytes, and the end", |bed| {
            if how == Close::AfterPeer { bed.received(client) == source.len() } else { bed.of(client).ended }
        });
        assert!(bed.of(client).received == source, "{how:?}");
        bed.net.close(client, Close::Now);
        bed.for_a_while(Duration::from_millis(5));
    }
}

pub fn a_file_that_shrinks_ends_the_connection<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let source = pattern(subject.bulk);
    let file = file(&source);
    bed.net.pause(client);
    bed.net.send_file(server, b"", &file, 0..source.len() as u64).expect("can send");
    bed.for_a_while(Duration::from_millis(20));
    assert!(bed.net.unsent(server) > 0, "more than the wire buffers");
    if !bed.net.sends_files() {
        // This transport read the whole file when it was handed over.
        return;
    }
    file.set_len(1).expect("shorter");
    bed.net.resume(client);
    bed.until("that it failed", |bed| bed.of(server).failures == 1);
    assert_eq!(bed.net.unsent(server), 0);
    assert!(bed.net.send(server, b"more").is_err());
    bed.net.close(server, Close::Abort);
    bed.until("the end", |bed| bed.of(client).ended || bed.of(client).failures > 0);
    // A kernel sends from its page cache: what is cut off the file is gone even for bytes sent and
    // not acknowledged.
    assert!(bed.received(client) < source.len(), "nothing in place of what is missing");
}

pub fn a_file_that_is_too_short_is_refused<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let (client, server) = bed.pair();
    let short = file(b"0123456789");
    bed.net.send_file(client, b"", &short, 0..10).expect("it is there");
    assert!(bed.net.send_file(client, b"", &short, 5..11).is_err(), "one byte is missing");
    bed.net.close(client, Close::Abort);
    bed.until("the end", |bed| bed.of(server).ended || bed.of(server).failures > 0);
    let received = &bed.of(server).received;
    assert!(b"012345678956789".starts_with(&received[..]), "{received:?}");
}

pub fn a_reset_in_the_middle_of_a_file<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let source = pattern(subject.bulk);
    let file = file(&source);
    for wait in [0, 1, 5] {
        let (client, server) = bed.pair();
        bed.net.pause(client);
        bed.net.send_file(server, b"head", &file, 0..source.len() as u64).expect("can send");
        bed.for_a_while(Duration::from_millis(wait));
        bed.net.close(client, Close::Abort);
        bed.until("the reset", |bed| bed.of(server).failures > 0);
        let _ = bed.net.send_file(server, b"", &file, 0..10);
        bed.net.close(server, Close::Now);
        bed.for_a_while(Duration::from_millis(1));
        assert_eq!(bed.of(server).failures, 1, "said once");
    }
    // Only this test may still hold the file: a descriptor kept anywhere else would be leaked.
    bed.for_a_while(Duration::from_millis(20));
    assert_eq!(Arc::strong_count(&file), 1);
}

pub fn files_of_many_connections<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let source = pattern(60_000);
    let file = file(&source);
    let pairs: Vec<_> = (0..40).map(|_| bed.pair()).collect();
    for round in 0..5u64 {
        for (i, (client, _)) in pairs.iter().enumerate() {
            let from = (i as u64 + round) * 100;
            bed.net.send_file(*client, b"", &file, from..60_000).expect("can send");
        }
        bed.for_a_while(Duration::from_millis(1));
    }
    for (i, (_, server)) in pairs.iter().enumerate() {
        let expected: Vec<u8> =
            (0..5).flat_map(|round| source[(i + round) * 100..].iter().copied()).collect();
        bed.until("its bytes", |bed| bed.received(*server) == expected.len());
        assert!(bed.of(*server).received == expected);
    }
}

pub fn a_file_may_be_the_first_that_is_sent<T: Transport>(subject: &Subject<T>) {
    let mut bed = subject.bed();
    let source = pattern(100_000);
    let client = bed.connect();
    // The connection is not established yet.
    bed.net.send_file(client, b"head", &file(&source), 0..100_000).expect("can send");
    bed.until("a connection", |bed| bed.accepted.len() == 1);
    let server = bed.accepted[0].0;
    bed.until("its bytes", |bed| bed.received(server) == 100_004);
    assert!(bed.of(server).received[4..] == source);
}
