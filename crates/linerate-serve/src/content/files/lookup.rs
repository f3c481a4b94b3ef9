//! Opens files by name beneath a directory: at once if the kernel has the path cached, otherwise on
//! the pool.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{CWD, FsWord, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;

use super::negotiate::Encoding;
use crate::Response;
use crate::blocking::{BlockingError, blocking};
use crate::message::file_body::OpensAgain;

/// How often a lookup is repeated because of a rename at the same time. Reason: renames without a
/// pause affect a few lookups in a hundred, never this many in a row.
const LOOKUPS: usize = 32;

/// `f_type` of file systems that have all names in memory, including which do not exist.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory beneath which files are looked up.
#[derive(Clone, Debug)]
pub(super) struct Root {
    fd: Arc<OwnedFd>,
    /// Nothing beneath it can block.
    in_memory: bool,
}

/// Looks up names beneath a root.
pub(super) struct Beneath {
    root: Arc<OwnedFd>,
    in_memory: bool,
    /// A name that is not cached gives `EAGAIN`.
    cached: bool,
}

/// The file that a request wants.
#[derive(Clone)]
pub(super) struct Wanted<'a> {
    pub(super) name: Cow<'a, [u8]>,
    /// Its path ends with a slash.
    pub(super) slash: bool,
    /// Codings that the client accepts.
    pub(super) encodings: [Option<Encoding>; 2],
    /// Names to try if the file does not exist.
    pub(super) others: Cow<'a, [String]>,
}

/// The result of a lookup.
pub(super) enum LookupResult {
    File(FoundFile, Vec<u8>),
    /// A directory requested without its slash.
    Directory,
    /// A directory without an index.
    Unlisted,
}

/// A file that was found.
pub(super) struct FoundFile {
    pub(super) file: File,
    pub(super) size: u64,
    /// Modified, in seconds and nanoseconds since 1970.
    pub(super) modified: (i64, i64),
    pub(super) encoding: Option<Encoding>,
    root: Root,
    pub(super) is: Identity,
}

/// What makes a file the one that a response's head was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Identity {
        Identity {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

impl FoundFile {
    /// What it takes to open the file again; `name` is the one it was found by.
    pub(super) fn again(&self, name: &[u8]) -> Arc<dyn OpensAgain> {
        let suffix = self.encoding.map_or("", Encoding::suffix);
        let name = [name, suffix.as_bytes()].concat();
        Arc::new(Again { root: self.root.clone(), name, is: self.is })
    }
}

/// A file by its name, which may be another's meanwhile.
struct Again {
    root: Root,
    name: Vec<u8>,
    is: Identity,
}

impl OpensAgain for Again {
    fn open(&self, cached: bool) -> io::Result<File> {
        let (file, meta) = self.root.beneath(cached).open(&self.name)?;
        match Identity::of(&meta) == self.is {
            true => Ok(file),
            false => Err(io::Error::other("the file is another one than when its response began")),
        }
    }
}

/// Why a lookup failed.
pub(super) enum Failed {
    Lookup(Errno),
    Pool(BlockingError),
}

impl From<Failed> for Response {
    fn from(failed: Failed) -> Response {
        match failed {
            Failed::Lookup(error) => refuse(error),
            Failed::Pool(error) => error.into(),
        }
    }
}

/// The response to a file that cannot be read.
pub(super) fn refuse(error: Errno) -> Response {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::NXIO => {
            Response::explained(404, "no such file")
        }
        Errno::ACCESS | Errno::PERM => Response::explained(403, "the file may not be read"),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            let mut answer = Response::explained(503, "no descriptor is left");
            let _ = answer.fields.add("retry-after", "1");
            answer
        }
        _ => Response::explained(500, "the file can't be read"),
    }
}

