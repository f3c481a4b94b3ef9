//! TCP and QUIC as two ways to one server, each connection by one of them: a transport over both, and a conversation of
//! either.

mod conversation;
mod transport;

pub(super) use conversation::{DualConversation, DualShared};
pub(super) use transport::DualTransport;
