//! Flags of other load generators, and what ours are called.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags of wrk, wrk2, hey, ab, k6, oha and vegeta, and what to write here instead.
const FLAGS: [(&str, &str); 25] = [
    ("-z", "the duration is -d TIME here"),
    ("-R", "the rate is --rate R here"),
    ("--qps", "the rate is --rate R here"),
    ("--rps", "the rate is --rate R here"),
    ("--stages", "steps are --rate 0..5k@30s,5k@1m here; users at the same time are connections: -c N"),
    ("-w", "connections are -c N here, threads -t N"),
    ("--user-agent", "write the field as a header: -H 'User-Agent: TEXT'"),
    ("-A", "write the field as a header: -H 'Accept: TYPE'"),
    ("--vus", "users at the same time are connections here: -c N"),
    ("--iterations", "the number of requests is -n N here"),
    ("-m", "the method is -X METHOD here"),
    ("-T", "write the type of the body as a header: -H 'Content-Type: application/json'"),
    ("-L", "latencies are always printed; redirects are not followed"),
    ("--latency", "latencies are always printed"),
    ("-D", "a body from a file is --body @FILE here"),
    ("--disable-keepalive", "--per-connection 1 closes each connection after a request"),
    ("--workers", "connections are -c N here, threads -t N"),
    ("--max-workers", "connections are -c N here, threads -t N"),
    ("-s", "several requests with weights, data and checks are a file here: --plan FILE"),
    ("--script", "several requests with weights, data and checks are a file here: --plan FILE"),
    ("--targets", "several requests with weights, data and checks are a file here: --plan FILE"),
    ("-i", "the number of requests is -n N here"),
    ("-a", "user and password are -u NAME:PASS here"),
    ("--no-tui", "-q leaves out the live view"),
    ("--redirect", "redirects are not followed"),
];

/// A hint for a flag that does not exist here.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let typed: Vec<String> = std::env::args().collect();
    if takes_quiet_for_a_rate(&typed) {
        return Some("-q is --quiet here and takes no number; the rate is --rate R".to_owned());
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    if flag == "-T" && takes_type_for_a_time(&typed) {
        return Some("the time a response may take is --timeout TIME here".to_owned());
    }
    FLAGS.iter().find(|(name, _)| name == flag).map(|(_, hint)| (*hint).to_owned())
}

/// `-q 100`, as hey and oha have it: then the number is taken for the URL.
fn takes_quiet_for_a_rate(typed: &[String]) -> bool {
    typed.windows(2).any(|pair| pair[0] == "-q" && pair[1].parse::<f64>().is_ok())
}

/// `-T 5s`, as wrk has it; hey's `-T` is the type of the body.
fn takes_type_for_a_time(typed: &[String]) -> bool {
    let of = |word: &String| word.strip_prefix("-T").map(str::to_owned);
    let joined = typed.iter().filter_map(of).filter(|value| !value.is_empty());
    let apart = typed.windows(2).filter(|pair| pair[0] == "-T").map(|pair| pair[1].clone());
    joined.chain(apart).any(|value| value.starts_with(|first: char| first.is_ascii_digit()))
}

/// `--json` with what is a body rather than the name of a file.
pub(crate) fn json_body(value: &std::path::Path) -> Option<&'static str> {
    let text = value.to_str()?.trim_start();
    text.starts_with(['{', '[']).then_some(
        "--json names the file for the results; a body is --body '{...}' -H 'Content-Type: application/json'",
    )
}
