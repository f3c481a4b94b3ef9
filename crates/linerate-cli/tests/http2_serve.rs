//! `linerate serve` over HTTP/2: the programs that people have, h2spec, a drain, and what logs say.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;
mod real;
mod serving;

use std::process::Command;
use std::time::Duration;

use linerate_skips::{program_for, python_for};

use issued::Issued;
use namespaces::{Cable, OUR_V4};
use past_kernel::{PORT, Serving};
use real::find;
use serving::frames::{Client, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, frame};
use serving::{Server, serve, transports};

/// Runs a program that may not be here; `None`: it is not, which is reported.
fn run(program: &str, arguments: &[&str]) -> Option<(bool, Vec<u8>)> {
    let out = Command::new(find(program)?).args(arguments).output().unwrap();
    let text = if out.status.success() { out.stdout } else { [out.stdout, out.stderr].concat() };
    Some((out.status.success(), text))
}

fn text(out: &(bool, Vec<u8>)) -> String {
    String::from_utf8_lossy(&out.1).into_owned()
}

fn port(server: &Server) -> &str {
    server.address.rsplit_once(':').unwrap().1
}

fn https(issued: &Issued, more: &[&str]) -> Server {
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    serve(&[&["--tls-cert", &cert, "--tls-key", &key, "--demo-routes"], more].concat())
}

#[test]
fn curl_gets_and_sends_large_bodies_on_every_transport() {
    let issued = Issued::to("localhost");
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let file = issued.file("body");
    std::fs::write(&file, &body).unwrap();
    let post = format!("@{file}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("large"), &body).unwrap();
    let dir = dir.path().to_str().unwrap();
    for io in transports() {
        let plain = serve(&["--io", io, "--dir", dir, "--demo-routes"]);
        let secure = https(&issued, &["--io", io, "--dir", dir]);
        let (cert, version) = (issued.file("cert.pem"), "%{http_version}");
        for (base, flags) in [
            (format!("http://{}", plain.address), vec!["--http2-prior-knowledge"]),
            (format!("https://localhost:{}", port(&secure)), vec!["--http2", "-4", "--cacert", &cert]),
        ] {
            let curl = |more: &[&str], path: &str| {
                let url = format!("{base}{path}");
                run("curl", &[&["-sS", "--max-time", "30"], &flags[..], more, &[&url]].concat())
            };
            let Some(got) = curl(&["-w", version, "-o", "/dev/null"], "/status/200") else {
                return;
            };
            assert_eq!(text(&got), "2", "{io}");
            assert!(curl(&[], "/large").unwrap().1 == body, "{io}: a file");
            assert!(
                curl(&["-r", "100-2999990"], "/large").unwrap().1 == body[100..=2_999_990],
                "{io}: a range"
            );
            assert!(curl(&["--data-binary", &post], "/echo").unwrap().1 == body, "{io}: echo");
            assert_eq!(curl(&[], "/bytes/5000000").unwrap().1.len(), 5_000_000, "{io}");
            assert_eq!(text(&curl(&[], "/stream/3").unwrap()), "line 1\nline 2\nline 3\n", "{io}");
            let early = curl(&["-T", &file, "-o", "/dev/null", "-w", "%{response_code}"], "/echo").unwrap();
            assert_eq!(text(&early), "405", "{io}: a response before the body's end");
        }
    }
}

#[test]
fn many_streams_at_once() {
    let server = serve(&["--threads", "1"]);
    let url = |path: &str| format!("http://{}{path}", server.address);
    for path in ["/", "/delay/5", "/bytes/20000"] {
        let Some(out) = run("h2load", &["-n", "3000", "-c", "4", "-m", "100", &url(path)]) else {
            return;
        };
        assert!(text(&out).contains("3000 succeeded, 0 failed"), "{path}: {}", text(&out));
    }
    assert_eq!((server.stat("\"HTTP/2.0\":"), server.stat("\"floods\":")), (9000, 0));
}

/// All tests of h2spec, the strict ones too, on the server at this address.
fn h2spec_passes(host: &str, port: &str, tls: bool, what: &str) {
    // A response that takes its time: some tests send more on a stream that waits.
    let flags = ["-h", host, "-p", port, "-P", "/delay/30", "-o", "5", "-S"];
    let tls = if tls { &["-t", "-k"][..] } else { &[] };
    let out = run("h2spec", &[&flags[..], tls].concat()).unwrap();
    let said = text(&out);
    // 2.2.1 has 146 tests, 2.6.0 has 147.
    let all = |tests: u32| said.contains(&format!("{tests} tests, {tests} passed, 0 skipped, 0 failed"));
    assert!(out.0 && (146..200).any(all), "{what} {tls:?}: {said}");
}

/// In clear text and over TLS, on the kernel's TCP.
#[test]
fn h2spec() {
    let issued = Issued::to("localhost");
    if find("h2spec").is_none() {
        return;
    }
    for io in transports() {
        let (plain, secure) = (serve(&["--io", io]), https(&issued, &["--io", io]));
        h2spec_passes("127.0.0.1", port(&plain), false, io);
        h2spec_passes("127.0.0.1", port(&secure), true, io);
    }
}

/// The same on user-space TCP, with the kernel's at the client's end of the cable.
#[test]
fn h2spec_over_user_space_tcp() {
    if find("h2spec").is_none() {
        return;
    }
    let Some(cable) = Cable::new(1) else { return };
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let tls = format!(" --tls-cert {cert} --tls-key {key} --demo-routes");
    for (tls, flags) in [(false, ""), (true, &tls)] {
        let _serving = Serving::xdp(&cable, flags);
        let test = || h2spec_passes(&OUR_V4.to_string(), &PORT.to_string(), tls, "xdp");
        cable.theirs.run(test);
    }
}

/// The JDK's client, whose flow control is its own.
#[test]
fn java_sends_and_gets() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &[]);
    let source = r#"import java.net.URI;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;

