use super::*;

/// A pcap file of those packets (seconds, fraction, bytes).
fn pcap(magic: u32, big: bool, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let n = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let h = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut f = [&n(magic)[..], &h(2), &h(4), &n(0), &n(0), &n(65_535), &n(1)].concat();
    for (seconds, fraction, data) in packets {
        let len = data.len() as u32;
        f.extend([n(*seconds), n(*fraction), n(len), n(len + 1)].concat());
        f.extend(*data);
    }
    f
}

fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
    let n = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let len = n(12 + body.len() as u32);
    [&n(kind)[..], &len, body, &len].concat()
}

fn pcapng(big: bool) -> Vec<u8> {
    let n = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let h = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let mut f = block(0x0a0d_0d0a, &[&n(0x1a2b_3c4d)[..], &h(1), &h(0), &[0xff; 8]].concat(), big);
    // Nanoseconds by an option.
    f.extend(block(1, &[&h(1)[..], &h(0), &n(0), &h(9), &h(1), &[9, 0, 0, 0], &h(0), &h(0)].concat(), big));
    f.extend(block(5, &[0; 12], big));
    let ticks: u64 = 3_000_000_005;
    f.extend(block(
        6,
        &[&n(0)[..], &n((ticks >> 32) as u32), &n(ticks as u32), &n(3), &n(7), b"abc\0"].concat(),
        big,
    ));
    f
}

/// Times, data and wire lengths of all packets, and how it ended.
fn all(file: &[u8]) -> (Vec<(i64, Vec<u8>, u32)>, Ending) {
    let mut file = CaptureFile::open(file).expect("a capture");
    let mut packets = Vec::new();
    while let Some(p) = file.next_packet().expect("readable") {
        packets.push((p.time_ns, p.data.to_vec(), p.wire_len));
    }
    (packets, file.ending().expect("ended").clone())
}

#[test]
fn both_byte_orders_and_resolutions() {
    for big in [false, true] {
        let micro = pcap(0xa1b2_c3d4, big, &[(1, 5, b"ab"), (2, 0, b"")]);
        assert_eq!(all(&micro).0, [(1_000_005_000, b"ab".to_vec(), 3), (2_000_000_000, vec![], 1)]);
        let nano = pcap(0xa1b2_3c4d, big, &[(1, 5, b"ab")]);
        assert_eq!(all(&nano).0[0].0, 1_000_000_005);
        let (packets, ending) = all(&pcapng(big));
        assert_eq!((packets, ending), (vec![(3_000_000_005, b"abc".to_vec(), 7)], Ending::Whole));
    }
}

#[test]
fn gzip_is_unpacked() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&pcapng(false)).expect("in memory");
    let packed = packed.finish().expect("in memory");
    assert_eq!(all(&packed), all(&pcapng(false)));
    assert!(matches!(all(&packed[..packed.len() - 12]).1, Ending::Truncated { .. }));
}

#[test]
fn of_damaged_gzip_what_is_before_counts() {
    use std::io::Write;
    let data: Vec<Vec<u8>> = (0..400_u32)
        .map(|i| (0..50).map(|j| (i.wrapping_mul(2_654_435_761) >> (j % 24)) as u8).collect())
        .collect();
    let records: Vec<(u32, u32, &[u8])> = data.iter().map(|d| (1, 0, d.as_slice())).collect();
    let whole = pcap(0xa1b2_c3d4, false, &records);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&whole).expect("in memory");
    let packed = packed.finish().expect("in memory");
    let (mut some, mut refused) = (0, 0);
    for at in (0..packed.len()).step_by(7) {
        let mut damaged = packed.clone();
        damaged[at] ^= 0xff;
        let mut file = match CaptureFile::open(&damaged[..]) {
            Ok(file) => file,
            Err(FileError::Io(e)) => panic!("byte {at}: the file was read: {e}"),
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        let mut n = 0;
        while file.next_packet().unwrap_or_else(|e| panic!("byte {at}: the file was read: {e}")).is_some() {
            n += 1;
        }
        some += usize::from(n > 0 && file.ending() != Some(&Ending::Whole));
    }
    assert!(refused > 0 && some * 2 > packed.len() / 7, "{some} with packets, {refused} refused");
    assert!(matches!(CaptureFile::open(&packed[..12]).err(), Some(FileError::Empty)), "nothing is in it yet");
}

#[test]
fn truncated_and_damaged_files_say_where() {
    let whole = pcap(0xa1b2_c3d4, false, &[(1, 5, b"ab"), (2, 0, b"cd")]);
    let (packets, ending) = all(&whole[..whole.len() - 1]);
    assert_eq!((packets.len(), ending), (1, Ending::Truncated { at: 42 }));
    let (packets, ending) = all(&whole[..10]);
    assert_eq!((packets.len(), ending), (0, Ending::Truncated { at: 0 }));
    let mut damaged = whole;
    damaged[42 + 8..42 + 12].fill(0xff);
    let (packets, ending) = all(&damaged);
    assert_eq!(packets.len(), 1);
    assert_eq!(ending, Ending::Damaged { at: 42, what: "a packet of 4294967295 bytes".to_owned() });
}

#[test]
fn what_is_no_capture_is_refused_in_words() {
    let why = |data: &[u8]| CaptureFile::open(data).err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(why(b""), "it is empty: not even the header of a capture is there");
    assert!(
        why(b"<html><body>no</body></html>").starts_with("it is no capture: it starts with \"<html><b\"")
    );
    assert!(why(b"\x28\xb5\x2f\xfd12345678").contains("zstd -d FILE"));
    assert!(why(b"\xfd7zXZ\x00\x00\x04rest of it").contains("xz"));
}

#[test]
fn records_of_any_cut_read_the_same() {
    /// Gives one byte at a time.
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(into.len()).min(1);
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let whole = pcapng(true);
    let mut file = CaptureFile::open(Slow(&whole)).expect("a capture");
    let mut n = 0;
    while file.next_packet().expect("readable").is_some() {
        n += 1;
    }
    assert_eq!((n, file.ending()), (1, Some(&Ending::Whole)));
}
