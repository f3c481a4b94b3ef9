//! A page that lists a directory.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use linerate_http::server::HttpDate;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use rustix::io::Errno;

use crate::BodyStream;
use crate::blocking::{Blocking, BlockingError, blocking};
use crate::limits::POOL_BUSY;
use crate::timers::{Sleep, sleep};

/// Entries of a page, at most. Reason: a directory of millions must fill neither our memory nor a
/// browser's.
const MOST: usize = 10_000;

/// An entry that can be requested.
struct ListingEntry {
    name: Vec<u8>,
    is_dir: bool,
    size: u64,
    modified: u64,
}

/// Bytes of a page that are handed over at a time.
const PIECE: usize = 64 << 10;

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// What makes a page. Blocks on the disk.
type MakePage = Arc<dyn Fn() -> Result<String, Errno> + Send + Sync>;

/// A page that is made when its response has its turn. Otherwise few requests on one connection
/// would have as many pages in memory.
pub(super) struct ListedPage {
    make: MakePage,
    state: PageState,
}

enum PageState {
    Asked,
    Making(Blocking<Result<String, Errno>>),
    /// The pool is full: try again later.
    Later(Sleep),
    /// What has not been handed over.
    Made(Bytes),
}

impl ListedPage {
    pub(super) fn new(make: impl Fn() -> Result<String, Errno> + Send + Sync + 'static) -> ListedPage {
        ListedPage { make: Arc::new(make), state: PageState::Asked }
    }
}

impl BodyStream for ListedPage {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error + Send + Sync>>>> {
        loop {
            self.state = match &mut self.state {
                PageState::Asked => {
                    let make = Arc::clone(&self.make);
                    PageState::Making(blocking(move || make()))
                }
                PageState::Making(making) => match ready!(Pin::new(making).poll(context)) {
                    Ok(Ok(page)) => PageState::Made(page.into()),
                    Ok(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    Err(BlockingError::Busy) => PageState::Later(sleep(POOL_BUSY)),
                    Err(error @ BlockingError::Panicked) => return Poll::Ready(Some(Err(error.into()))),
                },
                PageState::Later(sleep) => {
                    ready!(Pin::new(sleep).poll(context));
                    PageState::Asked
                }
                PageState::Made(page) if page.is_empty() => return Poll::Ready(None),
                PageState::Made(page) => {
                    let piece = page.split_to(page.len().min(PIECE));
                    return Poll::Ready(Some(Ok(piece)));
                }
            };
        }
    }
}

/// Opens a directory beneath `root` to be listed.
pub(super) fn open(root: &Arc<OwnedFd>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let directory = if name.is_empty() { b"." } else { name };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(root, directory, flags, Mode::empty(), WITHIN)
}

/// The page of a directory beneath `root`; `path` is the requested path, still encoded. Blocks on
/// the disk.
pub(super) fn page(root: &Arc<OwnedFd>, name: &[u8], path: &str) -> Result<String, Errno> {
    let directory = if name.is_empty() { b"." } else { name };
    let dir = open(root, name)?;
    let (mut entries, mut more) = (Vec::new(), false);
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // Hidden files are not served, `.` and `..` included.
        if name.starts_with(b".") && name != b".well-known" {
            continue;
        }
        if entries.len() == MOST {
            more = true;
            break;
        }
        let Ok(mut meta) = statat(&dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(meta.st_mode) == FileType::Symlink {
            // What a request for it gets. One that leads nowhere or out of the root gets nothing.
            let path = [directory, b"/", name].concat();
            let target = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), WITHIN);
            let Ok(target) = target.and_then(fstat) else { continue };
            meta = target;
        }
        let kind = FileType::from_raw_mode(meta.st_mode);
        let is_dir = kind == FileType::Directory;
        if is_dir || kind == FileType::RegularFile {
            let (size, modified) = (meta.st_size as u64, u64::try_from(meta.st_mtime).unwrap_or(0));
            entries.push(ListingEntry { name: name.to_owned(), is_dir, size, modified });
        }
    }
    entries.sort_by(|a, b| b.is_dir.cmp(&a.is_dir).then_with(|| a.name.cmp(&b.name)));
    Ok(html(path, &entries, more))
}

