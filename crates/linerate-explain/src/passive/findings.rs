//! From what was seen to what it means: pure functions over an [`Observation`].

mod connections;
mod doubt;
mod finding;
mod streams;

use super::cause;
use super::flow::ms;
use super::observation::{Observation, Sums};
pub(super) use doubt::{is_wide, missing};
use finding::{CauseTexts, FOLLOWED, Fixes, LEAST_NS, SHARE, made, per};
pub use finding::{Confidence, Finding, SoftwareFix};

/// Time of the server from which on it is named, nanoseconds.
const THINK_NS: i64 = 10_000_000;

/// The causes that cost time, most costly first. Where there are several servers, each is judged by
/// its own calls.
pub fn of(seen: &Observation) -> Vec<Finding> {
    let mut found: Vec<Finding> = if seen.servers.is_empty() {
        of_server(seen, 0)
    } else {
        let refused = connections::are_refused(seen);
        let each = seen.servers.iter().flat_map(|(server, part)| {
            of_server(part, ENOUGH).into_iter().map(|f| Finding { server: *server, ..f })
        });
        each.filter(|f| f.id != cause::REFUSED || refused).collect()
    };
    // A few calls to each of many servers say something together.
    if !seen.servers.is_empty() && found.iter().all(|f| f.id != cause::SERVER_THINK) {
        found.extend(server_think(seen, &found));
    }
    if is_wide(seen) {
        found.iter_mut().for_each(|f| f.confidence = Confidence::Possible);
    }
    found.sort_by_key(|f| (std::cmp::Reverse(f.all_ns), f.server));
    found
}

/// Calls from which on a server's own time is told from that of others.
const ENOUGH: u64 = 3;

/// `enough`: calls from which on the server's own time is judged.
fn of_server(seen: &Observation, enough: u64) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.seen.iter().filter_map(|s| from_notes(seen, s)).collect();
    merge(&mut found);
    found.extend(connections::from_faults(seen));
    if seen.sums.answered >= enough {
        found.extend(server_think(seen, &found));
    }
    found.extend(head_of_line(seen, &found));
    found.extend(no_keep_alive(seen));
    found.extend(client_pool(seen));
    found.extend(streams::limit(seen));
    found
}

/// One cause is named once: with the larger count of the two.
fn merge(found: &mut Vec<Finding>) {
    found.sort_by_key(|f| (f.id, std::cmp::Reverse(f.all_ns)));
    found.dedup_by(|again, first| {
        let is = again.id == first.id;
        if is {
            first.all_ns = first.all_ns.saturating_add(again.all_ns);
            first.calls = first.calls.max(again.calls);
        }
        is
    });
}

