//! Plan files: their meaning, and the text of their errors.

use std::path::PathBuf;

use proptest::prelude::*;

use linerate_http::client::Body;

use super::*;
use crate::plan::{Comparison, Metric};

fn parse(text: &str) -> Result<PlanFile, FileError> {
    PlanFile::parse(text, Path::new("plan.toml"))
}

fn said(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("no error in\n{text}"),
        Err(e) => format!("{e}\n\n"),
    }
}

/// A folder with files, deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Folder {
        let path = std::env::temp_dir().join(format!("linerate-plan-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (name, content) in files {
            std::fs::write(path.join(name), content).unwrap();
        }
        Folder(path)
    }

    fn parse(&self, text: &str) -> Result<PlanFile, FileError> {
        PlanFile::parse(text, &self.0.join("plan.toml"))
    }

    /// The error, with this folder's path left out.
    fn said(&self, text: &str) -> String {
        let said = self.parse(text).unwrap_err().to_string();
        format!("{}\n\n", said.replace(&format!("{}/", self.0.display()), ""))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_empty_file_asks_for_the_url_itself() {
    let mut plan = parse("").unwrap();
    plan.fill_paths("/a?b=c");
    let expected = Request {
        name: "GET /a?b=c".to_owned(),
        weight: 1.0,
        method: "GET".to_owned(),
        path: "/a?b=c".to_owned(),
        fields: Vec::new(),
        body: None,
        expect: Default::default(),
    };
    assert_eq!(plan.request, [expected]);
    assert_eq!((plan.url, plan.connections, plan.order), (None, None, Order::Weighted));
}

#[test]
fn everything_that_flags_say() {
    let plan = parse(
        r#"
        url = "http://127.0.0.1:8080/x"
        connections = 100
        pipeline = 16
        requests = 1_000_000
        duration = "1m30s"
        rate = "0..5k@30s,5k@60s"
        arrival = "poisson"
        per-connection = 10
        threads = 2
        way = "async"
        io = "epoll"
        from = ["127.0.0.2", "127.0.0.3,::1"]
        timeout = 2.5
        warm_up = 1
        tag = "X-Id"
        throughput = false
        seed = 42
        checks = ["p99<50ms", "errors<0.1%"]
        "#,
    )
    .unwrap();
    assert_eq!(plan.url.as_deref(), Some("http://127.0.0.1:8080/x"));
    assert_eq!((plan.connections, plan.pipeline, plan.requests), (Some(100), Some(16), Some(1_000_000)));
    assert_eq!(
        (plan.duration, plan.timeout),
        (Some(Duration::from_secs(90)), Some(Duration::from_millis(2500)))
    );
    assert_eq!((plan.warm_up, plan.per_connection), (Some(Duration::from_secs(1)), Some(10)));
    assert_eq!(plan.rate, Some(Rate::parse("0..5000@30s,5000@60s").unwrap()));
    assert_eq!(
        (plan.arrival, plan.way, plan.io),
        (Some(Arrival::Poisson), Some(Way::Async), Some(Io::Epoll))
    );
    assert_eq!(plan.from.map(|f| f.len()), Some(3));
    assert_eq!((plan.threads, plan.seed, plan.throughput), (Some(2), Some(42), Some(false)));
    assert_eq!(plan.tag.as_deref(), Some("X-Id"));
    assert_eq!(plan.checks[0].metric, Metric::Percentile(99.0));
    assert_eq!((plan.checks[1].comparison, plan.checks[1].limit), (Comparison::Less, 0.001));
    assert_eq!(parse("rate = 500").unwrap().rate, Some(Rate::constant(500.0)));
    assert_eq!(parse("warm_up = \"0s\"").unwrap().warm_up, Some(Duration::ZERO));
}

#[test]
fn requests_with_what_they_share() {
    let plan = parse(
        r#"
        user = "Aladdin:open sesame"
        expect_status = 200
        headers = { X-All = "a", X-Some = "top" }
        order = ["login", "list", "list"]

        [[request]]
        name = "list"
        path = "/list?n={{rand:1-9}}"
        headers = { x-some = ["own", "twice"], X-Number = 5 }
        compressed = true

        [[request]]
        name = "login"
        weight = 0.5
        path = "/login"
        json = { id = "{{seq}}", tags = [1, 2.5, true], at = 2026-01-02 }
        expect_status = ["2xx", 304]
        expect_body = "welcome"
        "#,
    )
    .unwrap();
    assert_eq!(plan.order, Order::Listed(vec![1, 0, 0]));
    let [list, login] = plan.request.as_slice() else { panic!() };
    let fields: Vec<String> = list.fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
    assert_eq!(
        fields,
        [
            "x-some: own",
            "x-some: twice",
            "X-Number: 5",
            "Accept-Encoding: gzip, deflate, br, zstd",
            "X-All: a",
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        ]
    );
    assert_eq!((list.method.as_str(), list.weight, list.expect.status.as_slice()), ("GET", 1.0, &[200][..]));
    assert_eq!((login.method.as_str(), login.weight), ("POST", 0.5));
    assert_eq!(
        String::from_utf8(login.body.clone().unwrap().to_vec()).unwrap(),
        r#"{"id":"{{seq}}","tags":[1,2.5,true],"at":"2026-01-02"}"#
    );
    assert!(login.fields.contains(&("Content-Type".to_owned(), "application/json".to_owned())));
    assert_eq!((login.expect.status.len(), login.expect.status[100]), (101, 304));
    assert_eq!(login.expect.body.as_deref(), Some("welcome"));
    assert_eq!(parse("order = \"listed\"").unwrap().order, Order::Listed(vec![0]));
}

#[test]
fn a_request_expects_as_a_step_does() {
    let plan = parse(
        "[[request]]\npath = \"/a\"\nexpect = { status = 201, json = { \"$.ok\" = true }, max_ms = 9 }",
    );
    let expect = plan.unwrap().request.remove(0).expect;
    let response = expect.response.unwrap();
    assert_eq!((expect.status, response.parts[0].0.as_str()), (vec![201], "json:$.ok"));
    assert_eq!(response.max, Some(Duration::from_millis(9)));
    let said = parse("[[request]]\nexpect_status = 200\nexpect = { status = 201 }").unwrap_err().to_string();
    assert!(said.contains("keep one of the two"), "{said}");
    let said = parse("expect = { status = 201 }").unwrap_err().to_string();
    assert!(said.contains("write it below [[request]]"), "{said}");
}

#[test]
fn data_from_files_and_inline() {
    let folder = Folder::new(
        "data",
        &[("users.csv", b"id,name\n1,ada\n2,bob\n"), ("body.txt", b"hello {{csv.name}}\n")],
    );
    let plan = folder
        .parse(
            r#"
            [[request]]
            path = "/users/{{csv.id}}?lang={{langs.code}}"
            body_file = "body.txt"
            [[data]]
            file = "users.csv"
            [[data]]
            name = "langs"
            columns = ["code", "n"]
            rows = [["en", 1], ["de", 2]]
            "#,
        )
        .unwrap();
    assert_eq!(plan.data[0].rows, [["1", "ada"], ["2", "bob"]]);
    assert_eq!(
        (plan.data[1].name.as_str(), &plan.data[1].rows[1]),
        ("langs", &vec!["de".to_owned(), "2".to_owned()])
    );
    assert_eq!(plan.request[0].body, Some("hello {{csv.name}}\n".into()));
    assert_eq!(plan.request[0].method, "POST");
}

#[test]
fn a_raw_request_is_the_bytes_of_its_file() {
    let bytes = b"GET /{{seq}} HTTP/1.1\nno end";
    let folder = Folder::new("raw", &[("odd.http", bytes), ("none.http", b"")]);
    let plan = folder
        .parse("[[request]]\nraw = \"odd.http\"\nweight = 2\nexpect_status = 400\n[[request]]\npath = \"/\"")
        .unwrap();
    let raw = &plan.request[0];
    assert!(raw.is_raw() && !plan.request[1].is_raw());
    assert_eq!((raw.name.as_str(), raw.weight, &raw.expect.status[..]), ("raw odd.http", 2.0, &[400][..]));
    assert_eq!(raw.body.as_ref().map(Body::to_vec), Some(bytes.to_vec()));
    for (text, expected) in [
        ("[[request]]\nraw = \"no/such\"", "raw file"),
        ("[[request]]\nraw = \"none.http\"", "this file is empty"),
        ("[[request]]\nraw = \"odd.http\"\npath = \"/\"", "so path would change nothing"),
        ("tag = \"X-Id\"\n[[request]]\nraw = \"odd.http\"", "tag numbers requests"),
    ] {
        let said = folder.parse(text).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn unknown_and_misplaced_keys() {
    let said = [
        "url = \"http://h/\"\n\n# comment\nduration = \"10s\"\n\nrequests = 5\nconections = 5\n",
        "concurrency = 5",
        "something_else = true",
        "per_conection = 1",
        "weight = 2",
        "[[request]]\npath = \"/\"\nconnections = 5",
        "[[request]]\nwieght = 5",
        "[[requests]]\npath = \"/\"",
        "[request]\npath = \"/\"",
        "request = [5]",
        "[[data]]\nfiles = \"x.csv\"",
        "warm-up = 1\nwarm_up = 2",
        "connections = 5\nconnections = 6",
    ]
    .map(said)
    .concat();
    insta::assert_snapshot!(said);
}

#[test]
fn wrong_values_of_the_run() {
    let said = [
        "rate = \"fast\"",
        "rate = \"0..5000\"",
        "rate = 0",
        "rate = true",
        "pipeline = 0",
        "connections = \"many\"",
        "connections = 70_000_000",
        "connections = -1",
        "connections = 1.5",
        "threads = 0",
        "way = \"loops\"",
        "io = \"dpdk\"",
        "io = 1",
        "arrival = \"random\"",
        "duration = \"10 minutes\"",
        "duration = 0",
        "timeout = \"2h\"",
        "timeout = [1]",
        "url = \"127.0.0.1:8080\"",
        "url = \"ftp://h/\"",
        "url = \"http:///x\"",
        "from = [\"127.0.0.1\", \"localhost\"]",
        "tag = \"X Id\"",
        "throughput = \"yes\"",
        "seed = -1",
        "checks = \"p99<5ms\"",
        "checks = [\"p99<5ms\", \"p99<fast\"]",
        "order = \"random\"",
        "order = [\"login\"]",
        "order = []",
    ]
    .map(said)
    .concat();
    insta::assert_snapshot!(said);
}

#[test]
fn wrong_requests() {
    let said = [
        "[[request]]\nweight = 0",
        "[[request]]\nweight = \"heavy\"",
        "[[request]]\nweight = nan",
        "[[request]]\nmethod = \"GET IT\"",
        "[[request]]\nmethod = \"get\"",
        "[[request]]\npath = \"users\"",
        "[[request]]\npath = \"\"",
        "[[request]]\npath = \"http://h/\"",
        "[[request]]\npath = \"/a b\"",
        "[[request]]\nname = \" \"",
        "[[request]]\nheaders = { \"a b\" = \"c\" }",
        "[[request]]\nheaders = { A = \"ok\", B = \"x\\ny\" }",
        "[[request]]\nheaders = { Content-Length = 5 }",
        "[[request]]\nheaders = \"A: b\"",
        "[[request]]\nheaders = { A = { b = 1 } }",
        "user = \"a:b\"\nheaders = { Authorization = \"x\" }",
        "[[request]]\nbody = \"a\"\njson = { a = 1 }",
        "[[request]]\nbody = { a = 1 }",
        "[[request]]\njson = { a = inf }",
        "[[request]]\nbody_file = \"no/such/file\"",
        "[[request]]\nexpect_status = 20",
        "[[request]]\nexpect_status = []",
        "[[request]]\nexpect_body = \"\"",
        "[[request]]\npath = \"/\"\nbody = \"id={{sequence}}\"",
        "[[request]]\npath = \"/{{rand:9-1}}\"",
        "[[request]]\nbody = '''\nfirst\nsecond {{seq\n'''",
    ]
    .map(said)
    .concat();
    insta::assert_snapshot!(said);
}

#[test]
fn wrong_data() {
    let long = format!("a\n{}\n", "x".repeat(5));
    let folder = Folder::new(
        "wrong",
        &[
            ("users.csv", b"id,name\n1,ada\n2,b b\n"),
            ("ragged.csv", b"id,name\n1,ada\n2\n"),
            ("empty.csv", b""),
            ("long.csv", long.as_bytes()),
            ("body.txt", b"{{csv.mail}}"),
        ],
    );
    let said = [
            "[[request]]\npath = \"/{{csv.id}}\"",
            "[[request]]\npath = \"/{{csv.mail}}\"\n[[data]]\nfile = \"users.csv\"",
            "[[request]]\nbody_file = \"body.txt\"\n[[data]]\nfile = \"users.csv\"",
            "[[request]]\nname = \"by name\"\npath = \"/{{csv.id}}/{{csv.name}}\"\n[[data]]\nfile = \"users.csv\"",
            "[[data]]\nfile = \"no-such.csv\"",
            "[[data]]\nfile = \"ragged.csv\"",
            "[[data]]\nfile = \"empty.csv\"",
            "[[data]]\nfile = 5",
            "[[data]]\nname = \"a b\"\nfile = \"users.csv\"",
            "[[data]]\nfile = \"users.csv\"\n[[data]]\nfile = \"long.csv\"",
            "[[data]]\nname = \"x\"",
            "[[data]]\nfile = \"users.csv\"\nrows = []",
            "[[data]]\ncolumns = [\"a\", \"b\"]\nrows = [[1, 2], [3]]",
            "[[data]]\ncolumns = [\"a\", \"a\"]\nrows = [[1, 2]]",
            "[[data]]\ncolumns = [\"a\"]\nrows = []",
            "[[data]]\ncolumns = [\"a\"]\nrows = [1]",
        ].map(|text| folder.said(text)).concat();
    insta::assert_snapshot!(said);
}

#[test]
fn not_toml() {
    let said =
        ["connections 5", "connections = ", "[[request]\n", "url = \"http://h/\nrate = 5\n", "a = 1\n\u{7}"]
            .map(said)
            .concat();
    insta::assert_snapshot!(said);
}

#[test]
fn files_that_are_no_plans() {
    let large = vec![b'#'; MAX_PLAN_BYTES as usize + 1];
    let folder = Folder::new(
        "files",
        &[("latin.toml", b"a = 1\n# \xe9\n"), ("large.toml", &large), ("fits.toml", &large[1..])],
    );
    let said = |name: &str| PlanFile::load(&folder.0.join(name)).unwrap_err().to_string();
    let said = ["no.toml", "latin.toml", "large.toml"].map(said).join("\n");
    let said = said.replace(&format!("{}/", folder.0.display()), "");
    insta::assert_snapshot!(said);
    assert!(PlanFile::load(&folder.0.join("fits.toml")).is_ok());
    assert!(PlanFile::load(&folder.0).is_err(), "a directory");
}

#[test]
fn places_in_long_and_wide_lines() {
    let padding = "x".repeat(300);
    let said = [
        format!("name = \"{padding}\""),
        format!("checks = [\"p99<5ms\", \"errors<{padding}\"]"),
        format!("headers = {{ A = \"{padding}\" }} # \u{1F600}\nway = \"\u{1F600}\u{e9}\"\r\n"),
        format!("headers = {{ A = \"{}\", B = \"x\\ty\\u0000\" }}", "y".repeat(150)),
        "\t\tio =\t\"no\"".to_owned(),
    ]
    .map(|text| said(&text))
    .concat();
    insta::assert_snapshot!(said);
    let error = parse("url = \"http://h/\"\n  io = \"no\"").unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(2), Some(8)));
    assert!(error.message().starts_with("io must be"));
}

#[test]
fn the_example_of_the_documentation() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PLAN.md")).unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 2, "the page shows a short and a complete example");
    let folder = Folder::new(
        "docs",
        &[
            ("users.csv", b"id,name\n1,ada\n"),
            ("order.json", b"{\"user\":\"{{users.id}}\"}"),
            ("sign.js", b"export function sign() {}"),
        ],
    );
    let plans: Vec<PlanFile> =
        blocks.iter().map(|b| folder.parse(b).unwrap_or_else(|e| panic!("{e}"))).collect();
    // Every key is both in the complete example and known.
    let complete = blocks.iter().max_by_key(|b| b.len()).unwrap();
    for key in RUN_KEYS.iter().chain(requests::SHARED_KEYS).chain(requests::OWN_KEYS).chain(DATA_KEYS) {
        let shown = complete.lines().any(|l| {
            let l = l.trim_start_matches(['#', ' ']);
            l.starts_with(&format!("{key} =")) || l.starts_with(&format!("[[{key}]]"))
        });
        assert!(shown, "{key} is not in the complete example");
        assert!(
            page.contains(&format!("`{key}`")) || page.contains(&format!("`[[{key}]]`")),
            "{key} is not explained"
        );
    }
    assert!(plans.iter().all(|p| p.url.is_some()));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z\\[\\]{}=\"'.0-9\n\r\t ,é#-]{0,200}") {
        if let Err(e) = parse(&text) {
            prop_assert!(!e.to_string().is_empty());
        }
    }

    #[test]
    fn any_value_of_any_key_gives_a_plan_or_a_place(
        key in prop::sample::select([RUN_KEYS, requests::SHARED_KEYS].concat()),
        value in prop::sample::select(vec![
            "0", "-1", "1", "9223372036854775807", "0xff", "1e300", "nan", "-inf", "true", "\"\"", "\"x\"", "\"1s\"",
            "[]", "[1]", "[\"a\"]", "{}", "{ a = 1 }", "1979-05-27", "'''\n{{seq\n'''", "\"\u{e9}\"",
        ]),
    ) {
        if let Err(e) = parse(&format!("{key} = {value}")) {
            prop_assert!(e.line().is_some() && e.column().is_some(), "{}", e);
        }
    }
}

