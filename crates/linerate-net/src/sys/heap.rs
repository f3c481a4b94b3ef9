//! glibc's heap, which keeps freed pages for reuse.

/// Returns free pages to the system; says whether there were any.
pub(crate) fn trim() -> bool {
    // SAFETY: no pointers. It takes each arena's lock, as an allocation does, and touches only free
    // memory.
    unsafe { libc::malloc_trim(0) != 0 }
}
