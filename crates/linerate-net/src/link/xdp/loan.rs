//! Sockets that another process has opened for this one, which may have no right to. The lender is at
//! the other end of a pair of sockets that this process makes and sends it: so the lender knows who
//! asks, and each learns of the other's end.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::HostSecret;
use crate::clock::monotonic;
use crate::link::Checksums;
use crate::sys::passing;
use crate::sys::xdp::{Config, QueueSocket, SocketAbilities};

use super::detour::ProcessDetour;
use super::netlink::Netlink;
use super::open::{InterfaceHolder, LinkPart, SharedInterface};
use super::preflight::{self, XdpError};
use super::roster::BorrowerTally;
use super::{Steer, Xdp};

/// How long the lender may take to note a successor. Reason: it is a moment's work, on a busy machine too.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

/// How long a reply may take. Reason: the lender may wait for a queue that another process just left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a message, at most.
pub(super) const MESSAGE: usize = 1024;

/// The first byte of each message.
pub(super) mod kind {
    /// A process asks for queues, and sends its end of a pair, and its counters.
    pub(in super::super) const ASK: u8 = b'a';
    /// A process has got a listener from one that has queues, and may take its place. It sends its end of a
    /// pair, which is closed once new connections are the kernel's.
    pub(in super::super) const STARTS: u8 = b's';
    /// Here they are.
    pub(in super::super) const LENT: u8 = b'l';
    /// None is free: why, in words.
    pub(in super::super) const WAIT: u8 = b'w';
    /// The rings are ready, packets may come.
    pub(in super::super) const READY: u8 = b'r';
    /// The process has closed its listeners, new connections must not come.
    pub(in super::super) const LEAVES: u8 = b'c';
    /// It is so.
    pub(in super::super) const DONE: u8 = b'd';
    /// Another process needs the queues. With it come the descriptors of another way for the process's
    /// connections.
    pub(in super::super) const DETOUR: u8 = b't';
    /// These are the connections: a file.
    pub(in super::super) const FLOWS: u8 = b'f';
    /// The process has closed the sockets of its queues.
    pub(in super::super) const FREE: u8 = b'q';
    /// Too many processes take detours, and this is the oldest.
    pub(in super::super) const TOO_OLD: u8 = b'o';
}

/// What a process must know of the sockets that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoanTerms {
    pub(super) interface: u32,
    pub(super) frames: u32,
    pub(super) receive_frames: u32,
    pub(super) frame_bytes: u32,
    pub(super) abilities: SocketAbilities,
    /// The program runs in the kernel's receive path.
    pub(super) is_generic: bool,
    /// Of the machine's secret: the key, and how far the clocks are apart.
    pub(super) host: Option<([u64; 2], u64)>,
    /// The last descriptor that is passed is a file to record packets in.
    pub(super) has_capture: bool,
}

const WORDS: usize = 12;

impl LoanTerms {
    pub(super) fn message(&self) -> Vec<u8> {
        let (key, ahead) = self.host.unwrap_or_default();
        let words: [u64; WORDS] = [
            self.interface.into(),
            self.frames.into(),
            self.receive_frames.into(),
            self.frame_bytes.into(),
            self.abilities.zero_copy.into(),
            self.abilities.spans.into(),
            self.is_generic.into(),
            self.host.is_some().into(),
            key[0],
            key[1],
            ahead,
            self.has_capture.into(),
        ];
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        [kind::LENT].into_iter().chain(bytes).collect()
    }

    fn parse(message: &[u8]) -> Option<LoanTerms> {
        let bytes = message.strip_prefix(&[kind::LENT])?;
        let words: [u64; WORDS] = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
            .collect::<Vec<_>>()
            .try_into()
            .ok()?;
        let number = |at: usize| u32::try_from(words[at]).ok();
        Some(LoanTerms {
            interface: number(0)?,
            frames: number(1).filter(|n| n.is_power_of_two())?,
            receive_frames: number(2).filter(|n| n.is_power_of_two())?,
            frame_bytes: number(3).filter(|n| n.is_power_of_two())?,
            abilities: SocketAbilities { zero_copy: words[4] != 0, spans: words[5] != 0 },
            is_generic: words[6] != 0,
            host: (words[7] != 0).then_some(([words[8], words[9]], words[10])),
            has_capture: words[11] != 0,
        })
    }

