//! Prints the contents of a capture as plain data:
//! `cargo run -p linerate-explain --example read_capture -- FILE`.

use linerate_explain::passive::{Limits, findings, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("a capture file is needed")?;
    let seen = read(std::fs::File::open(path)?, Limits::default())?;
    println!("{:?}\n{:?}", seen.packets, seen.sums);
    for (name, n) in seen.marks.seen() {
        println!("{name} {n}");
    }
    for finding in findings::of(&seen) {
        println!("{} ({} of {} calls): {}", finding.id, finding.calls, finding.of, finding.title);
    }
    Ok(())
}
