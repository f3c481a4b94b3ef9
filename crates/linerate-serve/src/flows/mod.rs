//! `/stats/flows`: the connections of a user-space TCP, which no other tool of the machine shows.
//! On request, each thread scans its own table, a few places in each turn; otherwise it does
//! nothing.

mod scan;

use std::fmt::{self, Write};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use linerate_net::{FlowInfo, FlowState};
use tokio::sync::oneshot;

pub(crate) use self::scan::{Ask, FlowScan, Scans};
use crate::limits;
use crate::orders::{Order, Post};
use crate::{Request, Response, sleep};

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
            Err(words) => return Response::explained(400, &words),
        };
        match self.ask(&wanted).await {
            Some(seen) if wanted.text => Response::text(text(&seen, &wanted)),
            Some(seen) => Response::json(json(&seen, &wanted)),
            None => Response::explained(503, "a thread of the server is busy; ask again"),
        }
    }

    /// Asks one thread after the other, so that rows are counted over all of them.
    async fn ask(&self, wanted: &Wanted) -> Option<FlowScan> {
        let mut all = FlowScan::default();
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
async fn in_time(told: oneshot::Receiver<FlowScan>) -> Option<FlowScan> {
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

fn json(seen: &FlowScan, wanted: &Wanted) -> String {
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
        MaybeNumber(flow.ssthresh_bytes),
        flow.peer_window_bytes,
        flow.mss_bytes,
        // Zero stands for "no sample yet".
        MaybeNumber(Some(tcp.rtt_us).filter(|us| *us > 0)),
        MaybeNumber(Some(tcp.min_rtt_us).filter(|us| *us > 0)),
        flow.rto_us,
        tcp.data_segs_in,
        tcp.data_segs_out,
        tcp.retransmits,
        tcp.out_of_order,
        flow.idle_ms
    );
}

/// A number, or `null`.
struct MaybeNumber(Option<u32>);

impl fmt::Display for MaybeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(n) => n.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// The table in the style of `netstat` and `ss`.
fn text(seen: &FlowScan, wanted: &Wanted) -> String {
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
