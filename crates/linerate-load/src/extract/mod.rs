//! What a response holds for the requests behind it: values, cookies, and its content once its
//! codings are undone.
//!
//! `reading` looks at responses while they are read: `take` finds values, by `json_path` and `css` among others,
//! `expect` compares a response with what it must be, and `schema` a body with a JSON Schema; `redirect` says where one
//! leads, and `jar` keeps cookies. Nothing here knows of plans or of the engine.

mod css;
pub(crate) mod decode;
pub(crate) mod expect;
pub(crate) mod jar;
mod json_path;
pub(crate) mod reading;
pub(crate) mod redirect;
pub(crate) mod schema;
pub(crate) mod take;

/// Whether `text` is a token, as methods and field names are (RFC 9110 section 5.6.2).
pub fn is_token(text: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(token)
}
