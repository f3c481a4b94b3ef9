//! The programs' configuration: the same in user space and on the kernel.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::scenario::{BODY, BypassServer, FILE};
use crate::bench::cable::SERVER;
use xtask::nginx::hello;
use xtask::shell;

/// Where the package keeps its configuration.
const PACKAGED: &str = "/etc/nginx/nginx.conf";
/// The file in the program's folder that names its process.
pub(super) const PID: &str = "pid";
/// The file that has what the program wrote; nginx makes its error log its standard error.
pub(super) const SAID: &str = "said";
/// nginx's access log.
pub(super) const ACCESS: &str = "access.log";

/// The words that start the program on the foreground; its files are in this folder.
pub(super) fn words(
    server: BypassServer,
    at: SocketAddr,
    upstream: SocketAddr,
    dir: &Path,
) -> Result<Vec<String>> {
    // Workers without rights read the file in it.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
    let folder = dir.display();
    let (program, line) = match server {
        BypassServer::Nginx(_) => {
            std::fs::write(dir.join("nginx.conf"), nginx(&user(), at, upstream, dir))?;
            std::fs::write(dir.join("file"), vec![b'x'; FILE])?;
            ("nginx", format!("-p {folder} -c nginx.conf -e {SAID}"))
        }
        BypassServer::Redis => (
            "redis-server",
            format!(
                "--bind {} --port {} --protected-mode no --save {{}} --daemonize no --dir {folder} --pidfile {folder}/{PID}",
                at.ip(),
                at.port()
            ),
        ),
    };
    let file = shell::find(program).with_context(|| format!("{program} is not installed"))?;
    let mut words = vec![file.display().to_string()];
    // `{}` stands for no word's text: redis saves nothing by itself.
    words.extend(line.split(' ').map(|word| word.replace("{}", "")));
    Ok(words)
}

/// nginx as packaged: a master that is root, one worker that is not, and an access log. What differs is said
/// in docs/BYPASS.md.
fn nginx(user: &str, at: SocketAddr, upstream: SocketAddr, dir: &Path) -> String {
    let (folder, hello) = (dir.display(), hello(BODY));
    format!(
        "user {user}; worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid {folder}/{PID};
error_log {folder}/{SAID};
events {{ worker_connections 16384; }}
http {{
    sendfile on; tcp_nopush on; types_hash_max_size 2048; default_type application/octet-stream; gzip on;
    access_log {folder}/{ACCESS}; keepalive_requests 1000000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream kernel {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}
    server {{
        listen {at} backlog=4096;
        location / {{ {hello} }}
        location /file {{ root {folder}; }}
        location /proxy {{ proxy_pass http://kernel; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
    }}
}}
"
    )
}

/// The user of the package's workers.
fn user() -> String {
    let packaged = std::fs::read_to_string(PACKAGED).unwrap_or_default();
    named_user(&packaged).unwrap_or("nobody").to_owned()
}

fn named_user(configuration: &str) -> Option<&str> {
    configuration.lines().find_map(|line| line.trim().strip_prefix("user ")?.trim().strip_suffix(';'))
}

/// The address of the server that is measured.
pub(super) fn address(port: u16) -> Result<SocketAddr> {
    Ok(SocketAddr::new(SERVER.1.parse()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_the_packages_user() {
        assert_eq!(named_user("#user x;\nuser www-data;\nworker_processes auto;\n"), Some("www-data"));
        assert_eq!(named_user("worker_processes auto;\n"), None);
    }
}
