//! A run in the forms that other programs read: CSV, JUnit XML, annotations of a pipeline.

use std::fmt::Write as _;

use crate::schema::outcome::{Check, Document};
use crate::units;

/// The series as CSV (RFC 4180) with a header line: one row for each second. A value that was not
/// measured is empty, and so are the percentiles of a second without a response. `at_least` names
/// percentiles at which a request without a good response stands.
pub fn csv(document: &Document) -> String {
    let mut out = String::from(
        "t_s,rate_rps,p50_us,p99_us,failed,bytes_received,bytes_sent,client_busy,server_busy,server_rss_mb,\
         retransmits,out_of_order,unknown,bad,at_least\r\n",
    );
    let some = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v}"));
    let count = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
    for i in &document.series {
        // Looks at the server are not made at the very ends of seconds.
        let server =
            document.server.as_ref().and_then(|s| s.series.iter().find(|s| (s.t_s - i.t_s).abs() < 0.5));
        let fields = [
            format!("{}", i.t_s),
            format!("{}", i.rate_rps),
            some(i.p50_us),
            some(i.p99_us),
            i.failed.to_string(),
            count(i.bytes.map(|b| b.received)),
            count(i.bytes.map(|b| b.sent)),
            some(i.client_busy),
            some(server.and_then(|s| s.busy)),
            some(server.and_then(|s| s.rss_mb)),
            count(i.tcp.map(|t| t.retransmits)),
            count(i.tcp.map(|t| t.out_of_order)),
            i.unknown.to_string(),
            i.bad.to_string(),
            i.at_least.join(" "),
        ];
        let _ = write!(out, "{}\r\n", fields.join(","));
    }
    out
}

/// The small steps as CSV with a header line; a value that was not taken is empty.
pub fn csv_fine(document: &Document) -> String {
    let mut out = String::from(
        "t_s,rate_rps,failed,bytes_received,bytes_sent,in_flight,client_busy,server_busy,duplicate_acks,\
         zero_windows,windows_full,retransmissions,unknown,bad\r\n",
    );
    for i in document.series_fine.iter().flatten() {
        let taken = |value: Option<u64>| value.map_or(String::new(), |n| n.to_string());
        let cores = |value: Option<f64>| value.map_or(String::new(), |busy| busy.to_string());
        let fields = [
            i.t_s.to_string(),
            i.rate_rps.to_string(),
            i.failed.to_string(),
            i.bytes_received.to_string(),
            i.bytes_sent.to_string(),
            taken(i.in_flight),
            cores(i.client_busy),
            cores(i.server_busy),
            taken(i.duplicate_acks),
            taken(i.zero_windows),
            taken(i.windows_full),
            taken(i.retransmissions),
            i.unknown.to_string(),
            i.bad.to_string(),
        ];
        let _ = write!(out, "{}\r\n", fields.join(","));
    }
    out
}

/// The value of a check, with its unit.
pub(crate) fn found(check: &Check, unicode: bool) -> String {
    let Some(v) = check.value else { return "nothing was measured".to_owned() };
    let value = match check.unit.as_str() {
        "us" => units::time_us(v, unicode),
        "share" => units::percent(v),
        "1/s" => format!("{}/s", units::rate(v)),
        _ => units::count(v as u64),
    };
    match check.at_least {
        true => format!("{} {value}", if unicode { "≥" } else { ">=" }),
        false => value,
    }
}

/// Why the run itself did not end well, if so.
fn fault(document: &Document) -> Option<String> {
    let part = document.machines.as_ref().and_then(crate::machines::not_complete);
    if let Some(verdict) = &document.verdict {
        let all: Vec<String> = part.into_iter().chain(verdict.reasons.iter().cloned()).collect();
        return (!all.is_empty()).then(|| all.join("; "));
    }
    let unreachable =
        document.unreachable.as_ref().map(|why| format!("the target could not be reached: {why}"));
    let aborted = document.aborted.as_ref().map(|why| format!("--abort-on ended the run: {why}"));
    let nothing = (document.requests.answered == 0).then(|| "no request was answered".to_owned());
    unreachable.or(aborted).or(part).or(nothing)
}

/// Text as XML, without what XML 1.0 cannot hold.
fn xml(text: &str) -> String {
    crate::markup::escape(text).replace(['\u{fffe}', '\u{ffff}'], "")
}

