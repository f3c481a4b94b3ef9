//! When connections are opened, how many requests they carry, and what becomes of requests whose
//! connection has ended.

mod learnt;
mod loss;
mod opening;
mod resend;

pub use learnt::Learnt;
pub use loss::{Loss, Waiting, connect_failure, connect_words};
pub use opening::Opening;
pub use resend::{Decision, End, Resend, Unanswered, decide};
