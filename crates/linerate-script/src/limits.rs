//! What a script may use, at most.

use std::time::Duration;

/// Bytes of JavaScript's own memory in one user.
pub(crate) const USER_MEMORY: usize = 512 << 20;

/// Bytes of a user's stack. Only the pages that it touches take memory.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// Bytes of it that JavaScript may take. Reason: the functions that it calls need the rest.
pub(crate) const SCRIPT_STACK: usize = 384 << 10;

/// How long a script may run without a request or a pause. Reason: other users of its thread wait meanwhile.
pub const LONGEST_RUN: Duration = Duration::from_secs(10);

/// Metrics of a script's own.
pub(crate) const CUSTOM_METRICS: usize = 1000;

/// Checks told apart by group and name.
pub(crate) const CHECKS: usize = 10_000;

/// Groups told apart.
pub(crate) const GROUPS: usize = 1000;

/// How long a hook of a plan may run. Reason: requests of other users wait meanwhile.
pub const LONGEST_HOOK: Duration = Duration::from_secs(1);

/// Bytes of JavaScript's own memory for the hooks of a plan, in each thread.
pub const HOOKS_MEMORY: usize = 64 << 20;

/// Modules that one script loads.
pub(crate) const MODULES: usize = 1000;

/// Bytes of a file that a script opens or imports.
pub const FILE_BYTES: u64 = 256 << 20;

/// Requests of one `http.batch`.
pub(crate) const BATCH: usize = 10_000;

/// Buckets of a trend.
pub(crate) const TREND_BUCKETS: usize = 50_000;

/// Cookies of a user.
pub(crate) const COOKIES: usize = 3000;

/// Cookie jars that a script makes within one iteration.
pub(crate) const JARS: usize = 1000;

/// Bytes of one cookie.
pub(crate) const COOKIE_BYTES: usize = 8192;
