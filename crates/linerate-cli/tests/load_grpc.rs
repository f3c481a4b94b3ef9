//! `linerate load` calls a tonic service, from a plan file.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../linerate-serve/examples/grpc/helloworld.rs"]
mod helloworld;
#[path = "../../linerate-serve/examples/grpc/service.rs"]
mod service;

use common::{measured, number, run};
use helloworld::greeter_server::GreeterServer;
use helloworld::{HelloRequest, Number};
use linerate_serve::{Handle, ServerOptions, spawn_with, tower};
use prost::Message;
use serde_json::Value;
use service::{MOST, MyGreeter};

/// A folder with a plan of 400 calls, and the service.
struct Calls {
    dir: tempfile::TempDir,
    server: Handle,
}

impl Calls {
    fn new() -> Calls {
        let greeter = GreeterServer::new(MyGreeter);
        let server = spawn_with(ServerOptions::default(), move || tower(greeter.clone())).unwrap();
        Calls { dir: tempfile::tempdir().unwrap(), server }
    }

    /// A plan that calls this method with a message, as a file.
    fn plan(&self, method: &str, message: &impl Message, trailer: &str) -> String {
        let message = message.encode_to_vec();
        // The prefix of each message: not compressed, and its length.
        let body = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
        std::fs::write(self.dir.path().join("message.bin"), body).unwrap();
        let text = format!(
            "url = \"http://{}/\"\nhttp = \"2\"\nconnections = 2\npipeline = 8\nrequests = 400\n\
             [[request]]\nname = \"{method}\"\nmethod = \"POST\"\npath = \"/helloworld.Greeter/{method}\"\n\
             headers = {{ Content-Type = \"application/grpc\", TE = \"trailers\" }}\n\
             body_file = \"message.bin\"\nexpect_status = 200\nexpect_trailer = \"{trailer}\"\n",
            self.server.addr()
        );
        let file = self.dir.path().join("plan.toml");
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }
}

/// The number of responses, and of those without the trailer.
fn counted(document: &Value) -> (u64, u64) {
    (number(document, "/requests/answered"), number(document, "/bad/trailer"))
}

#[test]
fn a_unary_call_is_good_by_its_trailer() {
    let calls = Calls::new();
    let you = HelloRequest { name: "you".to_owned() };
    for io in ["epoll", "uring"] {
        let plan = calls.plan("SayHello", &you, "grpc-status: 0");
        let (document, said) = measured(&["--io", io, "--expect-body", "Hello you!", "--plan", &plan]);
        assert_eq!((counted(&document), said.code), ((400, 0), Some(0)), "{io}: {document:#}");
        assert_eq!(document["protocol"], "HTTP/2", "{io}");
    }
    // An error's status is in the head, since there is no message before it.
    let nobody = HelloRequest::default();
    let said =
        run(&["load", "-q", "--plan", &calls.plan("SayHello", &nobody, "grpc-status: 0"), "--json", "-"]);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((counted(&document), said.code), ((400, 400), Some(1)), "{document:#}");
    let (document, _) = measured(&["--plan", &calls.plan("SayHello", &nobody, "grpc-status: 3")]);
    assert_eq!(counted(&document), (400, 0), "{document:#}");
}

#[test]
fn a_stream_of_messages_ends_by_its_trailer() {
    let calls = Calls::new();
    for (value, trailer) in [(300, "grpc-status: 0"), (MOST + 1, "grpc-status: 11")] {
        let plan = calls.plan("Count", &Number { value }, trailer);
        let (document, _) = measured(&["--plan", &plan]);
        assert_eq!(counted(&document), (400, 0), "{value}: {document:#}");
    }
}
