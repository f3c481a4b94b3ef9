//! `k6/encoding` and `k6/crypto`.

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use rquickjs::{Array, ArrayBuffer, Ctx, Result, Value};

use super::values::{Natives, bytes_of, thrown, value_of};

/// Random bytes of one call, at most.
const RANDOM_BYTES: f64 = 16e6;

pub(super) fn install<'js>(natives: &Natives<'js>) -> Result<()> {
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
    let unknown = || thrown(ctx, &format!("the algorithm {algorithm:?} is not supported by linerate"));
    let Some(secret) = secret else {
        let algorithm = match algorithm {
            "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &digest::SHA256,
            "sha384" => &digest::SHA384,
            "sha512" => &digest::SHA512,
            "sha512_256" => &digest::SHA512_256,
            _ => return Err(unknown()),
        };
        return Ok(digest::digest(algorithm, data).as_ref().to_vec());
    };
    let algorithm = match algorithm {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        _ => return Err(unknown()),
    };
    Ok(hmac::sign(&hmac::Key::new(algorithm, secret), data).as_ref().to_vec())
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
