//! Capture files: pcap and pcapng, either byte order, packed by gzip or not, read in bounded
//! memory.

use std::io::{BufReader, Read};

use flate2::read::MultiGzDecoder;
use pcap_parser::nom::Err as Parse;
use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};
use pcap_parser::{parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header};

use super::limits::{INTERFACES, READ_BYTES, RECORD_BYTES, UNPACKED_BYTES};
use super::packet::{LinkType, Packet};

/// An error in a capture file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file contains no packets.
    #[error("it is empty: not even the header of a capture is there")]
    Empty,
    /// Another kind of file.
    #[error("it is no capture: it starts with \"{start}\"; pcap and pcapng are read, also packed by gzip")]
    NotACapture {
        /// Its first bytes, readable.
        start: String,
    },
    /// Packed by gzip, and damaged before the first packet.
    #[error("its gzip is damaged from the beginning ({0}): copy or fetch it again")]
    Gzip(String),
    /// Packed by something that isn't read here.
    #[error("it is compressed with {with}: unpack it first, for example with `{command}`")]
    Compressed {
        /// The format it is packed in.
        with: &'static str,
        /// The program that unpacks it.
        command: &'static str,
    },
}

/// How the file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the end of a record.
    Whole,
    /// In the middle of a record: the rest is missing.
    Truncated {
        /// Offset of the record in the (unpacked) file.
        at: u64,
    },
    /// With bytes that are not a record. The rest of the file is not read.
    Damaged {
        /// Offset in the (unpacked) file.
        at: u64,
        /// The fault in words.
        what: String,
    },
}

/// An interface of a pcapng section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    /// Units of a time stamp in a second.
    units: u64,
    offset_s: i64,
}

#[derive(Clone, Debug)]
enum Format {
    Pcap { link: LinkType, nanos: bool, parse: Order },
    PcapNg { big: bool, interfaces: Vec<Interface> },
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Little,
    Big,
    /// A variant that Linux 2.2 wrote, with longer records.
    Modified,
}

/// Reads the packets of a capture file, one after the other.
pub struct CaptureFile<R> {
    input: Input<R>,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    start: usize,
    end: usize,
    eof: bool,
    /// Bytes of the file before `start`.
    offset: u64,
    format: Format,
    ending: Option<Ending>,
}

/// The first bytes, which were looked at, and the rest.
type Whole<R> = std::io::Chain<std::io::Cursor<Vec<u8>>, R>;

/// The file's bytes, unpacked if necessary.
enum Input<R> {
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Whole<R>>>>),
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Input::Plain(input) => input.read(into),
            Input::Gzip(input) => input.read(into),
        }
    }
}

/// The result of reading one record.
enum RecordStep {
    /// A packet: time, link, where its data is in the buffer, its length on the wire, and the bytes
    /// of the record.
    Packet(i64, LinkType, std::ops::Range<usize>, u32, usize),
    /// Something else of that many bytes.
    Other(usize),
    /// More bytes are needed.
    More,
    Bad(String),
}

