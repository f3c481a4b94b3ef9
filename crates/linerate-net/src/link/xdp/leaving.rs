//! How a process leaves its queues to another one, and goes on by its detour.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::sys::{memory_file, passing};

use super::Xdp;
use super::detour::DetourStep;
use super::flow_key::{FLOW_KEY, flow_key};
use super::limits::LENT_FLOWS;
use super::loan::kind;

impl Xdp {
    /// Whether the lender wants the queues back, and waits for [`Xdp::give_queues_back`].
    pub fn is_asked_for_queues(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.step == DetourStep::Offered)
    }

    /// Whether packets come by receive queues.
    pub fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Tells the lender which connections there are: by peers and ports of ours. Their frames come another way
    /// from now on, and those of others not at all. The queues are closed once they are empty.
    ///
    /// # Errors
    /// The lender has ended.
    pub fn give_queues_back(&mut self, flows: &[(SocketAddr, u16)]) -> io::Result<()> {
        let keys: Vec<u8> =
            flows.iter().take(LENT_FLOWS as usize).flat_map(|(peer, port)| flow_key(*peer, *port)).collect();
        let file = memory_file(flows.len().min(LENT_FLOWS as usize) * FLOW_KEY)?;
        let mut file = File::from(file);
        file.write_all(&keys)?;
        if let (Some(lender), Some(detour)) = (self.shared.lender(), &mut self.detour) {
            passing::send(lender, &[kind::FLOWS], &[file.as_fd()])?;
            detour.step = DetourStep::Told;
        }
        Ok(())
    }

    /// Closes the queues if all frames have been read that came by them.
    pub(super) fn leave_queues(&mut self) -> io::Result<()> {
        let Some(detour) = self.detour.as_mut().filter(|detour| detour.step == DetourStep::Begun) else {
            return Ok(());
        };
        if self.queues.iter_mut().any(|queue| queue.has_received()) {
            return Ok(());
        }
        detour.step = DetourStep::Alone;
        self.queues.clear();
        self.shared.lender().map_or(Ok(()), |lender| passing::send(lender, &[kind::FREE], &[]))
    }
}
