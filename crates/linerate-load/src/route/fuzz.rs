//! The check of the fuzz target for a proxy's replies; an ordinary test replays its corpus.

use std::sync::Arc;

use linerate_client::route::{Preamble, RouteLayer, RouteSession};

use crate::plan::route::{HaproxyVersion, NO_ADDRESS, Proxy, Route};
use linerate_net::layer::{Progress, Session};

/// The result of a session with a proxy's bytes.
#[derive(Debug, PartialEq, Eq)]
struct RouteReading {
    is_ready: bool,
    is_over: bool,
    /// Sent behind CONNECT.
    sent: Vec<u8>,
    /// Bytes of the target.
    received: Vec<u8>,
    reason: Option<String>,
}

fn read<'a>(preamble: &Arc<Preamble>, pieces: impl Iterator<Item = &'a [u8]>) -> RouteReading {
    let mut layer = RouteLayer::plain(Some(preamble.clone()));
    let mut session: RouteSession = layer.session(NO_ADDRESS).expect("without TLS nothing fails");
    session.begin(&mut Vec::new());
    let mut reading = RouteReading {
        is_ready: false,
        is_over: false,
        sent: Vec::new(),
        received: Vec::new(),
        reason: None,
    };
    for piece in pieces {
        let received = &mut reading.received;
        let progress =
            session.open(&mut piece.to_vec(), &mut |plain: &mut [u8]| received.extend_from_slice(plain));
        session.reply(&mut reading.sent);
        if progress != Progress::Open {
            reading.is_over = true;
            break;
        }
    }
    if !reading.is_over && !session.is_ready() {
        reading.is_over = session.cut() != Progress::Open;
    }
    reading.is_ready = session.is_ready();
    reading.reason = session.reason();
    reading
}

/// The fuzz target for replies to CONNECT. The first byte says whether a user is named, whether a
/// line of the PROXY protocol follows, and where the others are cut.
///
/// # Panics
/// If cuts change what is read, if bytes of the target are lost, or if a text for a terminal has
/// control characters.
pub fn connect(data: &[u8]) {
    let Some((&bits, reply)) = data.split_first() else { return };
    let proxy = Proxy {
        url: "http://proxy:3128".to_owned(),
        from: "--proxy".to_owned(),
        user: (bits & 1 != 0).then(|| "ada:secret".to_owned()),
        tunnel: Some("h:443".to_owned()),
    };
    let haproxy = (bits & 2 != 0).then_some(HaproxyVersion::V1);
    let route = Route { proxy: Some(proxy), haproxy, ..Route::default() };
    let preamble = route.preamble().expect("a tunnel is a preamble");
    let whole = read(&preamble, std::iter::once(reply).filter(|reply| !reply.is_empty()));
    assert_eq!(whole, read(&preamble, reply.chunks(usize::from(bits >> 2) + 1)), "cuts change nothing");
    assert_ne!(whole.is_ready, whole.is_over, "each reply has one outcome");
    if whole.is_ready {
        assert!(reply.ends_with(&whole.received), "bytes of the target are lost");
        assert_eq!(whole.sent.is_empty(), haproxy.is_none());
    } else {
        assert!(whole.received.is_empty() && whole.sent.is_empty(), "nothing passes without a tunnel");
        let reason = whole.reason.expect("a reason");
        assert!(reason.chars().all(|c| !c.is_control()), "for a terminal: {reason:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::connect;

    #[test]
    fn the_corpus() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/connect"));
        let entries = fs::read_dir(folder).expect("the corpus is part of the repository");
        let files = entries.map(|entry| fs::read(entry.expect("a file").path()).expect("readable"));
        assert!(files.map(|bytes| connect(&bytes)).count() >= 10);
    }

    proptest! {
        #[test]
        fn any_reply(
            bits: u8,
            status in "HTTP/1\\.[01] [1-5][0-9]{2} [ -~\u{1b}]{0,20}\r\n",
            fields in prop::collection::vec("[A-Za-z-]{1,12}: ?[ -~\u{1b}]{0,20}\r\n", 0..4),
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            connect(&[&[bits], status.as_bytes(), fields.concat().as_bytes(), b"\r\n", &rest].concat());
        }
    }
}
