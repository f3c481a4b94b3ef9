//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Bytes kept of an unsolicited response.
pub(crate) const UNSOLICITED_BYTES: usize = 200;

/// Between two lookups of a name that cannot be reached. Reason: name servers are not to be loaded.
pub(crate) const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Addresses of a name that are used. Reason: more make the turn in which each is tried too long.
pub(crate) const ADDRESSES: usize = 64;

/// Longest wait in a turn. Reason: snapshots and the order to stop are looked at once a turn.
pub(crate) const LONGEST_TURN: Duration = Duration::from_millis(50);

/// Connections that close at once in the end. Reason: a link has room for some thousands of packets, and each of them causes
/// up to three.
pub(crate) const CLOSED_AT_ONCE: usize = 512;

/// How long those are waited for before the next close. Reason: a round trip; with it 100,000 take a second at most.
pub(crate) const CLOSING_PATIENCE: Duration = Duration::from_millis(5);

/// How long a TCP of our own stays at the end for the next of the last FINs. Reason: a network's round trip, not a server's thought.
pub(crate) const LETTING_GO: Duration = Duration::from_millis(250);

/// ... and for all of them. Reason: a server takes its time to close a hundred thousand connections.
pub(crate) const LETTING_ALL_GO: Duration = Duration::from_secs(2);

/// Connections that are reset at once in the end. Reason: a link has room for some thousands.
pub(crate) const RESETS: usize = 1024;

/// An attempt to connect that is older at the end of the run hangs. Reason: the first SYN is sent again after a second.
pub(crate) const HANGING: Duration = Duration::from_secs(1);

/// How long requests in flight are waited for when the listener accepts nothing. Reason: each core has to say so.
pub(crate) const DEAF_GRACE: Duration = Duration::from_millis(150);

/// How long no byte has to come back before it is asked whether the server accepts connections, and how often then. Reason: the kernel
/// lists all sockets of the machine.
pub(crate) const DEAF_LOOK: Duration = Duration::from_millis(500);

/// Sockets of this machine that are looked at for that.
pub(crate) const SOCKETS: usize = 1 << 16;

/// Bytes of prebuilt requests kept for one kind. Reason: one write of this size fills any socket buffer's free half.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// Requests rendered into one write. Reason: the scratch buffer stays in the cache.
pub(crate) const RENDERED_BYTES: usize = 64 << 10;

/// Slowest requests kept as samples, for each core. Reason: a report shows a handful.
pub(crate) const SLOWEST: usize = 8;

/// Bad or failed requests kept as samples, for each core.
pub(crate) const BAD_SAMPLES: usize = 8;

/// Different details of a failure's reason that are counted by themselves. Reason: a server chooses some of the words.
pub(crate) const FAILURE_DETAILS: usize = 16;

/// Bytes of a head kept in a sample.
pub(crate) const SAMPLE_HEAD_BYTES: usize = 1024;

/// Bytes of a bad response's body kept in a sample.
pub(crate) const SAMPLE_BODY_BYTES: usize = 200;

/// Bytes of a body with a content coding that are kept for a sample. Reason: the first 200 bytes of its text are in them.
pub(crate) const SAMPLE_ENCODED_BYTES: usize = 4096;

/// Bytes of a body with a content coding that a check reads. Reason: each connection holds one until it is whole.
pub(crate) const ENCODED_BYTES: usize = 16 << 20;

/// Capacity for such a body that a connection keeps. Reason: one large body must not stay on thousands of connections.
pub(crate) const ENCODED_KEPT: usize = 64 << 10;

/// Bytes that come out of a content coding. Reason: a few kilobytes may stand for gigabytes, which take their time.
pub(crate) const DECODED_BYTES: usize = 64 << 20;

/// Bytes of a body that is saved. Reason: what is wrong with a response shows in its first megabyte.
pub(crate) const SAVED_BODY_BYTES: usize = 1 << 20;

/// Bytes of a head that is saved: more than a reader takes.
pub(crate) const SAVED_HEAD_BYTES: usize = 64 << 10;

/// Bytes of all responses that a thread saves. Reason: they are in memory until the end of the run.
pub(crate) const SAVED_BYTES: usize = 64 << 20;

/// Codings over one another. Reason: servers apply one; a longer list is an attack.
pub(crate) const CODINGS: usize = 4;

/// Looks at the TCP of open connections in a second, of each core. Reason: a look costs a system call of half a microsecond; with 256
/// or fewer connections each is looked at in every second.
pub(crate) const LOOKS_PER_SECOND: usize = 256;

/// Times in a second at which some of these are made. Reason: all at once would hold responses back.
pub(crate) const LOOKS_SPREAD: u32 = 32;

/// Places of the table of a TCP of our own that are looked through at once for those who want to see connections. Reason: each costs
/// some tens of nanoseconds, and responses wait meanwhile.
pub(crate) const FLOW_PLACES: usize = 512;

/// ... and in all. Reason: who asks waits for it.
pub(crate) const FLOW_PLACES_ALL: usize = 4096;

