//! `--dry-run`: the plan as a plan file, and the first request's bytes as comments below it.

use std::fmt::Write;

use linerate_http::client::Body;
use linerate_load::Plan;
use linerate_load::plan::env;
use linerate_load::plan::http::HttpOptions;
use linerate_load::plan::parts::literal;
use linerate_load::plan::route::Route;
use linerate_load::plan::tls::{ClientCertificate, PemFile, TargetTls, TlsVersion, Trust};
use linerate_load::plan::units::shown_duration;
use linerate_load::plan::{Arrival, Order, Pace, Rate, RateStep, Request};

use crate::sources::encode_component;

/// Rows of a data set that are written out; a larger one is only named. Reason: it is a preview.
const ROWS: usize = 100;
/// Bytes of a body that is written out.
const BODY_BYTES: usize = 64 << 10;
/// Bytes of the first request that are shown.
const REQUEST_BYTES: usize = 4 << 10;

/// The plan as text that `--plan` reads, where a plan file can say it.
pub(super) fn to_string(plan: &Plan, first: &[u8]) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write(&mut out, plan, first);
    out
}

fn write(out: &mut String, plan: &Plan, first: &[u8]) -> std::fmt::Result {
    let addresses: Vec<String> = plan.target.addresses.iter().map(ToString::to_string).collect();
    let to = match &plan.route.unix {
        Some(path) => path.display().to_string(),
        None => addresses.join(", "),
    };
    writeln!(out, "# A dry run: nothing was sent. Connections would go to {to}.")?;
    writeln!(out, "url = {}", quoted(&plan.target.url))?;
    writeln!(out, "connections = {}", plan.connections)?;
    writeln!(out, "pipeline = {}", plan.depth)?;
    if let Some(n) = plan.stop.requests {
        writeln!(out, "requests = {n}")?;
    }
    if let Some(time) = plan.stop.duration {
        writeln!(out, "duration = \"{}\"", shown_duration(time))?;
    }
    pace(out, &plan.pace)?;
    if let Some(n) = plan.per_connection {
        writeln!(out, "per_connection = {n}")?;
    }
    writeln!(out, "resend = \"{}\"", plan.resend.name())?;
    if let Some(n) = plan.threads {
        writeln!(out, "threads = {n}")?;
    }
    writeln!(out, "way = \"{}\"", plan.way.name())?;
    writeln!(out, "io = \"{}\"", plan.io.name())?;
    writeln!(out, "http = \"{}\"", plan.http.version.name())?;
    if plan.http.h2_window != HttpOptions::default().h2_window {
        writeln!(out, "h2_window = {}", plan.http.h2_window)?;
    }
    if let Some(interface) = &plan.interface {
        writeln!(out, "interface = {}", quoted(interface))?;
    }
    if let Some(time) = plan.busy_poll {
        writeln!(out, "busy_poll = \"{}\"", shown_duration(time))?;
    }
    if let Some(file) = &plan.pcap_out {
        writeln!(out, "pcap_out = {}", quoted(&file.display().to_string()))?;
    }
    if let Some(fault) = &plan.fault {
        writeln!(out, "fault = {}", quoted(fault))?;
    }
    if !plan.from.is_empty() {
        let from: Vec<String> = plan.from.iter().map(|a| format!("\"{a}\"")).collect();
        writeln!(out, "from = [{}]", from.join(", "))?;
    }
    writeln!(out, "timeout = \"{}\"", shown_duration(plan.timeout))?;
    writeln!(out, "warm_up = \"{}\"", shown_duration(plan.warm_up))?;
    if let Some(tag) = &plan.tag {
        writeln!(out, "tag = {}", quoted(tag))?;
    }
    write_route(out, &plan.route)?;
    if let Some(tls) = &plan.tls {
        write_tls(out, tls)?;
    }
    writeln!(out, "throughput = {}", plan.throughput)?;
    writeln!(out, "seed = {}", plan.seed)?;
    if !plan.checks.is_empty() {
        let checks: Vec<String> = plan.checks.iter().map(|c| quoted(&c.expr)).collect();
        writeln!(out, "checks = [{}]", checks.join(", "))?;
    }
    order(out, plan)?;
    plan.requests.iter().try_for_each(|r| request(out, r))?;
    data(out, plan)?;
    first_request(out, first)
}

fn pace(out: &mut String, pace: &Pace) -> std::fmt::Result {
    match pace {
        Pace::Closed => Ok(()),
        Pace::Trace(times) => {
            let last = times.last().copied().unwrap_or(0);
            let over = shown_duration(std::time::Duration::from_nanos(last));
            writeln!(out, "# {} requests are due at recorded times, over {over}", times.len())
        }
        Pace::Open { rate, arrival } => {
            writeln!(out, "rate = \"{}\"", rate_text(rate))?;
            let arrival = match arrival {
                Arrival::Constant => "constant",
                Arrival::Poisson => "poisson",
            };
            writeln!(out, "arrival = \"{arrival}\"")
        }
    }
}

