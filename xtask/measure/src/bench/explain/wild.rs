//! Servers that people run, each with a small application: healthy, with time to think, with
//! workers, with a limiter, cold, with work of any length, stopping each second.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::jars;
use super::nginx::{BEHIND, PORT, nginx_conf};
use xtask::shell;

/// A server with its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wild {
    pub(crate) kind: WildServerKind,
    pub(crate) mode: WildServerMode,
    /// Calls that it serves at once, where that is set; else 0.
    pub(crate) workers: u8,
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WildServerKind {
    GunicornSync,
    GunicornThreads,
    Uvicorn,
    Waitress,
    Flask,
    FastApi,
    Express,
    Fastify,
    Php,
    Webrick,
    Go,
    Jdk,
    Tomcat,
    Jetty,
    Undertow,
    Rows,
    Nginx,
    NginxProxy,
    Haproxy,
    Apache,
    Lighttpd,
    Caddy,
}

/// What the application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WildServerMode {
    /// It answers at once.
    Healthy,
    /// 100 ms of waiting.
    Think,
    /// Waiting of any length, 30 ms in the mean (exponential).
    Varied,
    /// It answers nothing for the first quarter of each second.
    Stalls,
    /// Its first call takes 1.5 s.
    Cold,
    /// Ten calls a second; more wait for their turn.
    Limited,
    /// The server behind the proxy writes head and body apart under Nagle's algorithm.
    Nagle,
}

impl WildServerMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WildServerMode::Healthy => "healthy",
            WildServerMode::Think => "think",
            WildServerMode::Varied => "varied",
            WildServerMode::Stalls => "stalls",
            WildServerMode::Cold => "cold",
            WildServerMode::Limited => "limited",
            WildServerMode::Nagle => "nagle",
        }
    }
}

