//! `/stats/flows`: the connections of a user-space TCP, which no other tool of the machine shows.
//! On request, each thread scans its own table, a few places in each turn; otherwise it does
//! nothing.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use linerate_net::{FlowInfo, FlowState, Transport};
use tokio::sync::oneshot;

use crate::engine::explained;
use crate::limits;
use crate::reload::{Order, Post};
use crate::{Request, Response, sleep};

const STATES: usize = FlowState::ALL.len();

/// A request to one thread.
pub(crate) struct Ask {
    skip: usize,
    most: usize,
    tell: oneshot::Sender<Seen>,
}

/// What was seen on one or several threads.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    total: usize,
    by_state: [usize; STATES],
    handshakes: u64,
    time_wait: u64,
    shown: Vec<FlowInfo>,
}

impl Seen {
    fn see(&mut self, flow: FlowInfo, skip: usize, most: usize) {
        if self.total >= skip && self.shown.len() < most {
            self.shown.push(flow);
        }
        self.total += 1;
        self.by_state[flow.state as usize] += 1;
    }

    fn add(&mut self, other: Seen) {
        self.total += other.total;
        self.by_state.iter_mut().zip(other.by_state).for_each(|(sum, more)| *sum += more);
        self.handshakes += other.handshakes;
        self.time_wait += other.time_wait;
        self.shown.extend(other.shown);
    }
}

/// Requests that one thread handles, one after the other.
#[derive(Default)]
pub(crate) struct Scans(VecDeque<Scan>);

struct Scan {
    ask: Ask,
    /// The place of the table to continue from.
    place: usize,
    seen: Seen,
}

