//! curl's options: what each means for a request that is sent over and over.

use linerate_load::plan::http::Http;
use linerate_load::plan::tls::TlsVersion;

/// What an option does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that the server would see.
    None,
    /// Left out, with a note that says why.
    Note(&'static str),
    /// Cannot be left out, and cannot be done.
    Refuse(&'static str),
    Url,
    Method,
    Header,
    /// The value of this field.
    Field(&'static str),
    Referer,
    Range,
    Bearer,
    Cookie,
    User,
    Data,
    DataBinary,
    DataRaw,
    Form,
    FormString,
    DataUrlencode,
    Json,
    Query,
    Upload,
    Get,
    Head,
    Globoff,
    Compressed,
    UnixSocket,
    ConnectTo,
    Resolve,
    Proxy,
    ProxyUser,
    NoProxy,
    ProxyLine,
    Insecure,
    /// The version of HTTP.
    Http(Http),
    /// Addresses of this family alone; `true`: IPv6.
    Family(bool),
    /// The lowest version of TLS.
    TlsFrom(TlsVersion),
    /// The highest.
    TlsTo,
    /// Cipher suites: 0 of TLS 1.3, 1 of the versions before.
    Ciphers(usize),
}

/// An option by its names.
#[derive(Debug)]
pub(super) struct CurlOption {
    short: Option<char>,
    long: &'static str,
    pub(super) takes_value: bool,
    pub(super) effect: Effect,
}

const fn flag(short: Option<char>, long: &'static str, effect: Effect) -> CurlOption {
    CurlOption { short, long, takes_value: false, effect }
}

const fn value(short: Option<char>, long: &'static str, effect: Effect) -> CurlOption {
    CurlOption { short, long, takes_value: true, effect }
}

const REDIRECTS: Effect = Effect::Note("redirects are not followed; each is an answer of its own");
const RETRIES: Effect = Effect::Note("failures are counted, not tried again");
const HTTP_VERSION: Effect = Effect::Note("it is sent as HTTP/1.1, or HTTP/2 where the server agrees to it");
const TLS_CHOICE: Effect = Effect::Note("how TLS is spoken is left to linerate");
const TLS_OLD: Effect = Effect::Note("TLS 1.2 is the lowest version that is spoken");
const TIME: Effect = Effect::Note("say it with --timeout");
const PROXY: Effect =
    Effect::Refuse("of proxies linerate knows HTTP ones alone (-x http://HOST:PORT); leave it out");
const HANDSHAKE: Effect = Effect::Refuse(
    "this authentication takes an answer first; only basic authentication and bearer tokens can be sent",
);
const CERTIFICATE: Effect =
    Effect::Refuse("give certificates to linerate itself (--cacert, --cert, --key), not in the command");

/// In the order of curl's manual within each group.
static OPTIONS: &[CurlOption] = &[
    // The request.
    value(None, "url", Effect::Url),
    value(Some('X'), "request", Effect::Method),
    value(Some('H'), "header", Effect::Header),
    value(Some('d'), "data", Effect::Data),
    value(None, "data-ascii", Effect::Data),
    value(None, "data-binary", Effect::DataBinary),
    value(None, "data-raw", Effect::DataRaw),
    value(None, "data-urlencode", Effect::DataUrlencode),
    value(None, "json", Effect::Json),
    value(None, "url-query", Effect::Query),
    value(Some('T'), "upload-file", Effect::Upload),
    value(Some('u'), "user", Effect::User),
    value(Some('A'), "user-agent", Effect::Field("User-Agent")),
    value(Some('e'), "referer", Effect::Referer),
    value(Some('b'), "cookie", Effect::Cookie),
    value(Some('r'), "range", Effect::Range),
    value(None, "oauth2-bearer", Effect::Bearer),
    flag(Some('G'), "get", Effect::Get),
    flag(Some('I'), "head", Effect::Head),
    flag(Some('g'), "globoff", Effect::Globoff),
    flag(None, "compressed", Effect::Compressed),
    // What it prints, where it keeps things, how it talks to the terminal.
    flag(Some('s'), "silent", Effect::None),
    flag(Some('S'), "show-error", Effect::None),
    flag(Some('v'), "verbose", Effect::None),
    flag(Some('i'), "include", Effect::None),
    flag(None, "show-headers", Effect::None),
    flag(Some('f'), "fail", Effect::None),
    flag(None, "fail-with-body", Effect::None),
    flag(None, "fail-early", Effect::None),
    flag(Some('#'), "progress-bar", Effect::None),
    flag(None, "no-progress-meter", Effect::None),
    flag(Some('N'), "no-buffer", Effect::None),
    flag(Some('O'), "remote-name", Effect::None),
    flag(None, "remote-name-all", Effect::None),
    flag(Some('J'), "remote-header-name", Effect::None),
    flag(Some('R'), "remote-time", Effect::None),
    flag(Some('q'), "disable", Effect::None),
    flag(Some('Z'), "parallel", Effect::None),
    flag(None, "create-dirs", Effect::None),
    flag(None, "styled-output", Effect::None),
    flag(None, "no-clobber", Effect::None),
    flag(None, "trace-time", Effect::None),
    value(Some('o'), "output", Effect::None),
    value(None, "output-dir", Effect::None),
    value(Some('D'), "dump-header", Effect::None),
    value(Some('w'), "write-out", Effect::None),
    value(None, "stderr", Effect::None),
    value(None, "trace", Effect::None),
    value(None, "trace-ascii", Effect::None),
    // What a server doesn't see, or what holds anyway.
    flag(None, "http1.1", Effect::Http(Http::One)),
    flag(None, "basic", Effect::None),
    flag(None, "path-as-is", Effect::None),
    flag(None, "tcp-nodelay", Effect::None),
    flag(None, "keepalive", Effect::None),
    flag(None, "no-keepalive", Effect::None),
    flag(None, "no-alpn", Effect::None),
    flag(None, "no-npn", Effect::None),
    flag(None, "no-sessionid", Effect::None),
    flag(None, "raw", Effect::None),
    value(None, "keepalive-time", Effect::None),
    value(None, "max-filesize", Effect::None),
    value(None, "proto", Effect::None),
    value(None, "proto-redir", Effect::None),
    // Left out, and said so.
    flag(Some('L'), "location", REDIRECTS),
    flag(None, "location-trusted", REDIRECTS),
    flag(None, "post301", REDIRECTS),
    flag(None, "post302", REDIRECTS),
    flag(None, "post303", REDIRECTS),
    value(None, "max-redirs", REDIRECTS),
    value(None, "retry", RETRIES),
    value(None, "retry-delay", RETRIES),
    value(None, "retry-max-time", RETRIES),
    flag(None, "retry-all-errors", RETRIES),
    flag(None, "retry-connrefused", RETRIES),
    flag(Some('0'), "http1.0", HTTP_VERSION),
    flag(None, "http0.9", HTTP_VERSION),
    flag(None, "http2", Effect::Http(Http::Two)),
    flag(None, "http2-prior-knowledge", Effect::Http(Http::Two)),
    flag(None, "http3", Effect::Http(Http::Three)),
    flag(None, "http3-only", Effect::Http(Http::Three)),
    flag(Some('k'), "insecure", Effect::Insecure),
    flag(Some('1'), "tlsv1", TLS_OLD),
    flag(None, "tlsv1.0", TLS_OLD),
    flag(None, "tlsv1.1", TLS_OLD),
    flag(None, "tlsv1.2", Effect::TlsFrom(TlsVersion::Tls12)),
    flag(None, "tlsv1.3", Effect::TlsFrom(TlsVersion::Tls13)),
    flag(None, "ssl", TLS_CHOICE),
    flag(None, "ssl-reqd", TLS_CHOICE),
    flag(None, "ssl-no-revoke", TLS_CHOICE),
    value(None, "tls-max", Effect::TlsTo),
    value(None, "ciphers", Effect::Ciphers(1)),
    value(None, "tls13-ciphers", Effect::Ciphers(0)),
    value(None, "curves", TLS_CHOICE),
    value(Some('m'), "max-time", TIME),
    value(None, "connect-timeout", TIME),
    value(None, "limit-rate", Effect::Note("answers are read as fast as they come")),
    value(None, "rate", Effect::Note("say it with --rate")),
    value(None, "interface", Effect::Note("say it with --from")),
    value(None, "local-port", Effect::Note("each connection has a port of its own")),
    value(Some('c'), "cookie-jar", Effect::Note("cookies that answers set are not kept")),
    flag(Some('j'), "junk-session-cookies", Effect::None),
    flag(Some('4'), "ipv4", Effect::Family(false)),
    flag(Some('6'), "ipv6", Effect::Family(true)),
    // Cannot be left out without sending something else, or to somebody else.
    value(Some('F'), "form", Effect::Form),
    value(None, "form-string", Effect::FormString),
    value(Some('x'), "proxy", Effect::Proxy),
    value(Some('U'), "proxy-user", Effect::ProxyUser),
    value(None, "noproxy", Effect::NoProxy),
    value(None, "unix-socket", Effect::UnixSocket),
    value(None, "connect-to", Effect::ConnectTo),
    value(None, "resolve", Effect::Resolve),
    flag(None, "haproxy-protocol", Effect::ProxyLine),
    flag(None, "proxy-basic", Effect::None),
    value(None, "preproxy", PROXY),
    value(None, "socks4", PROXY),
    value(None, "socks4a", PROXY),
    value(None, "socks5", PROXY),
    value(None, "socks5-hostname", PROXY),
    value(None, "proxy-header", PROXY),
    flag(Some('p'), "proxytunnel", Effect::Refuse("CONNECT is for https:// URLs alone; leave it out")),
    value(
        None,
        "abstract-unix-socket",
        Effect::Refuse("name a Unix socket that has a path: --unix-socket PATH"),
    ),
    value(None, "haproxy-clientip", Effect::Refuse("the PROXY protocol names our own address; leave it out")),
    value(None, "request-target", Effect::Refuse("write the target into the URL")),
    flag(None, "digest", HANDSHAKE),
    flag(None, "ntlm", HANDSHAKE),
    flag(None, "negotiate", HANDSHAKE),
    flag(None, "anyauth", HANDSHAKE),
    value(None, "aws-sigv4", Effect::Refuse("requests that sign the time cannot be sent over and over")),
    flag(Some('n'), "netrc", Effect::Refuse("files of passwords are not read; say it with -u NAME:PASSWORD")),
    value(
        None,
        "netrc-file",
        Effect::Refuse("files of passwords are not read; say it with -u NAME:PASSWORD"),
    ),
    value(
        Some('K'),
        "config",
        Effect::Refuse("files of options are not read; write the options into the command"),
    ),
    value(Some('E'), "cert", CERTIFICATE),
    value(None, "key", CERTIFICATE),
    value(None, "cacert", CERTIFICATE),
    value(None, "capath", CERTIFICATE),
    value(None, "pass", CERTIFICATE),
    flag(
        Some(':'),
        "next",
        Effect::Refuse("several requests with options of their own belong into a plan file (--plan)"),
    ),
    value(Some('z'), "time-cond", Effect::Refuse("write the field: -H 'If-Modified-Since: DATE'")),
    value(Some('C'), "continue-at", Effect::Refuse("write the range: -r FROM-TO")),
];

/// The option of this long name, without its dashes; `no-` before a flag takes it back.
pub(super) fn long(name: &str) -> Option<&'static CurlOption> {
    static TAKEN_BACK: CurlOption = flag(None, "no-", Effect::None);
    let find = |name: &str| OPTIONS.iter().find(|o| o.long == name);
    find(name).or_else(|| {
        let flag = find(name.strip_prefix("no-")?)?;
        (!flag.takes_value).then_some(&TAKEN_BACK)
    })
}

/// The option of this letter.
pub(super) fn short(letter: char) -> Option<&'static CurlOption> {
    OPTIONS.iter().find(|o| o.short == Some(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, option) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[i + 1..] {
                assert_ne!(option.long, other.long);
                assert!(option.short.is_none() || option.short != other.short, "{}", option.long);
            }
        }
    }

    #[test]
    fn flags_can_be_taken_back() {
        assert_eq!(long("no-location").map(|o| o.effect), Some(Effect::None));
        assert!(long("no-request").is_none() && long("no-such").is_none());
    }
}
