//! `load` with flows, against small applications that hold users to their own tokens.
#![allow(clippy::unwrap_used)]

mod apps;
mod common;
mod serving;

use apps::{answers, app, moved, plan};
use common::{answering, measured, number, run};

const SHOP: &str = r#"
users = 6
iterations = 60
checks = ["login.p99<20s", "errors<=0"]

[[flow]]
name = "shop"

[[flow.step]]
name = "form"
path = "/login"
take = { csrf = 'regex:name="csrf" value="([^"]+)"' }

[[flow.step]]
name = "login"
path = "/login"
headers = { Content-Type = "application/x-www-form-urlencoded" }
body = "user={{people.name|url}}&csrf={{csrf|url}}"
expect_status = 303
think = "1ms..5ms"

[[flow.step]]
name = "list"
path = "/items"
take = { item = "json:$.items[1].id" }

[[flow.step]]
name = "item"
path = "/items/{{item}}"
repeat = 2

[[flow.step]]
name = "logout"
method = "POST"
path = "/logout"
expect_status = 204

[[data]]
name = "people"
columns = ["name"]
rows = [["ann"], ["bob"], ["cy"], ["dora"]]
"#;

const TOKENS: &str = r#"
users = 6
iterations = 60

[[flow]]
name = "api"

[[flow.step]]
name = "token"
path = "/token"
json = { user = "u{{seq}}", n = 1 }
take = { token = "json:$.data.access[1]" }

[[flow.step]]
name = "refused"
path = "/me/somebody"
headers = { Authorization = "Bearer {{token}}" }
expect_status = 403
"#;

