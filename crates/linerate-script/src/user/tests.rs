use std::cell::Cell;
use std::time::Duration;

use linerate_base::Time;

use super::*;
use crate::action::{ResponseKind, UserCallPlace};
use crate::doc::{OneFile, StillHost};

mod background;
mod modules;

/// A user of this source, its host and its metrics.
struct Seen {
    user: ScriptUser,
    host: Rc<StillHost>,
    metrics: Arc<Mutex<RunMetrics>>,
    exports: ScriptExports,
}

fn load_with(source: &str, others: &[(&str, &str)], number: u64) -> Result<Seen, LoadError> {
    let others = others.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let files = Box::new(OneFile { source: source.to_owned(), others });
    let env = vec![("HOST".to_owned(), "one.test".to_owned())];
    let program = Arc::new(ScriptProgram::new("/s.js", env, files));
    let (host, metrics) = (Rc::new(StillHost::default()), crate::doc::metrics());
    let (user, exports) =
        ScriptUser::load(program, Rc::clone(&host) as Rc<dyn ScriptHost>, Arc::clone(&metrics), number)?;
    Ok(Seen { user, host, metrics, exports })
}

fn seen(source: &str) -> Seen {
    load_with(source, &[], 1).unwrap()
}

fn call(iteration: u64) -> UserReply {
    UserReply::Call(ScriptCall { function: "default".to_owned(), iteration, ..ScriptCall::default() })
}

fn ok(body: &str) -> UserResponse {
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("set-cookie".to_owned(), "s=1; Path=/".to_owned()),
    ];
    UserResponse {
        status: 200,
        proto: "HTTP/1.1".to_owned(),
        headers,
        body: body.into(),
        ..UserResponse::default()
    }
}

impl Seen {
    /// Runs an iteration; each request gets this body.
    fn iterate(&mut self, body: &str) -> (CallEnd, Vec<UserRequest>) {
        let (mut action, mut sent) = (self.user.resume(call(0)), Vec::new());
        loop {
            let reply = match action {
                UserAction::Ended(end) => return (end, sent),
                UserAction::Sleep(time) => {
                    self.host.now.set(self.host.now.get() + time);
                    UserReply::Slept
                }
                UserAction::Send(batch) => {
                    sent.extend(batch.requests.iter().cloned());
                    UserReply::Responses(
                        batch.requests.into_iter().map(|request| (request, ok(body))).collect(),
                    )
                }
            };
            action = self.user.resume(reply);
        }
    }

    fn value(&mut self, body: &str) -> String {
        match self.iterate(body).0 {
            CallEnd::Returned(value) => value.unwrap_or_default(),
            other => panic!("{other:?} {:?}", self.host.lines.borrow()),
        }
    }
}

#[test]
fn a_script_pauses_inside_its_calls() {
    let mut seen = seen(
        "import http from 'k6/http'; import { check, sleep, group } from 'k6';
         export const options = { vus: 2, duration: '3s' };
         export default function () {
           group('login', () => {
             const res = http.post(`http://${__ENV.HOST}/login`, { user: 'a b', n: 1 }, { headers: { X: 'y' }, tags: { name: 'in', k: 'v' } });
             check(res, { 'is 200': (r) => r.status === 200, 'is 404': (r) => r.status === 404 });
             sleep(1.5);
           });
           return http.get('http://one.test/').json('a.1.b');
         }",
    );
    assert_eq!(seen.exports.functions, ["default"]);
    assert_eq!(seen.exports.options, serde_json::json!({ "vus": 2, "duration": "3s" }));
    let (end, sent) = seen.iterate("{\"a\":[0,{\"b\":7}]}");
    assert_eq!(end, CallEnd::Returned(Some("7".to_owned())));
    assert_eq!(sent[0].body, b"user=a+b&n=1");
    assert_eq!(sent[0].headers[0], ("X".to_owned(), "y".to_owned()));
    assert!(
        sent[0]
            .headers
            .contains(&("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned()))
    );
    assert_eq!((sent[0].tags.name.as_deref(), &*sent[0].tags.group), (Some("in"), "::login"));
    assert_eq!((sent[1].method.as_str(), &*sent[1].tags.group), ("GET", ""));
    let metrics = seen.metrics.lock().unwrap();
    let checks: Vec<_> = metrics.checks().iter().map(|c| (c.name.as_str(), c.passes, c.fails)).collect();
    assert_eq!(checks, [("is 200", 1, 0), ("is 404", 0, 1)]);
    let groups = metrics.named("group_duration").unwrap();
    assert_eq!(groups.sink.value("max", 1.0), Some(1500.0));
}

#[test]
fn responses_have_what_scripts_read() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default function () {
           const res = http.get(http.url`http://one.test/items/${7}`, { cookies: { c: '1' } });
           return [res.status, res.url, res.headers['Content-Type'], res.cookies.s[0].value, res.json().n, res.body.length,
             res.timings.duration, res.request.method, res.status_text, res.json('none') === undefined, JSON.parse(JSON.stringify(res)).status];
         }",
    );
    let value = seen.value("{\"n\": 1}");
    assert_eq!(
        value,
        "[200,\"http://one.test/items/7\",\"application/json\",\"1\",1,8,0,\"GET\",\"200 OK\",true,200]"
    );
}

