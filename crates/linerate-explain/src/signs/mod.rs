//! Signs: plain figures of the record, named once for all rules, without a judgement.

pub(crate) mod at_once;
pub(crate) mod behind;
pub(crate) mod bursts;
pub(crate) mod by_connection;
pub(crate) mod congestion;
pub(crate) mod disorder;
pub(crate) mod first;
pub(crate) mod flow;
pub(crate) mod new_connections;
pub(crate) mod pace;
pub(crate) mod path;
pub(crate) mod pieces;
pub(crate) mod scattered;
pub(crate) mod streams;
pub(crate) mod tls;
pub(crate) mod wait;