impl<R: Read> CaptureFile<R> {
    /// Looks at the file's first bytes.
    ///
    /// # Errors
    /// It is empty, no capture, or packed in a way that is not read here.
    pub fn open(mut input: R) -> Result<CaptureFile<R>, FileError> {
        let mut first = Vec::with_capacity(8);
        input.by_ref().take(8).read_to_end(&mut first)?;
        if first.is_empty() {
            return Err(FileError::Empty);
        }
        let compressed = [
            (&b"\x28\xb5\x2f\xfd"[..], "zstd", "zstd -d FILE"),
            (b"\xfd7zXZ\0", "xz", "xz -d FILE"),
            (b"BZh", "bzip2", "bzip2 -d FILE"),
            (b"\x04\x22\x4d\x18", "lz4", "lz4 -d FILE"),
            (b"PK\x03\x04", "zip", "unzip FILE"),
        ];
        if let Some((_, with, command)) = compressed.into_iter().find(|(magic, ..)| first.starts_with(magic))
        {
            return Err(FileError::Compressed { with, command });
        }
        let gzip = first.starts_with(b"\x1f\x8b");
        let chained = std::io::Cursor::new(first).chain(input);
        let input = if gzip {
            Input::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, chained))))
        } else {
            Input::Plain(chained)
        };
        let mut file = CaptureFile {
            input,
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            eof: false,
            offset: 0,
            format: Format::PcapNg { big: false, interfaces: Vec::new() },
            ending: None,
        };
        file.header()?;
        Ok(file)
    }

    fn header(&mut self) -> Result<(), FileError> {
        while self.end < 24 && !self.eof {
            match self.fill() {
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => self.eof = true,
                Err(e) if self.unpacks_no_more(&e) => return Err(FileError::Gzip(e.to_string())),
                done => done?,
            }
        }
        let data = &self.buffer[..self.end];
        if data.is_empty() {
            return Err(FileError::Empty);
        }
        if data.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            return Ok(());
        }
        match parse_pcap_header(data) {
            Ok((_, header)) => {
                self.format = Format::Pcap {
                    // The upper bits hold the length of frame check sequences, if any, and are not
                    // part of the type.
                    link: LinkType::from_number(header.network.0 & 0x03ff_ffff),
                    nanos: header.is_nanosecond_precision(),
                    parse: match (header.is_modified_format(), header.is_bigendian()) {
                        (true, _) => Order::Modified,
                        (_, true) => Order::Big,
                        _ => Order::Little,
                    },
                };
                self.advance(24);
                Ok(())
            }
            Err(Parse::Incomplete(_)) => {
                self.ending = Some(Ending::Truncated { at: 0 });
                Ok(())
            }
            Err(_) => Err(FileError::NotACapture {
                start: data
                    .iter()
                    .take(8)
                    .copied()
                    .flat_map(std::ascii::escape_default)
                    .map(char::from)
                    .collect(),
            }),
        }
    }

    /// The file can be read, and what is in it cannot be unpacked.
    fn unpacks_no_more(&self, error: &std::io::Error) -> bool {
        matches!(self.input, Input::Gzip(_)) && error.kind() == std::io::ErrorKind::InvalidInput
    }

    fn advance(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    /// Reads more; room is made by moving what is left to the front, and by growing up to the
    /// limit.
    fn fill(&mut self) -> std::io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        // If a step of unpacking meets damage, all of that step is lost.
        let at_most = if matches!(self.input, Input::Gzip(_)) { UNPACKED_BYTES } else { usize::MAX };
        let to = self.buffer.len().min(self.end.saturating_add(at_most));
        let n = loop {
            match self.input.read(&mut self.buffer[self.end..to]) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.eof = n == 0;
        self.end += n;
        Ok(())
    }

    /// The next packet. `None` at the end: [`ending`](Self::ending) says how it ended.
    ///
    /// # Errors
    /// Reading failed.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, FileError> {
        while self.ending.is_none() {
            let step = if self.start == self.end && self.eof { None } else { Some(self.step()) };
            match step {
                None => self.ending = Some(Ending::Whole),
                Some(RecordStep::Packet(time_ns, link, place, wire_len, whole)) => {
                    let (from, to) = (self.start + place.start, self.start + place.end);
                    self.advance(whole);
                    let data = &self.buffer[from..to];
                    return Ok(Some(Packet { time_ns, link, data, wire_len }));
                }
                Some(RecordStep::Other(n)) => self.advance(n),
                Some(RecordStep::More) if self.eof => {
                    self.ending = Some(Ending::Truncated { at: self.offset })
                }
                Some(RecordStep::More) if self.end - self.start >= RECORD_BYTES => {
                    let what = format!("a record longer than {} MiB", RECORD_BYTES >> 20);
                    self.ending = Some(Ending::Damaged { at: self.offset, what });
                }
                Some(RecordStep::More) => match self.fill() {
                    // A gzip stream that ends in its middle is a truncated capture like any other.
                    Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => self.eof = true,
                    Err(e) if self.unpacks_no_more(&e) => {
                        self.ending = Some(Ending::Damaged { at: self.offset, what: format!("gzip: {e}") });
                    }
                    done => done?,
                },
                Some(RecordStep::Bad(what)) => self.ending = Some(Ending::Damaged { at: self.offset, what }),
            }
        }
        Ok(None)
    }

    /// How the file ended, once it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Bytes read so far, unpacked.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn step(&mut self) -> RecordStep {
        let data = &self.buffer[self.start..self.end];
        match &mut self.format {
            Format::Pcap { link, nanos, parse } => pcap_record(data, *link, *nanos, *parse),
            Format::PcapNg { big, interfaces } => pcapng_block(data, big, interfaces),
        }
    }
}