/// A cell in a string of `json` can neither end the string nor break the line.
#[test]
fn cells_in_json_are_escaped() {
    let text = "json = { a = \"<{{d.x}}>\", b = [\"{{d.x | json}}\"], \"{{d.x}}\" = 1 }\n\
                [[request]]\n[[data]]\nname = \"d\"\ncolumns = [\"x\"]\nrows = [[\"unused\"]]\n";
    let plan = PlanFile::parse(text, Path::new("plan.toml")).expect("good");
    let spec = linerate_http::client::RequestSpec {
        method: "POST".to_owned(),
        target: "/".to_owned(),
        fields: vec![("Host".to_owned(), "h".to_owned())],
        body: plan.request[0].body.clone().expect("a body"),
    };
    let template = linerate_http::client::Template::compile(&spec, &["d.x".to_owned()]).expect("good");
    let cell = "quote \" backslash \\ line\r\nbreak \u{1} ü {{seq}} \",\"admin\":true,\"";
    let row = [cell.as_bytes().into()];
    let mut out = Vec::new();
    template.render(&linerate_http::client::Values { seq: 0, now_ms: 0, seed: 1, row: &row }, &mut out);
    let out = String::from_utf8(out).expect("UTF-8");
    let body: serde_json::Value =
        serde_json::from_str(out.split_once("\r\n\r\n").expect("a head").1).expect("JSON");
    assert_eq!(body, serde_json::json!({ "a": format!("<{cell}>"), "b": [cell], cell: 1 }));
}
