//! A request has its handler, polled in place: at once, and again whenever it was woken.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use linerate_http::server::{Framing, Method, RequestHead, Version, write_interim};
use linerate_net::Close;

use super::Engine;
use super::parts::ClientAdmission;
use crate::answer::{Asked, OrderedResponse};
use crate::clients::Admission;
use crate::connection::{NextBytes, ServedConnection};
use crate::message::body::RequestBody;
use crate::message::upgrade::{self, Offer};
use crate::tasks::Polled;
use crate::{Handler, Request, Response, limits};

impl<H: Handler> Engine<H> {
    /// Begins with a request; returns how much of `rest` its body has used.
    pub(super) fn request(&mut self, c: &mut ServedConnection, head: Rc<RequestHead>, rest: &[u8]) -> usize {
        c.requests = c.requests.saturating_add(1);
        c.progressed = true;
        self.counts.request();
        let mut asked = self.asked(c, &head);
        if !asked.keep {
            // The client asked to close and sends no more; or it may send more, and must still get the response.
            c.closing = Some(if head.keep_alive() { Close::Lingering } else { Close::Now });
        }
        let upgrades = upgrade::is_offered(&head);
        c.next = if upgrades { NextBytes::Undecided } else { NextBytes::Request };
        if head.method() == Method::Connect && !upgrades {
            // Content has no meaning here, and what follows may be no HTTP (RFC 9110 section 9.3.6).
            c.closing = Some(Close::Lingering);
            self.answer(c, &Asked { keep: false, ..asked }, Response::no_tunnel().closing());
            return 0;
        }
        let place = self.place(c);
        let route = self.handler.limits(&head, place.as_deref());
        c.set_write_time(route.write_time);
        let most = route.body.unwrap_or(self.limits.request.body);
        let (body, used) = match head.framing() {
            Framing::None => (RequestBody::default(), 0),
            Framing::Length(n) if n <= most.min(limits::BODY_WHOLE.into()) && n <= rest.len() as u64 => {
                let n = n as usize;
                (RequestBody::whole(Bytes::copy_from_slice(&rest[..n])), n)
            }
            framing => match self.incoming(c, (framing, &head), rest, route) {
                Ok(begun) => begun,
                Err(fault) => {
                    self.refuse(c, asked, fault);
                    return rest.len();
                }
            },
        };
        let behind = rest.len() - used;
        let whole = body.whole_bytes();
        if let Some(refusal) = self.refusal(c, asked.peer) {
            drop(body); // Nobody reads it.
            self.complete(c, &mut asked, refusal, behind);
            return used;
        }
        let request = Request::new(head, body, asked.peer)
            .by(place)
            .over_tls(c.tls.clone())
            .offering(upgrades.then(|| Offer::new(&self.drain.signal)));
        match self.call(request, &asked) {
            (_, Polled::Ready(response)) => self.complete(c, &mut asked, response, behind),
            (task, Polled::Pending) => {
                self.tasks.park(task, c.conn);
                self.watch_room(c, task);
                self.work(c).queue.push_back(OrderedResponse::Waiting { task, asked, body: whole });
            }
            (_, Polled::Panicked) => {
                let response = self.panicked();
                self.complete(c, &mut asked, response, behind);
            }
        }
        used
    }

    /// Starts the handler of a request, whatever protocol it came by.
    #[inline(always)]
    pub(super) fn call(&mut self, request: Request, asked: &Asked) -> (u32, Polled) {
        self.watch.enter();
        let handler = &self.handler;
        let started = self.tasks.start(|| handler.call(request));
        self.watch.leave(asked, &self.counts);
        started
    }

    /// The facts of a request that its response depends on.
    pub(super) fn asked(&self, c: &ServedConnection, head: &Rc<RequestHead>) -> Asked {
        let worn_out = self.close_after.is_some_and(|n| c.requests >= n);
        Asked {
            peer: self.admission.rules.client(head, c.peer),
            head: Some(Rc::clone(head)),
            http10: head.version() == Version::Http10,
            head_only: head.method() == Method::Head,
            keep: head.keep_alive() && !worn_out,
            line: Box::default(),
            began: self.now,
            tls: c.tls.clone(),
        }
    }

    /// The response to a request that its client may not send. `peer`: the client of the request.
    #[inline]
    pub(super) fn refusal(&self, c: &ServedConnection, peer: SocketAddr) -> Option<Response> {
        let ClientAdmission { rules, clients } = &self.admission;
        if rules.rate.is_none() && rules.access.is_open() {
            return None;
        }
        // Clients of a Unix socket have no address.
        let has_address = !peer.ip().is_unspecified() || !c.peer.ip().is_unspecified();
        if !rules.access.admits_peer(has_address.then_some(peer)) {
            return Some(forbidden());
        }
        let rate = rules.rate.filter(|_| !peer.ip().is_unspecified())?;
        clients.may_ask(peer.ip(), rate, self.now).err().map(too_many)
    }

    /// Counts a connection among those of its client; `false`: it is one too many.
    pub(crate) fn admit(&self, c: &mut ServedConnection) -> bool {
        let ClientAdmission { rules, clients } = &self.admission;
        let ip = c.peer.ip();
        let limited = !ip.is_unspecified() && !rules.trusts(ip);
        let Some(most) = rules.connections.filter(|_| limited) else { return true };
        let admission = clients.open(ip, most, self.now);
        c.counted = admission == Admission::Counted;
        admission != Admission::Refused
    }

