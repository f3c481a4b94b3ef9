//! Values of flags: text to numbers and times, each error saying what would be right.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use linerate_load::plan::flow::UserCount;
use linerate_load::plan::limits::{BUSY_POLL, MAX_CONNECTIONS, MAX_PIPELINE, MAX_THREADS, MAX_TIMEOUT};
use linerate_load::plan::units::{parse_count, parse_duration, quoted};
use linerate_load::plan::{DataSet, Rate, data, parts};
use linerate_netbox::{LineShape, ParseShapeError};

/// A whole number of at least 1.
fn at_least_one(text: &str, most: u64, what: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err(format!("0 {what}: at least 1 is needed")),
        n if n > most => Err(format!("{n} {what}: at most {most} are possible")),
        n => Ok(n),
    }
}

/// `--seed`.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("{} is no seed; write a whole number from 0 on, such as 42", quoted(text)))
}

/// `--connections`.
pub(super) fn connections(text: &str) -> Result<u32, String> {
    at_least_one(text, MAX_CONNECTIONS, "connections").map(|n| n as u32)
}

/// `--pipeline`.
pub(super) fn depth(text: &str) -> Result<u32, String> {
    at_least_one(text, MAX_PIPELINE, "requests in flight on a connection").map(|n| n as u32)
}

/// `--threads`.
pub(super) fn threads(text: &str) -> Result<u32, String> {
    at_least_one(text, MAX_THREADS, "threads").map(|n| n as u32)
}

/// `--per-connection`.
pub(super) fn per_connection(text: &str) -> Result<u32, String> {
    at_least_one(text, u64::from(u32::MAX), "requests on a connection").map(|n| n as u32)
}

/// `--requests`.
pub(super) fn requests(text: &str) -> Result<u64, String> {
    at_least_one(text, u64::MAX, "requests")
}

/// `--duration`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a run of no time sends nothing; write for example 10s".to_owned()),
        time => Ok(time),
    }
}

/// `--line`.
pub(super) fn line(text: &str) -> Result<LineShape, String> {
    text.parse().map_err(|e: ParseShapeError| e.to_string())
}

/// `--timeout`.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a time-out of 0 would fail every request; write for example 10s".to_owned()),
        time if time > MAX_TIMEOUT => {
            Err(format!("{} is longer than an hour, the most possible", quoted(text)))
        }
        time => Ok(time),
    }
}

/// `demo --time`.
pub(super) fn demo_time(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(5));
    let time = parse_duration(text)?;
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    Err(format!("{} is not between 100ms and 5s", quoted(text)))
}

/// `top --interval`.
pub(crate) fn top_interval(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(3600));
    let time = parse_duration(text)?;
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    Err(format!("{} is not between 100ms and 1h", quoted(text)))
}

/// `explain --budget`.
pub(super) fn budget(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(300));
    let time = parse_duration(text)?;
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    Err(format!("{} is not between 1s and 5m", quoted(text)))
}

/// `--warm-up`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    Ok(parse_duration(text)?)
}

/// `--rate`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    Ok(Rate::parse(text)?)
}

/// `--users`.
pub(super) fn users(text: &str) -> Result<UserCount, String> {
    Ok(UserCount::parse(text)?)
}

/// `--busy-poll`.
pub(crate) fn busy_poll(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if BUSY_POLL.contains(&time) => Ok(time),
        _ => Err(format!("{} is not between 1us and 1s; 50us is usual", quoted(text))),
    }
}

/// `--fault`: checked here, and read where it is used.
pub(super) fn fault(text: &str) -> Result<String, String> {
    text.parse::<linerate_net::link::fault::FaultOptions>().map(|_| text.to_owned())
}

/// `--tag`: a field name.
pub(super) fn field_name(text: &str) -> Result<String, String> {
    if parts::is_token(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{} is no header name; write for example X-Request-Id", quoted(text)))
}

/// `--method`.
pub(super) fn method(text: &str) -> Result<String, String> {
    if !parts::is_token(text) {
        return Err(format!("{} is no method; write for example GET or POST", quoted(text)));
    }
    let upper = text.to_ascii_uppercase();
    let known =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"].contains(&upper.as_str());
    if known && upper != text {
        return Err(format!("methods are told apart by case; write {upper}"));
    }
    if upper == "CONNECT" {
        return Err("CONNECT opens a tunnel and has no answer to measure".to_owned());
    }
    Ok(text.to_owned())
}

/// `--user`: NAME:PASS.
pub(super) fn user(text: &str) -> Result<String, String> {
    if text.contains(':') {
        return Ok(text.to_owned());
    }
    Err(format!("{} has no password; write NAME:PASS (NAME: for an empty one)", quoted(text)))
}

/// A list of statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) Vec<u16>);

/// `--expect-status`.
pub(super) fn statuses(text: &str) -> Result<Statuses, String> {
    Ok(Statuses(parts::parse_statuses(text)?))
}

/// A list of source addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses(pub(crate) Vec<IpAddr>);

/// `--from`.
pub(super) fn addresses(text: &str) -> Result<Addresses, String> {
    Ok(Addresses(parts::parse_addresses(text)?))
}

/// `--data`: `NAME=FILE.csv`, or `FILE.csv` for the name `csv`; read later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataFile {
    name: String,
    path: PathBuf,
}

