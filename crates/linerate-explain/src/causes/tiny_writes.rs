//! The server writes its response in many small pieces, each a separate packet.
//!
//! Evidence: segments received compared with bytes received (`tcpi_data_segs_in`).

use super::server_nagle;
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded, nothing_beside};
use crate::signs::pieces::{self, MANY};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "tiny-writes",
    title: "the server writes its answer in many small pieces, each a packet of its own",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[],
        // Pieces that wait for our acknowledgements cost the time that Nagle's algorithm takes.
        asks: &[&server_nagle::CAUSE],
        wants: nothing_beside,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The server writes its answer in many small pieces, and each leaves as a packet of its own. Each packet costs both machines a \
         system call, an interrupt and an acknowledgement, whatever its size; thousands of them make a small answer slow.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, 12 bytes"),
        PictureStep::From("answer, 12 bytes"),
        PictureStep::From("answer, 12 bytes"),
        PictureStep::Wait(5.0, "and so on"),
        PictureStep::From("answer ends"),
    ],
    more: &[],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Java servlets, JDK HttpServer",
        change: "wrap the stream in a BufferedOutputStream; no flush() in loops; response.setBufferSize",
    },
    RuleFix { software: "Node", change: "one res.end(body), or res.cork() and uncork() around many writes" },
    RuleFix {
        software: "Go",
        change: "bufio.NewWriter around the ResponseWriter where it is flushed by hand",
    },
    RuleFix { software: "Python", change: "yield larger pieces; wbufsize = -1 in http.server's handler" },
    RuleFix { software: "nginx", change: "tcp_nopush on with sendfile; proxy_buffering on" },
    RuleFix { software: "any server", change: "collect before writing (writev, MSG_MORE, TCP_CORK)" },
];

/// Bytes in each below which they are small.
const SMALL: f64 = 300.0;

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let calls: Vec<_> = record.group().into_iter().filter(|c| c.facts.data_segs_in > 0).collect();
    if calls.len() < 2 {
        return Judgement::Silent;
    }
    let segments = median(&calls.iter().map(|c| f64::from(c.facts.data_segs_in)).collect::<Vec<_>>());
    let bytes = median(&calls.iter().map(|c| c.facts.bytes_received as f64).collect::<Vec<_>>());
    if segments < MANY as f64 || bytes / segments > SMALL {
        let in_words = match segments {
            1.0 => "one segment".to_owned(),
            _ => format!("{segments:.0} segments"),
        };
        return excluded(format!("an answer comes in {in_words} of {:.0} bytes", bytes / segments.max(1.0)));
    }
    let stalls = judged.names(&server_nagle::CAUSE);
    if let Some(apart) = pieces::apart_ms(record).filter(|_| !stalls) {
        return excluded(format!(
            "its {segments:.0} pieces come {} apart, which no round trip and no acknowledgement explains: the server makes them as it \
             goes",
            say(apart)
        ));
    }
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
