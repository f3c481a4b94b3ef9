//! Names and passwords of a site (RFC 7617, Basic). The time of a check does not reveal which of
//! both was wrong.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::blocking::hashing;
use crate::unpredictable::unpredictable;
use crate::{Request, Response};

/// Largest cost of a hash. Reason: each step doubles the time of a check; 14 takes a second.
const COST: u32 = 14;
/// Users of a file, at most. Reason: it is a list in memory; more belong in a handler with a
/// database.
const USERS: usize = 10_000;
/// Successful checks that a thread remembers. Reason: a browser sends its password with every
/// request, and a check takes 50 ms on purpose.
const REMEMBERED: usize = 1024;

/// Users and their passwords' hashes, as `htpasswd -B` writes them.
///
/// ```
/// use linerate_serve::{BadUsers, Users};
///
/// let text = "ann:$2y$04$HA2cTIFL1ImgMVJnmmtp3ubaxg4P4i233OQZQ.n1jFwLCEIYIDuke\n";
/// assert!(Users::parse(text, "the lab").is_ok());
/// assert_eq!(Users::parse("ann:secret\n", "the lab").unwrap_err(), BadUsers::Hash(1));
/// ```
#[derive(Clone)]
pub struct Users {
    realm: Arc<str>,
    hashes: Arc<HashMap<String, String>>,
    /// Checked for unknown users.
    nobody: Arc<str>,
    /// Makes the remembered digests useless elsewhere.
    salt: [u8; 16],
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users of {}", self.hashes.len(), self.realm)
    }
}

/// Why a list of users is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUsers {
    /// A line is not `name:hash`.
    #[error("line {0}: a line is name:hash, as `htpasswd -B` writes it")]
    Line(usize),
    /// The hash is of another kind.
    #[error(
        "line {0}: only bcrypt hashes are taken ($2y$, $2b$, $2a$), with a cost of at most {COST}: `htpasswd -B` makes them"
    )]
    Hash(usize),
    /// A name occurs twice.
    #[error("line {0}: this user is there already")]
    Twice(usize),
    /// There are no users, so access would be impossible.
    #[error("there is no user")]
    None,
    /// There are too many users.
    #[error("more than {USERS} users")]
    TooMany,
    /// The realm would break its field.
    #[error("a realm is plain text without quotes and backslashes")]
    Realm,
}

impl Users {
    /// Parses a list of `name:hash`; skips empty lines and those that begin with `#`. `realm`: the
    /// text that browsers show.
    ///
    /// # Errors
    /// [`BadUsers`] with the line.
    pub fn parse(text: &str, realm: &str) -> Result<Users, BadUsers> {
        if realm.is_empty() || !realm.bytes().all(|b| matches!(b, b' '..=b'~') && !b"\"\\".contains(&b)) {
            return Err(BadUsers::Realm);
        }
        let (mut hashes, mut most) = (HashMap::new(), 4);
        for (i, line) in text.lines().enumerate() {
            let (number, line) = (i + 1, line.trim_end());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) =
                line.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or(BadUsers::Line(number))?;
            let cost = cost(hash).filter(|cost| (4..=COST).contains(cost)).ok_or(BadUsers::Hash(number))?;
            most = most.max(cost);
            if hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(BadUsers::Twice(number));
            }
            if hashes.len() > USERS {
                return Err(BadUsers::TooMany);
            }
        }
        if hashes.is_empty() {
            return Err(BadUsers::None);
        }
        // An arbitrary salt and digest: only the time of the check matters, which must equal that
        // of the others.
        let nobody = format!("$2b${most:02}$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01232");
        let salt = rand();
        Ok(Users { realm: realm.into(), hashes: Arc::new(hashes), nobody: nobody.into(), salt })
    }

    /// `None`: the request may proceed.
    pub(crate) async fn refuse(&self, known: &KnownUsers, request: &Request) -> Option<Response> {
        let Some((user, password)) = request.field("authorization").and_then(credentials) else {
            return Some(self.ask());
        };
        let seen = self.remembered(&user, &password);
        if known.0.borrow().contains(&seen) {
            return None;
        }
        let hash = self.hashes.get(&user).cloned();
        let there = hash.is_some();
        let hash = hash.unwrap_or_else(|| (*self.nobody).to_owned());
        match hashing(move || bcrypt::verify(password, &hash).unwrap_or(false)).await {
            Ok(right) if right && there => {
                let mut known = known.0.borrow_mut();
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(seen);
                None
            }
            Ok(_) => Some(self.ask()),
            Err(error) => Some(error.into()),
        }
    }

    fn remembered(&self, user: &str, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.salt);
        digest.update((user.len() as u64).to_le_bytes());
        digest.update(user);
        digest.update(password);
        digest.finalize().into()
    }

    fn ask(&self) -> Response {
        let mut response = Response::explained(401, "name and password are needed");
        let _ = response
            .fields
            .add("www-authenticate", format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm));
        response
    }
}

