//! What a test of a handler needs: requests built, responses read, errors as responses; and that the library prints nothing.
#![allow(clippy::unwrap_used)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use linerate_serve::{
    Address, BodyError, Handler, Request, RequestHead, Response, RouteLimits, ServerOptions, blocking, sleep,
    spawn_with, testing,
};

type Failure = Box<dyn Error + Send + Sync>;

#[test]
fn a_request_is_built_as_a_client_sends_it() {
    let mut request = Request::builder("POST", "/a%20b?c=d")
        .field("X-One", "1")
        .body_in_pieces(["x", "yz"])
        .peer("192.0.2.1:7".parse().unwrap())
        .listener("10.0.0.1:80".parse::<Address>().unwrap())
        .build()
        .unwrap();
    assert_eq!((request.path(), request.query(), request.field("x-one")), ("/a%20b", Some("c=d"), Some("1")));
    assert_eq!((request.field("host"), request.peer().unwrap().port()), (Some("localhost"), 7));
    assert_eq!(request.listener().unwrap().to_string(), "10.0.0.1:80");
    assert_eq!(testing::block_on(request.body().collect(3)).unwrap(), "xyz");
    let unix = Request::builder("GET", "/").listener("unix:/x".parse().unwrap()).build().unwrap();
    assert_eq!(unix.peer(), None);
    for (method, target, name, value) in [
        ("GET", "/ x", "a", "b"),
        ("G T", "/", "a", "b"),
        ("GET", "/", "a b", "c"),
        ("GET", "/", "a", "b\r\nc: d"),
        ("GET", "/\r\nc: d", "a", "b"),
        ("GET", "/", "host", ""),
        ("GET", "/", "content-length", "5"),
    ] {
        let built = Request::builder(method, target).field(name, value).body("x").build();
        assert!(built.is_err(), "{method} {target} {name}: {value:?}");
    }
}

#[test]
fn a_response_is_read_whole_or_streamed() {
    let mut whole = Response::text("abc").with_field("x-a", "1").unwrap().with_field("X-A", "2").unwrap();
    let fields: Vec<_> = whole.fields().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    assert_eq!((fields.len(), whole.field("x-a"), whole.field("x-b")), (3, Some("1"), None));
    assert_eq!(whole.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(testing::body(&mut whole).unwrap(), "abc");
    let stream = || {
        let (sender, pieces) = tokio::sync::mpsc::channel(8);
        sender.try_send(Ok::<_, Failure>(Bytes::from("ab"))).unwrap();
        sender.try_send(Ok(Bytes::from("c"))).unwrap();
        (sender, Response::status(200).with_stream(pieces))
    };
    let (sender, mut streamed) = stream();
    drop(sender);
    assert_eq!(testing::block_on(streamed.collect(3)).unwrap(), "abc");
    let (sender, mut broken) = stream();
    sender.try_send(Err("cut".into())).unwrap();
    assert_eq!(testing::body(&mut broken).unwrap_err().to_string(), "cut");
    let (_open, mut long) = stream();
    assert!(testing::block_on(long.collect(2)).is_err());
}

#[test]
fn sleeps_pass_at_once_in_their_order_and_tokios_take_their_time() {
    let begun = Instant::now();
    let order = testing::block_on(async {
        let order = Mutex::new(Vec::new());
        let one = async {
            sleep(Duration::from_secs(7200)).await;
            order.lock().unwrap().push(2);
        };
        let other = async {
            sleep(Duration::from_secs(3600)).await;
            order.lock().unwrap().push(1);
        };
        futures_util::future::join(one, other).await;
        order.into_inner().unwrap()
    });
    assert_eq!(order, [1, 2]);
    testing::block_on(async { tokio::spawn(tokio::time::sleep(Duration::from_millis(2))).await.unwrap() });
    assert!(begun.elapsed() < Duration::from_secs(60));
}

async fn failing(mut request: Request) -> Result<Response, Failure> {
    match request.path() {
        "/number" => Ok(Response::text(format!("{}\n", request.query().unwrap_or_default().parse::<u8>()?))),
        "/body" => Ok(Response::text(request.body().collect(4).await?)),
        _ => Ok(Response::text(blocking(|| "done\n").await?)),
    }
}

#[test]
fn errors_become_responses() {
    let get = |path: &str| testing::call(&failing, Request::builder("GET", path).build().unwrap());
    assert_eq!((get("/number?7").code(), get("/number?x").code(), get("/").code()), (200, 500, 200));
    let mut hidden = get("/number?x");
    assert_eq!(testing::body(&mut hidden).unwrap(), "500 Internal Server Error: the handler failed\n");
    let large = Request::builder("POST", "/body").body("12345").build().unwrap();
    assert_eq!(testing::call(&failing, large).code(), 413);
    assert_eq!(Response::from(BodyError::Ended).code(), 400);
}

/// An error whose response cannot be made.
struct Explosive;

impl From<Explosive> for Response {
    fn from(_: Explosive) -> Response {
        panic!("no response for this")
    }
}

#[test]
fn an_error_that_panics_is_a_handler_that_does() {
    let server = spawn_with(ServerOptions::default(), || {
        |_: Request| async {
            tokio::task::yield_now().await;
            Err::<Response, Explosive>(Explosive)
        }
    })
    .unwrap();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    }
    assert_eq!(server.stop().panics, 2);
}

