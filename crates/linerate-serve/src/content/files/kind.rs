//! Media types by file extension.

/// A media type, and whether compression makes it smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) compresses: bool,
}

const KINDS: &[(&str, &str, bool)] = &[
    ("html", "text/html; charset=utf-8", true),
    ("htm", "text/html; charset=utf-8", true),
    ("css", "text/css; charset=utf-8", true),
    ("js", "text/javascript; charset=utf-8", true),
    ("mjs", "text/javascript; charset=utf-8", true),
    ("json", "application/json", true),
    ("jsonld", "application/ld+json", true),
    ("map", "application/json", true),
    ("txt", "text/plain; charset=utf-8", true),
    ("log", "text/plain; charset=utf-8", true),
    ("md", "text/markdown; charset=utf-8", true),
    ("csv", "text/csv; charset=utf-8", true),
    ("ics", "text/calendar; charset=utf-8", true),
    ("vtt", "text/vtt; charset=utf-8", true),
    ("xml", "application/xml", true),
    ("rss", "application/rss+xml", true),
    ("atom", "application/atom+xml", true),
    ("xhtml", "application/xhtml+xml", true),
    ("svg", "image/svg+xml", true),
    ("wasm", "application/wasm", true),
    ("webmanifest", "application/manifest+json", true),
    ("png", "image/png", false),
    ("jpg", "image/jpeg", false),
    ("jpeg", "image/jpeg", false),
    ("gif", "image/gif", false),
    ("webp", "image/webp", false),
    ("avif", "image/avif", false),
    ("bmp", "image/bmp", true),
    ("tif", "image/tiff", false),
    ("tiff", "image/tiff", false),
    ("ico", "image/x-icon", false),
    ("woff", "font/woff", false),
    ("woff2", "font/woff2", false),
    ("ttf", "font/ttf", true),
    ("otf", "font/otf", true),
    ("eot", "application/vnd.ms-fontobject", true),
    ("mp3", "audio/mpeg", false),
    ("m4a", "audio/mp4", false),
    ("aac", "audio/aac", false),
    ("wav", "audio/wav", false),
    ("flac", "audio/flac", false),
    ("opus", "audio/ogg", false),
    ("ogg", "audio/ogg", false),
    ("mp4", "video/mp4", false),
    ("webm", "video/webm", false),
    ("ogv", "video/ogg", false),
    ("mov", "video/quicktime", false),
    ("ts", "video/mp2t", false),
    ("m3u8", "application/vnd.apple.mpegurl", true),
    ("mpd", "application/dash+xml", true),
    ("pdf", "application/pdf", false),
    ("zip", "application/zip", false),
    ("gz", "application/gzip", false),
    ("tgz", "application/gzip", false),
    ("bz2", "application/x-bzip2", false),
    ("xz", "application/x-xz", false),
    ("zst", "application/zstd", false),
    ("7z", "application/x-7z-compressed", false),
    ("tar", "application/x-tar", false),
];

pub(super) fn of(name: &[u8]) -> Kind {
    let end = name.iter().rposition(|b| *b == b'.').map_or(&b""[..], |dot| &name[dot + 1..]);
    let known = KINDS.iter().find(|(e, ..)| end.eq_ignore_ascii_case(e.as_bytes()));
    known.map_or(Kind { name: "application/octet-stream", compresses: false }, |&(_, name, compresses)| {
        Kind { name, compresses }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_last_dot() {
        assert_eq!(of(b"a/b.HTML").name, "text/html; charset=utf-8");
        assert_eq!(of(b"a.min.js").name, "text/javascript; charset=utf-8");
        assert_eq!(of(b"server.log").name, "text/plain; charset=utf-8");
        assert_eq!(of(b"a.tar.gz").name, "application/gzip");
        assert_eq!(of(b"README").name, "application/octet-stream");
    }
}
