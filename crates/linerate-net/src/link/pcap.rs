//! Captures every packet of any link, with its time, into a pcap file that tcpdump, Wireshark and
//! `linerate explain --pcap` read. The format is LINKTYPE_RAW with nanoseconds: each record begins
//! with its IP header.
//!
//! Threads share one file and write a batch at a time. Records of one connection are in order;
//! records of different threads are only roughly in order. Processes can share one too.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Checksums, Link};
use crate::sys::file::FileLock;
use crate::{Time, Waker};

/// Bytes of records that a thread collects before it writes them. Reason: the cost of a write is
/// spread over many packets.
const BATCH_BYTES: usize = 128 << 10;
/// The longest time that records are held back. Reason: a reader of the growing file wants to see
/// packets, and a killed process should lose only the last moment.
const BATCH_TIME: Duration = Duration::from_millis(500);
/// Default limit of the file's size. Reason: enough for a million short connections, without
/// filling a disk by accident.
pub const FILE_BYTES: u64 = 1 << 30;

const HEADER: [u8; 24] = header();
/// Bytes before each packet: seconds, nanoseconds, captured length, length on the wire.
const RECORD: usize = 16;

const fn header() -> [u8; 24] {
    let mut bytes = [0; 24];
    // Magic number for nanoseconds, version 2.4, longest record, LINKTYPE_RAW; all little-endian.
    let fields: [(usize, u32); 4] = [(0, 0xa1b2_3c4d), (4, 2 | 4 << 16), (16, 65_535), (20, 101)];
    let mut i = 0;
    while i < fields.len() {
        let (at, value) = (fields[i].0, fields[i].1.to_le_bytes());
        let mut k = 0;
        while k < 4 {
            bytes[at + k] = value[k];
            k += 1;
        }
        i += 1;
    }
    bytes
}

/// Where a capture is written.
trait CaptureSink: Send {
    /// Appends all of these records, or as far as that can be none. `false`: they do not fit. `end`: where
    /// this writer's last record ends.
    fn append(&mut self, records: &[u8], end: u64) -> io::Result<bool>;
}

impl CaptureSink for File {
    fn append(&mut self, records: &[u8], end: u64) -> io::Result<bool> {
        self.write_all(records).inspect_err(|_| {
            // A file that ends with a whole record can be read. If the truncation fails too, readers
            // will report where it ends.
            let _ = self.set_len(end);
        })?;
        Ok(true)
    }
}

/// A file that several processes write. Its descriptor appends.
struct SharedCapture {
    file: File,
    limit: u64,
}

impl CaptureSink for SharedCapture {
    fn append(&mut self, records: &[u8], _: u64) -> io::Result<bool> {
        let locked = FileLock::of_process(&self.file)?;
        let end = locked.file().metadata()?.len();
        if end + records.len() as u64 > self.limit {
            return Ok(false);
        }
        (&mut locked.file()).write_all(records).inspect_err(|_| {
            let _ = locked.file().set_len(end);
        })?;
        Ok(true)
    }
}

/// Begins a capture that several processes continue ([`PcapFile::shared`]). `file` must be empty.
///
/// # Errors
/// The header cannot be written.
pub fn begin_shared(file: &mut File) -> io::Result<()> {
    file.write_all(&HEADER)
}

struct Inner {
    sink: Box<dyn CaptureSink>,
    /// End of the last whole record, bytes.
    end: u64,
    error: Option<String>,
}

/// Counters of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapStats {
    /// Packets in the file.
    pub packets: u64,
    /// Packets left out because the file is full or could not be written.
    pub left_out: u64,
    /// Size of the file, bytes.
    pub bytes: u64,
}

/// A capture file, shared by all links that write into it.
pub struct PcapFile {
    inner: Mutex<Inner>,
    limit: u64,
    /// Bytes reserved for records.
    claimed: AtomicU64,
    packets: AtomicU64,
    left_out: AtomicU64,
    /// Nothing more fits or can be written.
    over: AtomicBool,
    told: AtomicBool,
    /// Wall-clock time minus the link's time, nanoseconds.
    wall_offset_ns: u64,
    descriptor: Option<RawFd>,
}

