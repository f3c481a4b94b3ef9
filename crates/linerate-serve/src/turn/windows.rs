//! HTTP/2 clients whose windows are shut or small, in memory and in virtual time: what they ask for
//! takes neither memory nor descriptors beyond the limits, what needs no window comes all the same,
//! and everything comes once the windows open.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use linerate_base::Random;
use linerate_http::h2::{Code, FRAME_HEAD, FrameHead, PREFACE, field, flag, kind};
use linerate_http::server::CheckedFields;
use linerate_net::mem::{Cut, Mem, MemOptions, Peer, PeerActions, PeerConn};
use linerate_net::{ListenOptions, Time, Transport};
use proptest::prelude::*;

use super::{Server, Wall};
use crate::answer::OrderedResponse;
use crate::limits::{FILES_OPEN, H2_HEADS, H2_HELD, UNSENT_SCARCE, UNSENT_TOGETHER};
use crate::message::stream::Failure;
use crate::{BodyStream, FileRoot, Handler, Limits, Request, Response};

/// Streams of a connection.
const STREAMS: u32 = 128;
const AT: &str = "10.0.0.1:80";

/// What a client got on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Got {
    body: Vec<u8>,
    heads: u32,
    ended: bool,
    reset: Option<u32>,
}

/// A client that sends requests at once, and opens its windows as it is told.
#[derive(Clone)]
struct WindowClient {
    /// The path of each stream.
    paths: Vec<String>,
    /// The window of each stream at first.
    window: u32,
    /// The most that a window grows at a time; 0: never.
    grows: u32,
    /// Sends its FIN behind its requests, and reads on.
    half_closes: bool,
    random: Random,
    unread: Vec<u8>,
    got: Arc<Mutex<BTreeMap<u32, Got>>>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.bytes(), payload].concat()
}

/// Takes the frames that have come whole; the rest is to be read with what comes next.
pub(super) fn whole_frames(bytes: &[u8], mut take: impl FnMut(FrameHead, &[u8])) -> Vec<u8> {
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
        let head = FrameHead::read(head);
        let Some((payload, behind)) = behind.split_at_checked(head.len as usize) else { break };
        take(head, payload);
        rest = behind;
    }
    rest.to_vec()
}

impl WindowClient {
    fn new(paths: Vec<String>, window: u32, grows: u32, seed: u64) -> WindowClient {
        let random = Random::new(seed);
        WindowClient {
            paths,
            window,
            grows,
            half_closes: false,
            random,
            unread: Vec::new(),
            got: Arc::default(),
        }
    }

    fn id(number: usize) -> u32 {
        number as u32 * 2 + 1
    }

    fn got(&self, number: usize) -> Got {
        self.got.lock().unwrap().get(&WindowClient::id(number)).cloned().unwrap_or_default()
    }

    fn take(&mut self, head: FrameHead, payload: &[u8]) {
        let mut got = self.got.lock().unwrap();
        let got = got.entry(head.stream).or_default();
        match head.kind {
            kind::DATA => got.body.extend_from_slice(payload),
            kind::HEADERS => got.heads += 1,
            kind::RST_STREAM => got.reset = Some(u32::from_be_bytes(payload.try_into().unwrap())),
            _ => return,
        }
        got.ended |= head.kind != kind::RST_STREAM && head.has(flag::END_STREAM);
    }
}

