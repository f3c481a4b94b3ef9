//! The servers in the ring: how each is built, started, and asked what it cost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use linerate_lab::servers::{Usage, descendants};

use super::scenario::{AXUM_NODELAY, BARE, BARE_URING, FILES, FILES_URING, NETTY, THREADS};
use crate::bench::server::wrapper;
use crate::bench::{Tools, WITH_PEERS, build_released, h3};
use xtask::{nginx, shell};

/// A JVM takes its time.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// One server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServePeer {
    /// `linerate serve` with these flags.
    Linerate(&'static str, &'static str),
    /// The same, with a directory of files.
    Files(&'static str, &'static str),
    /// A server of bench/peers, by its name there.
    Rust(&'static str, &'static str),
    /// A server of bench/raw, by its command there.
    Raw(&'static str, &'static str),
    /// nginx, with further parameters of its listener.
    Nginx(&'static str, &'static str),
    /// Netty on NIO; `true`: handlers block their loop.
    Netty(&'static str, bool),
    /// net/http of Go.
    Go,
    /// http of Node.
    Node,
    /// Swoole of PHP.
    Swoole,
    /// `linerate serve` over TLS, for `bench tls`.
    TlsLinerate,
    /// The bare server over TLS, for `bench tls`.
    TlsBare,
    /// nginx over TLS 1.3 with AES-256-GCM.
    TlsNginx(Sessions),
    /// nginx with HTTP/2, for `bench h2`: in clear text and over TLS.
    H2Nginx,
    H2TlsNginx,
    /// `linerate serve` over HTTP/3, for `bench h3`.
    H3Linerate,
    /// nginx over HTTP/3, as `bench h3` has built it.
    H3Nginx,
}

/// Whether nginx lets clients resume sessions, and whether it writes down which did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    Full,
    Resumed,
    FullLogged,
    ResumedLogged,
}

use ServePeer::{
    Files, Go, H2Nginx, H2TlsNginx, H3Linerate, H3Nginx, Linerate, Netty, Nginx, Node, Raw, Rust, Swoole,
    TlsBare, TlsLinerate, TlsNginx,
};

const PEERS: [ServePeer; 23] = [
    Linerate("linerate epoll", "--io epoll"),
    Linerate("linerate uring", "--io uring"),
    Linerate("linerate epoll deferred", "--io epoll --defer-accept"),
    Linerate("linerate uring deferred", "--io uring --defer-accept"),
    Files(FILES, "--io epoll"),
    Files(FILES_URING, "--io uring"),
    Rust("linerate epoll tokio", "linerate-tokio-epoll"),
    Rust("linerate uring tokio", "linerate-tokio-uring"),
    Rust("linerate epoll axum", "linerate-axum-epoll"),
    Rust("linerate uring axum", "linerate-axum-uring"),
    Rust("hyper", "hyper"),
    Rust("axum", "axum"),
    Rust(AXUM_NODELAY, "axum-nodelay"),
    Rust(THREADS, "threads"),
    Raw(BARE, "serve"),
    Raw(BARE_URING, "serve-uring"),
    Nginx("nginx", ""),
    Nginx("nginx deferred", " deferred"),
    Netty(NETTY, false),
    Netty("netty blocking", true),
    Go,
    Node,
    Swoole,
];

fn bench_dir() -> PathBuf {
    shell::target_dir().join("bench")
}

fn sources(of: &str) -> PathBuf {
    shell::root().join("bench/peers").join(of)
}

/// Builds all of them. Failures are reported, and those peers are missing later.
pub(crate) fn build() -> Result<()> {
    build_released(&WITH_PEERS)?;
    for (what, built) in [("netty", build_netty()), ("go", build_go())] {
        if let Err(e) = built {
            println!("{what} cannot be built: {e:#}");
        }
    }
    Ok(())
}

fn jars() -> PathBuf {
    bench_dir().join("netty/jars")
}

fn go() -> PathBuf {
    bench_dir().join("go/peer")
}

fn build_netty() -> Result<()> {
    let maven = shell::find("mvn").context("mvn is not installed")?;
    let changed = |p: PathBuf| std::fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest = [sources("netty/pom.xml"), sources("netty/src/main/java/linerate/Server.java")].map(changed);
    if changed(jars()).is_some_and(|built| newest.iter().flatten().all(|source| *source < built)) {
        return Ok(());
    }
    // Nothing is measured that is not what the sources say.
    let _ = std::fs::remove_dir_all(bench_dir().join("netty"));
    let mut c = shell::program(maven);
    c.args(["--quiet", "--batch-mode", "package"]).arg("-f").arg(sources("netty/pom.xml"));
    shell::output(c.arg(format!("-Doutput={}", bench_dir().join("netty").display()))).map(drop)
}

