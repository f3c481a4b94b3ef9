//! Real proxies in front of small servers.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{HELLO, nobody, responding, until};

/// A proxy in its folder; gone when dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that takes that many milliseconds for each request.
pub(crate) fn late(ms: u64) -> SocketAddr {
    responding(move |stream| {
        std::thread::sleep(Duration::from_millis(ms));
        std::io::Write::write_all(stream, HELLO.as_bytes())
    })
}

/// `None`: there is no such program here.
fn started(name: &str, conf: impl Fn(SocketAddr) -> String, flags: &[&str]) -> Option<Proxy> {
    let program = linerate_skips::program(name)?;
    let (address, folder) = (nobody(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("conf");
    std::fs::write(&file, conf(address)).expect("written");
    let mut command = Command::new(program);
    command.args(flags).arg(&file).current_dir(folder.path());
    let child = command.spawn().expect("it starts");
    let proxy = Proxy { child, address, _folder: folder };
    until(name, || TcpStream::connect(address).is_ok());
    Some(proxy)
}

/// HAProxy in front of these servers, which take turns; `lines` of its frontend.
pub(crate) fn haproxy(behind: &[SocketAddr], lines: &str) -> Option<Proxy> {
    let mut servers = String::new();
    for (n, server) in behind.iter().enumerate() {
        let _ = writeln!(servers, " server s{n} {server}");
    }
    let conf = |front| {
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n http-reuse always\n\
             frontend f\n bind {front}\n{lines}\n default_backend b\nbackend b\n balance roundrobin\n{servers}"
        )
    };
    started("haproxy", conf, &["-f"])
}

/// nginx in front of a server, with a field `Via`.
pub(crate) fn nginx(behind: SocketAddr) -> Option<Proxy> {
    nginx_with(behind, "keepalive 16;", "")
}

/// nginx as it is without more words: a connection to the server for each call.
pub(crate) fn nginx_without_keepalive(behind: SocketAddr) -> Option<Proxy> {
    nginx_with(behind, "", "")
}

/// nginx that keeps a server's responses for that time, and says whether it had one.
pub(crate) fn nginx_cache(behind: SocketAddr, keeps: &str) -> Option<Proxy> {
    let lines = format!(
        "proxy_cache kept; proxy_cache_valid 200 {keeps}; add_header X-Cache $upstream_cache_status always;"
    );
    nginx_with(behind, "keepalive 16;", &lines)
}

/// `upstream`: lines about the server behind; `lines`: about all that is handed on.
fn nginx_with(behind: SocketAddr, upstream: &str, lines: &str) -> Option<Proxy> {
    let conf = |front: SocketAddr| {
        format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{ }}
             http {{ access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
             proxy_cache_path cache keys_zone=kept:1m; upstream behind {{ server {behind}; {upstream} }}
             server {{ listen {front}; add_header Via '1.1 <edge>' always;
             location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ''; {lines} }} }} }}"
        )
    };
    started("nginx", conf, &["-p", ".", "-c"])
}
