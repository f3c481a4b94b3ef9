//! Opens an interface for processes that may have no right to, and lends each its receive queues
//! ([`super::loan`] is the other side). The kernel's listeners stay: a queue that no process has is
//! the kernel's, and so are connections that began there.
//!
//! The sockets belong to the borrowers alone once packets may come. So whatever ends a borrower closes
//! them, and from that moment the kernel gets the packets. The program is attached as long as the lender
//! lives.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::clock::monotonic;
use crate::link::pcap;
use crate::sock_diag::{SocketState, TcpSocket, tcp_sockets_that};
use crate::sys::passing;
use crate::sys::xdp::{Attachment, BoundSocket, BpfMap, MapKind, Mode, Program, SocketAbilities};
use crate::{HostSecret, Time};

use super::asker::PeerAsker;
use super::ethernet::Mac;
use super::flow_key::{FLOW_KEY, flow_key, flow_of};
use super::limits::{ASK_AGAIN, KERNELS_FLOWS, LEAVING, LENT_FLOWS, QUEUES_PER_THREAD, SWEEP};
use super::loan::{LoanTerms, MESSAGE, kind};
use super::news::{Monitor, News};
use super::open::{FoundInterface, XdpOptions, attach, busy, find, rules, sockets};
use super::preflight::{self, XdpError};
use super::program::{Ours, QueueMode, SharingMaps, mode_of_queue, program, stamp};
use super::roster::LenderRoster;
use super::shares::{BorrowerId, LendingStep, QueueShares};
use super::steer::{Rule, Steer};

/// A process that has asked.
pub(super) struct LentTo {
    pub(super) id: BorrowerId,
    pub(super) control: OwnedFd,
    /// Its sockets until it has prepared them.
    pending: Vec<(u32, BoundSocket)>,
    /// The interface that it reads instead of its queues.
    pub(super) detour: Option<u32>,
}

/// The maps of the program.
pub(super) struct LendersMaps {
    sockets: BpfMap<4>,
    modes: BpfMap<4>,
    kernels: BpfMap<FLOW_KEY>,
    pub(super) flows: BpfMap<FLOW_KEY>,
    pub(super) detours: BpfMap<FLOW_KEY>,
}

impl LendersMaps {
    fn numbers(&self, queues: usize) -> SharingMaps {
        SharingMaps {
            sockets: self.sockets.number(),
            modes: self.modes.number(),
            has_several: queues > 1,
            kernels: self.kernels.number(),
            flows: self.flows.number(),
            detours: self.detours.number(),
        }
    }
}

/// An interface whose receive queues are lent.
pub struct Lender {
    pub(super) name: String,
    rules: Vec<Rule>,
    mac: Mac,
    pub(super) terms: LoanTerms,
    attachment: Attachment,
    pub(super) maps: LendersMaps,
    /// The mode of each queue.
    modes: Vec<QueueMode>,
    /// Of each queue, a number that it has in common with the others of its process.
    readers: Vec<u32>,
    /// Of each queue, a socket that is ready to be lent.
    bound: Vec<Option<BoundSocket>>,
    pub(super) shares: QueueShares,
    pub(super) roster: LenderRoster,
    pub(super) borrowers: Vec<LentTo>,
    asked: BorrowerId,
    /// Our end of the pair that borrowers ask by, and theirs.
    door: (OwnedFd, OwnedFd),
    monitor: Monitor,
    sweep_at: Time,
    /// Until when a busy queue counts as one that its last process is leaving.
    patient_until: Option<Time>,
    /// Connections that have ended, whose peers are asked once more.
    ask_again: VecDeque<(Time, Vec<[u8; FLOW_KEY]>)>,
    notes: Vec<String>,
    /// What borrowers record their packets in.
    capture: Option<File>,
}

