//! A server of `bench stack`, in its namespace.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::scenario::{EPOLL, NGINX, PORT, URING};
use crate::bench::Tools;
use crate::bench::cable::{Cable, SERVER};
use crate::bench::server::{BenchProcess, wrapper};
use xtask::nginx::{LONGEST_WORD, configuration, hello};
use xtask::shell;

const READY_WITHIN: Duration = Duration::from_secs(10);
/// Beyond the planned time a client gets this long to end by itself, seconds.
pub(super) const GRACE_S: f64 = 15.0;

/// Starts it, and waits until it accepts connections.
pub(super) fn start(t: &Tools, cable: &Cable, who: &str, body: usize, dir: &Path) -> Result<BenchProcess> {
    let at = SocketAddr::new(SERVER.1.parse()?, PORT);
    let mut words: Vec<String> = cable.enter().collect();
    words.extend(wrapper(t, dir));
    if who == NGINX {
        let nginx = shell::find("nginx").context("nginx is not installed")?;
        let answer = match body {
            ..=LONGEST_WORD => hello(body),
            _ => {
                std::fs::write(dir.join("body.bin"), vec![b'x'; body])?;
                format!("root {}; try_files /body.bin =404;", dir.display())
            }
        };
        let locations = format!("location / {{ {answer} }}");
        std::fs::write(dir.join("nginx.conf"), configuration(at, "", &locations))?;
        words.extend([nginx.display().to_string(), "-p".into(), dir.display().to_string()]);
        words.extend(["-c", "nginx.conf", "-e", "error.log"].map(str::to_owned));
    } else {
        let io = match who {
            EPOLL => "epoll".to_owned(),
            URING => "uring".to_owned(),
            _ => format!("xdp --interface {}", SERVER.0),
        };
        words.push(t.linerate.display().to_string());
        words.extend(format!("serve --threads 1 --listen {at} --io {io}").split(' ').map(str::to_owned));
    }
    let mut command = Command::new(&words[0]);
    let begin = Instant::now();
    while TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_ok() {
        ensure!(begin.elapsed() < READY_WITHIN, "the server before {who} does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut serving = BenchProcess(command.spawn().context("cannot start the server")?);
    while TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_err() {
        if let Some(status) = serving.0.try_wait()? {
            bail!("{who} ended at once: {status}");
        }
        ensure!(begin.elapsed() < READY_WITHIN, "{who} is not ready after {READY_WITHIN:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(serving)
}
