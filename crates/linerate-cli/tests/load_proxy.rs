//! `linerate load` through real proxies, and what it says of those that refuse.

mod common;
mod issued;
mod real;

use std::io::{Read, Write};
use std::net::SocketAddr;

use common::{answering, greeting, linerate, measured, run, server};
use issued::Issued;
use real::{nginx_tls, nginx_with, squid, tinyproxy};

const WAYS: [&str; 5] = [
    "-c 4 --io epoll",
    "-c 4 --io uring",
    "-c 4 --per-connection 1 --io uring",
    "-c 4 --way threads",
    "-c 4 --way async",
];

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Answers of 200 in a run with these words.
fn answered(way: &str, more: &[&str]) -> u64 {
    let all: Vec<&str> = way.split(' ').chain(more.iter().copied()).collect();
    let (document, said) = measured(&all);
    assert_eq!(said.code, Some(0), "{all:?}: {}{document:#}", said.err);
    document["status"]["200"].as_u64().unwrap_or_default()
}

#[test]
fn https_goes_through_connect() {
    let issued = Issued::to("localhost");
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
    let url = format!("https://localhost:{}/", server.address.port());
    let cacert = issued.file("cert.pem");
    for proxy in [tinyproxy(None), squid("http_access allow localhost")].into_iter().flatten() {
        let proxy = format!("http://{}", proxy.address);
        for way in WAYS {
            let more = ["-n", "40", "--cacert", &cacert, "--proxy", &proxy, "--expect-body", "hello", &url];
            assert_eq!(answered(way, &more), 40, "{proxy} {way}");
        }
        let (document, said) = measured(&["-n", "8", "--cacert", &cacert, "-x", &proxy, &url]);
        assert_eq!(document["plan"]["proxy"]["url"], proxy.as_str());
        assert_eq!(document["plan"]["proxy"]["from"], "--proxy");
        assert_eq!(document["plan"]["proxy"]["tunnel"], true);
        let first = words(said.err.lines().find(|line| line.contains("GET")).expect("a first line"));
        assert_eq!(first, format!("GET {url} through the proxy {proxy} (--proxy)"));
    }
}

#[test]
fn of_http_urls_the_proxy_forwards_each_request() {
    let Some(server) = nginx_with("", "location = /via { return 200 'via $http_via'; }") else { return };
    for proxy in [tinyproxy(None), squid("http_access allow localhost")].into_iter().flatten() {
        let proxy = proxy.address.to_string();
        for way in WAYS {
            let more = ["-n", "40", "--proxy", &proxy, "--expect-body", "via 1", &server.url("/via")];
            assert_eq!(answered(way, &more), 40, "{proxy} {way}");
        }
    }
}

#[test]
fn another_host_for_an_http_url_takes_a_tunnel() {
    let Some(server) = nginx_with("", "location = /via { return 200 'via:$http_via $http_host'; }") else {
        return;
    };
    let Some(proxy) = tinyproxy(None) else { return };
    let proxy = proxy.address.to_string();
    let rule = format!("h.example:80:127.0.0.1:{}", server.address.port());
    let more = ["-n", "20", "-x", &proxy, "--connect-to", &rule, "--expect-body", "via: h.example"];
    assert_eq!(answered(WAYS[0], &[&more[..], &["http://h.example/via"]].concat()), 20);
}

