//! `load` with a script whose functions make bodies, sign requests and judge responses.
#![allow(clippy::unwrap_used)]

mod apps;
mod common;
mod serving;

use apps::{app, plan};
use common::{answering, measured, number, run};

const PLAN: &str = r#"
users = 3
iterations = 20
script = "hooks.js"

[[flow]]
name = "shop"

[[flow.step]]
name = "login"
path = "/login"
take = { token = "json:$.token" }

[[flow.step]]
name = "order"
path = "/orders?t={{token}}"
headers = { Authorization = "HMAC {{sign.mac}}", X-Date = "{{sign.date}}" }
hooks = { body = "order", sign = "sign", judge = "judge" }

[[data]]
name = "people"
columns = ["name"]
rows = [["ann"], ["bob"]]
"#;

const SCRIPT: &str = r#"
import crypto from 'k6/crypto';

export function order({ step, number, values }) {
  return { step, number, token: values.token, name: values['people.name'], note: 'ü {{seq}}' };
}

export function sign({ method, path, body, number, headers }) {
  if (headers['x-date'] !== '') throw new Error('nothing is signed yet');
  const date = `day ${number}`;
  return { mac: crypto.hmac('sha256', 'k3y', [method, path, date, body].join('\n'), 'hex'), date };
}

export function judge({ status, headers, body, values }) {
  const order = JSON.parse(body);
  return status === 200 && headers['x-kind'] === 'echo' && order.token === 't' && order.name === values['people.name'];
}
"#;

/// The plan with its script beside it.
fn hooked(text: &str, script: &str) -> (tempfile::TempDir, String) {
    let (folder, path) = plan(text);
    std::fs::write(folder.path().join("hooks.js"), script).unwrap();
    (folder, path)
}

