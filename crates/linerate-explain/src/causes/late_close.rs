//! The response does not declare its length, so it ends when its connection is closed; and the
//! server closes it late.
//!
//! Evidence: the time from the response's last byte to the end of the connection. A client (curl, a
//! browser) waits for that end.

use crate::call::ms;
use crate::evidence::Grounds;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, RuleFix, nothing};
use crate::stats::median;
use crate::verdict::Verdict;
use crate::words::say;

pub(super) static CAUSE: Cause = Cause {
    id: "late-close",
    title: "the answer ends only when its connection is closed, and the server closes it late",
    fixes: FIXES,
    verify: AGAIN,
    rule: Rule::Alone { wants: nothing, judge },
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
