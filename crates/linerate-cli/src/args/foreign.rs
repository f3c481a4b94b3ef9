//! Flags of other load generators, and what ours are called.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What wrk, wrk2, hey, ab, k6, oha and vegeta call it, and how it is said here.
const FLAGS: [(&str, &str); 13] = [
    ("-z", "the duration is -d TIME here"),
    ("-R", "the rate is --rate R here"),
    ("--qps", "the rate is --rate R here"),
    ("--vus", "users at the same time are connections here: -c N"),
    ("--iterations", "the number of requests is -n N here"),
    ("-m", "the method is -X METHOD here"),
    ("-T", "write the type of the body as a header: -H 'Content-Type: application/json'"),
    ("-L", "latencies are always printed; redirects are not followed"),
    ("--latency", "latencies are always printed"),
    ("-k", "connections are always kept alive; --per-connection 1 closes each after a request"),
    ("-D", "a body from a file is --body @FILE here"),
    ("--disable-keepalive", "--per-connection 1 closes each connection after a request"),
    ("--workers", "connections are -c N here, threads -t N"),
];

/// A hint for a flag that does not exist here.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    FLAGS.iter().find(|(name, _)| name == flag).map(|(_, hint)| (*hint).to_owned())
}

/// `--json` with what is a body rather than the name of a file.
pub(crate) fn json_body(value: &std::path::Path) -> Option<&'static str> {
    let text = value.to_str()?.trim_start();
    text.starts_with(['{', '[']).then_some(
        "--json names the file for the results; a body is --body '{...}' -H 'Content-Type: application/json'",
    )
}