impl Peer for WindowClient {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let [a, b, c, d] = self.window.to_be_bytes();
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, a, b, c, d]));
        for (number, path) in self.paths.iter().enumerate() {
            let mut block = Vec::new();
            // Uploads do not end.
            let (method, end) = if path == "/upload" { ("POST", 0) } else { ("GET", flag::END_STREAM) };
            for (name, value) in
                [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.example")]
            {
                field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            let flags = flag::END_HEADERS | end;
            bytes.extend(frame(kind::HEADERS, flags, WindowClient::id(number), &block));
        }
        out.send(conn, bytes);
        if self.half_closes {
            out.end_after(Duration::from_millis(1), conn);
        }
        if self.grows > 0 {
            out.call_after(Duration::from_millis(10), conn);
        }
    }

    fn called(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        let mut bytes = Vec::new();
        for number in 0..self.paths.len() {
            let got = self.got(number);
            if !got.ended && got.reset.is_none() && self.random.below(3) > 0 {
                let more = 1 + self.random.below(u64::from(self.grows)) as u32;
                bytes.extend(frame(kind::WINDOW_UPDATE, 0, WindowClient::id(number), &more.to_be_bytes()));
                bytes.extend(frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes()));
            }
        }
        out.send(conn, bytes);
        out.call_after(Duration::from_millis(10), conn);
    }

    fn received(&mut self, _: Time, _: PeerConn, bytes: &[u8], _: &mut PeerActions) {
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(bytes);
        self.unread = whole_frames(&unread, |head, payload| self.take(head, payload));
    }
}

thread_local! {
    /// Bytes of handlers' streams that are alive. Each test is a thread.
    static ALIVE: Cell<usize> = const { Cell::new(0) };
}

struct Counted(Vec<u8>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - self.0.len());
    }
}

/// Pieces of some size, and a trailer.
struct Pieces {
    left: usize,
    size: usize,
    announced: bool,
}

impl BodyStream for Pieces {
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        ALIVE.set(ALIVE.get() + self.size);
        Poll::Ready(Some(Ok(Bytes::from_owner(Counted(vec![b'p'; self.size])))))
    }

    fn length(&self) -> Option<u64> {
        self.announced.then_some((self.left * self.size) as u64)
    }

    fn trailers(self: Pin<&mut Self>) -> Option<CheckedFields> {
        let mut fields = CheckedFields::new();
        fields.add("grpc-status", "0").unwrap();
        Some(fields)
    }
}

/// `/pieces/N/SIZE`, `/announced/N/SIZE`, `/shared/SIZE`, `/late/SIZE` (after a wait), `/wait/MS/SIZE`,
/// `/upload`, and files.
async fn respond(files: Rc<FileRoot>, dir: Rc<Path>, request: Request) -> Response {
    let path = request.path().to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let number = |at: usize| parts[at].parse::<usize>().unwrap();
    match parts[1] {
        "pieces" | "announced" => {
            let announced = parts[1] == "announced";
            Response::status(200).with_stream(Pieces { left: number(2), size: number(3), announced })
        }
        "shared" => Response::status(200).with_body(shared(number(2))),
        "late" => {
            crate::sleep(Duration::from_millis(5)).await;
            Response::status(200).with_body(shared(number(2)))
        }
        "wait" => {
            crate::sleep(Duration::from_millis(number(2) as u64)).await;
            Response::status(200).with_body(shared(number(3)))
        }
        "upload" => {
            let mut request = request;
            request.body().collect(1000).await.map_or_else(Response::from, Response::text)
        }
        "own" => {
            let file = std::fs::File::open(dir.join("file0")).unwrap();
            Response::status(200).with_file(file, 0..FILE as u64)
        }
        _ => files.files().answer(request).await,
    }
}

/// The beginning of a body that all of its responses share.
fn shared(size: usize) -> Bytes {
    thread_local!(static SHARED: RefCell<Bytes> = RefCell::new(vec![b's'; 4 << 20].into()));
    SHARED.with_borrow(|all| all.slice(..size))
}

const FILE: usize = 40_000;

fn content() -> Vec<u8> {
    (0..FILE).map(|i| (i % 251) as u8).collect()
}

struct World<H: Handler> {
    server: Server<Mem, H>,
    dir: tempfile::TempDir,
}

