//! packetdrill over user-space TCP. packetdrill plays scripts against a TCP: it makes system calls as an application would, and
//! looks at packets as a peer would. Here both go to a [`Stack`](linerate_net::stack::Stack) in the same process, and so does the
//! clock: a script of a minute takes milliseconds, and nothing depends on how busy the machine is.
//!
//! packetdrill itself is not changed. It is linked with `--wrap` for the functions of C's library that [`abi::WRAPPED`] names, so
//! that its calls come to the functions in [`abi`]; those turn pointers into values and ask [`world`].

#[allow(unsafe_code)]
pub mod abi;
pub mod adapt;
mod limits;
mod shell;
mod socket;
mod wire;
pub mod world;
