//! The defaults of a plan, which are the command's.

use std::time::Duration;

use crate::plan::http::HttpOptions;
use crate::plan::route::Route;
use crate::plan::{Arrival, Expectation, Io, Order, Pace, Plan, Rate, Request, Resend, Stop, Target, Way};

/// Connections held open.
pub const CONNECTIONS: u32 = 64;
/// How long a run lasts when neither a number nor a time is given.
pub const DURATION: Duration = Duration::from_secs(10);
/// How long a response may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long iterations of flows may go on after the end of the run.
pub const GRACEFUL: Duration = Duration::from_secs(30);

impl Plan {
    /// `GET path` in a closed loop on 64 connections for 10 s.
    pub fn get(target: Target, path: &str) -> Plan {
        Plan {
            target,
            requests: vec![Request::get(path)],
            order: Order::Weighted,
            data: Vec::new(),
            connections: CONNECTIONS,
            depth: 1,
            per_connection: None,
            stop: Stop { requests: None, duration: Some(DURATION) },
            pace: Pace::Closed,
            threads: None,
            way: Way::Loop,
            io: Io::Auto,
            interface: None,
            busy_poll: None,
            pcap_out: None,
            fault: None,
            from: Vec::new(),
            timeout: TIMEOUT,
            warm_up: Duration::ZERO,
            tag: None,
            resend: Resend::default(),
            route: Route::default(),
            http: HttpOptions::default(),
            tls: None,
            throughput: false,
            checks: Vec::new(),
            abort_on: Vec::new(),
            flows: None,
            save_responses: 0,
            seed: 1,
        }
    }

    /// The same at an exact rate, requests/s.
    pub fn at_rate(self, per_second: f64) -> Plan {
        Plan { pace: Pace::Open { rate: Rate::constant(per_second), arrival: Arrival::Constant }, ..self }
    }
}

impl Request {
    /// `GET path`, any status below 400 is good.
    pub fn get(path: &str) -> Request {
        Request {
            name: format!("GET {path}"),
            weight: 1.0,
            method: "GET".to_owned(),
            path: path.to_owned(),
            fields: Vec::new(),
            body: None,
            expect: Expectation::default(),
        }
    }
}

impl Target {
    /// An address without a name.
    pub fn at(address: std::net::SocketAddr) -> Target {
        Target { url: format!("http://{address}/"), authority: address.to_string(), addresses: vec![address] }
    }
}