impl Root {
    /// Opens the directory. Its errors would also affect each file beneath it.
    pub(super) fn open(path: &Path) -> Result<Root, Errno> {
        let fd = openat(CWD, path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let in_memory = fstatfs(&fd).is_ok_and(|fs| IN_MEMORY.contains(&fs.f_type));
        let root = Root { fd: Arc::new(fd), in_memory };
        root.beneath(false).open(b".")?;
        Ok(root)
    }

    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    pub(super) fn beneath(&self, cached: bool) -> Beneath {
        Beneath { root: Arc::clone(&self.fd), in_memory: self.in_memory, cached: cached && !self.in_memory }
    }

    /// The file that a request wants.
    pub(super) async fn find(&self, wanted: Wanted<'_>) -> Result<LookupResult, Failed> {
        match self.beneath(true).find(&wanted) {
            Err(Errno::AGAIN) => {}
            found => return found.map_err(Failed::Lookup),
        }
        let wanted = wanted.into_owned();
        self.waiting(move |beneath| beneath.find(&wanted)).await
    }

    /// The file of this name.
    pub(super) async fn get(&self, name: &[u8]) -> Result<(File, Metadata), Failed> {
        match self.beneath(true).open(name) {
            Err(Errno::AGAIN) => {}
            found => return found.map_err(Failed::Lookup),
        }
        let name = name.to_owned();
        self.waiting(move |beneath| beneath.open(&name)).await
    }

    /// Blocks on a disk. Boxed, because that is rare.
    async fn waiting<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Beneath) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Failed> {
        let beneath = self.beneath(false);
        match Box::pin(blocking(move || look(&beneath))).await {
            Ok(found) => found.map_err(Failed::Lookup),
            Err(error) => Err(Failed::Pool(error)),
        }
    }
}

impl Wanted<'_> {
    fn into_owned(self) -> Wanted<'static> {
        Wanted {
            name: Cow::Owned(self.name.into_owned()),
            others: Cow::Owned(self.others.into_owned()),
            ..self
        }
    }
}

impl Beneath {
    /// The wanted file, or the first of the other names that is a file.
    fn find(&self, wanted: &Wanted<'_>) -> Result<LookupResult, Errno> {
        let found = self.at(wanted);
        if !matches!(found, Err(Errno::NOENT | Errno::NOTDIR) | Ok(LookupResult::Unlisted)) {
            return found;
        }
        for pattern in &*wanted.others {
            let name = filled_in(pattern, &wanted.name);
            match self.open(&name) {
                Ok((file, meta)) if meta.is_file() => return self.variant(file, &meta, name, wanted),
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                _ => {}
            }
        }
        found
    }

    fn at(&self, wanted: &Wanted<'_>) -> Result<LookupResult, Errno> {
        let name = &*wanted.name;
        let (file, meta) = self.open(if name.is_empty() { b"." } else { name })?;
        let (name, file, meta) = if meta.is_dir() {
            if !wanted.slash {
                return Ok(LookupResult::Directory);
            }
            let slash: &[u8] = if name.is_empty() { b"" } else { b"/" };
            let index = [name, slash, b"index.html"].concat();
            let (file, meta) = match self.open(&index) {
                Err(Errno::NOENT) => return Ok(LookupResult::Unlisted),
                found => found?,
            };
            (index, file, meta)
        } else if wanted.slash {
            return Err(Errno::NOTDIR);
        } else {
            (name.to_owned(), file, meta)
        };
        if !meta.is_file() {
            return Err(Errno::NOENT);
        }
        self.variant(file, &meta, name, wanted)
    }

    /// The file, or a compressed one beside it that the client accepts.
    fn variant(
        &self,
        file: File,
        meta: &Metadata,
        name: Vec<u8>,
        wanted: &Wanted<'_>,
    ) -> Result<LookupResult, Errno> {
        for encoding in wanted.encodings.into_iter().flatten() {
            match self.open(&[&name, encoding.suffix().as_bytes()].concat()) {
                Ok((file, meta)) if meta.is_file() => {
                    return Ok(LookupResult::File(self.found(file, &meta, Some(encoding)), name));
                }
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                _ => {}
            }
        }
        Ok(LookupResult::File(self.found(file, meta, None), name))
    }

    fn found(&self, file: File, meta: &Metadata, encoding: Option<Encoding>) -> FoundFile {
        let is = Identity::of(meta);
        let root = Root { fd: Arc::clone(&self.root), in_memory: self.in_memory };
        FoundFile { file, size: is.size, modified: is.modified, encoding, root, is }
    }

