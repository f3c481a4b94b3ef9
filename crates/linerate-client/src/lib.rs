//! HTTP clients, sans-IO: told what comes and what time it is, they say what becomes of requests.

mod failure;
mod limits;
mod pool;
mod stamp;

pub use failure::Failure;
pub use pool::{
    Decision, End, Learnt, Loss, Opening, Resend, Unanswered, Waiting, connect_failure, connect_words, decide,
};
pub use stamp::Stamp;
