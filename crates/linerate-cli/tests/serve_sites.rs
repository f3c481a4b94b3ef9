//! Settings of a site besides its files: response fields, host names.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use linerate_skips::program;
use serving::{PATIENCE, Server, started};
use socket2::{Domain, Socket, Type};

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
    // A client that has the file gets the same fields with 304.
    let etag =
        get(&server, "/a.txt").split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let fresh = ask(&server, &format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nIf-None-Match: {etag}\r\n"));
    assert!(fresh.starts_with("HTTP/1.1 304") && fresh.contains("Cache-Control: no-cache"), "{fresh}");
}

/// What a client with this address gets; it closes its side.
fn from(source: &str, server: &Server, request: &str) -> String {
    let to: SocketAddr = server.address.parse().unwrap();
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(source.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn code(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn clients_by_their_network() {
    let folder = Folder::new(&[("www/a.txt", "a"), ("www/staff/b.txt", "b"), ("www/staff/boss/c.txt", "c")]);
    let text = "listen = \"127.0.0.1:0\"\ndir = \"www\"\ndeny = [\"127.0.0.2\", \"127.9.0.0/16\"]\n\
         trusted_proxy = \"127.0.0.7\"\n\
         [[route]]\nprefix = \"/staff/\"\nallow = [\"127.3.0.0/16\", \"127.0.0.2\", \"::1\"]\nheaders = { X-Staff = \"1\" }\n\
         [[route]]\nprefix = \"/staff/boss/\"\ndeny = \"127.3.3.0/24\"\n";
    let server = folder.serve(text);
    let of = |source: &str, path: &str, fields: &str| {
        from(source, &server, &format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
    };
    for (source, path, expected) in [
        ("127.0.0.1", "/a.txt", "200"),
        ("127.0.0.2", "/a.txt", "403"),
        ("127.9.1.1", "/a.txt", "403"),
        // The route's list comes on top of the server's.
        ("127.0.0.1", "/staff/b.txt", "403"),
        ("127.3.1.1", "/staff/b.txt", "200"),
        ("127.0.0.2", "/staff/b.txt", "403"),
        ("127.3.1.1", "/%73taff/b.txt", "200"),
        ("127.0.0.1", "/%73taff/./b.txt", "403"),
        ("127.0.0.1", "/staff", "403"),
        // The outer route's restriction holds beneath the inner one.
        ("127.3.1.1", "/staff/boss/c.txt", "200"),
        ("127.3.3.1", "/staff/boss/c.txt", "403"),
        ("127.0.0.1", "/staff/boss/c.txt", "403"),
    ] {
        assert_eq!(code(&of(source, path, "")), expected, "{path} from {source}");
    }
    assert!(of("127.3.1.1", "/staff/boss/c.txt", "").contains("\r\nX-Staff: 1\r\n"));
    // A trusted proxy's client counts, anybody else's word does not.
    for (source, client, expected) in [
        ("127.0.0.7", "127.0.0.2", "403"),
        ("127.0.0.7", "::ffff:127.0.0.2", "403"),
        ("127.0.0.7", "192.0.2.1", "200"),
        ("127.0.0.2", "192.0.2.1", "403"),
        ("127.0.0.1", "127.0.0.2", "200"),
    ] {
        let field = format!("X-Forwarded-For: {client}\r\n");
        assert_eq!(code(&of(source, "/a.txt", &field)), expected, "{client} by {source}");
    }
    // A body that is refused with its request leaves nothing behind.
    let posts = "POST /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345".repeat(2);
    assert_eq!(from("127.0.0.2", &server, &posts).matches("HTTP/1.1 403").count(), 2);
    // A reload changes the list for connections that are there.
    let mut stream = server.connect();
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        let got = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..12.min(got)]).into_owned()
    };
    assert_eq!(ask(&mut stream), "200");
    let closed = text.replace("deny = [\"127.0.0.2\"", "deny = [\"127.0.0.1\"");
    std::fs::write(folder.0.path().join("serve.toml"), closed).unwrap();
    server.signal("-HUP");
    server.listening();
    // Its thread takes the new list in its next turn, which may be behind this request.
    let answers: Vec<String> = (0..1000).map(|_| ask(&mut stream)).take_while(|code| code != "403").collect();
    assert!(answers.len() < 1000 && answers.iter().all(|code| code == "200"), "{answers:?}");
}

#[test]
fn limits_of_a_route() {
    let folder = Folder::new(&[]);
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndemo_routes = true\nmax_body = \"100KiB\"\nbody_timeout = \"1h\"\nwrite_timeout = \"1h\"\n\
         [[route]]\nprefix = \"/echo\"\nmax_body = \"1KiB\"\nbody_timeout = \"300ms\"\n\
         [[route]]\nprefix = \"/upper\"\nmax_body = \"1MiB\"\n\
         [[route]]\nprefix = \"/bytes/\"\nwrite_timeout = \"300ms\"\n",
    );
    let post = |path: &str, bytes: usize| {
        let chunked = format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes));
        let whole = format!("Content-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes));
        [format!("Transfer-Encoding: chunked\r\n\r\n{chunked}"), whole].map(|body| {
            let answer = from("127.0.0.1", &server, &format!("POST {path} HTTP/1.1\r\nHost: h\r\n{body}"));
            code(&answer).to_owned()
        })
    };
    for (path, bytes, expected) in [
        ("/echo", 1024, "200"),
        ("/echo", 1025, "413"),
        ("/upper", 1 << 20, "200"),
        ("/upper", (1 << 20) + 1, "413"),
        ("/", 100 << 10, "200"),
        ("/", (100 << 10) + 1, "413"),
    ] {
        assert_eq!(post(path, bytes), [expected; 2], "{bytes} bytes to {path}");
    }
    // The server's timeouts are an hour.
    let mut stream = server.connect();
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(code(&answer), "408");
    let mut stream = server.connect();
    stream.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let begun = std::time::Instant::now();
    while stream.take_error().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "a client that reads nothing is cut");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let Some(curl) = program("curl") else { return };
    for (bytes, expected) in [(1024, "200"), (1025, "413")] {
        let mut command = Command::new(&curl);
        command.args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{http_code}",
            "--http2-prior-knowledge",
        ]);
        command.args(["--data-binary", &"x".repeat(bytes)]);
        let out = command.arg(format!("http://{}/echo", server.address)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("2 {expected}"), "{out:?}");
    }
}