fn html(path: &str, entries: &[ListingEntry], more: bool) -> String {
    let title = escaped(&super::name::decode(path).unwrap_or_else(|| path.as_bytes().to_owned()));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body{{font-family:sans-serif}}td{{padding:0 1em 0 0}}td+td{{text-align:right}}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page += "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n";
    }
    for entry in entries {
        let slash = if entry.is_dir { "/" } else { "" };
        let size = if entry.is_dir { String::new() } else { entry.size.to_string() };
        // `./`: otherwise a name with a colon would be read as a scheme.
        let (href, name) = (encoded(&entry.name), escaped(&entry.name));
        let date = HttpDate::from_unix(entry.modified);
        let date = std::str::from_utf8(date.as_bytes()).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a></td><td>{size}</td><td>{date}</td></tr>"
        );
    }
    if more {
        let _ = writeln!(page, "<tr><td>There are more than {MOST} entries.</td><td></td><td></td></tr>");
    }
    page + "</table>\n</body>\n</html>\n"
}

/// Encodes a name as a segment of a path.
fn encoded(name: &[u8]) -> String {
    let mut text = String::new();
    for &b in name {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            text.push(char::from(b));
        } else {
            let _ = write!(text, "%{b:02X}");
        }
    }
    text
}

/// Escapes a name as text of a page. Names need not be UTF-8; control characters could hide or
/// reverse the text beside them.
fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '"' => text += "&quot;",
            '\'' => text += "&#39;",
            c if c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                text.push('\u{fffd}');
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_nothing_else() {
        let name = b"<script>\"a\"&'\n\xff\xe2\x80\xae:x";
        assert_eq!(encoded(name), "%3Cscript%3E%22a%22%26%27%0A%FF%E2%80%AE%3Ax");
        assert_eq!(escaped(name), "&lt;script&gt;&quot;a&quot;&amp;&#39;\u{fffd}\u{fffd}\u{fffd}:x");
    }

    #[test]
    fn links_are_listed_as_what_they_lead_to() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("root/sub")).unwrap();
        std::fs::create_dir(at("root/other")).unwrap();
        std::fs::write(at("root/other/seven"), "seven b").unwrap();
        std::fs::write(at("outside"), "").unwrap();
        let links =
            [("../other", "dir"), ("../other/seven", "file"), ("nowhere", "gone"), ("../../outside", "out")];
        links.iter().for_each(|(to, name)| symlink(to, at("root/sub").join(name)).unwrap());
        symlink(at("root/other/seven"), at("root/sub/absolute")).unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(at("root")).unwrap()));
        let page = page(&root, b"sub", "/sub/").unwrap();
        assert!(page.contains("\"./dir/\"") && page.contains(">file</a></td><td>7</td>"), "{page}");
        for name in ["gone", "out", "absolute"] {
            assert!(!page.contains(name), "{page}");
        }
    }

    #[test]
    fn a_page_is_made_when_its_response_has_its_turn() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let page = ListedPage::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok("entry".repeat(50_000))
        });
        let mut response = crate::Response::status(200).with_stream(page);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(made.load(Ordering::SeqCst), 0);
        assert_eq!(crate::testing::body(&mut response).unwrap(), "entry".repeat(50_000));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        let mut gone = crate::Response::status(200).with_stream(ListedPage::new(|| Err(Errno::NOENT)));
        assert!(crate::testing::body(&mut gone).is_err());
    }

    #[test]
    fn a_page() {
        let entry = |name: &str, is_dir| ListingEntry { name: name.into(), is_dir, size: 5, modified: 0 };
        let page = html("/a%20b/", &[entry("d", true), entry("javascript:x", false)], true);
        assert!(page.contains("<title>/a b/</title>") && page.contains("href=\"../\""), "{page}");
        assert!(page.contains("<a href=\"./d/\">d/</a></td><td></td><td>Thu, 01 Jan 1970"), "{page}");
        assert!(page.contains("href=\"./javascript%3Ax\"") && page.contains("more than 10000"), "{page}");
        assert!(!html("/", &[], false).contains("../"));
    }
}
