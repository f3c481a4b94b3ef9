//! The library that `linerate bypass` preloads: it stands between a program and the C library's
//! functions on descriptors. Connections to the addresses of [`CONFIGURATION`] are in user space, over
//! AF_XDP; all other descriptors go to the kernel untouched.
//!
//! `abi` has the C functions, `kernel` the calls below them, `table` says which descriptors are
//! ours, `world` has the connections, `waiting` the calls that wait. docs/BYPASS.md says what is
//! absent.

#[allow(unsafe_code)]
mod abi;
mod caretaker;
mod claim;
#[allow(unsafe_code)]
mod kernel;
mod messages;
mod options;
mod polling;
mod process;
mod table;
mod tally;
mod transfer;
mod waiters;
mod waiting;
mod world;

/// Names the environment variable with the interface, the descriptor by which the launcher is asked for
/// receive queues, and the addresses: `IF;DESCRIPTOR;ADDR:PORT,ADDR:PORT`.
/// Without it, all descriptors are the kernel's.
pub const CONFIGURATION: &str = "LINERATE_BYPASS";

/// What the launcher looks for in the file: the version that it must have itself.
#[used]
pub static MARK: [u8; MARKED.len()] = *MARKED;

const MARKED: &[u8; concat!("linerate-bypass version ", env!("CARGO_PKG_VERSION"), ";").len()] =
    match concat!("linerate-bypass version ", env!("CARGO_PKG_VERSION"), ";").as_bytes().first_chunk() {
        Some(mark) => mark,
        None => panic!("its own length"),
    };
