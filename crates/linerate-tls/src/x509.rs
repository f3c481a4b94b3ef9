//! Reads fields of a certificate that rustls does not expose: its dates, its names, its key, and
//! what proves who signed it.
//!
//! A DER parser (X.690) for these few fields of RFC 5280 section 4.1. It skips what it does not
//! understand: rustls decides whether a certificate is accepted.

use std::fmt::Write;

use linerate_base::CalendarDay;
use rustls::pki_types::SignatureVerificationAlgorithm;

/// The validity period of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub until: i64,
}

const DAY: i64 = linerate_base::DAY_S as i64;
/// A certificate that expires sooner causes a warning. Reason: a person needs time to act, and it
/// is half of what automatic renewal leaves.
const SOON: i64 = 14 * DAY;

impl Validity {
    /// Its problem at this time: it has expired, is not valid yet, or expires soon.
    pub fn trouble(self, now: i64) -> Option<String> {
        let date = date(self.until);
        let days = |seconds: i64| match seconds / DAY {
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        if now > self.until {
            Some(format!("expired {} ago, on {date}", days(now - self.until)))
        } else if now < self.from {
            Some(format!("is not valid before {}", self::date(self.from)))
        } else if self.until - now < SOON {
            Some(format!("expires in {}, on {date}", days(self.until - now)))
        } else {
            None
        }
    }
}

/// Fields of a certificate.
pub(crate) struct CertificateFacts {
    pub(crate) validity: Option<Validity>,
    /// The subject in the format of RFC 4514.
    pub(crate) subject: String,
    pub(crate) key: Option<ServerKey>,
}

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerKey {
    /// RSA, with the number of bits.
    Rsa(usize),
    /// ECDSA, with the number of bits of its curve.
    Ecdsa(usize),
    /// Ed25519.
    Ed25519,
}

impl std::fmt::Display for ServerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerKey::Rsa(bits) => write!(f, "RSA {bits}"),
            ServerKey::Ecdsa(bits) => write!(f, "ECDSA P-{bits}"),
            ServerKey::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

impl CertificateFacts {
    pub(crate) fn of(certificate: &[u8]) -> CertificateFacts {
        read(certificate).unwrap_or(CertificateFacts { validity: None, subject: String::new(), key: None })
    }
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// 1.3.6.1.5.5.7.1.1
const AUTHORITY_INFORMATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
/// 1.3.6.1.5.5.7.48.2
const CA_ISSUERS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 2];

fn read(certificate: &[u8]) -> Option<CertificateFacts> {
    let body = CertificateBody::of(certificate)?;
    let mut dates = body.dates;
    let validity = match (time(&mut dates), time(&mut dates)) {
        (Some(from), Some(until)) => Some(Validity { from, until }),
        _ => None,
    };
    let mut rest = body.rest;
    let key = Element::of(&mut rest, SEQUENCE).and_then(|info| key(info.content));
    Some(CertificateFacts { validity, subject: name(body.subject), key })
}

/// Of a SubjectPublicKeyInfo (RFC 3279 section 2.3, RFC 5480, RFC 8410).
fn key(mut info: &[u8]) -> Option<ServerKey> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const CURVES: &[(&[u8], usize)] = &[
        (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], 256),
        (&[0x2b, 0x81, 4, 0, 34], 384),
        (&[0x2b, 0x81, 4, 0, 35], 521),
    ];
    let mut algorithm = Element::of(&mut info, SEQUENCE)?.content;
    let kind = Element::of(&mut algorithm, OID)?.content;
    if kind == ED25519 {
        return Some(ServerKey::Ed25519);
    }
    if kind == ELLIPTIC {
        let curve = Element::of(&mut algorithm, OID)?.content;
        return CURVES.iter().find(|(oid, _)| *oid == curve).map(|(_, bits)| ServerKey::Ecdsa(*bits));
    }
    if kind != RSA {
        return None;
    }
    let mut numbers = Element::of(&mut bits(&mut info)?, SEQUENCE)?.content;
    let modulus = Element::of(&mut numbers, INTEGER)?.content;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    let top = 8 - modulus[first].leading_zeros() as usize;
    Some(ServerKey::Rsa(8 * (modulus.len() - first - 1) + top))
}