    pub(super) fn config(&self) -> Config {
        Config {
            frames: self.frames,
            receive_frames: self.receive_frames,
            frame_bytes: self.frame_bytes as usize,
            zero_copy: self.abilities.zero_copy,
            busy_poll: None,
        }
    }
}

/// A process that has asked a lender for receive queues.
#[derive(Debug)]
pub struct Borrower {
    control: Option<OwnedFd>,
    tally: Arc<BorrowerTally>,
}

/// A lender's reply.
#[derive(Debug)]
pub enum LendersReply {
    /// Queues, and what belongs to them.
    Lent {
        /// Over the lent queues. It gets packets once [`Xdp::begin`] was called.
        link: Box<Xdp>,
        /// The lender's secret for numbers that outlive processes.
        host: Option<HostSecret>,
        /// The file that all borrowers record their packets in ([`crate::link::pcap::PcapFile::shared`]).
        capture: Option<File>,
    },
    /// There is no free queue. This says why, and what would change it. A later reply may lend one.
    Wait(String),
    /// The lender has ended.
    Gone,
}

impl Borrower {
    /// Asks the lender behind this descriptor, which this process has inherited.
    ///
    /// # Errors
    /// It was closed, or the lender has ended.
    pub fn ask(door: RawFd) -> io::Result<Borrower> {
        let door = passing::inherited(door)?;
        let (ours, theirs) = passing::pair()?;
        let (tally, numbers) = BorrowerTally::new()?;
        passing::send(door.as_fd(), &[kind::ASK], &[theirs.as_fd(), numbers.as_fd()])?;
        Ok(Borrower { control: Some(ours), tally: Arc::new(tally) })
    }

    /// Tells the lender that this process or a child of it may take the place of one that has queues, before it
    /// asks for them: new connections are the kernel's, so that the other one can close its listener.
    ///
    /// # Errors
    /// As [`Borrower::ask`].
    pub fn announce_successor(door: RawFd) -> io::Result<()> {
        let door = passing::inherited(door)?;
        let (ours, theirs) = passing::pair()?;
        passing::send(door.as_fd(), &[kind::STARTS], &[theirs.as_fd()])?;
        drop(theirs);
        passing::wait(&[ours.as_fd()], Some(NOTED_WITHIN)).map(drop)
    }

    /// Where this process counts what it does, for its lender.
    pub fn tally(&self) -> Arc<BorrowerTally> {
        Arc::clone(&self.tally)
    }

    /// A descriptor that a forked child must close, so that the lender learns of this process's end.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.control.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// The next reply, for which it waits this long at most; `None`: there is none yet. `listen`: the
    /// addresses of this process. A borrower that was lent queues, or whose lender is gone, is used up.
    ///
    /// # Errors
    /// The sockets cannot be used.
    pub fn reply(
        &mut self,
        limit: Duration,
        interface: &str,
        listen: &[SocketAddr],
    ) -> Result<Option<LendersReply>, XdpError> {
        let failed = |e: io::Error| preflight::refused("what the lender lends", &e);
        let Some(control) = &self.control else { return Ok(Some(LendersReply::Gone)) };
        if !limit.is_zero() {
            passing::wait(&[control.as_fd()], Some(limit)).map_err(failed)?;
        }
        let mut bytes = [0; MESSAGE];
        let (len, mut passed) = match passing::receive(control.as_fd(), &mut bytes) {
            Ok((0, _)) => {
                self.control = None;
                return Ok(Some(LendersReply::Gone));
            }
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let message = &bytes[..len];
        if let Some(words) = message.strip_prefix(&[kind::WAIT]) {
            return Ok(Some(LendersReply::Wait(String::from_utf8_lossy(words).into_owned())));
        }
        let terms = LoanTerms::parse(message).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let control = self.control.take().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let capture = if terms.has_capture { passed.pop().map(File::from) } else { None };
        let link = Xdp::lent(&terms, passed, control, interface, listen).map_err(failed)?;
        let host = terms.host.map(|(key, ahead_ns)| HostSecret { key, ahead_ns });
        Ok(Some(LendersReply::Lent { link: Box::new(link), host, capture }))
    }
}

impl Xdp {
    /// A link over queues that a lender has opened. `passed`: of each, the socket and its memory.
    fn lent(
        terms: &LoanTerms,
        passed: Vec<OwnedFd>,
        control: OwnedFd,
        interface: &str,
        listen: &[SocketAddr],
    ) -> io::Result<Xdp> {
        let mut queues = Vec::new();
        let mut passed = passed.into_iter();
        while let (Some(socket), Some(memory)) = (passed.next(), passed.next()) {
            queues.push(QueueSocket::adopt(socket, memory.as_fd(), &terms.config(), terms.abilities)?);
        }
        let facts = Netlink::open()?.interface_of(terms.interface)?;
        let facts = facts.filter(|_| !queues.is_empty()).ok_or(io::ErrorKind::NotFound)?;
        let mac = facts.mac.ok_or(io::ErrorKind::InvalidData)?;
        let shared = SharedInterface {
            interface: interface.to_owned(),
            rules: Steer::Listen(listen.to_vec()).rules(&[]),
            holder: InterfaceHolder::Lender(control),
        };
        let part = LinkPart { addresses: None, is_generic: terms.is_generic, speaks: true };
        Xdp::new(queues, &facts, mac, Checksums::Full, Arc::new(shared), part)
    }