fn pcap_record(data: &[u8], link: LinkType, nanos: bool, order: Order) -> RecordStep {
    let length = data.get(8..12).and_then(|b| b.first_chunk()).map(|b| match order {
        Order::Big => u32::from_be_bytes(*b),
        _ => u32::from_le_bytes(*b),
    });
    if let Some(n) = length.filter(|n| *n as usize > RECORD_BYTES) {
        return RecordStep::Bad(format!("a packet of {n} bytes"));
    }
    let parsed = match order {
        Order::Little => parse_pcap_frame(data),
        Order::Big => parse_pcap_frame_be(data),
        Order::Modified => parse_pcap_frame_modified(data),
    };
    match parsed {
        Ok((rest, record)) => {
            let whole = data.len() - rest.len();
            let from = whole - record.data.len();
            let fraction = i64::from(record.ts_usec) * if nanos { 1 } else { 1000 };
            let time_ns = i64::from(record.ts_sec) * 1_000_000_000 + fraction;
            RecordStep::Packet(time_ns, link, from..whole, record.origlen.max(record.caplen), whole)
        }
        Err(Parse::Incomplete(_)) => RecordStep::More,
        Err(_) => RecordStep::Bad("bytes that are no record".to_owned()),
    }
}

fn pcapng_block(data: &[u8], big: &mut bool, interfaces: &mut Vec<Interface>) -> RecordStep {
    // A section header declares the byte order, also that of its own length.
    if data.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        match data.get(8..12) {
            None => return RecordStep::More,
            Some([0x1a, 0x2b, 0x3c, 0x4d]) => *big = true,
            Some([0x4d, 0x3c, 0x2b, 0x1a]) => *big = false,
            Some(_) => return RecordStep::Bad("a section without its byte-order mark".to_owned()),
        }
        interfaces.clear();
    }
    let length = data.get(4..8).and_then(|b| b.first_chunk());
    let Some(length) = length.map(|b| if *big { u32::from_be_bytes(*b) } else { u32::from_le_bytes(*b) })
    else {
        return RecordStep::More;
    };
    if length < 12 || length as usize > RECORD_BYTES || !length.is_multiple_of(4) {
        return RecordStep::Bad(format!("a block that says it has {length} bytes"));
    }
    let whole = length as usize;
    let Some(block) = data.get(..whole) else { return RecordStep::More };
    let parsed = if *big { parse_block_be(block) } else { parse_block_le(block) };
    let Ok((_, parsed)) = parsed else {
        return RecordStep::Bad("a block that contradicts itself".to_owned());
    };
    let place = |part: &[u8], n: u32| {
        let from = part.as_ptr() as usize - block.as_ptr() as usize;
        from..from + part.len().min(n as usize)
    };
    match parsed {
        Block::InterfaceDescription(d) => {
            if interfaces.len() >= INTERFACES {
                return RecordStep::Bad(format!("more than {INTERFACES} interfaces"));
            }
            let link = LinkType::from_number(d.linktype.0);
            interfaces.push(Interface { link, units: units(d.if_tsresol), offset_s: d.if_tsoffset });
            RecordStep::Other(whole)
        }
        Block::EnhancedPacket(p) => {
            let Some(interface) = interfaces.get(p.if_id as usize) else {
                return RecordStep::Bad(format!("a packet of interface {}, which is not described", p.if_id));
            };
            let ticks = u64::from(p.ts_high) << 32 | u64::from(p.ts_low);
            RecordStep::Packet(
                time_ns(ticks, interface),
                interface.link,
                place(p.data, p.caplen),
                p.origlen.max(p.caplen),
                whole,
            )
        }
        // It has no time: of use only where order is enough.
        Block::SimplePacket(p) => {
            let Some(interface) = interfaces.first() else {
                return RecordStep::Bad("a packet before any interface is described".to_owned());
            };
            RecordStep::Packet(0, interface.link, place(p.data, p.origlen), p.origlen, whole)
        }
        _ => RecordStep::Other(whole),
    }
}

/// Units in a second: a power of ten, or of two when the first bit is set.
fn units(resolution: u8) -> u64 {
    let power = u32::from(resolution & 0x7f);
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(power).unwrap_or(1_000_000)
}

fn time_ns(ticks: u64, interface: &Interface) -> i64 {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(interface.units.max(1));
    let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
    nanos.saturating_add(interface.offset_s.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests;
