//! A thread that moves packets while no thread of the program waits: a peer gets its acknowledgements,
//! and timers go on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::process;

/// How often it looks. Reason: far shorter than a retransmission timeout, 200 ms.
const LOOK: Duration = Duration::from_millis(5);
/// Looks at a waiting program after which it sleeps until that ends.
const QUIET_LOOKS: u32 = 20;

static THREAD: OnceLock<Thread> = OnceLock::new();
static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Starts it.
pub(crate) fn start() {
    let started = thread::Builder::new().name("linerate-bypass".to_owned()).spawn(|| {
        crate::kernel::block_signals();
        run();
    });
    match started {
        Ok(handle) => drop(THREAD.set(handle.thread().clone())),
        Err(error) => crate::messages::tell(&format!(
            "no thread can be started, so connections stand still while the program computes: {error}"
        )),
    }
}

/// A thread of the program has waited, and does not any more.
pub(crate) fn wake() {
    if SLEEPS.load(Ordering::Relaxed)
        && SLEEPS.swap(false, Ordering::AcqRel)
        && let Some(thread) = THREAD.get()
    {
        thread.unpark();
    }
}

fn run() {
    let (mut turns, mut quiet) = (0, 0);
    loop {
        thread::sleep(LOOK);
        let looked = process::with_world(|world| {
            if world.waiters.has_driver() {
                quiet = if turns == world.turns { quiet + 1 } else { 0 };
            } else {
                quiet = 0;
                if turns == world.turns {
                    world.turn_now();
                }
            }
            turns = world.turns;
            if quiet > QUIET_LOOKS {
                SLEEPS.store(true, Ordering::Release);
            }
            Ok(())
        });
        if looked.is_err() {
            return;
        }
        while SLEEPS.load(Ordering::Acquire) {
            thread::park();
        }
    }
}