/// Collects what the library reports.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Heard {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl tracing::Subscriber for Heard {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("linerate_serve")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The watchdog's thread reports, so the subscriber must be everybody's.
#[test]
fn what_there_is_to_say_is_an_event() {
    let heard = Heard::default();
    tracing::subscriber::set_global_default(heard.clone()).unwrap();
    let server = spawn_with(ServerOptions::default(), || {
        |_: Request| async {
            std::thread::sleep(Duration::from_millis(100));
            Response::text("slept\n")
        }
    })
    .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !heard.0.lock().unwrap().iter().any(|line| line.starts_with("the handler of GET /slow held")) {
        assert!(Instant::now() < until, "{:?}", heard.0.lock().unwrap());
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// The library's own text goes through `tracing`: nothing in its sources prints.
#[test]
fn the_library_does_not_print() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let prints = ["println!", "eprintln!", "print!(", "dbg!"].iter().any(|p| line.contains(p));
                assert!(!prints, "{}: {line}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} files");
}

/// The name of the thread that runs this, and of one that runs a task, a timer and blocking work.
async fn threads(_: Request) -> Response {
    let name = || std::thread::current().name().unwrap_or_default().to_owned();
    let spawned = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(async { name() }))
    });
    let inline = tokio::task::block_in_place(name);
    Response::text(format!("{inline} {}", spawned.await.unwrap()))
}

fn call(server: &linerate_serve::Handle) -> String {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// What handlers spawn runs in the runtime that the server was started in; they themselves on its
/// loops.
#[test]
fn handlers_use_the_runtime_of_the_caller() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("theirs")
        .enable_all()
        .build()
        .unwrap();
    let inside = runtime.block_on(async { spawn_with(ServerOptions::default(), || threads).unwrap() });
    let outside = spawn_with(ServerOptions { threads: 2, ..ServerOptions::default() }, || threads).unwrap();
    for (server, theirs) in [(&inside, "theirs"), (&outside, "tokio")] {
        let names = call(server);
        let (inline, spawned) = names.split_once(' ').unwrap();
        assert!(inline.starts_with("serve-") && spawned == theirs, "{names}");
    }
    let stopped = runtime.block_on(inside.stop_on(async {}));
    assert_eq!((stopped.requests, stopped.open), (1, 0));
    // It goes on without the server.
    assert_eq!(runtime.block_on(async { tokio::spawn(async { 7 }).await.unwrap() }), 7);
}

/// A handler stops its server, and its own response is sent.
#[test]
fn a_handler_stops_its_server_and_all_who_wait_hear_of_it() {
    let stopper: Arc<std::sync::OnceLock<linerate_serve::Stopper>> = Arc::default();
    let make = {
        let stopper = Arc::clone(&stopper);
        move || {
            let stopper = Arc::clone(&stopper);
            move |_: Request| {
                stopper.get().unwrap().stop();
                std::future::ready(Response::text("the last one"))
            }
        }
    };
    let server = spawn_with(ServerOptions::default(), make.clone()).unwrap();
    assert!(stopper.set(server.stopper()).is_ok());
    assert_eq!(call(&server), "the last one");
    assert_eq!(server.wait().requests, 1);

    let server = spawn_with(ServerOptions { threads: 2, ..ServerOptions::default() }, make).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    server.stopper().stop();
    assert_eq!(runtime.block_on(server.stopped()).open, 0);
}

