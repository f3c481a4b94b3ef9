//! Loads a server for two seconds and prints what the command would print:
//! `cargo run -p linerate-report --example summary -- 127.0.0.1:8080`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_load::plan::{Plan, Stop, Target};
use linerate_report::{Environment, Report, Style, json, summary};

/// The summary for people and the document for machines.
fn reports(to: SocketAddr, lasts: Duration) -> Result<(String, String), Box<dyn Error>> {
    let stop = Stop { requests: None, duration: Some(lasts) };
    let plan = Plan { connections: 4, stop, ..Plan::get(Target::at(to), "/") };
    let outcome = linerate_load::start(plan.clone())?.join();
    let environment = Environment { command: "summary".to_owned(), ..Environment::default() };
    let report = Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
    Ok((
        summary::to_string(&report, summary::SummaryLength::Screen, Style::default()),
        json::to_string(&report),
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::args().nth(1).ok_or("usage: summary ADDR:PORT")?;
    let (text, document) = reports(to.parse()?, Duration::from_secs(2))?;
    println!("{text}\n{document}");
    Ok(())
}

#[test]
fn it_runs() {
    // No server listens there: the report says so.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = listener.local_addr().expect("an address");
    drop(listener);
    let (text, document) = reports(nobody, Duration::from_millis(200)).expect("it runs");
    assert!(text.contains("refused"), "{text}");
    assert!(document.contains("linerate.outcome/1"), "{document}");
}