impl Scans {
    /// Beyond the limit it drops the request, which tells its sender.
    pub(crate) fn add(&mut self, ask: Ask) {
        if self.0.len() < limits::FLOW_ASKERS {
            self.0.push_back(Scan { ask, place: 0, seen: Seen::default() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Scans some more places.
    pub(crate) fn go_on<T: Transport>(&mut self, transport: &T) {
        let Some(mut scan) = self.0.pop_front() else { return };
        if scan.ask.tell.is_closed() {
            return;
        }
        let (seen, skip, most) = (&mut scan.seen, scan.ask.skip, scan.ask.most);
        match transport.flows(scan.place, limits::FLOW_PLACES, |flow| seen.see(flow, skip, most)) {
            Some(place) => self.0.push_front(Scan { place, ..scan }),
            None => {
                if let Some(totals) = transport.totals() {
                    (scan.seen.handshakes, scan.seen.time_wait) = (totals.handshakes, totals.time_wait);
                }
                // The requester may be gone.
                let _ = scan.ask.tell.send(scan.seen);
            }
        }
    }
}

/// Lets handlers send requests to all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk(Arc<OnceLock<Vec<Post>>>);

impl Desk {
    /// Connects it once all threads run.
    pub(crate) fn open<'a>(&self, posts: impl Iterator<Item = &'a Post>) {
        // It is opened once.
        let _ = self.0.set(posts.cloned().collect());
    }

    pub(crate) async fn answer(&self, request: Request) -> Response {
        let wanted = match Wanted::of(request.query(), request.field("accept")) {
            Ok(wanted) => wanted,
            Err(words) => return explained(400, &words),
        };
        match self.ask(&wanted).await {
            Some(seen) if wanted.text => Response::text(text(&seen, &wanted)),
            Some(seen) => Response::json(json(&seen, &wanted)),
            None => explained(503, "a thread of the server is busy; ask again"),
        }
    }

    /// Asks one thread after the other, so that rows are counted over all of them.
    async fn ask(&self, wanted: &Wanted) -> Option<Seen> {
        let mut all = Seen::default();
        for post in self.0.get()? {
            let (tell, told) = oneshot::channel();
            let skip = wanted.skip.saturating_sub(all.total);
            post.send(Order::Flows(Ask { skip, most: wanted.max - all.shown.len(), tell }));
            all.add(in_time(told).await?);
        }
        Some(all)
    }
}

/// The reply, if it arrives before the timeout.
async fn in_time(told: oneshot::Receiver<Seen>) -> Option<Seen> {
    let (mut told, mut late) = (pin!(told), pin!(sleep(limits::FLOWS_PATIENCE)));
    poll_fn(|context| match told.as_mut().poll(context) {
        Poll::Ready(seen) => Poll::Ready(seen.ok()),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// The options of a request.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    skip: usize,
    max: usize,
    text: bool,
}

impl Wanted {
    fn of(query: Option<&str>, accept: Option<&str>) -> Result<Wanted, String> {
        let text = accept.is_some_and(|types| types.contains("text/plain"));
        let mut wanted = Wanted { skip: 0, max: limits::FLOWS_SHOWN, text };
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number = value.parse::<usize>().ok().filter(|_| value.bytes().all(|b| b.is_ascii_digit()));
            match (key, number) {
                ("skip", Some(n)) => wanted.skip = n,
                ("max", Some(n)) if (1..=limits::FLOWS_MOST).contains(&n) => wanted.max = n,
                ("text", _) if value.is_empty() => wanted.text = true,
                _ => {
                    return Err(format!(
                        "the query takes skip=N (connections to leave out), max=N (1 to {}) and text",
                        limits::FLOWS_MOST
                    ));
                }
            }
        }
        Ok(wanted)
    }
}

fn json(seen: &Seen, wanted: &Wanted) -> String {
    let states: Vec<String> =
        FlowState::ALL.iter().zip(seen.by_state).map(|(s, n)| format!("\"{}\":{n}", s.name())).collect();
    let mut out = format!(
        "{{\"total\":{},\"by_state\":{{{}}},\"handshakes\":{},\"time_wait\":{},\"skip\":{},\"max\":{},\"flows\":[",
        seen.total,
        states.join(","),
        seen.handshakes,
        seen.time_wait,
        wanted.skip,
        wanted.max
    );
    for (i, flow) in seen.shown.iter().enumerate() {
        out.push_str(if i == 0 { "\n" } else { ",\n" });
        json_row(&mut out, flow);
    }
    out.push_str("]}\n");
    out
}

fn json_row(out: &mut String, flow: &FlowInfo) {
    let tcp = &flow.tcp;
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "{{\"local\":\"{}\",\"remote\":\"{}\",\"state\":\"{}\",\"unread_bytes\":{},\"unsent_bytes\":{},\
         \"unacked_bytes\":{},\"cwnd_bytes\":{},\"ssthresh_bytes\":{},\"peer_window_bytes\":{},\"mss_bytes\":{},\
         \"srtt_us\":{},\"min_rtt_us\":{},\"rto_us\":{},\"segments_in\":{},\"segments_out\":{},\"resent\":{},\
         \"out_of_order\":{},\"idle_ms\":{}}}",
        flow.local,
        flow.remote,
        flow.state.name(),
        flow.unread_bytes,
        flow.unsent_bytes,
        flow.unacked_bytes,
        flow.cwnd_bytes,
        Known(flow.ssthresh_bytes),
        flow.peer_window_bytes,
        flow.mss_bytes,
        // Zero stands for "no sample yet".
        Known(Some(tcp.rtt_us).filter(|us| *us > 0)),
        Known(Some(tcp.min_rtt_us).filter(|us| *us > 0)),
        flow.rto_us,
        tcp.data_segs_in,
        tcp.data_segs_out,
        tcp.retransmits,
        tcp.out_of_order,
        flow.idle_ms
    );
}

/// A number, or `null`.
struct Known(Option<u32>);

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(n) => n.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// The table in the style of `netstat` and `ss`.
fn text(seen: &Seen, wanted: &Wanted) -> String {
    let shown = |state: &FlowState| state.name().to_uppercase().replace('_', "-");
    let mut out = format!("connections {}", seen.total);
    for (state, n) in FlowState::ALL.iter().zip(seen.by_state).filter(|(_, n)| *n > 0) {
        let _ = write!(out, ", {} {n}", shown(state));
    }
    let _ = writeln!(out, "; handshakes {}, TIME-WAIT {}", seen.handshakes, seen.time_wait);
    let addresses = seen.shown.iter().map(|f| f.local.to_string().len().max(f.remote.to_string().len()));
    let wide = addresses.max().unwrap_or(0).max(6);
    let _ = writeln!(
        out,
        "{:<12} {:>8} {:>8}  {:<wide$}  {:<wide$}  {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}",
        "State",
        "Recv-Q",
        "Send-Q",
        "Local",
        "Peer",
        "cwnd",
        "ssthresh",
        "srtt/us",
        "rto/us",
        "resent",
        "idle/ms"
    );
    for flow in &seen.shown {
        let threshold = flow.ssthresh_bytes.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "{:<12} {:>8} {:>8}  {:<wide$}  {:<wide$}  {:>9} {threshold:>9} {:>9} {:>9} {:>7} {:>9}",
            shown(&flow.state),
            flow.unread_bytes,
            flow.unsent_bytes + flow.unacked_bytes,
            flow.local.to_string(),
            flow.remote.to_string(),
            flow.cwnd_bytes,
            flow.tcp.rtt_us,
            flow.rto_us,
            flow.tcp.retransmits,
            flow.idle_ms
        );
    }
    let end = wanted.skip.saturating_add(seen.shown.len());
    if end < seen.total {
        let _ = writeln!(out, "... {} more: ?text&skip={end}", seen.total - end);
    }
    out
}

#[cfg(test)]
mod tests;
