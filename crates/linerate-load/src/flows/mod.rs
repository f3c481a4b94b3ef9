//! Users that send one request after the other.
//!
//! * `journeys` is the machine: which user is at which step, its values and cookies, and when its
//!   next request is due. It does no I/O and reads no clock. `user` is one user of it, and `comings`
//!   says when users come.
//! * The requests of a group are due at once. Those of one user leave on up to six connections, or as
//!   streams of one. The next step begins when all have ended; a failure lets nothing more of the
//!   iteration leave, and the iteration ends when nothing of it is in flight.
//! * A user's next request enters the engine through the supply, which asks the machine what is due.
//!   It leaves on any free connection: there are as many connections as users, so that no user waits
//!   for another one's response.
//! * Requests keep the engine's numbers, and the machine knows which user a number in flight belongs
//!   to. The recorder alone counts requests (`sent = answered + failed + unknown`), and tells the
//!   machine how each of them ended.
//! * The cells of a template's row are the row of the data, then a user's values, then its cookies.
//! * Values and cookies of its responses come from `extract`.

mod comings;
pub(crate) mod hooks;
pub(crate) mod journeys;
#[cfg(test)]
mod tests;
mod user;