impl fmt::Debug for PcapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapFile").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl PcapFile {
    /// Creates the file, replacing an existing one, of at most `limit` bytes. `wall_offset_ns`:
    /// wall-clock time minus the links' time, nanoseconds.
    ///
    /// # Errors
    /// The file cannot be created, or its header cannot be written.
    pub fn create(path: &Path, limit: u64, wall_offset_ns: u64) -> io::Result<Arc<PcapFile>> {
        PcapFile::over(Box::new(File::create(path)?), limit, wall_offset_ns)
    }

    /// One process's part in a capture file of several, which [`begin_shared`] began: together they write
    /// `limit` bytes at most. The descriptor must append (O_APPEND). [`PcapFile::stats`] are this process's.
    pub fn shared(file: File, limit: u64, wall_offset_ns: u64) -> Arc<PcapFile> {
        let descriptor = Some(file.as_raw_fd());
        PcapFile::begun(Box::new(SharedCapture { file, limit }), descriptor, limit, wall_offset_ns)
    }

    fn over(mut sink: Box<dyn CaptureSink>, limit: u64, wall_offset_ns: u64) -> io::Result<Arc<PcapFile>> {
        sink.append(&HEADER, 0)?;
        Ok(PcapFile::begun(sink, None, limit, wall_offset_ns))
    }

    fn begun(
        sink: Box<dyn CaptureSink>,
        descriptor: Option<RawFd>,
        limit: u64,
        wall_offset_ns: u64,
    ) -> Arc<PcapFile> {
        let begun = HEADER.len() as u64;
        Arc::new(PcapFile {
            inner: Mutex::new(Inner { sink, end: begun, error: None }),
            limit,
            claimed: AtomicU64::new(begun),
            packets: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            over: AtomicBool::new(false),
            told: AtomicBool::new(false),
            wall_offset_ns,
            descriptor,
        })
    }

    /// Counters so far, without batches that threads still hold.
    pub fn stats(&self) -> PcapStats {
        let end = self.inner.lock().unwrap_or_else(PoisonError::into_inner).end;
        PcapStats { packets: self.packets.load(Relaxed), left_out: self.left_out.load(Relaxed), bytes: end }
    }

    /// Why packets are left out. Only the first call afterwards gets the reason.
    pub fn trouble(&self) -> Option<String> {
        if !self.over.load(Relaxed) || self.told.swap(true, Relaxed) {
            return None;
        }
        let error = self.inner.lock().unwrap_or_else(PoisonError::into_inner).error.clone();
        let why = error.map_or_else(
            || format!("it has its largest size, {} bytes", self.limit),
            |error| format!("it cannot be written: {error}"),
        );
        Some(format!("the capture ends here: {why}; packets go on and are counted as left out"))
    }

    /// Reserves room for another record of this many bytes; false if it does not fit.
    fn claim(&self, len: usize) -> bool {
        if self.over.load(Relaxed) {
            return false;
        }
        let len = len as u64;
        if self.claimed.fetch_add(len, Relaxed) + len > self.limit {
            self.over.store(true, Relaxed);
            return false;
        }
        true
    }

    /// Writes a batch of records, all or none.
    fn write(&self, batch: &mut Vec<u8>, packets: &mut u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let end = inner.end;
        let result = if inner.error.is_some() { Ok(false) } else { inner.sink.append(batch, end) };
        match result {
            Ok(true) => {
                inner.end += batch.len() as u64;
                self.packets.fetch_add(*packets, Relaxed);
            }
            Ok(false) => {
                self.over.store(true, Relaxed);
                self.left_out.fetch_add(*packets, Relaxed);
            }
            Err(error) => {
                inner.error = Some(error.to_string());
                self.over.store(true, Relaxed);
                self.left_out.fetch_add(*packets, Relaxed);
            }
        }
        batch.clear();
        *packets = 0;
    }
}

/// One link's part of a capture: its batch.
struct Tape {
    file: Arc<PcapFile>,
    batch: Vec<u8>,
    packets: u64,
    since: Time,
}

impl Tape {
    fn record(&mut self, now: Time, packet: &[u8]) {
        if !self.file.claim(RECORD + packet.len()) {
            self.file.left_out.fetch_add(1, Relaxed);
            return;
        }
        if self.batch.is_empty() {
            self.since = now;
        }
        let wall_ns = now.as_nanos().wrapping_add(self.file.wall_offset_ns);
        let (seconds, nanos, len) = (wall_ns / 1_000_000_000, wall_ns % 1_000_000_000, packet.len() as u32);
        for field in [seconds as u32, nanos as u32, len, len] {
            self.batch.extend_from_slice(&field.to_le_bytes());
        }
        self.batch.extend_from_slice(packet);
        self.packets += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        if !self.batch.is_empty() {
            self.file.write(&mut self.batch, &mut self.packets);
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.write();
    }
}

/// A link whose packets are recorded. Without a file it passes every packet on.
pub struct Pcap<L> {
    link: L,
    tape: Option<Tape>,
}

impl<L: fmt::Debug> fmt::Debug for Pcap<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<L: Link> Pcap<L> {
    /// Records the packets of a link in this file, if there is one.
    pub fn new(link: L, file: Option<Arc<PcapFile>>) -> Pcap<L> {
        let tape = file.map(|file| Tape { file, batch: Vec::new(), packets: 0, since: Time::ZERO });
        Pcap { link, tape }
    }

