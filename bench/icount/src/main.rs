//! Units of work of known size on the hot paths, counted in instructions (repeatable on a noisy
//! machine) or timed. One program for all libraries: beside `linerate` in one build, it costs
//! little more than its own lines.
//!
//! `cargo run --release -p linerate-bench-icount -- SCENARIO N` runs N units of one scenario and
//! prints how long each took. Under `valgrind --tool=callgrind`, the difference between two N,
//! divided by their difference, is the cost of a unit, the transport's part included. `-- --list`
//! names the scenarios; without arguments each runs for a short time.

mod http;
mod load;
mod net;
mod scenario;
mod serve;

use std::process::ExitCode;
use std::time::Instant;

use scenario::WorkUnit;

/// The libraries' names, each with its scenarios.
const LIBRARIES: [(&str, &[WorkUnit]); 4] = [
    ("linerate-http", http::SCENARIOS),
    ("linerate-load", load::SCENARIOS),
    ("linerate-net", net::SCENARIOS),
    ("linerate-serve", serve::SCENARIOS),
];

/// Units of each scenario when none is named.
const SHORT: u64 = 100_000;

/// All scenarios, each with its whole name.
fn scenarios() -> impl Iterator<Item = (String, &'static WorkUnit)> {
    let of = |(library, all): (&'static str, &'static [WorkUnit])| {
        all.iter().map(move |scenario| (format!("{library}/{}", scenario.name), scenario))
    };
    LIBRARIES.into_iter().flat_map(of)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => scenarios().for_each(|(name, s)| println!("{name}\t{}", s.about)),
        [] => scenarios().for_each(|(name, s)| time(&name, s, SHORT)),
        [wanted, n] => match (scenarios().find(|(name, _)| name == wanted), n.parse()) {
            (Some((name, scenario)), Ok(n)) => time(&name, scenario, n),
            _ => return usage(),
        },
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: icount [--list | SCENARIO N]");
    ExitCode::from(2)
}

fn time(name: &str, scenario: &WorkUnit, n: u64) {
    let start = Instant::now();
    (scenario.run)(n);
    let each = start.elapsed().as_nanos() as f64 / n.max(1) as f64;
    println!("{name:<34} {each:8.2} ns each ({})", scenario.about);
}
