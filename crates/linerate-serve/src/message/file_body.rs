//! A body made of a file, or of ranges of one with text between them. The transport gets ranges, so
//! the bytes need not pass through this process. The pool first reads what is not in memory, so
//! that the loop never blocks on a disk.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use linerate_net::file::is_cached;
use rustix::io::Errno;

use crate::blocking::{Blocking, BlockingError, blocking};
use crate::limits::{FILE_AHEAD, FILES_SHORT, POOL_BUSY};
use crate::timers::{Sleep, sleep};

/// A file that can be opened a second time.
pub(crate) trait OpensAgain: Send + Sync {
    /// Opens it. An error if it is not the same file any more. `cached`: `WouldBlock` where that
    /// would wait for a disk.
    fn open(&self, cached: bool) -> io::Result<File>;
}

/// A body from a file.
pub(crate) struct FileBody {
    source: FileSource,
    parts: VecDeque<FilePart>,
    /// The first part is in memory up to here.
    warm: u64,
    warming: Warming,
}

/// Where a body's bytes are.
struct FileSource {
    /// `None`: it was closed meanwhile.
    file: Option<Arc<File>>,
    again: Option<Arc<dyn OpensAgain>>,
}

/// Text, and the range of the file that follows it.
struct FilePart {
    lead: Bytes,
    range: Range<u64>,
}

/// Bytes that are being read from a disk into memory, or a file that is being opened.
enum Warming {
    No,
    Reading(u64, Blocking<io::Result<()>>),
    Opening(Blocking<io::Result<File>>),
    /// The pool is full, or no descriptor is left: try again later.
    Later(Sleep),
}

/// The part of a file that can be handed over now.
pub(crate) struct Slice {
    pub(crate) file: Arc<File>,
    pub(crate) lead: Bytes,
    pub(crate) range: Range<u64>,
}

impl Slice {
    /// Reads it, for a transport that takes bytes. They are in memory.
    pub(crate) fn read(&self) -> io::Result<Bytes> {
        let mut bytes = self.lead.to_vec();
        self.read_range(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Appends the range of the file to bytes.
    pub(crate) fn read_range(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let (at, len) = (bytes.len(), (self.range.end - self.range.start) as usize);
        bytes.resize(at + len, 0);
        self.file.read_exact_at(&mut bytes[at..], self.range.start).inspect_err(|_| bytes.truncate(at))
    }
}

impl FileBody {
    /// A range of a file.
    pub(crate) fn new(file: File, range: Range<u64>) -> FileBody {
        FileBody::of_parts(file, [(Bytes::new(), range)])
    }

    /// Texts, each with the range that follows it.
    pub(crate) fn of_parts(file: File, parts: impl IntoIterator<Item = (Bytes, Range<u64>)>) -> FileBody {
        let parts = parts
            .into_iter()
            .map(|(lead, range)| FilePart { lead, range: range.start..range.end.max(range.start) });
        let source = FileSource { file: Some(Arc::new(file)), again: None };
        FileBody { source, parts: parts.collect(), warm: 0, warming: Warming::No }
    }

    /// Allows it to be closed while its client reads nothing.
    pub(crate) fn reopening(mut self, again: Arc<dyn OpensAgain>) -> FileBody {
        self.source.again = Some(again);
        self
    }

    /// Whether it has a file descriptor.
    pub(crate) fn is_open(&self) -> bool {
        self.source.file.is_some() || matches!(self.warming, Warming::Opening(_))
    }

    /// Whether it can be closed until its next bytes are needed.
    pub(crate) fn may_close(&self) -> bool {
        self.source.again.is_some()
    }

    /// Closes the file until its next bytes are needed, if it can be opened again.
    pub(crate) fn close(&mut self) {
        if self.may_close() {
            self.source.file = None;
            (self.warm, self.warming) = (0, Warming::No);
        }
    }

    /// Bytes left to hand over.
    pub(crate) fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.lead.len() as u64 + (part.range.end - part.range.start)).sum()
    }

    /// The next slice, with at most `most` bytes of the file; `None` at the end. Pending while
    /// bytes are not in memory.
    pub(crate) fn poll_slice(
        &mut self,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Slice>>> {
        let file = ready!(self.poll_open(context))?;
        let Some(part) = self.parts.front_mut() else { return Poll::Ready(Ok(None)) };
        let from = part.range.start;
        let mut to = part.range.end.min(from + most as u64);
        if from < to && self.warm <= from {
            if !is_cached(&file, from..to) {
                let ahead = part.range.end.min(from + FILE_AHEAD.max(most as u64));
                self.warming = Warming::Reading(ahead, warm(&file, from..ahead));
                return self.poll_slice(most, context);
            }
            self.warm = to;
        }
        to = to.min(self.warm.max(from));
        let lead = std::mem::take(&mut part.lead);
        part.range.start = to;
        if part.range.is_empty() {
            self.parts.pop_front();
            self.warm = 0;
        }
        Poll::Ready(Ok(Some(Slice { file, lead, range: from..to })))
    }

    /// Whether everything was handed over.
    pub(crate) fn is_over(&self) -> bool {
        self.parts.is_empty()
    }

    /// The file, once it is open and what is being read is in memory.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Arc<File>>> {
        loop {
            match &mut self.warming {
                Warming::No => match &self.source.file {
                    Some(file) => return Poll::Ready(Ok(Arc::clone(file))),
                    None => self.open_again()?,
                },
                Warming::Later(sleep) => {
                    ready!(Pin::new(sleep).poll(context));
                    self.warming = Warming::No;
                }
                Warming::Reading(to, reading) => match ready!(Pin::new(reading).poll(context)) {
                    Ok(read) => {
                        self.warm = *to;
                        self.warming = Warming::No;
                        read?;
                    }
                    Err(BlockingError::Busy) => self.warming = Warming::Later(sleep(POOL_BUSY)),
                    Err(e @ BlockingError::Panicked) => return Poll::Ready(Err(io::Error::other(e))),
                },
                Warming::Opening(opening) => match ready!(Pin::new(opening).poll(context)) {
                    Ok(opened) => {
                        self.warming = Warming::No;
                        self.opened(opened)?;
                    }
                    Err(BlockingError::Busy) => self.warming = Warming::Later(sleep(POOL_BUSY)),
                    Err(e @ BlockingError::Panicked) => return Poll::Ready(Err(io::Error::other(e))),
                },
            }
        }
    }

