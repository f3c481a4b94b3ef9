//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Calls of one diagnosis. Reason: it is a conversation with somebody's server, not a load test.
pub const CALLS: usize = 60;
/// Calls beyond these on a busy machine. Reason: intervals are wide there, and the experiments of
/// one cause would use up what the next one needs.
pub const CALLS_BUSY: usize = CALLS / 2;
/// Calls beyond these at random times. Reason: of 30 calls, a fault that meets one in five meets fewer
/// than three in 4 of 100 diagnoses only.
pub const CALLS_SCATTERED: usize = CALLS / 2;
/// Calls beyond these at moments of a period that those at random times show.
pub const CALLS_TIMED: usize = 9;
/// Calls beyond these in a row, where calls on one connection are of two kinds.
pub const CALLS_TURNS: usize = 19;
/// Calls beyond these that ask a server behind a proxy for its idle limit: one, and two on each of 64
/// connections in six rounds.
pub const CALLS_IDLE: usize = 129;
/// Time that a call on a connection which was idle may take. Reason: its request was sent again three times
/// by then, unless the round trip takes half a second.
pub const IDLE_PATIENCE: Duration = Duration::from_secs(3);
/// The mean gap between calls at random times.
pub const SCATTERED_GAP: Duration = Duration::from_millis(60);
/// Share of our calls' time spent waiting for a processor from which on the machine counts as busy.
pub const BUSY_SHARE: f64 = 0.02;
/// And the least wait of a call, milliseconds. Reason: 10 % of a call of 0.2 ms are no busy machine.
pub const BUSY_MS: f64 = 0.2;
/// Share of the time in which something on this machine waited for a processor (PSI) from which on
/// programs compete for them.
pub const CONTENDED: f64 = 0.5;
/// Calls beyond these over HTTP/2, where segments get lost. Reason: a loss holds up other calls only
/// where several are under way, and few segments get lost.
pub const CALLS_STREAMS: usize = 200;
/// Time of one diagnosis, unless the user says otherwise. Reason: somebody waits for the answer.
pub const BUDGET: Duration = Duration::from_secs(15);
/// Share of the time of a diagnosis that is kept for judging and saying it. Reason: a user who allows 15 s
/// gets the answer within 15 s.
pub const SPEAKING_SHARE: f64 = 0.02;
/// The most that is kept for that.
pub const SPEAKING_MOST: Duration = Duration::from_millis(150);
/// Factor by which an experiment may take longer than its calls took so far. Reason: calls vary,
/// and one that is cut is wasted.
pub const MARGIN: f64 = 1.15;
/// Time one call may take. Reason: time-outs are 5 s more often than anything else, and a call that takes
/// longer has shown where it hangs. Half of it, once a call hung: the experiments that follow must fit
/// the budget.
pub const CALL_TIME: Duration = Duration::from_millis(6_000);
/// And at most this share of the budget.
pub const CALL_SHARE: f64 = 0.4;
/// Time a call gets where an earlier one was cut in the middle of a long body. Reason: it shows the rate,
/// and the experiments that follow must fit the budget.
pub const BODY_TIME: Duration = Duration::from_millis(1_500);
/// Bytes of a body that are compressed to see what that would give. Reason: the time of it.
pub const PACKED_BYTES: usize = 64 << 10;
/// Time a call gets whose response is a stream of events without an end: this many times what its
/// beginning took. Reason: nothing more is learnt from it.
pub const STREAM_TIMES: f64 = 3.0;
/// The least time that such a call gets.
pub const STREAM_LEAST: Duration = Duration::from_millis(200);
/// Time one connection attempt may take. Reason: three lost SYNs (1 s apart since Linux 6.5, else
/// 1, 2 and 4 s) show.
pub const CONNECT_TIME: Duration = Duration::from_millis(4_500);
/// A server that answers the beginning of a handshake after this has kept the connection waiting.
/// Reason: several handshakes at once take their time for what they compute.
pub const TURNED_TO: Duration = Duration::from_millis(100);
/// A SYN that is sent again before this was not lost. Reason: RFC 6298, section 2, wants the first
/// time-out to be a second.
pub const SYN_TIME: Duration = Duration::from_millis(950);
/// Time a connection attempt to one of several addresses may take. Reason: clients give up on an
/// address sooner than that (RFC 8305 recommends 250 ms before the next one is tried).
pub const FAMILY_TIME: Duration = Duration::from_millis(1_200);
/// How long a client waits for `100 Continue` before it sends its body all the same. Reason: curl's
/// time; RFC 9110, section 10.1.1 wants a client not to wait for ever.
pub const CONTINUE_TIME: Duration = Duration::from_millis(1_000);
/// Addresses of a name that are tried. Reason: the first of each family matter.
pub const ADDRESSES: usize = 8;
/// Connections held open at once. Reason: each arm of an experiment has its own.
pub const LANES: usize = 32;
/// Receives noted of one response. Reason: memory; a response of many megabytes has thousands, and the
/// first tell its shape.
pub const RECEIVES: usize = 4096;
/// Bytes of one response. Reason: an endless one must not be waited for.
pub const ANSWER_BYTES: u64 = 256 << 20;
/// Addresses of a name that are tried in vain, one after the other. Reason: each takes
/// [`FAMILY_TIME`], and the calls need the time.
pub const ATTEMPTS: usize = 4;
/// Calls at once on a connection of HTTP/2. Reason: it is a conversation, not a load test.
pub const AT_ONCE: u8 = 16;
/// Redirects followed. Reason: browsers follow 20 (Fetch Standard, section 4.4) and curl 50; a chain
/// that leads on after that never ends for them.
pub const HOPS: usize = 21;
/// Bytes of a coded body (gzip, deflate) that are kept to check it, and what they may unpack to.
/// Reason: memory and time; a larger one is not checked.
pub const CODED_BYTES: usize = 1 << 20;
/// Bytes that a coded body may unpack to while it is checked.
pub const UNPACKED_BYTES: u64 = 32 << 20;
/// A lookup that takes longer is looked into: the name servers are asked beside it.
pub const LOOKUP_QUICK: Duration = Duration::from_millis(1_000);
/// Longest wait for the system's resolver where the name servers have told the addresses. Reason: its own
/// time-out is 5 s, and the calls need the rest.
pub const LOOKUP_TIME: Duration = Duration::from_millis(6_000);
/// Lookups of the name, where they are quick. Reason: one in five that waits for a time-out shows in nine
/// of ten diagnoses.
pub const LOOKUPS: usize = 10;
/// Name servers asked. Reason: the resolver's own limit (MAXNS).
pub const NAME_SERVERS: usize = 3;
/// Time one name server has for an answer. Reason: a resolver waits 5 s; one that has not answered
/// in one is down or far away.
pub const NAME_SERVER_TIME: Duration = Duration::from_millis(1_000);
/// Idle connections held beside a call, and how many are tried one after the other. Reason: where
/// they are what a server has too few of, no other client is served meanwhile.
pub const IDLE: [u8; 3] = [4, 16, 32];
/// Time the server has to take them up before the call. Reason: else the call may overtake them.
pub const TAKEN_UP: Duration = Duration::from_millis(20);
/// Longest time they are held. Reason: the same.
pub const HOLD_TIME: Duration = Duration::from_millis(1_500);
/// Threads of a server's process that are looked at. Reason: each costs a file to read before and
/// after a call.
pub const THREADS: usize = 256;
/// Threads of a server under load that one look reads. Reason: four small files each; a server with a
/// thread for each of 1,000 connections is seen whole.
pub const OCCUPANCY_THREADS: usize = 1100;
/// Threads remembered over a run. Reason: a server may start one for each request; some 60 bytes each.
pub const OCCUPANCY_IDS: usize = 1 << 14;
/// Looks at a server's threads during one call. Reason: each is a line of a table, and reads some
/// files for each thread.
pub const LOOKS: usize = 64;
/// Descriptors of a server's process that are looked at. Reason: each is a link to be read.
pub const FILES: usize = 1 << 17;
/// TCP sockets of this machine that are asked for. Reason: memory, some 60 bytes each.
pub const SOCKETS: usize = 1 << 17;
/// Looks at the connections of a server's process while calls are made. Reason: each lists all TCP sockets of
/// this machine.
pub const LOOKS_BEHIND: usize = 800;
/// Connections of a process to servers behind it that a look keeps. Reason: memory; 32 calls at once use 32.
pub const SOCKETS_BEHIND: usize = 256;
/// Calls at once while they are watched. Reason: pools are of 5 to 20 connections by default, and it is a
/// conversation with somebody's server.
pub const AT_ONCE_BEHIND: u8 = 32;
/// Processes that are searched for the one that listens. Reason: each has its descriptors to be
/// read.
pub const PROCESSES: usize = 4096;
/// Processes that have the server's listening socket and are looked at. Reason: each is read before
/// the first call; a server with more workers has enough of them here.
pub const HOLDERS: usize = 64;
/// Calls after which it is decided which of them accepts. Reason: those of the first look on a kept
/// connection, and two on new ones.
pub const CALLS_TO_FIND: usize = 6;
/// Arrangements of two arms that are all tried in a permutation test; beyond it a sample of them.
/// Reason: time.
pub const ARRANGEMENTS: u64 = 20_000;
