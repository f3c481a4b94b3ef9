//! Files of a directory.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linerate_serve::{Content, FileRoot, Handle, Io, ServerOptions, SharedContent, spawn_site};
use linerate_skips::{need, skip};

struct Site {
    server: Handle,
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let root = Some(FileRoot::open(&dir.path().join("www")).unwrap());
        let content = SharedContent::new(Content { root, routes: true, ..Content::default() });
        Site { server: spawn_site(ServerOptions::default(), content).unwrap(), dir }
    }

    /// `None`: this machine does not have it.
    fn over(io: Io) -> Option<Site> {
        let dir = Site::new().dir;
        let root = Some(FileRoot::open(&dir.path().join("www")).unwrap());
        let content = SharedContent::new(Content { root, ..Content::default() });
        let options = ServerOptions { io, threads: 1, ..ServerOptions::default() };
        let server = spawn_site(options, content).inspect_err(|e| skip(need::IO_URING, e)).ok()?;
        Some(Site { server, dir })
    }

    fn www(&self) -> std::path::PathBuf {
        self.dir.path().join("www")
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.www().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        let mut stream = TcpStream::connect(self.server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let at = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..at + 2].to_vec()).unwrap();
        Answer { status: head[9..12].parse().unwrap(), head, body: bytes[at + 4..].to_vec() }
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        let start = format!("\n{name}: ");
        let at = self.head.find(&start).unwrap_or_else(|| panic!("no {name} in {}", self.head));
        self.head[at + start.len()..].split("\r\n").next().unwrap()
    }
}

#[test]
fn files_directories_and_types() {
    let site = Site::new();
    site.put("index.html", "<p>");
    site.put("a/b.txt", "text");
    site.put("a/index.html", "<a>");
    site.put("empty.css", "");
    let index = site.get("/");
    assert_eq!(
        (index.status, &index.body[..], index.field("content-type")),
        (200, &b"<p>"[..], "text/html; charset=utf-8")
    );
    let text = site.get("/a/b.txt?x=y");
    assert_eq!(
        (text.status, &text.body[..], text.field("content-type")),
        (200, &b"text"[..], "text/plain; charset=utf-8")
    );
    assert_eq!(site.get("/a/").body, b"<a>");
    let moved = site.get("/a?x");
    assert_eq!((moved.status, moved.field("location")), (301, "/a/?x"));
    assert_eq!(site.get("//a").field("location"), "/a/");
    let empty = site.get("/empty.css");
    assert_eq!((empty.status, empty.field("content-length")), (200, "0"));
    for missing in ["/none", "/a/b.txt/", "/a/none", "/a/b.txt/c"] {
        assert_eq!(site.get(missing).status, 404, "{missing}");
    }
    let head = site.ask("HEAD", "/a/b.txt", "");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, "4", 0));
    let post = site.ask("DELETE", "/a/b.txt", "");
    assert_eq!(post.status, 405);
    // The built-in routes are still there, unless a file has their name.
    assert_eq!(site.get("/bytes/5").body, b"01234");
    site.put("bytes/5", "mine");
    assert_eq!(site.get("/bytes/5").body, b"mine");
}

#[test]
fn names_need_not_be_utf_8() {
    let site = Site::new();
    let name = std::ffi::OsStr::from_bytes(b"lat\xe9.txt");
    fs::write(site.www().join(name), "latin").unwrap();
    fs::create_dir(site.www().join("d")).unwrap();
    fs::write(site.www().join("d").join(name), "deeper").unwrap();
    for (path, text) in [("/lat%E9.txt", "latin"), ("/d/lat%e9.txt", "deeper")] {
        let answer = site.get(path);
        assert_eq!((answer.status, &answer.body[..]), (200, text.as_bytes()), "{path}");
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
    }
    assert_eq!(site.get("/lat%FF.txt").status, 404);
}

