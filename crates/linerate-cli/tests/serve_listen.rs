//! `linerate serve` at Unix sockets, and as a service: inherited sockets, and notifications to its
//! manager.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;

use serving::{PATIENCE, Server, started};

fn linerate() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    command.arg("serve");
    command
}

fn ask(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /status/418 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn at(path: &Path, io: &str) -> Command {
    let mut command = linerate();
    command.args(["--threads", "2", "--io", io, "--listen", &format!("unix:{}", path.display())]);
    command
}

#[test]
fn a_unix_socket_in_use_is_refused_and_a_stale_one_replaced() {
    for io in serving::transports() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let server = started(at(&path, io));
        assert_eq!(server.address, format!("unix:{}", path.display()));
        assert!(ask(&path).starts_with("HTTP/1.1 418"));
        let second = at(&path, io).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(4), "{said}");
        assert!(said.contains("hint: a server listens there; ss -lxp names it"), "{said}");
        assert!(ask(&path).starts_with("HTTP/1.1 418"), "the first is untouched");
        server.signal("-KILL");
        assert_eq!(server.end().0, None);
        assert!(path.exists(), "it is stale");
        let server = started(at(&path, io));
        assert!(ask(&path).starts_with("HTTP/1.1 418"));
        assert_eq!(server.stop().0, Some(0));
        assert!(!path.exists());
    }
}

#[test]
fn a_killed_server_is_replaced_at_its_port_at_once() {
    for io in serving::transports() {
        let at = |address: &str| {
            let mut command = linerate();
            command.args(["--threads", "2", "--io", io, "--listen", address]);
            started(command)
        };
        let mut server = at("127.0.0.1:0");
        for _ in 0..10 {
            let address = server.address.clone();
            assert!(server.get("/status/418").starts_with("HTTP/1.1 418"));
            server.signal("-KILL");
            assert_eq!(server.end().0, None);
            server = at(&address);
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let refused = at(&path, "epoll").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("there is a file, and it is no socket"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_file_names_unix_sockets_beside_it_and_a_site_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.toml");
    let text = |socket: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\n[[listener]]\nlisten = \"unix:{socket}\"\n\
             [[listener.route]]\nprefix = \"/status\"\nstatus = 410\n"
        )
    };
    std::fs::write(&file, text("a")).unwrap();
    let mut command = linerate();
    command.arg("--config").arg(&file);
    let server = started(command);
    assert!(server.line().ends_with("/a"));
    assert!(ask(&folder.path().join("a")).starts_with("HTTP/1.1 410"));
    std::fs::write(&file, text("b")).unwrap();
    server.signal("-HUP");
    let _ = (server.listening(), server.line());
    assert!(ask(&folder.path().join("b")).starts_with("HTTP/1.1 410"));
    assert!(!folder.path().join("a").exists());
    assert_eq!(server.stop().0, Some(0));
}

/// Opens a socket as a service manager does, and becomes the server. A shell can't listen.
const ACTIVATE: &str = "
import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ['LISTEN_PID'] = str(os.getpid())
os.environ['LISTEN_FDS'] = '1'
os.execv(sys.argv[1], sys.argv[1:])
";

fn activated(arguments: &[&str]) -> Option<Server> {
    let mut command = Command::new("python3");
    linerate_skips::program("python3")?;
    command.args(["-c", ACTIVATE, assert_cmd::cargo::cargo_bin!("linerate").to_str().unwrap(), "serve"]);
    command.args(arguments);
    Some(started(command))
}

#[test]
fn a_socket_that_was_passed_is_served_in_place_of_the_default() {
    for io in serving::transports() {
        let Some(server) = activated(&["--io", io, "--threads", "2"]) else { return };
        for _ in 0..10 {
            assert!(server.get("/status/418").starts_with("HTTP/1.1 418"));
        }
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("answered 10 requests"), "{said}");
    }
}

#[test]
fn sockets_that_were_passed_and_are_none_are_refused() {
    // It has only its standard streams, so descriptor 3 is not open.
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve";
    let refused = Command::new("sh")
        .args(["-c", script, assert_cmd::cargo::cargo_bin!("linerate").to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("descriptor 3 of LISTEN_FDS"), "{said}");
}

#[test]
fn a_service_manager_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (notify, file) = (folder.path().join("notify"), folder.path().join("serve.toml"));
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 256];
        let n = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..n]).into_owned()
    };
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\n").unwrap();
    let mut command = linerate();
    command.arg("--config").arg(&file).env("NOTIFY_SOCKET", &notify);
    let server = started(command);
    assert_eq!(told(), "READY=1\n");
    server.signal("-HUP");
    let reloading = told();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(told(), "READY=1\n");
    // A file that is bad ends a reload as well.
    std::fs::write(&file, "lisen = 1\n").unwrap();
    server.signal("-HUP");
    assert!(told().starts_with("RELOADING=1\n"));
    assert_eq!(told(), "READY=1\n");
    server.signal("-TERM");
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.end().0, Some(0));
}