impl Lender {
    /// Opens a socket on each receive queue of an interface, and steers nothing to them yet.
    ///
    /// # Errors
    /// As [`super::open()`]. Nothing has changed then.
    pub fn open(interface: &str, listen: &[SocketAddr]) -> Result<Lender, XdpError> {
        let options = XdpOptions::new(interface, Steer::Listen(listen.to_vec()));
        let FoundInterface { interface: facts, mac, queues, .. } = find(interface)?;
        if queues as usize > QUEUES_PER_THREAD {
            return Err(preflight::too_many_queues(interface, queues, 1));
        }
        let rules = rules(interface, &options.steer, &[])?;
        let (bound, config) = sockets(&options, &facts, queues, BoundSocket::open)?;
        let abilities = SocketAbilities::of_all(bound.iter().map(|socket| socket.abilities));
        let map = |e| preflight::refused("a BPF map", &e);
        let maps = LendersMaps {
            sockets: BpfMap::new(MapKind::Sockets, queues).map_err(map)?,
            modes: BpfMap::new(MapKind::Array, queues).map_err(map)?,
            kernels: BpfMap::new(MapKind::Hash, KERNELS_FLOWS).map_err(map)?,
            flows: BpfMap::new(MapKind::Recent, LENT_FLOWS).map_err(map)?,
            detours: BpfMap::new(MapKind::Hash, LENT_FLOWS).map_err(map)?,
        };
        let loaded = Program::load(&program(&rules, mac, Ours::ToProcesses(maps.numbers(queues as usize))))
            .map_err(|e| preflight::refused("the XDP program", &e))?;
        let attached = attach(&options, facts.index, &loaded, abilities)?;
        let secret = HostSecret::of_this_machine().map(|secret| secret.for_others());
        let terms = LoanTerms {
            interface: facts.index,
            frames: config.frames,
            receive_frames: config.receive_frames,
            frame_bytes: config.frame_bytes as u32,
            abilities,
            is_generic: attached.mode == Mode::Generic,
            host: secret.map(|secret| (secret.key, secret.ahead_ns)),
            has_capture: false,
        };
        let descriptor = |e| preflight::refused("a descriptor", &e);
        Ok(Lender {
            name: interface.to_owned(),
            rules,
            mac,
            terms,
            attachment: attached.attachment,
            maps,
            modes: vec![QueueMode::All; queues as usize],
            readers: vec![0; queues as usize],
            bound: bound.into_iter().map(Some).collect(),
            shares: QueueShares::new(queues),
            roster: LenderRoster::new(queues),
            borrowers: Vec::new(),
            asked: 0,
            door: passing::pair().map_err(descriptor)?,
            monitor: Monitor::open(facts.index).map_err(descriptor)?,
            sweep_at: Time::ZERO,
            patient_until: None,
            ask_again: VecDeque::new(),
            notes: attached.notes,
            capture: None,
        })
    }

    /// Lets all borrowers record their packets in this file ([`pcap::begin_shared`]), which must be empty and
    /// open for appending (O_APPEND).
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record_in(&mut self, mut file: File) -> io::Result<()> {
        pcap::begin_shared(&mut file)?;
        self.terms.has_capture = true;
        self.capture = Some(file);
        Ok(())
    }

    /// Notes for the user about how it was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the borrowers do, for other threads to look at.
    pub fn roster(&self) -> LenderRoster {
        self.roster.clone()
    }

    /// A descriptor by which programs ask ([`super::Borrower::ask`]), for them to inherit. Its number is
    /// `from` or more.
    ///
    /// # Errors
    /// This process is out of file descriptors.
    pub fn door(&self, from: RawFd) -> io::Result<OwnedFd> {
        passing::inheritable(self.door.1.as_fd(), from)
    }

    /// Lends until `stop` can be read. `say` gets news for the user.
    ///
    /// # Errors
    /// The interface was removed.
    pub fn run(&mut self, stop: BorrowedFd<'_>, mut say: impl FnMut(&str)) -> io::Result<()> {
        loop {
            let now = monotonic();
            let steps = self.shares.tick(now);
            self.take(steps, &mut say);
            self.sweep(now);
            while let Some((_, keys)) = self.ask_again.pop_front_if(|(at, _)| *at <= now) {
                self.ask_peers(&keys);
            }
            let asks = self.ask_again.front().map(|(at, _)| *at);
            let sweeps = self.needs_sweep().then_some(self.sweep_at);
            let limit =
                [sweeps, asks, self.shares.next()].into_iter().flatten().min().map(|until| until - now);
            let mut fds = vec![stop, self.door.0.as_fd(), self.monitor.as_fd()];
            fds.extend(self.borrowers.iter().map(|borrower| borrower.control.as_fd()));
            let ready = passing::wait(&fds, limit)?;
            let ids: Vec<BorrowerId> = self.borrowers.iter().map(|borrower| borrower.id).collect();
            if ready[0] {
                return Ok(());
            }
            for (id, _) in ids.iter().zip(&ready[3..]).filter(|(_, is_ready)| **is_ready) {
                let steps = self.hear(*id, &mut say);
                self.take(steps, &mut say);
            }
            if ready[1] {
                // The process that announces a successor waits until this is dropped.
                let (steps, _waits) = self.admit();
                self.take(steps, &mut say);
            }
            if ready[2] {
                self.follow(&mut say)?;
            }
        }
    }

