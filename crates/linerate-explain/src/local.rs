//! A server's process on this machine, from outside: what its threads do and wait for. Pure functions over what the kernel's files
//! say; who reads them is [`crate::driver`].

/// What was seen of a process while calls were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Its number.
    pub pid: u32,
    /// Sentences about it that are evidence.
    pub facts: Vec<String>,
}
