//! Where the records of one direction begin and end, through segments and holes.

use super::cipher::Cipher;
use crate::passive::flow::{Budget, StreamPiece};
use crate::passive::limits::TLS_RECORD;

/// Bytes of a record's header.
const HEADER: usize = 5;

/// A record that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) header: [u8; HEADER],
    pub(super) len: usize,
    /// Its bytes after the header, where they are kept and none is missing.
    pub(super) bytes: Option<&'a [u8]>,
    /// Those before the first that is missing.
    pub(super) front: &'a [u8],
    /// When its first byte came.
    pub(super) begun: i64,
}

impl Record<'_> {
    pub(super) fn kind(&self) -> u8 {
        self.header[0]
    }
}

/// The part of a record that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Header,
    Body {
        left: usize,
        holed: bool,
    },
    /// Where the next record begins is not known; one is looked for where a segment begins.
    Lost,
}

/// Reads one direction.
#[derive(Debug)]
pub(super) struct Records {
    state: RecordState,
    header: [u8; HEADER],
    have: usize,
    body: Vec<u8>,
    begun: i64,
    /// Bodies are kept: they may be opened.
    pub(super) keeps: bool,
}

/// An event of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    Record(Record<'a>),
    /// Records are missing, and how many is not known.
    Lost,
    /// Bytes whose record boundaries are unknown.
    Unknown(usize),
}

impl Records {
    pub(super) fn new() -> Records {
        Records {
            state: RecordState::Header,
            header: [0; HEADER],
            have: 0,
            body: Vec::new(),
            begun: 0,
            keeps: true,
        }
    }

