//! Serves the files of a directory.
//!
//! The kernel keeps every path beneath the directory (`openat2` with `RESOLVE_BENEATH`, Linux 5.6).
//! Neither `..` nor a symbolic link leads out of it, even if it changes at that moment.

mod compressed;
mod condition;
mod kind;
mod listing;
mod lookup;
mod name;
mod negotiate;
mod ranges;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use linerate_http::server::Method;
use linerate_net::Time;
use linerate_net::file::read_cached;
use rustix::fs::{fstat, stat};
use rustix::io::Errno;

use self::compressed::{Key, Text, compressed, landed};
use self::condition::{Outcome, Validators};
use self::listing::ListedPage;
use self::lookup::{Failed, FoundFile, LookupResult, Root, Wanted, refuse};
pub(crate) use self::name::file_name;
use self::negotiate::Encoding;
use self::ranges::Multipart;
use crate::blocking::blocking;
use crate::message::file_body::FileBody;
use crate::message::responding::Responding;
use crate::message::response::ResponseBody;
use crate::{Request, Response};

/// Files up to this size are read at once and sent with their head. Reason: one read, one send; the
/// copies cost less than what larger files need.
const WHOLE: u64 = 16 << 10;
/// Sizes of texts that are compressed on the fly. Reason: smaller ones do not gain, and larger ones
/// should be stored compressed.
const COMPRESSED: std::ops::RangeInclusive<u64> = 256..=1 << 20;
/// Bytes of compressed texts that each thread finds without asking the others. Reason: threads share
/// nothing that each request needs; the bytes themselves are mostly shared.
const CACHE: usize = 16 << 20;
/// The level of gzip where none is set. Reason: fast, and near to what the best level saves.
const GZIP: u8 = 5;
/// Largest error page. Reason: each use reads it whole.
const PAGE: u64 = 1 << 20;
/// How often each thread checks that the path still names its directory. Reason: a new version of a
/// site usually replaces the old one by a rename or a changed link; a system call for each request
/// would be waste.
const LOOK: Duration = Duration::from_secs(1);

/// A directory to serve files from. [`FileRoot::files`] gives each thread its own [`Files`].
#[derive(Clone, Debug)]
pub struct FileRoot {
    path: Arc<Path>,
    root: Root,
    options: Arc<FileOptions>,
}

/// Options besides serving the file that a path names.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// A directory without `index.html` is listed as a page.
    pub list: bool,
    /// Names beneath the directory to try, in order, if a path names no file; `$uri` in them stands
    /// for the path. The first existing file is served, with status 200.
    pub try_files: Vec<String>,
    /// The level at which texts are compressed on the fly, from 1 (fast) to 9 (small); `None`: they
    /// are not. Compressed copies that lie beside a file are served either way.
    pub gzip: Option<u8>,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { list: false, try_files: Vec::new(), gzip: Some(GZIP) }
    }
}

impl FileRoot {
    /// Opens it. Files are looked up for each request, the directory itself about once a second: if
    /// another directory has its name by then, that one is served.
    ///
    /// # Errors
    /// It is not a directory, cannot be read, or the kernel lacks `openat2`.
    pub fn open(directory: &Path) -> io::Result<FileRoot> {
        // Must stay the same if the working directory changes later.
        let path: PathBuf = std::path::absolute(directory)?;
        let root = Root::open(&path)?;
        Ok(FileRoot { path: path.into(), root, options: Arc::default() })
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(self, options: FileOptions) -> FileRoot {
        FileRoot { options: Arc::new(options), ..self }
    }

    /// Creates the handler of one thread.
    pub fn files(&self) -> Files {
        Files(Rc::new(Own {
            path: Arc::clone(&self.path),
            options: Arc::clone(&self.options),
            root: RefCell::new(self.root.clone()),
            looked: Cell::new(None),
            compressed: RefCell::default(),
        }))
    }
}

/// Responds to GET and HEAD with files.
#[derive(Clone, Debug)]
pub struct Files(Rc<Own>);

/// The state of one thread.
#[derive(Debug)]
struct Own {
    path: Arc<Path>,
    options: Arc<FileOptions>,
    root: RefCell<Root>,
    looked: Cell<Option<Time>>,
    compressed: RefCell<Kept>,
}

impl Own {
    /// The current directory.
    fn root(&self) -> Root {
        // The first request of a thread may come long after the directory was opened.
        if let Some(now) = crate::timers::now()
            && self.looked.get().is_none_or(|looked| now >= looked + LOOK)
        {
            self.looked.set(Some(now));
            self.look();
        }
        self.root.borrow().clone()
    }

    /// If nothing usable has that name, the old directory stays.
    fn look(&self) {
        let is = |found: Result<rustix::fs::Stat, Errno>| found.map(|s| (s.st_dev, s.st_ino));
        let (here, there) = (is(fstat(self.root.borrow().fd())), is(stat(&*self.path)));
        if here != there
            && let Ok(root) = Root::open(&self.path)
        {
            *self.root.borrow_mut() = root;
        }
    }
}

/// Compressed texts that a thread has used.
#[derive(Debug, Default)]
struct Kept {
    texts: HashMap<Key, Bytes>,
    bytes: usize,
}

impl Files {
    /// Responds with the file that the path names, or with an error.
    pub async fn answer(self, request: Request) -> Response {
        self.respond(request).await.await
    }

