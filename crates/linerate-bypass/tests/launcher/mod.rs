//! What `linerate bypass` does for its program, in a thread of the test.

use std::io::PipeWriter;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::thread::{self, JoinHandle};

use linerate_net::link::xdp::Lender;

/// Lends receive queues as long as it lives.
pub(crate) struct TestLauncher {
    running: Option<(PipeWriter, JoinHandle<()>)>,
    _door: OwnedFd,
}

impl TestLauncher {
    /// Lends an interface of this thread's namespace to a command, which is started next.
    pub(crate) fn start(interface: &str, at: SocketAddr, command: &mut Command) -> TestLauncher {
        let mut lender = Lender::open(interface, &[at]).unwrap_or_else(|error| panic!("{error}"));
        let door = lender.door(500).expect("a descriptor");
        command.env("LINERATE_BYPASS", format!("{interface};{};{at}", door.as_raw_fd()));
        let (stop, running) = std::io::pipe().expect("a pipe");
        let thread = thread::spawn(move || {
            lender.run(stop.as_fd(), |words| eprintln!("{words}")).expect("it lends");
        });
        TestLauncher { running: Some((running, thread)), _door: door }
    }
}

impl Drop for TestLauncher {
    fn drop(&mut self) {
        let Some((running, thread)) = self.running.take() else { return };
        drop(running);
        let _ = thread.join();
    }
}
