//! The thread between the two interfaces: reads frames, asks each direction for their fate, writes
//! those that are due. It decides nothing itself.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use nix::unistd::gettid;
use tun_rs::SyncDevice;

use crate::conditions::Conditions;
use crate::limits::{FRAME_BYTES, FRAMES_PER_TURN, SPARE_BUFFERS};
use crate::namespace::SideAddresses;
use crate::packet::{FrameKind, parse};
use crate::queue::{DirectionQueue, FrameCounts, FrameFate};
use crate::reply;

/// An order to the running relay.
#[derive(Debug)]
pub(crate) enum RelayOrder {
    /// New conditions for frames from this side.
    Change(usize, Conditions),
    Stop,
}

/// One interface, and the direction of the frames it sends.
pub(crate) struct RelayInterface {
    pub(crate) place: SideAddresses,
    pub(crate) device: SyncDevice,
    pub(crate) outward: DirectionQueue,
}

/// The relay's state.
pub(crate) struct RelayState {
    pub(crate) sides: [RelayInterface; 2],
    pub(crate) orders: Receiver<RelayOrder>,
    /// Readable if an order waits.
    pub(crate) bell: PipeReader,
    pub(crate) counts: Arc<Mutex<[FrameCounts; 2]>>,
    spare: Vec<Vec<u8>>,
    start: Instant,
    /// Frames that an interface refused.
    refused: [u64; 2],
}

impl RelayState {
    pub(crate) fn new(
        sides: [RelayInterface; 2],
        orders: Receiver<RelayOrder>,
        bell: PipeReader,
        counts: Arc<Mutex<[FrameCounts; 2]>>,
    ) -> RelayState {
        RelayState { sides, orders, bell, counts, spare: Vec::new(), start: Instant::now(), refused: [0; 2] }
    }

    /// Relays until it is stopped.
    pub(crate) fn run(mut self) {
        loop {
            let busy = self.read(0) | self.read(1);
            self.deliver();
            self.publish();
            match self.wait(busy) {
                Ok(true) => {}
                // Without poll nothing works: the box ends.
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Reads frames from one side; returns whether there may be more.
    fn read(&mut self, from: usize) -> bool {
        for _ in 0..FRAMES_PER_TURN {
            let mut frame = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(FRAME_BYTES));
            frame.resize(FRAME_BYTES, 0);
            match self.sides[from].device.recv(&mut frame) {
                Ok(n) => {
                    frame.truncate(n);
                    self.handle(from, frame);
                }
                Err(_) => {
                    self.recycle(frame);
                    return false;
                }
            }
        }
        true
    }

    fn handle(&mut self, from: usize, frame: Vec<u8>) {
        let to = 1 - from;
        let packet = parse(&frame);
        match packet.kind {
            FrameKind::Arp => {
                let other = self.sides[to].place;
                let range = other.v4.octets();
                let answer = reply::arp(&frame, other.mac, |a| a.octets()[..3] == range[..3]);
                if let Some(answer) = answer {
                    self.write(from, &answer);
                }
                self.recycle(frame);
                return;
            }
            FrameKind::Neighbour => {
                self.write(to, &frame);
                self.recycle(frame);
                return;
            }
            _ => {}
        }
        let now = self.now();
        match self.sides[from].outward.handle_frame(now, frame, &packet) {
            FrameFate::Held => {}
            FrameFate::Dropped(frame) => self.recycle(frame),
            FrameFate::TooBig(frame) => {
                let mtu = self.sides[from].outward.conditions().mtu.unwrap_or(0);
                if let Some(answer) = reply::too_big(&frame, packet.v6, mtu) {
                    self.sides[to].outward.handle_own(now, answer);
                }
                self.recycle(frame);
            }
        }
    }

    fn deliver(&mut self) {
        for from in 0..2 {
            let now = self.now();
            while let Some(frame) = self.sides[from].outward.poll_deliver(now) {
                self.write(1 - from, &frame);
                self.recycle(frame);
            }
        }
    }

    fn write(&mut self, to: usize, frame: &[u8]) {
        if self.sides[to].device.send(frame).is_err() {
            self.refused[1 - to] += 1;
        }
    }

    fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(frame);
        }
    }

    fn publish(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, side) in self.sides.iter().enumerate() {
            let all = side.outward.counts();
            counts[i] = FrameCounts {
                delivered: all.delivered.saturating_sub(self.refused[i]),
                overflow: all.overflow + self.refused[i],
                ..all
            };
        }
    }

    /// Waits for frames, an order or the next deadline; `false`: stop.
    fn wait(&mut self, busy: bool) -> io::Result<bool> {
        let due = self.sides.iter().filter_map(|s| s.outward.next_deadline()).min();
        let now = self.now();
        let left = if busy { Some(Duration::ZERO) } else { due.map(|d| d.saturating_sub(now)) };
        let rung = {
            let [a, b] = &self.sides;
            let watched = [a.device.as_fd(), b.device.as_fd(), self.bell.as_fd()];
            let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match ppoll(&mut fds, left.map(TimeSpec::from), None) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            fds[2].any().unwrap_or(false)
        };
        if !rung {
            return Ok(true);
        }
        // Each order is one byte; the end of the pipe ends the box.
        if self.bell.read(&mut [0])? == 0 {
            return Ok(false);
        }
        match self.orders.recv() {
            Ok(RelayOrder::Change(from, conditions)) => self.sides[from].outward.change(conditions),
            Ok(RelayOrder::Stop) | Err(_) => return Ok(false),
        }
        Ok(true)
    }
}

/// Asks the kernel to schedule this thread before all others; returns whether it agreed. Otherwise
/// a box on a busy machine adds milliseconds to each delay.
pub(crate) fn prefer_this_thread() -> bool {
    let _ = set_timerslack(1);
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", "10", &gettid().to_string()]);
    let status = chrt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}
