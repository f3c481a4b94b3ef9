//! Stages on top of a link, as options ask for them.

use std::sync::Arc;

use super::{Link, fault, pcap};

/// Optional stages on top of a link. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Middlewares {
    /// Faults to apply.
    pub fault: Option<fault::FaultOptions>,
    /// File that packets are recorded in.
    pub pcap: Option<Arc<pcap::PcapFile>>,
}

impl Middlewares {
    /// True if the stack can use the bare link.
    pub fn is_nothing(&self) -> bool {
        self.fault.is_none() && self.pcap.is_none()
    }

    /// Wraps the `nth` of several links with the configured stages. Faults belong to the network,
    /// so the capture records what a host on that network sees.
    pub fn over<L: Link>(&self, link: L, nth: usize) -> pcap::Pcap<fault::FaultyLink<L>> {
        let faults = self.fault.unwrap_or_default().for_link(nth);
        pcap::Pcap::new(fault::FaultyLink::new(link, faults), self.pcap.clone())
    }
}
