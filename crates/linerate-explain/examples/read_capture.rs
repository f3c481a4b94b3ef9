//! Prints the contents of a capture as plain data:
//! `cargo run -p linerate-explain --example read_capture -- FILE`.

use std::error::Error;
use std::fmt::Write;

use linerate_explain::passive::{CaptureLimits, findings, read};

fn described(capture: impl std::io::Read) -> Result<String, Box<dyn Error>> {
    let seen = read(capture, CaptureLimits::default())?;
    let mut text = format!("{:?}\n{:?}\n", seen.packets, seen.sums);
    for (name, n) in seen.marks.seen() {
        writeln!(text, "{name} {n}")?;
    }
    for finding in findings::of(&seen) {
        writeln!(
            text,
            "{} ({} of {} calls): {}",
            finding.cause.id, finding.calls, finding.of, finding.title
        )?;
    }
    Ok(text)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("a capture file is needed")?;
    print!("{}", described(std::fs::File::open(path)?)?);
    Ok(())
}

#[test]
fn it_runs() {
    // A pcap file of Ethernet frames: magic number, version 2.4, longest packet, link type.
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1_u32];
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // A packet that is no IP: time, lengths, and 14 bytes of an ARP frame.
    let packet = [1, 0, 14, 14_u32].iter().flat_map(|word| word.to_le_bytes());
    let frame = [0xff; 12].into_iter().chain([0x08, 0x06]);
    let capture: Vec<u8> = header.iter().copied().chain(packet).chain(frame).collect();
    assert_ne!(described(&capture[..]).expect("it is read"), described(&header[..]).expect("it is read"));
    assert!(described(&b"no capture"[..]).is_err());
}
