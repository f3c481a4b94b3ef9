//! Every limit of this link, with its reason.

use std::time::Duration;

/// Frames, and entries of the rings, for each direction of a queue. Reason: a thousand connections that all move at once are two
/// thousand packets; more would only be memory that falls out of the cache.
pub(super) const FRAMES: u32 = 2048;

/// Frames, and entries of the rings, for receiving in a flood. Reason: at 64,000 packets a second they hold what comes in 128 ms in
/// which the thread has no core; a real client whose SYN is lost asks again after a second.
pub(super) const FLOOD_FRAMES: u32 = 8192;

/// Shared memory of all queues with so many frames, at most, bytes. Reason: it is pinned; a card may have a hundred queues.
pub(super) const FLOOD_MEMORY: usize = 512 << 20;

/// Addresses and ports that packets are compared with one by one. Reason: it costs a nanosecond or so for each packet and rule.
pub(super) const RULES: usize = 128;

/// Receive queues of one thread. Reason: it waits for all of them with one list.
pub(super) const QUEUES_PER_THREAD: usize = crate::sys::xdp::SOCKETS_PER_WAIT;

/// Remembered neighbours. Reason: 4096 are 128 KiB, and a slot that is taken costs two questions to the kernel.
pub(super) const NEIGHBOUR_SLOTS: usize = 4096;

/// Questions to the kernel before what frames show must do. Reason: each costs about 5 us; a flood from invented addresses may
/// not cost more than a hundredth of the time.
pub(super) const QUESTIONS_PER_EPOCH: u32 = 10_000;

/// How long an answer of the kernel on neighbours holds. Reason: a neighbour that changes its card is found again before TCP gives up.
pub(super) const EPOCH: Duration = Duration::from_secs(5);

/// How long between two looks at whether a neighbour has answered. Reason: a network answers within a millisecond or two.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How often a busy link looks whether it was woken. Reason: a look is a system call.
pub(super) const WAKE_LOOK: Duration = Duration::from_millis(1);

/// How long a queue may be taken by a socket that closes, and an interface by a program that leaves. Reason: both take the kernel a
/// moment, longer while a process that is being started still has copies of the descriptors.
pub(super) const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Lifetime of an address that we give an interface, seconds: how long it stays after our death. Reason: renewed in time also
/// by a thread that was kept from its core for seconds.
pub(super) const ADDRESS_LIFE_S: u32 = 30;

/// How often it is renewed.
pub(super) const ADDRESS_RENEWAL: Duration = Duration::from_secs(10);

/// How long a peer's card is looked for before anything is sent. Reason: ARP tries three times, a second apart.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(3);

/// How often a busy link reads what the kernel has told of the interface. Reason: a read is a system call; one that waits hears at
/// once.
pub(super) const LOOK_FOR_NEWS: Duration = Duration::from_millis(10);

/// Changes that nobody has asked for yet, at most. Reason: an interface that goes up and down all night.
pub(super) const SAID: usize = 16;

/// How often an interface that is down is looked at without a word of the kernel.
pub(super) const DOWN_LOOK: Duration = Duration::from_millis(100);