#[test]
fn a_script_makes_bodies_signs_requests_and_judges_responses() {
    let Some(server) = app("python3", "signed.py", &[]) else { return };
    for (place, each) in [("path = \"/orders", 1), ("group = \"g\"\nrepeat = 3\npath = \"/orders", 3)] {
        let (_folder, path) = hooked(&PLAN.replacen("path = \"/orders", place, 1), SCRIPT);
        let (document, said) = measured(&["--plan", &path, "--check", "expect.pass>=100%", &server.url]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(number(&document, "/flows/shop/done"), 20, "{document:#}");
        let met = (number(&document, "/requests/expecting"), number(&document, "/requests/met"));
        assert_eq!(met, (20 * each, 20 * each));
        assert!(document["client"]["script_us"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn agents_run_the_script_of_the_plan() {
    let Some(nats) = linerate_skips::program("nats-server") else { return };
    let Some(server) = app("python3", "signed.py", &[]) else { return };
    let (_folder, path) = hooked(PLAN, SCRIPT);
    let flags = ["load", "-q", "--json", "-", "--agents-local", "2", "--plan", &path, &server.url];
    let output = common::linerate_with(&nats, &flags).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&document, "/flows/shop/done"), 20, "{document:#}");
    assert_eq!(number(&document, "/requests/met"), 20);
}

#[test]
fn scripts_go_with_each_version_of_http() {
    let served = serving::serve(&[]);
    let steps = "users = 2\niterations = 6\nscript = \"hooks.js\"\n[[flow]]\nname = \"f\"\n[[flow.step]]\nname = \"echo\"\n\
                 path = \"/echo?{{sign.query}}\"\nhooks = { body = \"make\", sign = \"sign\", judge = \"same\" }\n\
                 [[flow.step]]\nname = \"code\"\npath = \"/status/{{sign.code}}\"\nhooks = { sign = \"sign\" }\nexpect_status = 418\n";
    let script = "export const make = ({ number }) => 'body '.repeat(number + 1);\n\
                  export const sign = ({ method, body }) => ({ query: body.length, code: method === 'GET' ? 418 : 500 });\n\
                  export function same({ body, number }) { if (body !== make({ number })) return `it is ${body}`; }\n";
    let (_folder, path) = hooked(steps, script);
    for http in ["1.1", "2"] {
        let url = format!("http://{}/", served.address);
        let (document, said) = measured(&["--plan", &path, "--http", http, &url]);
        assert_eq!(number(&document, "/flows/f/done"), 6, "{http}: {said:?}");
        assert_eq!(number(&document, "/status/418"), 6);
        assert_eq!(number(&document, "/requests/met"), 6);
    }
    let other = format!("http://{}/", served.address);
    let flags = ["--rounds", "3", "-d", "200ms", "--json", "-", "-q"];
    let endless = steps.replace("iterations = 6\n", "");
    let (_folder, path) = hooked(&endless, script);
    let compared = run(&[&["compare", "--plan", &path, &other, &other], &flags[..]].concat());
    assert_eq!(compared.code, Some(0), "{compared:?}");
}

#[test]
fn an_exception_fails_its_iteration_and_not_the_run() {
    let Some(server) = app("python3", "signed.py", &[]) else { return };
    for (from, to, cause) in [
        (
            "const order = JSON",
            "null.x; const order = JSON",
            "order: judge: TypeError: cannot read property 'x' of null",
        ),
        ("return status === 200 &&", "return 'no luck' ||", "order: judge: no luck"),
        ("return status === 200 &&", "return false &&", "order: judge: it returned false"),
        (
            "return status === 200 &&",
            "return 3; return status === 200 &&",
            "order: judge: it must return true, false or what is wrong, not a",
        ),
        ("return { mac:", "return { mic:", "order: sign returned no text \"mac\" for {{sign.mac}}"),
        ("return { mac:", "return 3; return { mac:", "order: sign must return an object"),
        ("const date = `day", "const date = `\\r\\nday", "order: "),
        ("return { step", "return; return { step", "order: order returned no body"),
        ("return { step", "throw 'out of stock'; return { step", "order: order: out of stock"),
        (
            "return { step",
            "while (true) { } return { step",
            "order: order: the script ran for 1 s without a request",
        ),
        (
            "return { step",
            "return 'a'.repeat(3 << 20); return { step",
            "order: order: it returned more than 1 MiB",
        ),
        (
            "return { step",
            "const all = []; while (true) all.push(new Array(9999).fill(1)); return { step",
            "order: order: it ran out of its 64 MiB of memory",
        ),
    ] {
        let script = SCRIPT.replacen(from, to, 1);
        let (_folder, path) = hooked(&PLAN.replace("iterations = 20", "iterations = 2"), &script);
        let (document, said) = measured(&["--plan", &path, &server.url]);
        assert_eq!(number(&document, "/flows/shop/failed"), 2, "{to}: {said:?}");
        assert_eq!(said.code, Some(1), "{to}: {}", said.err);
        let causes = document["flows"]["shop"]["causes"].as_object().unwrap();
        assert!(causes.keys().any(|known| known.starts_with(cause)), "{to}: {causes:?}");
        assert_eq!(number(&document, "/requests_by_name/login/requests/answered"), 2);
    }
}

#[test]
fn mistakes_in_scripts_are_found_before_the_run() {
    let at = answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://{at}/");
    for (from, to, said) in [
        ("const order =", "const = ", "at hooks.js:15:9"),
        (
            "export function sign",
            "function sign",
            "hooks.js: no function \"sign\" is exported (exported: judge, order)",
        ),
        ("import crypto", "import x from './other.js'; import crypto", "reads no other file"),
        ("'k3y'", "__ENV.LINERATE_TEST_UNSET", "the environment variable LINERATE_TEST_UNSET is not set"),
        (
            "export function order",
            "nothing(); export function order",
            "nothing is not defined (at <anonymous> (hooks.js:4:1))",
        ),
    ] {
        let (_folder, path) = hooked(PLAN, &SCRIPT.replacen(from, to, 1));
        let found = run(&["load", "--plan", &path, &url]);
        assert_eq!(found.code, Some(2), "{to}: {found:?}");
        assert!(found.err.contains(said), "{}", found.err);
    }
    for (from, to, said) in [
        ("script = \"hooks.js\"", "", "write script = \"sign.js\" at the top"),
        ("hooks.js", "none.js", "script file"),
        ("body = \"order\", ", "make = \"order\", ", "\"make\" is no hook; known are body, sign and judge"),
        ("hooks = {", "json = {}\nhooks = {", "the script makes the body; leave this one out"),
        (", sign = \"sign\"", "", "unknown slot {{sign.mac}}"),
        ("name = \"people\"", "name = \"sign\"", "slots of a script begin with sign"),
        ("hooks = { body = \"order\", sign = \"sign\", judge = \"judge\" }", "", "no step calls the script"),
        ("path = \"/login\"", "path = \"/login\"\nscript = \"a.js\"", "belongs to the whole plan"),
    ] {
        let (_folder, path) = hooked(&PLAN.replacen(from, to, 1), SCRIPT);
        let found = run(&["load", "--plan", &path, &url]);
        assert_eq!(found.code, Some(2), "{to}: {found:?}");
        assert!(found.err.contains(said), "{to}: {}", found.err);
    }
    let (_folder, path) = plan("[[request]]\npath = \"/\"\nhooks = { sign = \"sign\" }\n");
    let found = run(&["load", "--plan", &path, &url]);
    assert!(
        found.code == Some(2) && found.err.contains("write the request as a [[flow]] of one step"),
        "{found:?}"
    );
}

#[test]
fn requests_expect_parts_and_schemas_as_steps_do() {
    let served = serving::serve(&[]);
    let schema = "schema = { properties = { n = { type = \"integer\" } } }";
    let text = format!(
        "order = \"listed\"\nchecks = [\"expect.pass>=50%\"]\n\
         [[request]]\npath = \"/echo\"\njson = {{ n = \"{{{{seq|number}}}}\" }}\nexpect = {{ json = \"$.n\", {schema} }}\n\
         [[request]]\nname = \"wrong\"\npath = \"/echo\"\njson = {{ n = \"x\" }}\nexpect = {{ {schema} }}\n\
         [[request]]\nname = \"free\"\npath = \"/\"\n"
    );
    let (_folder, path) = plan(&text);
    let url = format!("http://{}/", served.address);
    for http in ["1.1", "2"] {
        let flags = ["--plan", &path, "--http", http, "-n", "30", "-c", "2", "-p", "3", &url];
        let (document, said) = measured(&flags);
        assert_eq!(said.code, Some(1), "{said:?}");
        let met = (number(&document, "/requests/expecting"), number(&document, "/requests/met"));
        assert_eq!((met, number(&document, "/bad/expect")), ((20, 10), 10), "HTTP/{http}: {document:#}");
    }
    for flag in ["--dry-run", "--throughput"] {
        let refused = run(&["load", "--plan", &path, flag, &url]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("does not go with expect of a request"), "{refused:?}");
    }
}