/// Connections that are shown of each core: those with the longest queues.
pub(crate) const FLOWS_SHOWN: usize = 100;

/// In a run of short connections one in this many is asked for its TCP counters. Reason: asking each would cost a
/// system call per request.
pub(crate) const SHORT_INFO_EVERY: u32 = 64;

/// How long responses under way are waited for after the user said stop.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(1);

/// Steps of flows whose course over time is kept, by name. Reason: a page with more curves says nothing, and agents send
/// all in one message.
pub(crate) const STEPS_OVER_TIME: usize = 12;

/// Intervals in the series; beyond, pairs are merged. Reason: a week must not grow memory.
pub(crate) const INTERVALS: usize = 4096;

/// Events handled between two reads of the clock. Reason: a batch of a thousand events lasts milliseconds, which would be
/// missing from the latencies.
pub(crate) const EVENTS_PER_CLOCK_READ: usize = 8;

/// Longest wait for events. Reason: time beyond a wait is our own standstill, and of a wait without
/// end nothing is beyond it.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Time beyond a wait from which on the whole process stood still. Reason: a thread that waits for a core behind hundreds of others,
/// which all work, waits for less.
pub(crate) const STOPPED: Duration = Duration::from_millis(250);

/// Time beyond a wait from which on the thread stood still. Reason: other threads of a busy machine
/// take its core for some milliseconds at a time, which schedstat counts.
pub(crate) const LEAST_GAP: Duration = Duration::from_millis(20);

/// Longest wait for a low-water mark to be reached before it is taken back (`--throughput`). Reason: responses may
/// turn out shorter than those before.
pub(crate) const LOW_WATER_WAIT: Duration = Duration::from_millis(5);

/// Events of the transport that are reported at the end. Reason: a link that goes up and down all night.
pub(crate) const NEWS: usize = 16;

/// Requests of a log that a core hands over at once. Reason: one lock of the queue serves all of them.
pub(crate) const LOG_CHUNK: usize = 1024;

/// Such chunks that wait to be written. Reason: 50 MB, some seconds of a slow disk.
pub(crate) const LOG_CHUNKS: usize = 512;

/// Times without a response that are kept, the longest. Reason: they travel in an agent's last message.
pub(crate) const QUIET_SPANS: usize = 256;

/// Requests never sent whose waits are recorded one by one. Reason: they are counted at the end, and more than these take longer than
/// a quarter of a second.
pub(crate) const UNSENT_ALONE: u64 = 1 << 22;

/// Bytes of a value that a step of a flow takes. Reason: each user holds some, and they go into requests.
pub(crate) const TAKEN_BYTES: usize = 64 << 10;

/// Bytes of a body that a step takes values from, as it came and without its coding. Reason: each connection may hold one.
pub(crate) const TAKEN_FROM_BYTES: usize = 4 << 20;

/// Memory of a compiled regular expression. Reason: the crate's own default is ten times as much.
pub(crate) const REGEX_BYTES: usize = 1 << 20;

/// Bytes of a JSON Schema. Reason: each thread compiles it, and a person or a generator of API clients wrote it.
pub(crate) const SCHEMA_BYTES: usize = 1 << 20;

/// Schemas within a JSON Schema. Reason: each is compiled, with a regular expression maybe.
pub(crate) const SCHEMA_NODES: usize = 20_000;

/// Bytes of the names that lead to a schema within another one. Reason: each has them, for errors.
pub(crate) const SCHEMA_POINTER_BYTES: usize = 1024;

/// Schemas within each other that apply to one value. Reason: each is a call in the checker.
pub(crate) const SCHEMA_IN_PLACE: usize = 32;

/// Calls within each other to compare a body with a schema. Reason: they have to fit on a thread's stack.
pub(crate) const SCHEMA_DEPTH: usize = 400;

/// Values of a body that are compared with a schema, each time it applies. Reason: combined schemas can multiply without end, and other users
/// wait meanwhile.
pub(crate) const SCHEMA_STEPS: u64 = 8_000_000;

/// Places of a body that are named as not as the schema wants them. Reason: a person reads them.
pub(crate) const SCHEMA_PROBLEMS: usize = 3;

/// Bytes of a body or of a field that a script makes. Reason: users hold them while requests are in flight.
pub(crate) const MADE_BYTES: usize = 1 << 20;

/// Cookies of a user. Reason: RFC 6265 section 6.1 asks for 50 of a host at least.
pub(crate) const COOKIES: usize = 100;

/// Bytes of a `Set-Cookie` field. Reason: RFC 6265 section 6.1 asks for 4096 at least.
pub(crate) const COOKIE_BYTES: usize = 8192;

/// How long a user waits whose iteration failed before its request could leave. Reason: otherwise it
/// would try without end at the same moment.
pub(crate) const REFUSED_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Causes of failed iterations that are told apart. Reason: people read them.
pub(crate) const FLOW_CAUSES: usize = 10;
