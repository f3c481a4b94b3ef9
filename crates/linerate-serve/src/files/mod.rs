//! Files of a directory, as a web server gives them.
//!
//! The kernel keeps every path beneath the directory (`openat2` with `RESOLVE_BENEATH`, Linux 5.6): neither `..` nor a
//! symbolic link, changed at whatever moment, leads out of it.

mod condition;
mod kind;
mod negotiate;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::Method;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use self::condition::{Outcome, Validators};
use self::negotiate::Encoding;
use crate::blocking::blocking;
use crate::engine::explained;
use crate::response::BodyStream;
use crate::{Request, Response};

/// Files up to this size are read at once and leave beside their head. Reason: one read, one send.
const WHOLE: u64 = 64 << 10;
/// Bytes read at a time of larger ones. Reason: as much as a fast wire takes in a turn.
const PIECE: usize = 128 << 10;
/// Texts of these sizes are compressed on the fly. Reason: smaller ones don't gain, larger ones should lie there compressed.
const COMPRESSED: std::ops::RangeInclusive<u64> = 256..=1 << 20;
/// Bytes of compressed texts that each thread keeps. Reason: compressing once is slow, every time is waste.
const CACHE: usize = 16 << 20;

/// A directory to serve files from. [`FileRoot::files`] gives each thread its own [`Files`].
#[derive(Clone, Debug)]
pub struct FileRoot {
    root: Arc<OwnedFd>,
}

impl FileRoot {
    /// Opens it; what is beneath is looked up anew for each request.
    ///
    /// # Errors
    /// When it is no directory, can't be read, or the kernel lacks `openat2`.
    pub fn open(directory: &Path) -> io::Result<FileRoot> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty())?;
        open_beneath(&root, ".")?;
        Ok(FileRoot { root: Arc::new(root) })
    }

    /// For one thread.
    pub fn files(&self) -> Files {
        Files { root: Arc::clone(&self.root), compressed: Rc::default() }
    }
}

/// Answers GET and HEAD with files.
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<OwnedFd>,
    compressed: Rc<RefCell<Compressed>>,
}

#[derive(Debug, Default)]
struct Compressed {
    texts: HashMap<(String, String), Bytes>,
    bytes: usize,
}

/// A file found.
struct Found {
    file: File,
    size: u64,
    /// Modified, in seconds and nanoseconds since 1970.
    modified: (i64, i64),
    encoding: Option<Encoding>,
}

impl Files {
    /// Answers, with the file that the path names, or says why not.
    pub async fn answer(self, request: Request) -> Response {
        match file_name(request.path()) {
            Ok(name) => self.answer_with(&name, request).await,
            Err(_) if !matches!(request.method(), Method::Get | Method::Head) => {
                self.answer_with("", request).await
            }
            Err(status) => explained(status, "no such file"),
        }
    }

    /// Answers with the file of this name.
    pub(crate) async fn answer_with(self, name: &str, request: Request) -> Response {
        match request.method() {
            Method::Get | Method::Head => {}
            Method::Options => return allow(Response::status(204)),
            _ => return allow(explained(405, "files are read")),
        }
        match self.find(name, &request) {
            Ok(Place::File(found, name)) => self.give(found, &name, &request).await,
            Ok(Place::Directory) => redirect(&request),
            Ok(Place::Unlisted) => {
                explained(404, "there is no index.html here, and directories are not listed")
            }
            Err(error) => refuse(error),
        }
    }

    /// Whether there is something of that name.
    pub(crate) fn has(&self, request: &Request) -> bool {
        file_name(request.path()).is_ok_and(|name| open_beneath(&self.root, &name).is_ok())
    }