#[test]
fn user_and_password_are_the_url_s() {
    let issued = Issued::to("localhost");
    let Some(tls) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
    let Some(plain) = nginx_with("", "") else { return };
    let Some(proxy) = tinyproxy(Some(("ada", "pass"))) else { return };
    let (at, cacert) = (proxy.address, issued.file("cert.pem"));
    let urls = [format!("https://localhost:{}/", tls.address.port()), plain.url("/")];
    for url in &urls {
        let tls = if url.starts_with("https") { vec!["--cacert", cacert.as_str()] } else { Vec::new() };
        let with =
            |proxy: &str| run(&[&["load", "-n", "8", "-c", "2", "-x", proxy], &tls[..], &[url]].concat());
        let said = with(&format!("http://ada:p%61ss@{at}"));
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert!(!said.out.contains("pass@") && !said.out.contains("p%61ss"), "{}", said.out);
        for (proxy, expected) in [
            (format!("http://{at}"), "it wants a user and a password"),
            (format!("http://ada:wrong@{at}"), "it does not accept this user and password"),
        ] {
            let said = with(&proxy);
            assert_ne!(said.code, Some(0), "{}", said.out);
            let all = words(&said.out);
            // This proxy says 401 where RFC 9110 section 15.5.8 has 407.
            assert!(all.contains("407") || all.contains("401"), "{all}");
            if url.starts_with("https") {
                assert!(all.contains(&format!("the proxy http://{at} answered")), "who said it: {all}");
                assert!(all.contains(expected), "{all}");
            }
        }
    }
}

#[test]
fn a_proxy_that_forwards_and_wants_a_user() {
    let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    let at = answering(answer);
    for (user, expected) in
        [("", "it wants a user and a password"), ("ada:x@", "it does not accept this user and password")]
    {
        let said = run(&["load", "-n", "8", "-c", "2", "-x", &format!("{user}{at}"), "http://h.example/"]);
        assert_eq!(said.code, Some(1), "{}{}", said.out, said.err);
        let all = words(&said.out);
        let expected = format!("the proxy http://{at} (--proxy) answered 407 8 times: {expected}");
        assert!(all.contains(&expected), "{all}");
    }
}

/// Its own words for a run that never reached the target.
fn refusal(proxy: SocketAddr, flags: &[&str]) -> String {
    let proxy = format!("http://{proxy}");
    let url = "https://127.0.0.1:9/";
    let said = run(&[&["load", "-n", "4", "-c", "2", "-k", "-x", &proxy], flags, &[url]].concat());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    let all = words(&said.out);
    let begin = format!("127.0.0.1:9 through the proxy {proxy} (--proxy) could not be reached: ");
    assert!(all.contains(&begin), "{all}");
    all.split_once(&begin).map(|(_, why)| why.to_owned()).unwrap_or_default()
}

