//! Files that are being sent: whether reading one would block on a disk, and reads for transports
//! without sendfile.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use crate::limits::{FILE_BUFFER, FILE_BUFFERS_KEPT};
use crate::sys;

/// Distance of the sampled bytes where the kernel cannot count cached pages. Reason: the kernel's
/// readahead size.
const SAMPLE: u64 = 128 << 10;

/// Whether this range is in the page cache, so that sending or reading it does not block on a disk.
/// Also `true` where the file system cannot tell, as for files in memory (tmpfs).
pub fn is_cached(file: &File, range: Range<u64>) -> bool {
    if range.is_empty() {
        return true;
    }
    if let Ok(pages) = sys::file::cached_pages(file, &range) {
        let page = sys::file::page_size();
        return pages > (range.end - 1) / page - range.start / page;
    }
    // The kernel does not count for files of other users. Sampling suffices, because readahead and
    // reclaim work on whole ranges.
    let last = range.end - 1;
    (range.start..last).step_by(SAMPLE as usize).chain([last]).all(|at| {
        let mut byte = [0];
        !matches!(sys::file::read_cached(file, &mut byte, at), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    })
}

/// Reads from `at` what is in the page cache: `Ok(0)` at the end of the file, `WouldBlock` if the
/// read would block on a disk. Where the file system cannot tell, it reads as usual.
///
/// # Errors
/// As reading a file.
pub fn read_cached(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    match sys::file::read_cached(file, bytes, at) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            file.read_at(bytes, at)
        }
        read => read,
    }
}

thread_local! {
    /// Buffers whose bytes have left, for the next reads: fresh memory costs more than the copy
    /// into it.
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that returns to its thread's spare ones when dropped.
struct Buffer(Box<[u8]>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // `try_with` fails while the thread ends: the buffer is freed then.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if bytes.len() == FILE_BUFFER && spare.len() < FILE_BUFFERS_KEPT {
                spare.push(bytes);
            }
        });
    }
}

/// Reads a range; fails if the file is shorter.
pub(crate) fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let len = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let spare = if len > FILE_BUFFER { None } else { SPARE.with_borrow_mut(Vec::pop) };
    let mut buffer = Buffer(spare.unwrap_or_else(|| vec![0; len.max(FILE_BUFFER)].into_boxed_slice()));
    file.read_exact_at(&mut buffer.0[..len], range.start)?;
    Ok(Bytes::from_owner(buffer).slice(..len))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(len: usize) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; len]).expect("written");
        file
    }

    #[test]
    fn what_was_just_written_is_in_memory() {
        let file = file(300_000);
        for range in [0..0, 0..1, 0..300_000, 4095..4097, 299_999..300_000] {
            assert!(is_cached(&file, range.clone()), "{range:?}");
        }
        let mut bytes = [0; 10];
        assert_eq!(read_cached(&file, &mut bytes, 299_995).expect("read"), 5);
        assert_eq!(read_cached(&file, &mut bytes, 300_000).expect("read"), 0);
    }

    #[test]
    fn a_file_that_is_too_short_is_no_range() {
        let file = file(1000);
        assert_eq!(read(&file, 10..1000).expect("there").len(), 990);
        assert!(read(&file, 10..1001).is_err());
        // The next read reuses its buffer.
        let kept = SPARE.with_borrow(Vec::len);
        assert_eq!(kept, 1);
        assert_eq!(read(&file, 0..0).expect("nothing").len(), 0);
    }
}