#[test]
fn what_a_file_does_not_take_and_a_directory_does_not_show() {
    let site = Site::new();
    site.put("page.html", "page");
    site.put("sub/page.html", "page");
    for method in ["POST", "PUT", "DELETE"] {
        let answer = site.ask(method, "/page.html", "Content-Length: 0\r\n");
        assert!(
            answer.status == 405 && answer.head.contains("\r\nallow: GET, HEAD, OPTIONS\r\n"),
            "{method}"
        );
    }
    // The built-in routes still take it.
    assert_eq!(site.ask("POST", "/upper", "Content-Length: 0\r\n").status, 200);
    for path in ["/", "/sub/"] {
        let answer = site.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(String::from_utf8_lossy(&answer.body).contains("no index.html"), "{path}");
    }
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let site = Site::new();
    site.put("in.txt", "in");
    symlink("../secret", site.www().join("relative")).unwrap();
    symlink(site.dir.path().join("secret"), site.www().join("absolute")).unwrap();
    symlink("..", site.www().join("up")).unwrap();
    symlink("in.txt", site.www().join("inside")).unwrap();
    for path in ["/relative", "/absolute", "/up/secret", "/up/www/in.txt", "/.hidden"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    for path in ["/../secret", "/%2e%2e/secret", "/x/../../secret", "/..%2fsecret", "/%00"] {
        assert_eq!(site.get(path).status, 400, "{path}");
    }
    assert_eq!(site.get("/inside").body, b"in");
}

/// The kernel can't say for sure that a link's `..` stays beneath while anything is renamed, wherever (`EAGAIN`).
#[test]
fn a_link_with_dots_is_found_while_other_files_are_renamed() {
    let site = Site::new();
    site.put("f", "found");
    fs::create_dir(site.www().join("a")).unwrap();
    symlink("../f", site.www().join("a/link")).unwrap();
    let (one, other) = (site.dir.path().join("one"), site.dir.path().join("other"));
    fs::write(&one, "").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let wrong: Vec<u16> =
            (0..3000).map(|_| site.get("/a/link").status).filter(|status| *status != 200).collect();
        over.store(true, Relaxed);
        assert_eq!(wrong, Vec::<u16>::new());
    });
}