fn world(seed: u64, limits: Limits) -> World<impl Handler> {
    // On a disk a lookup may have to wait for another thread, in real time.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for n in 0..4 {
        std::fs::write(dir.path().join(format!("file{n}")), content()).unwrap();
    }
    let files = Rc::new(FileRoot::open(dir.path()).unwrap());
    let options = MemOptions { seed, cut: Cut::Random(20_000), window: 1 << 20, ..MemOptions::default() };
    let path: Rc<Path> = dir.path().into();
    let handler = move |request: Request| respond(Rc::clone(&files), Rc::clone(&path), request);
    let mut server = Server::new(Mem::new(options).unwrap(), handler, limits).with_wall(Wall::Virtual(0));
    server.listen(AT.parse().unwrap(), &ListenOptions::default()).unwrap();
    World { server, dir }
}

impl<H: Handler> World<H> {
    fn dial(&mut self, client: &WindowClient) {
        self.server.transport().dial(AT.parse().unwrap(), client.clone());
    }

    /// Runs for so long in virtual time.
    fn run(&mut self, ms: u64) {
        let until = self.server.transport().now() + Duration::from_millis(ms);
        while self.server.transport().now() < until {
            self.server.turn(Some(until)).unwrap();
        }
    }

    /// Open files of the connection that has most.
    fn most_files(&mut self) -> usize {
        let connections = self.server.connections.iter_mut().flatten();
        connections.filter_map(|c| Some(c.http2()?.open_files())).max().unwrap_or(0)
    }

    fn held(&self) -> usize {
        self.server.engine.allowance.together()
    }
}

/// A client's response on a stream, and what it should be.
fn judge(path: &str, got: &Got) {
    let parts: Vec<&str> = path.split('/').collect();
    let number = |at: usize| parts[at].parse::<usize>().unwrap();
    // A body of known length ends with its last byte.
    let trailers = u32::from(parts[1] == "pieces" || (parts[1] == "announced" && number(2) == 0));
    let expected = match parts[1] {
        "pieces" | "announced" => vec![b'p'; number(2) * number(3)],
        "shared" | "late" => vec![b's'; number(2)],
        "wait" => vec![b's'; number(3)],
        _ => content(),
    };
    assert_eq!((got.ended, got.reset, got.heads), (true, None, 1 + trailers), "{path}");
    assert!(got.body == expected, "{path}: {} bytes of {}", got.body.len(), expected.len());
}

fn paths(random: &mut Random) -> Vec<String> {
    let path = |_| match random.below(7) {
        0 => format!("/pieces/{}/{}", random.below(4), 1 + random.below(3000)),
        1 => format!("/announced/{}/{}", random.below(4), 1 + random.below(3000)),
        2 => format!("/shared/{}", random.below(50_000)),
        3 => format!("/late/{}", random.below(50_000)),
        n => format!("/file{}", n - 4),
    };
    (0..STREAMS).map(path).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Everything comes, at the pace of the windows, and few files are open meanwhile.
    #[test]
    fn everything_comes_through_small_windows(seed in any::<u64>(), window in 0..2000u32, most in 1..30_000u32) {
        let mut random = Random::new(seed);
        let mut world = world(seed, Limits::default());
        let clients: Vec<WindowClient> = (0..1 + random.below(3))
            .map(|n| WindowClient::new(paths(&mut random), window * (n as u32 % 2), 1000 + most, seed ^ n))
            .collect();
        clients.iter().for_each(|client| world.dial(client));
        let over = |client: &WindowClient| (0..STREAMS as usize).all(|n| client.got(n).ended);
        for _ in 0..10_000 {
            world.run(10);
            prop_assert!(world.most_files() <= FILES_OPEN);
            if clients.iter().all(over) {
                break;
            }
        }
        for client in &clients {
            client.paths.iter().enumerate().for_each(|(n, path)| judge(path, &client.got(n)));
        }
        prop_assert_eq!(world.held(), 0);
        prop_assert_eq!(world.most_files(), 0);
    }
}

