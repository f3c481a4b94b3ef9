//! Whether the kernel supports what the io_uring transport needs, found by trying.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::{IoUring, opcode};

use super::ring::{Gift, Receive, Ring, RingOptions, Tag, Target};

/// The step that the kernel refused, in the order they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RingCheckStep {
    /// Creating a ring.
    Ring,
    /// A ring that runs its work only if its thread asks (deferred task run).
    Deferred,
    /// Buffers that the kernel picks from.
    Buffers,
    /// A multishot receive.
    Multishot,
}

/// Optional features of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Making an ordinary descriptor of a direct one.
    pub(crate) install: bool,
    /// Setting socket options on direct descriptors.
    pub(crate) options: bool,
}

/// Tries every step.
pub(crate) fn check_ring() -> Result<Extras, (RingCheckStep, io::Error)> {
    let plain: io::Result<IoUring> = IoUring::new(2);
    drop(plain.map_err(|e| (RingCheckStep::Ring, e))?);
    let deferred: io::Result<IoUring> =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().build(2);
    drop(deferred.map_err(|e| (RingCheckStep::Deferred, e))?);
    let options = RingOptions { buffers: 2, buffer_bytes: 64, buffers_at_first: 2 };
    let mut ring = Ring::new(&options).map_err(|e| (RingCheckStep::Buffers, e))?;
    check_multishot(&mut ring).map_err(|e| (RingCheckStep::Multishot, e))?;
    Ok(Extras {
        install: ring.installs(),
        // The SetSockOpt request predates the command it carries, which came one version before
        // FixedFdInstall.
        options: ring.knows(opcode::SetSockOpt::CODE) && ring.installs(),
    })
}

fn check_multishot(ring: &mut Ring) -> io::Result<()> {
    use std::io::Write;
    let (mut there, here) = UnixStream::pair()?;
    let tag = Tag { kind: 1, slot: 0 };
    let how = Receive { once: false, nothing_yet: false };
    ring.receive(tag, Target::Plain(here.as_raw_fd()), how);
    for _ in 0..2 {
        there.write_all(b"x")?;
        ring.enter(1, Some(Duration::from_secs(1)))?;
        let Some(done) = ring.next() else { return Err(io::ErrorKind::TimedOut.into()) };
        match done.gift {
            Gift::Buffer(id) if done.result == 1 && done.more => ring.buffers().give_back(id),
            _ if done.result < 0 => return Err(io::Error::from_raw_os_error(-done.result)),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
    }
    Ok(())
}