/// The contents of a certificate's fields, up to its subject.
struct CertificateBody<'a> {
    issuer: &'a [u8],
    dates: &'a [u8],
    subject: &'a [u8],
    /// The key and the extensions.
    rest: &'a [u8],
    /// All that was signed.
    signed: &'a [u8],
    /// The signature and its algorithm.
    proof: &'a [u8],
}

impl<'a> CertificateBody<'a> {
    fn of(certificate: &'a [u8]) -> Option<CertificateBody<'a>> {
        let mut rest = certificate;
        let mut proof = Element::of(&mut rest, SEQUENCE)?.content;
        let signed = Element::of(&mut proof, SEQUENCE)?;
        let mut rest = signed.content;
        // Version 1 certificates omit the version.
        if rest.first() == Some(&0xa0) {
            Element::next(&mut rest)?;
        }
        Element::of(&mut rest, INTEGER)?;
        let mut next = || Some(Element::of(&mut rest, SEQUENCE)?.content);
        let (_algorithm, issuer, dates, subject) = (next()?, next()?, next()?, next()?);
        Some(CertificateBody { issuer, dates, subject, rest, signed: signed.whole, proof })
    }
}

/// The parts of a certificate that say who signed it.
pub(crate) struct Signed<'a> {
    /// The contents of its name, as trust anchors have them.
    pub(crate) subject: &'a [u8],
    /// The contents of its issuer's name.
    pub(crate) issuer: &'a [u8],
    /// It says where its issuer's certificate can be fetched (RFC 5280 section 4.2.2.1).
    pub(crate) has_issuers_address: bool,
    /// The contents of its key with the key's algorithm, as trust anchors have them.
    pub(crate) key_info: &'a [u8],
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    key_algorithm: &'a [u8],
    key: &'a [u8],
}

impl<'a> Signed<'a> {
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Signed<'a>> {
        let CertificateBody { issuer, subject, mut rest, signed, mut proof, .. } =
            CertificateBody::of(certificate)?;
        let key_info = Element::of(&mut rest, SEQUENCE)?.content;
        let mut parts = key_info;
        let key_algorithm = Element::of(&mut parts, SEQUENCE)?.content;
        let key = bits(&mut parts)?;
        let algorithm = Element::of(&mut proof, SEQUENCE)?.content;
        let signature = bits(&mut proof)?;
        let has_issuers_address = names_issuers_address(rest);
        Some(Signed {
            subject,
            issuer,
            has_issuers_address,
            key_info,
            signed,
            algorithm,
            signature,
            key_algorithm,
            key,
        })
    }

    /// Whether the key in it made the signature on it.
    pub(crate) fn is_by_itself(&self, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
        let fits = |algorithm: &&&dyn SignatureVerificationAlgorithm| {
            *algorithm.signature_alg_id() == *self.algorithm
                && *algorithm.public_key_alg_id() == *self.key_algorithm
        };
        let verifies = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            algorithm.verify_signature(self.key, self.signed, self.signature).is_ok()
        };
        self.subject == self.issuer && algorithms.iter().filter(fits).any(verifies)
    }
}

/// The contents of a BIT STRING of whole bytes. Its first byte says how many bits of the last one are
/// unused.
fn bits<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    Element::of(rest, BIT_STRING)?.content.strip_prefix(&[0])
}

/// Among the extensions, the one about authorities has an entry for issuers.
fn names_issuers_address(mut rest: &[u8]) -> bool {
    let is_listed = |mut list: &[u8]| {
        let mut list = Element::of(&mut list, SEQUENCE)?.content;
        while let Some(mut entry) = Element::of(&mut list, SEQUENCE).map(|entry| entry.content) {
            if Element::of(&mut entry, OID)?.content == CA_ISSUERS {
                return Some(());
            }
        }
        None
    };
    let mut find = || {
        // The unique identifiers of version 2 come first.
        let mut all = loop {
            let element = Element::next(&mut rest)?;
            if element.tag == 0xa3 {
                break element.content;
            }
        };
        let mut all = Element::of(&mut all, SEQUENCE)?.content;
        while let Some(mut extension) = Element::of(&mut all, SEQUENCE).map(|one| one.content) {
            let is_about_authorities = Element::of(&mut extension, OID)?.content == AUTHORITY_INFORMATION;
            // Whether it is critical may stand between.
            let value = std::iter::from_fn(|| Element::next(&mut extension)).last()?;
            if is_about_authorities {
                return is_listed(value.content);
            }
        }
        None
    };
    find().is_some()
}