#[test]
fn batches_keep_names_and_order() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default function () {
           const a = http.batch(['http://one.test/1', ['POST', 'http://one.test/2', 'x'], { method: 'PUT', url: 'http://one.test/3' }]);
           const b = http.batch({ front: 'http://one.test/4' });
           return [a.length, b.front.url];
         }",
    );
    let (end, sent) = seen.iterate("");
    assert_eq!(end, CallEnd::Returned(Some("[3,\"http://one.test/4\"]".to_owned())));
    let lines: Vec<_> = sent.iter().map(|r| format!("{} {}", r.method, r.url.path())).collect();
    assert_eq!(lines, ["GET /1", "POST /2", "PUT /3", "GET /4"]);
}

#[test]
fn what_a_script_throws_ends_its_iteration_alone() {
    let mut seen = seen(
        "import { fail } from 'k6'; let n = 0; export default function () { if (n++ === 0) fail('so'); return n; }",
    );
    let (end, _) = seen.iterate("");
    let CallEnd::Threw(why) = end else { panic!("{end:?}") };
    assert!(why.starts_with("Error: so") && why.contains("/s.js:1"), "{why}");
    assert_eq!(seen.value(""), "2");
}

#[test]
fn a_user_that_is_stopped_sends_nothing_more_whatever_it_catches() {
    let mut seen = seen(
        "import http from 'k6/http'; import { sleep } from 'k6';
         export default function () { for (;;) { try { sleep(1); http.get('http://one.test/'); } catch (e) {} } }",
    );
    assert!(matches!(seen.user.resume(call(0)), UserAction::Sleep(_)));
    assert!(matches!(seen.user.resume(UserReply::Stop), UserAction::Ended(CallEnd::Stopped)));
}

/// Its clock goes on by itself.
struct RunningHost(Cell<Time>);

impl ScriptHost for RunningHost {
    fn now(&self) -> Time {
        self.0.set(self.0.get() + Duration::from_millis(500));
        self.0.get()
    }
    fn log(&self, _: &str, _: &str) {}
    fn facts(&self) -> RunFacts {
        RunFacts::default()
    }
    fn fail(&self, _: &str) {}
}

#[test]
fn an_endless_loop_is_cut_off() {
    for source in ["export default function () { for (;;) {} }", "for (;;) {} export default function () {}"]
    {
        let program = Arc::new(ScriptProgram::new("/s.js", Vec::new(), crate::doc::files(source)));
        let host = Rc::new(RunningHost(Cell::new(Time::ZERO)));
        let why = match ScriptUser::load(program, host, crate::doc::metrics(), 1) {
            Ok((mut user, _)) => match user.resume(call(0)) {
                UserAction::Ended(CallEnd::Threw(why)) => why,
                other => panic!("{other:?}"),
            },
            Err(error) => error.to_string(),
        };
        assert!(why.contains("endless loop"), "{why}");
    }
}

#[test]
fn a_script_that_calls_itself_without_end_throws() {
    let mut seen = seen("function f() { return 1 + f(); } export default function () { f(); }");
    let CallEnd::Threw(why) = seen.iterate("").0 else { panic!() };
    assert!(why.contains("stack"), "{why}");
}

#[test]
fn what_is_not_there_is_named_with_its_line() {
    let why = |source: &str| load_with(source, &[], 1).err().unwrap().to_string();
    assert_eq!(
        why("\nimport { browser } from 'k6/browser';"),
        "/s.js:2: the browser module is not supported"
    );
    assert!(why("import sql from 'k6/x/sql';").contains("/s.js:1: extensions are not supported"));
    assert!(why("import grpc from 'k6/net/grpc';").contains("k6/net/grpc is not supported"));
    assert!(why("import a from 'https://example.org/a.js';").contains("is not fetched"));
    assert!(why("let a = ;").contains("SyntaxError"));
    assert!(why("throw new Error('no')").contains("Error: no"));
}

#[test]
fn local_files_and_modules_of_ours_are_imported() {
    let source = "import { twice } from './lib/a.js'; import { SharedArray } from 'k6/data';
        import { randomItem, uuidv4 } from 'https://jslib.k6.io/k6-utils/1.4.0/index.js';
        const users = new SharedArray('users', () => JSON.parse(open('./users.json')));
        export default function () { return [twice(4), users.length, users[1].name, [...users].length, users.map((u) => u.name), uuidv4().length, randomItem([3])]; }";
    let others = [
        ("/lib/a.js", "export const twice = (n) => 2 * n;"),
        ("/users.json", "[{\"name\":\"a\"},{\"name\":\"b\"}]"),
    ];
    let mut seen = load_with(source, &others, 1).unwrap();
    assert_eq!(seen.value(""), "[8,2,\"b\",2,[\"a\",\"b\"],36,3]");
}

