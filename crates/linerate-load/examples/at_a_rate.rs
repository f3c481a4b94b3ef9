//! Sends requests at an exact rate and prints latencies from when each was due:
//! `cargo run --release -p linerate-load --example at_a_rate -- 127.0.0.1:8080 500`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_load::plan::{Arrival, Pace, Plan, Rate, Stop, Target};
use linerate_load::{Outcome, start};

fn run(to: SocketAddr, per_second: f64, lasts: Duration) -> Result<Outcome, Box<dyn Error>> {
    let plan = Plan {
        pace: Pace::Open { rate: Rate::constant(per_second), arrival: Arrival::Constant },
        stop: Stop { requests: None, duration: Some(lasts) },
        connections: 8,
        ..Plan::get(Target::at(to), "/")
    };
    Ok(start(plan)?.join())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [to, rate] = args.as_slice() else { return Err("usage: at_a_rate ADDR:PORT RATE".into()) };
    let outcome = run(to.parse()?, rate.parse()?, Duration::from_secs(5))?;
    let from_due = outcome.latency.from_due.ok_or("an open loop has times from due")?;
    for percentile in [50.0, 99.0, 99.9] {
        println!("p{percentile} {} us from due", from_due.percentile_ns(percentile) / 1000);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn it_runs() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("an address");
        std::thread::spawn(move || {
            for mut stream in server.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    // A request of the example fits into a segment.
                    let mut request = [0; 4096];
                    while stream.read(&mut request).is_ok_and(|n| n > 0) {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    }
                });
            }
        });
        let outcome = run(at, 100.0, Duration::from_millis(500)).expect("it runs");
        assert!(outcome.requests.answered > 0, "{:?}", outcome.requests);
    }
}
