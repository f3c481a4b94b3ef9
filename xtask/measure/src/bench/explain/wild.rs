//! Servers that people run, each with a small application: healthy, with time to think, with
//! workers, with a limiter, cold.

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
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    /// Calls that it serves at once, where that is set; else 0.
    pub(crate) workers: u8,
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) enum Mode {
    /// It answers at once.
    Healthy,
    /// 100 ms of waiting.
    Think,
    /// Its first call takes 1.5 s.
    Cold,
    /// Ten calls a second; more wait for their turn.
    Limited,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Healthy => "healthy",
            Mode::Think => "think",
            Mode::Cold => "cold",
            Mode::Limited => "limited",
        }
    }
}

/// What a server needs of this machine.
enum Need {
    Program(&'static str),
    Python(&'static str),
    Node(&'static str),
    /// A JDK, and the libraries that `--fetch` has downloaded.
    Jars,
    /// PostgreSQL's server and client.
    Postgres,
}

impl Kind {
    pub(crate) const ALL: [Kind; 22] = [
        Kind::GunicornSync,
        Kind::GunicornThreads,
        Kind::Uvicorn,
        Kind::Waitress,
        Kind::Flask,
        Kind::FastApi,
        Kind::Express,
        Kind::Fastify,
        Kind::Php,
        Kind::Webrick,
        Kind::Go,
        Kind::Jdk,
        Kind::Tomcat,
        Kind::Jetty,
        Kind::Undertow,
        Kind::Rows,
        Kind::Nginx,
        Kind::NginxProxy,
        Kind::Haproxy,
        Kind::Apache,
        Kind::Lighttpd,
        Kind::Caddy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::GunicornSync => "gunicorn-sync",
            Kind::GunicornThreads => "gunicorn-gthread",
            Kind::Uvicorn => "uvicorn",
            Kind::Waitress => "waitress",
            Kind::Flask => "flask",
            Kind::FastApi => "fastapi",
            Kind::Express => "express",
            Kind::Fastify => "fastify",
            Kind::Php => "php-s",
            Kind::Webrick => "webrick",
            Kind::Go => "go",
            Kind::Jdk => "jdk",
            Kind::Tomcat => "tomcat",
            Kind::Jetty => "jetty",
            Kind::Undertow => "undertow",
            Kind::Rows => "postgres-rows",
            Kind::Nginx => "nginx",
            Kind::NginxProxy => "nginx-proxy",
            Kind::Haproxy => "haproxy",
            Kind::Apache => "apache",
            Kind::Lighttpd => "lighttpd",
            Kind::Caddy => "caddy",
        }
    }

    fn needs(self) -> Need {
        match self {
            Kind::GunicornSync | Kind::GunicornThreads => Need::Python("gunicorn"),
            Kind::Uvicorn => Need::Python("uvicorn"),
            Kind::Waitress => Need::Python("waitress"),
            Kind::Flask => Need::Python("flask"),
            Kind::FastApi => Need::Python("fastapi"),
            Kind::Express => Need::Node("express"),
            Kind::Fastify => Need::Node("fastify"),
            Kind::Php => Need::Program("php"),
            Kind::Webrick => Need::Program("ruby"),
            Kind::Go => Need::Program("go"),
            Kind::Jdk => Need::Program("javac"),
            Kind::Tomcat | Kind::Jetty | Kind::Undertow => Need::Jars,
            Kind::Rows => Need::Postgres,
            Kind::Nginx | Kind::NginxProxy => Need::Program("nginx"),
            Kind::Haproxy => Need::Program("haproxy"),
            Kind::Apache => Need::Program("apache2"),
            Kind::Lighttpd => Need::Program("lighttpd"),
            Kind::Caddy => Need::Program("caddy"),
        }
    }

    /// What this machine lacks for it.
    pub(crate) fn lacking(self, dir: &Path) -> Option<&'static str> {
        static KNOWN: Mutex<BTreeMap<&str, bool>> = Mutex::new(BTreeMap::new());
        let (name, has): (&'static str, Box<dyn Fn() -> bool>) = match self.needs() {
            Need::Program(name) => (name, Box::new(move || shell::find(name).is_some())),
            Need::Python(name) => (name, Box::new(move || imports(name))),
            Need::Node(name) => (name, Box::new(move || dir.join("node_modules").join(name).is_dir())),
            Need::Jars => ("what --fetch downloads", Box::new(jars::are_there)),
            Need::Postgres => ("postgresql", Box::new(has_postgres)),
        };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        (!*known.entry(name).or_insert_with(has)).then_some(name)
    }

    /// Causes that are there besides, whatever the application does: each is right where it is
    /// named.
    pub(crate) fn also(self) -> &'static [&'static str] {
        match self {
            // They close the connection after each response.
            Kind::GunicornSync | Kind::Flask | Kind::Php => &["no-keep-alive"],
            // Head and body leave in a write each, under Nagle's algorithm.
            Kind::Webrick => &["server-nagle-delayed-ack"],
            _ => &[],
        }
    }

