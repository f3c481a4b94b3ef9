//! From received bytes to responses in order: everything that needs no transport.
//!
//! `read` turns bytes into requests, `handle` runs their handlers, and `respond` turns responses into
//! bytes.

mod alternatives;
mod handle;
mod log;
mod parts;
mod read;
mod respond;
mod streams;

pub(crate) use handle::forbidden;
pub(crate) use parts::HandlerWatch;

use std::rc::Rc;
use std::sync::Arc;

use linerate_http::server::{HeadReader, HeadWriter, HttpDate};
use linerate_net::{Conn, Time};

use crate::allowance::Allowance;
use crate::answer::{Asked, OrderedResponse};
use crate::connection::{ServedConnection, Work};
use crate::http2::StreamShared;
use crate::limits::{self, Limits};
use crate::message::unread::UnreadLedger;
use crate::notice::Misdirected;
use crate::stats::counts::ThreadCounts;
use crate::stats::meter::Meter;
use crate::tasks::{Tasks, WokenTasks};
use crate::waits::Waits;
use crate::{Address, Handler};

use self::alternatives::Alternatives;
use self::parts::{ClientAdmission, EngineDrain, ListenerAddresses, ResponseLog, SpareWorks};

/// One thread's HTTP: reads requests, runs handlers, keeps responses in order.
pub(crate) struct Engine<H: Handler> {
    handler: H,
    reader: HeadReader,
    writer: HeadWriter,
    pub(crate) tasks: Tasks<H::Future>,
    /// Bytes that the current connection will send.
    pub(crate) out: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) allowance: Allowance,
    /// Bytes of request bodies that wait for handlers.
    pub(crate) unread: Arc<UnreadLedger>,
    /// Bodies up to this size are copied behind their head.
    pub(crate) copied: usize,
    pub(crate) counts: Arc<ThreadCounts>,
    pub(crate) date: HttpDate,
    pub(crate) now: Time,
    pub(crate) places: ListenerAddresses,
    pub(crate) drain: EngineDrain,
    pub(crate) admission: ClientAdmission,
    /// Requests after which a connection is closed.
    pub(crate) close_after: Option<u32>,
    pub(crate) spare: SpareWorks,
    /// Connections whose body is read after its response by code that is not one of our tasks. Each
    /// is listed once.
    pub(crate) read_elsewhere: Vec<Conn>,
    pub(crate) log: ResponseLog,
    pub(crate) watch: HandlerWatch,
    pub(crate) misdirected: Option<Misdirected>,
    /// For metrics, if they are read.
    pub(crate) meter: Option<Meter>,
    pub(crate) alternatives: Alternatives,
    http2: StreamShared,
    /// Whether new connections may speak it.
    speaks_http2: bool,
    /// Number of connections by what they wait for.
    pub(crate) states: [u32; Waits::ALL.len()],
}

impl<H: Handler> Engine<H> {
    pub(crate) fn new(
        handler: H,
        limits: Limits,
        counts: Arc<ThreadCounts>,
        ready: Arc<WokenTasks>,
    ) -> Engine<H> {
        Engine {
            handler,
            reader: HeadReader::new(limits.request),
            writer: HeadWriter::default(),
            tasks: Tasks::new(ready),
            out: Vec::new(),
            limits,
            allowance: Allowance::default(),
            unread: Arc::default(),
            copied: limits::BODY_COPIED,
            counts,
            date: HttpDate::from_unix(0),
            now: Time::ZERO,
            places: ListenerAddresses::default(),
            drain: EngineDrain::default(),
            admission: ClientAdmission::default(),
            close_after: None,
            spare: SpareWorks::default(),
            read_elsewhere: Vec::new(),
            log: ResponseLog::default(),
            watch: HandlerWatch::default(),
            misdirected: None,
            meter: None,
            alternatives: Alternatives::default(),
            http2: StreamShared::new(&limits),
            speaks_http2: true,
            states: Default::default(),
        }
    }

    /// Changes the limits.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.reader = HeadReader::new(limits.request);
        self.http2 = StreamShared::new(&limits);
        self.limits = limits;
    }

    /// The address that accepted a connection.
    pub(crate) fn place(&self, c: &ServedConnection) -> Option<Rc<Address>> {
        self.places.of(c.listener)
    }

    /// Cancels the newest request's handler, if it still runs.
    fn cancel_last(&mut self, c: &mut ServedConnection) -> Option<Asked> {
        let work = c.work.as_mut()?;
        let Some(OrderedResponse::Waiting { task, .. }) = work.queue.back() else { return None };
        self.tasks.cancel(*task);
        match work.queue.pop_back() {
            Some(OrderedResponse::Waiting { asked, .. }) => Some(asked),
            _ => None,
        }
    }

    /// Cancels all tasks of a connection, or those in its queue from `from` on.
    pub(crate) fn cancel_from(&mut self, c: &mut ServedConnection, from: usize) {
        let Some(work) = &mut c.work else { return };
        while work.queue.len() > from
            && let Some(mut answer) = work.queue.pop_back()
        {
            if let Some(line) = answer.line().and_then(Option::take) {
                work.unlogged.push_back(line);
            }
            if let OrderedResponse::Waiting { task, .. }
            | OrderedResponse::Stream { task, .. }
            | OrderedResponse::File { task, .. } = answer
            {
                self.tasks.cancel(task);
            }
        }
    }

    /// The work area of a connection; takes a spare one if it has none.
    pub(crate) fn work<'c>(&mut self, c: &'c mut ServedConnection) -> &'c mut Work {
        c.work.get_or_insert_with(|| self.spare.take())
    }

    /// Takes back the work area of a connection if it is empty.
    pub(crate) fn rest(&mut self, c: &mut ServedConnection) {
        let idle = |w: &Work| {
            w.input.is_empty()
                && w.queue.is_empty()
                && w.body.is_none()
                && w.unlogged.is_empty()
                && w.http2.is_none()
        };
        if !c.work.as_ref().is_some_and(|w| idle(w)) {
            return;
        }
        if let Some(work) = c.work.take() {
            self.spare.keep(work);
        }
    }

    /// The connection that a task works for.
    pub(crate) fn owner(&self, task: u32) -> Option<Conn> {
        self.tasks.owner(task)
    }
}

#[cfg(test)]
mod tests;
