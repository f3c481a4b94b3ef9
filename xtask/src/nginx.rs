//! An nginx for tests on loopback, with its own folder, configuration and port; ends when dropped.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

const READY_WITHIN: Duration = Duration::from_secs(5);

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    /// The address that it listens at.
    pub address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Nginx {
    /// Starts one process (no master) that responds to every request with `body` bytes. `wrapper`
    /// is a program with its arguments. It runs the command that follows them, and ends it when it
    /// is ended itself. `more` is added to the configuration of its server.
    pub fn start(body: usize, more: &str, wrapper: &[String]) -> Result<Nginx> {
        let nginx = shell::find("nginx").context("nginx is not installed")?;
        let dir = tempfile::tempdir()?;
        // Bound and released, because nginx cannot report which port it got for 0.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let locations = format!("location / {{ {} }} {more}", hello(body));
        std::fs::write(dir.path().join("nginx.conf"), configuration(address, "", &locations))?;
        let mut words = wrapper.iter().cloned().chain([nginx.display().to_string()]);
        let mut command = Command::new(words.next().context("no program")?);
        command.args(words).arg("-p").arg(dir.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
        let child = command.stdin(Stdio::null()).spawn().context("cannot start nginx")?;
        let mut started = Nginx { child, address, dir };
        started.wait_until_ready()?;
        Ok(started)
    }

    /// Its own folder: configuration and logs.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("nginx ended at once ({status}): {}", self.errors());
            }
            if start.elapsed() > READY_WITHIN {
                bail!("nginx is not ready after {READY_WITHIN:?}: {}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default()
    }

    /// The processor time it has used so far, seconds.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let pid = std::fs::read_to_string(self.dir.path().join("nginx.pid")).ok()?;
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).ok()?;
        let after_name = stat.rsplit_once(") ")?.1;
        let mut fields = after_name.split_whitespace().skip(11);
        let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        // Clock ticks are 10 ms everywhere Linux runs.
        Some(ticks as f64 / 100.0)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of the longest word that nginx takes in its configuration, with room for the escapes.
pub const LONGEST_WORD: usize = 3_800;

/// The directive that responds with this many bytes from memory (at most [`LONGEST_WORD`]).
pub fn hello(body: usize) -> String {
    let body = "Hello, World!\n".chars().cycle().take(body).collect::<String>().replace('\n', "\\n");
    format!("default_type text/plain; return 200 \"{body}\";")
}

/// One process; `listening` adds parameters to the listener.
pub fn configuration(address: SocketAddr, listening: &str, locations: &str) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid; worker_rlimit_nofile 20000;
events {{ worker_connections 16384; multi_accept on; }}
http {{
    access_log off; tcp_nodelay on; keepalive_timeout 60s; keepalive_requests 1000000000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    sendfile on; open_file_cache max=100;
    server {{
        listen {address} backlog=4096{listening};
        {locations}
        location /status {{ stub_status; }}
    }}
}}
"
    )
}