    fn find(&self, name: &str, request: &Request) -> Result<Place, Errno> {
        let (file, meta) = open_beneath(&self.root, if name.is_empty() { "." } else { name })?;
        let (name, file, meta) = if meta.is_dir() {
            if !request.path().ends_with('/') {
                return Ok(Place::Directory);
            }
            let index = format!("{name}{}index.html", if name.is_empty() { "" } else { "/" });
            let (file, meta) = match open_beneath(&self.root, &index) {
                Err(Errno::NOENT) => return Ok(Place::Unlisted),
                found => found?,
            };
            (index, file, meta)
        } else if request.path().ends_with('/') {
            return Err(Errno::NOTDIR);
        } else {
            (name.to_owned(), file, meta)
        };
        if !meta.is_file() {
            return Err(Errno::NOENT);
        }
        // A part of a compressed file is of no use to whoever asked for a part of the file.
        if request.field("range").is_none() {
            for encoding in negotiate::accepted(request) {
                let variant = open_beneath(&self.root, &format!("{name}{}", encoding.suffix()));
                if let Ok((file, meta)) = variant
                    && meta.is_file()
                {
                    return Ok(Place::File(found(file, &meta, Some(encoding)), name));
                }
            }
        }
        Ok(Place::File(found(file, &meta, None), name))
    }

    async fn give(&self, found: Found, name: &str, request: &Request) -> Response {
        let kind = kind::of(name);
        let on_the_fly = found.encoding.is_none()
            && kind.compresses
            && COMPRESSED.contains(&found.size)
            && request.field("range").is_none()
            && negotiate::accepted(request).any(|e| e == Encoding::Gzip);
        let encoding = if on_the_fly { Some(Encoding::Gzip) } else { found.encoding };
        let validators = Validators::new(found.size, found.modified, encoding, on_the_fly);
        let mut response = Response::status(200).with_content_type(kind.name);
        // All of these are well-formed.
        let _ = response.fields.add("etag", &validators.etag);
        let _ = response.fields.add("last-modified", validators.modified.as_bytes());
        let _ = response.fields.add("accept-ranges", "bytes");
        if kind.compresses || found.encoding.is_some() {
            let _ = response.fields.add("vary", "accept-encoding");
        }
        if let Some(encoding) = encoding {
            let _ = response.fields.add("content-encoding", encoding.name());
        }
        let part = match condition::evaluate(request, &validators, found.size) {
            Outcome::NotModified => return Response { status: 304, content_type: None, ..response },
            Outcome::Failed => return explained(412, "the file has changed"),
            Outcome::Unsatisfiable => {
                let mut answer = explained(416, "the file is not that long");
                let _ = answer.fields.add("content-range", format!("bytes */{}", found.size));
                return answer;
            }
            Outcome::Whole => 0..found.size,
            Outcome::Part(part) => {
                response.status = 206;
                let range = format!("bytes {}-{}/{}", part.start, part.end - 1, found.size);
                let _ = response.fields.add("content-range", range);
                part
            }
        };
        if on_the_fly {
            return self.compress(found, name, &validators.etag, response).await;
        }
        body(found.file, part, response)
    }

    async fn compress(&self, found: Found, name: &str, etag: &str, response: Response) -> Response {
        let key = (name.to_owned(), etag.to_owned());
        if let Some(text) = self.compressed.borrow().texts.get(&key) {
            return response.with_body(text.clone());
        }
        let text = match blocking(move || negotiate::gzip(&found.file, found.size)).await {
            Ok(Ok(text)) => Bytes::from(text),
            Ok(Err(error)) => return refuse(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            Err(error) => return error.into(),
        };
        let mut kept = self.compressed.borrow_mut();
        if kept.bytes + text.len() > CACHE {
            *kept = Compressed::default();
        }
        kept.bytes += text.len();
        kept.texts.insert(key, text.clone());
        response.with_body(text)
    }
}

enum Place {
    File(Found, String),
    /// One that was asked for without its slash.
    Directory,
    /// One without an index.
    Unlisted,
}

fn found(file: File, meta: &std::fs::Metadata, encoding: Option<Encoding>) -> Found {
    Found { file, size: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()), encoding }
}

