//! The threads of a running server: how they start, what each of them does, and what reaches them
//! while they run.

pub(crate) mod gate;
pub(crate) mod handle;
pub(crate) mod reload;
pub(crate) mod runtime;
pub(crate) mod secure;
pub(crate) mod spawn;
pub(crate) mod thread;