/// The server written in Go.
pub(crate) fn build_go() -> Result<()> {
    let program = shell::find("go").context("go is not installed")?;
    let _ = std::fs::remove_file(go());
    let mut c = shell::program(program);
    shell::output(c.current_dir(sources("go")).args(["build", "-o"]).arg(go()).arg(".")).map(drop)
}

impl ServePeer {
    /// The server of this name.
    pub(crate) fn of(name: &str) -> Option<ServePeer> {
        PEERS.into_iter().find(|p| p.name() == name)
    }

    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Linerate(name, _)
            | Files(name, _)
            | Rust(name, _)
            | Raw(name, _)
            | Nginx(name, _)
            | Netty(name, _) => name,
            Go => "go",
            Node => "node",
            Swoole => "swoole",
            TlsLinerate | H3Linerate => "linerate serve",
            TlsBare => "bare",
            TlsNginx(_) | H2Nginx | H2TlsNginx | H3Nginx => "nginx",
        }
    }

    /// Why it is not there, if it is not.
    pub(crate) fn missing(self) -> Option<String> {
        let there = match self {
            Linerate(..) | Files(..) | Rust(..) | Raw(..) | TlsLinerate | TlsBare | H3Linerate => true,
            H3Nginx => h3::nginx::program().is_file(),
            Nginx(..) | TlsNginx(_) | H2Nginx | H2TlsNginx => shell::find("nginx").is_some(),
            Netty(..) => shell::find("java").is_some() && jars().is_dir(),
            Go => go().is_file(),
            Node => shell::find("node").is_some(),
            Swoole => has_swoole(),
        };
        (!there).then(|| match self {
            Swoole => "php with swoole is not installed".into(),
            Netty(..) => "no java, or it could not be built".into(),
            _ => format!("{} is not installed, or could not be built", self.name()),
        })
    }

    /// Path that asks it for what others give at `path`.
    pub(crate) fn path(self, path: &'static str) -> &'static str {
        if self == Netty("netty blocking", true) && path == "/delay/10" { "/block/10" } else { path }
    }

    /// Program and arguments.
    fn command(self, t: &Tools, at: SocketAddr, dir: &Path) -> Result<Vec<String>> {
        let words = |all: String| all.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let release = shell::target_dir().join("release").join("linerate-bench-peers");
        Ok(match self {
            Linerate(_, flags) => {
                words(format!("{} serve --listen {at} --threads 1 {flags} {}", t.linerate.display(), t.flags))
            }
            Files(_, flags) => {
                let www = www(dir)?;
                let dir = format!("--dir {}", www.display());
                Linerate("", flags).command(t, at, &www)?.into_iter().chain(words(dir)).collect()
            }
            Rust(_, name) => words(format!("{} {name} {at}", release.display())),
            Raw(_, command) => words(format!("{} {command} --listen {at} --body 14", t.raw.display())),
            TlsLinerate => {
                let [cert, key] = certificate(dir, LOCAL)?;
                let tls = format!("--tls-cert {} --tls-key {}", cert.display(), key.display());
                words(format!("{} serve --listen {at} --threads 1 {tls} {}", t.linerate.display(), t.flags))
            }
            H3Linerate => {
                TlsLinerate.command(t, at, dir)?.into_iter().chain(["--http3".to_owned()]).collect()
            }
            H3Nginx => {
                std::fs::write(dir.join("nginx.conf"), h3_nginx(at, dir)?)?;
                run_nginx(&h3::nginx::program(), dir)
            }
            TlsBare => {
                let [cert, key] = certificate(dir, LOCAL)?;
                let tls = format!("--tls-cert {} --tls-key {}", cert.display(), key.display());
                words(format!("{} serve-tls --listen {at} --body 14 {tls}", t.raw.display()))
            }
            TlsNginx(sessions) => {
                std::fs::write(dir.join("nginx.conf"), tls_nginx(at, " ssl", sessions, dir)?)?;
                start_nginx(dir)?
            }
            H2Nginx => Nginx("", " http2").command(t, at, dir)?,
            H2TlsNginx => {
                std::fs::write(dir.join("nginx.conf"), tls_nginx(at, " ssl http2", Sessions::Resumed, dir)?)?;
                start_nginx(dir)?
            }
            Go => words(format!("{} {at}", go().display())),
            Node => {
                let script = sources("node/server.js");
                words(format!("node {} {} {}", script.display(), at.ip(), at.port()))
            }
            Swoole => {
                let script = sources("swoole/server.php");
                words(format!("php {} {} {}", script.display(), at.ip(), at.port()))
            }
            Netty(..) => {
                let (classes, jars) = (bench_dir().join("netty/classes"), jars());
                let path = format!("{}:{}/*", classes.display(), jars.display());
                words(format!("java -cp {path} linerate.Server {} {}", at.ip(), at.port()))
            }
            Nginx(_, listening) => {
                let text = nginx::configuration(at, listening, &locations(dir)?);
                std::fs::write(dir.join("nginx.conf"), text)?;
                start_nginx(dir)?
            }
        })
    }
}