class Client {
  public static void main(String[] args) throws Exception {
    var trusted = KeyStore.getInstance("PKCS12");
    trusted.load(null, null);
    try (var file = new java.io.FileInputStream(args[1])) {
      trusted.setCertificateEntry("c", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    var managers = TrustManagerFactory.getInstance("PKIX");
    managers.init(trusted);
    var tls = SSLContext.getInstance("TLS");
    tls.init(null, managers.getTrustManagers(), null);
    var client = HttpClient.newBuilder().sslContext(tls).build();
    var body = HttpRequest.BodyPublishers.ofString("x".repeat(300000));
    var all = new java.util.ArrayList<java.util.concurrent.CompletableFuture<HttpResponse<String>>>();
    for (int i = 0; i < 5; i++) {
      var request = HttpRequest.newBuilder(URI.create(args[0] + "/echo")).POST(body).build();
      all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofString()));
    }
    for (var one : all) System.out.print(one.get().version() + " " + one.get().body().length() + " ");
  }
}
"#;
    let file = issued.file("Client.java");
    std::fs::write(&file, source).unwrap();
    let (url, cert) = (format!("https://localhost:{}", port(&server)), issued.file("cert.pem"));
    let Some(out) = run("java", &[&file, &url, &cert]) else { return };
    assert_eq!(text(&out).trim(), ["HTTP_2 300000"; 5].join(" "));
}

#[test]
fn chromium_shows_the_page() {
    let Some(chromium) = find("chromium") else { return };
    let chromium = chromium.display().to_string();
    let issued = Issued::to("localhost");
    let server = https(&issued, &[]);
    let base = format!("https://127.0.0.1:{}", port(&server));
    let profile = tempfile::tempdir().unwrap();
    let data = format!("--user-data-dir={}", profile.path().display());
    let flags =
        ["60", &chromium, "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors"];
    let page = run("timeout", &[&flags[..], &[&data, "--dump-dom", &format!("{base}/")]].concat());
    let Some(page) = page else { return };
    assert!(text(&page).contains("Hello, World!"), "{}", text(&page));
    let stats = run("curl", &["-sSk", "--http1.1", &format!("{base}/stats")]);
    let Some(stats) = stats else { return };
    let stats = text(&stats);
    assert!(stats.contains("\"HTTP/2.0\":") && !stats.contains("\"HTTP/2.0\":0"), "it spoke HTTP/2: {stats}");
}

