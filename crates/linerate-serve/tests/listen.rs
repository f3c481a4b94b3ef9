//! Unix sockets, sockets that the caller has opened, a server that ends when a future does, and the runtime beside the loops.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_serve::{
    AccessLog, Address, Handle, Io, ListeningSocket, LogFormat, LogTarget, Notices, Request, Response,
    ServerOptions, TokioRuntime, spawn_with,
};
use linerate_skips::{need, skip_part};

const PATIENCE: Duration = Duration::from_secs(30);

/// Says by what and from where a request came.
async fn who(request: Request) -> Response {
    let listener = request.listener().map(ToString::to_string).unwrap_or_default();
    let peer = request.peer().map_or("nobody".to_owned(), |peer| peer.ip().to_string());
    Response::text(format!("{listener} {peer}\n"))
}

/// Runs a test over each way to move bytes of the kernel's that this machine has.
fn with(test: impl Fn(Io)) {
    test(Io::Epoll);
    match linerate_net::uring::Uring::new() {
        Ok(_) => test(Io::Uring),
        Err(error) => skip_part("over uring", need::IO_URING, error),
    }
}

fn start(options: ServerOptions) -> Handle {
    spawn_with(options, || who).unwrap()
}

fn exchange(mut stream: impl Read + Write, end: impl Fn(&mut dyn Write)) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    end(&mut stream);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask_unix(path: &Path) -> String {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    exchange(stream, |_| {})
}

fn ask_tcp(at: std::net::SocketAddr) -> String {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    exchange(stream, |_| {})
}

#[test]
fn a_unix_socket_is_answered_by_all_threads_and_its_file_goes_with_the_server() {
    with(|io| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        let log = folder.path().join("log");
        let access =
            AccessLog::open(LogTarget::File(log.clone()), LogFormat::Common, Notices::collecting()).unwrap();
        let listen = vec![path.clone().into(), "127.0.0.1:0".parse().unwrap()];
        let options = ServerOptions { listen, io, threads: 2, ..ServerOptions::default() };
        let server = start(ServerOptions { access_log: Some(access.clone()), ..options.clone() });
        for _ in 0..20 {
            assert!(ask_unix(&path).ends_with(&format!("\r\n\r\nunix:{} nobody\n", path.display())));
        }
        assert!(ask_tcp(server.addr()).ends_with(&format!("{} 127.0.0.1\n", server.addr())));
        assert_eq!(server.addrs()[0], Address::Unix(path.as_path().into()));
        // A second server cannot take it from a running one.
        let error = spawn_with(options, || who).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
        assert!(error.to_string().starts_with("unix:"), "{error}");
        assert_eq!(server.stop().requests, 21);
        assert!(!path.exists());
        access.flush(PATIENCE);
        let log = std::fs::read_to_string(log).unwrap();
        let by_unix = log.lines().filter(|line| line.starts_with("unix: - - [")).count();
        assert!(by_unix == 20 && log.contains("127.0.0.1 - - ["), "{log}");
    });
}

#[test]
fn a_port_that_a_killed_server_closes_late_is_taken_and_one_in_use_is_not() {
    with(|io| {
        let killed = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = killed.local_addr().unwrap();
        for threads in [1, 2] {
            let options = ServerOptions { listen: vec![Address::Tcp(at)], io, threads, ..Default::default() };
            let error = spawn_with(options, || who).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
        }
        let end = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(killed);
        });
        let options =
            ServerOptions { listen: vec![Address::Tcp(at)], io, threads: 2, ..ServerOptions::default() };
        let server = start(options);
        end.join().unwrap();
        assert!(ask_tcp(at).contains("200 OK"));
        server.stop();
    });
}

