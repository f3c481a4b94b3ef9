//! The servers: built once, started in the server's namespace for each case.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use linerate_netbox::{NamespaceProcess, NetBox, SERVER_IP};

use super::case::{BackgroundActivity, Case, CaseServer, ServerCpus};
use super::dns::NAME;
use super::nginx::{BEHIND, NAGLE_BEHIND, PORT, nginx_conf};
use crate::bench::serve::peer::certificate;
use xtask::shell;

/// Files of the servers' certificate.
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const STORE: &str = "store.p12";
/// The longest a server may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The programs to run, built.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The released command.
    pub(crate) linerate: PathBuf,
    /// The one that explains.
    pub(crate) explain: PathBuf,
    /// The folder of the other servers.
    dir: PathBuf,
    /// Servers speak TLS, with the certificate in that folder.
    tls: bool,
}

impl Programs {
    /// Builds what is not built yet; programs of this machine that are missing leave their cases
    /// out.
    pub(crate) fn build(linerate: Option<&Path>, explain: Option<&Path>) -> Result<Programs> {
        let whole = |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
        let linerate = match linerate {
            Some(path) => whole(path)?,
            None => {
                shell::run(shell::cargo().args(["build", "--release", "--quiet", "-p", "linerate-cli"]))?;
                shell::target_dir().join("release/linerate")
            }
        };
        let dir = shell::target_dir().join("explain-servers");
        std::fs::create_dir_all(&dir)?;
        for (name, text) in [
            ("server.py", include_str!("programs/server.py")),
            ("server.js", include_str!("programs/server.js")),
            ("server.go", include_str!("programs/server.go")),
            ("Server.java", include_str!("programs/Server.java")),
            ("collide.py", include_str!("programs/collide.py")),
            ("caller.js", include_str!("programs/caller.js")),
            ("odd.py", include_str!("programs/odd.py")),
            ("app.py", include_str!("programs/wild/app.py")),
            ("app.js", include_str!("programs/wild/app.js")),
            ("app.php", include_str!("programs/wild/app.php")),
            ("app.rb", include_str!("programs/wild/app.rb")),
            ("app.go", include_str!("programs/wild/app.go")),
            ("App.java", include_str!("programs/wild/App.java")),
            ("TomcatApp.java", include_str!("programs/wild/TomcatApp.java")),
            ("JettyApp.java", include_str!("programs/wild/JettyApp.java")),
            ("UndertowApp.java", include_str!("programs/wild/UndertowApp.java")),
            ("rows.py", include_str!("programs/wild/rows.py")),
        ] {
            std::fs::write(dir.join(name), text)?;
        }
        if shell::find("go").is_some() {
            for (out, from) in [("server-go", "server.go"), ("app-go", "app.go")] {
                shell::run(Command::new("go").current_dir(&dir).args(["build", "-o", out, from]))?;
            }
        }
        if shell::find("javac").is_some() {
            shell::run(Command::new("javac").current_dir(&dir).args(["Server.java", "App.java"]))?;
        }
        super::jars::compile(&dir)?;
        let explain = explain.map(whole).transpose()?.unwrap_or_else(|| linerate.clone());
        Ok(Programs { linerate, explain, dir, tls: false })
    }

    /// From now on servers speak TLS, with a certificate of their own for an ECDSA key.
    pub(crate) fn issue_certificate(&mut self) -> Result<()> {
        let names = format!("DNS:{NAME},DNS:localhost,IP:{SERVER_IP},IP:127.0.0.1");
        certificate(&self.dir, &names)?;
        // For the JVM.
        let mut c = shell::program(shell::find("openssl").context("openssl is not installed")?);
        c.current_dir(&self.dir).args([
            "pkcs12",
            "-export",
            "-in",
            CERTIFICATE,
            "-inkey",
            KEY,
            "-out",
            STORE,
        ]);
        shell::output(c.args(["-passout", "pass:bench"]))?;
        self.tls = true;
        Ok(())
    }

    /// The certificate by which servers are known, where they speak TLS.
    pub(crate) fn certificate(&self) -> Option<PathBuf> {
        self.tls.then(|| self.dir.join(CERTIFICATE))
    }

