//! Identifies the software that responded, by its own fields or by peculiarities, and selects the
//! advice for it. Pure functions.

use crate::call::ProbeResponse;
use crate::parts::{FaultPlace, RuleFix};
use crate::rule::Cause;

/// A piece of software: how it is recognised, and by which names advice is for it.
struct KnownSoftware {
    /// Text in its `Server`, `X-Powered-By` or an error page, in lower case.
    says: &'static [&'static str],
    /// Names in [`RuleFix::software`], in lower case.
    names: &'static [&'static str],
    /// Its process, as the kernel names it.
    process: &'static [&'static str],
}

const fn known(
    says: &'static [&'static str],
    names: &'static [&'static str],
    process: &'static [&'static str],
) -> KnownSoftware {
    KnownSoftware { says, names, process }
}

/// The known software. A special product precedes the one it is based on.
const KNOWN: &[KnownSoftware] = &[
    known(&["nginx", "openresty"], &["nginx"], &["nginx"]),
    known(
        &["tomcat", "apache-coyote", "whitelabel error page"],
        &["tomcat", "java servlets", "java", "jvm"],
        &[],
    ),
    known(&["apache"], &["apache httpd"], &["apache2", "httpd"]),
    known(&["haproxy"], &["haproxy"], &["haproxy"]),
    known(&["envoy"], &["envoy", "istio"], &["envoy"]),
    known(&["varnish"], &["varnish"], &["varnishd"]),
    known(&["jdk httpserver", "no context found for request"], &["jdk httpserver", "java", "jvm"], &[]),
    known(&["netty", "vert.x"], &["netty", "vert.x", "reactor", "java", "jvm"], &[]),
    known(&["jetty", "undertow", "servlet"], &["java servlets", "java", "jvm"], &[]),
    known(&["express", "<pre>cannot get "], &["express", "node", "node cluster", "pm2"], &[]),
    known(&["node"], &["node", "node cluster", "pm2"], &["node"]),
    known(&["basehttp", "simplehttp"], &["python http.server", "python socketserver", "python"], &[]),
    known(&["gunicorn"], &["gunicorn", "uwsgi", "python"], &["gunicorn"]),
    known(
        &["uvicorn", "hypercorn", "aiohttp", "daphne", "{\"detail\":\"not found\"}"],
        &["python asyncio", "python"],
        &[],
    ),
    known(&["werkzeug", "waitress", "tornado", "cherrypy", "wsgiserver"], &["python"], &[]),
    known(&["caddy", "404 page not found"], &["go"], &["caddy"]),
    known(&["kestrel", "microsoft-iis", "asp.net"], &[".net"], &["dotnet"]),
    known(&["hyper", "axum", "actix", "rocket"], &["rust hyper/axum", "rust tokio"], &[]),
    known(&["php"], &["php-fpm"], &["php-fpm", "php"]),
    known(&["puma", "webrick", "passenger"], &["puma"], &["puma", "ruby"]),
    known(&[], &["java", "jvm"], &["java"]),
    known(&[], &["python"], &["python", "python3"]),
];

/// Programs that make calls: which one the reader has is not known here.
const CALLERS: [&str; 8] = [
    "curl",
    "libcurl",
    "apache httpclient",
    "apache httpclient 4/5",
    "java httpurlconnection",
    "node 20+",
    "behind a proxy",
    "http/1.0 servers",
];

/// Proxies between callers and servers, by their `Server`.
const PROXIES: [&str; 12] = [
    "akamai",
    "ats",
    "awselb",
    "bigip",
    "cloudflare",
    "cloudfront",
    "envoy",
    "google frontend",
    "gws",
    "haproxy",
    "squid",
    "varnish",
];
/// Software that serves by itself, or forwards calls.
const MAY_BE_PROXIES: [&str; 4] = ["nginx", "openresty", "caddy", "apache"];

/// The field that [`crate::driver`] adds for software that a head's or an error page's form gives
/// away; no field can have that name.
pub(crate) const LOOKS_LIKE: &str = ":looks-like";

/// The software that responded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Software {
    /// Names by which advice is for it, in lower case.
    names: Vec<&'static str>,
    /// The field that shows that a proxy forwarded the call: `Via: 1.1 varnish`.
    proxy: Option<String>,
    /// A server that may be a proxy: `nginx`.
    perhaps: Option<String>,
}