#[test]
fn hashes_and_encodings_are_those_of_k6() {
    let mut seen = seen(
        "import crypto from 'k6/crypto'; import encoding from 'k6/encoding';
         export default function () { return [crypto.sha256('hello', 'hex'), crypto.hmac('sha256', 'secret', 'hello', 'base64'),
           encoding.b64encode('hi?>'), encoding.b64encode('hi?>', 'rawurl'), encoding.b64decode('aGk=', 'std', 's'), new Uint8Array(encoding.b64decode('aGk=')).length,
           crypto.createHash('sha1').update('a').update(new Uint8Array([98]).buffer).digest('hex')]; }",
    );
    let value: Vec<serde_json::Value> = serde_json::from_str(&seen.value("")).unwrap();
    assert_eq!(value[0], "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(value[1], "iKqz7ejTrflNJquQ07r9SiCDBww7zOnAFO4EpEOEfAs=");
    assert_eq!(
        value[2..6],
        ["aGk/Pg==", "aGk_Pg", "hi"]
            .map(serde_json::Value::from)
            .into_iter()
            .chain([2.into()])
            .collect::<Vec<_>>()[..]
    );
    assert_eq!(value[6], "da23614e02469a0d7c7bd1bdab5c9c474b1904dc");
}

#[test]
fn jars_are_emptied_between_iterations() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default function () { const jar = http.cookieJar(); const before = Object.keys(jar.cookiesForURL('http://one.test/')).length;
           jar.set('http://one.test/', 'a', '1'); return [before, jar.cookiesForURL('http://one.test/').a[0]]; }",
    );
    assert_eq!((seen.value(""), seen.value("")), ("[0,\"1\"]".to_owned(), "[0,\"1\"]".to_owned()));
}

#[test]
fn a_script_knows_where_it_is_and_aborts() {
    let mut seen = seen(
        "import exec from 'k6/execution';
         export default function () { if (__ITER === 3) exec.test.abort('enough'); return [exec.scenario.name, exec.vu.idInTest, __VU, exec.scenario.iterationInTest]; }",
    );
    let place = UserCallPlace { scenario: "a".into(), in_scenario: 9, ..UserCallPlace::default() };
    let call = |iteration| {
        UserReply::Call(ScriptCall {
            function: "default".into(),
            iteration,
            place: place.clone(),
            argument: None,
        })
    };
    let UserAction::Ended(end) = seen.user.resume(call(0)) else { panic!() };
    assert_eq!(end, CallEnd::Returned(Some("[\"a\",1,1,9]".to_owned())));
    let UserAction::Ended(end) = seen.user.resume(call(3)) else { panic!() };
    assert_eq!(end, CallEnd::Aborted("enough".to_owned()));
}

#[test]
fn async_functions_run_to_their_end() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default async function () { const res = await http.asyncRequest('GET', 'http://one.test/'); return await Promise.resolve(res.status + 1); }",
    );
    assert_eq!(seen.value(""), "201");
}

#[test]
fn bodies_are_what_params_ask_for() {
    let mut seen = seen(
        "import http from 'k6/http';
         export default function () {
           const binary = http.get('http://one.test/', { responseType: 'binary', timeout: '5s', redirects: 0 });
           http.post('http://one.test/', { f: http.file('data', 'a.txt', 'text/plain'), k: 'v' });
           http.post('http://one.test/', new Uint8Array([1, 255]).buffer);
           return [new Uint8Array(binary.body).length, http.get('http://one.test/', { responseType: 'none' }).body, http.get('nowhere').error_code];
         }",
    );
    let (end, sent) = seen.iterate("abc");
    assert_eq!(end, CallEnd::Returned(Some("[3,null,1020]".to_owned())));
    assert_eq!(
        (sent[0].timeout, sent[0].redirects, sent[0].response),
        (Duration::from_secs(5), 0, ResponseKind::Binary)
    );
    let form = String::from_utf8_lossy(&sent[1].body);
    assert!(
        form.contains("name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\ndata\r\n"),
        "{form}"
    );
    assert_eq!(sent[2].body, [1, 255]);
}

#[test]
fn two_users_rest_at_the_same_time() {
    let source = "import { sleep } from 'k6'; export default function () { let n = __VU; for (let i = 0; i < 3; i++) { sleep(1); n *= 10; } return n; }";
    let mut users: Vec<_> = (1..=50).map(|n| load_with(source, &[], n).unwrap().user).collect();
    users.iter_mut().for_each(|user| assert!(matches!(user.resume(call(0)), UserAction::Sleep(_))));
    for _ in 0..2 {
        users
            .iter_mut()
            .rev()
            .for_each(|user| assert!(matches!(user.resume(UserReply::Slept), UserAction::Sleep(_))));
    }
    for (n, user) in users.iter_mut().enumerate() {
        let UserAction::Ended(end) = user.resume(UserReply::Slept) else { panic!() };
        assert_eq!(end, CallEnd::Returned(Some(((n + 1) * 1000).to_string())));
    }
}
