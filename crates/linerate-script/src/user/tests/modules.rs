//! Modules of ours behind the names and URLs that scripts import.

use serde_json::{Value as Json, json};

use super::*;

fn json_of(source: &str, body: &str) -> Json {
    let mut seen = seen(source);
    serde_json::from_str(&seen.value(body)).unwrap()
}

#[test]
fn every_hash_of_k6_is_there_with_and_without_a_key() {
    let value = json_of(
        "import crypto from 'k6/crypto';
         export default function () {
           return ['md4', 'md5', 'sha1', 'sha512_224', 'sha512_256', 'ripemd160'].map((name) => [
             crypto[name]('hello', 'hex'), crypto.createHash(name).update('hel').update('lo').digest('hex') === crypto[name]('hello', 'hex'),
             crypto.hmac(name, 'secret', 'hello', 'hex'), crypto.createHMAC(name, 'secret').update('hello').digest('hex') === crypto.hmac(name, 'secret', 'hello', 'hex')]);
         }",
        "",
    );
    // MD5 and the SHA family as Python's hashlib and hmac have them.
    for (at, plain, keyed) in [
        (0, "866437cb7a794bce2b727acc0362ee27", ""),
        (1, "5d41402abc4b2a76b9719d911017c592", "bade63863c61ed0b3165806ecd6acefc"),
        (2, "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d", "5112055c05f944f85755efc5cd8970e194e9f45b"),
        (
            3,
            "fe8509ed1fb7dcefc27e6ac1a80eddbec4cb3d2c6fe565244374061c",
            "27ade3215d20a0e939a1ff98f91052148e85f2ece87d926d6a2c1aad",
        ),
        (
            4,
            "e30d87cfa2a75db545eac4d61baf970366a8357c7f72fa95b52d0accb698f13a",
            "e1a285d0317f7cce89acb5642fb6e82fc16d14ab588b0a5abcc7c20ea748594e",
        ),
        (5, "108f07b8382412612c048d07d13f814118445acd", "0c552e4ef0fae08228f180c66f98d544c9930fb2"),
    ] {
        assert_eq!(value[at][0], plain);
        assert_eq!((&value[at][1], &value[at][3]), (&json!(true), &json!(true)));
        assert!(keyed.is_empty() || value[at][2] == keyed, "{at}: {}", value[at][2]);
    }
    let mut unknown = seen(
        "import crypto from 'k6/crypto'; export default function () { crypto.hmac('sha3', 'k', 'd', 'hex'); }",
    );
    let CallEnd::Threw(why) = unknown.iterate("").0 else { panic!() };
    assert!(why.contains("there is no algorithm \"sha3\": md4, md5,"), "{why}");
}