/// Checks as JUnit XML: a test for the run, and one for each check.
pub fn junit(document: &Document) -> String {
    let fault = fault(document);
    let failed = document.checks.iter().filter(|c| !c.pass).count() + usize::from(fault.is_some());
    let tests = document.checks.len() + 1;
    let time = document.duration_s;
    let at = document.started_at.as_deref().map_or(String::new(), |at| {
        format!(" timestamp=\"{}\"", xml(at.split(['.', 'Z']).next().unwrap_or_default()))
    });
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" time=\"{time}\">\n  \
         <testsuite name=\"linerate load {}\" tests=\"{tests}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"{time}\"{at}>\n",
        xml(&document.target)
    );
    let mut case = |name: &str, failure: Option<String>| {
        let _ =
            write!(out, "    <testcase classname=\"linerate.load\" name=\"{}\" time=\"{time}\"", xml(name));
        let _ = match failure {
            None => out.write_str("/>\n"),
            Some(why) => {
                writeln!(out, ">\n      <failure message=\"{0}\">{0}</failure>\n    </testcase>", xml(&why))
            }
        };
    };
    case("the run", fault);
    for check in &document.checks {
        case(&check.expr, (!check.pass).then(|| format!("{}: {}", check.expr, found(check, false))));
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// Failed checks and warnings as commands to GitHub Actions, a line each.
pub fn github(document: &Document) -> String {
    let escaped = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let mut out = String::new();
    let mut line = |kind: &str, title: &str, text: &str| {
        let title = escaped(title).replace(':', "%3A").replace(',', "%2C");
        let _ = writeln!(out, "::{kind} title={title}::{}", escaped(text));
    };
    if let Some(why) = fault(document) {
        line("error", "linerate load", &format!("{}: {why}", document.target));
    }
    for check in document.checks.iter().filter(|c| !c.pass) {
        line(
            "error",
            &format!("{} failed", check.expr),
            &format!("{} at {}", found(check, false), document.target),
        );
    }
    for warning in &document.warnings {
        line("warning", "linerate load", warning);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::outcome::ServerSecond;
    use crate::testing::{checked, environment, outcome_closed, plan_closed};
    use crate::{Report, json};

    fn document() -> Document {
        let (plan, outcome) = (plan_closed(), outcome_closed());
        let (checks, environment) = (checked(&plan, &outcome), environment());
        json::document(&Report { plan: &plan, outcome: &outcome, checks: &checks, environment: &environment })
    }

    fn check(expr: &str, pass: bool) -> Check {
        Check { expr: expr.to_owned(), value: Some(51_000.0), unit: "us".to_owned(), at_least: false, pass }
    }

    #[test]
    fn every_row_has_every_field() {
        let mut document = document();
        document.series[0].p99_us = None;
        document.server = Some(crate::schema::outcome::Server {
            series: vec![ServerSecond { t_s: 1.2, busy: Some(0.5), rss_mb: Some(9.0) }],
            ..Default::default()
        });
        let text = csv(&document);
        let rows: Vec<Vec<&str>> = text.trim_end().split("\r\n").map(|l| l.split(',').collect()).collect();
        assert_eq!(rows.len(), document.series.len() + 1);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        assert_eq!((rows[1][3], rows[1][8], rows[2][8]), ("", "0.5", ""));
        document.series[1].at_least = vec!["p50".to_owned(), "p99".to_owned()];
        document.series[1].bad = 7;
        let text = csv(&document);
        assert!(text.split("\r\n").nth(2).is_some_and(|row| row.ends_with(",0,7,p50 p99")), "{text}");
    }

    #[test]
    fn each_small_step_has_what_got_no_good_response() {
        let mut document = document();
        let step = &mut document.series_fine.as_mut().unwrap()[1];
        (step.failed, step.unknown, step.bad) = (1, 2, 3);
        let text = csv_fine(&document);
        let rows: Vec<Vec<&str>> = text.trim_end().split("\r\n").map(|l| l.split(',').collect()).collect();
        let of = |name| rows[2][rows[0].iter().position(|column| *column == name).unwrap()];
        assert_eq!(["failed", "unknown", "bad"].map(of), ["1", "2", "3"], "{text}");
    }

    #[test]
    fn a_failed_check_is_a_failure_with_what_was_found() {
        let mut document = document();
        document.checks = vec![check("p99<50ms", false), check("p50<60ms", true)];
        let text = junit(&document);
        assert!(text.contains("tests=\"3\" failures=\"1\""), "{text}");
        assert!(text.contains("<failure message=\"p99&lt;50ms: 51.0 ms\">"), "{text}");
        assert_eq!(text.matches("<testcase").count(), 3);
        document.checks[0].at_least = true;
        assert!(junit(&document).contains("p99&lt;50ms: &gt;= 51.0 ms"));
        let mut verdict = document.verdict.take().unwrap();
        verdict.reasons = vec!["refused\u{1b}[31m".to_owned()];
        document.verdict = Some(verdict);
        let text = junit(&document);
        assert!(text.contains("failures=\"2\"") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn annotations_stay_on_one_line() {
        let mut document = document();
        document.checks = vec![check("a.p99<50ms", false), check("p50<60ms", true)];
        document.warnings = vec!["100 % of it\n::error::forged".to_owned()];
        assert_eq!(
            github(&document),
            "::error title=a.p99<50ms failed::51.0 ms at http://127.0.0.1:8080/\n\
             ::warning title=linerate load::100 %25 of it%0A::error::forged\n"
        );
    }
}
