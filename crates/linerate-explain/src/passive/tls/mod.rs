//! TLS in a captured connection: what is inside, where a key log has its keys; else the sizes and
//! times of its records.

mod cipher;
mod hello;
mod keylog;
mod records;

pub use keylog::{KeyLog, KeyLogError};

use cipher::{Aead, Cipher, Suite};
use hello::{ClientHello, ServerHello};
use keylog::Secrets;
use records::{Opener, Read, Record, Records};

use super::flow::{Budget, StreamPiece};

/// The result of reading a direction's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out<'a> {
    /// Content, and when the first byte of its record came.
    Data { bytes: &'a [u8], begun: i64 },
    /// This many bytes of content are missing, at most.
    Hole(u32),
    /// A record with content that cannot be read.
    Sealed { len: usize, begun: i64 },
}

/// Why content can be read, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// The handshake is not over.
    Pending,
    /// It can.
    Open,
    /// There is no key log.
    NoKeys,
    /// The key log lacks this session.
    NotInLog,
    /// Its cipher suite is one with CBC.
    Cbc,
    /// Its cipher suite is another one that is not known here.
    OtherSuite,
    /// Its handshake was not captured.
    NoHandshake,
    /// The keys do not open its records.
    WrongKeys,
}

/// The TLS session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    records: [Records; 2],
    openers: [Opener; 2],
    hello: Option<ClientHello>,
    client: Option<usize>,
    server: Option<ServerHello>,
    access: Access,
    /// The direction has changed to its keys (TLS 1.2).
    changed: [bool; 2],
    /// A sealed handshake message was seen as such (TLS 1.2).
    is_old: bool,
    /// Content was read.
    opened: bool,
    /// Sealed records of the client after the server's hello, and whether the first of them was as
    /// long as a Finished message.
    sealed: (u32, bool),
}

impl Session {
    pub(crate) fn new() -> Session {
        Session {
            records: [Records::new(), Records::new()],
            openers: [Opener::default(), Opener::default()],
            hello: None,
            client: None,
            server: None,
            access: Access::Pending,
            changed: [false; 2],
            is_old: false,
            opened: false,
            sealed: (0, false),
        }
    }