    /// The link below.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The link below, mutable.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// When recorded packets should be written; `None`: all are. For a caller that waits for the link by
    /// itself instead of by [`Link::wait`].
    pub fn write_due(&self) -> Option<Time> {
        self.tape.as_ref().filter(|tape| !tape.batch.is_empty()).map(|tape| tape.since + BATCH_TIME)
    }

    /// Writes the recorded packets if that is due at this time.
    pub fn write_if_due(&mut self, now: Time) {
        if self.write_due().is_some_and(|due| now >= due)
            && let Some(tape) = &mut self.tape
        {
            tape.write();
        }
    }

    /// The descriptor of a file that processes share, which a forked child must close.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.tape.as_ref().and_then(|tape| tape.file.descriptor)
    }

    /// Why packets are left out, once ([`PcapFile::trouble`]).
    pub fn trouble(&self) -> Option<String> {
        self.tape.as_ref().and_then(|tape| tape.file.trouble())
    }
}

impl<L: Link> Link for Pcap<L> {
    fn now(&mut self) -> Time {
        self.link.now()
    }

    fn now_anew(&mut self) -> Time {
        self.link.now_anew()
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let Some(tape) = &mut self.tape else { return self.link.receive(max, take) };
        let now = self.link.now();
        self.link.receive(max, |packet| {
            tape.record(now, packet);
            take(packet);
        })
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(tape) = &mut self.tape else { return self.link.transmit(to, len, fill) };
        let now = self.link.now();
        // The link only fills packets that leave, so only those are recorded: the stack sends the
        // others again.
        self.link.transmit(to, len, |packet| {
            fill(packet);
            tape.record(now, packet);
        })
    }

    fn has_room(&mut self) -> bool {
        self.link.has_room()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        let Some(tape) = self.tape.as_mut().filter(|tape| !tape.batch.is_empty()) else {
            return self.link.wait(until);
        };
        let due = tape.since + BATCH_TIME;
        if self.link.now() >= due {
            tape.write();
            return self.link.wait(until);
        }
        // Ending the wait early is harmless.
        self.link.wait(Some(until.map_or(due, |until| until.min(due))))
    }

    fn waker(&self) -> Waker {
        self.link.waker()
    }

    fn mtu(&mut self, to: IpAddr) -> usize {
        self.link.mtu(to)
    }

    fn expect_flood(&mut self) {
        self.link.expect_flood();
    }

    fn overrun(&self) -> u64 {
        self.link.overrun()
    }

    fn too_large(&self) -> u64 {
        self.link.too_large()
    }

    fn news(&mut self) -> Option<String> {
        self.link.news()
    }