    /// What it is tried with: the application, and workers.
    pub(crate) fn tried_with(self) -> &'static [(Mode, u8)] {
        use Mode::{Cold, Healthy, Limited, Think};
        match self {
            // A row that a call holds serves one at a time, whatever the number of workers.
            Kind::Rows => &[(Healthy, 4), (Think, 4)],
            Kind::GunicornSync
            | Kind::GunicornThreads
            | Kind::Waitress
            | Kind::Jdk
            | Kind::Tomcat
            | Kind::Jetty
            | Kind::Undertow
            | Kind::Php => &[(Healthy, 1), (Healthy, 4), (Think, 1), (Think, 2), (Think, 4), (Cold, 1)],
            Kind::Nginx | Kind::Apache | Kind::Lighttpd | Kind::Caddy => &[(Healthy, 0)],
            Kind::NginxProxy => &[(Healthy, 0), (Think, 0), (Limited, 0)],
            Kind::Haproxy => &[(Healthy, 0), (Think, 0)],
            _ => &[(Healthy, 0), (Think, 0), (Cold, 0)],
        }
    }

    /// It passes calls on to `linerate serve`.
    pub(crate) fn is_proxy(self) -> bool {
        matches!(self, Kind::NginxProxy | Kind::Haproxy)
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
    /// Its command; `programs` is where the applications lie, `dir` a folder of its own.
    pub(crate) fn words(self, programs: &Path, dir: &Path) -> Result<Vec<OsString>> {
        let port = PORT.to_string();
        let at = format!("0.0.0.0:{PORT}");
        let workers = self.workers.max(1).to_string();
        let file = |name: &str| programs.join(name).display().to_string();
        let python = |rest: &[&str]| [&["python3", "-m"], rest].concat().iter().map(OsString::from).collect();
        let all = |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        Ok(match self.kind {
            Kind::GunicornSync => python(&[
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
            Kind::GunicornThreads => {
                let threads = ["-w", "1", "-k", "gthread", "--threads", &workers];
                python(&[&["gunicorn"], &threads[..], &["-b", &at, "app:wsgi"]].concat())
            }
            Kind::Uvicorn | Kind::FastApi => {
                let app = if self.kind == Kind::Uvicorn { "app:asgi" } else { "app:fast" };
                python(&["uvicorn", "--host", "0.0.0.0", "--port", &port, "--log-level", "error", app])
            }
            Kind::Waitress => {
                python(&["waitress", &format!("--listen={at}"), &format!("--threads={workers}"), "app:wsgi"])
            }
            Kind::Flask => python(&["flask", "--app", "app:flask", "run", "-h", "0.0.0.0", "-p", &port]),
            Kind::Express | Kind::Fastify => all(&["node", &file("app.js"), &port, self.kind.name()]),
            Kind::Php => all(&["php", "-S", &at, &file("app.php")]),
            Kind::Webrick => all(&["ruby", &file("app.rb"), &port]),
            Kind::Go => all(&[&file("app-go"), &port]),
            Kind::Jdk => {
                let nodelay = "-Dsun.net.httpserver.nodelay=true";
                all(&["java", nodelay, "-cp", &programs.display().to_string(), "App", &port, &workers])
            }
            Kind::Tomcat | Kind::Jetty | Kind::Undertow => {
                let app = match self.kind {
                    Kind::Tomcat => "TomcatApp",
                    Kind::Jetty => "JettyApp",
                    _ => "UndertowApp",
                };
                all(&["java", "-cp", &jars::class_path(programs), app, &port, &workers])
            }
            Kind::Rows => all(&["python3", &file("rows.py"), &port, &workers]),
            Kind::Nginx | Kind::NginxProxy | Kind::Haproxy | Kind::Apache | Kind::Lighttpd | Kind::Caddy => {
                self.configured(dir)?
            }
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
            Kind::Nginx | Kind::NginxProxy => "nginx",
            Kind::Haproxy => "haproxy",
            Kind::Apache => "apache2",
            Kind::Lighttpd => "lighttpd",
            _ => "caddy",
        };
        let found = shell::find(program).with_context(|| format!("{program} is not installed"))?;
        let path = path.into_os_string();
        let dir = dir.as_os_str().to_owned();
        Ok(match self.kind {
            Kind::Nginx | Kind::NginxProxy => {
                vec![found.into(), "-p".into(), dir, "-c".into(), path, "-e".into(), "error.log".into()]
            }
            Kind::Haproxy => vec![found.into(), "-db".into(), "-f".into(), path],
            Kind::Apache => vec![found.into(), "-D".into(), "FOREGROUND".into(), "-f".into(), path],
            Kind::Lighttpd => vec![found.into(), "-D".into(), "-f".into(), path],
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
            Kind::Nginx => {
                let text = "index index.html; location / { root www; }";
                ("nginx.conf", nginx_conf(&PORT.to_string(), text))
            }
            Kind::NginxProxy => {
                let limit = if self.mode == Mode::Limited { "limit_req zone=pace burst=50;" } else { "" };
                let to = format!("proxy_pass http://127.0.0.1:{BEHIND}; proxy_http_version 1.1;");
                let keep = "proxy_set_header Connection \"\";";
                let text = format!("location / {{ {limit} {to} {keep} }}");
                ("nginx.conf", nginx_conf(&PORT.to_string(), &text))
            }
            Kind::Haproxy => (
                "haproxy.cfg",
                format!(
                    "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
                     frontend f\n bind *:{PORT}\n default_backend b\nbackend b\n server s 127.0.0.1:{BEHIND}\n"
                ),
            ),
            Kind::Apache => (
                "apache.conf",
                format!(
                    "ServerRoot {dir}\nServerName localhost\nListen {PORT}\nPidFile {dir}/pid\nErrorLog {dir}/error.log\n\
                     LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
                     LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
                     LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\n\
                     DocumentRoot {dir}/www\nDirectoryIndex index.html\nUser www-data\nGroup www-data\n"
                ),
            ),
            Kind::Lighttpd => (
                "lighttpd.conf",
                format!(
                    "server.port = {PORT}\nserver.document-root = \"{dir}/www\"\nindex-file.names = ( \"index.html\" )\n"
                ),
            ),
            _ => (
                "Caddyfile",
                format!(
                    "{{\n admin off\n auto_https off\n}}\n:{PORT} {{\n root * {dir}/www\n file_server\n}}\n"
                ),
            ),
        }
    }
}