    /// The same. A response that still waits takes less memory than the search for its file.
    pub(crate) async fn respond(self, request: Request) -> Responding {
        let name = match file_name(request.path()) {
            Ok(name) => name,
            Err(_) if !matches!(request.head().method(), Method::Get | Method::Head) => Vec::new(),
            Err(status) => return Responding::ready(Response::explained(status, "no such file")),
        };
        self.respond_with(&name, request).await
    }

    /// Responds with the file of this name.
    pub(crate) async fn respond_with(self, name: &[u8], request: Request) -> Responding {
        match request.head().method() {
            Method::Get | Method::Head => {}
            Method::Options => return Responding::ready(allow(Response::status(204))),
            _ => return Responding::ready(allow(Response::explained(405, "files are read"))),
        }
        let found = self.find(name, &request).await;
        let response = match found {
            Ok(LookupResult::File(found, name)) => {
                let gzip = self.0.options.gzip;
                return self.give(found, name, request, gzip);
            }
            Ok(LookupResult::Directory) => redirect(&request),
            Ok(LookupResult::Unlisted) if self.0.options.list => self.list(name, &request).await,
            Ok(LookupResult::Unlisted) => {
                Response::explained(404, "there is no index.html here, and directories are not listed")
            }
            Err(failed) => failed.into(),
        };
        Responding::ready(response)
    }

    async fn find(&self, name: &[u8], request: &Request) -> Result<LookupResult, Failed> {
        let mut encodings = [None; 2];
        // A range of the compressed file is not a range of the requested file.
        if request.field("range").is_none() {
            encodings.iter_mut().zip(negotiate::accepted(request)).for_each(|(e, taken)| *e = Some(taken));
        }
        let (slash, others) = (request.path().ends_with('/'), Cow::Borrowed(&self.0.options.try_files[..]));
        self.0.root().find(Wanted { name: Cow::Borrowed(name), slash, encodings, others }).await
    }

    /// The entries of a directory.
    async fn list(&self, name: &[u8], request: &Request) -> Response {
        let (root, name, path) = (self.0.root(), name.to_owned(), request.path().to_owned());
        let (beneath, directory) = (root.clone(), name.clone());
        match blocking(move || listing::open(beneath.fd(), &directory)).await {
            Ok(Ok(_)) => {
                let mut response = Response::status(200).with_content_type("text/html; charset=utf-8");
                // Names are escaped; if one ever were not, nothing in it would run.
                let policy = "default-src 'none'; style-src 'unsafe-inline'";
                let _ = response.fields.add("content-security-policy", policy);
                response.with_stream(ListedPage::new(move || listing::page(root.fd(), &name, &path)))
            }
            Ok(Err(error)) => refuse(error),
            Err(error) => error.into(),
        }
    }

    /// `response` with this file as its page, if the file can be read.
    pub(crate) async fn in_place_of(&self, response: Response, name: &str) -> Response {
        let name = name.trim_start_matches('/').as_bytes();
        let Ok((file, meta)) = self.0.root().get(name).await else { return response };
        if !meta.is_file() || meta.len() > PAGE {
            return response;
        }
        let read = blocking(move || {
            let mut bytes = vec![0; meta.len() as usize];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        });
        match read.await {
            Ok(Ok(bytes)) => response.with_content_type(kind::of(name).name).with_body(bytes),
            _ => response,
        }
    }

    /// Whether a file or directory of that name exists.
    pub(crate) async fn has(&self, request: &Request) -> bool {
        let Ok(name) = file_name(request.path()) else { return false };
        self.0.root().get(&name).await.is_ok()
    }

    /// `gzip`: the level at which it may be compressed.
    fn give(self, found: FoundFile, name: Vec<u8>, request: Request, gzip: Option<u8>) -> Responding {
        let kind = kind::of(&name);
        let on_the_fly = gzip.filter(|_| {
            found.encoding.is_none()
                && kind.compresses
                && COMPRESSED.contains(&found.size)
                && request.field("range").is_none()
                && negotiate::accepted(&request).any(|e| e == Encoding::Gzip)
        });
        let encoding = on_the_fly.map_or(found.encoding, |_| Some(Encoding::Gzip));
        let validators = Validators::new(found.size, found.modified, encoding, on_the_fly.is_some());
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
        let parts = match condition::evaluate(&request, &validators, found.size) {
            Outcome::NotModified => {
                return Responding::ready(Response { status: 304, content_type: None, ..response });
            }
            Outcome::Failed => return Responding::ready(Response::explained(412, "the file has changed")),
            Outcome::Unsatisfiable => {
                let mut answer = Response::explained(416, "the file is not that long");
                let _ = answer.fields.add("content-range", format!("bytes */{}", found.size));
                return Responding::ready(answer);
            }
            Outcome::Whole => Vec::new(),
            Outcome::Parts(parts) => {
                response.status = 206;
                parts
            }
        };
        if let Some(level) = on_the_fly {
            return self.give_compressed((found, name), request, level, response);
        }
        match &parts[..] {
            [] => body(found, &name, None, response, request.head().method()),
            [part] => {
                let range = format!("bytes {}-{}/{}", part.start, part.end - 1, found.size);
                let _ = response.fields.add("content-range", range);
                body(found, &name, Some(part.clone()), response, request.head().method())
            }
            _ => Responding::ready(several(found, &name, parts, kind.name, response)),
        }
    }

