//! Servers that break over HTTP/2 and TLS, each in its way: what `load` says of them is what they did.

mod common;

use std::time::Duration;

use common::{Said, measured, number};
use linerate_broken::frames::{FrameBytes, OK, kind};
use linerate_broken::{Broken, BrokenTls, CUT, Manner, Reply, ScriptRequest, StreamBehaviour, Then};
use serde_json::Value;

/// A run: its document, and its summary without line ends.
struct Run {
    document: Value,
    words: String,
}

impl Run {
    fn number(&self, pointer: &str) -> u64 {
        number(&self.document, pointer)
    }

    fn says(&self, words: &str) {
        assert!(self.words.contains(words), "{words:?} is not in {}", self.words);
    }
}

fn load(flags: &[&str], server: &Broken) -> Run {
    let url = format!("{}{{{{seq}}}}", server.url());
    let mut args = flags.to_vec();
    args.push(&url);
    let (document, Said { err, .. }) = measured(&args);
    let words = err.split_whitespace().collect::<Vec<_>>().join(" ");
    let run = Run { document, words };
    let of = |name: &str| run.number(&format!("/requests/{name}"));
    assert_eq!(of("sent"), of("answered") + of("failed") + of("unknown"), "{}", run.words);
    assert!(server.counts().requests <= of("sent") + of("resent"), "{}", run.words);
    run
}

fn h2(script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static) -> Broken {
    Broken::with(Manner { http2: Some(StreamBehaviour::default()), ..Manner::default() }, script)
}

fn good(asked: &ScriptRequest<'_>) -> Reply {
    Reply::with(FrameBytes::new().good(asked.stream).0)
}

/// A server that breaks three replies in ten.
fn three_in_ten(bad: fn(u32) -> FrameBytes) -> Broken {
    h2(move |asked| match asked.nth % 10 {
        0..3 => Reply::broken(bad(asked.stream).0, Then::Keep),
        _ => good(asked),
    })
}

#[test]
fn a_stream_that_is_reset_has_failed_with_its_code() {
    for method in ["GET", "POST"] {
        let server = three_in_ten(|s| FrameBytes::new().reset(s, 2));
        let run = load(&["--http2", "-c", "4", "-n", "200", "-X", method], &server);
        assert_eq!((run.number("/failures/reset"), run.number("/requests/resent")), (60, 0), "{method}");
        assert_eq!(run.number("/failures_detail/INTERNAL_ERROR"), 60);
        assert_eq!(server.counts().requests, 200, "nothing went out twice");
        run.says("the server reset the stream: INTERNAL_ERROR");
    }
}

#[test]
fn a_refused_stream_goes_out_again_unless_nothing_may() {
    let refuses = || {
        h2(|asked| match asked.nth % 10 {
            0 => Reply::broken(FrameBytes::new().reset(asked.stream, 7).0, Then::Keep),
            _ => good(asked),
        })
    };
    let server = refuses();
    let run = load(&["--http2", "-c", "4", "-n", "200", "-X", "POST"], &server);
    assert_eq!((run.number("/requests/failed"), server.numbers().served), (0, 200));
    assert_eq!(run.number("/requests/resent"), run.number("/http2/refused"));
    run.says("because the server refused the stream without processing the request");
    let run = load(&["--http2", "-c", "4", "-n", "200", "--resend", "never"], &refuses());
    assert_eq!((run.number("/failures/refused_stream"), run.number("/requests/resent")), (20, 0));
}

#[test]
fn responses_behind_the_end_are_surplus() {
    let server = three_in_ten(|s| FrameBytes::new().good(s).headers(s, OK).last_data(s, b"more"));
    let run = load(&["--http2", "-c", "4", "-n", "200"], &server);
    assert_eq!((run.number("/requests/answered"), run.number("/requests/unsolicited_responses")), (200, 60));
    run.says("60 responses that no request had asked for");
}

#[test]
fn only_the_cause_of_a_connection_error_fails() {
    let server = h2(|asked| match asked.number() {
        Some(n) if n % 50 == 20 => {
            Reply::broken(FrameBytes::new().frame(kind::SETTINGS, 0, 0, b"short").0, Then::Keep)
        }
        _ => good(asked).after(Duration::from_millis(2)),
    });
    let run = load(&["--http2", "-c", "2", "-p", "8", "-n", "200"], &server);
    assert_eq!((run.number("/requests/failed"), run.number("/failures/malformed")), (4, 4), "{}", run.words);
    run.says("because an error ended the connection (each went out alone)");
}

/// A server that admits no streams any more: what never left waited for that, and for no response.
#[test]
fn a_server_that_admits_no_streams_is_named_with_the_time() {
    let later = (Duration::from_secs(1), (|| FrameBytes::new().settings(&[(3, 0)]).0) as fn() -> Vec<u8>);
    let behaviour = StreamBehaviour { later: Some(later), ..StreamBehaviour::default() };
    let server = Broken::with(Manner { http2: Some(behaviour), ..Manner::default() }, good);
    let run = load(&["--http2", "-c", "2", "-r", "200", "-d", "2s"], &server);
    let unsent = run.number("/requests/unsent");
    assert!(unsent > 0 && run.number("/requests/unsent_shut") == unsent, "{}", run.words);
    run.says("of those due): the server admitted no streams");
    run.says("the server admits 0 to 100 streams on a connection; it admitted none for ");
    assert!(!run.words.contains("waiting for an answer"), "{}", run.words);
}

#[test]
fn an_alert_on_a_working_connection_is_no_failure_to_connect() {
    for (bytes, why) in [(&b""[..], "closed_early"), (CUT, "truncated")] {
        let tls = Manner { tls: Some(BrokenTls::default()), ..Manner::default() };
        let server = Broken::with(tls, move |asked| match asked.nth % 10 {
            0..3 => Reply::broken(bytes, Then::Alert),
            _ => Reply::good(),
        });
        let run = load(&["-k", "-c", "4", "-n", "200", "--resend", "never"], &server);
        assert_eq!((run.number(&format!("/failures/{why}")), run.number("/failures/connect")), (60, 0));
        run.says("TLS: the peer ended the connection by an alert: BadRecordMac");
        assert_eq!(run.document["tls"]["cipher"], "TLS_AES_256_GCM_SHA384");
    }
}
