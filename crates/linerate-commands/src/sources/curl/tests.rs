//! curl commands as people type and browsers copy them.

use linerate_load::plan::http::Http;

use super::*;

fn parsed(command: &str) -> (String, Request, Vec<String>) {
    let source = parse(command).unwrap_or_else(|e| panic!("{command}: {e}"));
    assert_eq!((source.requests.len(), &source.order, &source.pace), (1, &Order::Weighted, &None));
    (source.url.unwrap(), source.requests.into_iter().next().unwrap(), source.notes)
}

/// The request as lines, with the notes for the user.
fn shown(command: &str) -> String {
    let (url, request, notes) = parsed(command);
    let mut shown = format!("{url}\n{} {}\n", request.method, request.path);
    shown.extend(request.fields.iter().map(|(n, v)| format!("{n}: {v}\n")));
    shown.extend(request.body.iter().map(|b| format!("\n{}\n", String::from_utf8_lossy(&b.to_vec()))));
    shown.extend(notes.iter().map(|n| format!("! {n}\n")));
    shown
}

/// A command; the method, path, fields (between bars) and body that it asks for.
type Typed = (&'static str, &'static str, &'static str, &'static str, Option<&'static str>);

const TYPED: &[Typed] = &[
    ("curl http://h/", "GET", "/", "Accept: */*", None),
    ("curl h:8080", "GET", "/", "Accept: */*", None),
    ("curl http://h?a=b#c", "GET", "/?a=b", "Accept: */*", None),
    ("/usr/bin/curl -sS --url http://h/x", "GET", "/x", "Accept: */*", None),
    ("curl -I http://h/", "HEAD", "/", "Accept: */*", None),
    ("curl -XDELETE http://h/1", "DELETE", "/1", "Accept: */*", None),
    (
        "curl -sXPUT -d a http://h/",
        "PUT",
        "/",
        "Accept: */*|Content-Type: application/x-www-form-urlencoded",
        Some("a"),
    ),
    (
        "curl -d a=1 -d b=2 http://h/",
        "POST",
        "/",
        "Accept: */*|Content-Type: application/x-www-form-urlencoded",
        Some("a=1&b=2"),
    ),
    (
        "curl --json '{\"a\":1}' http://h/",
        "POST",
        "/",
        "Accept: application/json|Content-Type: application/json",
        Some("{\"a\":1}"),
    ),
    (
        "curl -G -d a=1 --data-urlencode 'b=x y' http://h/?z=0",
        "GET",
        "/?z=0&a=1&b=x%20y",
        "Accept: */*",
        None,
    ),
    ("curl --url-query c=3 http://h/", "GET", "/?c=3", "Accept: */*", None),
    ("curl -H 'Accept:' -H 'X-Empty;' -H 'X-A: b: c' http://h/", "GET", "/", "X-Empty: |X-A: b: c", None),
    (
        "curl -H 'content-type: text/plain' --data-raw @x http://h/",
        "POST",
        "/",
        "content-type: text/plain|Accept: */*",
        Some("@x"),
    ),
    ("curl -u ada:secret http://h/", "GET", "/", "Accept: */*|Authorization: Basic YWRhOnNlY3JldA==", None),
    ("curl http://ada:se%3Acret@h/", "GET", "/", "Accept: */*|Authorization: Basic YWRhOnNlOmNyZXQ=", None),
    (
        "curl -A agent -e 'http://r/;auto' -b 'a=1;' -b b=2 http://h/",
        "GET",
        "/",
        "User-Agent: agent|Referer: http://r/|Accept: */*|Cookie: a=1; b=2",
        None,
    ),
    (
        "curl --compressed -r 0-99 http://h/",
        "GET",
        "/",
        "Range: bytes=0-99|Accept: */*|Accept-Encoding: gzip, deflate, br, zstd",
        None,
    ),
    ("curl --oauth2-bearer T http://h/", "GET", "/", "Authorization: Bearer T|Accept: */*", None),
    (
        "curl -H 'Host: other' -H 'Connection: close' http://h/",
        "GET",
        "/",
        "Host: other|Connection: close|Accept: */*",
        None,
    ),
    ("curl 'http://h/{{csv.id}}?n={{seq}}'", "GET", "/{{csv.id}}?n={{seq}}", "Accept: */*", None),
    ("curl -g 'http://h/[1]{a}'", "GET", "/[1]{a}", "Accept: */*", None),
    ("curl 'http://[::1]:80/a b\u{e9}'", "GET", "/a%20b%C3%A9", "Accept: */*", None),
    (
        "curl http://h/ --data-raw '{\"a\":\"^\"}' -H 'Content-Type:'",
        "POST",
        "/",
        "Accept: */*",
        Some("{\"a\":\"^\"}"),
    ),
    ("curl -- http://h/", "GET", "/", "Accept: */*", None),
];

#[test]
fn what_people_type() {
    for (command, method, path, fields, body) in TYPED.iter().copied() {
        let (_, request, _) = parsed(command);
        let got: Vec<String> = request.fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!((request.method.as_str(), request.path.as_str()), (method, path), "{command}");
        assert_eq!(got.join("|"), fields, "{command}");
        assert_eq!(request.body.map(|b| b.to_vec()).as_deref(), body.map(str::as_bytes), "{command}");
    }
}

#[test]
fn the_target() {
    for (command, url) in [
        ("curl h", "http://h/"),
        ("curl HTTP://Example.COM:80/x", "http://example.com/x"),
        ("curl https://h:8443/x?y", "https://h:8443/x?y"),
        ("curl http://[::1]:8080", "http://[::1]:8080/"),
    ] {
        assert_eq!(parsed(command).0, url, "{command}");
    }
}

#[test]
fn several_urls_are_asked_one_after_the_other() {
    let source = parse("curl -s http://h/a h/b").unwrap();
    let paths: Vec<&str> = source.requests.iter().map(|r| r.path.as_str()).collect();
    assert_eq!((paths, source.order), (vec!["/a", "/b"], Order::Listed(vec![0, 1])));
    assert_eq!(source.url.as_deref(), Some("http://h/a"));
}

#[test]
fn copied_from_chrome() {
    insta::assert_snapshot!(shown(
        r#"curl 'https://shop.example/api/v2/cart?currency=EUR&lang=de' \
  -H 'accept: application/json, text/plain, */*' \
  -H 'accept-language: de-DE,de;q=0.9,en;q=0.8' \
  -H 'content-type: application/json' \
  -b 'session=abc123; theme=dark' \
  -H 'origin: https://shop.example' \
  -H 'priority: u=1, i' \
  -H 'sec-ch-ua: "Chromium";v="142", "Not A(Brand";v="99"' \
  -H 'sec-fetch-mode: cors' \
  -H 'user-agent: Mozilla/5.0 (X11; Linux x86_64)' \
  --data-raw $'{"item":"it\'s \u0021","emoji":"\ud83d\ude00","line":"a\\nb"}' \
  --insecure"#
    ));
}

#[test]
fn copied_from_firefox() {
    insta::assert_snapshot!(shown(
        "curl 'http://127.0.0.1:8080/login' --compressed -X POST -H 'User-Agent: Mozilla/5.0 Gecko/20100101' \
         -H 'Accept-Encoding: gzip, deflate, br, zstd' -H 'Connection: keep-alive' -H 'Upgrade-Insecure-Requests: 1' \
         -H 'TE: trailers' -H 'Content-Length: 9' -H ':authority: x' --data-raw 'user=a+%26b' | jq ."
    ));
}

#[test]
fn bodies_from_files() {
    let folder = std::env::temp_dir().join(format!("linerate-curl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a b.txt");
    std::fs::write(&path, "x=1\r\ny 2\n").unwrap();
    let name = path.display();
    let request = |command: String| parsed(&command).1;
    let body = |command: String| String::from_utf8(request(command).body.unwrap().to_vec()).unwrap();
    assert_eq!(body(format!("curl -d '@{name}' http://h/")), "x=1y 2");
    assert_eq!(body(format!("curl --data-binary '@{name}' http://h/")), "x=1\r\ny 2\n");
    assert_eq!(body(format!("curl --data-urlencode 'f@{name}' http://h/")), "f=x%3D1%0D%0Ay%202%0A");
    let upload = request(format!("curl -T '{name}' http://h/dir/"));
    assert_eq!((upload.method.as_str(), upload.path.as_str()), ("PUT", "/dir/a%20b.txt"));
    assert!(!has_field(&upload.fields, "Content-Type"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn errors_name_the_place() {
    let wrong = [
        "",
        "wget http://h/",
        "Invoke-WebRequest -Uri http://h/",
        "curl ^\"http://h/^\" ^\n  -H ^\"accept: x^\"",
        "curl \"http://h/\" ^\r\n  -H \"accept: x\"",
        "curl",
        "curl -H 'a: b'",
        "curl --frobnicate http://h/",
        "curl -sQ http://h/",
        "curl http://h/ -X",
        "curl http://h/ -H 'no colon'",
        "curl http://h/ -H 'a b: c'",
        "curl http://h/ -H $'a: b\nc: d'",
        "curl http://h/ -X 'GE T'",
        "curl http://h/ -H @fields.txt",
        "curl http://h/ -d @no/such/file",
        "curl http://h/ -d @-",
        "curl http://h/ -b cookies.txt",
        "curl http://h/ -F file=@x",
        "curl --socks5 proxy:1080 http://h/",
        "curl -U a:b http://h/",
        "curl -p -x http://proxy:3128 http://h/",
        "curl --abstract-unix-socket s http://h/",
        "curl --digest -u a:b http://h/",
        "curl http://h/ --next http://h/b",
        "curl ftp://h/",
        "curl http:///x",
        "curl http://h:99999/",
        "curl 'http://h/[1-3]'",
        "curl 'http://h/{a,b}'",
        "curl http://a/ http://b/",
        "curl 'http://h/",
        "curl http://h/$ID",
        "curl -T x -d y http://h/",
    ];
    let said: String =
        wrong.iter().map(|c| format!("{}\n  -> {}\n", c.escape_debug(), parse(c).unwrap_err())).collect();
    insta::assert_snapshot!(said);
}

#[test]
fn the_way_to_the_server_is_taken_over() {
    let route = |command: &str| parse(command).expect(command).route;
    let proxied = route("curl -x p:3128 -U 'ada:p@ss' --noproxy g https://h/");
    assert_eq!(proxied.proxy.as_deref(), Some("http://ada:p%40ss@p:3128"));
    assert_eq!(proxied.noproxy.as_deref(), Some("g"));
    let unix = route("curl --unix-socket /run/s --haproxy-protocol http://h/");
    assert_eq!(unix.unix_socket, Some("/run/s".into()));
    assert_eq!(unix.haproxy_protocol, Some(HaproxyVersion::V1));
    let moved = route("curl --connect-to ::g:81 --connect-to a:1:b:2 --resolve g:81:127.0.0.1 http://h/");
    assert_eq!(moved.connect_to, ["::g:81", "a:1:b:2"]);
    assert_eq!(moved.resolve, ["g:81:127.0.0.1"]);
    assert_eq!(route("curl http://h/"), RouteKeys::default());
}

#[test]
fn how_connections_are_spoken_on_is_taken_over() {
    let of = |command: &str| {
        let source = parse(command).expect(command);
        (source.wire, source.notes)
    };
    let (wire, notes) = of("curl --http2 -6 --tlsv1.3 --tls-max 1.3 -k https://h/");
    assert_eq!((wire.http, wire.ipv6, wire.tls.insecure), (Some(Http::Two), Some(true), Some(true)));
    assert_eq!((wire.tls.least, wire.tls.most), (Some(TlsVersion::Tls13), Some(TlsVersion::Tls13)));
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(of("curl --http2 --http1.1 -4 https://h/").0.http, Some(Http::One), "the last one holds");
    for option in ["--http3", "--http3-only"] {
        let (wire, notes) = of(&format!("curl {option} https://h/"));
        assert_eq!((wire.http, notes), (Some(Http::Three), Vec::new()), "{option}");
    }
    assert_eq!(of("curl http://h/").0, SourceProtocol::default());
    // OpenSSL's names are those of its list; the list of TLS 1.3 stays as it was.
    let (wire, notes) = of("curl --ciphers ECDHE-RSA-AES256-GCM-SHA384:DES-CBC3-SHA https://h/");
    let ciphers = wire.tls.ciphers.expect("a list");
    assert!(
        ciphers.starts_with("TLS_AES_256_GCM_SHA384:") && ciphers.ends_with(":ECDHE-RSA-AES256-GCM-SHA384")
    );
    assert!(notes[0].contains("DES-CBC3-SHA"), "{notes:?}");
    let (wire, _) =
        of("curl --tls13-ciphers TLS_AES_128_GCM_SHA256 --ciphers ECDHE-RSA-AES128-GCM-SHA256 https://h/");
    assert_eq!(wire.tls.ciphers.as_deref(), Some("TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256"));
    assert!(parse("curl --tls-max 1.1 https://h/").unwrap_err().to_string().contains("only TLS 1.2 and 1.3"));
}

#[test]
fn what_is_left_out_is_said() {
    let (_, _, notes) = parsed("curl -kL --http2 -m 5 --retry 3 -c jar -o out -w x http://h/ > file");
    insta::assert_snapshot!(notes.join("\n"));
}
