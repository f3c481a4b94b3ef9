//! A server of 16 blocking threads, written without many connections in mind. Each thread takes a
//! connection from the queue, reads a request, blocks for the handler's delay, responds, and puts
//! the connection back.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::hello::{HELLO, TEXT, WAIT};

const THREADS: usize = 16;
/// How long a thread waits for a request on an idle connection.
const PATIENCE: Duration = Duration::from_millis(1);
/// Connections in the queue; others are closed. Reason: more than any run opens.
const QUEUE: usize = 65_536;

#[derive(Default)]
struct TaskQueue {
    waiting: Mutex<VecDeque<TcpStream>>,
    more: Condvar,
}

impl TaskQueue {
    fn put(&self, connection: TcpStream) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < QUEUE {
            waiting.push_back(connection);
            self.more.notify_one();
        }
    }

    fn take(&self) -> TcpStream {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(connection) = waiting.pop_front() {
                return connection;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Serves until the process is killed.
pub(crate) fn serve(at: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(at).with_context(|| format!("cannot listen on {at}"))?;
    let queue = Arc::new(TaskQueue::default());
    for _ in 0..THREADS {
        let queue = Arc::clone(&queue);
        std::thread::spawn(move || {
            loop {
                let mut connection = queue.take();
                if turn(&mut connection) {
                    queue.put(connection);
                }
            }
        });
    }
    for connection in listener.incoming().flatten() {
        if connection.set_nodelay(true).and(connection.set_read_timeout(Some(PATIENCE))).is_ok() {
            queue.put(connection);
        }
    }
    Ok(())
}

/// Serves one request of a connection, if it has one; returns whether the connection stays open.
fn turn(connection: &mut TcpStream) -> bool {
    let mut request = [0; 4096];
    let n = match connection.read(&mut request) {
        Ok(0) => return false,
        Ok(n) => n,
        Err(e) => return e.kind() == std::io::ErrorKind::WouldBlock,
    };
    if request.starts_with(b"GET /delay/10 ") {
        std::thread::sleep(WAIT);
    }
    // A load generator's request fits one segment; any other request gets a response all the same.
    let keep = !request[..n].windows(17).any(|w| w.eq_ignore_ascii_case(b"connection: close"));
    let persistence = if keep { "keep-alive" } else { "close" };
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: {}\r\nConnection: {persistence}\r\n\r\n{HELLO}",
        HELLO.len()
    );
    connection.write_all(answer.as_bytes()).is_ok() && keep
}