    /// Opens it, or begins to.
    fn open_again(&mut self) -> io::Result<()> {
        let Some(again) = &self.source.again else { return Err(io::ErrorKind::NotFound.into()) };
        match again.open(true) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let again = Arc::clone(again);
                self.warming = Warming::Opening(blocking(move || again.open(false)));
                Ok(())
            }
            opened => self.opened(opened),
        }
    }

    fn opened(&mut self, opened: io::Result<File>) -> io::Result<()> {
        match opened.map_err(|e| (Errno::from_io_error(&e), e)) {
            Ok(file) => self.source.file = Some(Arc::new(file)),
            Err((Some(Errno::MFILE | Errno::NFILE), _)) => self.warming = Warming::Later(sleep(FILES_SHORT)),
            Err((_, error)) => return Err(error),
        }
        Ok(())
    }

    /// Reads all of it at once, blocking: for servers with a thread per connection.
    pub(crate) fn read(&self, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.extend_from_slice(&part.lead);
            let len = (part.range.end - part.range.start).min(most.saturating_sub(all.len()) as u64);
            let Some(file) = &self.source.file else { break };
            let from = all.len();
            all.resize(from + len as usize, 0);
            if file.read_exact_at(&mut all[from..], part.range.start).is_err() {
                all.truncate(from);
                break;
            }
        }
        all
    }
}

/// Reads a range into memory.
fn warm(file: &Arc<File>, range: Range<u64>) -> Blocking<io::Result<()>> {
    let file = Arc::clone(file);
    blocking(move || {
        let mut bytes = vec![0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let len = bytes.len().min((range.end - at) as usize);
            file.read_exact_at(&mut bytes[..len], at)?;
            at += len as u64;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::task::Waker;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    #[test]
    fn parts_come_in_order_and_in_slices() {
        let source: Vec<u8> = (0..=255).collect();
        let parts = [("a", 10..20), ("b", 5..5), ("c", 0..3), ("end", 0..0)];
        let parts = parts.map(|(lead, range)| (Bytes::from(lead), range));
        let mut body = FileBody::of_parts(file(&source), parts);
        assert_eq!(body.len(), 10 + 3 + 6);
        let (mut all, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
        assert_eq!(body.read(1000).len(), 19);
        while let Poll::Ready(Ok(Some(slice))) = body.poll_slice(4, &mut context) {
            assert!(slice.range.end - slice.range.start <= 4);
            all.extend_from_slice(&slice.lead);
            all.extend_from_slice(&source[slice.range.start as usize..slice.range.end as usize]);
        }
        assert!(body.is_over() && body.len() == 0);
        assert_eq!(all, [b"a", &source[10..20], b"bc", &source[..3], b"end"].concat());
    }

    /// Another thread waits for the disk: the first poll only requests it.
    #[test]
    fn what_is_not_in_memory_is_read_on_the_pool() {
        let bytes = vec![7; 3 << 20];
        let file = file(&bytes);
        file.sync_all().expect("on the disk");
        let advice = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&file, 0, None, advice).expect("dropped");
        if is_cached(&file, 0..3 << 20) {
            return linerate_skips::skip("a file system on a disk", "files stay in memory here");
        }
        let mut body = FileBody::new(file, 0..3 << 20);
        let mut context = Context::from_waker(Waker::noop());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let (mut waits, mut at) = (0, 0);
        while at < 3 << 20 {
            assert!(std::time::Instant::now() < until, "the pool does not answer");
            match body.poll_slice(256 << 10, &mut context) {
                Poll::Ready(Ok(Some(slice))) => {
                    assert_eq!(slice.range.start, at);
                    assert!(is_cached(&slice.file, slice.range.clone()), "{:?}", slice.range);
                    at = slice.range.end;
                }
                Poll::Ready(_) => panic!("there is more"),
                Poll::Pending => {
                    waits += 1;
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        }
        assert!(waits > 0);
    }

    /// The cache does not report that bytes are gone; the pool's read does.
    #[test]
    fn a_file_that_has_shrunk_is_an_error() {
        let mut body = FileBody::new(file(b"0123456789"), 0..100_000);
        let mut context = Context::from_waker(Waker::noop());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            match body.poll_slice(1 << 20, &mut context) {
                Poll::Ready(Err(e)) => return assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof),
                Poll::Ready(Ok(_)) => panic!("there are no such bytes"),
                Poll::Pending => assert!(std::time::Instant::now() < until, "the pool does not answer"),
            }
            std::thread::yield_now();
        }
    }
}