#[test]
fn texts_are_compressed_as_configured() {
    let text = "a line of a text that repeats itself, and again, 0123456789\n".repeat(200);
    let folder = Folder::new(&[
        ("www/a.txt", &text),
        ("www/b.js", &text),
        ("www/b.js.gz", "zipped"),
        ("small/a.txt", &text),
    ]);
    let sizes = |site: &str, route: &str| {
        let server = folder.serve(&format!(
            "listen = \"127.0.0.1:0\"\ndir = \"www\"\nfiles_only = true\n{site}\n[[route]]\nprefix = \"/small/\"\ndir = \"small\"\n{route}\n"
        ));
        ["/a.txt", "/small/a.txt", "/b.js"].map(|path| {
            let answer =
                ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n"));
            let length = answer.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            (answer.contains("content-encoding: gzip"), length.parse::<usize>().unwrap())
        })
    };
    let plain = (false, text.len());
    let [usual, also, beside] = sizes("", "");
    assert!(usual.0 && usual.1 < text.len() / 10 && usual == also, "{usual:?}, {also:?}");
    assert_eq!(beside, (true, 6));
    assert_eq!(sizes("gzip = \"off\"", ""), [plain, plain, (true, 6)]);
    let [off, best, _] = sizes("gzip = \"off\"", "gzip = 9");
    assert!(off == plain && best.0 && best.1 <= usual.1, "{off:?}, {best:?}");
    let [fast, off, _] = sizes("gzip = 1", "gzip = \"off\"");
    assert!(off == plain && fast.0 && fast.1 >= usual.1, "{off:?}, {fast:?}");
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

#[test]
fn directories_are_listed_where_that_is_said() {
    let folder = Folder::new(&[
        ("www/sub/<b>&\".txt", "angled"),
        ("www/sub/.hidden", "h"),
        ("www/sub/deeper/x", "x"),
        ("www/with/index.html", "index"),
        ("other/y", "y"),
    ]);
    std::os::unix::fs::symlink("/etc", folder.0.path().join("www/sub/out")).unwrap();
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndir = \"www\"\nfiles_only = true\nlist = true\n\
         [[route]]\nprefix = \"/other/\"\ndir = \"other\"\n",
    );
    let page = get(&server, "/sub/");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("content-type: text/html; charset=utf-8"),
        "{page}"
    );
    assert!(page.contains("<a href=\"./deeper/\">deeper/</a>"), "{page}");
    assert!(
        page.contains("<a href=\"./%3Cb%3E%26%22.txt\">&lt;b&gt;&amp;&quot;.txt</a></td><td>6</td>"),
        "{page}"
    );
    assert!(!page.contains("hidden") && !page.contains("<b>"), "{page}");
    assert!(get(&server, "/sub/%3Cb%3E%26%22.txt").ends_with("angled"));
    // The link leads out of the directory: it is answered with 404, so it is not shown.
    assert!(!page.contains("./out") && get(&server, "/sub/out/").starts_with("HTTP/1.1 404"));
    assert!(get(&server, "/").contains("./with/"));
    assert!(get(&server, "/with/").ends_with("index"));
    assert!(get(&server, "/sub").starts_with("HTTP/1.1 301"));
    let head = ask(&server, "HEAD /sub/ HTTP/1.1\r\nHost: h\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    // A route says for itself whether it is listed.
    assert!(get(&server, "/other/").starts_with("HTTP/1.1 404"));
}

