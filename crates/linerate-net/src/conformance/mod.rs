//! The rules for every transport, as tests that run over any of them: see
//! `tests/conformance.rs`.
//!
//! Both ends of each connection belong to one instance. No test depends on how long something
//! takes, except that a promised event has to come within a generous timeout.

mod bed;
mod closing;
mod files;
mod flow;
mod life;

use std::net::{IpAddr, Ipv4Addr};

pub use self::closing::*;
pub use self::files::*;
pub use self::flow::*;
pub use self::life::*;
use crate::{Transport, TransportLimits};

/// Longest wait, in the transport's time, for a promised event. Reason: machines that run tests are
/// busy.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// The transport under test.
pub struct Subject<T> {
    /// Makes an instance.
    pub make: fn(TransportLimits) -> T,
    /// Where to listen.
    pub at: IpAddr,
    /// The address that connections come from, and another that they may; `None` on loopback: the
    /// one listened on, and another of its family where there is one.
    pub from: Option<[IpAddr; 2]>,
    /// More bytes than the wire buffers.
    pub bulk: usize,
    /// How many bytes on the wire a payload of this length takes.
    pub wire_len: fn(usize) -> usize,
}

/// The length on the wire of a transport that sends bytes as they are.
pub fn as_they_are(len: usize) -> usize {
    len
}

/// Bytes that show their offset: each block begins with its number.
fn pattern(len: usize) -> Vec<u8> {
    const BLOCK: usize = 1024;
    let block: Vec<u8> = (0..BLOCK).map(|i| (i ^ (i >> 8)) as u8).collect();
    let mut bytes = Vec::with_capacity(len + BLOCK);
    for number in 0..len.div_ceil(BLOCK) {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&block[size_of::<usize>()..]);
    }
    bytes.truncate(len);
    bytes
}

/// A subject only makes instances.
impl<T: Transport> Subject<T> {
    fn bed(&self) -> bed::Bed<T> {
        self.bed_with(TransportLimits::default())
    }

    /// The address that connections come from.
    fn source(&self) -> IpAddr {
        self.from.map_or(self.at, |[usual, _]| usual)
    }

    /// The other address that connections may come from.
    fn other_source(&self) -> IpAddr {
        let on_loopback = match self.at {
            IpAddr::V4(_) => Ipv4Addr::new(127, 0, 0, 9).into(),
            v6 => v6,
        };
        self.from.map_or(on_loopback, |[_, other]| other)
    }

    fn bed_with(&self, limits: TransportLimits) -> bed::Bed<T> {
        bed::Bed::new((self.make)(limits), self.at)
    }
}

/// One `#[test]` for each case: `conformance_tests!(module, subject_function)`. If the function
/// gives no subject, this machine cannot run the transport.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $subject:path) => {
        $crate::conformance_tests!(@ $module, $subject,
            a_connection_is_made a_source_address_is_used connected_comes_before_bytes
            bytes_sent_at_once_arrive refused_is_told refused_is_told_once_though_bytes_were_sent
            stale_calls_do_nothing a_slot_is_reused_and_the_conn_is_not the_limit_of_connections_holds
            unlisten_keeps_connections a_thousand_connections deferred_and_short_connections
            a_waker_ends_the_wait a_waker_used_early_is_not_lost the_past_is_not_waited_for
            a_deadline_is_kept dropped_with_everything_in_flight tcp_counters
            echo_of_all_sizes many_small_sends_keep_their_order paused_bytes_wait
            what_waits_is_counted_and_drained lent_and_copied_bytes_keep_their_order shared_bytes_keep_their_order lent_ranges_are_checked
            the_limit_of_unsent_bytes_holds low_water_holds_nothing_back_for_ever
            what_is_not_looked_at_may_be_discarded the_end_comes_within_what_is_not_looked_at both_directions_at_once
            a_flood_starves_nobody claims_may_wait pause_before_the_bytes_are_taken pause_and_resume_many_times
            the_end_comes_after_the_bytes now_sends_what_waits the_last_bytes_come_before_the_end
            the_last_bytes_leave_though_something_is_unread after_peer_waits_for_the_peer
            after_peer_does_not_wait_for_ever after_peer_sends_what_waits lingering_saves_the_last_bytes
            lingering_does_not_wait_for_ever lingering_does_not_read_without_end abort_resets abort_with_bytes_waiting
            the_other_direction_works_after_the_end sending_to_one_that_is_gone_fails
            bytes_before_a_reset_are_not_reordered a_reset_behind_the_bytes_is_told a_reset_is_told_though_nothing_is_read closing_while_connecting a_paused_connection_may_be_closed
            closing_many_at_once connections_that_linger_make_room
            files_keep_their_order_among_other_bytes what_waits_of_a_file_is_counted_and_drained
            the_limit_of_unsent_bytes_holds_for_files closing_sends_what_waits_of_a_file a_file_that_shrinks_ends_the_connection
            a_file_that_is_too_short_is_refused a_reset_in_the_middle_of_a_file files_of_many_connections
            a_file_may_be_the_first_that_is_sent
        );
    };
    (@ $module:ident, $subject:path, $($case:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    if let Some(subject) = $subject() {
                        $crate::conformance::$case(&subject);
                    }
                }
            )*
        }
    };
}
