//! The response does not declare its length, so it ends when its connection is closed; and the
//! server closes it late.
//!
//! Evidence: the time from the response's last byte to the end of the connection. A client (curl, a
//! browser) waits for that end.

use crate::call::ms;
use crate::evidence::Grounds;
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, nothing};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "late-close",
    title: "the answer ends only when its connection is closed, and the server closes it late",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(|c| c.closed_after.unwrap_or_default()),
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "The answer says neither how long it is nor that it comes in chunks: it ends when the connection is closed. The server closes late, because it \
         cleans up first. All bytes are there, and the caller cannot know that.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, all of it"),
        PictureStep::Wait(500.0, "until the server closes"),
        PictureStep::From("FIN: so that was all"),
    ],
    more: &[],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the answer ends when its connection is closed, and the server closes it late",
    fixes: &[
        fix(
            "any server",
            "Content-Length or chunked with each answer, so that its end is known when it is there",
        ),
        fix(
            "HTTP/1.0 servers, CGI",
            "close (and shut down) right after the last byte, not after cleaning up",
        ),
    ],
    verify: "capture again after the change: the FIN comes with the last byte, or is not waited for",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "Content-Length or chunked with each answer, so that its end is known at once",
    },
    RuleFix {
        software: "HTTP/1.0 servers, CGI",
        change: "close right after the last byte, not after cleaning up",
    },
    RuleFix {
        software: "nginx",
        change: "proxy_http_version 1.1 towards the backend, so that answers have a length",
    },
];

/// Closed sooner than this, it is closed at once.
const LATE_MS: f64 = 10.0;

fn judge(record: &Record) -> Judgement {
    let group = record.group();
    let late: Vec<f64> = group.iter().filter_map(|c| c.closed_after).map(ms).collect();
    if late.len() < 2 || 2 * late.len() < group.len() || median(&late) < LATE_MS {
        return Judgement::Silent;
    }
    let words = format!(
        "{} of {} answers have no length and end with their connection, which is closed {} after the last byte",
        late.len(),
        group.len(),
        say(median(&late))
    );
    Judgement::Named(Box::new(Verdict::new(&CAUSE, median(&late), Grounds::Counted { words, share: 1.0 })))
}
