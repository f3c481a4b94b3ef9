//! The causes: what each looks like, what would prove it, what it costs, and what to change in the
//! software that people run. Each has a file; causes that read the same measurement share one.
//!
//! A rule (`crate::rule`) is two pure functions over what was observed: which probes it still wants,
//! and its judgement. No file here uses another one. Measurements of several rules are in `crate::signs`.
//! A rule asks for the judgement of another cause by its value, and declares that: `hidden_by` lists
//! what hides it, `asks` what it needs besides. Nothing outside of this folder knows a cause by its id
//! as text.

pub(crate) mod accept_queue;
pub(crate) mod bandwidth;
pub(crate) mod bufferbloat;
pub(crate) mod cache_cold;
pub(crate) mod client_nagle;
pub(crate) mod client_pool;
pub(crate) mod client_slow_reader;
pub(crate) mod cold_start;
pub(crate) mod compression;
pub(crate) mod connection_limit;
pub(crate) mod cork;
pub(crate) mod died;
pub(crate) mod expect_continue;
pub(crate) mod first_address;
pub(crate) mod h2_flow_control;
pub(crate) mod h2_head_of_line;
pub(crate) mod h2_stream_limit;
pub(crate) mod head_of_line;
pub(crate) mod held;
pub(crate) mod idle_forgotten;
pub(crate) mod idle_limit_order;
pub(crate) mod idle_restart;
pub(crate) mod in_the_process;
pub(crate) mod keep_alive_race;
pub(crate) mod late_close;
pub(crate) mod local_drops;
pub(crate) mod name_lookup;
pub(crate) mod no_keep_alive;
pub(crate) mod one_slow_backend;
pub(crate) mod packet_loss;
pub(crate) mod path_jitter;
pub(crate) mod path_mtu;
pub(crate) mod periodic_stall;
pub(crate) mod pinned;
pub(crate) mod ports_exhausted;
pub(crate) mod proxy_buffering;
pub(crate) mod proxy_connects_per_call;
pub(crate) mod rate_limit;
pub(crate) mod redirects;
pub(crate) mod refused;
pub(crate) mod reordering;
pub(crate) mod request_held;
pub(crate) mod response_cut;
pub(crate) mod reverse_dns;
pub(crate) mod server_nagle;
pub(crate) mod server_queueing;
pub(crate) mod server_send_buffer;
pub(crate) mod server_think;
pub(crate) mod slow_connect;
pub(crate) mod slow_start;
pub(crate) mod stopped;
pub(crate) mod syn_loss;
pub(crate) mod time_wait;
pub(crate) mod tiny_writes;
pub(crate) mod tls_full_handshake;
pub(crate) mod tls_hello_retry;
pub(crate) mod tls_long_chain;
pub(crate) mod tls_old_version;
pub(crate) mod tls_slow_key;
pub(crate) mod upstream_pool;
pub(crate) mod upstream_wait;

pub use crate::parts::{CausePage, FaultPlace, PacketSigns, PictureStep, RuleFix};
pub use crate::rule::{Cause, Judgement};
pub use client_nagle::CAUSE as CLIENT_NAGLE;
pub(crate) use ports_exhausted::NO_PORT;
pub use rate_limit::CAUSE as RATE_LIMIT;
pub use server_nagle::CAUSE as SERVER_NAGLE;
pub(crate) use time_wait::seen_in_packets;

/// All that experiments can prove, in the order in which they are looked at: what hides others first.
pub static ALL: [&Cause; 62] = [
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
    &one_slow_backend::CAUSE,
    &rate_limit::CAUSE,
    &proxy_buffering::CAUSE,
    &idle_limit_order::CAUSE,
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
    &local_drops::CAUSE,
    &packet_loss::CAUSE,
    &reordering::CAUSE,
    &h2_head_of_line::CAUSE,
    &h2_stream_limit::CAUSE,
    &in_the_process::THROTTLED,
    &in_the_process::CONTENDED,
    &in_the_process::GC,
    &in_the_process::BLOCKED,
    &cache_cold::CAUSE,
    &cold_start::CAUSE,
    &periodic_stall::CAUSE,
    &server_queueing::CAUSE,
    &proxy_connects_per_call::CAUSE,
    &upstream_pool::CAUSE,
    &upstream_wait::CAUSE,
    &server_think::CAUSE,
    &idle_forgotten::CAUSE,
];

/// Those that packets alone show.
pub static PACKETS_ALONE: [&Cause; 6] = [
    &client_pool::CAUSE,
    &client_slow_reader::CAUSE,
    &died::CAUSE,
    &head_of_line::CAUSE,
    &refused::CAUSE,
    &response_cut::CAUSE,
];

/// The cause of that name.
pub fn find(id: &str) -> Option<&'static Cause> {
    ALL.iter().chain(&PACKETS_ALONE).find(|c| c.id == id).copied()
}

#[cfg(test)]
mod tests;