/// Heads are memory as well. What a client is refused for them it may send again.
#[test]
fn heads_of_waiting_requests_keep_to_the_threads_limit() {
    const CLIENTS: u64 = 90;
    let mut world = world(1, Limits::default());
    let query = "q".repeat(12_000);
    let clients: Vec<WindowClient> = (0..CLIENTS)
        .map(|n| {
            let paths = (0..STREAMS).map(|stream| format!("/wait/3600000/{stream}?{query}")).collect();
            WindowClient::new(paths, 65_535, 0, n)
        })
        .collect();
    world.dial(&clients[0]);
    world.run(100);
    assert_eq!(
        world.server.counts().waiting,
        u64::from(STREAMS),
        "while there is memory, nothing is refused"
    );
    clients[1..].iter().for_each(|client| world.dial(client));
    world.run(500);
    let (asked, held) = (CLIENTS as usize * STREAMS as usize * query.len(), world.held());
    let most = UNSENT_TOGETHER + CLIENTS as usize * (H2_HEADS + 2 * query.len());
    assert!(held > UNSENT_TOGETHER && held < most && most < asked, "{held} of {asked}, at most {most}");
    let resets =
        |client: &WindowClient| (0..STREAMS as usize).filter_map(|n| client.got(n).reset).collect::<Vec<_>>();
    let refused: Vec<u32> = clients.iter().flat_map(resets).collect();
    assert!(!refused.is_empty() && refused.iter().all(|code| *code == Code::REFUSED_STREAM.0));
    // The same head again is the same memory, and is refused by nobody.
    let same = WindowClient::new(vec!["/wait/10/5".to_owned(); 100], 65_535, 0, 1);
    world.dial(&same);
    world.run(500);
    (0..100).for_each(|n| judge("/late/5", &same.got(n)));
}

/// A client that sends its FIN behind its requests.
fn half_closed(window: u32, paths: &[&str]) -> WindowClient {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    WindowClient { half_closes: true, ..WindowClient::new(paths, window, 0, 1) }
}

/// What is ready within a second of the FIN comes, a handler that still waits is cancelled.
#[test]
fn a_client_that_has_sent_its_fin_gets_its_responses() {
    let mut world = world(1, Limits::default());
    let answered = ["/late/100", "/wait/900/10", "/file0", "/pieces/2/100", "/shared/0"];
    let client = half_closed(65_535, &[&answered[..], &["/wait/5000/10", "/upload"]].concat());
    world.dial(&client);
    world.run(50);
    assert_eq!(world.server.counts().waiting, 2, "an upload that never ends has failed");
    assert_eq!((client.got(6).heads, client.got(6).ended), (1, true));
    world.run(930);
    answered.iter().enumerate().for_each(|(n, path)| judge(path, &client.got(n)));
    assert_eq!((world.server.open(), world.server.counts().waiting), (1, 1));
    world.run(150);
    assert_eq!((world.server.open(), world.server.counts().waiting), (0, 0));
    assert_eq!((client.got(5).heads, client.got(5).reset), (0, Some(Code::CANCEL.0)));
    assert_eq!(world.held(), 0);
}

/// Nobody opens the window of a response that waits for it.
#[test]
fn a_shut_window_is_not_waited_for_behind_a_fin() {
    let mut world = world(1, Limits::default());
    let client = half_closed(100, &["/shared/1000", "/file0", "/pieces/3/100", "/shared/100"]);
    world.dial(&client);
    world.run(50);
    assert_eq!((world.server.open(), world.held(), world.most_files()), (0, 0, 0));
    judge("/shared/100", &client.got(3));
    assert_eq!(client.got(0).body.len(), 100);
}

/// Unless such clients are to be waited for.
#[test]
fn a_half_closed_connection_of_http2_can_be_kept() {
    let mut world = world(1, Limits { half_close: true, ..Limits::default() });
    let client = half_closed(65_535, &["/wait/5000/10", "/wait/3600000/10"]);
    world.dial(&client);
    world.run(6_000);
    judge("/late/10", &client.got(0));
    world.run(70_000);
    assert_eq!(world.server.open(), 1);
    world.run(6_000);
    assert_eq!((world.server.open(), world.server.counts().waiting), (0, 0));
}

