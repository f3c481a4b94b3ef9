//! How users go through the steps of their flows.

use std::time::Duration;

use linerate_base::Time;

use super::{JourneyState, StepRun};
use crate::extract::redirect;
use crate::flows::user::{BrokenIteration, StepFlight, StepRequest};
use crate::outcome::FlowFigures;

impl JourneyState {
    /// The requests of a step, or of a group, are due at this time.
    pub(super) fn begin_step(&mut self, user: u32, due: Time) {
        let entry = &mut self.users[user as usize];
        let Some(place) = entry.at else { return };
        let steps = &self.flows[place.flow].steps;
        let members = place.step..place.step + steps[place.step].group;
        if members.is_empty() {
            entry.pending.push_back(StepRequest::of(place.step, steps[place.step].host, due));
        }
        for step in members {
            let host = steps[step].host;
            entry.pending.extend((0..steps[step].repeat).map(|_| StepRequest::of(step, host, due)));
        }
    }

    /// A request of a user ended. Once all of its step or group did, it goes on, or its iteration fails.
    pub(super) fn go_on(&mut self, user: u32, now: Time) {
        let entry = &self.users[user as usize];
        if !entry.pending.is_empty() {
            return self.queue(user, now);
        }
        if entry.flying > 0 {
            return;
        }
        if entry.broken.is_some() || entry.halted { self.finish(user, now) } else { self.advance(user, now) }
    }

    /// A step or a group went well: to the next one.
    pub(super) fn advance(&mut self, user: u32, now: Time) {
        let entry = &mut self.users[user as usize];
        let Some(place) = &mut entry.at else { return };
        let flow = &self.flows[place.flow];
        let first = &flow.steps[place.step];
        // Whatever came first, values are those of the last step that takes them.
        entry.taken.sort_by_key(|(step, _)| *step);
        for (step, values) in entry.taken.drain(..) {
            for (place, value) in flow.steps[step].values.iter().zip(values) {
                entry.cells[self.data_cells + place] = value.into();
            }
        }
        let members = first.group.max(1);
        let pause = flow.steps[place.step + members - 1].think.next(&mut entry.random);
        place.made += 1;
        if first.group > 0 || place.made >= first.repeat {
            (place.step, place.made) = (place.step + members, 0);
        }
        if place.step == flow.steps.len() {
            let (flow, took) = (place.flow, now - entry.since);
            if let Some(figures) = self.leave(user, flow) {
                figures.done += 1;
                figures.duration.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), 1);
            }
            return self.rest(user, now + pause);
        }
        self.begin_step(user, now + pause);
        self.queue(user, now + pause);
    }

    /// The kind of a request. Those that follow redirects come behind the usual ones and those with cookies.
    pub(super) fn kind_of(&self, user: u32, request: &StepRequest) -> u16 {
        let flow = self.users[user as usize].at.map_or(0, |place| place.flow);
        let form = if request.redirects == 0 { 0 } else { 2 + 2 * u16::from(request.by_get) };
        self.flows[flow].steps[request.step].request + form * self.requests
    }

    /// A request was redirected.
    pub(super) fn follow(&mut self, flight: StepFlight, (to, by_get): (&[u8], bool), now: Time) {
        let StepFlight { user, mut request, target, .. } = flight;
        let entry = &mut self.users[user as usize];
        let Some(place) = entry.at.filter(|_| entry.broken.is_none() && !entry.halted) else { return };
        let flow = &mut self.flows[place.flow];
        let most = flow.steps[request.step].follow;
        if request.redirects == most {
            let why = format!("more than {most} redirects");
            return self.break_off(user, (request.step, &why), Duration::ZERO);
        }
        let hosts: Vec<_> =
            self.hosts.iter().map(|host| (host.cookies.is_https, host.authority.as_str())).collect();
        let (host, target) = match redirect::resolve(to, &target, request.host, &hosts) {
            Ok(found) => found,
            Err(why) => return self.break_off(user, (request.step, &why), Duration::ZERO),
        };
        request.redirects += 1;
        request.host = host;
        request.by_get |= by_get;
        request.location = target.strip_prefix(b"/").unwrap_or(&target).into();
        request.due = now;
        flow.figures.redirects += u64::from(entry.since >= self.measure_from);
        if entry.next_host() != host {
            // It waits at the wrong host.
            entry.ticket = None;
        }
        entry.pending.push_front(request);
    }

    /// The iteration of a user fails once what is in flight has ended: nothing more of it leaves. The first reason counts.
    pub(super) fn break_off(&mut self, user: u32, (step, why): (usize, &str), pause: Duration) {
        let entry = &mut self.users[user as usize];
        let Some(place) = entry.at else { return };
        if let Some(broken) = &mut entry.broken {
            broken.pause = broken.pause.max(pause);
            return;
        }
        let steps = &self.flows[place.flow].steps;
        let all = |steps: &[StepRun]| steps.iter().map(|step| u64::from(step.repeat)).sum::<u64>();
        let first = &steps[place.step];
        let skipped = match first.group {
            0 => all(&steps[place.step..]) - u64::from(place.made) - 1,
            members => {
                let unsent = entry.pending.iter().filter(|request| request.redirects == 0).count();
                all(&steps[place.step + members..]) + unsent as u64
            }
        };
        let cause = format!("{}: {why}", steps[step].name);
        entry.broken = Some(BrokenIteration { cause, skipped, pause });
        entry.pending.clear();
        entry.ticket = None;
    }

    /// The iteration of a user ends before its last step: it failed, or the run is over.
    pub(super) fn finish(&mut self, user: u32, now: Time) {
        let entry = &mut self.users[user as usize];
        let Some(place) = entry.at else { return };
        let Some(BrokenIteration { cause, skipped, pause }) = entry.broken.take() else {
            if let Some(figures) = self.leave(user, place.flow) {
                figures.stopped += 1;
            }
            return self.rest(user, now);
        };
        let took = now.nanos_since(entry.since);
        if let Some(figures) = self.leave(user, place.flow) {
            figures.failed += 1;
            figures.waited.record(took, 1);
            figures.skipped += skipped;
            figures.note(&cause, 1);
        }
        self.rest(user, now + pause);
    }

    /// The run is over before what is left of a user's iteration.
    pub(super) fn halt(&mut self, user: u32) {
        let entry = &mut self.users[user as usize];
        entry.halt();
        if entry.flying == 0 {
            self.finish(user, Time::ZERO);
        }
    }

    /// The iteration of a user is over. Returns the figures that it counts in, if it does.
    pub(super) fn leave(&mut self, user: u32, flow: usize) -> Option<&mut FlowFigures> {
        let user = &mut self.users[user as usize];
        user.at.take()?;
        user.taken.clear();
        user.halted = false;
        self.active -= 1;
        user.release().for_each(|(host, conn)| self.hosts[host].released.push(conn));
        (user.since >= self.measure_from).then(|| &mut self.flows[flow].figures)
    }
}
