//! `linerate explain` of calls that a real proxy hands on: what is behind it, and what only looks so.

#![allow(clippy::unwrap_used)]

mod common;
mod proxies;

use common::{responding, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use linerate_netbox::{Namespace, NetBox};
use linerate_skips::{need, skip};
use proxies::{haproxy, late, nginx, nginx_cache};
use serde_json::Value;

/// What `explain` says of that address: the document.
fn explained(address: SocketAddr) -> Value {
    explained_with(address, &["--budget", "12s", "--pid", "off"])
}

/// The same, where the server's process is watched, and on a busy machine, too.
fn watched(address: SocketAddr) -> Value {
    explained_with(address, &["--budget", "40s"])
}

fn explained_with(address: SocketAddr, flags: &[&str]) -> Value {
    let url = format!("http://{address}/");
    let said = run(&[&["explain", "--quiet", "--json", "-"], flags, &[&url]].concat());
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

fn ids(document: &Value) -> Vec<&str> {
    document["causes"].as_array().unwrap().iter().filter_map(|c| c["id"].as_str()).collect()
}

/// The field that names the time of the server behind.
const TIMED: &str = " http-response set-header Server-Timing upstream;dur=%Tr";

#[test]
fn a_proxy_that_names_the_time_behind_it() {
    let Some(proxy) = haproxy(&[late(60)], TIMED) else { return };
    let found = explained(proxy.address);
    assert_eq!(
        (ids(&found), &found["causes"][0]["proof"]),
        (vec!["upstream-wait"], &"likely".into()),
        "{found:#}"
    );
    let says = found["causes"][0]["evidence"].to_string();
    assert!(says.contains("Server-Timing names most of what the call waited"), "{says}");
    // Without the field nobody knows.
    let silent = haproxy(&[late(60)], "").unwrap();
    assert_eq!(ids(&explained(silent.address)), ["server-think"]);
    // But its own connections show it.
    assert_eq!(ids(&watched(silent.address)), ["upstream-wait"]);
}

/// The time is the answering server's own.
#[test]
fn a_server_that_names_little_behind_it() {
    let server = responding(|stream| {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let head = "HTTP/1.1 200 OK\r\nServer-Timing: upstream;dur=1\r\nContent-Length: 2\r\n\r\nok";
        std::io::Write::write_all(stream, head.as_bytes())
    });
    let found = explained(server);
    assert_eq!(ids(&found), ["server-think"], "{found:#}");
    let out = found["ruled_out"].as_array().unwrap();
    assert!(out.iter().any(|r| r["id"] == "upstream-wait"), "{found:#}");
}

#[test]
fn one_slow_server_of_three_behind_a_balancer() {
    let Some(proxy) = haproxy(&[late(0), late(60), late(0)], "") else { return };
    let found = explained(proxy.address);
    assert_eq!(ids(&found), ["one-slow-backend"], "{found:#}");
    let says = found["causes"][0]["evidence"].to_string();
    assert!(says.contains("each 3. waited"), "{says}");
    // All of them alike.
    let even = haproxy(&[late(0), late(0), late(0)], "").unwrap();
    assert!(!ids(&explained(even.address)).contains(&"one-slow-backend"));
    let slow = haproxy(&[late(60), late(60)], "").unwrap();
    assert_eq!(ids(&explained(slow.address)), ["server-think"]);
}

#[test]
fn a_cache_that_loses_the_answer_soon() {
    let Some(proxy) = nginx_cache(late(120), "1s") else { return };
    let found = explained(proxy.address);
    assert!(ids(&found).contains(&"cache-cold"), "{found:#}");
    // It keeps it: only the first call waits.
    let kept = nginx_cache(late(120), "1h").unwrap();
    let found = explained(kept.address);
    assert!(!ids(&found).contains(&"cache-cold"), "{found:#}");
    // It asks each time, and that costs nothing.
    let quick = nginx_cache(late(0), "0").unwrap();
    assert!(!ids(&explained(quick.address)).contains(&"cache-cold"));
}

/// A server that gives up an idle connection after a second, and closes it 0.2 s later: calls that a busy
/// machine sends late still fall between.
fn forgetful() -> SocketAddr {
    common::server(|mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        while let Ok(1..) = stream.read(&mut buffer) {
            if stream.write_all(common::HELLO.as_bytes()).is_err() {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    })
}

/// The same through a proxy, where the server behind is named.
fn idle(proxy: SocketAddr, behind: SocketAddr) -> Value {
    let (proxy, behind) = (format!("http://{proxy}/"), format!("http://{behind}/"));
    let said = run(&[
        "explain", "--quiet", "--json", "-", "--budget", "30s", "--origin", &behind, "--pid", "off", &proxy,
    ]);
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

#[test]
fn a_server_that_closes_idle_connections_sooner_than_the_proxy() {
    let behind = forgetful();
    let Some(proxy) = haproxy(&[behind], "") else { return };
    let place = |found: &Value| ids(found).iter().position(|id| *id == "idle-limit-order");
    let found = idle(proxy.address, behind);
    match place(&found).map(|place| &found["causes"][place]["proof"]) {
        Some(proof) => assert!(proof == "proved" || proof == "likely", "{found:#}"),
        // A starved machine sends nearly all of its calls too late, and does not call that healthy.
        None => assert!(
            found["verdict"] == "inconclusive" && found["limits"][0].to_string().contains("is not known"),
            "{found:#}"
        ),
    }
    assert!(!ids(&found).contains(&"keep-alive-race"), "{found:#}");
    // nginx sends such a call again: a note.
    let Some(again) = nginx(behind) else { return };
    let found = idle(again.address, behind);
    assert!(!ids(&found).contains(&"idle-limit-order"), "{found:#}");
    let says = found["limits"].to_string();
    assert!(says.contains("before the server behind closes an idle connection (after 1."), "{says}");
}

/// Node closes without a delay: nothing is lost on a way as short as this one.
#[test]
fn the_idle_limit_of_node_behind_a_proxy_is_a_note() {
    let Some(node) = linerate_skips::program("node") else { return };
    let port = common::nobody().port();
    let text = format!(
        "const s = require('http').createServer((q, r) => r.end('hello')); s.keepAliveTimeout = 1500; s.listen({port}, '127.0.0.1')"
    );
    let mut child = std::process::Command::new(node).args(["-e", &text]).spawn().unwrap();
    let behind = SocketAddr::from(([127, 0, 0, 1], port));
    common::until("node", || std::net::TcpStream::connect(behind).is_ok());
    let found = nginx(behind).map(|proxy| idle(proxy.address, behind));
    let _ = child.kill();
    let _ = child.wait();
    let Some(found) = found else { return };
    assert!(!ids(&found).contains(&"idle-limit-order"), "{found:#}");
    let says = found["limits"].to_string();
    assert!(says.contains("idle-limit-order: unclear: 0 of "), "{says}");
}

/// A database: each line is a question, and is answered after that time; so many at once at most.
fn database(ms: u64, at_once: usize) -> SocketAddr {
    let places = std::sync::Arc::new((std::sync::Mutex::new(at_once), std::sync::Condvar::new()));
    common::server(move |stream| {
        let Ok(mut out) = stream.try_clone() else { return };
        for _ in BufReader::new(stream).lines().map_while(Result::ok) {
            let (free, freed) = &*places;
            *freed.wait_while(free.lock().unwrap(), |free| *free == 0).unwrap() -= 1;
            std::thread::sleep(Duration::from_millis(ms));
            *free.lock().unwrap() += 1;
            freed.notify_one();
            if out.write_all(b"row\n").is_err() {
                return;
            }
        }
    })
}

/// A server before databases; gone when dropped.
struct PooledServer {
    child: std::process::Child,
    address: SocketAddr,
}

impl Drop for PooledServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None`: there is no Python here.
fn pooled(mode: &str, size: u8, databases: &[SocketAddr]) -> Option<PooledServer> {
    let mut command = std::process::Command::new(linerate_skips::program("python3")?);
    command.args(["-c", include_str!("behind/pooled.py"), mode, &size.to_string()]);
    command.args(databases.iter().map(|d| d.port().to_string()));
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
    Some(PooledServer { child, address })
}

#[test]
fn a_pool_of_connections_to_a_database_has_its_size_and_address() {
    let database = database(60, 1000);
    let Some(server) = pooled("pool", 3, &[database]) else { return };
    let found = watched(server.address);
    let causes = ids(&found);
    assert!(causes.contains(&"upstream-pool") && causes.contains(&"upstream-wait"), "{found:#}");
    let all = found["causes"].as_array().unwrap();
    let pool = all.iter().find(|c| c["id"] == "upstream-pool").unwrap();
    assert_eq!(pool["proof"], "proved", "{pool:#}");
    assert_eq!(pool["title"], format!("calls wait for one of a pool of 3 connections to {database}"));
    let wait = all.iter().find(|c| c["id"] == "upstream-wait").unwrap();
    assert_eq!(wait["title"], format!("the answering server waits for {database}"));
}

#[test]
fn what_looks_like_a_pool_is_none() {
    let (first, second) = (database(60, 1000), database(60, 1000));
    let alike = [
        pooled("workers", 3, &[first]),
        pooled("pool", 4, &[first, second]),
        pooled("pool", 40, &[first]),
        pooled("open", 0, &[database(60, 3)]),
        // Few at once, and each with a new connection.
        pooled("open", 0, &[first]),
    ];
    for server in alike.into_iter().flatten() {
        let found = watched(server.address);
        assert!(!ids(&found).contains(&"upstream-pool"), "{found:#}");
        let said = [&found["limits"], &found["ruled_out"]].map(Value::to_string).concat();
        assert!(said.contains("upstream-pool"), "{found:#}");
    }
}

#[test]
fn connections_behind_are_counted_for_each_call() {
    let Some(server) = pooled("connects", 0, &[database(60, 1000)]) else { return };
    let words = |found: &Value| {
        [&found["causes"], &found["limits"], &found["ruled_out"]].map(Value::to_string).concat()
    };
    let found = watched(server.address);
    assert!(words(&found).contains("proxy-connects-per-call"), "{found:#}");
    // On this machine a handshake costs nothing.
    assert!(found["limits"].to_string().contains("a note and no cause"), "{found:#}");
    let backend = late(60);
    let Some(keeps) = nginx(backend) else { return };
    let found = watched(keeps.address);
    assert!(found["ruled_out"].to_string().contains("that was open before"), "{found:#}");
    let opens = proxies::nginx_without_keepalive(backend).unwrap();
    let found = watched(opens.address);
    assert!(
        found["limits"].to_string().contains(&format!("opens a new connection to {backend}")),
        "{found:#}"
    );
}

/// A server in that namespace that answers each request on a connection, and closes one that is idle for so long.
fn far_away(place: &Namespace, closes: Option<Duration>) -> SocketAddr {
    let listener = place.run(|| TcpListener::bind((place.ip(), 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                stream.set_read_timeout(closes).unwrap();
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(common::HELLO.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// nginx with its server 20 ms away: as it is, and with connections that it keeps.
#[test]
fn a_proxy_that_connects_for_each_call_costs_a_round_trip() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let net = NetBox::builder().delay(Duration::from_millis(10)).start().unwrap();
    let behind = far_away(net.server(), None);
    let found = |start: fn(SocketAddr) -> Option<proxies::Proxy>| {
        net.client().run(|| start(behind).map(|proxy| watched(proxy.address))).unwrap()
    };
    let Some(opens) = found(proxies::nginx_without_keepalive) else { return };
    let proved = |c: &&Value| c["id"] == "proxy-connects-per-call" && c["proof"] == "proved";
    let cause = opens["causes"].as_array().unwrap().iter().find(proved);
    let cause = cause.unwrap_or_else(|| panic!("{opens:#}"));
    let cost = cause["cost_ms"].as_f64().unwrap();
    assert!((18.0..60.0).contains(&cost), "a round trip is 20 ms: {cause:#}");
    let keeps = found(nginx).unwrap();
    assert!(!ids(&keeps).contains(&"proxy-connects-per-call"), "{keeps:#}");
    // Once all calls are spent, nothing is looked at any more.
    let may_look = keeps["calls"].as_u64() < Some(60);
    assert!(!may_look || keeps["ruled_out"].to_string().contains("that was open before"), "{keeps:#}");
}

/// A way that forgets connections which are idle for so many seconds, and what it then does to packets; the
/// server behind it closes them after that time. `None`: it cannot be made here.
fn forgetting(seconds: &str, then: &str, closes: Option<Duration>) -> Option<(NetBox, SocketAddr)> {
    if let Some(why) = NetBox::unavailable() {
        skip(need::NAMESPACES, why);
        return None;
    }
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        skip("nft", "nft is not installed");
        return None;
    }
    let net = NetBox::builder().start().unwrap();
    let place = net.server();
    let address = far_away(place, closes);
    for rule in [
        "add table inet way",
        "add chain inet way in {type filter hook input priority 0;}",
        &format!("add rule inet way in tcp dport {} ct state invalid {then}", address.port()),
    ] {
        let mut nft = place.command("nft");
        nft.arg(rule);
        place.output(nft).unwrap();
    }
    place.sysctl("net/netfilter/nf_conntrack_tcp_loose", "0").unwrap();
    place.sysctl("net/netfilter/nf_conntrack_tcp_timeout_established", seconds).unwrap();
    Some((net, address))
}

fn idle_long(net: &NetBox, address: SocketAddr) -> Value {
    net.client().run(|| explained_with(address, &["--budget", "60s"])).unwrap()
}

fn assert_forgets(found: &Value, how: &str) {
    assert_eq!(ids(found), ["idle-forgotten"], "{found:#}");
    let cause = &found["causes"][0];
    assert_eq!(cause["proof"], "proved", "{cause:#}");
    assert!(cause["title"].as_str().unwrap().ends_with(how), "{cause:#}");
    // A call each now and then keeps a connection of the same age.
    assert!(cause["evidence"].to_string().contains("carried all of theirs"), "{cause:#}");
}

#[test]
fn a_way_that_forgets_idle_connections_in_silence() {
    let Some((net, address)) = forgetting("2", "drop", None) else { return };
    assert_forgets(&idle_long(&net, address), "in silence");
}

#[test]
fn a_way_that_answers_what_it_forgot_by_a_reset() {
    let Some((net, address)) = forgetting("2", "reject with tcp reset", None) else { return };
    assert_forgets(&idle_long(&net, address), "by a reset");
}

/// A client sees that before it sends.
#[test]
fn a_server_that_closes_idle_connections_itself_is_healthy() {
    let Some((net, address)) = forgetting("300", "drop", Some(Duration::from_secs(2))) else { return };
    let found = idle_long(&net, address);
    assert_eq!((&found["verdict"], ids(&found).len()), (&"healthy".into(), 0), "{found:#}");
    assert!(found["limits"].to_string().contains("the server closes idle connections after"), "{found:#}");
}
