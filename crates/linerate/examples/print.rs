//! A run of load whose outcome is printed as the command does it, and as JSON.
//!
//! `cargo run -p linerate --features report --example print http://127.0.0.1:8080`

use std::error::Error;
use std::net::SocketAddr;

use linerate::load::plan::{Plan, Stop, Target};
use linerate::report::{Environment, Report, Style, json, summary};

/// The summary, and the document.
fn run(address: SocketAddr, requests: u64) -> Result<[String; 2], Box<dyn Error>> {
    let plan = Plan {
        stop: Stop { requests: Some(requests), duration: None },
        ..Plan::get(Target::at(address), "/")
    };
    let outcome = linerate::load::start(plan.clone())?.join();
    let environment = Environment::default();
    let report = Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
    Ok([
        summary::to_string(&report, summary::SummaryLength::Screen, Style::default()),
        json::to_string(&report),
    ])
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("hint: give ADDRESS:PORT of a server")?;
    let [summary, document] = run(address.parse()?, 1000)?;
    eprint!("{summary}");
    println!("{document}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints() -> Result<(), Box<dyn Error>> {
        let hello = |_: linerate::serve::Request| async { linerate::serve::Response::text("hello") };
        let server = linerate::serve::spawn_with(Default::default(), move || hello)?;
        let [summary, document] = run(server.addr(), 100)?;
        assert!(summary.contains("100") && document.contains("linerate.outcome/1"), "{summary}");
        Ok(())
    }
}
