//! Users that send one request after the other: `take` finds values in responses, by `json_path`
//! among others, and `jar` keeps cookies.
#![allow(dead_code, reason = "the machine of users follows")]

pub(crate) mod jar;
mod json_path;
pub(crate) mod take;