    /// Opens a name without blocking on anything but a disk: a named pipe must not hold the thread.
    /// During a rename anywhere, the kernel cannot be sure that a link's `..` stays beneath the
    /// directory, and returns `EAGAIN`.
    fn open(&self, name: &[u8]) -> Result<(File, Metadata), Errno> {
        let fd = match self.cached && !NO_CACHED.load(Relaxed) {
            true => match self.openat2(name, ResolveFlags::CACHED) {
                Err(Errno::INVAL) => {
                    // Linux 5.12 and later has it.
                    let found = self.openat2(name, ResolveFlags::empty());
                    NO_CACHED.fetch_or(!matches!(found, Err(Errno::INVAL)), Relaxed);
                    found
                }
                found => found,
            },
            false => {
                let mut lookups = (0..LOOKUPS).map(|_| self.openat2(name, ResolveFlags::empty()));
                lookups.find(|fd| !matches!(fd, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
            }
        };
        let file = File::from(fd?);
        let meta = file.metadata().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok((file, meta))
    }

    fn openat2(&self, name: &[u8], more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
        openat2(&self.root, name, flags, Mode::empty(), within)
    }
}

/// The kernel lacks `RESOLVE_CACHED`.
static NO_CACHED: AtomicBool = AtomicBool::new(false);

/// Inserts the path into a pattern; the result is a name beneath the root.
fn filled_in(pattern: &str, name: &[u8]) -> Vec<u8> {
    let mut filled = Vec::new();
    for (i, text) in pattern.split("$uri").enumerate() {
        if i > 0 {
            filled.extend_from_slice(name);
        }
        filled.extend_from_slice(text.as_bytes());
    }
    let slashes = filled.iter().take_while(|b| **b == b'/').count();
    filled.split_off(slashes)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use linerate_skips::skip;

    use super::*;

    fn wanted(name: &str) -> Wanted<'_> {
        let (name, others) = (Cow::Borrowed(name.as_bytes()), Cow::Borrowed(&[][..]));
        Wanted { name, slash: false, encodings: [None; 2], others }
    }

    /// On a disk, where the kernel caches names only after a lookup.
    fn on_disk() -> Option<(tempfile::TempDir, Root)> {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        std::fs::write(folder.path().join("there"), "yes").expect("written");
        let root = Root::open(folder.path()).expect("opened");
        let cold = !root.in_memory && root.beneath(true).open(b"never asked for").err() == Some(Errno::AGAIN);
        if !cold {
            skip(
                "a file system on a disk",
                "the file system has all names in memory, or Linux is older than 5.12",
            );
        }
        cold.then_some((folder, root))
    }

    #[test]
    fn what_is_in_memory_is_there_at_once() {
        let Some((_folder, root)) = on_disk() else { return };
        let mut context = Context::from_waker(Waker::noop());
        let mut find = std::pin::pin!(root.find(wanted("there")));
        let polled = find.as_mut().poll(&mut context);
        assert!(matches!(polled, Poll::Ready(Ok(LookupResult::File(file, _))) if file.size == 3));
    }

    #[test]
    fn what_a_disk_has_to_be_waited_for_is_looked_up_on_the_pool() {
        let Some((_folder, root)) = on_disk() else { return };
        let mut context = Context::from_waker(Waker::noop());
        for encodings in [[None; 2], [Some(Encoding::Brotli), None]] {
            // The file's own name is cached, its variant's is not.
            let name = if encodings[0].is_some() { "there" } else { "not there" };
            let wanted = Wanted { encodings, ..wanted(name) };
            assert!(matches!(root.beneath(true).find(&wanted), Err(Errno::AGAIN)), "{name}");
            let mut find = std::pin::pin!(root.find(wanted));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            let found = loop {
                match find.as_mut().poll(&mut context) {
                    Poll::Ready(found) => break found,
                    Poll::Pending => assert!(std::time::Instant::now() < until, "the pool does not answer"),
                }
            };
            match found {
                Ok(LookupResult::File(file, _)) => assert!(name == "there" && file.encoding.is_none()),
                Err(Failed::Lookup(error)) => assert_eq!((name, error), ("not there", Errno::NOENT)),
                _ => panic!("{name} is something else"),
            }
        }
    }

    #[test]
    fn a_file_system_in_memory_needs_no_pool() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return skip("/dev/shm", "there is no /dev/shm");
        };
        let root = Root::open(folder.path()).expect("opened");
        if root.in_memory {
            assert_eq!(root.beneath(true).open(b"never asked for").err(), Some(Errno::NOENT));
        }
    }

    #[test]
    fn patterns() {
        assert_eq!(filled_in("$uri.html", b"a/b"), b"a/b.html");
        assert_eq!(filled_in("/index.html", b"a"), b"index.html");
    }
}