#[test]
fn proxies_that_refuse_are_named_with_what_they_said() {
    for way in [&["--io", "epoll"], &["--io", "uring"], &["--way", "threads"], &["--way", "async"]] {
        let forbidding = answering("HTTP/1.1 403 Forbidden\r\nServer: gate/1\r\nContent-Length: 0\r\n\r\n");
        let said = refusal(forbidding, way);
        let expected = format!(
            "the proxy http://{forbidding} answered CONNECT 127.0.0.1:9 with 403 Forbidden (said by gate/1): it does not connect to this \
             host and port"
        );
        assert_eq!(said, expected, "{way:?}");
        let closing = server(|mut stream| drop(stream.read(&mut [0; 4096])));
        let said = refusal(closing, way);
        assert!(
            said.ends_with("closed the connection instead of answering CONNECT 127.0.0.1:9"),
            "{way:?}: {said}"
        );
        let said = refusal(greeting("220 mail.example ESMTP\r\n"), way);
        assert!(said.contains("did not answer CONNECT in HTTP"), "{way:?}: {said}");
        let endless = server(|mut stream| while stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n").is_ok() {});
        assert!(refusal(endless, way).contains("did not answer CONNECT in HTTP"), "{way:?}");
    }
    let silent = greeting("");
    let said = refusal(silent, &["-d", "300ms"]);
    assert!(said.contains("did not answer") || said.contains("no TLS handshake ended"), "{said}");
    assert_eq!(refusal(common::nobody(), &[]), "connection refused");
}

#[test]
fn what_to_do_about_a_proxy_is_said() {
    let refuses = |response: &'static str| answering(response).to_string();
    let with_user = |address: String| format!("ada:secret@{address}");
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let unknown = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    let away = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
    let broken = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    let smtp = greeting("220 mail.example ESMTP\r\n").to_string();
    for (proxy, why, hint) in [
        (refuses(forbidden), "with 403 Forbidden", "or go around the proxy with --noproxy HOST"),
        (refuses(unknown), "with 407", "the proxy's URL, http://USER:PASSWORD@HOST:PORT"),
        (with_user(refuses(unknown)), "with 407", "in a URL, @ is written %40"),
        (refuses(away), "with 502 Bad Gateway", "check from the proxy's machine"),
        (refuses(broken), "with 500 Oops", "read the proxy's log"),
        (smtp, "did not answer CONNECT in HTTP", "another protocol is spoken there"),
        (common::nobody().to_string(), "connection refused", "check that the proxy runs there (--proxy)"),
    ] {
        let proxy = format!("http://{proxy}");
        let ways: [&[&str]; 2] = [&["-n", "4", "-c", "2"], &["--find", "p99<50ms"]];
        for way in ways {
            let said = run(&[&["load", "-k", "-x", &proxy], way, &["https://127.0.0.1:9/"]].concat());
            assert_eq!(said.code, Some(3), "{proxy}: {}{}", said.out, said.err);
            let all = words(&(said.out + &said.err));
            assert!(all.contains(why), "{proxy}: {all}");
            assert!(all.contains("hint: ") && all.contains(hint), "{proxy}: {all}");
            assert!(all.contains("127.0.0.1:9 through the proxy http://127.0.0.1:"), "{proxy}: {all}");
            assert!(!all.contains("secret"), "{proxy}: {all}");
        }
    }
}

#[test]
fn real_proxies_that_cannot_or_will_not() {
    let nobody = common::nobody();
    for proxy in [tinyproxy(None), squid("http_access allow localhost")].into_iter().flatten() {
        let (proxy, url) = (format!("http://{}", proxy.address), format!("https://{nobody}/"));
        let said = run(&["load", "-n", "4", "-c", "2", "-k", "-x", &proxy, &url]);
        assert_eq!(said.code, Some(3), "{}", said.out);
        let all = words(&said.out);
        assert!(all.contains(&format!("the proxy {proxy} answered CONNECT {nobody} with 50")), "{all}");
    }
    let Some(proxy) = squid("") else { return };
    let said = refusal(proxy.address, &[]);
    assert!(said.contains("with 403 Forbidden (said by squid"), "{said}");
}

/// A first line for each: what is asked of a proxy that answers all with 200.
#[test]
fn variables_name_the_proxy_and_its_exceptions() {
    let Some(server) = nginx_with("", "") else { return };
    let Some(proxy) = tinyproxy(None) else { return };
    let at = format!("http://{}", proxy.address);
    let first_line = |variables: &[(&str, &str)], flags: &[&str]| {
        let url = server.url("/");
        let mut command = linerate(&[&["load", "-q", "-n", "4", "-c", "2"], flags, &[&url]].concat());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let output = command.envs(variables.iter().copied()).output().expect("it runs");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{variables:?} {flags:?}: {out}");
        let line = out.lines().next().unwrap_or_default().to_owned();
        line.split_once(" through the proxy ").map(|(_, proxy)| proxy.to_owned())
    };
    let through = |from: &str| Some(format!("{at} ({from})"));
    assert_eq!(first_line(&[], &[]), None);
    assert_eq!(first_line(&[("http_proxy", &at)], &[]), through("http_proxy"));
    assert_eq!(first_line(&[("HTTP_PROXY", &at)], &[]), None);
    assert_eq!(first_line(&[("ALL_PROXY", &at)], &[]), through("ALL_PROXY"));
    assert_eq!(first_line(&[("http_proxy", &at), ("no_proxy", "127.0.0.0/8")], &[]), None);
    assert_eq!(first_line(&[("http_proxy", &at)], &["--noproxy", "*"]), None);
    assert_eq!(first_line(&[("http_proxy", &at)], &["--proxy", ""]), None);
    assert_eq!(first_line(&[("http_proxy", "http://127.0.0.9:1")], &["-x", &at]), through("--proxy"));
    let curl = format!("curl -x {at} {}", server.url("/"));
    let (document, _) = measured(&["-n", "4", "--curl", &curl]);
    assert_eq!(document["plan"]["proxy"]["url"], at.as_str());
}