fn from_notes(seen: &Observation, s: &super::TroubleCount) -> Option<Finding> {
    // The median, because a single outlier does not represent all calls.
    let cost_ns = s.median_ns;
    if cost_ns < LEAST_NS || (s.cost_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    let confidence = match s.id {
        // Once may be a server that happened to be ready just then.
        cause::SERVER_NAGLE | cause::CLIENT_NAGLE if s.calls < 3 => Confidence::Possible,
        _ => Confidence::Likely,
    };
    // Taken for lost, and the first ones came after all: in their place those that had overtaken
    // them waited.
    let late = seen.late;
    let came = s.id == cause::PACKET_LOSS && 4 * late.lost <= late.told;
    let id = if came { cause::REORDERING } else { s.id };
    let mut evidence = s.evidence.clone();
    if came {
        evidence.insert(
            0,
            format!(
                "of {} segments that were sent again {} had arrived, or came after all: later ones had overtaken them",
                late.told,
                late.told - late.lost
            ),
        );
    }
    let known = KNOWN.iter().find(|k| k.id == id)?;
    Some(Finding {
        id,
        title: known.title,
        server: None,
        calls: s.calls,
        of: seen.sums.answered,
        cost_ns,
        all_ns: s.cost_ns,
        confidence,
        evidence,
        fixes: made(known.fixes),
        verify: known.verify.to_owned(),
        example: Some(s.example.clone()),
    })
}

/// The server's own time, when it is most of the calls' time and long.
fn server_think(seen: &Observation, found: &[Finding]) -> Option<Finding> {
    let s: &Sums = &seen.sums;
    let cost_ns = s.slow_think_median_ns;
    // Other causes that hold back the first byte are not thinking.
    let others = found.iter().filter(|f| f.id != cause::PACKET_LOSS);
    let explained = others.fold(0i64, |sum, f| sum.saturating_add(f.all_ns));
    let most = (s.slow_think_ns as f64) < 0.4 * s.total_ns as f64;
    if s.slow_thinks == 0 || cost_ns < THINK_NS || most || explained > s.slow_think_ns {
        return None;
    }
    let example = seen.slowest.iter().max_by_key(|c| c.think_ns);
    let [median, _, p99, longest] = s.think_quantiles_ns;
    Some(Finding {
        id: cause::SERVER_THINK,
        title: "the server takes its time before the first byte of its answer",
        server: None,
        calls: s.slow_thinks,
        of: s.answered,
        cost_ns,
        all_ns: s.slow_think_ns,
        // One slow call of many may be anything.
        confidence: if s.rtt_min_ns.is_some() && (s.slow_thinks > 1 || s.answered == 1) {
            Confidence::Likely
        } else {
            Confidence::Possible
        },
        evidence: vec![format!(
            "from the request's last byte to the answer's first, the network's round trip taken off: median {}, 99 % within {}, at most {}{}",
            ms(median),
            ms(p99),
            ms(longest),
            bound(s)
        )],
        fixes: made(THINK_FIXES),
        verify: "linerate explain URL --pid PID".to_owned(),
        example: example.cloned(),
    })
}

/// How the round trip is known if no handshake shows it, in words.
fn bound(s: &Sums) -> String {
    match (s.rtt_min_ns, s.rtt_bound_ns) {
        (None, Some(bound)) => format!(
            "; no opening is in the capture: the round trip is at most {}, the shortest time until a server acknowledged anything",
            ms(bound)
        ),
        _ => String::new(),
    }
}

fn head_of_line(seen: &Observation, found: &[Finding]) -> Option<Finding> {
    let s = &seen.sums;
    // Answers wait behind earlier ones that their client does not read: that is the reason.
    let unread = found.iter().filter(|f| f.id == cause::CLIENT_SLOW_READER).map(|f| f.all_ns).max();
    if unread.is_some_and(|ns| ns.saturating_mul(2) >= s.queued_ns) {
        return None;
    }
    let cost_ns = per(s.queued_ns, s.queued);
    if s.queued == 0 || cost_ns < LEAST_NS || (s.queued_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    Some(Finding {
        id: cause::HEAD_OF_LINE,
        title: title(cause::HEAD_OF_LINE),
        server: None,
        calls: s.queued,
        of: s.answered,
        cost_ns,
        all_ns: s.queued_ns,
        confidence: Confidence::Likely,
        evidence: vec![format!(
            "{} calls waited for the end of the answer before theirs: their requests were sent before it (pipelining)",
            s.queued
        )],
        fixes: made(LINE_FIXES),
        verify: "linerate load URL --pipeline 1".to_owned(),
        example: seen.slowest.iter().max_by_key(|c| c.queued_ns).cloned(),
    })
}

fn no_keep_alive(seen: &Observation) -> Option<Finding> {
    let s = &seen.sums;
    let first = s.first_calls as f64 / s.answered.max(1) as f64;
    let cost_ns = per(s.connect_ns, s.first_calls);
    // Each client's first call pays in any case.
    let clients = seen.connections.iter().filter_map(|c| c.handshake.map(|_| (c.client.ip(), c.server)));
    let clients = clients.collect::<std::collections::HashSet<_>>().len() as u64;
    let often = s.first_calls >= 5 && s.first_calls >= 3 * clients && first > 0.8;
    if !often || cost_ns < LEAST_NS || (s.connect_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    Some(Finding {
        id: cause::NO_KEEP_ALIVE,
        title: "nearly every call opens a connection of its own",
        server: None,
        calls: s.first_calls,
        of: s.answered,
        cost_ns,
        all_ns: s.connect_ns,
        confidence: Confidence::Likely,
        evidence: vec![format!(
            "{} of {} calls were the first on their connection; opening took {} each",
            s.first_calls,
            s.answered,
            ms(cost_ns)
        )],
        fixes: made(KEEP_FIXES),
        verify: "linerate load URL --per-connection 1, against the same without".to_owned(),
        example: seen.slowest.iter().max_by_key(|c| c.connect_ns).cloned(),
    })
}

/// Bursts in which all connections were busy; fewer are chance.
const BURSTS: u64 = 3;
/// Share of the time that lies between bursts. A program that makes its calls in a closed loop (a
/// load generator, workers that never run out of work) keeps all of them busy all the time, and
/// nothing waits in it.
const SLACK: f64 = 0.1;

/// Calls come in bursts and are never more at once than some number. While they are that many, each
/// response is followed by the next request at once: the rest of the burst waits in the caller.
fn client_pool(seen: &Observation) -> Option<Finding> {
    let waits = |p: &&super::ObservedPool| {
        p.connections >= 2
            && p.times >= BURSTS
            && p.followed >= FOLLOWED.max(p.times)
            && 2 * p.followed >= p.ended
            && p.between_ns as f64 >= SLACK * p.watched_ns as f64
    };
    let pool = seen.pools.iter().filter(waits).max_by_key(|p| p.waited_ns)?;
    let cost_ns = per(pool.waited_ns, pool.followed);
    if cost_ns < LEAST_NS || (pool.waited_ns as f64) < SHARE * seen.sums.total_ns as f64 {
        return None;
    }
    Some(Finding {
        id: cause::CLIENT_POOL,
        title: title(cause::CLIENT_POOL),
        server: None,
        calls: pool.followed.min(seen.sums.answered),
        of: seen.sums.answered,
        cost_ns,
        all_ns: pool.waited_ns,
        // From its packets a fixed number of workers looks the same, whose work comes in bursts.
        confidence: Confidence::Possible,
        evidence: vec![
            format!(
                "{} has never more than {} calls to {} at once; {} times it came to that, and of {} answers then {} were followed by the \
                 next request on the same connection at once (within 3 ms)",
                pool.client, pool.connections, pool.server, pool.times, pool.ended, pool.followed
            ),
            format!(
                "those requests left up to {} after all connections had become busy: if they were there by then, they waited that long",
                ms(cost_ns)
            ),
            format!(
                "as many workers (threads) as connections look the same from outside: the pool's own figures, or a thread dump of {}, tell",
                pool.client
            ),
        ],
        fixes: made(POOL_FIXES),
        verify: "capture again with a larger pool: more calls at once, and none that follows an answer"
            .to_owned(),
        example: seen.slowest.first().cloned(),
    })
}

const POOL_FIXES: Fixes = &[
    (
        "Apache HttpClient",
        "PoolingHttpClientConnectionManager: setDefaultMaxPerRoute (2 in version 4, 5 in version 5) and setMaxTotal; a lease time-out that is logged",
    ),
    (
        "Spring RestTemplate, WebClient",
        "the pool of the client below it: ConnectionProvider.builder(...).maxConnections(n)",
    ),
    ("OkHttp", "Dispatcher.setMaxRequestsPerHost (5 by default)"),
    ("Node", "new http.Agent({ keepAlive: true, maxSockets: n }); requests that wait are in agent.requests"),
    ("Go", "Transport.MaxConnsPerHost; MaxIdleConnsPerHost (2 by default) makes it open new ones instead"),
    (
        "Python requests, urllib3, aiohttp",
        "HTTPAdapter(pool_maxsize=n, pool_block=...), TCPConnector(limit=n, limit_per_host=n)",
    ),
    (
        ".NET",
        "SocketsHttpHandler.MaxConnectionsPerServer; ServicePointManager.DefaultConnectionLimit (2) on .NET Framework",
    ),
    ("browsers", "six connections for each host under HTTP/1.1: HTTP/2"),
];

const THINK_FIXES: Fixes =
    &[("the server", "what it waits for is not in the packets: look at its own threads, queries and calls")];

const LINE_FIXES: Fixes = &[("the client", "slow requests on a connection of their own, or HTTP/2")];

const KEEP_FIXES: Fixes = &[
    ("the client", "keep connections and use them again (a pool, a session, an agent with keepAlive)"),
    ("the server", "do not answer Connection: close"),
];

/// Causes that have no row in [`KNOWN`]: their line, and what to change.
const OTHERS: [(&str, &str, Fixes); 8] = [
    (cause::RESPONSE_CUT, connections::CUT, connections::CUT_FIXES),
    (cause::H2_STREAM_LIMIT, streams::LIMIT, streams::LIMIT_FIXES),
    (cause::SERVER_THINK, "the server takes its time before the first byte of its answer", THINK_FIXES),
    (cause::HEAD_OF_LINE, "answers wait behind earlier ones on the same connection", LINE_FIXES),
    (cause::NO_KEEP_ALIVE, "each call opens a connection of its own", KEEP_FIXES),
    (cause::CLIENT_POOL, "calls wait in the calling program for one of its few connections", POOL_FIXES),
    (cause::REFUSED, "connections were refused: nobody listens there", connections::FAULT_FIXES),
    (
        cause::DIED,
        "connections died: one end sent the same again and again and heard nothing any more",
        connections::FAULT_FIXES,
    ),
];

/// A cause in one line; empty for one that packets do not show.
pub(crate) fn title(id: &str) -> &'static str {
    let others = OTHERS.iter().find(|o| o.0 == id).map(|o| o.1);
    others.or_else(|| KNOWN.iter().find(|k| k.id == id).map(|k| k.title)).unwrap_or_default()
}

/// The fixes for a cause that packets show.
pub(crate) fn advice(id: &str) -> Vec<crate::rule::RuleFix> {
    let known = KNOWN.iter().map(|k| (k.id, k.fixes)).chain(OTHERS.iter().map(|o| (o.0, o.2)));
    let fixes = known.filter(|(other, _)| *other == id).flat_map(|(_, fixes)| fixes);
    fixes.map(|(software, change)| crate::rule::RuleFix { software, change }).collect()
}

/// All of that, by cause.
#[cfg(test)]
pub(crate) fn all_advice() -> Vec<(&'static str, crate::rule::RuleFix)> {
    let ids = KNOWN.iter().map(|k| k.id).chain(OTHERS.iter().map(|o| o.0));
    ids.flat_map(|id| advice(id).into_iter().map(move |fix| (id, fix))).collect()
}

const REORDERED: CauseTexts = CauseTexts {
    id: cause::REORDERING,
    title: "segments overtook each other on the way: what comes first waits for what was sent first",
    fixes: &[
        (
            "the network",
            "several links or queues that share the packets of one connection: hash by connection, not by packet (bonding: xmit_hash_policy \
             layer3+4, not balance-rr; routers: per-flow load sharing)",
        ),
        (
            "Linux, as the sender",
            "RACK allows for it (net.ipv4.tcp_recovery=1); net.ipv4.tcp_reordering and tcp_max_reordering raise what it bears before it sends \
             again and slows down",
        ),
        (
            "network cards",
            "packets of one connection in one queue: RSS by ports; no flow director that moves flows (ethtool -K ntuple)",
        ),
    ],
    verify: "capture again after the change: no segment comes behind later ones",
};

const KNOWN: [CauseTexts; 12] = [
    REORDERED,
    streams::FLOW_CONTROL,
    streams::HEAD_OF_LINE,
    CauseTexts {
        id: cause::LATE_CLOSE,
        title: "the answer ends when its connection is closed, and the server closes it late",
        fixes: &[
            (
                "any server",
                "Content-Length or chunked with each answer, so that its end is known when it is there",
            ),
            (
                "HTTP/1.0 servers, CGI",
                "close (and shut down) right after the last byte, not after cleaning up",
            ),
        ],
        verify: "capture again after the change: the FIN comes with the last byte, or is not waited for",
    },
    CauseTexts {
        id: cause::SERVER_NAGLE,
        title: "the server's answer leaves in parts, and the rest waits for the client's delayed ACK (Nagle's algorithm)",
        fixes: &[
            ("any server", "TCP_NODELAY on accepted connections, or header and body in one write"),
            ("JDK HttpServer", "-Dsun.net.httpserver.nodelay=true"),
            ("Netty", "childOption(ChannelOption.TCP_NODELAY, true)"),
            ("Node.js", "http.createServer({ noDelay: true }) (its default since 18)"),
            (
                "Python http.server",
                "a handler with wbufsize = -1, so that header and body leave in one write",
            ),
        ],
        verify: "linerate explain URL proves or refutes it by acknowledging at once",
    },
    CauseTexts {
        id: cause::CLIENT_NAGLE,
        title: "the client's request leaves in parts, and the rest waits for the server's delayed ACK (Nagle's algorithm)",
        fixes: &[
            ("any client", "TCP_NODELAY, or header and body in one write"),
            ("Apache HttpClient", "SocketConfig.custom().setTcpNoDelay(true) (its default since 4.3)"),
            ("Python http.client", "pass the body to request(), so that it leaves with the header"),
        ],
        verify: "capture again after the change: the pause inside the request is gone",
    },
    CauseTexts {
        id: cause::PACKET_LOSS,
        title: "segments were lost and had to be sent again",
        fixes: &[(
            "the network",
            "look for errors and drops on the way (ethtool -S, ip -s link, a full queue)",
        )],
        verify: "linerate explain URL counts retransmissions with the kernel's own counters",
    },
    CauseTexts {
        id: cause::SYN_LOSS,
        title: "the connection's first packet had to be sent again",
        fixes: &[
            (
                "the server",
                "a longer accept queue (listen's backlog and net.core.somaxconn), or accept faster",
            ),
            ("the network", "look for drops; a firewall that drops SYNs looks the same"),
        ],
        verify: "nstat TcpExtListenOverflows TcpExtListenDrops on the server",
    },
    CauseTexts {
        id: cause::TIME_WAIT_COLLISION,
        title: "the connection's ports had just been used: the server still remembers the last connection between them",
        fixes: &[
            (
                "NAT, load balancers",
                "more source addresses and a longer time before a port is used again (at least the server's 60 s of TIME_WAIT); no randomising or \
                 rewriting of timestamps",
            ),
            ("the client", "keep connections; no fixed source port; net.ipv4.tcp_timestamps=1"),
            ("the server", "let the client close first (keep-alive): then TIME_WAIT is on its side"),
        ],
        verify: "linerate explain URL tries ports that nobody used",
    },
    CauseTexts {
        id: cause::ZERO_WINDOW,
        title: "the server did not read the request as fast as it came: its window closed",
        fixes: &[(
            "the server",
            "read while it works, with more threads or larger buffers (net.ipv4.tcp_rmem)",
        )],
        verify: "capture again after the change: no zero window",
    },
    CauseTexts {
        id: cause::CLIENT_SLOW_READER,
        title: "the client did not read the answer as fast as it came: its window closed",
        fixes: &[(
            "the client",
            "read on while it works with what came (another thread, a queue with room), or larger buffers (net.ipv4.tcp_rmem)",
        )],
        verify: "capture again after the change: no zero window",
    },
    CauseTexts {
        id: cause::EXPECT_CONTINUE,
        title: "the client holds its body back until the server says 100 Continue",
        fixes: &[
            ("curl", "-H 'Expect:' for requests that will be accepted"),
            ("Apache HttpClient", "RequestConfig.custom().setExpectContinueEnabled(false)"),
            (".NET", "HttpClient.DefaultRequestHeaders.ExpectContinue = false"),
            ("the server", "answer 100 Continue at once (RFC 9110, section 10.1.1)"),
        ],
        verify: "capture again with the Expect field left out",
    },
];