    /// Bytes that may begin a session, or one that was captured from its middle on.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        records::is_header(bytes)
    }

    /// The direction of the client, once its hello came.
    pub(crate) fn client(&self) -> Option<usize> {
        self.client
    }

    /// The server's name, as the client says it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.hello.as_ref()?.name.as_deref()
    }

    /// It is TLS 1.3, where the server may send tickets before its first response.
    pub(crate) fn has_late_tickets(&self) -> bool {
        self.server.map_or(!self.is_old, |server| server.is_new)
    }

    /// Whether its content could be read; in the end.
    pub(crate) fn access(&self) -> Access {
        match self.access {
            Access::Open if !self.opened && self.openers.iter().any(Opener::has_failed) => Access::WrongKeys,
            access => access,
        }
    }

    /// The next part of a direction.
    pub(crate) fn take(
        &mut self,
        dir: usize,
        piece: StreamPiece<'_>,
        now: i64,
        (keys, budget): (Option<&KeyLog>, &Budget),
        each: &mut dyn FnMut(Out<'_>),
    ) {
        let mut records = std::mem::replace(&mut self.records[dir], Records::new());
        records.take(piece, now, budget, &mut |read| match read {
            Read::Record(record) => self.record(dir, &record, keys, each),
            Read::Lost if self.access == Access::Open => {
                self.openers[dir].lost();
                each(Out::Hole(u32::MAX));
            }
            Read::Lost => {}
            // After the handshake all is content.
            Read::Unknown(len)
                if self.access != Access::Open && (self.sealed.0 > 0 || self.hello.is_none()) =>
            {
                each(Out::Sealed { len, begun: now });
            }
            Read::Unknown(_) => {}
        });
        // Records that cannot be opened need not be kept.
        records.keeps &= matches!(self.access, Access::Pending) || self.openers[dir].is_able();
        self.records[dir] = records;
    }

    /// Returns what it holds to the budget.
    pub(crate) fn drop_held(&mut self, budget: &Budget) {
        self.records.iter_mut().for_each(|records| records.drop_body(budget));
    }

    fn record(
        &mut self,
        dir: usize,
        record: &Record<'_>,
        keys: Option<&KeyLog>,
        each: &mut dyn FnMut(Out<'_>),
    ) {
        let old = self.server.is_some_and(|server| !server.is_new);
        match record.kind() {
            // In TLS 1.3 it means nothing.
            20 => self.changed[dir] = true,
            21 if !self.changed[dir] => {}
            22 if !self.changed[dir] => self.greeting(dir, record.front, keys),
            23 => self.sealed(dir, record, each),
            kind => {
                // In TLS 1.3 all that is sealed is of kind 23.
                self.is_old |= kind == 22;
                if old {
                    self.sealed(dir, record, each);
                }
            }
        }
    }

    /// A handshake message in clear.
    fn greeting(&mut self, dir: usize, bytes: &[u8], keys: Option<&KeyLog>) {
        if self.hello.is_none() {
            self.hello = hello::client(bytes);
            self.client = self.hello.is_some().then_some(dir);
        } else if self.server.is_none() && self.client != Some(dir) {
            self.server = hello::server(bytes);
            if let Some((client, server)) = self.hello.as_ref().zip(self.server) {
                (self.access, self.openers) = openers(client, &server, keys, dir);
            }
        }
    }

    /// A record with content or an encrypted message.
    fn sealed(&mut self, dir: usize, record: &Record<'_>, each: &mut dyn FnMut(Out<'_>)) {
        if self.access == Access::Pending && self.hello.is_none() {
            self.access = Access::NoHandshake;
        }
        if self.access == Access::Open {
            self.open(dir, record, each);
        } else if record.kind() == 23 && self.is_content(dir, record.len) {
            each(Out::Sealed { len: record.len, begun: record.begun });
        }
    }

    fn open(&mut self, dir: usize, record: &Record<'_>, each: &mut dyn FnMut(Out<'_>)) {
        let opener = &mut self.openers[dir];
        match record.bytes {
            None => {
                let missing = opener.skip(record.len);
                if record.kind() == 23 {
                    each(Out::Hole(u32::try_from(missing).unwrap_or(u32::MAX)));
                }
            }
            Some(bytes) if opener.is_able() => match opener.open(record.header, bytes) {
                Some((23, content)) => {
                    self.opened = true;
                    if !content.is_empty() {
                        each(Out::Data { bytes: &content, begun: record.begun });
                    }
                }
                // Handshake messages and alerts.
                Some(_) => {}
                None => each(Out::Hole(u32::MAX)),
            },
            Some(_) => {}
        }
    }

    /// Whether a sealed record has content, and is no message of the handshake: by its place and
    /// length.
    fn is_content(&mut self, dir: usize, len: usize) -> bool {
        let by_client = self.client == Some(dir);
        self.sealed.0 = self.sealed.0.saturating_add(u32::from(by_client));
        if self.hello.is_none() || !self.has_late_tickets() {
            return true;
        }
        // Four bytes of header and a hash, the kind, and the tag.
        let finished = [32, 48].map(|hash| 4 + hash + 1 + cipher::TAG);
        match self.sealed {
            // Before the client has finished: the server's certificate and what belongs to that.
            (n, _) if !by_client => n > 0,
            (1, _) => {
                self.sealed.1 = finished.contains(&len);
                false
            }
            // A certificate of the client was the first.
            (2, false) => !finished.contains(&len),
            _ => true,
        }
    }
}

/// Whether a session can be read, and by which keys; `server_dir`: the server's direction.
fn openers(
    client: &ClientHello,
    server: &ServerHello,
    keys: Option<&KeyLog>,
    server_dir: usize,
) -> (Access, [Opener; 2]) {
    let none = |access| (access, [Opener::default(), Opener::default()]);
    let (aead, sha384) = match Suite::of(server.suite) {
        Suite::Known { aead, sha384 } => (aead, sha384),
        Suite::Cbc => return none(Access::Cbc),
        Suite::Other => return none(Access::OtherSuite),
    };
    let Some(keys) = keys else { return none(Access::NoKeys) };
    let found = keys.of(&client.random).and_then(|secrets| match server.is_new {
        true => of_secrets(secrets, aead, sha384),
        false => {
            let master = secrets.master.as_ref()?;
            let ciphers = Cipher::of_master(aead, sha384, master, &client.random, &server.random)?;
            Some(ciphers.map(|cipher| Opener::new(vec![cipher])))
        }
    });
    let Some([of_client, of_server]) = found else { return none(Access::NotInLog) };
    (Access::Open, if server_dir == 1 { [of_client, of_server] } else { [of_server, of_client] })
}

/// The keys of TLS 1.3, client and server.
fn of_secrets(secrets: &Secrets, aead: Aead, sha384: bool) -> Option<[Opener; 2]> {
    let one = |early: Option<&Vec<u8>>, n: usize| {
        let traffic = secrets.traffic[n].as_ref()?;
        let all = early.into_iter().chain(&secrets.handshake[n]).chain([traffic]);
        let ciphers: Option<Vec<Cipher>> = all.map(|s| Cipher::of_secret(aead, sha384, s)).collect();
        Some(Opener::new(ciphers?).updating(sha384, traffic.clone(), aead))
    };
    Some([one(secrets.early.as_ref(), 0)?, one(None, 1)?])
}

#[cfg(test)]
mod tests;
