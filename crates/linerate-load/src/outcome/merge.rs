//! Merging: what several cores, processes or machines measured becomes one outcome. Counts add up, histograms merge exactly.

use super::{
    Bad, Bytes, ClientFigures, Connections, Failure, Failures, FlowFigures, Latency, Lookups, NamedFigures,
    Outcome, Requests, Segments, Snapshot, Tcp, Window,
};

impl Lookups {
    fn merge(&mut self, other: &Lookups) {
        self.again += other.again;
        self.changed += other.changed;
        self.failed += other.failed;
        if self.addresses.is_empty() {
            self.addresses.clone_from(&other.addresses);
        }
    }
}

impl Outcome {
    /// Adds what another part of the same run measured. `series` and `duration` belong to the whole run: the longer stays.
    pub fn merge(&mut self, other: &Outcome) {
        self.started_at = match (self.started_at, other.started_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.duration = self.duration.max(other.duration);
        self.window.merge(&other.window);
        self.arrived += other.arrived;
        self.requests.merge(&other.requests);
        self.bad.merge(&other.bad);
        self.failures.merge(&other.failures);
        for (status, n) in &other.status {
            *self.status.entry(*status).or_default() += n;
        }
        self.bytes.merge(&other.bytes);
        self.merge_handshakes(other);
        self.http.merge(&other.http);
        match (&mut self.quic, &other.quic) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.quic = *theirs,
            (Some(_), None) => {}
        }
        self.merge_addresses(other);
        match (&mut self.lookups, &other.lookups) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.lookups.clone_from(theirs),
            (Some(_), None) => {}
        }
        if self.line.is_none() {
            self.line.clone_from(&other.line);
        }
        self.latency.merge(&other.latency);
        self.connections.merge(&other.connections);
        match (&mut self.down, &other.down) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.down.clone_from(theirs),
            (Some(_), None) => {}
        }
        match (&mut self.quiet, &other.quiet) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.quiet.clone_from(theirs),
            (Some(_), None) => {}
        }
        self.tcp.merge(&other.tcp);
        self.client.merge(&other.client);
        self.merge_flows(other);
        for (name, named) in &other.by_name {
            self.by_name.entry(name.clone()).or_default().merge(named);
        }
        self.samples.extend_from_slice(&other.samples);
        for warning in &other.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        if self.io.is_empty() {
            self.io.clone_from(&other.io);
        }
        self.interrupted |= other.interrupted;
        if self.aborted.is_none() {
            self.aborted.clone_from(&other.aborted);
        }
        self.saved.extend_from_slice(&other.saved);
        if self.broken.is_none() {
            self.broken.clone_from(&other.broken);
        }
        longer(&mut self.series, &other.series);
        longer(&mut self.series_fine, &other.series_fine);
        longer(&mut self.first_connection, &other.first_connection);
    }

    /// Adds another's handshakes. What they refute is no longer supposed of requests that failed.
    fn merge_handshakes(&mut self, other: &Outcome) {
        match (&mut self.tls, &other.tls) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.tls.clone_from(theirs),
            (Some(_), None) => {}
        }
        if let Some(tls) = &self.tls {
            self.failures.retell(|why| tls.told(why));
        }
    }

    /// Adds another's counts by address, by gRPC's status and by flaw of heads.
    fn merge_addresses(&mut self, other: &Outcome) {
        for (address, counts) in &other.addresses {
            let mine = self.addresses.entry(*address).or_default();
            mine.opened += counts.opened;
            mine.failed += counts.failed;
            if mine.why.is_empty() {
                mine.why.clone_from(&counts.why);
            }
        }
        for (status, n) in &other.grpc_status {
            *self.grpc_status.entry(*status).or_insert(0) += n;
        }
        for (flaw, n) in &other.tolerated {
            *self.tolerated.entry(flaw.clone()).or_insert(0) += n;
        }
    }
}

/// Takes the other list if it is longer.
fn longer<T: Clone>(mine: &mut Vec<T>, theirs: &Vec<T>) {
    if mine.len() < theirs.len() {
        mine.clone_from(theirs);
    }
}

impl Window {
    /// Adds what came to another part of the same run: the longer time stays.
    pub fn merge(&mut self, other: &Window) {
        self.answered += other.answered;
        self.bytes.merge(&other.bytes);
        self.time = self.time.max(other.time);
    }
}

impl Requests {
    /// Adds another's counts.
    pub fn merge(&mut self, other: &Requests) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.resent += other.resent;
        self.resent_refused += other.resent_refused;
        self.resent_reset += other.resent_reset;
        self.resent_alone += other.resent_alone;
        self.unsent += other.unsent;
        self.unsent_full += other.unsent_full;
        self.unsent_unopened += other.unsent_unopened;
        self.unsent_shut += other.unsent_shut;
        self.unsent_missed += other.unsent_missed;
        self.expecting += other.expecting;
        self.met += other.met;
        self.unsolicited_responses += other.unsolicited_responses;
        self.out_of_order_responses += other.out_of_order_responses;
    }
}

impl Bad {
    /// Adds another's counts.
    pub fn merge(&mut self, other: &Bad) {
        self.status += other.status;
        self.body += other.body;
        self.encoding += other.encoding;
        self.tag += other.tag;
        self.trailer += other.trailer;
        self.take += other.take;
        self.expect += other.expect;
    }
}

