//! Secrets of TLS sessions from a key log, as NSS defined it and as most programs write it
//! (`SSLKEYLOGFILE`; RFC 9850).

use std::collections::HashMap;

use crate::passive::limits::KEYLOG_SESSIONS;

/// A session is known by the client's random number.
pub(crate) type Random = [u8; 32];

/// The secrets of the sessions that a key log has.
#[derive(Clone, Debug, Default)]
pub struct KeyLog {
    sessions: HashMap<Random, Secrets>,
    left_out: u64,
}

/// The secrets of a session in a key log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// TLS 1.2.
    pub(crate) master: Option<Vec<u8>>,
    /// TLS 1.3: of the client's early data.
    pub(crate) early: Option<Vec<u8>>,
    /// TLS 1.3: of the handshake, client and server.
    pub(crate) handshake: [Option<Vec<u8>>; 2],
    /// TLS 1.3: of the data, client and server.
    pub(crate) traffic: [Option<Vec<u8>>; 2],
}

/// Why a key log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyLogError {
    /// A line is none of a key log.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The fault of the line.
        what: String,
    },
    /// It has no secret.
    #[error("it has no secret of a TLS session")]
    Empty,
}

impl KeyLog {
    /// Reads one. Labels that are not needed are left out, and so is a last line that is still being
    /// written.
    ///
    /// # Errors
    /// A line is none of a key log, or there is no secret at all.
    pub fn parse(text: &[u8]) -> Result<KeyLog, KeyLogError> {
        let mut log = KeyLog::default();
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for (n, line) in text.split(|b| *b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let is_last = line.as_ptr() as usize >= text.as_ptr() as usize + whole;
            match log.line(line) {
                Err(_) if is_last && n > 0 => {}
                Err(what) => return Err(KeyLogError::Line { line: n + 1, what }),
                Ok(()) => {}
            }
        }
        if log.sessions.is_empty() { Err(KeyLogError::Empty) } else { Ok(log) }
    }

    /// Sessions it has secrets of.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Lines of sessions that are beyond what is kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn of(&self, random: &Random) -> Option<&Secrets> {
        self.sessions.get(random)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect();
        let [label, random, secret] = words.as_slice() else {
            return Err("it has not three words: a label, the client's random number, a secret".to_owned());
        };
        if !label.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_') {
            return Err(format!("{:?} is no label", String::from_utf8_lossy(&label[..label.len().min(40)])));
        }
        // `RSA` lines name the session by its encrypted secret. Current software does not write them.
        if *label == b"RSA" {
            return Ok(());
        }
        let random = unhex(random).and_then(|r| Random::try_from(r).ok());
        let random = random.ok_or("the client's random number has not 64 hexadecimal digits")?;
        let secret = unhex(secret).filter(|s| matches!(s.len(), 1..=64));
        let secret = secret.ok_or("the secret is no hexadecimal number of at most 64 bytes")?;
        if self.sessions.len() >= KEYLOG_SESSIONS && !self.sessions.contains_key(&random) {
            self.left_out += 1;
            return Ok(());
        }
        let place = |s: &mut Secrets| match *label {
            b"CLIENT_RANDOM" => s.master = Some(secret),
            b"CLIENT_EARLY_TRAFFIC_SECRET" => s.early = Some(secret),
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => s.handshake[0] = Some(secret),
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => s.handshake[1] = Some(secret),
            b"CLIENT_TRAFFIC_SECRET_0" => s.traffic[0] = Some(secret),
            b"SERVER_TRAFFIC_SECRET_0" => s.traffic[1] = Some(secret),
            _ => {}
        };
        place(self.sessions.entry(random).or_default());
        Ok(())
    }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_versions_are_read() {
        let (a, b) = ("11".repeat(32), "22".repeat(32));
        let text = format!(
            "# made by a test\r\nCLIENT_RANDOM {a} {}\r\n\nCLIENT_TRAFFIC_SECRET_0 {b} {}\nSERVER_TRAFFIC_SECRET_0 {b} 0a\n\
             EXPORTER_SECRET {b} 0b\nRSA 00 11\n",
            "ab".repeat(48),
            "cd".repeat(32)
        );
        let log = KeyLog::parse(text.as_bytes()).expect("a key log");
        assert_eq!((log.sessions(), log.left_out()), (2, 0));
        let old = log.of(&[0x11; 32]).expect("there");
        assert_eq!((old.master.as_ref().map(Vec::len), &old.traffic), (Some(48), &[None, None]));
        let new = log.of(&[0x22; 32]).expect("there");
        assert_eq!(new.traffic, [Some(vec![0xcd; 32]), Some(vec![10])]);
        assert!(log.of(&[0; 32]).is_none());
    }

    #[test]
    fn what_is_none_is_said_with_its_line() {
        let error = |text: &str| KeyLog::parse(text.as_bytes()).expect_err("none").to_string();
        assert_eq!(error(""), "it has no secret of a TLS session");
        assert!(error("# only\n").contains("no secret"));
        assert!(error("-----BEGIN PRIVATE KEY-----\nMIIE\n").starts_with("line 1: "), "a key is no key log");
        assert!(error("\nCLIENT_RANDOM 11 22\n").starts_with("line 2: the client's random"));
        let short = format!("CLIENT_RANDOM {} 2\n", "11".repeat(32));
        assert!(error(&short).contains("the secret"));
        assert!(error("\x1f\u{8b}\0").starts_with("line 1: "));
    }

    #[test]
    fn a_last_line_may_be_incomplete() {
        let text = format!("CLIENT_RANDOM {} ab\nCLIENT_RANDOM {} a", "11".repeat(32), "22".repeat(32));
        assert_eq!(KeyLog::parse(text.as_bytes()).expect("a key log").sessions(), 1);
    }
}