fn rate_text(rate: &Rate) -> String {
    let step = |s: &RateStep| {
        let rates = if s.from == s.to { s.from.to_string() } else { format!("{}..{}", s.from, s.to) };
        s.lasts.map_or_else(|| rates.clone(), |time| format!("{rates}@{}", shown_duration(time)))
    };
    rate.steps.iter().map(step).collect::<Vec<_>>().join(",")
}

fn order(out: &mut String, plan: &Plan) -> std::fmt::Result {
    match &plan.order {
        Order::Weighted => Ok(()),
        Order::Listed(list) if list.iter().copied().eq(0..plan.requests.len() as u32) => {
            writeln!(out, "order = \"listed\"")
        }
        Order::Listed(list) if list.len() <= ROWS => {
            let name = |i: &u32| plan.requests.get(*i as usize).map(|r| quoted(&r.name)).unwrap_or_default();
            writeln!(out, "order = [{}]", list.iter().map(name).collect::<Vec<_>>().join(", "))
        }
        Order::Listed(list) => {
            writeln!(out, "# {} requests follow one another in a recorded order", list.len())
        }
    }
}

fn request(out: &mut String, request: &Request) -> std::fmt::Result {
    writeln!(out, "\n[[request]]")?;
    writeln!(out, "name = {}", quoted(&request.name))?;
    writeln!(out, "weight = {}", request.weight)?;
    if request.is_raw() {
        let bytes = request.body.as_ref().map_or(0, Body::len);
        return writeln!(out, "# raw = FILE: {bytes} bytes that are sent as they are");
    }
    writeln!(out, "method = {}", quoted(&request.method))?;
    writeln!(out, "path = {}", quoted(&request.path))?;
    if !request.fields.is_empty() {
        writeln!(out, "headers = {{ {} }}", fields(&request.fields).join(", "))?;
    }
    if let Some(body) = &request.body {
        match body_text(body) {
            Some(text) => writeln!(out, "body = {}", quoted(&text))?,
            None => {
                writeln!(out, "# its body of {} bytes is no short text: body_file names a file", body.len())?
            }
        }
    }
    if !request.expect.status.is_empty() {
        writeln!(out, "expect_status = {:?}", request.expect.status)?;
    }
    if let Some(text) = &request.expect.body {
        writeln!(out, "expect_body = {}", quoted(text))?;
    }
    if let Some((name, value)) = &request.expect.trailer {
        writeln!(out, "expect_trailer = {}", quoted(&format!("{name}: {value}")))?;
    }
    Ok(())
}

/// A body as text with slots, unless it is none or too long to be read.
fn body_text(body: &Body) -> Option<String> {
    let mut shown = String::new();
    for part in body.parts().iter().filter(|_| body.len() <= BODY_BYTES) {
        let text = std::str::from_utf8(&part.bytes).ok()?;
        shown.push_str(&if part.slots { text.into() } else { literal(text) });
    }
    (body.len() <= BODY_BYTES).then_some(shown)
}

/// Fields by name; several of one name become an array.
fn fields(fields: &[(String, String)]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for (i, (name, _)) in fields.iter().enumerate() {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        if fields[..i].iter().any(|(other, _)| same(other)) {
            continue;
        }
        let values: Vec<String> = fields.iter().filter(|(n, _)| same(n)).map(|(_, v)| quoted(v)).collect();
        let value = if values.len() == 1 { values[0].clone() } else { format!("[{}]", values.join(", ")) };
        shown.push(format!("{} = {value}", quoted(name)));
    }
    shown
}

fn data(out: &mut String, plan: &Plan) -> std::fmt::Result {
    for set in &plan.data {
        if set.name == env::NAME {
            writeln!(out, "\n# Of the environment: {}", set.columns.join(", "))?;
            continue;
        }
        writeln!(out, "\n[[data]]")?;
        writeln!(out, "name = {}", quoted(&set.name))?;
        let list = |texts: &[String]| texts.iter().map(|t| quoted(t)).collect::<Vec<_>>().join(", ");
        writeln!(out, "columns = [{}]", list(&set.columns))?;
        if set.rows.len() > ROWS {
            writeln!(out, "# the first {ROWS} of {} rows", set.rows.len())?;
        }
        let rows: Vec<String> = set.rows.iter().take(ROWS).map(|row| format!("  [{}]", list(row))).collect();
        writeln!(out, "rows = [\n{},\n]", rows.join(",\n"))?;
    }
    Ok(())
}

fn first_request(out: &mut String, bytes: &[u8]) -> std::fmt::Result {
    writeln!(out, "\n# The first request, {} bytes:", bytes.len())?;
    let shown = &bytes[..bytes.len().min(REQUEST_BYTES)];
    let text = String::from_utf8_lossy(shown);
    for line in text.split("\r\n") {
        let line: String = line.chars().flat_map(escaped).collect();
        writeln!(out, "{}", format!("#   {line}").trim_end())?;
    }
    if bytes.len() > shown.len() {
        writeln!(out, "#   ... and {} bytes more", bytes.len() - shown.len())?;
    }
    Ok(())
}

