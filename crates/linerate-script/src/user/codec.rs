//! `k6/encoding` and `k6/crypto`.

use ::hmac::digest::core_api::BlockSizeUser;
use ::hmac::{Mac as _, SimpleHmac};
use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use md4::Md4;
use md5::Md5;
use ripemd::Ripemd160;
use rquickjs::{Array, ArrayBuffer, Ctx, Result, Value};
use sha2::{Digest, Sha512_224, Sha512_256};

use super::values::{Natives, bytes_of, thrown, value_of};

/// Random bytes of one call, at most.
const RANDOM_BYTES: f64 = 16e6;

pub(super) fn install<'js>(natives: &Natives<'js>) -> Result<()> {
    natives
        .add("webCrypto", |ctx: Ctx<'js>| ctx.eval::<Value<'js>, _>(include_str!("../js/webcrypto.js")))?;
    natives.add("loadHtml", |ctx: Ctx<'js>| ctx.eval::<Value<'js>, _>(include_str!("../js/html-tree.js")))?;
    natives.add("b64encode", |ctx: Ctx<'js>, input: Value<'js>, encoding: String| {
        let bytes = bytes_of(&ctx, &input)?;
        Ok::<_, rquickjs::Error>(engine(&ctx, &encoding)?.encode(bytes))
    })?;
    natives.add("b64decode", |ctx: Ctx<'js>, input: String, encoding: String, is_text: bool| {
        let bytes = engine(&ctx, &encoding)?.decode(input.trim_end_matches(['\r', '\n']));
        let bytes = bytes.map_err(|e| thrown(&ctx, &format!("b64decode: {e}")))?;
        value_of(&ctx, &bytes, !is_text)
    })?;
    natives.add(
        "digest",
        |ctx: Ctx<'js>, algorithm: String, secret: Value<'js>, parts: Array<'js>, encoding: String| {
            let mut data = Vec::new();
            for part in parts.iter::<Value<'js>>() {
                data.extend(bytes_of(&ctx, &part?)?);
            }
            let secret = if secret.is_undefined() { None } else { Some(bytes_of(&ctx, &secret)?) };
            let hashed = hash(&ctx, &algorithm, secret.as_deref(), &data)?;
            written(&ctx, &hashed, &encoding)
        },
    )?;
    natives.add("randomBytes", |ctx: Ctx<'js>, size: f64| {
        if !(1.0..=RANDOM_BYTES).contains(&size) {
            return Err(thrown(&ctx, "randomBytes() needs a size from 1 to 16000000"));
        }
        let mut bytes = vec![0; size as usize];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| thrown(&ctx, "there are no random bytes"))?;
        ArrayBuffer::new_copy(ctx.clone(), &bytes)
    })
}

fn engine(ctx: &Ctx<'_>, encoding: &str) -> Result<&'static base64::engine::GeneralPurpose> {
    Ok(match encoding {
        "std" => &STANDARD,
        "rawstd" => &STANDARD_NO_PAD,
        "url" => &URL_SAFE,
        "rawurl" => &URL_SAFE_NO_PAD,
        other => {
            return Err(thrown(ctx, &format!("there is no encoding {other:?}: std, rawstd, url or rawurl")));
        }
    })
}

fn hash(ctx: &Ctx<'_>, algorithm: &str, secret: Option<&[u8]>, data: &[u8]) -> Result<Vec<u8>> {
    let hashed = match secret {
        Some(secret) => keyed(algorithm, secret, data),
        None => plain(algorithm, data),
    };
    hashed.ok_or_else(|| {
        thrown(ctx, &format!("there is no algorithm {algorithm:?}: {}", ALGORITHMS.join(", ")))
    })
}

/// Those of k6.
const ALGORITHMS: [&str; 9] =
    ["md4", "md5", "sha1", "sha256", "sha384", "sha512", "sha512_224", "sha512_256", "ripemd160"];

fn plain(algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
    let fast = |algorithm| digest::digest(algorithm, data).as_ref().to_vec();
    Some(match algorithm {
        "md4" => Md4::digest(data).to_vec(),
        "md5" => Md5::digest(data).to_vec(),
        "sha1" => fast(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256" => fast(&digest::SHA256),
        "sha384" => fast(&digest::SHA384),
        "sha512" => fast(&digest::SHA512),
        "sha512_224" => Sha512_224::digest(data).to_vec(),
        "sha512_256" => fast(&digest::SHA512_256),
        "ripemd160" => Ripemd160::digest(data).to_vec(),
        _ => return None,
    })
}

fn keyed(algorithm: &str, secret: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let fast = |algorithm| hmac::sign(&hmac::Key::new(algorithm, secret), data).as_ref().to_vec();
    match algorithm {
        "md4" => mac::<Md4>(secret, data),
        "md5" => mac::<Md5>(secret, data),
        "sha1" => Some(fast(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY)),
        "sha256" => Some(fast(hmac::HMAC_SHA256)),
        "sha384" => Some(fast(hmac::HMAC_SHA384)),
        "sha512" => Some(fast(hmac::HMAC_SHA512)),
        "sha512_224" => mac::<Sha512_224>(secret, data),
        "sha512_256" => mac::<Sha512_256>(secret, data),
        "ripemd160" => mac::<Ripemd160>(secret, data),
        _ => None,
    }
}

/// HMAC of a hash that the fast library has none of.
fn mac<D: Digest + BlockSizeUser>(secret: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut mac = SimpleHmac::<D>::new_from_slice(secret).ok()?;
    mac.update(data);
    Some(mac.finalize().into_bytes().to_vec())
}

fn written<'js>(ctx: &Ctx<'js>, bytes: &[u8], encoding: &str) -> Result<Value<'js>> {
    let text = match encoding {
        "hex" => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        "base64" => STANDARD.encode(bytes),
        "base64url" => URL_SAFE.encode(bytes),
        "base64rawurl" => URL_SAFE_NO_PAD.encode(bytes),
        "binary" => return value_of(ctx, bytes, true),
        other => {
            return Err(thrown(
                ctx,
                &format!(
                    "there is no output encoding {other:?}: hex, base64, base64url, base64rawurl or binary"
                ),
            ));
        }
    };
    value_of(ctx, text.as_bytes(), false)
}