    /// Why a case cannot be run over TLS.
    pub(crate) fn plain_alone(&self, case: &Case) -> Option<&'static str> {
        let wild = matches!(case.server, CaseServer::Wild(_));
        let misbehaves = matches!(case.server, CaseServer::Linerate(flags) if flags.contains(&"--misbehave"));
        let others = case.beside.iter().any(|b| {
            !matches!(
                b,
                BackgroundActivity::Load(_)
                    | BackgroundActivity::LoadNear(_)
                    | BackgroundActivity::Hold(_)
                    | BackgroundActivity::Churn(..)
            )
        });
        if !self.tls {
            case.over_tls.then_some("their fault is in TLS (--tls)")
        } else if case.watched {
            Some("packets of other programs are read in clear")
        } else if wild {
            Some("the servers that people run are tried in clear")
        } else if misbehaves {
            Some("`linerate serve --misbehave` speaks HTTP in clear alone")
        } else if others {
            Some("the callers beside it speak HTTP in clear")
        } else {
            None
        }
    }

    /// A program that a case needs and this machine lacks.
    pub(crate) fn lacking(&self, case: &Case) -> Option<&'static str> {
        let server = match case.server {
            CaseServer::Linerate(_) => None,
            CaseServer::Wild(wild) => return wild.kind.lacking(&self.dir),
            CaseServer::Python(_) | CaseServer::Odd(_) => Some("python3"),
            CaseServer::Jdk(..) => Some("javac"),
            CaseServer::Node(_) => Some("node"),
            CaseServer::Go => Some("go"),
            CaseServer::Nginx(_) | CaseServer::NginxHttp2(_) => Some("nginx"),
        };
        let callers = case.beside.iter().map(|beside| match beside {
            BackgroundActivity::Collide(..) => Some("python3"),
            BackgroundActivity::Bursts(_) => Some("node"),
            _ => None,
        });
        callers.chain([server]).flatten().find(|needs| shell::find(needs).is_none())
    }

    /// One of our programs that an interpreter runs.
    pub(crate) fn script(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// A server that runs, and all that belongs to it.
#[derive(Debug)]
pub(crate) struct StartedServer {
    /// The first is the server; the others stand behind or beside it.
    processes: Vec<NamespaceProcess>,
    _group: Option<CpuGroup>,
    _dir: tempfile::TempDir,
}

impl StartedServer {
    pub(crate) fn pid(&self) -> u32 {
        self.processes[0].id()
    }
}

/// Starts it and waits until it listens.
pub(crate) fn start(
    net: &NetBox,
    programs: &Programs,
    server: CaseServer,
    share: ServerCpus,
) -> Result<StartedServer> {
    let dir = tempfile::tempdir()?;
    let mut c = command(net, programs, server, share, dir.path())?;
    c.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    c.stderr(std::fs::File::create(dir.path().join("errors"))?);
    let mut behind = Vec::new();
    let misbehaves = match server {
        CaseServer::Nginx(lines) if lines.contains("http://nagle") => {
            Some((NAGLE_BEHIND, &["--misbehave", "nagle-split"][..]))
        }
        CaseServer::Nginx(_) => Some((BEHIND, &["--misbehave", "late-body=100"][..])),
        CaseServer::Wild(wild) => wild.behind().map(|how| (BEHIND, how)),
        _ => None,
    };
    if let Some((port, how)) = misbehaves {
        let mut c = net.server().command(&programs.linerate);
        c.args(["serve", "--listen", &format!("0.0.0.0:{port}")]).args(how);
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        behind.push(net.server().spawn(c)?);
    }
    let mut process = net.server().spawn(c)?;
    let begin = Instant::now();
    while !net.server().listening()?.contains(&PORT) {
        let errors = || std::fs::read_to_string(dir.path().join("errors")).unwrap_or_default();
        ensure!(!process.ended(), "{server:?} ended at once: {}", errors());
        ensure!(begin.elapsed() < READY_WITHIN, "{server:?} does not listen: {}", errors());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut group = None;
    match share {
        ServerCpus::Whole => {}
        ServerCpus::Tenth => group = Some(CpuGroup::throttled(process.id())?),
        ServerCpus::Contended(n) | ServerCpus::Beside(n) => {
            for _ in 0..n {
                let mut c = match share {
                    ServerCpus::Contended(_) => net.server().command("taskset"),
                    _ => net.server().command("env"),
                };
                if matches!(share, ServerCpus::Contended(_)) {
                    c.args(["-c", "0"]);
                }
                c.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
                behind.push(net.server().spawn(c)?);
            }
        }
    }
    behind.insert(0, process);
    Ok(StartedServer { processes: behind, _group: group, _dir: dir })
}

fn command(
    net: &NetBox,
    programs: &Programs,
    server: CaseServer,
    share: ServerCpus,
    dir: &Path,
) -> Result<Command> {
    let at = format!("0.0.0.0:{PORT}");
    let port = PORT.to_string();
    let file = |name: &str| programs.dir.join(name).into_os_string();
    let words: Vec<std::ffi::OsString> = match server {
        CaseServer::Linerate(flags) => {
            let own = [programs.linerate.clone().into(), "serve".into(), "--listen".into(), at.into()];
            let tls = if programs.tls {
                vec!["--tls-cert".into(), file(CERTIFICATE), "--tls-key".into(), file(KEY)]
            } else {
                Vec::new()
            };
            own.into_iter().chain(flags.iter().map(Into::into)).chain(tls).collect()
        }
        CaseServer::Python(mode) => vec!["python3".into(), file("server.py"), port.into(), mode.into()],
        CaseServer::Odd(mode) => vec!["python3".into(), file("odd.py"), port.into(), mode.into()],
        CaseServer::Wild(wild) => wild.words(&programs.dir, dir)?,
        CaseServer::Node(mode) => vec!["node".into(), file("server.js"), port.into(), mode.into()],
        CaseServer::Go => vec![file("server-go"), port.into()],
        CaseServer::Jdk(mode, flags) => {
            let own = [std::ffi::OsString::from("java")].into_iter().chain(flags.iter().map(Into::into));
            own.chain(["-cp".into(), programs.dir.clone().into(), "Server".into(), port.into(), mode.into()])
                .collect()
        }
        CaseServer::Nginx(lines) | CaseServer::NginxHttp2(lines) => {
            let nginx = shell::find("nginx").context("nginx is not installed")?;
            let listen = nginx_listen(programs, matches!(server, CaseServer::NginxHttp2(_)));
            std::fs::write(dir.join("nginx.conf"), nginx_conf(&listen, lines))?;
            words_file(dir)?;
            vec![
                nginx.into(),
                "-p".into(),
                dir.into(),
                "-c".into(),
                "nginx.conf".into(),
                "-e".into(),
                "error.log".into(),
            ]
        }
    };
    let mut all = words.into_iter();
    let first = all.next().context("a program")?;
    let mut c = match share {
        ServerCpus::Contended(_) => {
            let mut c = net.server().command("taskset");
            c.args(["-c", "0"]).arg(first);
            c
        }
        _ => net.server().command(first),
    };
    c.args(all);
    if programs.tls {
        let vars = [("BENCH_TLS_CERT", CERTIFICATE), ("BENCH_TLS_KEY", KEY), ("BENCH_TLS_P12", STORE)];
        c.envs(vars.map(|(name, value)| (name, file(value))));
    }
    if let CaseServer::Wild(wild) = server {
        c.env("BENCH_MODE", wild.mode.name()).env("BENCH_MARK", dir.join("called"));
        c.env("PYTHONPATH", &programs.dir).env("PHP_CLI_SERVER_WORKERS", wild.workers.max(1).to_string());
    }
    Ok(c)
}

/// What follows the word `listen`.
fn nginx_listen(programs: &Programs, http2: bool) -> String {
    let http2 = if http2 { " http2" } else { "" };
    if !programs.tls {
        return format!("{PORT}{http2}");
    }
    let [certificate, key] = [CERTIFICATE, KEY].map(|name| programs.dir.join(name).display().to_string());
    format!("{PORT} ssl{http2}; ssl_certificate {certificate}; ssl_certificate_key {key}")
}

/// A few megabytes of text that take a while to compress, for what is served from `www`.
fn words_file(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir.join("www"))?;
    std::fs::write(dir.join("www/small"), "Hello, World!")?;
    std::fs::write(dir.join("www/page"), "Hello, World!\n".repeat(857))?;
    std::fs::write(dir.join("www/half"), "Hello, World!\n".repeat(20_000))?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(dir.join("www/words"))?);
    let mut state = 1u32;
    for _ in 0..400_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        write!(file, "{:x} ", state >> 12)?;
    }
    Ok(())
}

/// A control group with 10 % of a CPU; removed when dropped.
#[derive(Debug)]
struct CpuGroup(PathBuf);

impl CpuGroup {
    fn throttled(pid: u32) -> Result<CpuGroup> {
        let name = format!("linerate-bench-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/cpu").join(&name);
        let v2 = Path::new("/sys/fs/cgroup").join(&name);
        let settings: (&Path, &[(&str, &str)]) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            (&v2, &[("cpu.max", "10000 100000")])
        } else if Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists() {
            (&v1, &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")])
        } else {
            bail!("there is no control group of processor time on this machine");
        };
        let (path, values) = settings;
        std::fs::create_dir(path).with_context(|| path.display().to_string())?;
        let group = CpuGroup(path.to_owned());
        for (file, value) in values {
            std::fs::write(path.join(file), value).with_context(|| format!("{}/{file}", path.display()))?;
        }
        std::fs::write(path.join("cgroup.procs"), pid.to_string())?;
        Ok(group)
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // A group can only be removed once it is empty; its process has just been killed.
        let begin = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && begin.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
