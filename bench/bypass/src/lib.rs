//! The calls that nginx makes on its connections, over user-space TCP: `LD_PRELOAD` puts them in
//! place of the C library's. It is an experiment, to learn what an unchanged server gains. It
//! serves one thread of one process (`master_process off`) that listens on one address.
//!
//! `LINERATE_BYPASS` names the interface; without it every call is the kernel's. What is not built:
//! more threads or processes, more listeners, `sendfile`, `dup`, `poll`, half-closed connections,
//! and every call that [`calls`] does not have.

#[allow(unsafe_code)]
pub mod calls;
mod world;