    /// Processes ask, or announce a successor of others.
    fn admit(&mut self) -> (Vec<LendingStep>, Option<OwnedFd>) {
        let mut bytes = [0; MESSAGE];
        let Ok((1.., mut passed)) = passing::receive(self.door.0.as_fd(), &mut bytes) else {
            return (Vec::new(), None);
        };
        match (bytes[0], passed.pop(), passed.pop()) {
            (kind::ASK, Some(numbers), Some(control)) => (self.admit_borrower(control, numbers), None),
            (kind::STARTS, waits, None) => (self.shares.successor_starts(monotonic()), waits),
            _ => (Vec::new(), None),
        }
    }

    fn admit_borrower(&mut self, control: OwnedFd, numbers: OwnedFd) -> Vec<LendingStep> {
        self.asked += 1;
        if self.roster.joins(self.asked, &control, numbers).is_err() {
            // It has ended meanwhile.
            return Vec::new();
        }
        self.borrowers.push(LentTo { id: self.asked, control, pending: Vec::new(), detour: None });
        self.shares.asked(self.asked, monotonic())
    }

    /// Reads a borrower's message, or its end.
    fn hear(&mut self, id: BorrowerId, say: &mut impl FnMut(&str)) -> Vec<LendingStep> {
        let Some(at) = self.borrowers.iter().position(|borrower| borrower.id == id) else {
            return Vec::new();
        };
        let mut bytes = [0; MESSAGE];
        let control = self.borrowers[at].control.as_fd();
        match passing::receive(control, &mut bytes) {
            Ok((1.., _)) if bytes[0] == kind::READY => {
                let pending = std::mem::take(&mut self.borrowers[at].pending);
                for (queue, socket) in pending {
                    // The program takes only sockets of this queue, and a borrower whose socket is missing
                    // gets no packets: the kernel's listener does.
                    let _ = self.maps.sockets.set(queue.to_ne_bytes(), socket.fd.as_raw_fd() as u32);
                }
                // A borrower that has ended meanwhile is noticed by its end.
                let _ = passing::send(self.borrowers[at].control.as_fd(), &[kind::DONE], &[]);
                Vec::new()
            }
            Ok((1.., _)) if bytes[0] == kind::LEAVES => {
                let steps = self.shares.leaves(id, monotonic());
                steps.iter().for_each(|step| self.steer(step));
                let _ = passing::send(self.borrowers[at].control.as_fd(), &[kind::DONE], &[]);
                Vec::new()
            }
            Ok((1.., passed)) if bytes[0] == kind::FLOWS => {
                self.steer_to_detour(at, passed, say);
                let _ = passing::send(self.borrowers[at].control.as_fd(), &[kind::DONE], &[]);
                Vec::new()
            }
            Ok((1.., _)) if bytes[0] == kind::FREE => {
                self.roster.takes_detour(id);
                self.shares.ended(id, monotonic())
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Vec::new(),
            _ => {
                let borrower = self.borrowers.remove(at);
                self.end(&borrower)
            }
        }
    }

    /// A process has ended.
    pub(super) fn end(&mut self, borrower: &LentTo) -> Vec<LendingStep> {
        self.roster.ends(borrower.id);
        let flows = self.flows_of(&self.shares.queues_of(borrower.id), borrower.detour);
        self.end_flows(flows);
        self.shares.ended(borrower.id, monotonic())
    }

    fn take(&mut self, steps: Vec<LendingStep>, say: &mut impl FnMut(&str)) {
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            self.steer(&step);
            let told = match step {
                LendingStep::Lend(id, queues) => {
                    self.lend_patiently(id, &queues).map_err(|error| (id, error))
                }
                LendingStep::Wait(id) => self.tell_to_wait(id, &self.why_wait()).map_err(|error| (id, error)),
                LendingStep::AskBack(id) => {
                    steps.extend(self.ask_back(id, say));
                    Ok(())
                }
                LendingStep::ToKernel(_) | LendingStep::ToBorrower(_) => Ok(()),
            };
            if let Err((id, error)) = told {
                let why = format!("a receive queue of {} cannot be lent: {error}", self.name);
                say(&why);
                // If it cannot be told either, its end will be heard.
                let _ = self.tell_to_wait(id, &why);
                steps.extend(self.shares.ended(id, monotonic()));
            }
        }
    }