    /// `response` with the compressed text of a file, or the file as it is where too much else is being
    /// compressed.
    fn give_compressed(
        self,
        (found, name): (FoundFile, Vec<u8>),
        request: Request,
        level: u8,
        response: Response,
    ) -> Responding {
        let key = (found.is, level);
        let kept = self.0.compressed.borrow().texts.get(&key).cloned();
        if let Some(text) = kept {
            return Responding::ready(response.with_body(text));
        }
        match compressed().text(key, &found.file, found.size) {
            Text::Ready(text) => Responding::ready(response.with_body(self.kept(key, text))),
            Text::Busy => self.give(found, name, request, None),
            // Those that wait have no file open.
            Text::Awaited(landing) => Responding::waits(async move {
                match landed(landing).await {
                    Ok(text) => response.with_body(self.kept(key, text)),
                    Err(error) => refuse(error),
                }
            }),
        }
    }

    /// Keeps a compressed text for this thread, and returns it.
    fn kept(&self, key: Key, text: Bytes) -> Bytes {
        let mut kept = self.0.compressed.borrow_mut();
        if kept.bytes + text.len() > CACHE {
            *kept = Kept::default();
        }
        if kept.texts.insert(key, text.clone()).is_none() {
            kept.bytes += text.len();
        }
        text
    }
}

/// A directory needs a trailing slash, or relative links in it would break.
fn redirect(request: &Request) -> Response {
    let query = request.query().map(|q| format!("?{q}")).unwrap_or_default();
    // Only one slash in front: two would name another server.
    let place = format!("/{}/{query}", request.path().trim_start_matches('/'));
    let mut answer = Response::explained(301, "a directory");
    match answer.fields.add("location", place) {
        Ok(()) => answer,
        Err(_) => Response::explained(404, "no such file"),
    }
}

fn allow(mut response: Response) -> Response {
    let _ = response.fields.add("allow", "GET, HEAD, OPTIONS");
    response
}

/// Several ranges of a file in one body.
fn several(
    found: FoundFile,
    name: &[u8],
    parts: Vec<Range<u64>>,
    kind: &str,
    mut response: Response,
) -> Response {
    let many = Multipart::new(parts, found.size, kind);
    response.content_type = None;
    let _ = response.fields.add("content-type", format!("multipart/byteranges; boundary={}", many.boundary));
    let again = found.again(name);
    let body = FileBody::of_parts(found.file, many.parts).reopening(again);
    response.body = ResponseBody::File(Box::new(body));
    response
}

/// `part` of the file, or all of it.
fn body(
    found: FoundFile,
    name: &[u8],
    part: Option<Range<u64>>,
    mut response: Response,
    method: Method,
) -> Responding {
    let part = part.unwrap_or(0..found.size);
    let size = part.end - part.start;
    if size > WHOLE || method == Method::Head {
        let again = found.again(name);
        let body = FileBody::new(found.file, part).reopening(again);
        response.body = ResponseBody::File(Box::new(body));
        return Responding::ready(response);
    }
    let file = found.file;
    let mut bytes = vec![0; size as usize];
    if matches!(read_cached(&file, &mut bytes, part.start), Ok(n) if n == bytes.len()) {
        return Responding::ready(response.with_body(bytes));
    }
    // This may block on a disk.
    Responding::waits(async move {
        let read = blocking(move || file.read_exact_at(&mut bytes, part.start).map(|()| bytes));
        match read.await {
            Ok(Ok(bytes)) => response.with_body(bytes),
            Ok(Err(_)) => Response::explained(500, "the file changed while it was read"),
            Err(error) => error.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let good: [(&str, &[u8]); 7] = [
            ("/", b""),
            ("/a/b.txt", b"a/b.txt"),
            ("//a/./b/", b"a/b"),
            ("/a%20b", b"a b"),
            ("/%C3%A9", "\u{e9}".as_bytes()),
            // Linux file names are bytes.
            ("/lat%E9", b"lat\xe9"),
            ("/.well-known/x", b".well-known/x"),
        ];
        for (path, name) in good {
            assert_eq!(file_name(path).as_deref(), Ok(name), "{path}");
        }
        for path in ["/..", "/a/../b", "/%2e%2e/x", "/a%2fb", "/a%00b", "/a%", "/a%4", "/%zz"] {
            assert_eq!(file_name(path), Err(400), "{path}");
        }
        for path in ["/.git/config", "/a/.env", "/%2egit"] {
            assert_eq!(file_name(path), Err(404), "{path}");
        }
    }
}
