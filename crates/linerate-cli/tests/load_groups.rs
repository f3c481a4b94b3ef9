//! `load` with groups of steps, against a page whose assets are answered only to those who ask for them together.
#![allow(clippy::unwrap_used)]

mod apps;
mod common;
mod issued;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apps::{App, app, plan};
use common::{measured, number, responding};
use issued::Issued;

/// Eight assets, one of them behind a redirect.
fn page(keys: &str, report: &str) -> String {
    format!(
        r#"
iterations = 30
{keys}
[[flow]]
name = "page"

[[flow.step]]
name = "page"
path = "/page"
take = {{ token = "json:$.token" }}

[[flow.step]]
name = "style"
group = "assets"
path = "/asset?token={{{{token}}}}"
take = {{ v = "json:$.v" }}

[[flow.step]]
name = "script"
group = "assets"
path = "/asset?token={{{{token}}}}"
repeat = 6

[[flow.step]]
name = "moved"
group = "assets"
path = "/moved?token={{{{token}}}}"
follow = 1
think = "1ms..2ms"

[[flow.step]]
name = "report"
path = "/report?token={{{{token}}}}&v={{{{v}}}}"
expect = {{ {report} }}
"#
    )
}

/// Runs the plan, and holds what each iteration sent against it.
fn check(app: &App, text: &str, flags: &[&str]) -> serde_json::Value {
    let (_folder, path) = plan(text);
    let (document, said) = measured(&[&["--plan", &path, &app.url], flags].concat());
    assert_eq!(said.code, Some(0), "{flags:?}: {said:?}");
    let count = |pointer: &str| number(&document, pointer);
    assert_eq!((count("/flows/page/done"), count("/flows/page/failed")), (30, 0), "{document:#}");
    assert_eq!((count("/flows/page/redirects"), count("/requests/answered")), (30, 330));
    assert_eq!((count("/requests_by_name/script/requests/answered"), count("/requests/met")), (180, 30));
    assert_eq!(count("/requests_by_name/moved/requests/answered"), 60);
    document
}

#[test]
fn a_group_leaves_on_six_connections_of_its_user() {
    let Some(app) = app("node", "page.js", &["6", "h1"]) else { return };
    let many = "json = { \"$.most\" = 6, \"$.v\" = \"regex:^vt\" }";
    let own = "json = { \"$.most\" = 6, \"$.connections\" = 6 }";
    for (keys, report) in [
        ("users = 3", many),
        ("users = \"1..3@100ms,3\"", many),
        ("users = 3\nconnections = \"new\"", own),
        ("user_rate = 200\nusers = 5", own),
    ] {
        for io in ["epoll", "auto"] {
            let document = check(&app, &page(keys, report), &["--io", io]);
            let opened = number(&document, "/connections/opened");
            assert!(if report == own { opened == 180 } else { opened <= 18 }, "{keys}: {opened}");
        }
    }
}

#[test]
fn a_group_leaves_as_streams_of_one_connection() {
    let Some(app) = app("node", "page.js", &["8", "h2"]) else { return };
    let many = "json = { \"$.most\" = 8 }";
    let own = "json = { \"$.most\" = 8, \"$.connections\" = 1 }";
    for (keys, report, opened) in
        [("users = 3", many, 3), ("users = 3\nconnections = \"new\"", own, 30), ("user_rate = 200", own, 30)]
    {
        let document = check(&app, &page(keys, report), &["--http", "2"]);
        assert_eq!(number(&document, "/connections/opened"), opened, "{keys}");
    }
}

/// Whether there are streams is known when the first connection is established.
#[test]
fn a_group_leaves_as_the_peers_agree() {
    let issued = Issued::to("localhost");
    let (certificate, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    for (version, together, streams) in [("auto", "8", true), ("1.1", "6", false)] {
        let Some(app) = app("node", "page.js", &[together, &certificate, &key]) else { return };
        let url = app.url.replace("http://127.0.0.1", "https://localhost");
        let app = app.at(url);
        for (keys, each) in [("users = 3", None), ("user_rate = 100", Some(if streams { 1 } else { 6 }))] {
            let own = each.map_or(String::new(), |each| format!(", \"$.connections\" = {each}"));
            let report = format!("json = {{ \"$.most\" = {together}{own} }}");
            let flags = ["--http", version, "--cacert", &certificate, "-4"];
            check(&app, &page(keys, &report), &flags);
        }
    }
}

/// The requests of a group whose member fails are answered all the same, and nothing follows them.
#[test]
fn a_failure_ends_the_iteration_when_the_group_is_answered() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let at = responding(move |stream| {
        let nth = counted.fetch_add(1, Ordering::Relaxed);
        let status = if nth % 5 == 2 { "500 No" } else { "200 OK" };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        std::io::Write::write_all(stream, response.as_bytes())
    });
    let text = "users = 1\niterations = 40\n[[flow]]\nname = \"f\"\n[[flow.step]]\nname = \"a\"\ngroup = \"g\"\n\
                repeat = 9\n[[flow.step]]\nname = \"b\"\ngroup = \"g\"\n[[flow.step]]\nname = \"c\"\npath = \"/c\"\n";
    for keys in ["http = \"1.1\"\n", "user_rate = 300\n"] {
        asked.store(0, Ordering::Relaxed);
        let (_folder, path) = plan(&format!("{keys}{text}"));
        let (document, said) = measured(&["--plan", &path, &format!("http://{at}/")]);
        let count = |pointer: &str| number(&document, pointer);
        assert_eq!(count("/requests/answered"), asked.load(Ordering::Relaxed) as u64, "{said:?}");
        // Of eleven requests in a row at least two are bad: no iteration gets through.
        assert_eq!((count("/flows/f/done"), count("/flows/f/failed")), (0, 40), "{document:#}");
        assert_eq!(count("/flows/f/skipped_requests") + count("/requests/answered"), 40 * 11);
        assert_eq!(count("/requests_by_name/c/requests/sent"), 0);
    }
}