#[test]
fn a_reload_opens_and_removes_unix_sockets() {
    with(|io| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let at = |name: &str| vec![Address::from(path(name)), "127.0.0.1:0".parse().unwrap()];
        let options = ServerOptions { listen: at("a"), io, threads: 2, ..ServerOptions::default() };
        let mut server = start(options.clone());
        let tcp = server.addr();
        server.reload(&ServerOptions { listen: at("b"), ..options.clone() }).unwrap();
        assert!(!path("a").exists() && ask_unix(&path("b")).contains("200 OK"));
        assert_eq!(server.addr(), tcp, "it is the same as before");
        let bad = Address::from(folder.path().join("no/such"));
        server.reload(&ServerOptions { listen: vec![bad], ..options }).unwrap_err();
        assert!(ask_unix(&path("b")).contains("200 OK") && ask_tcp(tcp).contains("200 OK"));
        drop(server);
        assert!(!path("b").exists());
    });
}

#[test]
fn sockets_of_the_caller_are_shared_and_stay_open() {
    with(|io| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs");
        let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let (kept, at) = (tcp.try_clone().unwrap(), tcp.local_addr().unwrap());
        let sockets = vec![ListeningSocket::try_from(tcp).unwrap(), ListeningSocket::try_from(unix).unwrap()];
        let options =
            ServerOptions { listen: Vec::new(), sockets, io, threads: 2, ..ServerOptions::default() };
        let mut server = start(options.clone());
        assert_eq!(server.addr(), at);
        // The other options may change.
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        server.reload(&ServerOptions { listen, ..options.clone() }).unwrap();
        assert_eq!((server.addrs().len(), server.addrs()[1].clone()), (3, at.into()));
        for _ in 0..20 {
            assert!(ask_tcp(at).ends_with(&format!("{at} 127.0.0.1\n")));
            assert!(ask_unix(&path).ends_with(" nobody\n"));
        }
        drop((server.stop(), options));
        assert!(path.exists(), "it is the caller's");
        // The caller's own descriptor still accepts: no part of the server is left that would.
        let mut client = TcpStream::connect(at).unwrap();
        kept.set_nonblocking(false).unwrap();
        let (mut accepted, _) = kept.accept().unwrap();
        accepted.write_all(b"x").unwrap();
        drop(accepted);
        let mut answer = String::new();
        client.shutdown(Shutdown::Write).unwrap();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "x");
    });
}

#[test]
fn a_future_ends_it() {
    let server = start(ServerOptions::default());
    let at = server.addr();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counts = runtime.block_on(async {
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask_tcp(at);
            end.send(()).unwrap();
            answer
        });
        let counts = server
            .stop_on(async {
                let _ = ended.await;
            })
            .await;
        assert!(asked.await.unwrap().contains("200 OK"));
        counts
    });
    assert_eq!((counts.requests, counts.open), (1, 0));
    assert!(TcpStream::connect(at).is_err());
}

/// A computing task occupies only its own worker: other tasks continue.
#[test]
fn a_task_that_computes_does_not_keep_the_others_waiting() {
    let computes = Arc::new(AtomicBool::new(true));
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cases = [
        (TokioRuntime::PerLoop, 2),
        (TokioRuntime::Workers(2), 1),
        (TokioRuntime::Handle(theirs.handle().clone()), 1),
    ];
    for (runtime, threads) in cases {
        computes.store(true, Ordering::SeqCst);
        let flag = Arc::clone(&computes);
        let options = ServerOptions { runtime: runtime.clone(), threads, ..ServerOptions::default() };
        let server = spawn_with(options, move || {
            let flag = Arc::clone(&flag);
            move |request: Request| {
                let flag = Arc::clone(&flag);
                async move {
                    if request.path() == "/compute" {
                        tokio::spawn(async move { while flag.load(Ordering::Relaxed) {} });
                        return Response::text("it computes\n");
                    }
                    let slept = tokio::spawn(tokio::time::sleep(Duration::from_millis(1))).await;
                    Response::text(format!("slept {}\n", slept.is_ok()))
                }
            }
        })
        .unwrap();
        let get = |path: &str| {
            let mut stream = TcpStream::connect(server.addr()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let begun = Instant::now();
        assert!(get("/compute").ends_with("it computes\n"));
        for _ in 0..10 {
            assert!(get("/").ends_with("slept true\n"), "{runtime:?}");
        }
        // It computes until the end of this: with one worker nothing of the above would have come.
        assert!(begun.elapsed() < PATIENCE);
        computes.store(false, Ordering::SeqCst);
        server.stop();
    }
}
