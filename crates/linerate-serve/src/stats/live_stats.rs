//! What `linerate top` reads from a running server besides `/stats`: its loops, and its connections
//! with their queues.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use linerate_net::{machine, sock_diag};

use crate::flows::Desk;
use crate::limits::SOCKETS_LISTED;
use crate::stats::counts::{Counts, ThreadCounts};
use crate::stats::meter::Durations;
use crate::stats::metrics::Metrics;
use crate::stats::process::ProcessFigures;
use crate::waits::Waits;
use crate::{Address, Request, Response};

/// A running server by loops and connections: `/stats/loops` and `/stats/flows`, for an address of
/// their own.
#[derive(Clone, Debug)]
pub struct LiveStats {
    pub(crate) metrics: Metrics,
    /// The addresses that the kernel listens on for it; connections to these ports belong to it.
    pub(crate) listening: Vec<Address>,
    /// For a user-space TCP.
    pub(crate) flows: Option<Desk>,
}

impl LiveStats {
    /// Responds to `/stats/loops` and `/stats/flows`; `None` for other paths.
    pub async fn answer(&self, request: Request) -> Option<Response> {
        match request.path() {
            "/stats/loops" => Some(Response::json(self.loops())),
            "/stats/flows" => Some(match &self.flows {
                Some(desk) => desk.answer(request).await,
                None => self.kernels(),
            }),
            _ => None,
        }
    }

    fn loops(&self) -> String {
        let mut out = String::from("{\"loops\":[");
        for (i, thread) in self.metrics.threads().iter().enumerate() {
            out.push_str(if i == 0 { "\n" } else { ",\n" });
            loop_json(&mut out, thread);
        }
        let mut all = Counts::default();
        self.metrics.threads().iter().for_each(|thread| all.add(thread));
        let process = ProcessFigures::now();
        let listening: Vec<String> =
            self.listening.iter().map(|at| format!("{:?}", at.to_string())).collect();
        // Writing to memory cannot fail.
        let _ = writeln!(
            out,
            "],\n\"refused\":{},\"panics\":{},\"blocked\":{},\"listening\":[{}],\n\"process\":{{\"cpu_s\":{},\
             \"started_at\":{},\"resident_bytes\":{},\"open_files\":{},\"most_files\":{}}}}}",
            all.refused,
            all.panics,
            all.blocked,
            listening.join(","),
            process.cpu_seconds.unwrap_or(0.0),
            process.started_at.unwrap_or(0.0),
            process.resident_bytes.unwrap_or(0),
            process.open_files.unwrap_or(0),
            process.most_files.unwrap_or(0),
        );
        out
    }

    /// The kernel's sockets at the server's listening ports, the longest queues first.
    fn kernels(&self) -> Response {
        let ports: BTreeSet<u16> = self.listening.iter().filter_map(|at| Some(at.tcp()?.port())).collect();
        let of_ours = |s: &sock_diag::TcpSocket| ports.contains(&s.local.port());
        let Ok((sockets, more)) = sock_diag::tcp_sockets_that(SOCKETS_LISTED, of_ours) else {
            return Response::explained(503, "this kernel does not list its sockets (CONFIG_INET_DIAG)");
        };
        let (listeners, mut flows): (Vec<_>, Vec<_>) =
            sockets.into_iter().partition(|s| s.state == sock_diag::SocketState::LISTEN);
        flows.sort_by_key(|s| std::cmp::Reverse(s.receive_queue.saturating_add(s.send_queue)));
        let mut out = format!("{{\"total\":{},\"complete\":{},\"listeners\":[", flows.len(), !more);
        for (i, s) in listeners.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}\n{{\"local\":\"{}\",\"waiting\":{},\"room\":{}}}",
                s.local, s.receive_queue, s.send_queue
            );
        }
        out.push_str("],\"flows\":[");
        for (i, s) in flows.iter().take(crate::limits::FLOWS_SHOWN).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}\n{{\"local\":\"{}\",\"remote\":\"{}\",\"state\":\"{}\",\"unread_bytes\":{},\"unacked_bytes\":{}}}",
                s.local,
                s.peer,
                s.state.name(),
                s.receive_queue,
                s.send_queue
            );
        }
        out.push_str("]}\n");
        Response::json(out)
    }
}

fn loop_json(out: &mut String, thread: &ThreadCounts) {
    let mut own = Counts::default();
    own.add(thread);
    let mut turns = Durations::default();
    turns.add(&thread.measured.turns);
    let by_class = |class: u16| -> u64 {
        own.by_status.iter().filter(|(status, _)| *status / 100 == class).map(|(_, n)| n).sum()
    };
    let states: Vec<String> =
        Waits::ALL.iter().zip(thread.states()).map(|(s, n)| format!("\"{}\":{n}", s.name())).collect();
    let cpu = machine::sched_stat_of(thread.thread.load(Relaxed));
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "{{\"requests\":{},\"by_class\":[{},{},{},{}],\"accepted\":{},\"open\":{},\"states\":{{{}}},\"waiting\":{},\
         \"streaming\":{},\"received\":{},\"sent\":{},\"cpu_ns\":{},\"busy_ns\":{},\"in_turn_us\":{}}}",
        own.requests,
        by_class(2),
        by_class(3),
        by_class(4),
        by_class(5),
        own.accepted,
        own.open,
        states.join(","),
        own.waiting,
        own.streaming,
        own.bytes_in,
        own.bytes_out,
        cpu.map_or(0, |stat| stat.on_cpu_ns),
        turns.sum_ns,
        thread.measured.in_turn().as_micros(),
    );
}