/// A control character in its Rust form, so that a body cannot steer the terminal nor end the comment.
fn escaped(c: char) -> Vec<char> {
    if c.is_control() { c.escape_default().collect() } else { vec![c] }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whose certificates are believed, and how TLS is spoken.
fn write_route(out: &mut String, route: &Route) -> std::fmt::Result {
    if let Some(path) = &route.unix {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        writeln!(out, "unix_socket = {}", quoted(&path.display().to_string()))?;
    }
    if let Some(instead) = &route.instead {
        writeln!(out, "connect_to = {}", quoted(&format!("::{instead}")))?;
    }
    if let Some(proxy) = &route.proxy {
        let place = proxy.url.strip_prefix("http://").unwrap_or(&proxy.url);
        let user = proxy.user.as_ref().map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let encoded = [name, password].map(|part| encode_component(part.as_bytes()));
            format!("{}@", encoded.join(":"))
        });
        writeln!(out, "# The proxy is from {}.", proxy.from)?;
        writeln!(out, "proxy = {}", quoted(&format!("http://{}{place}", user.unwrap_or_default())))?;
    }
    if let Some(version) = route.haproxy {
        writeln!(out, "haproxy_protocol = \"{}\"", version.name())?;
    }
    Ok(())
}

fn write_tls(out: &mut String, tls: &TargetTls) -> std::fmt::Result {
    let file = |file: &PemFile| {
        let path = std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone().into());
        quoted(&path.display().to_string())
    };
    match &tls.trust {
        Trust::System => {}
        Trust::Pem(roots) => writeln!(out, "cacert = {}", file(roots))?,
        Trust::Anybody => writeln!(out, "insecure = true")?,
    }
    if let Some(ClientCertificate { chain, key }) = &tls.identity {
        writeln!(out, "cert = {}\nkey = {}", file(chain), file(key))?;
    }
    let version = |version| if version == TlsVersion::Tls12 { "1.2" } else { "1.3" };
    writeln!(out, "tls_min = \"{}\"\ntls_max = \"{}\"", version(tls.least), version(tls.most))?;
    if !tls.ciphers.is_empty() {
        writeln!(out, "ciphers = {}", quoted(&tls.ciphers.join(",")))?;
    }
    writeln!(out, "tls_resume = {}", tls.resume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_load::plan::file::{PlanFile, TlsKeys};
    use std::path::Path;

    #[test]
    fn what_is_printed_is_read_back_as_the_same_plan() {
        let mut plan = super::super::testing::plan("http://127.0.0.1:8080/{{seq}}?q=%22");
        plan.pace = Pace::Open {
            rate: Rate::parse("0..50@30s,50@1m,50").expect("a rate"),
            arrival: Arrival::Poisson,
        };
        plan.threads = Some(2);
        plan.per_connection = Some(10);
        plan.tag = Some("X-Id".to_owned());
        plan.from = vec!["127.0.0.2".parse().expect("an address")];
        plan.checks = vec![linerate_load::plan::Check::parse("p99<50ms").expect("a check")];
        let one = &mut plan.requests[0];
        one.body = Some("{\"a\":\"\x01\n{{seq}}\"}".into());
        one.method = "POST".to_owned();
        one.fields =
            vec![("A".into(), "1".into()), ("B b".replace(' ', "-"), "\"".into()), ("a".into(), "2".into())];
        one.expect.status = vec![200, 204];
        one.expect.body = Some("ok".to_owned());
        let mut tls = TargetTls::towards("127.0.0.1");
        (tls.trust, tls.most, tls.resume) = (Trust::Anybody, TlsVersion::Tls12, false);
        tls.ciphers = vec!["A".to_owned(), "B".to_owned()];
        plan.tls = Some(tls);
        let text = to_string(&plan, b"POST / HTTP/1.1\r\n\r\n\x1b[2J\n");
        assert!(!text.contains('\x1b'));
        let file = PlanFile::parse(&text, Path::new("dry.toml")).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(file.url.as_ref(), Some(&plan.target.url));
        assert_eq!((file.connections, file.pipeline, file.seed), (Some(64), Some(1), Some(1)));
        assert_eq!(file.rate.map(|r| r.steps.len()), Some(3));
        assert_eq!((file.duration, file.timeout), (plan.stop.duration, Some(plan.timeout)));
        assert_eq!((file.per_connection, file.threads, file.from), (Some(10), Some(2), Some(plan.from)));
        assert_eq!((file.tag, file.checks), (plan.tag, plan.checks));
        let keys = TlsKeys {
            insecure: Some(true),
            least: Some(TlsVersion::Tls12),
            most: Some(TlsVersion::Tls12),
            ciphers: Some("A,B".to_owned()),
            resume: Some(false),
            ..TlsKeys::default()
        };
        assert_eq!(file.tls, keys);
        let (mut expected, found) = (plan.requests[0].clone(), &file.request[0]);
        expected.fields =
            vec![("A".into(), "1".into()), ("A".into(), "2".into()), ("B-b".into(), "\"".into())];
        assert_eq!(found, &expected);
    }
}
