//! The causes: what each looks like, what would prove it, what it costs, and what to change in the
//! software that people run. Each has a file; causes that read the same measurement share one.
//!
//! A rule (`crate::rule`) is two pure functions over what was observed: which probes it still wants,
//! and its judgement. No file here uses another one. Measurements of several rules are in `crate::signs`.
//! A rule asks for the judgement of another cause by its id, and declares that: `hidden_by` lists
//! what hides it, `asks` what it needs besides.

mod accept_queue;
mod bandwidth;
mod bufferbloat;
mod client_nagle;
mod cold_start;
mod compression;
mod connection_limit;
mod cork;
mod expect_continue;
mod first_address;
mod h2_flow_control;
mod h2_head_of_line;
mod h2_stream_limit;
mod held;
mod idle_restart;
mod in_the_process;
mod keep_alive_race;
mod late_close;
mod name_lookup;
mod no_keep_alive;
mod packet_loss;
mod path_jitter;
mod path_mtu;
mod periodic_stall;
mod pinned;
mod ports_exhausted;
mod proxy_buffering;
mod rate_limit;
mod redirects;
mod reordering;
mod request_held;
mod reverse_dns;
mod server_nagle;
mod server_queueing;
mod server_send_buffer;
mod server_think;
mod slow_connect;
mod slow_start;
mod stopped;
mod syn_loss;
mod time_wait;
mod tiny_writes;
mod tls_full_handshake;
mod tls_hello_retry;
mod tls_long_chain;
mod tls_old_version;
mod tls_slow_key;

pub use crate::rule::{Cause, Judgement, RuleFix};
pub(crate) use ports_exhausted::NO_PORT;
pub(crate) use time_wait::seen_in_packets;

/// All of them, in the order in which they are looked at: what hides others first.
pub static ALL: [&Cause; 54] = [
    &stopped::CAUSE,
    &ports_exhausted::CAUSE,
    &name_lookup::TIMEOUT,
    &name_lookup::SLOW,
    &first_address::OTHER_FAMILY,
    &first_address::SAME_FAMILY,
    &path_mtu::CAUSE,
    &bufferbloat::CAUSE,
    &path_jitter::CAUSE,
    &redirects::CAUSE,
    &expect_continue::CAUSE,
    &h2_flow_control::CAUSE,
    &bandwidth::CAUSE,
    &server_nagle::CAUSE,
    &cork::CAUSE,
    &client_nagle::CAUSE,
    &rate_limit::CAUSE,
    &proxy_buffering::CAUSE,
    &tls_full_handshake::CAUSE,
    &tls_old_version::CAUSE,
    &tls_hello_retry::CAUSE,
    &tls_long_chain::CAUSE,
    &tls_slow_key::CAUSE,
    &time_wait::CAUSE,
    &accept_queue::CAUSE,
    &held::DESCRIPTORS,
    &connection_limit::CAUSE,
    &held::WORKERS,
    &pinned::CAUSE,
    &reverse_dns::CAUSE,
    &syn_loss::CAUSE,
    &slow_connect::CAUSE,
    &request_held::ZERO_WINDOW,
    &request_held::SEND_BUFFER,
    &server_send_buffer::CAUSE,
    &compression::CAUSE,
    &slow_start::CAUSE,
    &idle_restart::CAUSE,
    &tiny_writes::CAUSE,
    &no_keep_alive::CAUSE,
    &keep_alive_race::CAUSE,
    &late_close::CAUSE,
    &packet_loss::CAUSE,
    &reordering::CAUSE,
    &h2_head_of_line::CAUSE,
    &h2_stream_limit::CAUSE,
    &in_the_process::THROTTLED,
    &in_the_process::CONTENDED,
    &in_the_process::GC,
    &in_the_process::BLOCKED,
    &cold_start::CAUSE,
    &periodic_stall::CAUSE,
    &server_queueing::CAUSE,
    &server_think::CAUSE,
];

/// The rule of that name.
pub fn find(id: &str) -> Option<&'static Cause> {
    ALL.iter().find(|c| c.id == id).copied()
}

#[cfg(test)]
mod tests;