impl Software {
    /// The software that a response names, and the server's process if it is known.
    pub fn of(answer: Option<&ProbeResponse>, process: Option<&str>) -> Software {
        let field = |name: &str| answer.and_then(|a| a.field(name)).unwrap_or_default();
        let server = field("server").to_ascii_lowercase();
        let powered = field("x-powered-by").to_ascii_lowercase();
        let said = [server.as_str(), &powered, &field(LOOKS_LIKE).to_ascii_lowercase()].join("\n");
        let mut names: Vec<&'static str> = Vec::new();
        // Both the proxy and the software that made the response are named.
        for known in KNOWN {
            let process = process.is_some_and(|p| known.process.contains(&p));
            let coyote = known.names == ["apache httpd"] && said.contains("coyote");
            if (process || known.says.iter().any(|s| said.contains(s))) && !coyote {
                names.extend(known.names);
            }
        }
        let via = Some(field("via")).filter(|via| !via.is_empty()).map(|via| format!("Via: {via}"));
        let known = PROXIES.iter().any(|p| {
            server
                .split(|c: char| !c.is_alphanumeric() && c != ' ')
                .any(|w| w == *p || p.len() > 4 && w.contains(p))
        });
        let serves = MAY_BE_PROXIES.iter().find(|p| server.starts_with(**p));
        let passes = known || serves.is_some() && !powered.is_empty();
        let proxy = via.or_else(|| passes.then(|| format!("Server: {}", field("server"))));
        let perhaps = serves.filter(|_| proxy.is_none()).map(|p| (*p).to_owned());
        Software { names, proxy, perhaps }
    }

    /// The field that shows that a proxy forwarded the call.
    pub fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// A server that may be a proxy; if so, the cause may be behind it.
    pub fn perhaps_proxy(&self, cause: &Cause) -> Option<&str> {
        self.perhaps.as_deref().filter(|_| cause.place == FaultPlace::Process)
    }

    /// The advice that fits the software: advice that names it, and advice about no particular
    /// server; else all advice for the cause.
    pub fn advice(&self, cause: &Cause, fixes: &'static [RuleFix]) -> Vec<&'static RuleFix> {
        // The calling program is unknown.
        let names: &[&str] = if cause.place == FaultPlace::Here { &[] } else { &self.names };
        let mine = |f: &&RuleFix| items(f.software).any(|i| names.contains(&i.as_str()));
        let any = |f: &&RuleFix| f.software.starts_with("any ");
        let others = |f: &&RuleFix| !any(f) && !items(f.software).any(|i| is_software(&i));
        let special: Vec<&RuleFix> = fixes.iter().filter(mine).collect();
        let mut advice: Vec<&'static RuleFix> =
            if special.is_empty() { fixes.iter().filter(any).collect() } else { special };
        advice.extend(fixes.iter().filter(others).filter(|f| !mine(f)));
        if advice.is_empty() { fixes.iter().collect() } else { advice }
    }
}

fn items(software: &str) -> impl Iterator<Item = String> + '_ {
    software.split(", ").map(|i| i.trim_end_matches(" as proxies").to_ascii_lowercase())
}

/// Whether it is the name of a program that responds or calls. Other advice concerns a network, a
/// system, a person.
fn is_software(item: &str) -> bool {
    CALLERS.contains(&item) || KNOWN.iter().any(|k| k.names.contains(&item))
}

