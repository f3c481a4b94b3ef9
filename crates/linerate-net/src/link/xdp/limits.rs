//! Every limit of this link, with its reason.

use std::time::Duration;

/// Frames, and ring entries, for each direction of a queue. Reason: a thousand connections that all
/// move at once are two thousand packets. More would only push memory out of the cache.
pub(super) const FRAMES: u32 = 2048;

/// Frames, and ring entries, for receiving in a flood. Reason: at 64,000 packets a second they hold
/// 128 ms during which the thread has no CPU. A real client whose SYN is lost retries only after a
/// second.
pub(super) const FLOOD_FRAMES: u32 = 8192;

/// Shared memory of all queues with this many frames, at most, bytes. Reason: it is pinned, and a
/// card may have a hundred queues.
pub(super) const FLOOD_MEMORY: usize = 512 << 20;

/// Addresses and ports that each packet is compared with. Reason: each rule costs about a
/// nanosecond per packet.
pub(super) const RULES: usize = 128;

/// Receive queues of one thread. Reason: the thread waits for all of them with one list.
pub(super) const QUEUES_PER_THREAD: usize = crate::sys::xdp::SOCKETS_PER_WAIT;

/// Cached neighbours: sets, and places of each. Reason: a peer must not be forgotten while its packet
/// waits for an answer among 4096 others, each from an invented address. They take 512 KiB.
pub(super) const NEIGHBOUR_SETS: usize = 4096;
pub(super) const NEIGHBOUR_WAYS: usize = 4;

/// Requests to the kernel per epoch; beyond them, the source of received frames must do. Reason:
/// each costs about 5 us, and a flood from invented addresses may cost at most 1 % of the time.
pub(super) const QUESTIONS_PER_EPOCH: u32 = 10_000;

/// Requests of them that only addresses get of which no frame was seen. Reason: without one such a
/// peer gets no packet at all, and a flood must not use up what it needs.
pub(super) const QUESTIONS_FOR_UNSEEN: u32 = 1000;

/// Addresses that the kernel may be made to resolve per epoch. Reason: it keeps an entry for each,
/// 1024 in all by default, looks through all of them once they are that many, and asks the whole
/// network three times.
pub(super) const RESOLUTIONS_PER_EPOCH: u32 = 256;

/// Resolutions of them that only addresses get of which no frame was seen. Reason: the others can be
/// sent to without, and a flood from invented addresses of this network would use up all.
pub(super) const RESOLUTIONS_FOR_UNSEEN: u32 = 192;

/// How long the kernel's reply about a neighbour is valid. Reason: a neighbour that changes its
/// card is found again before TCP gives up.
pub(super) const EPOCH: Duration = Duration::from_secs(5);

/// Pause between two looks at whether a neighbour has answered. Reason: a network answers within
/// one or two milliseconds.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How often a busy link checks its waker. Reason: a check is a system call.
pub(super) const WAKE_LOOK: Duration = Duration::from_millis(1);

/// How long a closing socket may hold a queue, and a leaving program an interface. Reason: the
/// kernel needs a moment for both, longer while a process that is being started still has copies of
/// the descriptors.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Lifetime of an address that we add to an interface, seconds: how long it outlives a killed
/// process. Reason: a thread without a CPU for seconds still renews it in time.
pub(super) const ADDRESS_LIFE_S: u32 = 30;

/// How often it is renewed.
pub(super) const ADDRESS_RENEWAL: Duration = Duration::from_secs(10);

/// How long a peer's MAC address is resolved before anything is sent. Reason: ARP tries three
/// times, a second apart.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(3);

/// How often a busy link reads notifications about the interface. Reason: a read is a system call;
/// a link that waits is woken at once.
pub(super) const LOOK_FOR_NEWS: Duration = Duration::from_millis(10);

/// Unread reports to the operator, at most. Reason: an interface may go up and down all night.
pub(super) const SAID: usize = 16;

/// How often the state of a link that is down is read without a notification.
pub(super) const DOWN_LOOK: Duration = Duration::from_millis(100);

/// Connections of the kernel's that a lender knows. Reason: these are they that begin while the kernel
/// serves, for a second or until a worker's last connection ends. Each takes about 80 bytes of the kernel.
pub(super) const KERNELS_FLOWS: u32 = 1 << 16;

/// How often a lender looks which of them have ended. Reason: a listing costs milliseconds.
pub(super) const SWEEP: Duration = Duration::from_secs(1);

/// Connections of borrowers that a lender knows. Reason: as above; a full map forgets the one that was not
/// begun for longest.
pub(super) const LENT_FLOWS: u32 = 1 << 16;

/// When the peers of a process that has ended are asked a second time. Reason: their first answers may reach
/// its socket while it is being closed, and Linux answers such segments twice a second.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(600);

/// Old processes per share of the queues that may still have connections beside those that serve now. Reason:
/// each has an interface of its own; nginx is rarely reloaded so often within the life of a connection.
pub(super) const GENERATIONS: usize = 4;

/// How long a queue may stay busy after its last process has left it. Reason: a killed process on a busy machine
/// takes seconds to end, and the kernel closes sockets later still.
pub(super) const LEAVING: Duration = Duration::from_secs(20);
