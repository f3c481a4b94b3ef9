//! Signs: plain figures of the record, named once for all rules, without a judgement.

pub(crate) mod at_once;
pub(crate) mod bursts;
pub(crate) mod first;
pub(crate) mod pace;
pub(crate) mod streams;
pub(crate) mod tls;