fn start_nginx(dir: &Path) -> Result<Vec<String>> {
    Ok(run_nginx(&shell::find("nginx").context("nginx is not installed")?, dir))
}

fn run_nginx(program: &Path, dir: &Path) -> Vec<String> {
    let words =
        [&*program.to_string_lossy(), "-p", &dir.to_string_lossy(), "-c", "nginx.conf", "-e", "error.log"];
    words.map(str::to_owned).into()
}

/// One process over QUIC, and over TLS beside it so that its start is seen, with a file of 1 KiB.
fn h3_nginx(at: SocketAddr, dir: &Path) -> Result<String> {
    let [cert, key] = certificate(dir, LOCAL)?;
    let file = dir.join("1024.bin");
    std::fs::write(&file, vec![b'x'; 1024])?;
    let server = format!(
        "listen {at} quic; quic_gso on; http3_max_concurrent_streams 128;
        ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;
        location = /bytes/1024 {{ default_type application/octet-stream; alias {}; }}",
        cert.display(),
        key.display(),
        file.display()
    );
    Ok(nginx::configuration(at, " ssl", &server))
}

/// What nginx writes of each request for [`Sessions::FullLogged`]: whether the session was resumed, version and cipher.
pub(crate) const TLS_LOG: &str = "tls.log";

fn tls_nginx(at: SocketAddr, listening: &str, sessions: Sessions, dir: &Path) -> Result<String> {
    let [cert, key] = certificate(dir, LOCAL)?;
    let resumes = matches!(sessions, Sessions::Resumed | Sessions::ResumedLogged);
    let logs = matches!(sessions, Sessions::FullLogged | Sessions::ResumedLogged);
    let kept =
        if resumes { "on; ssl_session_cache shared:sessions:10m" } else { "off; ssl_session_cache off" };
    let log = if logs { format!("access_log {TLS_LOG} tls;") } else { String::new() };
    let server = format!(
        "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites TLS_AES_256_GCM_SHA384; ssl_session_tickets {kept}; {log}
        {}",
        cert.display(),
        key.display(),
        locations(dir)?
    );
    let text = nginx::configuration(at, listening, &server);
    let format = "http {\n    log_format tls '$ssl_session_reused $ssl_protocol $ssl_cipher';";
    Ok(text.replacen("http {", format, 1))
}

/// The names of a server that is called on this machine.
pub(crate) const LOCAL: &str = "DNS:localhost,IP:127.0.0.1";

/// Certificate (`cert.pem`) and key (`key.pem`) on P-256 for these names, signed by itself.
pub(crate) fn certificate(dir: &Path, names: &str) -> Result<[PathBuf; 2]> {
    let files = [dir.join("cert.pem"), dir.join("key.pem")];
    let mut c = shell::program(shell::find("openssl").context("openssl is not installed")?);
    c.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
    c.args(["-subj", "/CN=localhost", "-addext", &format!("subjectAltName={names}")]);
    c.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    shell::output(c.arg("-out").arg(&files[0]).arg("-keyout").arg(&files[1]))?;
    Ok(files)
}

fn has_swoole() -> bool {
    let modules = shell::find("php").map(|php| shell::output(shell::program(php).arg("-m")));
    matches!(modules, Some(Ok(text)) if text.lines().any(|l| l.trim() == "swoole"))
}

