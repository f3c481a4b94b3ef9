//! SIGHUP: the configuration file is read again.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serving::{PATIENCE, Server, connect, get, started};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("index.html"), name).unwrap();
        }
        Folder(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path().join("serve.toml"), text).unwrap();
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        command.arg("serve").arg("--config").arg(self.path().join("serve.toml")).args(flags);
        started(command)
    }
}

/// One response on a connection that stays open.
fn ask(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.split("content-length: ").nth(1).and_then(|t| t.split('\r').next()).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// `[[route]]`: directories, redirects and statuses by prefix; they come and go with the file as
/// all else does.
#[test]
fn routes_by_prefix() {
    let folder = Folder::new();
    let file = "listen = \"127.0.0.1:0\"\ndir = \"one\"\n";
    let routes = "[[route]]\nprefix = \"/second/\"\ndir = \"two\"\n\
        [[route]]\nprefix = \"/old/\"\nredirect = \"/second/\"\nstatus = 308\n\
        [[route]]\nprefix = \"/away\"\nredirect = \"https://example.org/\"\n\
        [[route]]\nprefix = \"/private\"\nstatus = 403\n\
        [[route]]\nprefix = \"/private/but\"\ndir = \"two\"\n";
    std::fs::write(folder.path().join("one/private"), "hidden by its route").unwrap();
    std::fs::write(folder.path().join("two/a b.txt"), "spaced").unwrap();
    std::fs::create_dir(folder.path().join("two/sub")).unwrap();
    folder.write(&(file.to_owned() + routes));
    let server = folder.serve(&["--threads", "1", "--demo-routes"]);
    let mut stream = server.connect();
    for (path, wanted) in [
        ("/", "200 one"),
        ("/second/", "200 two"),
        ("/second", "301 /second/"),
        ("/second/sub", "301 /second/sub/"),
        ("/second/a%20b.txt", "200 spaced"),
        ("/second/../private", "400 "),
        ("/second/none", "404 "),
        ("/second.txt", "404 "),
        ("/old/a%20b/?x=1", "308 /second/a%20b/?x=1"),
        ("/old", "308 /second/"),
        ("/older", "404 "),
        ("/away/x?y", "302 https://example.org/"),
        ("/private", "403 "),
        ("/%70rivate/x", "403 "),
        ("//private", "403 "),
        ("/./private", "403 "),
        ("/private/but/index.html", "200 two"),
        ("/bytes/3", "200 012"),
    ] {
        let answer = ask(&mut stream, path);
        let (status, place) = (&answer[9..12], answer.split("location: ").nth(1));
        let said = match place.and_then(|p| p.split('\r').next()) {
            Some(place) => place.to_owned(),
            None if status == "200" => answer.split_once("\r\n\r\n").unwrap().1.to_owned(),
            None => String::new(),
        };
        assert_eq!(format!("{status} {said}"), wanted, "{path}");
    }
    // First other routes; then an invalid one, which changes nothing.
    folder.write(file);
    server.signal("-HUP");
    assert_eq!(server.listening(), server.address);
    assert!(ask(&mut stream, "/private").ends_with("hidden by its route"));
    folder.write(&(file.to_owned() + "[[route]]\nprefix = \"x\"\nstatus = 403\n"));
    server.signal("-HUP");
    let said = server.line();
    assert!(said.contains("stays as it was") && said.contains("serve.toml:4:10: prefix: "), "{said}");
    assert!(ask(&mut stream, "/private").ends_with("hidden by its route"));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn listeners_come_and_go_and_the_directory_changes() {
    let folder = Folder::new();
    for io in serving::transports() {
        folder
            .write("listen = [\"127.0.0.1:0\", \"127.0.0.2:0\"]\ndir = \"one\"\naccess_log = \"one.log\"\n");
        let server = folder.serve(&["--io", io, "--threads", "2", "--demo-routes"]);
        let second = server.listening();
        assert!(server.get("/").ends_with("one"));
        let mut stays = connect(&server.address);
        let mut goes = connect(&second);
        assert!(ask(&mut stays, "/").ends_with("one") && ask(&mut goes, "/").ends_with("one"));
        let mut waits = connect(&second);
        waits.write_all(b"GET /delay/500 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        while !server.get("/stats").contains("\"waiting\":1") {}

        folder.write("listen = [\"127.0.0.1:0\", \"127.0.0.3:0\"]\ndir = \"two\"\naccess_log = \"two.log\"\nmax_fields = 3\n");
        server.signal("-HUP");
        assert_eq!(server.listening(), server.address, "the same address keeps its port");
        let third = server.listening();
        assert!(third.starts_with("127.0.0.3:"), "{third}");
        // Old and new connections get the new directory and limits.
        assert!(ask(&mut stays, "/").ends_with("two"));
        assert!(get(&third, "/").ends_with("two"));
        let many = "GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nC: 3\r\nConnection: close\r\n\r\n";
        let mut stream = connect(&third);
        stream.write_all(many.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        // Requests received at the removed address get their responses; then its connections end.
        let mut rest = String::new();
        waits.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("connection: close") && rest.ends_with("waited\n"), "{rest}");
        assert_eq!(goes.read(&mut [0]).unwrap(), 0);
        let refused = TcpStream::connect(&second).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
        let (one, two) = ["one.log", "two.log"]
            .map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap())
            .into();
        assert!(one.contains("/delay/500") || two.contains("/delay/500"), "{one}{two}");
        assert!(two.contains(" 431 ") && !one.contains(" 431 "), "{one}{two}");
        for name in ["one.log", "two.log"] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
}

/// `[[listener]]`: an address serves its own directory and routes, and none of the others'.
#[test]
fn listeners_with_sites_of_their_own() {
    let folder = Folder::new();
    let head = "listen = \"127.0.0.1:0\"\ndir = \"one\"\nfiles_only = true\n";
    let own = "[[listener]]\nlisten = [\"127.0.0.2:0\", \"127.0.0.2:0\"]\ndir = \"two\"\ndemo_routes = true\n\
        [[listener.route]]\nprefix = \"/private\"\nstatus = 403\n\
        [[listener]]\nlisten = \"127.0.0.3:0\"\ndemo_routes = true\n";
    for io in serving::transports() {
        folder.write(&(head.to_owned() + own));
        let server = folder.serve(&["--io", io, "--threads", "2"]);
        let [second, third, inside] = [server.listening(), server.listening(), server.listening()];
        assert!(second.starts_with("127.0.0.2:") && inside.starts_with("127.0.0.3:"), "{second} {inside}");
        for (at, path, wanted) in [
            (&server.address, "/", "one"),
            (&server.address, "/private", "404 Not Found"),
            (&server.address, "/stats", "404 Not Found"),
            (&second, "/", "two"),
            (&third, "/", "two"),
            (&third, "/private/x", "403 Forbidden"),
            (&second, "/bytes/3", "012"),
            (&inside, "/bytes/3", "012"),
            (&inside, "/index.html", "404 Not Found"),
        ] {
            let answer = get(at, path);
            assert!(answer.contains(wanted), "{at}{path}: {answer}");
        }
        let mut stays = connect(&second);
        let mut goes = connect(&inside);
        assert!(ask(&mut stays, "/").ends_with("two") && ask(&mut goes, "/bytes/3").ends_with("012"));
        // One goes, one changes, one comes.
        folder.write(&format!(
            "{head}[[listener]]\nlisten = [\"127.0.0.2:0\", \"127.0.0.2:0\"]\ndir = \"one\"\n\
             [[listener]]\nlisten = \"127.0.0.4:0\"\ndir = \"two\"\nfiles_only = true\n"
        ));
        server.signal("-HUP");
        let said = [server.listening(), server.listening(), server.listening()];
        assert_eq!(said, [server.address.clone(), second.clone(), third.clone()], "ports stay");
        let new = server.listening();
        assert!(ask(&mut stays, "/").ends_with("one") && get(&new, "/").ends_with("two"));
        assert!(get(&new, "/bytes/3").contains("404 Not Found"));
        assert_eq!(goes.read(&mut [0]).unwrap(), 0);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_site_without_an_address_is_refused() {
    let folder = Folder::new();
    folder.write("dir = \"one\"\n[[listener]]\nlisten = \"127.0.0.1:0\"\n");
    let file = folder.path().join("serve.toml");
    let run = |more: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        let output = command.arg("serve").arg("--config").arg(&file).args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("for the addresses of listen, and there are none"), "{said}");
    // The error distinguishes a taken metrics' address from a taken address to serve at.
    folder.write("listen = \"127.0.0.1:0\"\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let (code, said) = run(&["--metrics", &at]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains(&format!("cannot listen on {at} (--metrics): Address already in use")), "{said}");
    // By a flag and in a listener: seen as well.
    folder.write("[[listener]]\nlisten = \"127.0.0.1:7\"\n");
    let (code, said) = run(&["--listen", "127.0.0.1:7"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--listen and a [[listener]] both give 127.0.0.1:7"), "{said}");
    let (code, said) = run(&["--misbehave", "think=1"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("[[listener]]"), "{said}");
}

#[test]
fn a_bad_file_changes_nothing_and_is_named_once() {
    let folder = Folder::new();
    folder.write("listen = \"127.0.0.1:0\"\ndir = \"one\"\n");
    let server = folder.serve(&[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (text, said) in [
        ("listen = \"127.0.0.1:0\"\ndir = \"three\"\n".to_owned(), ":2:7: dir: "),
        ("listen = \"127.0.0.1:0\"\nidle_time = 5\n".to_owned(), ":2:1: unknown key"),
        (
            format!("listen = [\"127.0.0.1:0\", \"127.0.0.4:0\", \"{taken}\"]\n"),
            "cannot listen on 127.0.0.1:",
        ),
        ("threads = 77\n".to_owned(), "hold until a restart"),
    ] {
        folder.write(&text);
        server.signal("-HUP");
        let mut first = server.line();
        while !first.contains("stays as it was") {
            // The rest of the error before.
            first = server.line();
        }
        assert!(first.contains("stays as it was") && first.contains(said), "{first}");
        assert!(server.get("/").ends_with("one"), "{text}");
    }
    // Nothing of the half that could be opened is left.
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
    assert!(!listening.lines().any(|l| l.contains(" 0400007F:") && l.contains(" 0A ")), "{listening}");
    folder.write("listen = \"127.0.0.1:0\"\ndir = \"two\"\n");
    server.signal("-HUP");
    loop {
        // Lines of the errors before lie in between.
        if server.line().starts_with("listening on ") {
            break;
        }
    }
    assert!(server.get("/").ends_with("two"));
    assert_eq!(server.stop().0, Some(0));
}

/// SIGHUP reopens a renamed log, even if the rest of the file has become invalid.
#[test]
fn a_bad_file_does_not_keep_the_log_from_being_opened_anew() {
    let folder = Folder::new();
    folder.write("listen = \"127.0.0.1:0\"\ndir = \"one\"\naccess_log = \"log\"\n");
    let server = folder.serve(&[]);
    server.get("/");
    let (log, old) = (folder.0.path().join("log"), folder.0.path().join("log.1"));
    std::fs::rename(&log, &old).unwrap();
    folder.write("nonsense = 5\n");
    server.signal("-HUP");
    assert!(server.line().contains("stays as it was"));
    while !log.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.get("/after");
    assert_eq!(server.stop().0, Some(0));
    assert!(std::fs::read_to_string(&log).unwrap().contains("/after"));
    assert!(!std::fs::read_to_string(&old).unwrap().contains("/after"));
}

/// While the terminal exists, SIGHUP comes from an operator. When the terminal is closed, the
/// kernel sends it, and the process must end because no one is left to end it.
#[test]
fn a_closed_terminal_ends_it() {
    use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
    for flags in [&["--dir", "one"][..], &["--misbehave", "think=1"]] {
        let folder = Folder::new();
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).current_dir(folder.path());
        command.stdin(std::fs::File::open(&name).unwrap());
        let server = started(command);
        server.signal("-HUP");
        assert!(server.get("/").starts_with("HTTP/1.1 200"));
        drop(terminal);
        // A program that another test is starting has it for a moment, until it is executed.
        let begin = Instant::now();
        while std::fs::exists(&name).unwrap() {
            assert!(begin.elapsed() < PATIENCE, "{name} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.signal("-HUP");
        assert_eq!(server.end().0, Some(0));
    }
}

/// Of all addresses and one of them, the one can't be opened while the other is there.
#[test]
fn an_address_in_the_way_of_another_is_named() {
    let folder = Folder::new();
    let free = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    folder.write(&format!("listen = \"0.0.0.0:{free}\"\ndir = \"one\"\n"));
    let server = folder.serve(&[]);
    folder.write(&format!("listen = \"127.0.0.1:{free}\"\ndir = \"two\"\n"));
    server.signal("-HUP");
    let said = server.line();
    assert!(
        said.contains(&format!("127.0.0.1:{free} while this server listens on 0.0.0.0:{free}")),
        "{said}"
    );
    assert!(server.line().contains("needs a restart"));
    assert!(get(&format!("127.0.0.1:{free}"), "/").ends_with("one"));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn flags_win_over_the_file_and_its_errors_name_their_place() {
    let folder = Folder::new();
    folder.write("listen = \"127.0.0.9:0\"\ndir = \"one\"\nfiles_only = true\n");
    let server =
        folder.serve(&["--listen", "127.0.0.1:0", "--dir", folder.path().join("two").to_str().unwrap()]);
    assert!(server.address.starts_with("127.0.0.1:"));
    assert!(server.get("/").ends_with("two"));
    assert!(server.get("/block/1").starts_with("HTTP/1.1 404"));
    assert!(server.get("/stats").starts_with("HTTP/1.1 404"));
    assert_eq!(server.stop().0, Some(0));

    folder.write("listen = \"127.0.0.1:0\"\nheader-timeout = \"soon\"\n");
    let file = folder.path().join("serve.toml");
    let output = Command::new(assert_cmd::cargo::cargo_bin!("linerate"))
        .args(["serve", "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("serve.toml:2:18: header_timeout: \"soon\" is no duration"), "{text}");
}

/// TCP_DEFER_ACCEPT follows the file, at an address that stays. A silent connection is established
/// before one with a request. So once that request got its response, the kernel has either handed
/// over the silent connection or kept it.
#[test]
fn deferring_comes_and_goes_with_the_file() {
    for io in serving::transports() {
        let folder = Folder::new();
        folder.write("listen = \"127.0.0.1:0\"\n");
        let server = folder.serve(&["--io", io, "--threads", "1", "--demo-routes"]);
        let mut silent = Vec::new();
        for deferred in [false, true, false] {
            folder.write(&format!("listen = \"127.0.0.1:0\"\ndefer_accept = {deferred}\n"));
            server.signal("-HUP");
            assert_eq!(server.listening(), server.address);
            // The order was given before the address was said: it is obeyed, at the latest, behind
            // the turn that answers this.
            server.get("/");
            let before = open(&server);
            silent.push(server.connect());
            // One that was kept may come too, once it is not kept any more.
            let more = open(&server) - before;
            assert!(if deferred { more == 0 } else { more >= 1 }, "deferred: {deferred}, {io}: {more}");
        }
        drop(silent);
        assert_eq!(server.stop().0, Some(0));
    }
}

/// Connections open, but for the one that asks.
fn open(server: &Server) -> u64 {
    let answer = server.get("/stats");
    let number = answer.split("\"open\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    number.unwrap_or_else(|| panic!("{answer}")).trim().parse::<u64>().unwrap() - 1
}
