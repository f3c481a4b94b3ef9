//! What a configuration says of a site beside its files: fields of responses, host names.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::process::Command;

use serving::{Server, started};

struct Folder(tempfile::TempDir);

impl Folder {
    /// With files by path.
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Folder(folder)
    }

    /// A server of one thread with this configuration.
    fn serve(&self, text: &str) -> Server {
        std::fs::write(self.0.path().join("serve.toml"), text).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        command.args(["serve", "--threads", "1", "--config"]).arg(self.0.path().join("serve.toml"));
        started(command)
    }
}

/// Sends a head and reads until the end.
fn ask(server: &Server, head: &str) -> String {
    let mut stream = server.connect();
    write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(server: &Server, path: &str) -> String {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: h\r\n"))
}

#[test]
fn fields_of_every_response_and_of_a_route() {
    let folder = Folder::new(&[("www/a.txt", "a"), ("www/sub/b.txt", "b")]);
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndir = \"www\"\nfiles_only = true\n\
         headers = { Cache-Control = \"no-cache\", X-Twice = [\"1\", \"2\"] }\n\
         [[route]]\nprefix = \"/sub/\"\ndir = \"www/sub\"\nheaders = { cache-control = \"max-age=60\" }\n\
         [[route]]\nprefix = \"/gone\"\nstatus = 410\n",
    );
    let has = |path: &str, fields: &[&str]| {
        let answer = get(&server, path);
        for field in fields {
            assert_eq!(answer.matches(&format!("\r\n{field}\r\n")).count(), 1, "{path}: {field} in {answer}");
        }
    };
    has("/a.txt", &["Cache-Control: no-cache", "X-Twice: 1", "X-Twice: 2"]);
    has("/none", &["Cache-Control: no-cache"]);
    has("/gone", &["Cache-Control: no-cache"]);
    has("/sub/b.txt", &["cache-control: max-age=60", "X-Twice: 1"]);
    assert_eq!(get(&server, "/sub/b.txt").to_lowercase().matches("cache-control").count(), 1);
    // A client that has the file is told the same of it.
    let etag =
        get(&server, "/a.txt").split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let fresh = ask(&server, &format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nIf-None-Match: {etag}\r\n"));
    assert!(fresh.starts_with("HTTP/1.1 304") && fresh.contains("Cache-Control: no-cache"), "{fresh}");
}

#[test]
fn sites_by_host_name() {
    let folder = Folder::new(&[
        ("usual/n", "usual"),
        ("one/n", "one"),
        ("many/n", "many"),
        ("admin/n", "admin"),
        ("inner/n", "inner"),
    ]);
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndir = \"usual\"\nfiles_only = true\n\
         [[host]]\nname = [\"one.example\", \"www.one.example\"]\ndir = \"one\"\nfiles_only = true\n\
         headers = { X-Site = \"one\" }\n\
         [[host]]\nname = \"*.example\"\ndir = \"many\"\n\
         [[listener]]\nlisten = \"127.0.0.1:0\"\ndir = \"admin\"\nfiles_only = true\n\
         [[listener.host]]\nname = \"one.example\"\ndir = \"inner\"\n",
    );
    let second = server.listening();
    let n = |host: &str| {
        let answer = ask(&server, &format!("GET /n HTTP/1.1\r\nHost: {host}\r\n"));
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    for (host, site) in [
        ("one.example", "one"),
        ("ONE.example:8080", "one"),
        ("www.one.example.", "one"),
        ("two.example", "many"),
        ("a.b.example", "many"),
        ("example", "usual"),
        ("127.0.0.1", "usual"),
    ] {
        assert_eq!(n(host), site, "{host}");
    }
    // The absolute form's host counts, whatever Host says (RFC 9112 section 3.2.2).
    let absolute = ask(&server, "GET http://one.example/n HTTP/1.1\r\nHost: two.example\r\n");
    assert!(absolute.ends_with("\r\n\r\none") && absolute.contains("\r\nX-Site: one\r\n"), "{absolute}");
    // HTTP/1.0 without Host.
    assert!(ask(&server, "GET /n HTTP/1.0\r\n").ends_with("\r\n\r\nusual"));
    // Another listener's hosts are its own.
    let at_second = |host: &str| {
        let mut stream = serving::connect(&second);
        write!(stream, "GET /n HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    assert_eq!((at_second("one.example"), at_second("two.example")), ("inner".into(), "admin".into()));
}
