//! A page that lists a directory.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use linerate_http::server::HttpDate;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

/// Entries of a page, at most. Reason: a directory of millions must fill neither our memory nor a
/// browser's.
const MOST: usize = 10_000;

/// An entry that can be requested.
struct Entry {
    name: Vec<u8>,
    is_dir: bool,
    size: u64,
    modified: u64,
}

/// The page of a directory beneath `root`; `path` is the requested path, still encoded. Blocks on
/// the disk.
pub(super) fn page(root: &Arc<OwnedFd>, name: &[u8], path: &str) -> Result<String, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let name = if name.is_empty() { b"." } else { name };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2(root, name, flags, Mode::empty(), within)?;
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
        // The page shows the link itself; the kernel resolves it when it is requested.
        let Ok(meta) = statat(&dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(meta.st_mode);
        let is_dir = match kind {
            FileType::Symlink => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                openat2(&dir, name, flags, Mode::empty(), within).is_ok()
            }
            kind => kind == FileType::Directory,
        };
        if is_dir || matches!(kind, FileType::RegularFile | FileType::Symlink) {
            let (size, modified) = (meta.st_size as u64, u64::try_from(meta.st_mtime).unwrap_or(0));
            entries.push(Entry { name: name.to_owned(), is_dir, size, modified });
        }
    }
    entries.sort_by(|a, b| b.is_dir.cmp(&a.is_dir).then_with(|| a.name.cmp(&b.name)));
    Ok(html(path, &entries, more))
}

fn html(path: &str, entries: &[Entry], more: bool) -> String {
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
    fn a_page() {
        let entry = |name: &str, is_dir| Entry { name: name.into(), is_dir, size: 5, modified: 0 };
        let page = html("/a%20b/", &[entry("d", true), entry("javascript:x", false)], true);
        assert!(page.contains("<title>/a b/</title>") && page.contains("href=\"../\""), "{page}");
        assert!(page.contains("<a href=\"./d/\">d/</a></td><td></td><td>Thu, 01 Jan 1970"), "{page}");
        assert!(page.contains("href=\"./javascript%3Ax\"") && page.contains("more than 10000"), "{page}");
        assert!(!html("/", &[], false).contains("../"));
    }
}
