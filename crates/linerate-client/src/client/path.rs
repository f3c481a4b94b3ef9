//! Paths as people write them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A path and query in which bytes that no URI may have are percent-encoded (RFC 3986 section 2.1): those of text
/// beyond ASCII, as UTF-8, spaces, and ``"<>\^`{|}``. `%` and all others stay, so that an encoded path stays as it is.
/// A control character stays too, and is refused later.
///
/// ```
/// # extern crate linerate_client as linerate;
/// use linerate::client::percent_encoded;
///
/// assert_eq!(percent_encoded("/ü b?q=%20#x"), "/%C3%BC%20b?q=%20#x");
/// ```
pub fn percent_encoded(path: &str) -> Cow<'_, str> {
    if !path.bytes().any(needs_encoding) {
        return Cow::Borrowed(path);
    }
    let mut encoded = String::with_capacity(path.len() + 16);
    for byte in path.bytes() {
        if needs_encoding(byte) {
            // A string takes all that is written.
            write!(encoded, "%{byte:02X}").expect("a string grows");
        } else {
            encoded.push(char::from(byte));
        }
    }
    Cow::Owned(encoded)
}

fn needs_encoding(byte: u8) -> bool {
    matches!(byte, 0x80..|b' '| b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_uris_stay_and_all_bytes_of_text_become_valid() {
        let valid = "/a/b;c?d=e&f=%20~-._!$'()*+,:@[]#part";
        assert!(matches!(percent_encoded(valid), Cow::Borrowed(path) if path == valid));
        assert_eq!(percent_encoded("/日 x"), "/%E6%97%A5%20x");
        assert_eq!(percent_encoded("/a\r\nb"), "/a\r\nb");
        for character in ('\u{20}'..='\u{7e}').chain('\u{80}'..='\u{ff}') {
            let path = format!("/{character}");
            assert!(percent_encoded(&path).parse::<http::Uri>().is_ok(), "{path:?}");
        }
    }
}
