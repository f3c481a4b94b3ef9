//! A line for each request: CSV or JSON lines.

use std::io::Write as _;

use linerate_load::Plan;
use linerate_load::request_log::{LogEntry, RequestEnd};

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 4180, with a line of names.
    Csv,
    /// A JSON object for each line.
    JsonLines,
}

/// The columns, in their order.
const COLUMNS: [&str; 13] = [
    "seq",
    "request",
    "due_us",
    "sent_us",
    "first_byte_us",
    "from_due_us",
    "from_sent_us",
    "status",
    "outcome",
    "why",
    "thread",
    // Of plans with flows alone.
    "flow",
    "user",
];

/// Columns of plans without flows.
const PLAIN: usize = 11;

/// Writes lines about the requests of a plan.
#[derive(Clone, Debug)]
pub struct Lines {
    form: Form,
    /// The requests' names, as they stand in a line.
    names: Vec<String>,
    /// The flow of each request, where the plan has flows.
    flows: Vec<String>,
    open_loop: bool,
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    let plain = !text.contains([',', '"', '\r', '\n']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

impl Lines {
    /// For a plan's requests.
    pub fn new(form: Form, plan: &Plan) -> Lines {
        let name = |name: &str| match form {
            Form::Csv => quoted(name),
            Form::JsonLines => serde_json::Value::from(name).to_string(),
        };
        let names = plan.requests.iter().map(|request| name(&request.name)).collect();
        let mut flows = Vec::new();
        for flow in plan.flows.iter().flat_map(|flows| &flows.flows) {
            flows.resize(plan.requests.len(), String::new());
            flow.steps.iter().for_each(|step| flows[step.request as usize] = name(&flow.name));
        }
        Lines { form, names, flows, open_loop: plan.counts_from_due() }
    }

    /// What stands above the lines.
    pub fn head(&self) -> String {
        match self.form {
            Form::Csv if self.flows.is_empty() => COLUMNS[..PLAIN].join(",") + "\r\n",
            Form::Csv => COLUMNS.join(",") + "\r\n",
            Form::JsonLines => String::new(),
        }
    }

    /// Appends the line of one request: [`LogEntry::each`].
    pub fn write(&self, entry: &LogEntry, out: &mut Vec<u8>) {
        let (outcome, why) = match entry.end {
            RequestEnd::Good => ("answered", ""),
            RequestEnd::Bad(why) => ("answered", why),
            RequestEnd::Failed(why) => ("failed", why.name()),
            RequestEnd::Unknown => ("unknown", ""),
        };
        let time = |ns: fn(&linerate_load::request_log::ResponseTimes) -> u64| entry.times.as_ref().map(ns);
        let mut fields = LogFields { form: self.form, out, next: 0 };
        fields.begin();
        fields.number(Some(entry.number));
        fields.raw(self.names.get(usize::from(entry.request)).map_or("", String::as_str));
        fields.micros(Some((entry.due_ns < 0, entry.due_ns.unsigned_abs())));
        fields.micros(Some((entry.sent_ns < 0, entry.sent_ns.unsigned_abs())));
        fields.micros(time(|t| t.first_byte_ns).map(|ns| (false, ns)));
        fields.micros(time(|t| t.from_due_ns).filter(|_| self.open_loop).map(|ns| (false, ns)));
        fields.micros(time(|t| t.from_sent_ns).map(|ns| (false, ns)));
        fields.number((entry.status > 0).then_some(u64::from(entry.status)));
        fields.word(outcome);
        fields.word(why);
        fields.number(Some(u64::from(entry.thread)));
        if let Some(flow) = self.flows.get(usize::from(entry.request)) {
            fields.raw(flow);
            fields.number(entry.user);
        }
        fields.end();
    }
}

/// One line while it is written.
struct LogFields<'a> {
    form: Form,
    out: &'a mut Vec<u8>,
    next: usize,
}

impl LogFields<'_> {
    fn begin(&mut self) {
        if self.form == Form::JsonLines {
            self.out.push(b'{');
        }
    }

    fn end(&mut self) {
        let end: &[u8] = if self.form == Form::JsonLines { b"}\n" } else { b"\r\n" };
        self.out.extend_from_slice(end);
    }

