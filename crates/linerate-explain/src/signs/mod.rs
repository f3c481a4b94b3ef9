//! What was seen, named once for all rules: plain figures of the record, without a judgement.

pub(crate) mod at_once;
pub(crate) mod bursts;
pub(crate) mod first;
pub(crate) mod pace;
pub(crate) mod streams;
pub(crate) mod tls;