impl Failures {
    /// Adds another's counts; the first detail of each reason stays.
    pub fn merge(&mut self, other: &Failures) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        for (reason, detail) in &other.details {
            self.details.entry(reason).or_insert_with(|| detail.clone());
        }
        for why in Failure::ALL {
            for (detail, n) in other.in_detail().get(why.name()).into_iter().flatten() {
                self.explain(why, detail, *n);
            }
        }
        for (code, n) in &other.codes {
            self.coded(code, *n);
        }
    }
}

impl Bytes {
    /// Adds another's.
    pub fn merge(&mut self, other: &Bytes) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

impl Latency {
    /// Adds another's samples.
    pub fn merge(&mut self, other: &Latency) {
        if let Some(due) = &other.from_due {
            self.from_due.get_or_insert_default().merge(due);
        }
        self.from_sent.merge(&other.from_sent);
        self.connect.merge(&other.connect);
        self.tls.merge(&other.tls);
        self.first_byte.merge(&other.first_byte);
        self.waited.merge(&other.waited);
        if let Some(sent) = &other.waited_from_sent {
            self.waited_from_sent.get_or_insert_default().merge(sent);
        }
    }
}

impl Connections {
    /// Adds another's counts; of two learnt limits the smaller stays.
    pub fn merge(&mut self, other: &Connections) {
        self.opened += other.opened;
        self.failed += other.failed;
        self.refused += other.refused;
        self.hanging += other.hanging;
        self.unaccepted += other.unaccepted;
        self.closed_by_peer += other.closed_by_peer;
        self.requests_resent += other.requests_resent;
        (self.learnt_limit, self.learnt_on) = match (self.learnt_limit, other.learnt_limit) {
            (Some(a), Some(b)) if a == b => (Some(a), self.learnt_on + other.learnt_on),
            (Some(a), Some(b)) if b < a => (Some(b), other.learnt_on),
            (None, theirs) => (theirs, other.learnt_on),
            (mine, _) => (mine, self.learnt_on),
        };
    }
}

impl Tcp {
    /// Adds another's counters; the smallest round-trip time stays.
    pub fn merge(&mut self, other: &Tcp) {
        self.retransmits += other.retransmits;
        self.out_of_order += other.out_of_order;
        self.zero_window_us += other.zero_window_us;
        self.looked_at += other.looked_at;
        self.overrun += other.overrun;
        if let Some(stack) = &other.stack {
            self.stack.get_or_insert_default().merge(stack);
        }
        self.events.merge(&other.events);
        Segments::merge_options(&mut self.segments, other.segments.as_ref());
        self.rtt_min_us = match (self.rtt_min_us, other.rtt_min_us) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

impl ClientFigures {
    /// Adds another's times and counts; the busiest core and the first reason stay.
    pub fn merge(&mut self, other: &ClientFigures) {
        self.cpu += other.cpu;
        self.script += other.script;
        self.core_busy = self.core_busy.max(other.core_busy);
        self.run_queue_wait += other.run_queue_wait;
        self.watched += other.watched;
        self.disturbed = self.disturbed.max(other.disturbed);
        if other.stood_still > self.stood_still {
            self.stood_still = other.stood_still;
            self.stood_still_agent.clone_from(&other.stood_still_agent);
        }
        self.stood_still_in_all = self.stood_still_in_all.max(other.stood_still_in_all);
        self.suspended = self.suspended.max(other.suspended);
        self.start_late = self.start_late.max(other.start_late);
        self.context_switches += other.context_switches;
        self.lateness.merge(&other.lateness);
        self.threads += other.threads;
        self.saturated |= other.saturated;
        if self.reason.is_none() {
            self.reason.clone_from(&other.reason);
        }
    }
}

impl NamedFigures {
    /// Adds another's figures.
    pub fn merge(&mut self, other: &NamedFigures) {
        self.requests.merge(&other.requests);
        self.bad.merge(&other.bad);
        self.latency.merge(&other.latency);
        self.waited.merge(&other.waited);
        self.in_window += other.in_window;
        self.course.merge(&other.course);
    }
}

impl Outcome {
    fn merge_flows(&mut self, other: &Outcome) {
        for (name, flow) in &other.flows {
            self.flows.entry(name.clone()).or_default().merge(flow);
        }
    }
}

impl FlowFigures {
    /// Adds another's figures.
    pub fn merge(&mut self, other: &FlowFigures) {
        self.done += other.done;
        self.failed += other.failed;
        self.stopped += other.stopped;
        self.unstarted += other.unstarted;
        self.skipped += other.skipped;
        self.redirects += other.redirects;
        self.duration.merge(&other.duration);
        self.waited.merge(&other.waited);
        other.causes.iter().for_each(|(cause, n)| self.note(cause, *n));
    }
}

impl Snapshot {
    /// Adds another core's. `elapsed` and `series` belong to the whole run and stay.
    pub fn merge(&mut self, other: &Snapshot) {
        self.measuring &= other.measuring;
        self.requests.merge(&other.requests);
        self.bad.merge(&other.bad);
        self.failures.merge(&other.failures);
        for (status, n) in &other.status {
            *self.status.entry(*status).or_default() += n;
        }
        for (name, named) in &other.by_name {
            self.by_name.entry(name.clone()).or_default().merge(named);
        }
        self.in_flight += other.in_flight;
        self.overdue += other.overdue;
        self.open += other.open;
        self.bytes.merge(&other.bytes);
        self.connections.merge(&other.connections);
        if let Some(stack) = &other.stack {
            self.stack.get_or_insert_default().merge(stack);
        }
        self.tcp.merge(&other.tcp);
        self.looked_at += other.looked_at;
        Segments::merge_options(&mut self.segments, other.segments.as_ref());
        self.latency.merge(&other.latency);
        self.waited.merge(&other.waited);
    }
}