    /// What stands before a value.
    fn separate(&mut self) {
        if self.next > 0 {
            self.out.push(b',');
        }
        if self.form == Form::JsonLines {
            self.out.push(b'"');
            self.out.extend_from_slice(COLUMNS[self.next].as_bytes());
            self.out.extend_from_slice(b"\":");
        }
        self.next += 1;
    }

    fn raw(&mut self, text: &str) {
        self.separate();
        self.out.extend_from_slice(text.as_bytes());
    }

    fn none(&mut self) {
        self.raw(if self.form == Form::JsonLines { "null" } else { "" });
    }

    /// A word without special characters; empty: none.
    fn word(&mut self, word: &str) {
        match self.form {
            _ if word.is_empty() => self.none(),
            Form::Csv => self.raw(word),
            Form::JsonLines => {
                self.separate();
                let _ = write!(self.out, "\"{word}\"");
            }
        }
    }

    fn number(&mut self, number: Option<u64>) {
        let Some(number) = number else { return self.none() };
        self.separate();
        // Writing into memory does not fail.
        let _ = write!(self.out, "{number}");
    }

    /// Nanoseconds as microseconds, exactly; whether they are below zero.
    fn micros(&mut self, nanos: Option<(bool, u64)>) {
        let Some((negative, nanos)) = nanos else { return self.none() };
        self.separate();
        let sign = if negative { "-" } else { "" };
        let _ = write!(self.out, "{sign}{}.{:03}", nanos / 1000, nanos % 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_closed;
    use linerate_load::outcome::Failure;
    use linerate_load::request_log::ResponseTimes;

    fn entry() -> LogEntry {
        let times = ResponseTimes { first_byte_ns: 1_000, from_sent_ns: 1_234_567, from_due_ns: 1_240_000 };
        LogEntry {
            number: 3,
            step: 2,
            count: 2,
            request: 0,
            thread: 1,
            status: 200,
            end: RequestEnd::Good,
            due_ns: -1_500,
            user: None,
            sent_ns: 4_005,
            times: Some(times),
        }
    }

    fn text(form: Form, plan: &Plan, entries: &[LogEntry]) -> String {
        let lines = Lines::new(form, plan);
        let mut out = lines.head().into_bytes();
        entries.iter().flat_map(|entry| entry.each()).for_each(|one| lines.write(&one, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_request_has_its_line_and_what_is_not_known_is_empty() {
        let mut plan = plan_closed();
        plan.requests[0].name = "GET /a,\"b\"".to_owned();
        let failed = LogEntry {
            count: 1,
            status: 0,
            end: RequestEnd::Failed(Failure::Timeout),
            times: None,
            ..entry()
        };
        let bad = LogEntry { count: 1, end: RequestEnd::Bad("bad status"), status: 500, ..entry() };
        let unknown = LogEntry { end: RequestEnd::Unknown, ..failed };
        let name = "\"GET /a,\"\"b\"\"\"";
        let began = format!("{name},-1.500,4.005");
        assert_eq!(
            text(Form::Csv, &plan, &[entry(), failed, bad, unknown]).split("\r\n").collect::<Vec<_>>(),
            [
                &COLUMNS[..PLAIN].join(","),
                &format!("3,{began},1.000,,1234.567,200,answered,,1"),
                &format!("5,{began},1.000,,1234.567,200,answered,,1"),
                &format!("3,{began},,,,,failed,timeout,1"),
                &format!("3,{began},1.000,,1234.567,500,answered,bad status,1"),
                &format!("3,{began},,,,,unknown,,1"),
                "",
            ]
        );
        plan.pace = linerate_load::plan::Pace::Trace(vec![0]);
        let text = text(Form::JsonLines, &plan, &[entry(), failed]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.as_object().unwrap().len() == PLAIN));
        assert_eq!((&lines[1]["seq"], &lines[1]["request"]), (&5.into(), &"GET /a,\"b\"".into()));
        assert_eq!((&lines[1]["from_due_us"], &lines[1]["due_us"]), (&1240.0.into(), &(-1.5).into()));
        assert!(lines[2]["status"].is_null() && lines[2]["why"] == "timeout");
    }
}