/// The successful checks that one thread remembers. The key is a digest with a secret salt, so the
/// time of a look-up reveals nothing about passwords.
#[derive(Default)]
pub(crate) struct KnownUsers(RefCell<HashSet<[u8; 32]>>);

fn rand() -> [u8; 16] {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&unpredictable().to_le_bytes());
    salt[8..].copy_from_slice(&unpredictable().to_le_bytes());
    salt
}

/// The cost in a bcrypt hash; `None` if it is not one.
fn cost(hash: &str) -> Option<u32> {
    let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|kind| hash.strip_prefix(kind))?;
    let (cost, digest) = rest.split_once('$')?;
    let radix64 = |b: u8| b.is_ascii_alphanumeric() || b"./".contains(&b);
    (cost.len() == 2 && digest.len() == 53 && digest.bytes().all(radix64)).then(|| cost.parse().ok())?
}

/// User and password of an Authorization field.
pub(crate) fn credentials(field: &str) -> Option<(String, Vec<u8>)> {
    let (scheme, token) = field.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = STANDARD.decode(token.trim()).ok()?;
    let colon = bytes.iter().position(|b| *b == b':')?;
    let user = String::from_utf8(bytes[..colon].to_vec()).ok()?;
    Some((user, bytes[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_users() {
        let hash = bcrypt::hash("secret", 4).expect("hashed");
        let users = |text: &str| Users::parse(text, "staff").map(|users| users.hashes.len());
        assert_eq!(users(&format!("# staff\n\nbob:{hash}\nann:{hash}\r\n")), Ok(2));
        assert_eq!(users(""), Err(BadUsers::None));
        assert_eq!(users("bob"), Err(BadUsers::Line(1)));
        assert_eq!(users("\n:x"), Err(BadUsers::Line(2)));
        assert_eq!(users("bob:plain"), Err(BadUsers::Hash(1)));
        assert_eq!(users(&format!("bob:{}", hash.replace("$04$", "$20$"))), Err(BadUsers::Hash(1)));
        assert_eq!(users("bob:$apr1$x$y"), Err(BadUsers::Hash(1)));
        assert_eq!(users(&format!("bob:{hash}\nbob:{hash}")), Err(BadUsers::Twice(2)));
        assert_eq!(Users::parse(&format!("bob:{hash}"), "a\"b").err(), Some(BadUsers::Realm));
        // An unknown user takes as long to refuse: the substitute is a hash of the same cost.
        let users =
            Users::parse(&format!("bob:{hash}\nann:{}", hash.replace("$04$", "$05$")), "r").expect("sound");
        assert_eq!(cost(&users.nobody), Some(5));
        assert_eq!(bcrypt::verify("x", &users.nobody).ok(), Some(false));
    }

    #[test]
    fn what_is_sent() {
        let of = |text: &str| credentials(&format!("Basic {}", STANDARD.encode(text)));
        assert_eq!(of("bob:a:b"), Some(("bob".into(), b"a:b".to_vec())));
        assert_eq!(of("bob:"), Some(("bob".into(), Vec::new())));
        assert_eq!(of("bob"), None);
        for wrong in ["Bearer x", "Basic", "Basic ???", "basic"] {
            assert_eq!(credentials(wrong), None, "{wrong}");
        }
    }
}