/// As sites are put in place: by a rename, by a link that is turned, by removing all and building anew.
#[test]
fn what_has_the_name_of_the_directory_is_served_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for release in ["one", "two", "three"] {
        fs::create_dir(at(release)).unwrap();
        fs::write(at(release).join("f"), release).unwrap();
    }
    symlink("one", at("current")).unwrap();
    let root = Some(FileRoot::open(&at("current")).unwrap());
    let content = SharedContent::new(Content { root, routes: true, ..Content::default() });
    let options = ServerOptions { threads: 1, ..ServerOptions::default() };
    let site = Site { server: spawn_site(options, content).unwrap(), dir };
    let at = |name: &str| site.dir.path().join(name);
    let until = |body: &[u8]| {
        let end = Instant::now() + Duration::from_secs(20);
        while site.get("/f").body != body {
            assert!(Instant::now() < end, "{body:?} is not served");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(b"one");
    symlink("two", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    until(b"two");
    fs::remove_file(at("current")).unwrap();
    // While nothing is there, the last version is served.
    assert_eq!(site.get("/f").body, b"two");
    fs::rename(at("three"), at("current")).unwrap();
    until(b"three");
    fs::remove_dir_all(at("current")).unwrap();
    assert_eq!(site.get("/f").status, 404);
    fs::create_dir(at("current")).unwrap();
    fs::write(at("current/f"), "anew").unwrap();
    until(b"anew");
}

#[test]
fn a_first_request_gets_what_has_the_name_of_the_directory_by_then() {
    let site = Site::new();
    fs::create_dir(site.dir.path().join("next")).unwrap();
    fs::write(site.dir.path().join("next/f"), "new").unwrap();
    fs::remove_dir_all(site.www()).unwrap();
    fs::rename(site.dir.path().join("next"), site.www()).unwrap();
    // Whichever thread takes it.
    for _ in 0..8 {
        assert_eq!(site.get("/f").body, b"new");
    }
}

/// RFC 9110 section 5.3: a list may stand on several lines.
#[test]
fn lists_on_several_lines_are_one() {
    let site = Site::new();
    site.put("t.txt", "a line of text\n".repeat(100));
    let plain = site.get("/t.txt");
    let etag = plain.field("etag");
    let packed = site.ask("GET", "/t.txt", "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(packed.field("content-encoding"), "gzip");
    let tags = |name: &str| format!("{name}: \"x\"\r\n{name}: {etag}\r\n");
    assert_eq!(site.ask("GET", "/t.txt", &tags("If-None-Match")).status, 304);
    assert_eq!(site.ask("GET", "/t.txt", &tags("If-Match")).status, 200);
}

#[test]
fn a_pipe_does_not_hold_the_loop() {
    let site = Site::new();
    let made = std::process::Command::new("mkfifo").arg(site.www().join("pipe")).status();
    if !made.is_ok_and(|s| s.success()) {
        return skip("mkfifo", "mkfifo is not installed");
    }
    assert_eq!(site.get("/pipe").status, 404);
}

#[test]
fn conditions_and_ranges() {
    let site = Site::new();
    site.put("a.bin", "0123456789");
    let whole = site.get("/a.bin");
    let (etag, date) = (whole.field("etag").to_owned(), whole.field("last-modified").to_owned());
    let status = |fields: &str| site.ask("GET", "/a.bin", fields).status;
    assert_eq!(status(&format!("If-None-Match: {etag}\r\n")), 304);
    assert_eq!(status("If-None-Match: *\r\n"), 304);
    assert_eq!(status("If-None-Match: \"other\"\r\n"), 200);
    assert_eq!(status(&format!("If-Modified-Since: {date}\r\n")), 304);
    assert_eq!(status("If-Modified-Since: not a date\r\n"), 200);
    assert_eq!(status("If-Match: \"other\"\r\n"), 412);
    assert_eq!(status("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), 412);
    let part = site.ask("GET", "/a.bin", "Range: bytes=2-4\r\n");
    assert_eq!(
        (part.status, &part.body[..], part.field("content-range")),
        (206, &b"234"[..], "bytes 2-4/10")
    );
    let beyond = site.ask("GET", "/a.bin", "Range: bytes=10-\r\n");
    assert_eq!((beyond.status, beyond.field("content-range")), (416, "bytes */10"));
    assert_eq!(status(&format!("Range: bytes=2-4\r\nIf-Range: {etag}\r\n")), 206);
    assert_eq!(status("Range: bytes=2-4\r\nIf-Range: \"other\"\r\n"), 200);
    let fresh = site.ask("GET", "/a.bin", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((fresh.body.len(), fresh.field("etag")), (0, &etag[..]));
}

/// RFC 9110 sections 14.6 and 15.3.7.2.
#[test]
fn several_ranges_in_one_response() {
    let site = Site::new();
    site.put("a.bin", "0123456789");
    let source = vec![b'x'; 400_000];
    site.put("large.txt", &source);
    let many = site.ask("GET", "/a.bin", "Range: bytes=0-1, -3,4-4\r\n");
    assert_eq!(many.status, 206);
    let boundary = many.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
    let part = |range: &str, text: &str| {
        format!(
            "--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {range}/10\r\n\r\n{text}\r\n"
        )
    };
    let expected =
        part("0-1", "01") + &part("7-9", "789") + &part("4-4", "4") + &format!("--{boundary}--\r\n");
    assert_eq!(String::from_utf8_lossy(&many.body), expected);
    assert_eq!(many.field("content-length"), expected.len().to_string());
    assert!(!many.head.contains("content-range"), "{}", many.head);
    let head = site.ask("HEAD", "/a.bin", "Range: bytes=0-1,3-4\r\n");
    assert_eq!((head.status, head.field("content-length")), (200, "10"));
    // Large parts, and none that is a copy of another.
    let large = site.ask("GET", "/large.txt", "Range: bytes=0-149999,200000-349999\r\n");
    assert!(large.status == 206 && large.body.len() > 300_000 && large.body.len() < 300_500);
    for attack in
        ["0-,0-,0-", "0-9,5-9", "1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8,9-9,0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7"]
    {
        let whole = site.ask("GET", "/a.bin", &format!("Range: bytes={attack}\r\n"));
        assert_eq!((whole.status, whole.body.len()), (200, 10), "{attack}");
    }
    // What lies behind the end is left out.
    let one = site.ask("GET", "/a.bin", "Range: bytes=2-3,50-\r\n");
    assert_eq!((one.status, one.field("content-range"), &one.body[..]), (206, "bytes 2-3/10", &b"23"[..]));
}

#[test]
fn compression() {
    let site = Site::new();
    let text = "hello ".repeat(1000);
    site.put("a.txt", &text);
    site.put("b.js", "plain");
    site.put("b.js.gz", "zipped");
    site.put("b.js.br", "brotli");
    site.put("c.png", &text);
    let plain = site.get("/a.txt");
    assert_eq!((plain.body.len(), plain.field("vary")), (6000, "accept-encoding"));
    for _ in 0..2 {
        let zipped = site.ask("GET", "/a.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(zipped.field("content-encoding"), "gzip");
        assert!(zipped.field("etag").starts_with("W/\""));
        let mut unzipped = String::new();
        flate2::read::GzDecoder::new(&zipped.body[..]).read_to_string(&mut unzipped).unwrap();
        assert_eq!(unzipped, text);
    }
    assert_eq!(site.ask("GET", "/b.js", "Accept-Encoding: gzip\r\n").body, b"zipped");
    assert_eq!(site.ask("GET", "/b.js", "Accept-Encoding: gzip, br\r\n").body, b"brotli");
    assert_eq!(site.ask("GET", "/b.js", "Accept-Encoding: gzip, br;q=0.9\r\n").body, b"zipped");
    assert_eq!(
        site.ask("GET", "/b.js", "Accept-Encoding: gzip;q=0.1, br;q=0.1, identity\r\n").body,
        b"plain"
    );
    assert_eq!(site.ask("GET", "/b.js", "Accept-Encoding: gzip;q=0\r\n").body, b"plain");
    assert_eq!(site.ask("GET", "/c.png", "Accept-Encoding: gzip\r\n").body.len(), 6000);
    // A range is one of the file itself.
    let part = site.ask("GET", "/a.txt", "Accept-Encoding: gzip\r\nRange: bytes=0-4\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &b"hello"[..]));
}

/// Files go to the wire by ranges; what is asked for behind one waits for its end.
#[test]
fn files_of_all_sizes_arrive_whole_over_each_transport() {
    let source: Vec<u8> =
        (0..3_000_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for io in [Io::Epoll, Io::Uring] {
        let Some(site) = Site::over(io) else { continue };
        let sizes = [1, 16_383, 16_384, 16_385, 65_536, 131_073, 262_144, 1_000_000, 5_000_001];
        sizes.iter().for_each(|size| site.put(&format!("{size}.bin"), &source[..*size]));
        let mut stream = TcpStream::connect(site.server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let ask = |size: &usize| format!("GET /{size}.bin HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut asked: String = sizes.iter().map(ask).collect();
        asked += "GET /5000001.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=999999-4000000\r\nConnection: close\r\n\r\n";
        stream.write_all(asked.as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let mut rest = &all[..];
        let bodies = sizes.iter().map(|size| 0..*size).chain(std::iter::once(999_999..4_000_001));
        for range in bodies {
            let at = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            let (body, behind) = rest[at..].split_at(range.len());
            assert!(body == &source[range.clone()], "{range:?} over {io:?}");
            rest = behind;
        }
        assert!(rest.is_empty());
    }
}

/// A client that goes in the middle of a file leaves nothing behind: no descriptor, no allowance.
#[test]
fn clients_that_go_in_the_middle_of_a_file() {
    for io in [Io::Epoll, Io::Uring] {
        let Some(site) = Site::over(io) else { continue };
        let size = 8 << 20;
        site.put("large.bin", vec![1; size]);
        for round in 0..40 {
            let mut stream = TcpStream::connect(site.server.addr()).unwrap();
            stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut some = vec![0; 1 + round * 5000];
            stream.read_exact(&mut some).unwrap();
            if round % 2 == 0 {
                // With bytes unread: a reset.
                drop(stream);
            } else {
                stream.shutdown(Shutdown::Both).unwrap();
            }
        }
        let held = || {
            let names = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let path = site.www().join("large.bin");
            names.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path)).count()
        };
        let until = Instant::now() + Duration::from_secs(20);
        while held() > 0 {
            assert!(Instant::now() < until, "{} descriptors are kept over {io:?}", held());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(site.get("/large.bin").body.len(), size);
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_cuts_the_answer_and_nothing_else() {
    let site = Site::new();
    let size = 64 << 20;
    fs::File::create(site.www().join("large.bin")).unwrap().set_len(size).unwrap();
    let mut stream = TcpStream::connect(site.server.addr()).unwrap();
    stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut some = [0; 1000];
    stream.read_exact(&mut some).unwrap();
    fs::OpenOptions::new().write(true).open(site.www().join("large.bin")).unwrap().set_len(10).unwrap();
    let mut rest = Vec::new();
    // An end or a reset: in any case less than was announced.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < size as usize);
    assert_eq!(site.get("/large.bin").body.len(), 10);
}