    /// The next part of the stream; `each` gets what is whole.
    pub(super) fn take(
        &mut self,
        piece: StreamPiece<'_>,
        now: i64,
        budget: &Budget,
        each: &mut dyn FnMut(Read<'_>),
    ) {
        match piece {
            StreamPiece::Data(data) => self.data(data, now, budget, each),
            StreamPiece::Hole(n) => self.hole(n as usize, budget, each),
        }
    }

    fn data(&mut self, mut data: &[u8], now: i64, budget: &Budget, each: &mut dyn FnMut(Read<'_>)) {
        let mut starts = true;
        while !data.is_empty() {
            match self.state {
                RecordState::Lost => {
                    if !(starts && is_header(data)) {
                        return each(Read::Unknown(data.len()));
                    }
                    self.state = RecordState::Header;
                }
                RecordState::Header => {
                    if self.have == 0 {
                        self.begun = now;
                    }
                    let n = (HEADER - self.have).min(data.len());
                    self.header[self.have..self.have + n].copy_from_slice(&data[..n]);
                    self.have += n;
                    data = &data[n..];
                    if self.have == HEADER && !self.begin() {
                        return self.lose(data.len(), budget, each);
                    }
                }
                RecordState::Body { left, holed } => {
                    let n = left.min(data.len());
                    self.keep(&data[..n], budget);
                    data = &data[n..];
                    self.state = RecordState::Body { left: left - n, holed };
                }
            }
            starts = false;
            self.end(budget, each);
        }
    }

    /// A header is whole; false: it is none.
    fn begin(&mut self) -> bool {
        let left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        self.state = RecordState::Body { left, holed: false };
        is_header(&self.header)
    }

    fn keep(&mut self, bytes: &[u8], budget: &Budget) {
        let RecordState::Body { left, holed } = self.state else { return };
        if self.keeps && !holed && budget.take(bytes.len()) {
            self.body.extend_from_slice(bytes);
        } else {
            self.state = RecordState::Body { left, holed: true };
        }
    }

    /// Gives out a record whose last byte came.
    fn end(&mut self, budget: &Budget, each: &mut dyn FnMut(Read<'_>)) {
        let RecordState::Body { left: 0, holed } = self.state else { return };
        let len = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        let bytes = (!holed && self.body.len() == len).then_some(self.body.as_slice());
        let front = self.body.as_slice();
        each(Read::Record(Record { header: self.header, len, bytes, front, begun: self.begun }));
        self.drop_body(budget);
        self.have = 0;
        self.state = RecordState::Header;
    }

    fn hole(&mut self, n: usize, budget: &Budget, each: &mut dyn FnMut(Read<'_>)) {
        match self.state {
            RecordState::Body { left, .. } if n <= left => {
                self.state = RecordState::Body { left: left - n, holed: true };
                self.end(budget, each);
            }
            RecordState::Lost => each(Read::Unknown(n)),
            RecordState::Header | RecordState::Body { .. } => self.lose(n, budget, each),
        }
    }

    fn lose(&mut self, bytes: usize, budget: &Budget, each: &mut dyn FnMut(Read<'_>)) {
        self.drop_body(budget);
        self.have = 0;
        self.state = RecordState::Lost;
        each(Read::Lost);
        each(Read::Unknown(bytes));
    }

    /// Returns what it holds to the budget.
    pub(super) fn drop_body(&mut self, budget: &Budget) {
        budget.give_back(self.body.len());
        self.body = Vec::new();
    }
}

/// Bytes that may begin a record: a known kind, a version of TLS, and a possible length.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    match *bytes {
        [0x14..=0x17, 3, 0..=4, a, b, ..] => usize::from(u16::from_be_bytes([a, b])) <= TLS_RECORD,
        _ => false,
    }
}

/// Opens the records of one direction, epoch by epoch: early data, handshake, data, and the data
/// after each `KeyUpdate`. The record that the next key opens begins the next epoch.
#[derive(Debug, Default)]
pub(super) struct Opener {
    /// The epochs that may still come, the one that is there first.
    epochs: Vec<Cipher>,
    /// The last secret, and by which hash it is updated.
    last: Option<(bool, Vec<u8>, super::cipher::Aead)>,
    /// Records in a row that no key opened.
    failed: u32,
    /// Records are missing before the next one.
    gap: bool,
}

/// Records in a row that no key opens, after which a direction is given up.
const FAILED: u32 = 16;
/// Records that may be missing in a hole.
const MISSING: u64 = 64;

impl Opener {
    pub(super) fn new(epochs: Vec<Cipher>) -> Opener {
        Opener { epochs, ..Opener::default() }
    }

    /// After the epochs that are known: keys that the last secret is updated to.
    pub(super) fn updating(mut self, sha384: bool, secret: Vec<u8>, aead: super::cipher::Aead) -> Opener {
        self.last = Some((sha384, secret, aead));
        self
    }

    /// It has a key, and has not given up.
    pub(super) fn is_able(&self) -> bool {
        !self.epochs.is_empty() && self.failed < FAILED
    }

    /// A record was not opened, and none since.
    pub(super) fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// A record that cannot be opened, since bytes of it are missing. The content it may have had.
    pub(super) fn skip(&mut self, len: usize) -> usize {
        // It may have been the first of the next epoch.
        self.gap = true;
        let Some(cipher) = self.epochs.first_mut() else { return 0 };
        cipher.content_len(len)
    }

    /// An unknown number of records is missing.
    pub(super) fn lost(&mut self) {
        self.gap = true;
    }

    /// The kind and content of a record.
    pub(super) fn open(&mut self, header: [u8; 5], record: &[u8]) -> Option<(u8, Vec<u8>)> {
        for at in 0..self.epochs.len() {
            let first = self.epochs[at].next;
            for number in first..=first + if self.gap { MISSING } else { 0 } {
                if let Some(opened) = self.epochs[at].open(number, header, record) {
                    return Some(self.opened(at, number, opened));
                }
            }
        }
        let updated = self.update().and_then(|cipher| Some((cipher.open(0, header, record)?, cipher)));
        let Some((opened, cipher)) = updated else {
            self.failed += 1;
            return None;
        };
        self.last =
            self.last.take().map(|(sha384, s, aead)| (sha384, super::cipher::updated(sha384, &s), aead));
        self.epochs = vec![cipher];
        Some(self.opened(0, 0, opened))
    }

    /// The key after a `KeyUpdate`, once the known epochs are over.
    fn update(&self) -> Option<Cipher> {
        let (sha384, secret, aead) = self.last.as_ref().filter(|_| self.epochs.len() == 1)?;
        Cipher::of_secret(*aead, *sha384, &super::cipher::updated(*sha384, secret))
    }

    fn opened(&mut self, at: usize, number: u64, opened: (u8, Vec<u8>)) -> (u8, Vec<u8>) {
        self.epochs.drain(..at);
        if let Some(cipher) = self.epochs.first_mut() {
            cipher.next = number + 1;
        }
        (self.failed, self.gap) = (0, false);
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records in pieces: the kind and length of each, and whether its bytes are there.
    fn read(pieces: &[StreamPiece<'_>]) -> (Vec<String>, bool) {
        let (mut records, budget, mut out) = (Records::new(), Budget::new(1000), Vec::new());
        for (now, piece) in pieces.iter().enumerate() {
            records.take(*piece, now as i64, &budget, &mut |read| match read {
                Read::Record(r) => {
                    out.push(format!("{}:{}:{}@{}", r.kind(), r.len, r.bytes.is_some(), r.begun));
                }
                Read::Lost => out.push("lost".to_owned()),
                Read::Unknown(n) => out.push(format!("{n} bytes")),
            });
        }
        records.drop_body(&budget);
        (out, budget.take(1000))
    }

    #[test]
    fn records_through_segments_and_holes() {
        let a = [22, 3, 1, 0, 3, 1, 2, 3];
        let b = [23, 3, 3, 0, 2, 9, 9];
        let both = [a.as_slice(), &b].concat();
        assert_eq!(read(&[StreamPiece::Data(&both)]).0, ["22:3:true@0", "23:2:true@0"]);
        let (out, free) = read(&[
            StreamPiece::Data(&both[..3]),
            StreamPiece::Data(&both[3..9]),
            StreamPiece::Data(&both[9..]),
        ]);
        assert_eq!(out, ["22:3:true@0", "23:2:true@1"]);
        assert!(free, "the budget gets all back");
        // A hole within a record, to its end, and over a header.
        assert_eq!(
            read(&[StreamPiece::Data(&a[..6]), StreamPiece::Hole(2), StreamPiece::Data(&b)]).0,
            ["22:3:false@0", "23:2:true@2"]
        );
        let over = [
            StreamPiece::Data(&a[..6]),
            StreamPiece::Hole(5),
            StreamPiece::Data(&[1, 2]),
            StreamPiece::Data(&b),
        ];
        assert_eq!(read(&over).0, ["lost", "5 bytes", "2 bytes", "23:2:true@3"]);
        let other = [StreamPiece::Data(b"GET / HTTP/1.1\r\n"), StreamPiece::Data(&b)];
        assert_eq!(read(&other).0, ["lost", "11 bytes", "23:2:true@1"]);
        assert_eq!(read(&[StreamPiece::Data(&[20, 3, 3, 0, 0])]).0, ["20:0:true@0"], "an empty one");
        assert!(!is_header(&[23, 3, 3, 0xff, 0xff]) && !is_header(&[23, 3, 3]));
    }

    #[test]
    fn a_record_that_finds_no_room_is_skipped() {
        let (mut records, budget, mut out) = (Records::new(), Budget::new(4), Vec::new());
        let record = [[23, 3, 3, 0, 8].as_slice(), &[0; 8], &[23, 3, 3, 0, 1, 5]].concat();
        records.take(StreamPiece::Data(&record), 0, &budget, &mut |read| {
            let Read::Record(r) = read else { panic!("lost") };
            out.push((r.len, r.bytes.is_some()));
        });
        assert_eq!(out, [(8, false), (1, true)]);
        assert!(budget.take(4));
    }
}
