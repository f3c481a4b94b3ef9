//! `linerate top`: reads the metrics' address of a running server or load once a second.

use std::io::{ErrorKind, IsTerminal, Read, Write, stdout};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use crossterm::terminal::disable_raw_mode;
use linerate_report::live::Screen;
use linerate_report::top::{ServerLook, draw};
use linerate_serve::Address;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde::de::DeserializeOwned;

use crate::args::values;
use crate::fault::{CommandFault, Exit, said};
use crate::keyboard::{Keyboard, PLAIN, text, used};
use crate::load::Interrupt;
use crate::serve::place;

/// How long the server may take for a response. Reason: `top` should report that a metrics' thread
/// hangs, rather than wait for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest document. Reason: 1024 loops are 400 kB.
const MOST_BYTES: u64 = 4 << 20;
/// Longest sleep between two checks whether the user wants to quit.
const NAP: Duration = Duration::from_millis(50);

/// Watch a running server or load: its loops or cores, connections and queues
///
/// Reads the address that linerate serve or linerate load was given by --metrics, on this machine or another, and changes nothing
/// there. Rates are those of the last interval. Connections are listed by the length of their queues, the longest first. q ends it.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = "Examples:\n  linerate serve --metrics 127.0.0.1:9090 &\n  linerate top\n  linerate top http://10.0.0.5:9090 --once\n  linerate load -d 1h --metrics 127.0.0.1:9091 http://10.0.0.5:8080/ &\n  linerate top 127.0.0.1:9091"
)]
pub(crate) struct TopArgs {
    /// The --metrics address of a server or a load, also as the URL that they print
    #[arg(value_name = "ADDR:PORT|unix:PATH", default_value = "127.0.0.1:9090", value_parser = metrics)]
    address: Address,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::top_interval)]
    interval: Duration,
    /// Print one table and end
    #[arg(long)]
    once: bool,
}

/// An address, or a URL on it.
fn metrics(text: &str) -> Result<Address, String> {
    let Some(rest) = text.strip_prefix("http://") else { return place(text) };
    place(rest.split('/').next().unwrap_or(rest))
}

/// Watches until the user leaves.
pub(crate) fn run(args: &TopArgs) -> Result<Exit, CommandFault> {
    let interrupt = Interrupt::listen_then(|| drop(disable_raw_mode()))?;
    let mut before = (look(&args.address)?, Instant::now());
    let mut screen = Screen::new();
    let live = stdout().is_terminal() && !args.once;
    let keyboard = live.then(Keyboard::take).flatten();
    loop {
        while before.1.elapsed() < args.interval {
            let nap = NAP.min(args.interval);
            let leaves = match &keyboard {
                Some(keyboard) => keyboard.leaves_within(nap).is_some(),
                None => {
                    std::thread::sleep(nap);
                    false
                }
            };
            if leaves || interrupt.asked() {
                return Ok(Exit::Fine);
            }
        }
        let after = (look(&args.address)?, Instant::now());
        let (columns, rows) = crossterm::terminal::size().ok().filter(|_| live).unwrap_or(PLAIN);
        let area = Rect::new(0, 0, columns, rows.saturating_sub(1));
        let mut picture = Buffer::empty(area);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let title = format!("linerate top {}", args.address);
        draw(&title, &before.0, &after.0, after.1 - before.1, now, area, &mut picture);
        if live {
            let colour = std::env::var_os("NO_COLOR").is_none();
            if screen.show(&used(&picture), columns, colour, &mut stdout()).is_err() {
                // The terminal was closed.
                return Ok(Exit::Fine);
            }
        } else {
            crate::terminal::print(&text(&picture))?;
        }
        if args.once {
            return Ok(Exit::Fine);
        }
        before = after;
    }
}

fn look(at: &Address) -> Result<ServerLook, CommandFault> {
    Ok(ServerLook { loops: document(at, "/stats/loops")?, flows: document(at, "/stats/flows?max=100")? })
}

fn document<T: DeserializeOwned>(at: &Address, path: &str) -> Result<T, CommandFault> {
    let unreachable = |e: std::io::Error| {
        let why = match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("nothing came for {} s", PATIENCE.as_secs())
            }
            _ => said(&e),
        };
        CommandFault::unreachable(format!("{at} does not answer: {why}"))
            .hint("name the address that the server was given by --metrics")
    };
    let answer = get(at, path).map_err(unreachable)?;
    let body =
        answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200 ")).map(|(_, body)| body);
    let other = || {
        CommandFault::input(format!("{at} is no metrics address of linerate: {path} is not there"))
            .hint("start the server with --metrics ADDR:PORT, and name that address here")
    };
    serde_json::from_str(body.ok_or_else(other)?).map_err(|_| other())
}

fn get(at: &Address, path: &str) -> std::io::Result<String> {
    match at {
        Address::Tcp(at) => {
            let stream = TcpStream::connect_timeout(at, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream, &at.to_string(), path)
        }
        Address::Unix(socket) => {
            // Connecting waits for room in the backlog, and has no time limit.
            let (tell, told) = mpsc::sync_channel(1);
            let socket = socket.clone();
            std::thread::spawn(move || tell.send(UnixStream::connect(socket)));
            let stream =
                told.recv_timeout(PATIENCE).map_err(|_| std::io::Error::from(ErrorKind::TimedOut))??;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream, "localhost", path)
        }
    }
}

fn ask(mut stream: impl Read + Write, host: &str, path: &str) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_also_taken_as_the_url_that_is_printed() {
        for text in ["127.0.0.1:9090", "http://127.0.0.1:9090", "http://127.0.0.1:9090/metrics"] {
            assert_eq!(metrics(text).map(|at| at.to_string()).as_deref(), Ok("127.0.0.1:9090"), "{text}");
        }
        assert!(metrics("http://").is_err() && metrics("ftp://127.0.0.1:9090").is_err());
    }
}