    /// Wakes the task when there is room for more of the arriving body: its reader may run on another thread.
    pub(super) fn watch_room(&self, c: &ServedConnection, task: u32) {
        if let Some(body) = c.work.as_ref().and_then(|w| w.body.as_ref()) {
            body.progress.shared.set_source(self.tasks.waker(task));
        }
    }

    /// The response to the newest request is ready. If its body isn't all there, decides whether to read the rest.
    /// `behind`: bytes received after the request.
    fn complete(
        &mut self,
        c: &mut ServedConnection,
        asked: &mut Asked,
        mut response: Response,
        behind: usize,
    ) {
        if asked.head.as_ref().is_some_and(|head| head.method() == Method::Connect)
            && response.tunnel.is_none()
        {
            // Success would be a promise to pass on what follows, which is not HTTP.
            asked.keep = false;
            c.closing = Some(Close::Lingering);
            response = if response.status < 400 { Response::no_tunnel() } else { response }.closing();
        }
        if let Some(body) = c.work.as_ref().and_then(|w| w.body.as_ref()) {
            // A client that waits for 100 may or may not send the body now: only closing is safe (RFC 9110 section 10.1.1).
            let unwanted = body.progress.shared.is_abandoned();
            let left = body.announced.map_or(0, |n| n.saturating_sub(body.progress.received));
            if unwanted && (body.progress.expects_continue || left > limits::BODY_DISCARDED) {
                asked.keep = false;
                c.closing = Some(Close::Lingering);
                c.cut_body();
            }
        }
        self.ask_for_body(c);
        self.watch_reader(c);
        // If we are closing (the body was refused, say), this is the last response. If the peer only sent its FIN, keep-alive
        // stays: more requests may be buffered.
        asked.keep &= c.closing.is_none() || c.peer_ended;
        if asked.keep && self.drain.is_last(c.leaving, behind) {
            // Requests already received get a response even during a drain; this is the last one.
            asked.keep = false;
            c.closing.get_or_insert(Close::Lingering);
        }
        self.answer(c, asked, response);
    }

    /// The handler's task has ended, and its body may still be read elsewhere: reading then wakes the connection.
    fn watch_reader(&mut self, c: &mut ServedConnection) {
        let Some(body) = c.work.as_ref().and_then(|w| w.body.as_ref()) else { return };
        if body.progress.shared.is_abandoned() {
            return;
        }
        body.progress.shared.set_source(Some(self.tasks.room_made()));
        if !c.read_elsewhere {
            c.read_elsewhere = true;
            self.read_elsewhere.push(c.conn);
        }
    }

    /// Sends 100 (Continue) to a client that waits for it, where something other than the handler still reads the body:
    /// the response itself, say. It must precede the response: after that head it would be read as its body.
    fn ask_for_body(&mut self, c: &mut ServedConnection) {
        let direct = c.queue_is_empty();
        let Some(work) = &mut c.work else { return };
        let Some(body) = work.body.as_mut().map(|b| &mut b.progress).filter(|b| b.expects_continue) else {
            return;
        };
        body.expects_continue = false;
        if direct {
            write_interim(&mut self.out, 100);
            return;
        }
        let mut bytes = Vec::new();
        write_interim(&mut bytes, 100);
        work.queue.push_back(OrderedResponse::Bytes { bytes, last: false });
    }

    /// A parked handler was woken.
    pub(crate) fn poll_task(&mut self, c: &mut ServedConnection, task: u32) {
        let Some(work) = &mut c.work else { return };
        if work.http2.is_some() {
            return self.poll_stream(c, task);
        }
        let Some(place) = work.queue.waiting(task) else { return };
        let newest = place + 1 == work.queue.len();
        self.watch.enter();
        let polled = self.tasks.poll(task);
        if let Some(OrderedResponse::Waiting { asked, .. }) = work.queue.get(place) {
            self.watch.leave(asked, &self.counts);
        }
        let response = match polled {
            Polled::Pending => return,
            Polled::Ready(response) => response,
            Polled::Panicked => self.panicked(),
        };
        let Some(work) = &mut c.work else { return };
        // The response replaces its placeholder; those behind it are set aside meanwhile.
        let mut behind = work.queue.split_off(place);
        let Some(OrderedResponse::Waiting { mut asked, .. }) = behind.pop_front() else { return };
        c.progressed = true;
        if newest {
            let received = work.input.len();
            self.complete(c, &mut asked, response, received);
            return self.work(c).queue.close_files();
        }
        // The newest request may ask for an upgrade, which is still undecided: this response must not decide it.
        let next = c.next;
        let last = self.answer(c, &asked, response);
        if !last {
            c.next = next;
        }
        let place = c.work.as_ref().map_or(0, |w| w.queue.len());
        self.work(c).queue.append(behind);
        self.work(c).queue.close_files();
        if last {
            // Requests after the last response get none.
            c.cut_body();
            self.cancel_from(c, place);
        }
    }

    fn panicked(&mut self) -> Response {
        self.counts.panicked();
        Response::explained(500, "the handler failed").closing()
    }
}

/// The response to a client whose network is not served.
pub(crate) fn forbidden() -> Response {
    Response::explained(403, "this server does not answer to your address")
}

/// The response to a client above its request rate. The next request is admitted in `wait` seconds.
fn too_many(wait: u64) -> Response {
    let mut answer = Response::explained(429, "more requests than one client may send");
    let _ = answer.fields.add("retry-after", wait.to_string());
    answer
}
