//! Timers, asynchronous requests and promises.

use super::*;

#[test]
fn timers_fire_in_the_order_of_their_times() {
    let mut seen = seen(
        "import { setTimeout as later } from 'k6/timers';
         export default async function () {
           const seen = [];
           later((x) => seen.push(x), 20, 'b');
           setTimeout((x) => seen.push(x), 10, 'a');
           clearTimeout(setTimeout(() => seen.push('never'), 5));
           const id = setInterval(() => { seen.push(seen.length); if (seen.length > 4) clearInterval(id); }, 7);
           await new Promise((resolve) => setTimeout(resolve, 100));
           return seen;
         }",
    );
    assert_eq!(seen.value(""), "[0,\"a\",2,\"b\",4]");
    assert_eq!(seen.host.now.get(), Time::ZERO + Duration::from_millis(100));
}

#[test]
fn an_iteration_waits_for_its_timers() {
    let mut seen = seen(
        "import http from 'k6/http'; import { sleep } from 'k6';
         export default function () { setTimeout(() => http.get('http://one.test/late'), 50); http.get('http://one.test/now'); sleep(1); return 5; }",
    );
    let (end, sent) = seen.iterate("");
    assert_eq!(end, CallEnd::Returned(Some("5".to_owned())));
    let paths: Vec<_> = sent.iter().map(|request| request.url.path()).collect();
    assert_eq!(paths, ["/now", "/late"]);
}

#[test]
fn asynchronous_requests_of_one_turn_leave_together() {
    let mut seen = seen(
        "import http from 'k6/http'; import { group } from 'k6';
         export default async function () {
           let bad; try { await http.asyncRequest('GET', 'nowhere'); bad = 'none'; } catch (e) { bad = String(e); }
           const all = group('g', () => ['a', 'b', 'c'].map((x) => http.asyncRequest('POST', `http://one.test/${x}`, x)));
           return [bad, (await Promise.all(all)).map((res) => res.url)];
         }",
    );
    let UserAction::Send(batch) = seen.user.resume(call(0)) else { panic!() };
    let sent: Vec<_> = batch.requests.iter().map(|r| (r.url.path(), r.body.as_slice())).collect();
    assert_eq!(sent, [("/a", b"a".as_slice()), ("/b", b"b"), ("/c", b"c")]);
    assert!(batch.requests.iter().all(|request| &*request.tags.group == "::g"));
    let replies = batch.requests.into_iter().map(|request| (request, ok(""))).collect();
    let UserAction::Ended(CallEnd::Returned(Some(value))) = seen.user.resume(UserReply::Responses(replies))
    else {
        panic!()
    };
    assert_eq!(value, "[\"none\",[\"http://one.test/a\",\"http://one.test/b\",\"http://one.test/c\"]]");
}

#[test]
fn what_nobody_catches_ends_the_iteration_alone() {
    let thrown = |body: &str| {
        let mut seen = seen(&format!(
            "export default async function () {{ if (__ITER === 0) {{ {body} }} return 'fine'; }}"
        ));
        let UserAction::Ended(first) = drive(&mut seen, 0) else { panic!() };
        let UserAction::Ended(second) = drive(&mut seen, 1) else { panic!() };
        assert_eq!(second, CallEnd::Returned(Some("\"fine\"".to_owned())), "{body}");
        first
    };
    for body in [
        "setTimeout(() => { throw new Error('late'); }, 1); setInterval(() => {}, 10);",
        "Promise.reject(new Error('late'));",
        "setTimeout(async () => { throw new Error('late'); }, 1);",
        "await new Promise((_, reject) => setTimeout(() => reject(new Error('late')), 5));",
        "throw new Error('late');",
    ] {
        let CallEnd::Threw(why) = thrown(body) else { panic!("{body}") };
        assert!(why.starts_with("Error: late") && why.contains("/s.js"), "{body}: {why}");
    }
    for body in ["Promise.reject(new Error('caught')).catch(() => {});", "await new Promise(() => {});"] {
        assert!(matches!(thrown(body), CallEnd::Returned(_)), "{body}");
    }
}

/// Runs an iteration that only pauses.
fn drive(seen: &mut Seen, iteration: u64) -> UserAction {
    let mut action = seen.user.resume(call(iteration));
    while let UserAction::Sleep(time) = action {
        seen.host.now.set(seen.host.now.get() + time);
        action = seen.user.resume(UserReply::Slept);
    }
    action
}

#[test]
fn an_endless_interval_ends_with_its_iteration() {
    let mut seen = seen("export default function () { setInterval(() => {}, 1000); }");
    assert!(matches!(seen.user.resume(call(0)), UserAction::Sleep(_)));
    assert!(matches!(seen.user.resume(UserReply::Slept), UserAction::Sleep(_)));
    assert!(matches!(seen.user.resume(UserReply::Stop), UserAction::Ended(CallEnd::Stopped)));
}

#[test]
fn timers_have_a_bound_and_a_place() {
    let mut many = seen("export default function () { for (;;) setTimeout(() => {}, 1); }");
    let CallEnd::Threw(why) = many.iterate("").0 else { panic!() };
    assert!(why.contains("more than 1000 timers"), "{why}");
    let why = load_with("setTimeout(() => {}, 1); export default function () {}", &[], 1).err().unwrap();
    assert!(why.to_string().contains("init context"), "{why}");
    let mut none = seen("export default function () { setTimeout('text', 1); }");
    let CallEnd::Threw(why) = none.iterate("").0 else { panic!() };
    assert!(why.contains("setTimeout() needs a function"), "{why}");
}
