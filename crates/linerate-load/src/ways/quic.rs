//! The engine over QUIC: the same loop, on a transport whose connections carry streams over UDP.

use std::net::TcpStream;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use linerate_base::derive;
use linerate_client::{H3, H3Shared, QuicTransport, QuicWay};
use linerate_net::Profile;
use linerate_net::datagrams::{Datagrams, UdpEpoll};
use linerate_quic::{QuicEndpoint, QuicOptions};

use super::CorePart;
use super::core_part::limits;
use crate::engine::board::Board;
use crate::engine::responses::ResponseReading;
use crate::outcome::{Outcome, QuicFigures};
use crate::plan::Plan;

/// Unidirectional streams that a server may open. Reason: it needs three, and some open more that mean nothing
/// (RFC 9114, section 6.2.3).
const SERVER_STREAMS: u32 = 16;

/// How long a server that QUIC did not reach has to accept a TCP connection. Reason: the run is over, and only
/// the words of its failure wait for it.
const TCP_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of a response, and of all on a connection, that the server may send before they are read. Reason: as
/// HTTP/2's windows; they cost no memory, because what arrives is read at once.
const WINDOW: u32 = 16 << 20;

/// Runs a core's part over the kernel's UDP.
pub(super) fn run_over_udp(part: CorePart, plan: &Plan, board: Arc<Board>) -> Result<Outcome, String> {
    let net = UdpEpoll::new(limits(plan, &part).connections).map_err(|e| format!("UDP: {e}"))?;
    run_over(part, plan, net, board)
}

/// Whether TCP answers where QUIC did not, in words.
fn over_tcp(plan: &Plan) -> String {
    let Some(to) = plan.target.addresses.first() else { return String::new() };
    match TcpStream::connect_timeout(to, TCP_PATIENCE) {
        Ok(_) => "; over TCP the same port answers: the server may not speak HTTP/3".to_owned(),
        Err(error) => format!("; over TCP it does not answer either: {error}"),
    }
}

/// Runs a core's part over any datagrams.
pub(crate) fn run_over<D: Datagrams>(
    part: CorePart,
    plan: &Plan,
    net: D,
    board: Arc<Board>,
) -> Result<Outcome, String> {
    let Some((tls, name)) = part.route.as_ref().and_then(|route| route.quic()) else {
        return Err("QUIC has no connection without TLS".to_owned());
    };
    let mut options = QuicOptions::default();
    (options.streams, options.unidirectional_streams) = (0, SERVER_STREAMS);
    (options.stream_window, options.connection_window) = (WINDOW, WINDOW);
    // Connection IDs come from it: two runs must not have the same.
    let seed = derive(plan.seed ^ u64::from(std::process::id()), u64::from(part.core));
    let endpoint = QuicEndpoint::client(&options, tls, seed).map_err(|e| e.to_string())?;
    let transport = QuicTransport::new(net, endpoint, QuicWay { name, depth: plan.streams_at_once() });
    let totals = transport.totals();
    let mut outcome = part.run_by::<QuicTransport<D>, H3<ResponseReading>>(
        plan,
        transport,
        Profile::default(),
        board,
        H3Shared::default(),
    )?;
    let totals = *totals.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.quic = Some(QuicFigures::from(totals));
    if let Some(why) = &mut outcome.unreachable {
        why.push_str(&over_tcp(plan));
    }
    Ok(outcome)
}