#[test]
fn error_pages_and_names_that_are_tried() {
    let folder = Folder::new(&[
        ("www/404.html", "<h1>nothing</h1>"),
        ("www/gone.txt", "gone"),
        ("www/about.html", "about"),
        ("app/index.html", "<app>"),
        ("app/a.js", "js"),
    ]);
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndir = \"www\"\nfiles_only = true\ntry_files = \"$uri.html\"\n\
         error_pages = { 404 = \"/404.html\", 410 = \"/gone.txt\", 403 = \"/none.html\" }\n\
         headers = { X-A = \"b\" }\n\
         [[route]]\nprefix = \"/old\"\nstatus = 410\n[[route]]\nprefix = \"/secret\"\nstatus = 403\n\
         [[host]]\nname = \"app.example\"\ndir = \"app\"\nfiles_only = true\ntry_files = [\"/$uri.html\", \"/index.html\"]\n",
    );
    let missing = get(&server, "/none");
    assert!(missing.starts_with("HTTP/1.1 404") && missing.ends_with("<h1>nothing</h1>"), "{missing}");
    assert!(
        missing.contains("content-type: text/html")
            && missing.contains("X-A: b")
            && !missing.contains("etag")
    );
    let gone = get(&server, "/old/x");
    assert!(
        gone.starts_with("HTTP/1.1 410") && gone.ends_with("gone") && gone.contains("text/plain"),
        "{gone}"
    );
    // A page that is not there leaves the plain one.
    assert!(get(&server, "/secret").contains("403 Forbidden: "));
    // Methods that files do not take have no page.
    let post = ask(&server, "POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n");
    assert!(post.starts_with("HTTP/1.1 405") && !post.contains("<h1>"), "{post}");
    assert!(get(&server, "/about").ends_with("about") && get(&server, "/about.html").ends_with("about"));
    let app = |path: &str| ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n"));
    for (path, body) in [("/a.js", "js"), ("/users/7", "<app>"), ("/", "<app>"), ("/a.js/x", "<app>")] {
        let answer = app(path);
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("\r\n\r\n{body}")),
            "{path}: {answer}"
        );
    }
    for path in ["/../x", "/.git/config"] {
        assert!(app(path).starts_with("HTTP/1.1 4"), "{path}");
    }
}

#[test]
fn users_have_to_say_who_they_are() {
    let folder = Folder::new(&[
        ("www/a", "open"),
        ("www/staff/a", "for staff"),
        ("users", &format!("# staff\nann:{}\n", bcrypt::hash("pass:word", 4).unwrap())),
    ]);
    let server = folder.serve(
        "listen = \"127.0.0.1:0\"\ndir = \"www\"\nfiles_only = true\n\
         [[route]]\nprefix = \"/staff/\"\ndir = \"www/staff\"\nusers = \"users\"\nrealm = \"staff\"\n",
    );
    let as_user = |credentials: &str| {
        ask(&server, &format!("GET /staff/a HTTP/1.1\r\nHost: h\r\nAuthorization: {credentials}\r\n"))
    };
    assert!(get(&server, "/a").ends_with("open"));
    for path in ["/staff/a", "/staff/none", "/%73taff/a", "//staff/./a"] {
        let asked = get(&server, path);
        assert!(asked.starts_with("HTTP/1.1 401"), "{path}: {asked}");
        assert!(asked.contains("www-authenticate: Basic realm=\"staff\", charset=\"UTF-8\"\r\n"), "{asked}");
    }
    let basic = |text: &str| format!("Basic {}", base64(text));
    // Twice: the second time it is remembered.
    for _ in 0..2 {
        assert!(as_user(&basic("ann:pass:word")).ends_with("for staff"));
        for wrong in ["ann:", "ann:pass", "ann:pass:word ", "bob:pass:word", ":pass:word", "ann"] {
            assert!(as_user(&basic(wrong)).starts_with("HTTP/1.1 401"), "{wrong}");
        }
        assert!(
            as_user("Basic ?").starts_with("HTTP/1.1 401") && as_user("Bearer x").starts_with("HTTP/1.1 401")
        );
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_configuration_is_checked_and_nothing_else() {
    let folder = Folder::new(&[("www/a", "a")]);
    let check = |text: &str| {
        std::fs::write(folder.0.path().join("serve.toml"), text).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        command.args(["serve", "--check-config", "--config"]).arg(folder.0.path().join("serve.toml"));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // The address is taken: it is not listened on.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("listen = \"{}\"\ndir = \"www\"\naccess_log = \"log\"\n", taken.local_addr().unwrap());
    let (code, said) = check(&text);
    assert!(code == Some(0) && said.ends_with("serve.toml: sound\n"), "{code:?} {said}");
    assert!(!folder.0.path().join("log").exists());
    let (code, said) = check("dir = \"none\"\n");
    assert!(code == Some(2) && said.contains("serve.toml:1:7: dir: "), "{code:?} {said}");
    let (code, said) = check("list = true\n");
    assert!(code == Some(2) && said.contains("--list needs files"), "{code:?} {said}");
}