impl DataFile {
    /// The name that slots use.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the file.
    pub(crate) fn load(&self) -> Result<DataSet, String> {
        Ok(data::load_csv(&self.name, &self.path)?)
    }
}

/// `--data`.
pub(super) fn data_file(text: &str) -> Result<DataFile, String> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (name, path) = match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && name.chars().all(named) => (name, path),
        _ => ("csv", text),
    };
    if path.is_empty() {
        return Err("there is no file name; write FILE.csv or NAME=FILE.csv".to_owned());
    }
    Ok(DataFile { name: name.to_owned(), path: PathBuf::from(path) })
}

/// `--resolve`: HOST:PORT:ADDRESS[,ADDRESS], as curl has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolve {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// `--resolve`.
pub(crate) fn resolve(text: &str) -> Result<Resolve, String> {
    let example = "write HOST:PORT:ADDRESS, for example example.com:80:127.0.0.1";
    // The host itself may be an address in brackets.
    let host_end = match text.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|at| at + 2),
        None => text.find(':'),
    };
    let Some((host, rest)) =
        host_end.and_then(|at| Some((text.get(..at)?, text.get(at..)?.strip_prefix(':')?)))
    else {
        return Err(format!("{} has no port; {example}", quoted(text)));
    };
    let Some((port, addresses)) = rest.split_once(':') else {
        return Err(format!("{} has no address; {example}", quoted(text)));
    };
    if host.is_empty() {
        return Err(format!("{} has no host; {example}", quoted(text)));
    }
    let port: u16 = match port.parse() {
        Ok(0) | Err(_) => return Err(format!("port {} is not between 1 and 65535; {example}", quoted(port))),
        Ok(port) => port,
    };
    if host.starts_with('+') {
        let hint = "curl's + lets an entry of its cache expire, and here nothing does";
        return Err(format!("{}: leave out the +: {hint}", quoted(text)));
    }
    if host.starts_with('-') {
        return Err(format!("{}: nothing is kept that could be removed; {example}", quoted(text)));
    }
    let bare: String = addresses.chars().filter(|c| *c != '[' && *c != ']').collect();
    let addresses = parts::parse_addresses(&bare)?;
    let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    Ok(Resolve { host: host.to_ascii_lowercase(), port, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_both_limits() {
        assert_eq!(connections("1k"), Ok(1_000));
        assert_eq!(connections("1M"), Ok(1_000_000));
        for text in ["0", "1000001", "many", "-1", "1.5", ""] {
            assert!(connections(text).is_err(), "{text}");
        }
        assert_eq!(depth("0").unwrap_err(), "0 requests in flight on a connection: at least 1 is needed");
        assert_eq!(requests("2.5M"), Ok(2_500_000));
        assert!(threads("0").is_err() && per_connection("0").is_err() && requests("0").is_err());
    }

    #[test]
    fn times_have_their_limits() {
        assert_eq!(timeout("1h"), Ok(Duration::from_secs(3600)));
        assert!(timeout("1h1s").is_err() && timeout("0s").is_err() && duration("0").is_err());
        assert_eq!(time("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn methods_are_tokens_in_their_case() {
        assert_eq!(method("PURGE").as_deref(), Ok("PURGE"));
        assert!(method("post").unwrap_err().contains("POST"));
        assert!(method("GET IT").is_err() && method("").is_err() && method("CONNECT").is_err());
    }

    #[test]
    fn resolve_as_in_curl() {
        let one = resolve("Example.com:8080:127.0.0.1").unwrap();
        assert_eq!((one.host.as_str(), one.port), ("example.com", 8080));
        assert_eq!(one.addresses, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(resolve("h:80:[::1],127.0.0.1").unwrap().addresses.len(), 2);
        assert_eq!(resolve("[::1]:80:127.0.0.1").unwrap().host, "[::1]");
        for text in [
            "",
            "h",
            "h:80",
            "+h:80:127.0.0.1",
            "-h:80:127.0.0.1",
            "h:0:127.0.0.1",
            "h:x:127.0.0.1",
            ":80:127.0.0.1",
            "h:80:",
            "h:80:name",
            "[::1",
        ] {
            assert!(resolve(text).is_err(), "{text}");
        }
    }

    #[test]
    fn data_files_have_a_name() {
        assert_eq!(data_file("users.csv"), Ok(DataFile { name: "csv".into(), path: "users.csv".into() }));
        assert_eq!(data_file("u=a=b.csv"), Ok(DataFile { name: "u".into(), path: "a=b.csv".into() }));
        assert_eq!(data_file("./x=y.csv"), Ok(DataFile { name: "csv".into(), path: "./x=y.csv".into() }));
        assert!(data_file("u=").is_err() && data_file("").is_err());
    }
}