    fn checksums(&self) -> Checksums {
        self.link.checksums()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::sim::{Sim, SimEnd, SimOptions};

    const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// A disk with this many bytes.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut held = self.0.lock().expect("no panic");
            let room = (self.1 - held.len()).min(bytes.len());
            held.extend_from_slice(&bytes[..room]);
            if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl CaptureSink for Disk {
        fn append(&mut self, records: &[u8], end: u64) -> io::Result<bool> {
            self.write_all(records)
                .inspect_err(|_| self.0.lock().expect("no panic").truncate(end as usize))?;
            Ok(true)
        }
    }

    fn disk(bytes: usize) -> Disk {
        Disk(Arc::default(), bytes)
    }

    fn link(file: &Arc<PcapFile>) -> Pcap<SimEnd> {
        Pcap::new(Sim::alone(SimOptions::default()).expect("a descriptor"), Some(Arc::clone(file)))
    }

    /// Sends packets of `len` bytes and receives them again.
    fn send(link: &mut Pcap<SimEnd>, count: usize, len: usize) {
        let mut came = 0;
        for _ in 0..count {
            assert!(link.transmit(TO, len, |packet| packet.fill(7)), "packets go on whatever the file does");
        }
        while came < count {
            let soon = link.now() + Duration::from_millis(1);
            link.wait(Some(soon)).expect("waited");
            came += link.receive(usize::MAX, |_| {});
        }
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn every_packet_is_there_on_its_way_out_and_in_with_its_time() {
        let disk = disk(1 << 20);
        let file = PcapFile::over(Box::new(disk.clone()), FILE_BYTES, 5_000_000_000).expect("a header");
        send(&mut link(&file), 1, 40);
        assert_eq!(file.stats(), PcapStats { packets: 2, left_out: 0, bytes: 24 + 2 * 56 });
        let bytes = disk.0.lock().expect("no panic").clone();
        assert_eq!((u32_at(&bytes, 0), u32_at(&bytes, 20), bytes.len()), (0xa1b2_3c4d, 101, 24 + 2 * 56));
        // The network in memory begins at one second; the packet took 100 us.
        let record = |at: usize| [0, 4, 8, 12].map(|field| u32_at(&bytes, at + field));
        assert_eq!(record(24), [6, 0, 40, 40]);
        assert_eq!(record(24 + 56), [6, 100_000, 40, 40]);
    }

    #[test]
    fn a_file_that_has_its_size_stops_growing_and_says_so_once() {
        let disk = disk(1 << 20);
        let file = PcapFile::over(Box::new(disk.clone()), 24 + 3 * 56 + 55, 0).expect("a header");
        send(&mut link(&file), 5, 40);
        assert_eq!(file.stats(), PcapStats { packets: 3, left_out: 7, bytes: 24 + 3 * 56 });
        assert_eq!(disk.0.lock().expect("no panic").len(), 24 + 3 * 56);
        assert!(file.trouble().is_some_and(|said| said.contains("its largest size, 247 bytes")));
        assert_eq!(file.trouble(), None);
    }

    #[test]
    fn a_full_disk_ends_the_capture_with_a_whole_record_and_not_the_link() {
        let disk = disk(BATCH_BYTES + 1000);
        let file = PcapFile::over(Box::new(disk.clone()), FILE_BYTES, 0).expect("a header");
        assert_eq!(file.trouble(), None);
        let mut link = link(&file);
        send(&mut link, 200, 1484);
        drop(link);
        let stats = file.stats();
        assert_eq!(stats.packets + stats.left_out, 400);
        assert_eq!(stats.bytes, 24 + stats.packets * 1500);
        assert_eq!(disk.0.lock().expect("no panic").len() as u64, stats.bytes);
        assert!(stats.packets > 0 && file.trouble().is_some_and(|said| said.contains("cannot be written")));
    }

    /// Two files are two processes' parts: each has its own descriptor, and counts its own bytes.
    #[test]
    fn processes_share_a_file_and_its_limit_and_lose_no_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shared.pcap");
        let open = || File::options().append(true).create(true).open(&path).expect("a file");
        begin_shared(&mut open()).expect("a header");
        let limit = 24 + 7 * 56 + 55;
        let parts = [(); 2].map(|()| PcapFile::shared(open(), limit, 0));
        let mut links = [link(&parts[0]), link(&parts[1])];
        links.iter_mut().for_each(|link| send(link, 1, 40));
        // Nothing is due yet, and then all.
        links.iter_mut().for_each(|link| link.write_if_due(Time::ZERO));
        assert_eq!(std::fs::metadata(&path).expect("there").len(), 24);
        assert!(links.iter().all(|link| link.write_due().is_some()));
        for link in &mut links {
            link.write_if_due(Time::NEVER);
            assert_eq!(link.write_due(), None);
        }
        assert_eq!(std::fs::metadata(&path).expect("there").len(), 24 + 4 * 56);
        // Each has room for four records by its own count. Of both together, three fit.
        links.iter_mut().for_each(|link| send(link, 1, 40));
        drop(links);
        assert_eq!(parts.each_ref().map(|part| part.stats().packets), [4, 2]);
        assert_eq!(parts[1].stats().left_out, 2);
        assert!(parts[1].trouble().is_some_and(|said| said.contains("its largest size, 471 bytes")));
        let bytes = std::fs::read(&path).expect("there");
        assert_eq!(
            (bytes.len(), u32_at(&bytes, 0), u32_at(&bytes, 24 + 5 * 56 + 8)),
            (24 + 6 * 56, 0xa1b2_3c4d, 40)
        );
    }

    #[test]
    fn a_link_without_a_file_only_passes_on() {
        let mut link = Pcap::new(Sim::alone(SimOptions::default()).expect("a descriptor"), None);
        send(&mut link, 3, 40);
        assert!(link.tape.is_none());
    }
}