/// Clients of other languages, each over what it speaks.
#[test]
fn other_clients() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &[]);
    let plain = serve(&["--threads", "1"]);
    let (base, cert) = (format!("https://localhost:{}", port(&server)), issued.file("cert.pem"));
    let node = format!(
        "const c = require('http2').connect('http://{}');\n\
         let left = 50, sum = 0;\n\
         for (let i = 0; i < 50; i++) {{ const s = c.request({{':path': '/bytes/70000'}});\n\
           s.on('data', d => sum += d.length); s.on('end', () => {{ if (--left == 0) {{ console.log(sum); c.close() }} }}); s.end() }}",
        plain.address
    );
    let python = format!(
        "import httpx, ssl\n\
         with httpx.Client(http2=True, verify=ssl.create_default_context(cafile='{cert}')) as c:\n\
         \x20   r = c.post('{base}/echo', content=b'x' * 300000)\n\
         \x20   print(r.http_version, len(r.content))"
    );
    if program_for("node", "node").is_some() {
        assert_eq!(text(&run("node", &["-e", &node]).unwrap()).trim(), "3500000");
    }
    if let Some(program) = python_for("Python", &["httpx", "h2"]) {
        let out = run(program.to_str().unwrap(), &["-c", &python]).unwrap();
        assert_eq!(text(&out).trim(), "HTTP/2 300000");
    }
    if program_for("go", "go").is_some() {
        let go = format!(
            "package main\nimport (\"crypto/tls\"; \"fmt\"; \"io\"; \"net/http\"; \"strings\")\nfunc main() {{\n\
             t := &http.Transport{{TLSClientConfig: &tls.Config{{InsecureSkipVerify: true}}, ForceAttemptHTTP2: true}}\n\
             c := &http.Client{{Transport: t}}\nr, e := c.Post(\"{base}/echo\", \"text/plain\", strings.NewReader(strings.Repeat(\"x\", 1000000)))\n\
             if e != nil {{ panic(e) }}\nb, _ := io.ReadAll(r.Body)\nfmt.Println(r.Proto, len(b)) }}\n"
        );
        let file = issued.file("client.go");
        std::fs::write(&file, go).unwrap();
        assert_eq!(text(&run("go", &["run", &file]).unwrap()).trim(), "HTTP/2.0 1000000");
    }
}

/// A stopped server says goodbye twice: no new requests, and a round trip later up to which it took them.
#[test]
fn a_drain_takes_two_goaways() {
    let server = serve(&["--threads", "1"]);
    let mut client = Client::new(&server);
    client.ask(1, "/delay/300");
    let mut idle = Client::new(&server);
    idle.ask(1, "/");
    idle.wait_for(DATA);
    std::thread::sleep(Duration::from_millis(100));
    server.signal("-TERM");
    let first = client.wait_for(GOAWAY);
    assert_eq!((first.number(0), first.number(4)), (0x7fff_ffff, 0));
    // Sent before the client can know.
    client.ask(3, "/");
    let ping = client.wait_for(PING);
    client.send(&frame(PING, 1, 0, &ping.payload)).unwrap();
    let (mut last, mut bodies) = (None, Vec::new());
    while let Some(frame) = client.next() {
        match frame.kind {
            GOAWAY => last = Some(frame.number(0)),
            DATA => bodies.push((frame.stream, frame.payload)),
            _ => {}
        }
    }
    assert_eq!(last, Some(3));
    bodies.sort();
    assert_eq!(bodies, [(1, b"waited\n".to_vec()), (3, b"Hello, World!\n".to_vec())]);
    assert_eq!(idle.end(), Some(0));
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn logs_and_metrics_name_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let server =
        serve(&["--threads", "1", "--access-log", log.to_str().unwrap(), "--metrics", "127.0.0.1:0"]);
    let line = server.line();
    let metrics = line.split_once("http://").unwrap().1.strip_suffix("/metrics").unwrap();
    let mut client = Client::new(&server);
    client.ask(1, "/bytes/100?x");
    client.wait_for(DATA);
    // Without a path.
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x82, 0x86])).unwrap();
    client.wait_for(RST_STREAM);
    server.get("/");
    let page = serving::get(metrics, "/metrics");
    for line in [
        "linerate_requests_by_protocol_total{protocol=\"HTTP/2.0\"} 1",
        "linerate_requests_by_protocol_total{protocol=\"HTTP/1.1\"} 1",
        "linerate_http2_connections_total 1",
        "linerate_http2_floods_total 0",
        "linerate_http2_malformed_total 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} in {page}");
    }
    drop(client);
    server.stop();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"GET /bytes/100?x HTTP/2.0\" 200 100"), "{log}");
    assert!(log.contains("\"GET / HTTP/1.1\" 200 14"), "{log}");
    assert_eq!(log.matches("\" 400 0").count(), 1, "{log}");
}

