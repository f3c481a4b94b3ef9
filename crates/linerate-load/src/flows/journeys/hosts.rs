//! The hosts that users' requests go to. With several, users between two iterations wait at none of them.

use linerate_base::Time;
use linerate_net::Conn;

use super::{JourneyState, Journeys};
use crate::extract::jar::CookieHost;
use crate::flows::user::{JourneyUser, UserQueue};
use crate::plan::Plan;
use crate::plan::flow::FlowHost;
use crate::plan::limits::{MAX_GROUP, USER_CONNECTIONS};

/// A host that requests go to, and the users whose next request does.
#[derive(Debug)]
pub(super) struct JourneyHost {
    pub(super) cookies: CookieHost,
    pub(super) authority: String,
    /// Whether connections have streams, once that is known.
    pub(super) streams: Option<bool>,
    /// Users that may send.
    pub(super) due: UserQueue,
    /// Users that need a connection first.
    pub(super) unbound: UserQueue,
    /// Users whose connection takes nothing now, and will.
    pub(super) held: Vec<(Time, u32, u64)>,
    /// Connections whose user is gone.
    pub(super) released: Vec<Conn>,
}

impl JourneyHost {
    /// A host of a plan, by its number.
    pub(super) fn of(plan: &Plan, number: usize) -> JourneyHost {
        let FlowHost { target, tls, .. } = plan.host(number);
        JourneyHost {
            cookies: CookieHost::of(&target.authority, tls.is_some()),
            authority: target.authority,
            streams: plan.has_streams_over(tls.is_some()),
            due: UserQueue::default(),
            unbound: UserQueue::default(),
            held: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Whether connections are known to have streams.
    pub(super) fn has_streams(&self) -> bool {
        self.streams == Some(true)
    }

    /// Requests of one user that may be in flight at once.
    pub(super) fn at_once(&self) -> usize {
        match self.streams {
            Some(true) => MAX_GROUP,
            Some(false) => USER_CONNECTIONS,
            // The first connection tells.
            None => 1,
        }
    }

    pub(super) fn next_bound(&mut self, users: &[JourneyUser]) -> Option<Time> {
        self.due.first(users).map(|(due, _)| due)
    }

    pub(super) fn next_unbound(&mut self, users: &[JourneyUser]) -> Option<Time> {
        self.unbound.first(users).map(|(due, _)| due)
    }

    /// Takes a user that waits, whenever it is due.
    pub(super) fn pop_waiting(&mut self, users: &[JourneyUser]) -> Option<(Time, u32)> {
        self.held.drain(..).for_each(|held| self.due.push(held));
        self.due.pop(users).or_else(|| self.unbound.pop(users))
    }
}

impl Journeys {
    /// Where there are several hosts: users that are due begin their iteration, which says to which host their first
    /// request goes.
    pub(crate) fn sort_out(&self, now: Time) {
        let mut state = self.lock();
        while let Some(due) = state.next_beginning().filter(|due| *due <= now) {
            let user = match state.pop_resting(due) {
                Some(user) => user,
                None => state.arrive(),
            };
            if state.begin(user, due) {
                state.enqueue(user, due);
            }
        }
    }

    /// Whether more users than these are due at this host and have not sent.
    pub(crate) fn are_more_due(&self, now: Time, than: u32) -> bool {
        let state = self.lock();
        let host = &state.hosts[self.host];
        let due = host.due.due_by(now, &state.users).chain(host.unbound.due_by(now, &state.users));
        due.take(than as usize + 1).count() > than as usize
    }
}

impl JourneyState {
    /// When the next user begins whose first host is not known before.
    pub(super) fn next_beginning(&mut self) -> Option<Time> {
        let may = self.hosts.len() > 1 && !self.stopped;
        let arrival = self.next_arrival().filter(|_| may);
        self.resting.first(&self.users).map(|(due, _)| due).into_iter().chain(arrival).min()
    }

    /// Takes the user between two iterations that is due at this time.
    pub(super) fn pop_resting(&mut self, due: Time) -> Option<u32> {
        self.resting.first(&self.users).filter(|(first, _)| *first == due)?;
        let (_, user) = self.resting.pop(&self.users)?;
        self.users[user as usize].ticket = None;
        Some(user)
    }
}
