//! QUIC as a transport: connections whose bytes are records of streams.

mod outgoing;
pub(crate) mod records;
#[cfg(test)]
mod tests;
mod totals;
mod transport;

pub use totals::QuicTotals;
pub use transport::{QuicTransport, QuicWay};
