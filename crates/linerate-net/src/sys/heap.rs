//! glibc's heap, which keeps freed pages for later.

/// Gives pages that hold nothing back to the system; whether there were any.
pub(crate) fn trim() -> bool {
    // SAFETY: no pointers. It takes each arena's lock, as allocating does, and touches free memory alone.
    unsafe { libc::malloc_trim(0) != 0 }
}