#[test]
fn the_global_crypto_signs_and_verifies() {
    let value = json_of(
        "const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
         const bytes = (text) => new Uint8Array([...text].map((c) => c.charCodeAt(0)));
         export default async function () {
           const key = await crypto.subtle.importKey('raw', bytes('secret'), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
           const signed = await crypto.subtle.sign('HMAC', key, bytes('hello'));
           let refused; try { await crypto.subtle.encrypt({ name: 'AES-GCM' }, key, bytes('x')); } catch (e) { refused = e.name; }
           let hidden; try { await crypto.subtle.exportKey('raw', key); } catch (e) { hidden = e.name; }
           const made = await crypto.subtle.generateKey({ name: 'HMAC', hash: { name: 'SHA-1' } }, true, ['sign']);
           return [hex(await crypto.subtle.digest('SHA-1', bytes('hello'))), hex(signed), await crypto.subtle.verify('HMAC', key, signed, bytes('hello')),
             await crypto.subtle.verify('HMAC', key, signed, bytes('hellO')), refused, hidden, (await crypto.subtle.exportKey('raw', made)).byteLength,
             /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.getRandomValues(new Uint32Array(4)).some((n) => n > 0)];
         }",
        "",
    );
    assert_eq!(
        value,
        json!([
            "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d",
            "88aab3ede8d3adf94d26ab90d3bafd4a2083070c3bcce9c014ee04a443847c0b",
            true,
            false,
            "NotSupportedError",
            "InvalidAccessError",
            64,
            true,
            true
        ])
    );
}

#[test]
fn urls_and_their_parameters_are_those_of_browsers() {
    let value = json_of(
        "import { URL, URLSearchParams } from 'https://jslib.k6.io/url/1.0.0/index.js';
         export default function () {
           const url = new URL('../b?x=1&y=a b#top', 'https://ann:pw@one.test:8443/a/c');
           url.searchParams.append('z', '&'); url.searchParams.set('x', '2'); url.searchParams.delete('y'); url.port = '443';
           const params = new URLSearchParams([['utm', 'a'], ['utm', 'b']]);
           let wrong; try { new URL('nowhere'); } catch (e) { wrong = e instanceof TypeError; }
           return [url.href, url.pathname, url.hostname, url.searchParams.get('z'), String(params), params.getAll('utm'), [...new URLSearchParams('?a=1&b=%20').keys()],
             String(new URLSearchParams({ q: 'x y' })), wrong, JSON.stringify({ url })];
         }",
        "",
    );
    assert_eq!(
        value,
        json!([
            "https://ann:pw@one.test/b?x=2&z=%26#top",
            "/b",
            "one.test",
            "&",
            "utm=a&utm=b",
            ["a", "b"],
            ["a", "b"],
            "q=x+y",
            true,
            "{\"url\":\"https://ann:pw@one.test/b?x=2&z=%26#top\"}"
        ])
    );
}

#[test]
fn sessions_of_httpx_add_what_they_hold() {
    let mut seen = seen(
        "import { Httpx, Get, Post } from 'https://jslib.k6.io/httpx/0.1.0/index.js'; import http from 'k6/http';
         const session = new Httpx({ baseURL: 'http://one.test', headers: { A: '1' }, timeout: 5000 });
         session.addHeader('B', '2'); session.addTag('k', 'v');
         export default function () {
           session.get(http.url`/items/${7}`, null, { headers: { A: '3' } });
           session.post('/form', { a: 1 }); session.clearHeader('B');
           return session.batch([new Get('/1'), new Post('http://two.test/2', { body: 'x' })], { tags: { all: 'yes' } }).map((res) => res.status);
         }",
    );
    let (end, sent) = seen.iterate("");
    assert_eq!(end, CallEnd::Returned(Some("[200,200]".to_owned())));
    let lines: Vec<_> = sent.iter().map(|r| format!("{} {}", r.method, r.url)).collect();
    assert_eq!(
        lines,
        [
            "GET http://one.test/items/7",
            "POST http://one.test/form",
            "GET http://one.test/1",
            "POST http://two.test/2"
        ]
    );
    let field = |at: usize, name: &str| {
        sent[at].headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    assert_eq!((field(0, "A"), field(0, "B"), field(2, "B")), (Some("3"), Some("2"), None));
    assert_eq!((sent[0].tags.name.as_deref(), sent[0].timeout), (Some("/items/${}"), Duration::from_secs(5)));
    assert_eq!((sent[1].body.as_slice(), sent[3].body.as_slice()), (b"a=1".as_slice(), b"x".as_slice()));
    assert!(sent[3].tags.custom.contains(&("all".to_owned(), "yes".to_owned())));
    assert!(sent[3].tags.custom.contains(&("k".to_owned(), "v".to_owned())));
}

#[test]
fn forms_have_the_boundary_that_they_name() {
    let mut seen = seen(
        "import { FormData } from 'https://jslib.k6.io/formdata/0.0.2/index.js'; import http from 'k6/http';
         export default function () {
           const form = new FormData();
           form.append('text', 'value'); form.append('file', http.file('data', 'a.txt', 'text/plain')); form.append('raw', new Uint8Array([1, 255]));
           http.post('http://one.test/', form.body(), { headers: { 'Content-Type': `multipart/form-data; boundary=${form.boundary}` } });
         }",
    );
    let (_, sent) = seen.iterate("");
    let kind = sent[0].headers.iter().find(|(name, _)| name == "Content-Type").unwrap().1.clone();
    let boundary = kind.split_once("boundary=").unwrap().1.to_owned();
    let mut body = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\nvalue\r\n");
    body += &format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\ndata\r\n"
    );
    body += &format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"raw\"; filename=\"blob\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let mut wanted = body.into_bytes();
    wanted.extend([1, 255]);
    wanted.extend(format!("\r\n--{boundary}--\r\n").bytes());
    assert_eq!(sent[0].body, wanted);
}

#[test]
fn csv_is_read_and_written() {
    let value = json_of(
        "import papaparse from 'https://jslib.k6.io/papaparse/5.1.1/index.js';
         export default function () {
           const users = papaparse.parse('name,age\\r\\n\"Ada, \"\"A\"\"\",36\\r\\nBob,\\r\\n', { header: true, dynamicTyping: true, skipEmptyLines: true });
           const odd = papaparse.parse('a,b\\n1,2,3\\n4', { header: true });
           return [users.data, users.errors, papaparse.parse('a;b\\n1;2').data, odd.data, odd.errors.map((e) => e.code), papaparse.unparse([{ a: 1, b: 'x,\"' }]),
             papaparse.parse('# note\\n\"one\\nline\"\\n', { comments: '#', skipEmptyLines: true }).data];
         }",
        "",
    );
    assert_eq!(
        value,
        json!([
            [{ "name": "Ada, \"A\"", "age": 36 }, { "name": "Bob", "age": null }],
            [],
            [["a", "b"], ["1", "2"]],
            [{ "a": "1", "b": "2", "__parsed_extra": ["3"] }, { "a": "4" }],
            ["TooManyFields", "TooFewFields"],
            "a,b\r\n1,\"x,\"\"\"",
            [["one\nline"]]
        ])
    );
}

#[test]
fn assertions_of_chai_count_as_checks() {
    let mut seen = seen(
        "import { describe, expect } from 'https://jslib.k6.io/k6chaijs/4.3.4.3/index.js'; import http from 'k6/http';
         export default function () {
           const fine = describe('list', () => {
             const res = http.get('http://one.test/');
             expect(res.status, 'response status').to.equal(200);
             expect(res).to.have.validJsonBody();
             expect(res.json(), 'numbers').to.be.an('array').that.includes(2);
             expect(res.json(), 'numbers').to.have.lengthOf.above(1);
             expect({ a: { b: [7] } }, 'body').to.have.nested.property('a.b[0]', 7);
             expect({ a: 1, b: 2 }, 'body').to.have.all.keys('a', 'b').and.not.be.empty;
           });
           const failed = describe('fails', () => { expect(404, 'status').to.be.below(400); expect(1, 'never').to.equal(1); });
           const threw = describe('throws', () => { null.x; });
           return [fine, failed, threw];
         }",
    );
    assert_eq!(seen.value("[1,2]"), "[true,false,false]");
    let metrics = seen.metrics.lock().unwrap();
    let checks: Vec<_> = metrics.checks().iter().map(|c| (&*c.group, c.name.as_str(), c.fails)).collect();
    assert_eq!(
        checks[..checks.len() - 1],
        [
            ("::list", "expected response status to equal 200", 0),
            ("::list", "has valid json body", 0),
            ("::list", "expected numbers to be an array", 0),
            ("::list", "expected numbers to include 2", 0),
            ("::list", "expected numbers to have property 'length'", 0),
            ("::list", "expected numbers to have a length above 1 got ${actual}", 0),
            ("::list", "expected body to have nested property 'a.b[0]'", 0),
            ("::list", "expected body to have nested property 'a.b[0]' of 7, got ${actual}", 0),
            ("::list", "expected body to have keys 'a', and 'b'", 0),
            ("::list", "expected body not to be empty", 0),
            ("::fails", "expected status to be below 400", 1),
        ]
    );
    assert!(checks.last().unwrap().1.starts_with("Exception raised \"TypeError"), "{checks:?}");
}

#[test]
fn stages_of_k6_utils_come_from_the_options() {
    let source =
        "import { parseDuration, tagWithCurrentStageIndex, getCurrentStageIndex, normalDistributionStages } from 'https://jslib.k6.io/k6-utils/1.4.0/index.js';
         export const options = { stages: [{ duration: '10s', target: 5 }, { duration: '1m', target: 5 }] };
         export default function () {
           let none; try { getCurrentStageIndex(); } catch (e) { none = e.message; }
           return [parseDuration('1m30s'), parseDuration('1.5s'), none !== undefined];
         }";
    assert_eq!(json_of(source, ""), json!([90_000, 1500, true]));
}

const PAGE: &str = "<!doctype html><title>A &amp; B</title><form action='/go?old=1' method=post><input name=csrf value='x&quot;y'>
  <input type=checkbox name=off><select name=s><option value=1>one<option value=2 selected>two</select><button type=submit name=b value=v>Go</button></form>
  <ul id=list class='a b'><li>1<li class=x>2<li>3</ul><a href='next?p=1&amp;q=2'>more</a><div data-my-key='{\"n\":1}'>z<!-- c --></div>
  <script>if (1 < 2) { '<li>'; }</script>";

#[test]
fn pages_are_read_by_selectors() {
    let value = json_of(
        "import { parseHTML } from 'k6/html'; import http from 'k6/http';
         export default function () {
           const res = http.get('http://one.test/a/b'); const doc = parseHTML(res.body); const seen = [];
           doc.find('li').each((i, el) => seen.push(`${i}${el.textContent()}`));
           let wrong; try { doc.find('li::before'); } catch (e) { wrong = e.message; }
           return [doc.find('title').text(), res.html('input[name=csrf]').attr('value'), doc.find('form').serializeObject(), doc.find('ul#list.a > li:nth-child(2)').text(),
             seen, doc.find('li').map((i, el) => el.text()), doc.find('.x').next().text(), doc.find('li').not('.x').size(), doc.find('li').last().closest('ul').attr('class'),
             doc.find('div').data('myKey').n, doc.find('ul').html(), doc.find('none').attr('a') === undefined, wrong];
         }",
        PAGE,
    );
    assert_eq!(
        value,
        json!([
            "A & B",
            "x\"y",
            { "csrf": "x\"y", "s": "2" },
            "2",
            ["01", "12", "23"],
            ["1", "2", "3"],
            "3",
            2,
            "a b",
            1,
            "<li>1</li><li class=\"x\">2</li><li>3</li>",
            true,
            "the selector \"li::before\" is not supported by linerate"
        ])
    );
}

#[test]
fn forms_are_sent_and_links_followed() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default function () {
           const res = http.get('http://one.test/a/b');
           res.submitForm({ fields: { s: '9' }, params: { headers: { X: '1' } } });
           res.clickLink({ selector: 'a:contains(\"more\")' });
           try { res.clickLink({ selector: 'a.none' }); } catch (e) { return e.message; }
         }",
    );
    let (end, sent) = seen.iterate(PAGE);
    let CallEnd::Returned(Some(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("no element found for selector 'a.none'"), "{why}");
    assert_eq!((sent[1].method.as_str(), sent[1].url.as_str()), ("POST", "http://one.test/go?old=1"));
    assert_eq!(String::from_utf8_lossy(&sent[1].body), "csrf=x%22y&s=9&b=v");
    assert_eq!((sent[2].method.as_str(), sent[2].url.as_str()), ("GET", "http://one.test/a/next?p=1&q=2"));
}