/// RFC 9113 section 6.9: only DATA needs a window.
#[test]
fn ends_and_trailers_come_while_the_windows_are_shut() {
    let mut world = world(1, Limits::default());
    let paths =
        ["/pieces/0/1", "/announced/0/1", "/shared/0", "/late/0", "/file0", "/pieces/1/1", "/shared/1"];
    let shut = WindowClient::new(paths.map(str::to_owned).to_vec(), 0, 0, 1);
    world.dial(&shut);
    // Bodies that are exactly as long as the window.
    let paths = ["/pieces/1/100", "/announced/2/50", "/shared/100", "/late/100"];
    let filled = WindowClient::new(paths.map(str::to_owned).to_vec(), 100, 0, 1);
    world.dial(&filled);
    world.run(100);
    for client in [&shut, &filled] {
        for (n, path) in client.paths.iter().enumerate().filter(|(n, _)| *n < 4) {
            judge(path, &client.got(n));
        }
    }
    for n in 4..7 {
        let got = shut.got(n);
        assert_eq!((got.heads, got.ended, got.reset, got.body.len()), (1, false, None, 0), "{n}");
    }
}

/// Nothing of a file is read before it may be sent.
#[test]
fn files_behind_shut_windows_take_no_memory_and_few_descriptors() {
    let mut world = world(1, Limits::default());
    let paths: Vec<String> = (0..STREAMS).map(|n| format!("/file{}", n % 4)).collect();
    for n in 0..20 {
        world.dial(&WindowClient::new(paths.clone(), 0, 0, n));
    }
    world.run(100);
    assert_eq!(world.server.open(), 20);
    assert_eq!((world.held(), world.most_files()), (0, FILES_OPEN));
}

/// Of a handler's stream the next piece is held, so that its end is known; all of them together
/// keep to the limit of a thread.
#[test]
fn streams_behind_shut_windows_keep_to_the_threads_limit() {
    const PIECE: usize = 64 << 10;
    const CLIENTS: usize = 40;
    for path in ["/pieces/9/65536", "/announced/9/65536"] {
        let mut world = world(1, Limits::default());
        let mut all = Vec::new();
        for n in 0..CLIENTS {
            let client = WindowClient::new(vec![path.to_owned(); STREAMS as usize], 0, 0, n as u64);
            world.dial(&client);
            all.push(client);
        }
        world.run(100);
        let most = UNSENT_TOGETHER + H2_HELD + CLIENTS * (PIECE + UNSENT_SCARCE);
        let alive = ALIVE.get();
        assert!(world.held() <= most && alive <= most, "{} and {alive} of {most}", world.held());
        // It may not end without another byte, so nothing of it is needed.
        assert!(!path.starts_with("/announced") || world.held() == 0);
        assert!(all.iter().all(|client| client.got(0).heads == 1));
    }
}

/// Bodies in memory, ready at once or later: as many requests wait as the limit says.
#[test]
fn shared_bodies_behind_shut_windows_keep_to_the_limit() {
    for (path, most) in [("/shared/1000000", H2_HELD + 1_000_000), ("/late/20000", STREAMS as usize * 20_000)]
    {
        let mut world = world(1, Limits::default());
        for n in 0..10 {
            world.dial(&WindowClient::new(vec![path.to_owned(); STREAMS as usize], 0, 0, n));
        }
        world.run(100);
        assert!(world.held() <= 10 * most, "{path}: {}", world.held());
    }
}