    pub(super) fn borrower(&mut self, id: BorrowerId) -> io::Result<&mut LentTo> {
        self.borrowers.iter_mut().find(|borrower| borrower.id == id).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Lends, or tries again later if the last process's sockets are not closed yet.
    fn lend_patiently(&mut self, id: BorrowerId, queues: &[u32]) -> io::Result<()> {
        let lent = self.lend(id, queues);
        let now = monotonic();
        match lent {
            Err(e) if busy(&e) && now < *self.patient_until.get_or_insert(now + LEAVING) => {
                self.shares.again(id, now);
                Ok(())
            }
            lent => {
                self.patient_until = None;
                lent
            }
        }
    }

    fn lend(&mut self, id: BorrowerId, queues: &[u32]) -> io::Result<()> {
        let mut sockets = Vec::new();
        for queue in queues {
            match self.socket(*queue) {
                Ok(socket) => sockets.push(socket),
                Err(error) => {
                    // The others are ready for the next time.
                    sockets.into_iter().for_each(|(queue, socket)| self.bound[queue as usize] = Some(socket));
                    return Err(error);
                }
            }
        }
        let message = self.terms.message();
        let of_queues = sockets.iter().flat_map(|(_, socket)| [socket.fd.as_fd(), socket.memory.as_fd()]);
        let passed: Vec<BorrowedFd<'_>> = of_queues.chain(self.capture.as_ref().map(File::as_fd)).collect();
        let borrower = self.borrowers.iter_mut().find(|borrower| borrower.id == id);
        let borrower = borrower.ok_or(io::ErrorKind::NotFound)?;
        passing::send(borrower.control.as_fd(), &message, &passed)?;
        drop(passed);
        borrower.pending = sockets;
        self.roster.has(id, queues);
        Ok(())
    }

    fn tell_to_wait(&self, id: BorrowerId, why: &str) -> io::Result<()> {
        let borrower = self.borrowers.iter().find(|borrower| borrower.id == id);
        let borrower = borrower.ok_or(io::ErrorKind::NotFound)?;
        passing::send(borrower.control.as_fd(), &[&[kind::WAIT], why.as_bytes()].concat(), &[])
    }

    fn why_wait(&self) -> String {
        let queues = self.modes.len();
        let (_, held) = self.shares.count();
        format!(
            "{} has {queues} receive queue{}, which {held} process{} use{}\n  hint: as many processes as there \
             are queues serve in user space: ethtool -L {} combined {}",
            self.name,
            if queues == 1 { "" } else { "s" },
            if held == 1 { "" } else { "es" },
            if held == 1 { "s" } else { "" },
            self.name,
            queues + 1
        )
    }

    /// The socket of a queue, which it opens again after a borrower has had it.
    fn socket(&mut self, queue: u32) -> io::Result<(u32, BoundSocket)> {
        let ready = self.bound.get_mut(queue as usize).and_then(Option::take);
        let socket = match ready {
            Some(socket) => socket,
            None => BoundSocket::open(self.terms.interface, queue, &self.terms.config())?,
        };
        Ok((queue, socket))
    }

    /// Sets the modes of queues.
    fn steer(&mut self, step: &LendingStep) {
        let (queues, mode) = match step {
            LendingStep::Lend(_, queues) | LendingStep::ToBorrower(queues) => {
                (queues, QueueMode::AllButKernels)
            }
            LendingStep::ToKernel(queues) => (queues, QueueMode::NewToKernel),
            LendingStep::Wait(_) | LendingStep::AskBack(_) => return,
        };
        let Some(first) = queues.iter().min() else { return };
        for queue in queues {
            if let Some(reader) =
                self.readers.get_mut(*queue as usize).filter(|_| mode == QueueMode::AllButKernels)
            {
                *reader = *first;
            }
            self.set_mode(*queue, mode);
        }
    }

    fn set_mode(&mut self, queue: u32, mode: QueueMode) {
        let Some(before) = self.modes.get_mut(queue as usize) else { return };
        let value = mode_of_queue(mode, self.readers[queue as usize]);
        // An array of the kernel's takes every number below its length.
        if self.maps.modes.set(queue.to_ne_bytes(), value).is_ok() {
            *before = mode;
        }
    }

    /// The process with these connections is gone: its peers learn of it.
    fn end_flows(&mut self, keys: Vec<[u8; FLOW_KEY]>) {
        for key in &keys {
            // The program may have removed it.
            let _ = self.maps.flows.remove(*key);
        }
        self.ask_peers(&keys);
        if !keys.is_empty() {
            self.ask_again.push_back((monotonic() + ASK_AGAIN, keys));
        }
    }

    fn ask_peers(&self, keys: &[[u8; FLOW_KEY]]) {
        let mut asker = PeerAsker::default();
        for key in keys {
            let (peer, port) = flow_of(key);
            let named = (self.rules.iter())
                .find(|rule| rule.ports.have(port) && rule.address.is_ipv4() == peer.is_ipv4());
            if let Some(rule) = named {
                asker.ask(SocketAddr::new(rule.address, port), peer);
            }
        }
    }

    /// Whether the kernel may have connections.
    fn needs_sweep(&self) -> bool {
        let (shares, held) = self.shares.count();
        shares == 0 || held < shares || self.modes.iter().any(|mode| *mode != QueueMode::All)
    }

    /// Forgets connections that the kernel has not known for a while.
    fn sweep(&mut self, now: Time) {
        if now < self.sweep_at || !self.needs_sweep() {
            return;
        }
        self.sweep_at = now + SWEEP;
        let keys = self.maps.kernels.keys(KERNELS_FLOWS as usize);
        if keys.is_empty() {
            if self.has_detours() {
                return;
            }
            for queue in 0..self.modes.len() as u32 {
                if self.shares.is_whole(queue) {
                    self.set_mode(queue, QueueMode::All);
                }
            }
            return;
        }
        // A connection in TIME-WAIT needs hardly any packets, and its peer may use its port again.
        let ours = |socket: &TcpSocket| {
            socket.state != SocketState::TIME_WAIT
                && self.rules.iter().any(|rule| rule.ports.have(socket.local.port()))
        };
        let Ok((sockets, false)) = tcp_sockets_that(usize::MAX, ours) else { return };
        let keys_of = |socket: &TcpSocket| flow_key(socket.peer, socket.local.port());
        let known: HashSet<[u8; FLOW_KEY]> = sockets.iter().map(keys_of).collect();
        for key in keys.into_iter().filter(|key| !known.contains(key)) {
            let age = self.maps.kernels.get(key).map(|began| stamp(now).wrapping_sub(began));
            if age.is_some_and(|age| (stamp(Time::ZERO + SWEEP)..1 << 31).contains(&age)) {
                // The program may have removed it.
                let _ = self.maps.kernels.remove(key);
            }
        }
    }

    /// Follows changes of the interface.
    fn follow(&mut self, say: &mut impl FnMut(&str)) -> io::Result<()> {
        for news in self.monitor.read() {
            match news {
                News::Link(facts) => {
                    let Some(mac) = facts.mac.filter(|mac| *mac != self.mac) else { continue };
                    self.mac = mac;
                    let ours = Ours::ToProcesses(self.maps.numbers(self.modes.len()));
                    let loaded = Program::load(&program(&self.rules, mac, ours));
                    if let Err(error) = loaded.and_then(|loaded| self.attachment.replace(&loaded)) {
                        say(&format!("packets to the new hardware address cannot be taken: {error}"));
                    }
                }
                News::Gone => {
                    return Err(io::Error::other(format!("the interface {} was removed", self.name)));
                }
                News::AddressGone(_) | News::Missed => {}
            }
        }
        Ok(())
    }
}