/// What a server needs of this machine.
enum WildServerNeed {
    Program(&'static str),
    Python(&'static str),
    Node(&'static str),
    /// A JDK, and the libraries that `--fetch` has downloaded.
    Jars,
    /// PostgreSQL's server and client.
    Postgres,
}

impl WildServerKind {
    pub(crate) const ALL: [WildServerKind; 22] = [
        WildServerKind::GunicornSync,
        WildServerKind::GunicornThreads,
        WildServerKind::Uvicorn,
        WildServerKind::Waitress,
        WildServerKind::Flask,
        WildServerKind::FastApi,
        WildServerKind::Express,
        WildServerKind::Fastify,
        WildServerKind::Php,
        WildServerKind::Webrick,
        WildServerKind::Go,
        WildServerKind::Jdk,
        WildServerKind::Tomcat,
        WildServerKind::Jetty,
        WildServerKind::Undertow,
        WildServerKind::Rows,
        WildServerKind::Nginx,
        WildServerKind::NginxProxy,
        WildServerKind::Haproxy,
        WildServerKind::Apache,
        WildServerKind::Lighttpd,
        WildServerKind::Caddy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            WildServerKind::GunicornSync => "gunicorn-sync",
            WildServerKind::GunicornThreads => "gunicorn-gthread",
            WildServerKind::Uvicorn => "uvicorn",
            WildServerKind::Waitress => "waitress",
            WildServerKind::Flask => "flask",
            WildServerKind::FastApi => "fastapi",
            WildServerKind::Express => "express",
            WildServerKind::Fastify => "fastify",
            WildServerKind::Php => "php-s",
            WildServerKind::Webrick => "webrick",
            WildServerKind::Go => "go",
            WildServerKind::Jdk => "jdk",
            WildServerKind::Tomcat => "tomcat",
            WildServerKind::Jetty => "jetty",
            WildServerKind::Undertow => "undertow",
            WildServerKind::Rows => "postgres-rows",
            WildServerKind::Nginx => "nginx",
            WildServerKind::NginxProxy => "nginx-proxy",
            WildServerKind::Haproxy => "haproxy",
            WildServerKind::Apache => "apache",
            WildServerKind::Lighttpd => "lighttpd",
            WildServerKind::Caddy => "caddy",
        }
    }

    fn needs(self) -> WildServerNeed {
        match self {
            WildServerKind::GunicornSync | WildServerKind::GunicornThreads => {
                WildServerNeed::Python("gunicorn")
            }
            WildServerKind::Uvicorn => WildServerNeed::Python("uvicorn"),
            WildServerKind::Waitress => WildServerNeed::Python("waitress"),
            WildServerKind::Flask => WildServerNeed::Python("flask"),
            WildServerKind::FastApi => WildServerNeed::Python("fastapi"),
            WildServerKind::Express => WildServerNeed::Node("express"),
            WildServerKind::Fastify => WildServerNeed::Node("fastify"),
            WildServerKind::Php => WildServerNeed::Program("php"),
            WildServerKind::Webrick => WildServerNeed::Program("ruby"),
            WildServerKind::Go => WildServerNeed::Program("go"),
            WildServerKind::Jdk => WildServerNeed::Program("javac"),
            WildServerKind::Tomcat | WildServerKind::Jetty | WildServerKind::Undertow => WildServerNeed::Jars,
            WildServerKind::Rows => WildServerNeed::Postgres,
            WildServerKind::Nginx | WildServerKind::NginxProxy => WildServerNeed::Program("nginx"),
            WildServerKind::Haproxy => WildServerNeed::Program("haproxy"),
            WildServerKind::Apache => WildServerNeed::Program("apache2"),
            WildServerKind::Lighttpd => WildServerNeed::Program("lighttpd"),
            WildServerKind::Caddy => WildServerNeed::Program("caddy"),
        }
    }

    /// What this machine lacks for it.
    pub(crate) fn lacking(self, dir: &Path) -> Option<&'static str> {
        static KNOWN: Mutex<BTreeMap<&str, bool>> = Mutex::new(BTreeMap::new());
        let (name, has): (&'static str, Box<dyn Fn() -> bool>) = match self.needs() {
            WildServerNeed::Program(name) => (name, Box::new(move || shell::find(name).is_some())),
            WildServerNeed::Python(name) => (name, Box::new(move || imports(name))),
            WildServerNeed::Node(name) => {
                (name, Box::new(move || dir.join("node_modules").join(name).is_dir()))
            }
            WildServerNeed::Jars => ("what --fetch downloads", Box::new(jars::are_there)),
            WildServerNeed::Postgres => ("postgresql", Box::new(has_postgres)),
        };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        (!*known.entry(name).or_insert_with(has)).then_some(name)
    }

    /// Causes that are there besides, whatever the application does: each is right where it is
    /// named.
    pub(crate) fn also(self) -> &'static [&'static str] {
        match self {
            // They close the connection after each response.
            WildServerKind::GunicornSync | WildServerKind::Flask | WildServerKind::Php => &["no-keep-alive"],
            // Head and body leave in a write each, under Nagle's algorithm.
            WildServerKind::Webrick => &["server-nagle-delayed-ack"],
            _ => &[],
        }
    }

    /// What it is tried with: the application, and workers.
    pub(crate) fn tried_with(self) -> &'static [(WildServerMode, u8)] {
        use WildServerMode::{Cold, Healthy, Limited, Stalls, Think, Varied};
        match self {
            // A row that a call holds serves one at a time, whatever the number of workers.
            WildServerKind::Rows => &[(Healthy, 4), (Think, 4)],
            WildServerKind::GunicornSync
            | WildServerKind::GunicornThreads
            | WildServerKind::Waitress
            | WildServerKind::Jdk
            | WildServerKind::Tomcat
            | WildServerKind::Jetty
            | WildServerKind::Undertow
            | WildServerKind::Php => {
                &[(Healthy, 1), (Healthy, 4), (Think, 1), (Think, 2), (Think, 4), (Cold, 1)]
            }
            WildServerKind::Nginx
            | WildServerKind::Apache
            | WildServerKind::Lighttpd
            | WildServerKind::Caddy => &[(Healthy, 0)],
            WildServerKind::NginxProxy => &[(Healthy, 0), (Think, 0), (Limited, 0)],
            WildServerKind::Haproxy => &[(Healthy, 0), (Think, 0)],
            WildServerKind::Uvicorn | WildServerKind::Express | WildServerKind::Go => {
                &[(Healthy, 0), (Think, 0), (Cold, 0), (Varied, 0), (Stalls, 0)]
            }
            _ => &[(Healthy, 0), (Think, 0), (Cold, 0)],
        }
    }
}