/// A connection that waits only because others hold the thread's memory goes on once they are gone.
#[test]
fn connections_go_on_when_memory_is_no_longer_scarce() {
    let limits = Limits { write_time: Duration::from_secs(5), ..Limits::default() };
    let mut world = world(1, limits);
    let greedy = vec!["/pieces/9/65536".to_owned(); STREAMS as usize];
    for n in 0..20 {
        world.dial(&WindowClient::new(greedy.clone(), 0, 0, n));
    }
    world.run(4000);
    assert!(world.server.engine.allowance.is_scarce());
    // Its first stream holds what a connection may hold then; the others would need no window.
    let mut paths = vec!["/pieces/1/65536".to_owned(); 2];
    paths.push("/pieces/0/1".to_owned());
    let patient = WindowClient::new(paths, 0, 0, 99);
    world.dial(&patient);
    world.run(500);
    assert_eq!(patient.got(2), Got::default());
    // The others' windows have been shut for too long.
    world.run(3000);
    assert!(!world.server.engine.allowance.is_scarce());
    judge("/pieces/0/1", &patient.got(2));
}

/// A file that is opened late is the one whose length was announced, or the stream is reset.
#[test]
fn a_file_that_was_replaced_while_it_waited_resets_its_stream() {
    let mut world = world(1, Limits::default());
    let mut paths = vec!["/file0".to_owned(); FILES_OPEN];
    paths.extend(["/file1", "/file2", "/file3"].map(str::to_owned));
    let client = WindowClient::new(paths.clone(), 0, 4000, 5);
    world.dial(&client);
    world.run(5);
    assert_eq!(world.most_files(), FILES_OPEN);
    let (dir, new) = (world.dir.path().to_owned(), world.dir.path().join("new"));
    // Another file of the same length, and one that has grown.
    std::fs::write(&new, vec![0; FILE]).unwrap();
    std::fs::rename(&new, dir.join("file1")).unwrap();
    std::fs::write(dir.join("file2"), vec![0; FILE + 1]).unwrap();
    for _ in 0..1000 {
        world.run(10);
    }
    for (n, path) in paths.iter().enumerate() {
        match path.as_str() {
            "/file1" | "/file2" => {
                let got = client.got(n);
                assert_eq!((got.reset, got.body.len()), (Some(Code::INTERNAL_ERROR.0), 0), "{path}");
            }
            _ => judge(path, &client.got(n)),
        }
    }
}

/// Files that a handler has opened itself cannot be opened again: further requests wait instead.
#[test]
fn files_of_handlers_keep_further_requests_waiting() {
    let mut world = world(1, Limits::default());
    let client = WindowClient::new(vec!["/own".to_owned(); 40], 0, 60_000, 5);
    let mut shut = client.clone();
    (shut.grows, shut.got) = (0, Arc::default());
    world.dial(&shut);
    world.run(100);
    let began = (0..40).filter(|n| shut.got(*n).heads > 0).count();
    assert_eq!((began, world.most_files()), (FILES_OPEN, FILES_OPEN));
    world.dial(&client);
    for _ in 0..1000 {
        world.run(10);
        assert!(world.most_files() <= FILES_OPEN);
    }
    (0..40).for_each(|n| judge("/own", &client.got(n)));
}

/// A client of HTTP/1.1 that reads nothing.
struct Deaf(String);

impl Peer for Deaf {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        out.pause(conn);
        out.send(conn, self.0.as_bytes());
    }

    fn received(&mut self, _: Time, _: PeerConn, _: &[u8], _: &mut PeerActions) {}
}

/// Over HTTP/1.1 responses leave in order, so further requests wait.
#[test]
fn a_pipeline_of_files_opens_few_at_a_time() {
    let mut world = world(1, Limits::default());
    let file = std::fs::File::create(world.dir.path().join("large")).unwrap();
    file.set_len(8 << 20).unwrap();
    let requests = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n".repeat(60);
    world.server.transport().dial(AT.parse().unwrap(), Deaf(requests));
    world.run(100);
    let connection = world.server.connections.iter().flatten().next().unwrap();
    let queue = &connection.work.as_ref().unwrap().queue;
    let files =
        (0..queue.len()).filter(|n| matches!(queue.get(*n), Some(OrderedResponse::File { .. }))).count();
    assert!((1..=FILES_OPEN).contains(&files), "{files}");
}