/// One element: its tag, its contents, and all its bytes.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// Removes the next one from the front.
    fn next(rest: &mut &'a [u8]) -> Option<Element<'a>> {
        let bytes = *rest;
        let (&tag, &first) = (bytes.first()?, bytes.get(1)?);
        let (len, begin) = match first {
            0..=0x7f => (usize::from(first), 2),
            0x81..=0x84 => {
                let count = usize::from(first & 0x7f);
                let digits = bytes.get(2..2 + count)?;
                (digits.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), 2 + count)
            }
            _ => return None,
        };
        let end = begin.checked_add(len)?;
        let content = bytes.get(begin..end)?;
        *rest = &bytes[end..];
        Some(Element { tag, content, whole: &bytes[..end] })
    }

    fn of(rest: &mut &'a [u8], tag: u8) -> Option<Element<'a>> {
        Element::next(rest).filter(|element| element.tag == tag)
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` (RFC 5280 section 4.1.2.5).
fn time(rest: &mut &[u8]) -> Option<i64> {
    let element = Element::next(rest)?;
    let digits = element.content.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |part: &[u8]| part.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (element.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day) = (part(0), part(2));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let day = CalendarDay { year, month: month as u8, day: day as u8 };
    Some(day.since_1970() * DAY + part(4) * 3600 + part(6) * 60 + part(8))
}

/// `2026-11-30`.
fn date(seconds: i64) -> String {
    CalendarDay::at(seconds.div_euclid(DAY)).to_string()
}

/// The contents of a name in the format of RFC 4514; empty if it cannot be parsed.
pub(crate) fn name(content: &[u8]) -> String {
    name_parts(content).unwrap_or_default()
}

/// RFC 4514 section 2: the last part first.
fn name_parts(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let mut set = Element::of(&mut name, SET)?.content;
        let mut values = Vec::new();
        while !set.is_empty() {
            let mut pair = Element::of(&mut set, SEQUENCE)?.content;
            let kind = Element::of(&mut pair, OID)?.content;
            values.push(attribute(kind, &Element::next(&mut pair)?));
        }
        parts.push(values.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Names from RFC 4514 section 3, and others that certificates use.
const KINDS: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

fn attribute(kind: &[u8], value: &Element<'_>) -> String {
    let known = KINDS.iter().find(|(oid, _)| *oid == kind).map(|(_, name)| (*name).to_owned());
    let text = match value.tag {
        // UTF8String, PrintableString, IA5String.
        0x0c | 0x13 | 0x16 => std::str::from_utf8(value.content).ok().map(str::to_owned),
        // BMPString.
        0x1e => {
            let units =
                value.content.chunks(2).map(|pair| pair.iter().fold(0, |sum, b| sum << 8 | u16::from(*b)));
            char::decode_utf16(units).collect::<Result<String, _>>().ok()
        }
        _ => None,
    };
    match (known, text) {
        (Some(name), Some(text)) => format!("{name}={}", escaped(&text)),
        (name, _) => {
            let name = name.unwrap_or_else(|| dotted(kind));
            let hex = value.whole.iter().fold(String::new(), |mut hex, byte| {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            format!("{name}=#{hex}")
        }
    }
}

/// Escapes by RFC 4514 section 2.4. Control characters become hex too, so that a subject stays on
/// one line.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let last = text.chars().count().saturating_sub(1);
    for (i, c) in text.chars().enumerate() {
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => {
                out.push('\\');
                out.push(c);
            }
            ' ' if i == 0 || i == last => out.push_str("\\ "),
            '#' if i == 0 => out.push_str("\\#"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(out, "\\{byte:02x}");
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// An object identifier in numbers.
fn dotted(oid: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.extend([first.to_string(), (number - first * 40).to_string()]);
            } else {
                numbers.push(number.to_string());
            }
            number = 0;
        }
    }
    numbers.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn certificate(change: impl Fn(&mut rcgen::CertificateParams)) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn subjects_are_written_as_rfc_4514_does() {
        let der = certificate(|params| {
            let name = &mut params.distinguished_name;
            name.push(rcgen::DnType::CountryName, "DE");
            name.push(rcgen::DnType::OrganizationName, "Acme, \"Inc\"");
            name.push(rcgen::DnType::CommonName, "ann\nGET /");
        });
        assert_eq!(CertificateFacts::of(&der).subject, "CN=ann\\0aGET /,O=Acme\\, \\\"Inc\\\",C=DE");
    }

    #[test]
    fn dates_of_both_forms() {
        for (year, month, day) in [(1999, 12, 31), (2024, 2, 29), (2049, 12, 31), (2050, 1, 1), (4096, 1, 1)]
        {
            let der = certificate(|params| {
                params.not_before = rcgen::date_time_ymd(1975, 1, 1);
                params.not_after = rcgen::date_time_ymd(year, month, day);
            });
            let validity = CertificateFacts::of(&der).validity.expect("dates");
            assert_eq!(validity.from, 5 * 365 * DAY + DAY, "1972 had a leap day");
            assert_eq!(date(validity.until), format!("{year}-{month:02}-{day:02}"));
        }
    }

    #[test]
    fn keys_are_told_by_kind_and_size() {
        assert_eq!(CertificateFacts::of(&certificate(|_| ())).key, Some(ServerKey::Ecdsa(256)));
        let mut info = vec![SEQUENCE, 11, OID, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
        info.extend([BIT_STRING, 12, 0, SEQUENCE, 9, INTEGER, 3, 0, 0xff, 0xff, INTEGER, 2, 1, 1]);
        let read = key(&info);
        assert_eq!(read.map(|key| key.to_string()).as_deref(), Some("RSA 16"));
        for end in 0..info.len() - 4 {
            assert_eq!(key(&info[..end]), None, "cut after {end} bytes");
        }
    }

    #[test]
    fn who_signed_a_certificate() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let algorithms = provider.signature_verification_algorithms.all;
        let own = certificate(|params| params.distinguished_name.push(rcgen::DnType::CommonName, "a"));
        let signed = Signed::of(&own).expect("a certificate");
        assert!(signed.is_by_itself(algorithms) && !signed.has_issuers_address);
        assert_eq!(name(signed.issuer), "CN=a");
        // The signature is the last element.
        let mut broken = own.clone();
        *broken.last_mut().expect("bytes") ^= 1;
        assert!(!Signed::of(&broken).expect("a certificate").is_by_itself(algorithms));
        // SEQUENCE { SEQUENCE { caIssuers, [6] "http://a" } }
        let address = b"\x30\x16\x30\x14\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x08http://a";
        let with = certificate(|params| {
            let about =
                rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], address.to_vec());
            params.custom_extensions.push(about);
        });
        assert!(Signed::of(&with).expect("a certificate").has_issuers_address);
    }

    #[test]
    fn what_is_wrong_with_dates() {
        let validity = Validity { from: 100 * DAY, until: 200 * DAY };
        let trouble = |days: i64| validity.trouble(days * DAY).unwrap_or_default();
        assert_eq!(trouble(150), "");
        assert_eq!(trouble(186), "");
        assert_eq!(trouble(187), "expires in 13 days, on 1970-07-20");
        assert_eq!(trouble(199), "expires in 1 day, on 1970-07-20");
        assert_eq!(trouble(203), "expired 3 days ago, on 1970-07-20");
        assert_eq!(trouble(99), "is not valid before 1970-04-11");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            CertificateFacts::of(&bytes);
            Signed::of(&bytes);
        }

        #[test]
        fn a_certificate_with_any_byte_changed_is_read(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| certificate(|_| ()));
            let mut der = WHOLE.clone();
            let at = at.index(der.len());
            der[at] = byte;
            CertificateFacts::of(&der);
            Signed::of(&der);
        }
    }
}