#[test]
fn it_can_be_switched_off() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &["--http2", "off"]);
    let plain = serve(&["--http2", "off"]);
    let begun = Client::new(&plain);
    assert_eq!(begun.end_of_text(), "HTTP/1.1 505");
    let url = format!("https://localhost:{}/", port(&server));
    let out =
        run("curl", &["-sS", "-4", "--cacert", &issued.file("cert.pem"), "-w", "%{http_version}", &url]);
    assert!(out.is_none_or(|out| text(&out).ends_with("1.1")));
}

#[test]
fn limits_hold_for_each_stream() {
    let server = serve(&["--threads", "1", "--max-body", "1000", "--body-timeout", "1s"]);
    let base = format!("http://{}/echo", server.address);
    let curl = |more: &[&str]| {
        let flags = ["-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{response_code}"];
        run("curl", &[&flags[..], more, &[&base]].concat()).map(|out| text(&out))
    };
    let Some(large) = curl(&["--data-binary", &"x".repeat(1001)]) else {
        return;
    };
    assert_eq!(large, "413");
    assert_eq!(curl(&["--data-binary", &"x".repeat(1000)]).unwrap(), "200");
    // A body that does not come.
    let mut client = Client::new(&server);
    let block = serving::frames::block("POST", "/echo");
    client.send(&frame(HEADERS, END_HEADERS, 1, &block)).unwrap();
    let answer = client.wait_for(DATA);
    assert!(String::from_utf8_lossy(&answer.payload).starts_with("408"), "{answer:?}");
}

/// Some clients (curl 7.88) take a reset for an error if they have not sent their body yet, even
/// behind a whole response.
#[test]
fn a_body_that_is_too_large_is_still_read_for_a_while() {
    let server = serve(&["--threads", "1", "--max-body", "1000"]);
    let mut client = Client::new(&server);
    let post = serving::frames::block("POST", "/echo");
    // content-length, without Huffman.
    let announced = [&post[..], b"\x0f\x0d\x041001"].concat();
    let kinds_before_pong = |client: &mut Client| {
        client.send(&frame(PING, 0, 0, &[7; 8])).unwrap();
        std::iter::from_fn(|| client.next().filter(|f| (f.kind, f.flags) != (PING, 1)).map(|f| f.kind))
            .collect::<Vec<u8>>()
    };
    for (stream, block, first, rest) in [(1, &announced, 0, 1), (3, &post, 1001, 100)] {
        client.send(&frame(HEADERS, END_HEADERS, stream, block)).unwrap();
        if first > 0 {
            client.send(&frame(DATA, 0, stream, &vec![b'x'; first])).unwrap();
        }
        assert!(String::from_utf8_lossy(&client.wait_for(DATA).payload).starts_with("413"));
        let kinds = kinds_before_pong(&mut client);
        assert!(!kinds.contains(&RST_STREAM), "{stream}: {kinds:?}");
        for _ in 0..rest {
            client.send(&frame(DATA, 0, stream, &[b'x'; 1001])).unwrap();
            // So that no window is exceeded.
            let kinds = kinds_before_pong(&mut client);
            assert!(!kinds.contains(&RST_STREAM), "{stream}: {kinds:?}");
        }
        client.send(&frame(DATA, END_STREAM, stream, b"")).unwrap();
        let kinds = kinds_before_pong(&mut client);
        assert!(!kinds.contains(&RST_STREAM), "{stream}: {kinds:?}");
    }
    // Not for ever, and not where the client asks first.
    client.send(&frame(HEADERS, END_HEADERS, 5, &post)).unwrap();
    let reset = (1..100).find(|_| {
        client.send(&frame(DATA, 0, 5, &[b'x'; 10_000])).unwrap();
        kinds_before_pong(&mut client).contains(&RST_STREAM)
    });
    assert!(reset.is_some_and(|pieces| (26..30).contains(&pieces)), "{reset:?}");
    let asks = [&announced[..], b"\x0f\x14\x0c100-continue"].concat();
    client.send(&frame(HEADERS, END_HEADERS, 7, &asks)).unwrap();
    assert_eq!(client.wait_for(RST_STREAM).stream, 7);
    client.ask(9, "/");
    assert_eq!(client.wait_for(DATA).payload, b"Hello, World!\n");
}