/// Peculiarities of a head whose fields do not name the software: how JDK's HttpServer writes
/// names, how Node keeps connections.
pub(crate) fn by_head<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<&'static str> {
    let (mut jdk, mut node) = (false, false);
    for (name, value) in fields {
        match name {
            _ if name.eq_ignore_ascii_case(b"server") => return None,
            // It makes each letter but the first a small one.
            b"Content-length" | b"Transfer-encoding" => jdk = true,
            b"Keep-Alive" if value == b"timeout=5" => node = true,
            _ => {}
        }
    }
    match (jdk, node) {
        (true, false) => Some("JDK HttpServer"),
        (false, true) => Some("Node"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::{bufferbloat, client_nagle, late_close, server_nagle, server_think};

    fn answer(fields: &[(&str, &str)]) -> ProbeResponse {
        let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        ProbeResponse { status: 200, fields, ..ProbeResponse::default() }
    }

    fn advised(fields: &[(&str, &str)], cause: &Cause) -> Vec<&'static str> {
        Software::of(Some(&answer(fields)), None)
            .advice(cause, cause.fixes)
            .iter()
            .map(|f| f.software)
            .collect()
    }

    #[test]
    fn advice_is_for_the_software_that_answered() {
        let nagle = &server_nagle::CAUSE;
        for (says, software) in [
            (("server", "nginx/1.22.1"), "nginx"),
            (("server", "Apache-Coyote/1.1"), "Tomcat"),
            (("server", "BaseHTTP/0.6 Python/3.11.2"), "Python http.server"),
            (("server", "Kestrel"), ".NET"),
            (("x-powered-by", "Express"), "Node"),
            ((LOOKS_LIKE, "JDK HttpServer"), "JDK HttpServer"),
            ((LOOKS_LIKE, "404 page not found"), "Go"),
            (("server", "something of our own"), "any server"),
        ] {
            assert_eq!(advised(&[says], nagle), [software], "{says:?}");
        }
        assert_eq!(advised(&[("server", "Apache/2.4.62 (Debian)")], &late_close::CAUSE), ["any server"]);
        let both = advised(&[("server", "nginx"), ("x-powered-by", "Express")], nagle);
        assert_eq!(both, ["nginx", "Node"], "what passes it on, and what made it");
        let process = Software::of(None, Some("node"));
        assert_eq!(process.advice(nagle, nagle.fixes)[0].software, "Node");
    }

    #[test]
    fn advice_on_what_no_software_answers_stays() {
        assert_eq!(advised(&[], &bufferbloat::CAUSE).len(), bufferbloat::CAUSE.fixes.len());
        let callers = advised(&[("server", "nginx")], &client_nagle::CAUSE);
        assert_eq!(callers, ["any client"]);
        for cause in crate::causes::ALL {
            assert!(!advised(&[], cause).is_empty(), "{}", cause.id);
        }
    }

    /// Advice for another software than the one that was found helps nobody.
    #[test]
    fn no_advice_is_for_another_server() {
        let found: Vec<&KnownSoftware> = KNOWN.iter().filter(|k| !k.process.is_empty()).collect();
        for cause in crate::causes::ALL.iter().filter(|c| c.place == FaultPlace::Process) {
            for known in &found {
                let software = Software::of(None, known.process.first().copied());
                for fix in software.advice(cause, cause.fixes) {
                    let other =
                        items(fix.software).find(|i| is_software(i) && !known.names.contains(&i.as_str()));
                    let mine = items(fix.software).any(|i| known.names.contains(&i.as_str()));
                    assert!(mine || other.is_none(), "{}: {other:?} to {:?}", cause.id, known.process);
                }
            }
        }
    }

    #[test]
    fn proxies_are_told() {
        let of = |fields: &[(&str, &str)]| Software::of(Some(&answer(fields)), None);
        assert_eq!(of(&[("via", "1.1 varnish")]).proxy(), Some("Via: 1.1 varnish"));
        assert_eq!(of(&[("server", "cloudflare")]).proxy(), Some("Server: cloudflare"));
        assert_eq!(of(&[("server", "istio-envoy")]).proxy(), Some("Server: istio-envoy"));
        assert_eq!(of(&[("server", "nginx"), ("x-powered-by", "PHP/8")]).proxy(), Some("Server: nginx"));
        let nginx = of(&[("server", "nginx/1.2")]);
        assert_eq!((nginx.proxy(), nginx.perhaps_proxy(&server_think::CAUSE)), (None, Some("nginx")));
        assert_eq!(nginx.perhaps_proxy(&server_nagle::CAUSE), None);
        assert_eq!(of(&[("server", "Jetty(9.4)")]), of(&[("server", "jetty")]));
        assert_eq!(of(&[("server", "WhatServer")]).proxy(), None);
    }

    #[test]
    fn the_form_of_a_head_gives_some_away() {
        let by = |fields: &[(&str, &str)]| by_head(fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
        assert_eq!(by(&[("Date", "x"), ("Content-length", "5")]), Some("JDK HttpServer"));
        assert_eq!(by(&[("Connection", "keep-alive"), ("Keep-Alive", "timeout=5")]), Some("Node"));
        assert_eq!(by(&[("Content-length", "5"), ("Server", "mine")]), None);
        assert_eq!(by(&[("Content-Length", "5"), ("Keep-Alive", "timeout=5, max=100")]), None);
    }
}