#[test]
fn nested_tags_without_end_do_not_exhaust_the_stack() {
    let mut seen = seen(
        "import { parseHTML } from 'k6/html';
         export default function () { const doc = parseHTML('<div>'.repeat(5000) + 'deep'); return [doc.find('div').size(), doc.text()]; }",
    );
    assert_eq!(seen.value(""), "[5000,\"deep\"]");
}

#[test]
fn tags_and_jars_have_bounds() {
    let threw = |source: &str| {
        let mut seen = seen(&format!("import http from 'k6/http'; import {{ check }} from 'k6'; {source}"));
        match seen.iterate("").0 {
            CallEnd::Threw(why) => why,
            other => panic!("{other:?}"),
        }
    };
    // As with k6, the request fails and is not sent.
    let mut wrong = seen(
        "import http from 'k6/http'; export default function () { return http.get('http://one.test/', { tags: { a: { b: 1 } } }).error; }",
    );
    let (end, sent) = wrong.iterate("");
    let CallEnd::Returned(Some(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("must be a string, a number or a boolean") && sent.is_empty(), "{why}");
    let why = threw("export default function () { check(1, { x: true }, { a: null }); }");
    assert!(why.contains("the tag \"a\" must be"), "{why}");
    let why = threw("export default function () { for (;;) new http.CookieJar(); }");
    assert!(why.contains("more than 1000 cookie jars in one iteration"), "{why}");
}

#[test]
fn a_jar_of_the_init_code_lasts() {
    let mut seen = seen(
        "import http from 'k6/http'; const jar = new http.CookieJar(); const url = 'http://one.test/';
         export default function () {
           const before = Object.keys(jar.cookiesForURL(url)).length; jar.set(url, 'a', '1'); const other = new http.CookieJar();
           return [before, Object.keys(other.cookiesForURL(url)).length];
         }",
    );
    assert_eq!((seen.value(""), seen.value("")), ("[0,0]".to_owned(), "[1,0]".to_owned()));
}