/// Our server's built-in routes: hello at /, bytes at /bytes/N. Files serve what is too long for a
/// string of nginx.
fn locations(dir: &Path) -> Result<String> {
    let mut all = format!(
        "location = / {{ {} }}\n        location = /bytes/3700 {{ {} }}",
        nginx::hello(14),
        nginx::hello(3_700)
    );
    for bytes in [32_000, 1_000_000] {
        let file = dir.join(format!("{bytes}.bin"));
        std::fs::write(&file, vec![b'x'; bytes])?;
        all += &format!(
            "\n        location = /bytes/{bytes} {{ default_type application/octet-stream; alias {}; }}",
            file.display()
        );
    }
    all += &format!("\n        location /file/ {{ root {}; }}", www(dir)?.display());
    Ok(all)
}

/// The requested files, in a folder for servers of files.
fn www(dir: &Path) -> Result<PathBuf> {
    let www = dir.join("www");
    std::fs::create_dir_all(www.join("file"))?;
    for bytes in [32_000, 1_000_000, 100_000_000] {
        std::fs::write(www.join(format!("file/{bytes}.bin")), vec![b'x'; bytes])?;
    }
    Ok(www)
}

/// A server that runs, pinned and favoured.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    pub(crate) peer: ServePeer,
    pub(crate) address: SocketAddr,
    wrapper: Child,
    pid: u32,
    pub(crate) dir: tempfile::TempDir,
}

/// Resources that a server used during a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Processor time of its processes, seconds.
    pub(crate) cpu_s: f64,
    /// For how long its threads were runnable and had no core, seconds.
    pub(crate) waited_s: f64,
}

impl PeerProcess {
    /// Starts it and waits until it takes connections.
    pub(crate) fn start(t: &Tools, peer: ServePeer) -> Result<PeerProcess> {
        let dir = tempfile::tempdir()?;
        // Bound and let go: not every server can say which port it got from 0.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut words = wrapper(t, dir.path());
        words.extend(peer.command(t, address, dir.path())?);
        let mut c = Command::new(&words[0]);
        let output = std::fs::File::create(dir.path().join("output"))?;
        c.args(&words[1..]).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let wrapper = c.spawn().context("cannot start the wrapper")?;
        let mut started = PeerProcess { peer, address, wrapper, pid: 0, dir };
        started.wait_until_ready()?;
        Ok(started)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.wrapper.try_wait()? {
                bail!("{} ended at once ({status}): {}", self.peer.name(), self.output());
            }
            ensure!(start.elapsed() < READY_WITHIN, "{} is not ready: {}", self.peer.name(), self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = self.wrapper.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        self.pid = children.split_whitespace().next().context("the wrapper has no child")?.parse()?;
        Ok(())
    }

    fn output(&self) -> String {
        let read = |name| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        (read("output") + &read("error.log")).trim().to_owned()
    }

    /// What the server has used so far, with the processes that it started.
    pub(crate) fn used(&self) -> Result<Usage> {
        let usage = Usage::of(&descendants(self.pid.cast_signed()));
        ensure!(!usage.is_empty(), "{} is gone: {}", self.peer.name(), self.output());
        Ok(usage)
    }

    /// What it has used since then.
    pub(crate) fn used_since(&self, before: &Usage) -> Result<Used> {
        let now = self.used()?;
        let (cpu, waited) = (now.cpu_since(before), now.waited_since(before));
        Ok(Used { cpu_s: cpu.as_secs_f64(), waited_s: waited.as_secs_f64() })
    }

    /// A figure of /proc/PID/status, kB: VmRSS is what it holds, VmHWM the most it has held.
    pub(crate) fn memory_kb(&self, name: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok()).with_context(|| format!("no {name}"))
    }

    /// Sends one request; returns the length of the whole response.
    pub(crate) fn ask(&self, path: &str) -> Result<usize> {
        let mut c = TcpStream::connect(self.address)?;
        c.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(c, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = Vec::new();
        c.read_to_end(&mut answer)?;
        let good = answer.starts_with(b"HTTP/1.1 200");
        ensure!(good, "{} answers {path}: {}", self.peer.name(), String::from_utf8_lossy(&answer));
        Ok(answer.len())
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The server dies with its wrapper.
        let _ = self.wrapper.kill();
        let _ = self.wrapper.wait();
    }
}
