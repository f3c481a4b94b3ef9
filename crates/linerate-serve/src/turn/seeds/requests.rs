//! Random requests, and the expected response of each.

use linerate_base::Random;

use super::handlers::{pattern, pieces, said_of};

/// Whether a response ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Never,
    May,
    Always,
}

/// How a response shows where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// By its framing.
    Framed,
    /// It breaks off within its body.
    Broken,
    /// It has no end: another protocol follows.
    Tunnel,
}

/// A request and its expected response.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) text: Vec<u8>,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) head_only: bool,
    pub(super) ends: Ends,
    pub(super) shape: Shape,
    /// The client sends nothing after it.
    pub(super) is_last: bool,
}

impl Ask {
    fn get(path: &str, body: impl Into<Vec<u8>>) -> Ask {
        Ask {
            text: format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes(),
            status: 200,
            body: body.into(),
            head_only: false,
            ends: Ends::Never,
            shape: Shape::Framed,
            is_last: false,
        }
    }

    fn with(self, fields: &str) -> Ask {
        let head =
            String::from_utf8_lossy(&self.text).replacen("\r\n\r\n", &format!("\r\n{fields}\r\n\r\n"), 1);
        Ask { text: head.into_bytes(), ..self }
    }

    fn ending(self, ends: Ends) -> Ask {
        Ask { ends, ..self }
    }
}

/// Sizes that clients request.
const LARGE: [u64; 6] = [10, 300, 3_000, 30_000, 100_000, 300_000];

/// A random request with number `id`.
pub(super) fn random(random: &mut Random, id: u64) -> Ask {
    let ms = random.few(40);
    match random.below(20) {
        0..3 => Ask::get(&format!("/now?{id}"), format!("now {id}\n")),
        3..5 => Ask::get(&format!("/wait?{id},0,0,{ms}"), format!("waited {id}\n")),
        5..8 => large(random, id, ms),
        8..10 => stream(random, id, ms),
        10 => ending(random, id, ms),
        11 => {
            Ask::get(&format!("/now?{id}"), format!("now {id}\n")).with("Connection: upgrade\r\nUpgrade: x")
        }
        12 if random.below(4) == 0 => Ask {
            text: format!("GET /now?{id} HTTP/1.1\r\n\r\n").into_bytes(),
            status: 400,
            ends: Ends::Always,
            ..Ask::get("", "")
        },
        12 => Ask {
            head_only: true,
            text: format!("HEAD /large?{id},50000 HTTP/1.1\r\nHost: h\r\n\r\n").into(),
            ..Ask::get("", "")
        },
        13 if random.below(3) == 0 => tunnel(random, id),
        13 if random.below(2) == 0 => old(random, id, ms),
        _ => with_body(random, id, ms),
    }
}

fn large(random: &mut Random, id: u64, ms: u64) -> Ask {
    let most = LARGE[random.below(6) as usize];
    let n = random.below(most);
    Ask::get(&format!("/large?{id},{n},0,{ms}"), pattern(id, n as usize))
}

fn stream(random: &mut Random, id: u64, ms: u64) -> Ask {
    let (n, k) = (1 + random.below(8_000), random.below(8));
    let path = if random.below(2) == 0 { "stream" } else { "known" };
    Ask::get(&format!("/{path}?{id},{n},{k},{}", ms / 4), pieces(id, n, k))
}

/// A response that is the last on its connection.
fn ending(random: &mut Random, id: u64, ms: u64) -> Ask {
    let ask = match random.below(5) {
        0 => Ask::get(&format!("/bye?{id},0,0,{ms}"), format!("bye {id}\n")),
        1 => Ask { status: 500, ..Ask::get("/panic", "") },
        2 => Ask { status: 500, ..Ask::get(&format!("/panic-later?{id},0,0,{ms}"), "") },
        3 => {
            let (n, k) = (1 + random.below(3_000), random.below(4));
            let ask = Ask::get(&format!("/fails?{id},{n},{k},{}", ms / 4), pieces(id, n, k));
            Ask { shape: Shape::Broken, ..ask }
        }
        _ => {
            let ask = large(random, id, ms).with("Connection: close");
            Ask { is_last: true, ..ask }
        }
    };
    ask.ending(Ends::Always)
}

/// HTTP/1.0: the end of the connection ends the response.
fn old(random: &mut Random, id: u64, ms: u64) -> Ask {
    let ask = if random.below(2) == 0 { large(random, id, ms) } else { stream(random, id, ms) };
    let text = String::from_utf8_lossy(&ask.text).replace("HTTP/1.1", "HTTP/1.0").into_bytes();
    Ask { text, is_last: true, ends: Ends::Always, ..ask }
}

/// The connection is taken over by an echo.
fn tunnel(random: &mut Random, id: u64) -> Ask {
    let said = pattern(id, random.below(60_000) as usize);
    let path = if random.below(2) == 0 { "/tunnel" } else { "/taken" };
    let ask = Ask::get(path, said.clone()).with("Connection: upgrade\r\nUpgrade: echo");
    Ask {
        text: [ask.text, said].concat(),
        status: 101,
        shape: Shape::Tunnel,
        is_last: true,
        ends: Ends::Always,
        ..Ask::get("", ask.body)
    }
}

/// A request with a body that the server reads, refuses, reads in part, echoes or reads elsewhere.
fn with_body(random: &mut Random, id: u64, ms: u64) -> Ask {
    let most = [20, 1_000, 20_000, 150_000][random.below(4) as usize];
    let body = pattern(id, random.below(most) as usize);
    let mut ends = Ends::Never;
    let (path, answer) = match random.below(9) {
        0..3 => (format!("/read?{id}"), said_of(id, &body)),
        3 => (format!("/sip?{id},0,0,{}", ms / 8), said_of(id, &body)),
        4 => (format!("/echo?{id}"), body.clone()),
        5 => {
            let gives_up = random.below(3) == 0;
            ends = if gives_up { Ends::May } else { Ends::Never };
            let path = format!("/elsewhere?{id},{},{},{ms}", random.below(4), u8::from(gives_up));
            (path, format!("taken {id}\n").into_bytes())
        }
        6 => (format!("/taste?{id},0,0,{ms}"), format!("tasted {id}\n").into_bytes()),
        7 => (format!("/refuse-later?{id},0,0,{ms}"), format!("refused {id}\n").into_bytes()),
        _ => (format!("/refuse?{id}"), format!("refused {id}\n").into_bytes()),
    };
    // A client that expects 100 may never be asked for its body: then only closing is safe.
    let expects = random.below(5) == 0;
    if expects && !path.starts_with("/read") && !path.starts_with("/sip") && !path.starts_with("/echo") {
        ends = Ends::May;
    }
    let chunked = random.below(2) == 0;
    let fields = match (chunked, expects) {
        (true, true) => "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n".to_owned(),
        (true, false) => "Transfer-Encoding: chunked\r\n".to_owned(),
        (false, true) => format!("Content-Length: {}\r\nExpect: 100-continue\r\n", body.len()),
        (false, false) => format!("Content-Length: {}\r\n", body.len()),
    };
    let mut text = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
    if chunked {
        for piece in body.chunks(1 + random.below(5_000) as usize) {
            text.extend(
                format!("{:x}\r\n", piece.len()).bytes().chain(piece.iter().copied()).chain(*b"\r\n"),
            );
        }
        text.extend(b"0\r\n\r\n");
    } else {
        text.extend(&body);
    }
    Ask { text, body: answer, ends, ..Ask::get("", "") }
}