#[test]
fn users_log_in_by_form_token_and_session() {
    let Some(app) = app("python3", "login.py", &[]) else { return };
    let (folder, path) = plan(SHOP);
    let page = folder.path().join("page.html");
    let (document, said) = measured(&["--plan", &path, "--html", page.to_str().unwrap(), &app.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/flows/shop/done"), 60, "{document:#}");
    assert_eq!(number(&document, "/flows/shop/failed") + number(&document, "/flows/shop/stopped"), 0);
    assert_eq!(number(&document, "/flows/shop/duration_us/count"), 60);
    assert_eq!(number(&document, "/requests/answered"), 360);
    assert_eq!(number(&document, "/requests_by_name/item/requests/answered"), 120);
    assert_eq!(number(&document, "/status/303"), 60);
    // Times are written to the millisecond, and all of it may take 50.
    let near = |step: &str, n: f64| (answered_over_time(&document, step) / n - 1.0).abs() < 0.02;
    assert!(near("item", 120.0) && near("login", 60.0), "{document:#}");
    assert!(std::fs::read_to_string(page).unwrap().contains("By flow"));
    assert!(said.err.contains("flow            done"), "{}", said.err);
}

/// Responses in the series of a step.
fn answered_over_time(document: &serde_json::Value, step: &str) -> f64 {
    let list = |name: &str| -> Vec<Option<f64>> {
        let list = document["requests_by_name"][step]["series"][name].clone();
        serde_json::from_value(list).unwrap_or_else(|e| panic!("{step} {name}: {e}"))
    };
    let ends: Vec<f64> = list("t_s").into_iter().flatten().collect();
    let rates = list("rate_rps").into_iter().map(|rate| rate.unwrap_or(0.0));
    let begins = std::iter::once(0.0).chain(ends.iter().copied());
    ends.iter().zip(begins).zip(rates).map(|((end, begin), rate)| (end - begin) * rate).sum()
}

#[test]
fn the_log_names_flow_step_and_user_of_each_request() {
    let Some(app) = app("python3", "login.py", &[]) else { return };
    let (folder, path) = plan(SHOP);
    let log = folder.path().join("log.jsonl");
    let (_, said) = measured(&["--plan", &path, "--log-requests", log.to_str().unwrap(), &app.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut steps = std::collections::BTreeMap::<String, u32>::new();
    let mut users = std::collections::BTreeSet::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect(line);
        *steps.entry(entry["request"].as_str().unwrap().to_owned()).or_default() += 1;
        users.insert(entry["user"].as_u64().unwrap());
        assert_eq!(entry["flow"], "shop");
    }
    let steps: Vec<(&str, u32)> = steps.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(steps, [("form", 60), ("item", 120), ("list", 60), ("login", 60), ("logout", 60)]);
    assert!(users.len() > 1 && users.iter().all(|user| *user < 6), "{users:?}");
    let csv = folder.path().join("log.csv");
    let (_, said) =
        measured(&["--plan", &path, "--user-rate", "500", "--log-requests", csv.to_str().unwrap(), &app.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = std::fs::read_to_string(csv).unwrap();
    assert!(text.starts_with("seq,request,due_us,"), "{text}");
    let users: std::collections::BTreeSet<&str> =
        text.lines().skip(1).map(|line| line.rsplit_once(",shop,").unwrap().1).collect();
    assert_eq!(users.len(), 60, "each user of a rate is another one");
}

#[test]
fn a_value_that_is_missing_fails_the_iteration() {
    let Some(app) = app("python3", "login.py", &[]) else { return };
    let (_folder, path) = plan(&SHOP.replace("items[1]", "items[7]"));
    let (document, said) = measured(&["--plan", &path, &app.url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(number(&document, "/flows/shop/failed"), 60);
    assert_eq!(number(&document, "/flows/shop/skipped_requests"), 180);
    assert_eq!(number(&document, "/bad/take"), 60);
    assert!(said.err.contains("items[7].id"), "{}", said.err);
    assert!(said.err.contains("owner"), "the response is shown: {}", said.err);
}

#[test]
fn users_take_tokens_and_never_those_of_others() {
    let Some(app) = app("node", "jwt.js", &[]) else { return };
    let (_folder, path) = plan(TOKENS);
    let (document, said) = measured(&["--plan", &path, &app.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/flows/api/done"), 60, "{document:#}");
    assert_eq!(number(&document, "/status/403"), 60);
}

#[test]
fn a_run_that_ends_by_time_stops_iterations() {
    let at = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let steps = "[[flow.step]]\nname = \"a\"\nthink = \"1h\"\n[[flow.step]]\nname = \"b\"\npath = \"/b\"\n";
    let (_folder, path) = plan(&format!("users = 3\nduration = \"300ms\"\n[[flow]]\nname = \"f\"\n{steps}"));
    let (document, said) = measured(&["--plan", &path, &format!("http://{at}/a")]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/flows/f/stopped"), 3, "{document:#}");
    assert_eq!(number(&document, "/requests/answered"), 3);
}

#[test]
fn mistakes_are_found_before_the_run() {
    for (from, to, said, place) in [
        ("&csrf={{csrf|url}}", "&csrf={{csfr|url}}", "unknown slot {{csfr}}", ":18:"),
        ("&csrf={{csrf|url}}", "", "no later step uses {{csrf}}", ":12:10:"),
        ("json:$.items", "json:items", "a JSON path begins with $", ":25:17:"),
        ("json:$.items[1].id", "css:a:hover", "is no part of a selector", ":25:17:"),
        ("repeat = 2", "follow = 21", "20", ":30:10:"),
        ("repeat = 2", "group = 2", "group must be a string, not 2", ":30:9:"),
        ("repeat = 2", "group = \"a\"", "in group \"a\" there is 1 request", ":30:9:"),
        (
            "repeat = 2",
            "group = \"a\"\nrepeat = 101",
            "there are 101 requests; 2 to 100 are possible",
            ":30:9:",
        ),
        (
            "think = \"1ms..5ms\"",
            "think = 1\ngroup = \"a\"\n[[flow.step]]\nname = \"x\"\ngroup = \"a\"",
            "the pause after group \"a\" is that of its last step",
            ":20:9:",
        ),
        (
            "path = \"/login\"\nheaders",
            "group = \"a\"\nrepeat = 2\n[[flow.step]]\n[[flow.step]]\npath = \"/x\"\ngroup = \"a\"\nheaders",
            "the steps of group \"a\" do not follow one another",
            ":21:9:",
        ),
        (
            "repeat = 2",
            "group = \"a\"\ntake = { x = \"json:$.x\" }\n[[flow.step]]\ngroup = \"a\"\npath = \"/{{x}}\"",
            "unknown slot {{x}}",
            ":34:10:",
        ),
        ("users = 6", "users = 6\nrate = 5", "rate does not go with [[flow]]", ":3:1:"),
        ("users = 6", "", "users = 10", ""),
        ("users = 6", "users = 6\nconnections = 5", "connections is \"keep\" or \"new\"", ":3:15:"),
        ("users = 6", "user_rate = 5\nconnections = \"keep\"", "each user of user_rate is new", ":3:15:"),
        ("users = 6", "user_rate = 5\ncookies = \"keep\"", "no cookies to keep", ":3:11:"),
        ("users = 6", "user_rate = 5\nusers = \"1..5@2s\"", "users is the most at the same time", ":3:9:"),
        ("users = 6", "users = \"1..5\"", "stages such as 1..50@10s,50@60s", ":2:9:"),
        ("users = 6", "users = 5\narrival = \"poisson\"", "there is no user_rate", ":3:11:"),
        ("name = \"list\"", "name = \"form\"", "two steps are named \"form\"", ":23:8:"),
    ] {
        assert_refused(from, to, said, place);
    }
}

#[test]
fn expectations_that_cannot_be_are_found_before_the_run() {
    for (from, to, said, place) in [
        ("repeat = 2", "expect = {}", "known are status, header, json, regex, schema and max_ms", ":30:10:"),
        ("repeat = 2", "expect = { code = 2 }", "\"code\" is not expected of a response", ":30:12:"),
        ("repeat = 2", "expect = { json = \"a\" }", "a JSON path begins with $", ":30:19:"),
        ("repeat = 2", "expect = { regex = \"(\" }", "is no regular expression", ":30:20:"),
        ("repeat = 2", "expect = { schema = 3 }", "a file with a JSON Schema, such as", ":30:21:"),
        (
            "repeat = 2",
            "expect = { schema = \"no.json\" }",
            "no.json cannot be read: there is no such",
            ":30:21:",
        ),
        (
            "repeat = 2",
            "expect = { schema = { properties = { id = { typ = \"x\" } } } }",
            "expect: schema: #/properties/id/typ: is no keyword",
            ":30:21:",
        ),
        (
            "expect_status = 303",
            "expect_status = 303\nexpect = { status = 303 }",
            "keep one of the two",
            ":19:17:",
        ),
    ] {
        assert_refused(from, to, said, place);
    }
}

/// The shop's plan with something else in it is refused at a place.
fn assert_refused(from: &str, to: &str, said: &str, place: &str) {
    let (_folder, path) = plan(&SHOP.replacen(from, to, 1));
    let found = run(&["load", "--plan", &path, "http://127.0.0.1:9/"]);
    assert_eq!(found.code, Some(2), "{found:?}");
    assert!(found.err.contains(said) && found.err.contains(&format!("plan.toml{place}")), "{}", found.err);
}

#[test]
fn flags_that_do_not_go_with_flows_are_named() {
    let (_folder, path) = plan(SHOP);
    for flags in [&["-c", "3"][..], &["-r", "5"], &["-n", "5"], &["--find", "p99<1s"], &["--dry-run"]] {
        let found = run(&[&["load", "--plan", &path, "http://127.0.0.1:9/"], flags].concat());
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.err.contains(&format!("{} does not go with the flows", flags[0])), "{}", found.err);
    }
}

const TWO_STEPS: &str = r#"
iterations = 12
[[flow]]
name = "f"
[[flow.step]]
name = "a"
[[flow.step]]
name = "b"
path = "/b"
"#;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn users_of_a_rate_are_new() {
    let Some(app) = app("python3", "login.py", &[]) else { return };
    let (_folder, path) = plan(SHOP);
    for io in ["epoll", "auto"] {
        let (document, said) = measured(&["--plan", &path, "--user-rate", "200", "--io", io, &app.url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/shop/done"), 60, "{document:#}");
        assert_eq!(number(&document, "/requests/answered"), 360);
        assert_eq!(number(&document, "/connections/opened"), 60, "each has its own");
        assert_eq!(number(&document, "/flows/shop/unstarted"), 0);
    }
}

#[test]
fn connections_are_kept_or_new() {
    let at = answering(OK);
    let url = format!("http://{at}/a");
    for (key, opened) in [("", 3), ("connections = \"keep\"\n", 3), ("connections = \"new\"\n", 12)] {
        let (_folder, path) = plan(&format!("users = 3\n{key}{TWO_STEPS}"));
        let (document, said) = measured(&["--plan", &path, &url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/f/done"), 12, "{document:#}");
        assert_eq!(number(&document, "/connections/opened"), opened, "{key}");
    }
}

#[test]
fn a_user_that_is_held_up_delays_nobody() {
    let connections = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let at = common::server(move |mut stream| {
        let nth = connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut buffer = [0; 4096];
        while let Ok(1..) = std::io::Read::read(&mut stream, &mut buffer) {
            // One in four never gets a response.
            if nth % 4 != 1 && std::io::Write::write_all(&mut stream, OK.as_bytes()).is_err() {
                return;
            }
        }
    });
    let (_folder, path) = plan(TWO_STEPS);
    let url = format!("http://{at}/a");
    let flags = ["--user-rate", "50", "--timeout", "2s", "-t", "1"];
    let (document, said) = measured(&[&["--plan", &path, &url], &flags[..]].concat());
    assert_eq!(number(&document, "/flows/f/done"), 9, "{document:#}");
    assert_eq!(number(&document, "/flows/f/failed"), 3);
    assert_eq!(number(&document, "/failures/timeout"), 3);
    let flow = &document["flows"]["f"];
    let us = |pointer: &str| flow.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap();
    let longest = us("/done_us/max");
    assert!(longest < 2e6, "no other user waited for one that hung: {longest} us");
    // Those that failed lie beyond every limit.
    let at_least = flow["duration_us"]["at_least"].as_array().unwrap();
    assert!(at_least.contains(&"p99".into()) && !at_least.contains(&"p50".into()), "{flow}");
    assert!(us("/duration_us/p99") >= 2e6 && us("/duration_us/p50") < 2e6, "{flow}");
    assert!(said.err.lines().any(|l| l.starts_with("f ") && l.contains(">= 2.0")), "{}", said.err);
}

#[test]
fn iterations_have_a_while_to_end_in() {
    let at = answering(OK);
    let steps = TWO_STEPS.replace("iterations = 12", "duration = \"1s\"");
    // A machine that is late makes pauses longer, which changes nothing: the first one ends after the run in
    // any case, and the second one after each time to end in.
    for (key, think, done, stopped) in
        [("", "1500ms", 3, 0), ("graceful = 0\n", "1m", 0, 3), ("graceful = \"50ms\"\n", "1m", 0, 3)]
    {
        let steps = steps.replace("name = \"a\"", &format!("name = \"a\"\nthink = \"{think}\""));
        let (_folder, path) = plan(&format!("users = 3\n{key}{steps}"));
        let (document, said) = measured(&["--plan", &path, &format!("http://{at}/a")]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/f/done"), done, "{key}{document:#}");
        assert_eq!(number(&document, "/flows/f/stopped"), stopped, "{key}");
    }
}

#[test]
fn flags_say_how_many_users_there_are() {
    let at = answering(OK);
    let url = format!("http://{at}/a");
    let (_folder, path) = plan(TWO_STEPS);
    for flags in [&["--users", "2"][..], &["--users", "0..4@200ms,4"]] {
        let (document, said) = measured(&[&["--plan", &path, &url], flags].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/f/done"), 12, "{document:#}");
    }
    for (flags, said) in [
        (&[][..], "--users 10"),
        (&["--users", "0"], "0 users sends nothing"),
        (&["--users", "1.5..3@1s"], "numbers of users are whole"),
        (&["--users", "1..3"], "1..50@10s"),
        (&["--users", "1..3@1s", "--user-rate", "3"], "users is the most at the same time"),
        (&["--user-rate", "0"], "0 requests/s sends nothing"),
        (&["-c", "3", "--users", "3"], "use --users N"),
        (&["-r", "3", "--users", "3"], "use --user-rate R"),
    ] {
        let found = run(&[&["load", "--plan", &path, &url], flags].concat());
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.err.contains(said), "{}", found.err);
    }
    let found = run(&["load", "--users", "3", &url]);
    assert_eq!(found.code, Some(2), "{found:?}");
    assert!(found.err.contains("--users is about the users of flows"), "{}", found.err);
}

#[test]
fn redirects_are_followed_with_the_cookies_of_each_response() {
    let Some(app) = app("python3", "login.py", &[]) else { return };
    // The response to the login is then the list behind it.
    let (begin, list) = SHOP.split_once("[[flow.step]]\nname = \"list\"\npath = \"/items\"\n").unwrap();
    let text = format!("{begin}{list}").replace("expect_status = 303\nthink = \"1ms..5ms\"\n", "follow = 1");
    let text = text.replace("regex:name=\"csrf\" value=\"([^\"]+)\"", "css:form input[name=csrf]@value");
    let (_folder, path) = plan(&text);
    for flags in [&[][..], &["--user-rate", "200"]] {
        let (document, said) = measured(&[&["--plan", &path, &app.url], flags].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/shop/done"), 60, "{document:#}");
        assert_eq!(number(&document, "/flows/shop/redirects"), 60);
        assert_eq!(number(&document, "/requests/answered"), 360);
        assert_eq!(number(&document, "/requests_by_name/login/requests/answered"), 120);
    }
}

fn app_of(answer: impl Fn(&str, &str) -> String + Copy + Send + 'static) -> String {
    format!("http://{}/", answers(answer))
}

#[test]
fn redirects_keep_the_method_or_not_and_end() {
    let url = app_of(|head, body| {
        let line: Vec<&str> = head.split(' ').collect();
        match (line[0], line[1], body) {
            ("POST", "/keep", "x") => moved(307, "kept?a"),
            ("POST", "/kept?a", "x") | ("GET", "/got", "") => OK.to_owned(),
            ("POST", "/get", "x") => moved(302, "/got#b"),
            (_, "/loop", _) => moved(301, "/loop"),
            (_, "/away", _) => moved(302, "http://elsewhere.example/"),
            other => format!("HTTP/1.1 400 {other:?}\r\nContent-Length: 0\r\n\r\n"),
        }
    });
    let flow = |path: &str| {
        let body = if path.contains("et") || path.contains("eep") { "body = \"x\"\n" } else { "" };
        format!("users = 1\niterations = 2\n[[flow]]\nname = \"f\"\n[[flow.step]]\npath = \"{path}\"\n{body}")
    };
    for (path, redirects, cause) in [
        ("/keep", 2, None),
        ("/get", 2, None),
        ("/loop", 6, Some("more than 3 redirects")),
        ("/away", 0, Some("redirect to another host: http://elsewhere.example/")),
    ] {
        let (_folder, plan) = plan(&flow(path));
        let (document, said) = measured(&["--plan", &plan, "--follow", "3", &url]);
        assert_eq!(number(&document, "/flows/f/redirects"), redirects, "{document:#}");
        let (done, failed) = if cause.is_some() { (0, 2) } else { (2, 0) };
        assert_eq!(number(&document, "/flows/f/done"), done, "{path} {document:#}");
        assert_eq!(number(&document, "/flows/f/failed"), failed);
        assert!(cause.is_none_or(|cause| said.err.contains(cause)), "{}", said.err);
    }
    let (_folder, plan) = plan(&flow("/loop"));
    let found = run(&["load", "--plan", &plan, "--follow", "21", &url]);
    assert_eq!(found.code, Some(2), "{found:?}");
}

#[test]
fn numbers_in_json_stay_numbers() {
    let url = app_of(|_, body| match body {
        "" => "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{\"id\":-4.50,\"name\":\"no\"}".to_owned(),
        "{\"id\":-4.50,\"all\":[0,\"x-4.50\"]}" => OK.to_owned(),
        other => format!("HTTP/1.1 400 {}\r\nContent-Length: 0\r\n\r\n", other.replace(['\r', '\n'], "")),
    });
    let text = "users = 1\niterations = 1\n[[flow]]\nname = \"f\"\n[[flow.step]]\nname = \"a\"\n\
                take = { id = \"json:$.id\" }\n[[flow.step]]\nname = \"b\"\n\
                json = { id = \"{{id|number}}\", all = [\"{{now|number}}\", \"x{{id|number}}\"] }\n";
    let (_folder, good) = plan(&text.replace("{{now|number}}", "{{rand:0-0|number}}"));
    let (document, said) = measured(&["--plan", &good, &url]);
    assert_eq!(number(&document, "/flows/f/done"), 1, "{said:?}");
    let (_folder, bad) = plan(&text.replace("$.id", "$.name").replace("{{now|number}}", "1"));
    let (document, said) = measured(&["--plan", &bad, &url]);
    assert_eq!(number(&document, "/flows/f/failed"), 1, "{document:#}");
    assert!(said.err.contains("it is no number of JSON"), "{}", said.err);
}

#[test]
fn responses_are_held_against_what_a_step_expects() {
    let url = app_of(|head, _| {
        let body = match head.split(' ').nth(1) {
            Some("/good") => "{\"ok\":true,\"n\":2.0}",
            _ => "{\"ok\":false}",
        };
        format!("HTTP/1.1 200 OK\r\nX-Kind: json; v=1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    });
    let text = |path: &str, expect: &str| {
        format!(
            "users = 1\niterations = 10\n[[flow]]\nname = \"f\"\n[[flow.step]]\nname = \"a\"\n\
             path = \"/{path}\"\nexpect = {{ {expect} }}\n[[flow.step]]\nname = \"b\"\npath = \"/b\"\n"
        )
    };
    let good = "status = \"2xx\", header = { X-Kind = \"regex:^json\\\\b\" }, json = { \"$.ok\" = true, \"$.n\" = 2 }, \
                regex = \"ok\", max_ms = 60000";
    let late = "header = \"X-Kind\", json = \"$.ok\", max_ms = 1";
    let slow = app_of(|_, _| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        "HTTP/1.1 200 OK\r\nX-Kind: a\r\nContent-Length: 11\r\n\r\n{\"ok\":true}".to_owned()
    });
    for (url, path, expect, done, met, said) in [
        (&url, "good", good, 10, 10, ""),
        (&url, "bad", good, 0, 0, "json:$.ok = true: it is \"false\""),
        (&url, "good", "header = { X-Kind = \"json\" }", 0, 0, "header:X-Kind = json: it is \"json; v=1\""),
        (&url, "good", "status = 404", 0, 0, "bad status"),
        (
            &url,
            "good",
            "schema = { required = [\"ok\"], properties = { n = { type = \"integer\" } } }",
            10,
            10,
            "",
        ),
        (
            &url,
            "bad",
            "schema = { properties = { ok = { const = true } } }",
            0,
            0,
            "schema: /ok is false, and must be true",
        ),
        // A response that is late is bad, and its user continues.
        (&slow, "good", late, 10, 0, "max_ms = 1: it took"),
    ] {
        let (_folder, plan) = plan(&text(path, expect));
        let checks =
            ["--check", "expect.pass>99%", "--check", "a.expect.pass>=100%", "--check", "b.errors<1%"];
        let (document, run) = measured(&[&["--plan", &plan, url], &checks[..]].concat());
        assert_eq!(number(&document, "/flows/f/done"), done, "{document:#}");
        assert_eq!(number(&document, "/requests/expecting"), 10);
        assert_eq!(number(&document, "/requests/met"), met, "{path}");
        assert_eq!(number(&document, "/requests_by_name/a/requests/met"), met);
        let passed: Vec<bool> = (0..3).map(|i| document["checks"][i]["pass"].as_bool().unwrap()).collect();
        // A step that was never reached was not measured.
        assert_eq!(passed, [met == 10, met == 10, done == 10], "{document:#}");
        assert_eq!(run.code, Some(i32::from(met < 10)), "{run:?}");
        assert!(run.err.contains(said), "{}", run.err);
    }
}

#[test]
fn bodies_are_held_against_the_schema_in_a_file_beside_the_plan() {
    let schema = "{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"$ref\": \"#/definitions/order\",\n\
        \"definitions\": {\"order\": {\"type\": \"object\", \"properties\": {\"lines\": {\"items\": {\"$ref\": \"#/definitions/line\"}}}},\n\
        \"line\": {\"type\": \"object\", \"required\": [\"sku\"], \"additionalProperties\": {\"pattern\": \"^[a-z]+$\"}}}}";
    let body = |path: &str| match path {
        "/good" => "{\"lines\":[{\"sku\":\"a\"},{\"sku\":\"b\",\"n\":1}]}",
        "/bad" => "{\"lines\":[{\"sku\":\"a\"},{\"n\":\"1\"}]}",
        "/page" => "<html>",
        _ => "",
    };
    let url = app_of(move |head, _| {
        let body = body(head.split(' ').nth(1).unwrap());
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    });
    for (path, done, said) in [
        ("good", 4, ""),
        (
            "bad",
            0,
            "schema order.json: /lines/1 has no member \"sku\", which is required; /lines/1/n is \"1\", and must match",
        ),
        ("page", 0, "schema order.json: the body is not JSON: expected value at line 1 column 1"),
        ("none", 0, "schema order.json: the body is empty, and must be JSON"),
    ] {
        let step = format!("[[flow.step]]\npath = \"/{path}\"\nexpect = {{ schema = \"order.json\" }}\n");
        let (folder, plan) = plan(&format!("users = 2\niterations = 4\n[[flow]]\nname = \"f\"\n{step}"));
        std::fs::write(folder.path().join("order.json"), schema).unwrap();
        let (document, run) = measured(&["--plan", &plan, &url]);
        assert_eq!(number(&document, "/flows/f/done"), done, "{document:#}");
        assert!(run.err.contains(said), "{}", run.err);
    }
}

#[test]
fn a_step_whose_errors_are_too_many_ends_the_run() {
    let url = app_of(|head, _| match head.split(' ').nth(1) {
        Some("/bad") => "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => OK.to_owned(),
    });
    let text = "users = 2\nduration = \"60s\"\n[[flow]]\nname = \"f\"\n[[flow.step]]\nname = \"good\"\nrepeat = 9\n\
                think = \"5ms\"\n[[flow.step]]\nname = \"bad\"\npath = \"/bad\"\n";
    let (_folder, plan) = plan(text);
    let begun = std::time::Instant::now();
    let (document, said) = measured(&["--plan", &plan, "--abort-on", "bad.errors>50%@1s", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let why = document["aborted"].as_str().unwrap();
    assert!(why.starts_with("bad.errors>50%@1s: 100 %"), "{why}");
    assert!(begun.elapsed().as_secs() < 50, "it ended early");
    let found = run(&["load", "--plan", &plan, "--abort-on", "none.errors>50%@1s", &url]);
    assert_eq!(found.code, Some(2), "{found:?}");
    assert!(found.err.contains("no request has that name"), "{}", found.err);
}

/// Each way to send flows with each way to report them: what is counted agrees.
#[test]
fn flows_go_with_each_way_to_send_and_to_report() {
    let served = serving::serve(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, log, csv) = (file("page.html"), file("log.csv"), file("out.csv"));
    let outputs = [["--html", &page], ["--log-requests", &log], ["--csv", &csv]];
    let text = r#"
iterations = 20
[[flow]]
name = "f"
[[flow.step]]
name = "a"
path = "/"
expect = { status = 200 }
[[flow.step]]
name = "b"
path = "/status/404"
expect_status = 404
repeat = 2
"#;
    let mut turn = 0;
    let stages = "users = \"1..4@50ms,4\"";
    let new = "users = 4\nconnections = \"new\"";
    let group = "group = \"two\"\n";
    let plans = ["users = 4", stages, new, "user_rate = 300"]
        .into_iter()
        .flat_map(|users| [(users, ""), (users, group)]);
    for (users, group) in plans {
        let (_folder, path) = plan(&format!("{users}\n{text}{group}"));
        for io in ["epoll", "auto"] {
            for http in ["1.1", "2"] {
                let output = outputs[turn % 3];
                turn += 1;
                let url = format!("http://{}/", served.address);
                let flags = ["--plan", &path, "--io", io, "--http", http, output[0], output[1], &url];
                let (document, said) = measured(&flags);
                assert_eq!(said.code, Some(0), "{users} {io} {http}: {said:?}");
                let count = |pointer: &str| number(&document, pointer);
                assert_eq!(
                    (count("/flows/f/done"), count("/requests/answered")),
                    (20, 60),
                    "{users} {io} {http}"
                );
                assert_eq!((count("/requests/met"), count("/status/404")), (20, 40));
                assert_eq!(count("/requests_by_name/b/requests/answered"), 40);
                let is_new = users.contains("new") || users.contains("user_rate");
                // The second request of a group needs a connection of its own, where there are no streams.
                let each = if group.is_empty() || http == "2" { 1 } else { 2 };
                let opened = count("/connections/opened");
                assert!(!is_new || opened == 20 * each, "{users} {group} {io} {http}: {document:#}");
                let written = std::fs::read_to_string(output[1]).unwrap();
                match output[0] {
                    "--log-requests" => assert_eq!(written.lines().count(), 61, "{written}"),
                    "--html" => assert!(written.contains("p50 to p99.9") && written.contains("By flow")),
                    _ => assert!(written.starts_with("t_s,rate_rps,"), "{written}"),
                }
            }
        }
    }
}

/// Users, rows and rates are dealt out to the agents exactly.
#[test]
fn agents_send_flows_together() {
    let Some(nats) = linerate_skips::program("nats-server") else { return };
    let Some(app) = app("python3", "login.py", &[]) else { return };
    let (_folder, path) = plan(SHOP);
    for flags in [&[][..], &["--user-rate", "100"]] {
        let all = [&["load", "-q", "--json", "-", "--agents-local", "3", "--plan", &path, &app.url], flags]
            .concat();
        let output = common::linerate_with(&nats, &all).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{err}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(number(&document, "/flows/shop/done"), 60, "{err}");
        assert_eq!(number(&document, "/requests/answered"), 360);
        assert_eq!(number(&document, "/connections/opened"), if flags.is_empty() { 6 } else { 60 });
        let over_time = answered_over_time(&document, "item");
        assert!((over_time.round() - 120.0).abs() <= 1.0, "{over_time}: {document:#}");
        assert_eq!(document["machines"]["complete"], true, "{document:#}");
    }
    // A schema travels with the plan.
    let take = "take = { item = \"json:$.items[1].id\" }";
    let (folder, path) =
        plan(&SHOP.replace(take, &format!("{take}\nexpect = {{ schema = \"items.json\" }}")));
    let schema = "{\"properties\": {\"owner\": {\"enum\": [\"ann\", \"bob\", \"dora\"]}}}";
    std::fs::write(folder.path().join("items.json"), schema).unwrap();
    let flags = ["load", "-q", "--json", "-", "--agents-local", "3", "--plan", &path, &app.url];
    let output = common::linerate_with(&nats, &flags).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((number(&document, "/requests/expecting"), number(&document, "/requests/met")), (60, 45));
    let cause = "schema items.json: /owner is \"cy\", and must be one of \"ann\", \"bob\", \"dora\"";
    assert!(
        document["flows"]["shop"]["causes"].to_string().contains(&cause.replace('"', "\\\"")),
        "{document:#}"
    );
}

#[test]
fn users_are_found_and_flows_are_compared() {
    let at = answering(OK);
    let url = format!("http://{at}/a");
    let steps = TWO_STEPS
        .replace("iterations = 12\n", "users = 2\n")
        .replace("name = \"a\"", "name = \"a\"\nthink = \"1ms\"");
    let (_folder, path) = plan(&steps);
    let flags = ["--rounds", "3", "-d", "200ms", "--json", "-", "-q"];
    let other = format!("http://{}/a", answering(OK));
    let compared = run(&[&["compare", "--plan", &path, &url, &other], &flags[..]].concat());
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert!(compared.out.contains("linerate.comparison/1"), "{compared:?}");
    let refused = run(&["load", "--plan", &path, "--find", "p99<1s", &url]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("add --find-by connections"), "{}", refused.err);
}
