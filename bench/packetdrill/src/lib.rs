//! packetdrill over user-space TCP. packetdrill plays scripts against a TCP: it makes system calls
//! as an application would, and sends and checks packets as a peer would. Here both go to a
//! [`Stack`](linerate_net::stack::Stack) in the same process, as does the clock. A script of a
//! minute takes milliseconds, and a busy machine does not affect the result.
//!
//! packetdrill itself is unchanged. It is linked with `--wrap` for the functions that
//! [`abi::WRAPPED`] names, so that its calls reach the functions in [`abi`]. Those convert pointers
//! to values and call [`world`].

#[allow(unsafe_code)]
pub mod abi;
pub mod adapt;
mod limits;
mod shell;
mod socket;
mod wire;
pub mod world;
