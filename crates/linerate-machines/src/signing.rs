//! Signatures of run documents, by NKEYs (Ed25519): an agent that trusts some keys carries out
//! nothing else, whatever the broker lets through.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nkeys::KeyPair;

use crate::BusError;

/// Longest file that is read as a seed.
const LONGEST: u64 = 64 << 10;

/// What a signed document begins with. Its first line is this and the signature in Base64.
const MARK: &[u8] = b"signature ";

/// A key that signs run documents.
pub struct SigningKey(KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.0.public_key())
    }
}

/// A key whose signatures are trusted, as text: `U` and 55 more characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey(String);

/// Reads an NKEY seed from a file: the first word that begins with `S`. `flag` names the file in
/// messages.
pub(crate) fn read_seed(flag: &str, file: &Path) -> Result<String, BusError> {
    let wrong = |why: &dyn std::fmt::Display| {
        BusError::new(format!("{flag} {}: {why}", file.display()))
            .hint("linerate agent new-key FILE writes a seed; so do nk -gen user and nsc")
            .input()
    };
    let too_long = std::fs::metadata(file).is_ok_and(|meta| meta.len() > LONGEST);
    if too_long {
        return Err(wrong(&"the file is too long for an NKEY seed"));
    }
    let text = std::fs::read_to_string(file).map_err(|e| wrong(&e))?;
    let seed = text.split_whitespace().find(|word| KeyPair::from_seed(word).is_ok());
    seed.map(str::to_owned).ok_or_else(|| wrong(&"it holds no NKEY seed"))
}

impl SigningKey {
    /// Reads an NKEY seed from a file. `flag` names the file in messages.
    pub fn read(flag: &str, file: &Path) -> Result<SigningKey, BusError> {
        let seed = read_seed(flag, file)?;
        KeyPair::from_seed(&seed).map(SigningKey).map_err(BusError::new)
    }

    /// A new key: its seed, which is secret, and the key to trust.
    pub fn new_seed() -> Result<(String, TrustedKey), BusError> {
        let pair = KeyPair::new_user();
        Ok((pair.seed().map_err(BusError::new)?, TrustedKey(pair.public_key())))
    }

    /// Puts the signature in front of a document.
    pub(crate) fn sign(&self, document: &[u8]) -> Result<Vec<u8>, BusError> {
        let signature = STANDARD.encode(self.0.sign(document).map_err(BusError::new)?);
        Ok([MARK, signature.as_bytes(), b"\n", document].concat())
    }
}

/// This text is no key to trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no public NKEY: U and 55 more characters")]
pub struct NoTrustedKey(String);

impl TrustedKey {
    /// Reads a public NKEY of a user.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<TrustedKey, NoTrustedKey> {
        let is_user = text.starts_with('U') && KeyPair::from_public_key(text).is_ok();
        let wrong = || NoTrustedKey(text.to_owned());
        is_user.then(|| TrustedKey(text.to_owned())).ok_or_else(wrong)
    }

    fn has_signed(&self, document: &[u8], signature: &[u8]) -> bool {
        KeyPair::from_public_key(&self.0).is_ok_and(|key| key.verify(document, signature).is_ok())
    }
}

impl std::fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A document's signature, if it has one, and the document.
pub(crate) fn parts(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let split = bytes.strip_prefix(MARK).and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some((&rest[..end], &rest[end + 1..]))
    });
    split.map_or((None, bytes), |(signature, document)| (Some(signature), document))
}

/// Whether one of these keys has signed a document.
pub(crate) fn is_signed(bytes: &[u8], trusted: &[TrustedKey]) -> bool {
    let (Some(signature), document) = parts(bytes) else { return false };
    let Ok(signature) = STANDARD.decode(signature) else { return false };
    trusted.iter().any(|key| key.has_signed(document, &signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> (SigningKey, TrustedKey) {
        let (seed, trusted) = SigningKey::new_seed().unwrap();
        (SigningKey(KeyPair::from_seed(&seed).unwrap()), trusted)
    }

    #[test]
    fn a_document_is_trusted_by_its_key_alone() {
        let ((ours, trusted), (_, other)) = (key(), key());
        let signed = ours.sign(b"{}").unwrap();
        assert_eq!(parts(&signed).1, b"{}");
        assert!(is_signed(&signed, &[other.clone(), trusted.clone()]));
        assert!(!is_signed(&signed, &[other]) && !is_signed(&signed, &[]));
        assert!(!is_signed(b"{}", std::slice::from_ref(&trusted)));
        // Each byte counts, of the signature and of the document.
        for at in MARK.len()..signed.len() {
            let mut altered = signed.clone();
            altered[at] ^= 1;
            assert!(!is_signed(&altered, std::slice::from_ref(&trusted)), "byte {at}");
        }
        assert!(!is_signed(b"signature AAAA", &[trusted]));
    }

    #[test]
    fn keys_are_read_and_named_when_they_are_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seed");
        let (seed, trusted) = SigningKey::new_seed().unwrap();
        std::fs::write(&file, format!("-----BEGIN USER NKEY SEED-----\n{seed}\n------END\n")).unwrap();
        assert_eq!(SigningKey::read("--sign-key", &file).unwrap().0.public_key(), trusted.to_string());
        std::fs::write(&file, "no seed").unwrap();
        let error = SigningKey::read("--sign-key", &file).unwrap_err();
        assert!(
            error.what.starts_with("--sign-key /") && error.what.ends_with("holds no NKEY seed"),
            "{error}"
        );
        assert!(TrustedKey::parse(&trusted.to_string()).is_ok());
        for wrong in ["", "UABC", &seed, &trusted.to_string()[..55]] {
            assert!(TrustedKey::parse(wrong).is_err(), "{wrong}");
        }
    }
}