/// A current-thread runtime is driven by the caller's `block_on`.
#[tokio::test]
async fn a_current_thread_runtime_serves_handlers_while_it_waits() {
    async fn slow(_: Request) -> Response {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let spawned = tokio::spawn(async { std::thread::current().id() }).await.unwrap();
        Response::text(format!("{spawned:?}"))
    }
    let server = Arc::new(spawn_with(ServerOptions::default(), || slow).unwrap());
    let theirs = Arc::clone(&server);
    let called = tokio::task::spawn_blocking(move || call(&theirs)).await.unwrap();
    assert_eq!(called, format!("{:?}", std::thread::current().id()));
    let server = Arc::into_inner(server).unwrap();
    assert_eq!(server.stop_on(async {}).await.requests, 1);
}

/// One loop per core is the default.
#[test]
fn there_is_a_loop_for_each_core() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let server = spawn_with(ServerOptions::default(), || {
        async |_: Request| Response::text(std::thread::current().name().unwrap_or_default().to_owned())
    })
    .unwrap();
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    // The kernel spreads connections by a hash.
    while seen.len() < cores {
        seen.insert(call(&server));
        assert!(begun.elapsed() < Duration::from_secs(20), "{seen:?} of {cores}");
    }
    assert!((0..200).all(|_| seen.contains(&call(&server))), "there are no more than {seen:?}");
}

#[test]
fn requests_carry_extensions_and_a_method_of_the_crate_http() {
    #[derive(Clone, Debug, PartialEq)]
    struct User(&'static str);
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
        let mut request = Request::builder(method, "/").build().unwrap();
        assert_eq!(request.method().as_str(), method);
        request.extensions_mut().insert(User("ann"));
        assert_eq!(request.extensions().get(), Some(&User("ann")));
    }
    // A service behind a handler finds them.
    let who = |axum::Extension(user): axum::Extension<User>| async move { user.0 };
    let app: axum::Router = axum::Router::new().route("/", axum::routing::get(who));
    let inner = linerate_serve::tower(app.with_state(()));
    let inner = std::rc::Rc::new(inner);
    let outer = move |mut request: Request| {
        let inner = std::rc::Rc::clone(&inner);
        async move {
            request.extensions_mut().insert(User("ann"));
            linerate_serve::Handler::call(&*inner, request).await
        }
    };
    let mut response = testing::call(&outer, Request::builder("GET", "/").build().unwrap());
    assert_eq!(testing::body(&mut response).unwrap(), "ann");
}

/// A handler whose route `/small` takes bodies of 10 bytes, and gives them no time.
struct Limited;

impl Handler for Limited {
    type Future = std::pin::Pin<Box<dyn Future<Output = Response>>>;

    fn call(&self, mut request: Request) -> Self::Future {
        Box::pin(async move {
            match request.body().collect(1 << 20).await {
                Ok(body) => Response::text(format!("{} bytes", body.len())),
                Err(_) => Response::status(400),
            }
        })
    }

    fn limits(&self, head: &RequestHead, _: Option<&Address>) -> RouteLimits {
        match head.path() {
            "/small" => {
                RouteLimits { body: Some(10), body_time: Some(Duration::ZERO), ..RouteLimits::default() }
            }
            _ => RouteLimits::default(),
        }
    }
}

#[test]
fn a_handler_has_limits_of_its_own_for_a_route() {
    let server = spawn_with(ServerOptions::default(), || Limited).unwrap();
    let answer = |path: &str, announced: usize, sent: usize| {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {announced}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &vec![b'b'; sent]].concat()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        String::from_utf8_lossy(&first[9..]).into_owned()
    };
    assert_eq!((answer("/small", 10, 10), answer("/small", 11, 11)), ("200".to_owned(), "413".to_owned()));
    assert_eq!((answer("/", 11, 11), answer("/", 100_000, 100_000)), ("200".to_owned(), "200".to_owned()));
    assert_eq!(answer("/small", 10, 5), "408");
}
