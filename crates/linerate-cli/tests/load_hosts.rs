//! `load` with flows whose steps go to several hosts.
#![allow(clippy::unwrap_used)]

mod apps;
mod common;
mod serving;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use apps::{answers, moved, plan};
use common::{measured, number, run};
use serving::serve;

/// The port of a server that answers each request by its head, and the heads that it saw.
fn recorded(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = Arc::clone(&seen);
    let at = answers(move |head, _| {
        heads.lock().unwrap().push(head.to_owned());
        answer(head)
    });
    (at.port(), seen)
}

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A shop sends its users to another host to log in, which sends them back with a code. Neither gets the other's cookies
/// or credentials.
#[test]
fn users_log_in_at_another_host_and_come_back() {
    let auth_port: Arc<Mutex<u16>> = Arc::default();
    let to_auth = Arc::clone(&auth_port);
    let (shop, at_shop) = recorded(move |head| match head.split(' ').nth(1).unwrap_or_default() {
        "/login" => {
            let to = format!("http://127.0.0.1:{}/authorize?state=s", to_auth.lock().unwrap());
            moved(302, &format!("{to}\r\nSet-Cookie: shop=1; Path=/"))
        }
        "/callback?code=7" => ok("", "{\"code\":7}"),
        "/me" if head.contains("X-Token: t7\r\n") => ok("", "ann"),
        other => format!("HTTP/1.1 400 {other}\r\nContent-Length: 0\r\n\r\n"),
    });
    let (auth, at_auth) = recorded(move |head| match head.split(' ').nth(1).unwrap_or_default() {
        "/authorize?state=s" => {
            moved(302, &format!("http://localhost:{shop}/callback?code=7\r\nSet-Cookie: auth=1; Path=/"))
        }
        "/token?code=7" => ok("", "{\"access_token\":\"t7\"}"),
        other => format!("HTTP/1.1 400 {other}\r\nContent-Length: 0\r\n\r\n"),
    });
    *auth_port.lock().unwrap() = auth;
    let (_folder, path) = plan(&format!(
        "url = \"http://ada:secret@localhost:{shop}/\"\nusers = 3\niterations = 30\n[[flow]]\nname = \"login\"\n\
         [[flow.step]]\nname = \"in\"\npath = \"/login\"\nfollow = 3\ntake = {{ code = \"json:$.code\" }}\n\
         [[flow.step]]\nname = \"token\"\nmethod = \"POST\"\npath = \"http://127.0.0.1:{auth}/token?code={{{{code}}}}\"\n\
         take = {{ token = \"json:$.access_token\" }}\n\
         [[flow.step]]\nname = \"me\"\npath = \"/me\"\nheaders = {{ X-Token = \"{{{{token}}}}\" }}\n"
    ));
    let (document, said) = measured(&["--plan", &path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/flows/login/done"), 30, "{document:#}");
    assert_eq!(number(&document, "/flows/login/redirects"), 60);
    assert_eq!(number(&document, "/requests/answered"), 150);
    assert_eq!(document["plan"]["hosts"], serde_json::json!([format!("http://127.0.0.1:{auth}")]));
    let (at_shop, at_auth) = (at_shop.lock().unwrap(), at_auth.lock().unwrap());
    assert_eq!((at_shop.len(), at_auth.len()), (90, 60));
    for (heads, host, own, other) in [
        (&at_shop, format!("Host: localhost:{shop}\r\n"), "shop=1", "auth=1"),
        (&at_auth, format!("Host: 127.0.0.1:{auth}\r\n"), "auth=1", "shop=1"),
    ] {
        assert!(heads.iter().all(|head| head.contains(&host) && !head.contains(other)), "{heads:?}");
        assert!(heads.iter().any(|head| head.contains(&format!("Cookie: {own}\r\n"))), "{heads:?}");
    }
    assert!(at_auth.iter().all(|head| !head.contains("Authorization")), "{at_auth:?}");
}

/// Requests that a server of ours has answered; the one that asks is not counted yet.
fn answered_by(address: &str) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /stats HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let body: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    body["by_status"]["200"].as_u64().unwrap_or(0)
}

/// Over HTTP/1.1, HTTP/2, TLS, in a closed and in an open loop: each server counts what the report does.
#[test]
fn each_host_gets_its_steps_whatever_it_speaks() {
    let (plain, first) = (serve(&[]), serve(&["--tls-self-signed"]));
    for (users, flags, first_step) in [
        ("users = 4\niterations = 40", &[][..], "plain"),
        ("user_rate = 200\nduration = \"500ms\"", &[], "secure"),
        ("users = 4\niterations = 40\nconnections = \"new\"", &["--http", "2"], "secure"),
    ] {
        let before = answered_by(&plain.address);
        let other = |path: &str| format!("path = \"http://{}{path}\"", plain.address);
        let steps = [("secure", "path = \"/bytes/10\"".to_owned()), ("plain", other("/bytes/30"))];
        let mut text = format!("{users}\n[[flow]]\nname = \"f\"\n");
        let order = if first_step == "plain" { [1, 0, 1] } else { [0, 1, 0] };
        for (nth, at) in order.iter().enumerate() {
            let (name, path) = &steps[*at];
            text += &format!("[[flow.step]]\nname = \"{name}{nth}\"\n{path}\n");
        }
        for (name, path) in [("inner", "path = \"/bytes/5\"".to_owned()), ("outer", other("/bytes/6"))] {
            text += &format!("[[flow.step]]\nname = \"{name}\"\ngroup = \"g\"\nrepeat = 5\n{path}\n");
        }
        let (_folder, path) = plan(&text);
        let url = format!("https://{}/", first.address);
        let mut all = vec!["--plan", &path, "--insecure"];
        all.extend_from_slice(flags);
        all.push(&url);
        let (document, said) = measured(&all);
        assert_eq!(said.code, Some(0), "{said:?}");
        let done = number(&document, "/flows/f/done");
        assert!(done >= 40 && number(&document, "/flows/f/failed") == 0, "{document:#}");
        assert_eq!(number(&document, "/requests/sent"), number(&document, "/requests/answered"));
        let plain_steps = if first_step == "plain" { 7 } else { 6 };
        // The question before is one of them.
        assert_eq!(answered_by(&plain.address) - before, done * plain_steps + 1, "{document:#}");
        assert_eq!(document["tls"]["verified"], false);
    }
}

#[test]
fn a_host_that_cannot_be_reached_ends_the_run() {
    let server = serve(&[]);
    let nobody = common::nobody();
    let (_folder, path) = plan(&format!(
        "url = \"http://{}/\"\nusers = 2\nduration = \"20s\"\n[[flow]]\n[[flow.step]]\npath = \"/\"\n\
         [[flow.step]]\npath = \"http://{nobody}/x\"\n",
        server.address
    ));
    let said = run(&["load", "--plan", &path]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains(&format!("{nobody} could not be reached: connection refused")), "{said:?}");
}

#[test]
fn what_several_hosts_exclude_is_said_before_anything_is_sent() {
    let flow = |path: &str| format!("users = 1\n[[flow]]\n[[flow.step]]\npath = \"{path}\"\n");
    let two = flow("http://127.0.0.1:2/x");
    for (text, flags, why) in [
        (&two, &["--io", "uring"][..], "do not go with --io uring"),
        (&two, &["--proxy", "127.0.0.1:3"], "through the proxy http://127.0.0.1:3"),
        (&two, &["--unix-socket", "/tmp/none"], "do not go with --unix-socket"),
        (
            &two,
            &["--resolve", "other:80:127.0.0.1"],
            "--resolve names other:80, which is no host of the plan",
        ),
        (&flow("http://{{seq}}/x"), &[], "plan.toml:4:8: path: the host of a URL has no slots"),
        (&flow("http://a:b@h/x"), &[], "write user = \"NAME:PASSWORD\" beside the URL"),
        (&flow("https:///x"), &[], "the URL has no host"),
        (&flow("http://h:99999/"), &[], "port"),
        (&"[[request]]\npath = \"http://h/\"\n".to_owned(), &[], "or into a step of a flow"),
    ] {
        let (_folder, path) = plan(text);
        let mut all = vec!["load", "--plan", &path];
        all.extend_from_slice(flags);
        all.push("http://127.0.0.1:1/");
        let said = run(&all);
        assert_eq!(said.code, Some(2), "{flags:?} {said:?}");
        assert!(said.err.contains(why), "{why}: {said:?}");
    }
}

/// A script keeps what it knows from call to call, although a thread has a runtime of it for each host.
#[test]
fn a_script_signs_what_each_host_gets() {
    let (first, at_first) = recorded(|_| ok("", "1"));
    let (second, at_second) = recorded(|_| ok("", "2"));
    let step = |name: &str, path: &str| {
        format!(
            "[[flow.step]]\nname = \"{name}\"\npath = \"{path}\"\nheaders = {{ X-Count = \"{{{{sign.count}}}}\" }}\n\
             hooks = {{ sign = \"sign\" }}\n"
        )
    };
    let (folder, path) = plan(&format!(
        "url = \"http://127.0.0.1:{first}/\"\nusers = 1\niterations = 20\nthreads = 1\nscript = \"count.js\"\n\
         [[flow]]\nname = \"f\"\n{}{}",
        step("here", "/a"),
        step("there", &format!("http://127.0.0.1:{second}/b")),
    ));
    let script = "let count = 0;\nexport function sign({ headers }) {\n  if (!headers.host) throw 'no host';\n  return { count: count++ };\n}\n";
    std::fs::write(folder.path().join("count.js"), script).unwrap();
    let (document, said) = measured(&["--plan", &path]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/flows/f/done"), 20, "{document:#}");
    for heads in [at_first, at_second] {
        let heads = heads.lock().unwrap();
        let counts: Vec<u32> = heads
            .iter()
            .map(|head| {
                head.lines().find_map(|line| line.strip_prefix("X-Count: ")).unwrap().parse().unwrap()
            })
            .collect();
        assert_eq!(counts, (0..20).collect::<Vec<_>>());
    }
}
