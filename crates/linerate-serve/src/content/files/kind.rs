//! Media types by file extension.

/// A media type, and whether compression makes it smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaKind {
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
    ("yaml", "application/yaml", true),
    ("yml", "application/yaml", true),
    ("toml", "application/toml", true),
    ("geojson", "application/geo+json", true),
    ("ndjson", "application/x-ndjson", true),
    ("tsv", "text/tab-separated-values; charset=utf-8", true),
    ("rtf", "application/rtf", true),
    ("doc", "application/msword", true),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", false),
    ("dotx", "application/vnd.openxmlformats-officedocument.wordprocessingml.template", false),
    ("xls", "application/vnd.ms-excel", true),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", false),
    ("ppt", "application/vnd.ms-powerpoint", true),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation", false),
    ("ppsx", "application/vnd.openxmlformats-officedocument.presentationml.slideshow", false),
    ("odt", "application/vnd.oasis.opendocument.text", false),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet", false),
    ("odp", "application/vnd.oasis.opendocument.presentation", false),
    ("odg", "application/vnd.oasis.opendocument.graphics", false),
    ("odf", "application/vnd.oasis.opendocument.formula", false),
    ("ps", "application/postscript", true),
    ("eps", "application/postscript", true),
    ("tex", "application/x-tex", true),
    ("epub", "application/epub+zip", false),
    ("mobi", "application/x-mobipocket-ebook", false),
    ("azw", "application/vnd.amazon.ebook", false),
    ("azw3", "application/vnd.amazon.mobi8-ebook", false),
    ("fb2", "application/x-fictionbook+xml", true),
    ("djvu", "image/vnd.djvu", false),
    ("cbz", "application/vnd.comicbook+zip", false),
    ("ttc", "font/collection", true),
    ("heic", "image/heic", false),
    ("heif", "image/heif", false),
    ("jxl", "image/jxl", false),
    ("apng", "image/apng", false),
    ("cur", "image/x-icon", false),
    ("oga", "audio/ogg", false),
    ("weba", "audio/webm", false),
    ("mid", "audio/midi", true),
    ("midi", "audio/midi", true),
    ("aif", "audio/aiff", false),
    ("aiff", "audio/aiff", false),
    ("mka", "audio/matroska", false),
    ("m4v", "video/mp4", false),
    ("mkv", "video/matroska", false),
    ("avi", "video/x-msvideo", false),
    ("mpg", "video/mpeg", false),
    ("mpeg", "video/mpeg", false),
    ("wmv", "video/x-ms-wmv", false),
    ("flv", "video/x-flv", false),
    ("3gp", "video/3gpp", false),
    ("srt", "application/x-subrip", true),
    ("glb", "model/gltf-binary", false),
    ("gltf", "model/gltf+json", true),
    ("rar", "application/vnd.rar", false),
    ("deb", "application/vnd.debian.binary-package", false),
    ("rpm", "application/x-rpm", false),
    ("apk", "application/vnd.android.package-archive", false),
    ("jar", "application/java-archive", false),
    ("dmg", "application/x-apple-diskimage", false),
    ("iso", "application/x-iso9660-image", false),
    ("vcf", "text/vcard; charset=utf-8", true),
    ("eml", "message/rfc822", true),
    ("asc", "text/plain; charset=utf-8", true),
    ("sig", "application/pgp-signature", false),
    ("pem", "application/x-pem-file", false),
    ("crt", "application/x-x509-ca-cert", false),
    ("der", "application/x-x509-ca-cert", false),
    ("torrent", "application/x-bittorrent", false),
    ("xsl", "application/xslt+xml", true),
    ("xslt", "application/xslt+xml", true),
    ("dtd", "application/xml-dtd", true),
    ("kml", "application/vnd.google-earth.kml+xml", true),
    ("kmz", "application/vnd.google-earth.kmz", false),
    ("gpx", "application/gpx+xml", true),
];

pub(super) fn of(name: &[u8]) -> MediaKind {
    let end = name.iter().rposition(|b| *b == b'.').map_or(&b""[..], |dot| &name[dot + 1..]);
    let known = KINDS.iter().find(|(e, ..)| end.eq_ignore_ascii_case(e.as_bytes()));
    known.map_or(
        MediaKind { name: "application/octet-stream", compresses: false },
        |&(_, name, compresses)| MediaKind { name, compresses },
    )
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

    /// Those of IANA's registry where it has one.
    #[test]
    fn documents_have_their_types() {
        for (name, kind) in [
            ("a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ("a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
            ("a.pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
            ("a.doc", "application/msword"),
            ("a.odt", "application/vnd.oasis.opendocument.text"),
            ("a.pdf", "application/pdf"),
            ("a.epub", "application/epub+zip"),
            ("a.mobi", "application/x-mobipocket-ebook"),
            ("a.rtf", "application/rtf"),
            ("a.ttc", "font/collection"),
            ("a.woff2", "font/woff2"),
            ("app.webmanifest", "application/manifest+json"),
            ("a.wasm", "application/wasm"),
            ("a.yaml", "application/yaml"),
            ("a.m4v", "video/mp4"),
            ("a.mkv", "video/matroska"),
            ("a.heic", "image/heic"),
            ("a.glb", "model/gltf-binary"),
        ] {
            assert_eq!(of(name.as_bytes()).name, kind, "{name}");
        }
    }

    /// A kind is found by its extension, so a second line would say nothing.
    #[test]
    fn no_extension_is_there_twice() {
        for (i, (end, name, _)) in KINDS.iter().enumerate() {
            assert!(KINDS[..i].iter().all(|(other, ..)| other != end), "{end}");
            assert!(name.contains('/') && end.bytes().all(|b| !b.is_ascii_uppercase()), "{end}");
        }
    }
}