fn imports(module: &str) -> bool {
    let mut c = Command::new("python3");
    c.args(["-c", &format!("import {module}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    c.status().is_ok_and(|s| s.success())
}

/// PostgreSQL's client, and its server, which Debian keeps in a folder of its own.
fn has_postgres() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let server = versions.into_iter().any(|v| v.path().join("bin/postgres").is_file());
    shell::find("psql").is_some() && (server || shell::find("postgres").is_some())
}

impl Wild {
    /// The flags of the `linerate serve` to which it passes calls on, if it does.
    pub(crate) fn behind(self) -> Option<&'static [&'static str]> {
        let is_proxy = matches!(self.kind, WildServerKind::NginxProxy | WildServerKind::Haproxy);
        match self.mode {
            WildServerMode::Nagle => Some(&["--misbehave", "nagle-split"]),
            WildServerMode::Think if is_proxy => Some(&["--misbehave", "think=100"]),
            _ => is_proxy.then_some(&[]),
        }
    }

    /// Its command; `programs` is where the applications lie, `dir` a folder of its own.
    pub(crate) fn words(self, programs: &Path, dir: &Path) -> Result<Vec<OsString>> {
        let port = PORT.to_string();
        let at = format!("0.0.0.0:{PORT}");
        let workers = self.workers.max(1).to_string();
        let file = |name: &str| programs.join(name).display().to_string();
        let python = |rest: &[&str]| [&["python3", "-m"], rest].concat().iter().map(OsString::from).collect();
        let all = |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        Ok(match self.kind {
            WildServerKind::GunicornSync => python(&[
                "gunicorn",
                "-w",
                &workers,
                "-k",
                "sync",
                "-b",
                &at,
                "--backlog",
                "1024",
                "app:wsgi",
            ]),
            WildServerKind::GunicornThreads => {
                let threads = ["-w", "1", "-k", "gthread", "--threads", &workers];
                python(&[&["gunicorn"], &threads[..], &["-b", &at, "app:wsgi"]].concat())
            }
            WildServerKind::Uvicorn | WildServerKind::FastApi => {
                let app = if self.kind == WildServerKind::Uvicorn { "app:asgi" } else { "app:fast" };
                python(&["uvicorn", "--host", "0.0.0.0", "--port", &port, "--log-level", "error", app])
            }
            WildServerKind::Waitress => {
                python(&["waitress", &format!("--listen={at}"), &format!("--threads={workers}"), "app:wsgi"])
            }
            WildServerKind::Flask => {
                python(&["flask", "--app", "app:flask", "run", "-h", "0.0.0.0", "-p", &port])
            }
            WildServerKind::Express | WildServerKind::Fastify => {
                all(&["node", &file("app.js"), &port, self.kind.name()])
            }
            WildServerKind::Php => all(&["php", "-S", &at, &file("app.php")]),
            WildServerKind::Webrick => all(&["ruby", &file("app.rb"), &port]),
            WildServerKind::Go => all(&[&file("app-go"), &port]),
            WildServerKind::Jdk => {
                let nodelay = "-Dsun.net.httpserver.nodelay=true";
                all(&["java", nodelay, "-cp", &programs.display().to_string(), "App", &port, &workers])
            }
            WildServerKind::Tomcat | WildServerKind::Jetty | WildServerKind::Undertow => {
                let app = match self.kind {
                    WildServerKind::Tomcat => "TomcatApp",
                    WildServerKind::Jetty => "JettyApp",
                    _ => "UndertowApp",
                };
                all(&["java", "-cp", &jars::class_path(programs), app, &port, &workers])
            }
            WildServerKind::Rows => all(&["python3", &file("rows.py"), &port, &workers]),
            WildServerKind::Nginx
            | WildServerKind::NginxProxy
            | WildServerKind::Haproxy
            | WildServerKind::Apache
            | WildServerKind::Lighttpd
            | WildServerKind::Caddy => self.configured(dir)?,
        })
    }

    /// Servers that read a file.
    fn configured(self, dir: &Path) -> Result<Vec<OsString>> {
        std::fs::create_dir(dir.join("www"))?;
        std::fs::write(dir.join("www/index.html"), "Hello, World!\n".repeat(20))?;
        let (name, text) = self.config(dir);
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        let program = match self.kind {
            WildServerKind::Nginx | WildServerKind::NginxProxy => "nginx",
            WildServerKind::Haproxy => "haproxy",
            WildServerKind::Apache => "apache2",
            WildServerKind::Lighttpd => "lighttpd",
            _ => "caddy",
        };
        let found = shell::find(program).with_context(|| format!("{program} is not installed"))?;
        let path = path.into_os_string();
        let dir = dir.as_os_str().to_owned();
        Ok(match self.kind {
            WildServerKind::Nginx | WildServerKind::NginxProxy => {
                vec![found.into(), "-p".into(), dir, "-c".into(), path, "-e".into(), "error.log".into()]
            }
            WildServerKind::Haproxy => vec![found.into(), "-db".into(), "-f".into(), path],
            WildServerKind::Apache => vec![found.into(), "-D".into(), "FOREGROUND".into(), "-f".into(), path],
            WildServerKind::Lighttpd => vec![found.into(), "-D".into(), "-f".into(), path],
            _ => vec![
                found.into(),
                "run".into(),
                "--adapter".into(),
                "caddyfile".into(),
                "--config".into(),
                path,
            ],
        })
    }

    fn config(self, dir: &Path) -> (&'static str, String) {
        let dir = dir.display();
        match self.kind {
            WildServerKind::Nginx => {
                let text = "index index.html; location / { root www; }";
                ("nginx.conf", nginx_conf(&PORT.to_string(), text))
            }
            WildServerKind::NginxProxy => {
                let limit =
                    if self.mode == WildServerMode::Limited { "limit_req zone=pace burst=50;" } else { "" };
                let to = format!("proxy_pass http://127.0.0.1:{BEHIND}; proxy_http_version 1.1;");
                let keep = "proxy_set_header Connection \"\";";
                let text = format!("location / {{ {limit} {to} {keep} }}");
                ("nginx.conf", nginx_conf(&PORT.to_string(), &text))
            }
            WildServerKind::Haproxy => (
                "haproxy.cfg",
                format!(
                    "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n http-reuse always\n\
                     frontend f\n bind *:{PORT}\n default_backend b\nbackend b\n server s 127.0.0.1:{BEHIND}\n"
                ),
            ),
            WildServerKind::Apache => (
                "apache.conf",
                format!(
                    "ServerRoot {dir}\nServerName localhost\nListen {PORT}\nPidFile {dir}/pid\nErrorLog {dir}/error.log\n\
                     LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
                     LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
                     LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n\
                     DocumentRoot {dir}/www\nDirectoryIndex index.html\nUser www-data\nGroup www-data\n"
                ),
            ),
            WildServerKind::Lighttpd => (
                "lighttpd.conf",
                format!(
                    "server.port = {PORT}\nserver.document-root = \"{dir}/www\"\nindex-file.names = ( \"index.html\" )\n"
                ),
            ),
            _ => {
                let what = match self.behind() {
                    Some(_) => format!("reverse_proxy 127.0.0.1:{BEHIND}"),
                    None => format!("root * {dir}/www\n file_server"),
                };
                let text = format!("{{\n admin off\n auto_https off\n}}\n:{PORT} {{\n {what}\n}}\n");
                ("Caddyfile", text)
            }
        }
    }
}