/// Opens what is beneath `root`. Without waiting: a named pipe must not hold the loop.
fn open_beneath(root: &OwnedFd, name: &str) -> Result<(File, std::fs::Metadata), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = openat2(root, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
    let file = File::from(fd);
    let meta = file.metadata().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok((file, meta))
}

/// The name beneath the root that a path means: without empty and `.` segments, percent-decoded, without `..`, hidden files
/// (except `.well-known`, RFC 8615), and encoded separators.
pub(crate) fn file_name(path: &str) -> Result<String, u16> {
    let mut name = String::new();
    for segment in path.split('/').filter(|s| !s.is_empty() && *s != ".") {
        let decoded = decode(segment).ok_or(400u16)?;
        if decoded.contains(['/', '\0']) || decoded == ".." {
            return Err(400);
        }
        if decoded.starts_with('.') && decoded != ".well-known" {
            return Err(404);
        }
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&decoded);
    }
    Ok(name)
}

fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [b, tail @ ..] = rest {
        if *b == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            let digit = |b: u8| char::from(b).to_digit(16);
            bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
            rest = tail;
        } else {
            bytes.push(*b);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn refuse(error: Errno) -> Response {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::NXIO => {
            explained(404, "no such file")
        }
        Errno::ACCESS | Errno::PERM => explained(403, "the file may not be read"),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            let mut answer = explained(503, "no descriptor is left");
            let _ = answer.fields.add("retry-after", "1");
            answer
        }
        _ => explained(500, "the file can't be read"),
    }
}

/// A directory is named with a slash, or links in it would go astray.
fn redirect(request: &Request) -> Response {
    let query = request.query().map(|q| format!("?{q}")).unwrap_or_default();
    // Only one slash in front: two would name another server.
    let place = format!("/{}/{query}", request.path().trim_start_matches('/'));
    let mut answer = explained(301, "a directory");
    match answer.fields.add("location", place) {
        Ok(()) => answer,
        Err(_) => explained(404, "no such file"),
    }
}

fn allow(mut response: Response) -> Response {
    let _ = response.fields.add("allow", "GET, HEAD, OPTIONS");
    response
}

fn body(file: File, part: std::ops::Range<u64>, response: Response) -> Response {
    let size = part.end - part.start;
    if size > WHOLE {
        return response.with_stream(Piecewise { file, at: part.start, end: part.end });
    }
    let mut bytes = vec![0; size as usize];
    match file.read_exact_at(&mut bytes, part.start) {
        Ok(()) => response.with_body(bytes),
        Err(_) => explained(500, "the file changed while it was read"),
    }
}

/// A file, piece by piece. When it ends before its size the stream fails, which cuts the connection: the peer must not take a
/// part for the whole.
struct Piecewise {
    file: File,
    at: u64,
    end: u64,
}

impl BodyStream for Piecewise {
    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>> {
        let n = (self.end - self.at).min(PIECE as u64);
        if n == 0 {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; n as usize];
        match self.file.read_exact_at(&mut piece, self.at) {
            Ok(()) => {
                self.at += n;
                Poll::Ready(Some(Ok(Bytes::from(piece))))
            }
            Err(error) => Poll::Ready(Some(Err(Box::new(error)))),
        }
    }

    fn length(&self) -> Option<u64> {
        Some(self.end - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let good = [
            ("/", ""),
            ("/a/b.txt", "a/b.txt"),
            ("//a/./b/", "a/b"),
            ("/a%20b", "a b"),
            ("/%C3%A9", "\u{e9}"),
            ("/.well-known/x", ".well-known/x"),
        ];
        for (path, name) in good {
            assert_eq!(file_name(path).as_deref(), Ok(name), "{path}");
        }
        for path in ["/..", "/a/../b", "/%2e%2e/x", "/a%2fb", "/a%00b", "/a%", "/a%4", "/%zz", "/%ff"] {
            assert_eq!(file_name(path), Err(400), "{path}");
        }
        for path in ["/.git/config", "/a/.env", "/%2egit"] {
            assert_eq!(file_name(path), Err(404), "{path}");
        }
    }
}
