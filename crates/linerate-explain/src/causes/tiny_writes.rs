//! The server writes its response in many small pieces, each a separate packet.
//!
//! Evidence: segments received compared with bytes received (`tcpi_data_segs_in`).

use super::{Cause, Fix, Judgement, excluded, nothing, say, server_nagle};
use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::record::{Record, median_of};
use crate::stats::median;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "tiny-writes",
    title: "the server writes its answer in many small pieces, each a packet of its own",
    fixes: FIXES,
    verify: super::AGAIN,
    wants: nothing,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "Java servlets, JDK HttpServer",
        change: "wrap the stream in a BufferedOutputStream; no flush() in loops; response.setBufferSize",
    },
    Fix { software: "Node", change: "one res.end(body), or res.cork() and uncork() around many writes" },
    Fix { software: "Go", change: "bufio.NewWriter around the ResponseWriter where it is flushed by hand" },
    Fix { software: "Python", change: "yield larger pieces; wbufsize = -1 in http.server's handler" },
    Fix { software: "nginx", change: "tcp_nopush on with sendfile; proxy_buffering on" },
    Fix { software: "any server", change: "collect before writing (writev, MSG_MORE, TCP_CORK)" },
];

/// Segments from which it matters.
const SEGMENTS: f64 = 16.0;
/// Bytes in each below which they are small.
const SMALL: f64 = 300.0;

/// Beyond a round trip, which Nagle's algorithm holds a piece back for, milliseconds.
const PAUSE_MS: f64 = 5.0;

/// Pauses between the pieces of a response if the server itself makes them, for example because it
/// responds word by word, milliseconds.
pub(super) fn apart_ms(record: &Record) -> Option<f64> {
    let pauses: Vec<f64> = record
        .group()
        .iter()
        .flat_map(|c| c.receives.windows(2))
        .map(|w| ms(w[1].at.saturating_sub(w[0].at)))
        .collect();
    let own = pauses.len() > SEGMENTS as usize && median(&pauses) > 1.5 * record.rtt_ms() + PAUSE_MS;
    let stalls = matches!((server_nagle::CAUSE.judge)(record), Judgement::Named(_));
    (own && !stalls).then(|| median(&pauses))
}

fn judge(record: &Record) -> Judgement {
    let calls: Vec<_> = record.group().into_iter().filter(|c| c.facts.data_segs_in > 0).collect();
    if calls.len() < 2 {
        return Judgement::Silent;
    }
    let segments = median(&calls.iter().map(|c| f64::from(c.facts.data_segs_in)).collect::<Vec<_>>());
    let bytes = median(&calls.iter().map(|c| c.facts.bytes_received as f64).collect::<Vec<_>>());
    if segments < SEGMENTS || bytes / segments > SMALL {
        return excluded(format!(
            "an answer comes in {segments:.0} segments of {:.0} bytes",
            bytes / segments.max(1.0)
        ));
    }
    if let Some(apart) = apart_ms(record) {
        return excluded(format!(
            "its {segments:.0} pieces come {} apart, which no round trip and no acknowledgement explains: the server makes them as it \
             goes",
            say(apart)
        ));
    }
    let stalls = matches!((server_nagle::CAUSE.judge)(record), Judgement::Named(_));
    let cost = if stalls { 0.1 } else { median_of(&calls, |c| c.receive) };
    let words = format!(
        "an answer of {bytes:.0} bytes comes in {segments:.0} segments of {:.0} bytes each; full ones would be {:.0}; from its first \
         to its last byte it takes {}",
        bytes / segments,
        (bytes / 1448.0).ceil(),
        say(median_of(&calls, |c| c.receive))
    );
    Judgement::Named(Box::new(
        Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: 1.0 }).at_most(Proof::Likely),
    ))
}