    pub(super) fn lender(&self) -> Option<BorrowedFd<'_>> {
        self.shared.lender()
    }

    /// Descriptors of what was lent, which a forked child must close.
    pub fn lent_descriptors(&self) -> Vec<RawFd> {
        let queues = self.queues.iter().map(QueueSocket::descriptor);
        let detour = self.detour.iter().flat_map(ProcessDetour::descriptors);
        self.lender().into_iter().chain(queues).chain(detour).map(|fd| fd.as_raw_fd()).collect()
    }

    /// Lets the packets of lent queues come.
    ///
    /// # Errors
    /// The lender has ended.
    pub fn begin(&mut self) -> io::Result<()> {
        self.tell_lender(kind::READY)
    }

    /// The addresses have no listener any more: new connections go to the kernel from now on.
    ///
    /// # Errors
    /// The lender has ended.
    pub fn leave(&mut self) -> io::Result<()> {
        self.tell_lender(kind::LEAVES)
    }

    fn tell_lender(&mut self, what: u8) -> io::Result<()> {
        let Some(lender) = self.lender() else { return Ok(()) };
        passing::send(lender, &[what], &[])?;
        let until = monotonic() + PATIENCE;
        let mut bytes = [0; MESSAGE];
        loop {
            passing::wait(&[lender], Some(until - monotonic()))?;
            match passing::receive(lender, &mut bytes) {
                Ok((1.., _)) if bytes[0] == kind::DONE => return Ok(()),
                Ok((0, _)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                _ if monotonic() >= until => return Err(io::ErrorKind::TimedOut.into()),
                _ => {}
            }
        }
    }

    /// Reads what the lender says.
    ///
    /// # Errors
    /// It has ended, or ends this process's connections.
    pub(super) fn hear_lender(&mut self) -> io::Result<()> {
        let mut bytes = [0; MESSAGE];
        while let Some(lender) = self.lender() {
            match passing::receive(lender, &mut bytes) {
                Ok((0, _)) => {
                    return Err(io::Error::other("linerate bypass, which steered packets here, has ended"));
                }
                Ok((_, passed)) if bytes[0] == kind::DETOUR => {
                    self.detour = ProcessDetour::offered(passed);
                }
                Ok(_) if bytes[0] == kind::DONE => {
                    self.detour.iter_mut().for_each(ProcessDetour::begin);
                }
                Ok(_) if bytes[0] == kind::TOO_OLD => {
                    return Err(io::Error::other("more reloads came than old connections may outlive"));
                }
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_arrive_as_they_were_sent() {
        let terms = LoanTerms {
            interface: 7,
            frames: 2048,
            receive_frames: 8192,
            frame_bytes: 4096,
            abilities: SocketAbilities { zero_copy: false, spans: true },
            is_generic: true,
            host: Some(([1, u64::MAX], 3)),
            has_capture: true,
        };
        let message = terms.message();
        assert_eq!(LoanTerms::parse(&message), Some(terms));
        for len in 0..message.len() {
            assert_eq!(LoanTerms::parse(&message[..len]), None);
        }
        assert!(message.len() <= MESSAGE);
    }
}
