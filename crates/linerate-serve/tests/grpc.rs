//! A tonic service, unchanged, called by tonic's own client: each kind of call, and errors.
#![allow(clippy::unwrap_used)]

#[path = "../examples/grpc/helloworld.rs"]
mod helloworld;
#[path = "../examples/grpc/service.rs"]
mod service;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::map_response;
use futures_util::{StreamExt, stream};
use helloworld::greeter_client::GreeterClient;
use helloworld::greeter_server::GreeterServer;
use helloworld::{HelloReply, HelloRequest, Number};
use http::Response;
use http_body_util::BodyExt;
use linerate_serve::{Handle, Io, ServerOptions, spawn_with, tower};
use linerate_skips::{need, skip_part};
use service::{MOST, MyGreeter};
use tokio::sync::mpsc;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const PATIENCE: Duration = Duration::from_secs(60);

/// The service among an axum app's routes, as tonic's own `Routes` has it. The number of calls whose
/// responses have not ended, nor were given up, is in `open`.
fn server(io: Io, open: &Arc<()>) -> std::io::Result<Handle> {
    let open = Arc::downgrade(open);
    let counted = move |response: Response<Body>| {
        let open = open.upgrade();
        response.map(|body| Body::new(body.map_frame(move |frame| (&open, frame).1)))
    };
    let app = Router::new()
        .route_service("/helloworld.Greeter/{*method}", GreeterServer::new(MyGreeter))
        .layer(map_response(move |response| std::future::ready(counted(response))))
        .with_state::<()>(());
    spawn_with(ServerOptions { io, ..ServerOptions::default() }, move || tower(app.clone()))
}

/// Runs a test on each transport: with what counts the calls that are open, and a channel.
fn on_each<F: Future<Output = ()>>(test: impl Fn(Arc<()>, Channel) -> F) {
    // Its thread continues while the server ends, and closes what is open.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for io in [Io::Epoll, Io::Uring] {
        let open = Arc::new(());
        let server = match server(io, &open) {
            Ok(server) => server,
            Err(error) if io == Io::Uring => return skip_part("over uring", need::IO_URING, error),
            Err(error) => panic!("{error}"),
        };
        runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{}", server.addr())).unwrap();
            let channel = endpoint.connect().await.unwrap();
            tokio::time::timeout(PATIENCE, test(open, channel)).await.expect("in time");
        });
        server.stop();
    }
}

fn hello(name: &str) -> HelloRequest {
    HelloRequest { name: name.to_owned() }
}

#[test]
fn unary_calls_return_a_message_or_an_error() {
    on_each(|_, channel| async move {
        let mut client = GreeterClient::new(channel);
        let reply = client.say_hello(hello("you")).await.unwrap();
        assert_eq!(reply.metadata().get("content-type").unwrap(), "application/grpc");
        assert_eq!(reply.into_inner().message, "Hello you!");
        let status = client.say_hello(hello("")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "the name is empty"));
        // Larger than the first windows, both ways.
        let long = "x".repeat(3_000_000);
        assert_eq!(client.say_hello(hello(&long)).await.unwrap().into_inner().message.len(), 3_000_007);
        // tonic's limit of a message, 4 MiB, is found by tonic on the server's side.
        let status = client.say_hello(hello(&"x".repeat(5_000_000))).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        assert_eq!(client.say_hello(hello("again")).await.unwrap().into_inner().message, "Hello again!");
    });
}

#[test]
fn a_method_that_is_not_there_is_unimplemented() {
    on_each(|_, channel| async move {
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<HelloRequest, HelloReply>::default();
        let path = http::uri::PathAndQuery::from_static("/helloworld.Greeter/SayGoodbye");
        let status = grpc.unary(tonic::Request::new(hello("you")), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

#[test]
fn a_stream_of_responses_ends_with_its_status() {
    on_each(|_, channel| async move {
        let mut client = GreeterClient::new(channel);
        let mut numbers = client.count(Number { value: 900 }).await.unwrap().into_inner();
        let mut next = 1;
        while let Some(number) = numbers.message().await.unwrap() {
            assert_eq!(number.value, next);
            next += 1;
        }
        assert_eq!(next, 901);
        let numbers = client.count(Number { value: MOST + 1 }).await.unwrap().into_inner();
        let all: Vec<_> = numbers.collect().await;
        assert_eq!(all.len() as u64, MOST + 1);
        let status = all.last().unwrap().as_ref().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::OutOfRange, "it counts to 1000"));
    });
}

#[test]
fn a_stream_of_requests_has_one_response() {
    on_each(|_, channel| async move {
        let mut client = GreeterClient::new(channel);
        let numbers = stream::iter((1..=20_000).map(|value| Number { value }));
        assert_eq!(client.sum(numbers).await.unwrap().into_inner().value, 200_010_000);
        // The service ends the call while the client could send for ever.
        let endless = stream::repeat(Number { value: u64::MAX });
        let status = client.sum(endless).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::OutOfRange, "the sum is too large"));
        assert_eq!(client.sum(stream::empty()).await.unwrap().into_inner().value, 0);
    });
}

#[test]
fn both_sides_may_stream_and_wait_for_each_other() {
    on_each(|_, channel| async move {
        let mut client = GreeterClient::new(channel);
        let (say, said) = mpsc::channel(1);
        let names = stream::unfold(said, |mut said| async { Some((said.recv().await?, said)) });
        let mut replies = client.chat(names).await.unwrap().into_inner();
        for name in ["a", "b", "c"] {
            say.send(hello(name)).await.unwrap();
            assert_eq!(replies.message().await.unwrap().unwrap().message, format!("Hello {name}!"));
        }
        say.send(hello("")).await.unwrap();
        assert_eq!(replies.message().await.unwrap_err().code(), Code::InvalidArgument);
    });
}

/// The service's stream is dropped as soon as its client wants no more of it.
#[test]
fn a_call_that_the_client_gives_up_ends_in_the_service() {
    on_each(|open, channel| async move {
        let mut client = GreeterClient::new(channel);
        let mut numbers = client.count(Number { value: 0 }).await.unwrap().into_inner();
        assert_eq!(numbers.message().await.unwrap().unwrap().value, 1);
        assert_eq!(Arc::strong_count(&open), 2);
        drop(numbers);
        while Arc::strong_count(&open) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.say_hello(hello("you")).await.unwrap().into_inner().message, "Hello you!");
    });
}

/// Calls on one connection: none waits for another.
#[test]
fn calls_share_a_connection() {
    on_each(|_, channel| async move {
        let client = GreeterClient::new(channel);
        let calls = (0..200u64).map(|n| {
            let mut client = client.clone();
            async move {
                let numbers = client.count(Number { value: n + 1 }).await.unwrap().into_inner();
                let name = format!("{n}");
                let reply = client.say_hello(hello(&name)).await.unwrap().into_inner();
                assert_eq!(reply.message, format!("Hello {n}!"));
                numbers.count().await as u64 == n + 1
            }
        });
        let right: Vec<bool> = stream::iter(calls).buffer_unordered(50).collect().await;
        assert!(right.len() == 200 && right.iter().all(|right| *right));
    });
}
