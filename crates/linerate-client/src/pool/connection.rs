//! One connection of a pool.

use linerate_net::{Conn, Time};

use crate::conversation::Conversation;

/// One connection of a pool; `X`: what the owner keeps beside it.
#[derive(Debug)]
pub struct PooledConnection<C, X> {
    /// The transport's name for it.
    pub conn: Conn,
    /// When `connect` was called.
    pub since: Time,
    /// Requests may pass.
    pub established: bool,
    /// Its protocol.
    pub conversation: C,
    /// The owner's own data for this connection.
    pub beside: X,
    /// Requests it may still carry.
    pub(super) budget: u32,
    /// Requests it may have in flight.
    pub(super) depth: u32,
    /// Responses when a request that goes out again was put at the front.
    pub(super) again_at: Option<u32>,
    /// It takes nothing new until it is idle.
    pub(super) drains: bool,
    /// Noted as ready.
    pub(super) listed: bool,
    /// Its owner needs it no more, though the server would take more requests.
    pub given_up: bool,
}

impl<C: Conversation, X: Default> PooledConnection<C, X> {
    pub(super) fn new(conn: Conn, since: Time, conversation: C, budget: u32, depth: u32) -> Self {
        PooledConnection {
            conn,
            since,
            established: false,
            conversation,
            beside: X::default(),
            budget,
            depth,
            again_at: None,
            drains: false,
            listed: false,
            given_up: false,
        }
    }
}

impl<C: Conversation, X> PooledConnection<C, X> {
    /// Requests it could take now, whether they have a body or not.
    #[inline]
    pub fn room(&self) -> u32 {
        self.room_for(true)
    }

    /// Requests it could take now, with or without a body.
    #[inline]
    pub fn room_for(&self, body: bool) -> u32 {
        if !self.established || (self.drains && self.conversation.in_flight() > 0) {
            return 0;
        }
        let free = self.depth.saturating_sub(self.conversation.in_flight());
        free.min(self.budget).min(self.conversation.room_for(body))
    }

    /// It carries no more than what is in flight, and then retires.
    pub fn take_no_more(&mut self) {
        (self.budget, self.given_up) = (0, true);
    }

    /// It takes nothing now, and will: it is about to be established, or others of its requests are in flight.
    pub fn waits(&self) -> bool {
        let is_open = self.budget > 0 && !self.conversation.is_leaving();
        is_open && self.room() == 0 && self.conversation.in_flight() > 0
    }

    /// It has carried all that it may, and each of its requests has its response.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.established && self.budget == 0 && self.conversation.in_flight() == 0
    }

    /// The peer takes no more requests on it, and nothing is in flight any more.
    pub fn is_left(&self) -> bool {
        self.established && self.conversation.is_leaving() && self.conversation.in_flight() == 0
    }

    /// It has carried one request at most.
    pub fn is_fresh(&self) -> bool {
        self.conversation.answers() <= 1
    }
}
