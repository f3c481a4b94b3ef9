//! A diagnosis from outside in: this machine, the network, the server's machine, its process, the
//! wire. Each was examined and is fine, or has a finding, or was not examined. Pure: it repeats
//! what was measured, and blames no party.

use std::net::SocketAddr;

use crate::diagnosis::Diagnosis;
use crate::limits::CONTENDED;
pub use crate::parts::FaultPlace;
use crate::verdict::Verdict;
use crate::words::say;

/// The result of examining a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was examined, and nothing is wrong.
    Fine,
    /// A cause is there.
    Cause,
    /// Something was seen that costs nothing by itself.
    Seen,
    /// It was not examined.
    NotExamined,
}

impl Status {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fine => "fine",
            Status::Cause => "cause",
            Status::Seen => "seen",
            Status::NotExamined => "not examined",
        }
    }
}

/// A place, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The place.
    pub place: FaultPlace,
    /// In a word.
    pub status: Status,
    /// The grounds for that: measurements, or why it was not examined. May be empty beside `ruled_out`.
    pub words: String,
    /// The causes of this place that were ruled out, in words.
    pub ruled_out: Option<String>,
}

impl Layer {
    /// The grounds, and what was ruled out.
    pub fn all_words(&self) -> String {
        let parts = [Some(self.words.as_str()), self.ruled_out.as_deref()];
        parts.into_iter().flatten().filter(|w| !w.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Share of the calls' time that we waited for a processor from which on that is worth a word.
const BUSY: f64 = 0.1;

/// All places, from outside in.
pub fn of(d: &Diagnosis) -> [Layer; 5] {
    FaultPlace::ALL.map(|place| {
        let causes: Vec<&Verdict> = d.causes.iter().filter(|c| c.cause().place == place).collect();
        if !causes.is_empty() {
            let one =
                |c: &&Verdict| format!("{}, {} a call ({})", c.id(), say(c.cost_ms()), c.proof().name());
            let words = causes.iter().map(one).collect::<Vec<_>>().join("; ");
            return Layer { place, status: Status::Cause, words, ruled_out: None };
        }
        let (status, words, ruled_out) = match place {
            FaultPlace::Here => without(here(d)),
            FaultPlace::Network => network(d),
            FaultPlace::Machine => machine(d),
            FaultPlace::Process => process(d),
            FaultPlace::Wire => wire(d),
        };
        Layer { place, status, words, ruled_out }
    })
}

/// What was found at a place: how it stands, measurements, what was ruled out.
type Finding = (Status, String, Option<String>);

fn without((status, words): (Status, String)) -> Finding {
    (status, words, None)
}

/// The server is on this machine: our end of a connection to an address of our own has it, too.
fn is_here(d: &Diagnosis) -> bool {
    let is_ours = |to: SocketAddr| d.call.local.is_some_and(|ours| ours.ip() == to.ip());
    d.address.parse::<SocketAddr>().is_ok_and(|to| to.ip().is_loopback() || is_ours(to))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The causes that were ruled out at a place, by id.
fn excluded(d: &Diagnosis, place: FaultPlace) -> Option<String> {
    let there = d.ruled_out.iter().map(|r| r.cause).filter(|cause| cause.place == place);
    let ids: Vec<&str> = there.map(|cause| cause.id).collect();
    (!ids.is_empty()).then(|| format!("ruled out: {}", ids.join(", ")))
}

fn here(d: &Diagnosis) -> (Status, String) {
    let m = &d.machine;
    let mut words = format!("our calls waited {} of their time for a core", percent(m.waited_share));
    if let Some(load) = m.load {
        words.push_str(&format!(", load {load:.1} for each processor"));
    }
    let contended = m.pressure.filter(|share| *share >= CONTENDED);
    if let Some(share) = contended {
        words.push_str(&format!("; something waited for one {} of the time", percent(share)));
    }
    (if m.waited_share >= BUSY || contended.is_some() { Status::Seen } else { Status::Fine }, words)
}

fn network(d: &Diagnosis) -> Finding {
    if is_here(d) {
        return without((Status::Fine, "loopback: there is none between us and the server".to_owned()));
    }
    let round_trip = format!("round trip {}", say(d.rtt_ms));
    match excluded(d, FaultPlace::Network) {
        Some(excluded) => (Status::Fine, round_trip, Some(excluded)),
        None => without((Status::NotExamined, format!("{round_trip}; too few calls to tell what is lost"))),
    }
}

fn machine(d: &Diagnosis) -> Finding {
    let m = &d.machine;
    if let Some(excluded) = excluded(d, FaultPlace::Machine).filter(|_| d.shown.process.is_some()) {
        return (Status::Fine, String::new(), Some(excluded));
    }
    if !is_here(d) {
        let hint = "run explain there, with --pid of the server".to_owned();
        return without((Status::NotExamined, hint));
    }
    let taken = m.steal.map_or(String::new(), |s| format!("; its host took {}", percent(s)));
    without(match m.pressure {
        Some(pressure) => {
            let words = format!(
                "it is this one; something here waited {} of the time for a core{taken}",
                percent(pressure)
            );
            (if pressure >= BUSY { Status::Seen } else { Status::Fine }, words)
        }
        None => {
            (Status::NotExamined, "it is this one, and its kernel does not tell (/proc/pressure)".to_owned())
        }
    })
}

fn process(d: &Diagnosis) -> Finding {
    let Some(p) = d.shown.process.as_deref() else {
        let words = if is_here(d) {
            "--pid PID shows its threads"
        } else {
            "only on its machine, with --pid PID, its threads can be seen"
        };
        return without((Status::NotExamined, words.to_owned()));
    };
    let how = if p.found { ", found by its listening socket" } else { "" };
    let whose = format!("process {}{how}", p.called());
    if let Some(note) = p.notes.first() {
        return without((Status::NotExamined, format!("{whose}: {note}")));
    }
    match excluded(d, FaultPlace::Process) {
        Some(excluded) => (Status::Fine, format!("{whose}, {} looks", p.looks), Some(excluded)),
        None => without((Status::Seen, format!("{whose}, {} looks at its threads", p.looks))),
    }
}

fn wire(d: &Diagnosis) -> Finding {
    let excluded = excluded(d, FaultPlace::Wire);
    match d.shown.packets.as_deref().filter(|p| p.packets > 0) {
        Some(p) if p.marks.is_empty() => {
            (Status::Fine, format!("{} packets of our calls, none is remarkable", p.packets), excluded)
        }
        Some(p) => {
            let marks: Vec<String> = p.marks.iter().map(|(words, n)| format!("{words} {n}")).collect();
            let words = format!("{} packets of our calls, among them: {}", p.packets, marks.join(", "));
            (Status::Seen, words, None)
        }
        None if excluded.is_none() => {
            without((Status::NotExamined, "packets were not captured, and no experiment was made".to_owned()))
        }
        None => (Status::Fine, "packets were not captured".to_owned(), excluded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes;
    use crate::diagnosis::{Machine, RuledOut};
    use crate::packets::Packets;
    use crate::planner::Planner;
    use crate::process::ProcessView;
    use crate::record::Settings;

    fn nothing() -> Diagnosis {
        Planner::new(Settings::default()).diagnose()
    }

    fn found(d: &Diagnosis, place: FaultPlace) -> (Status, String) {
        let [layer] =
            of(d).into_iter().filter(|l| l.place == place).collect::<Vec<_>>().try_into().expect("one");
        (layer.status, layer.all_words())
    }

    #[test]
    fn what_was_not_looked_at_is_not_fine() {
        let d = Diagnosis { address: "192.0.2.1:80".to_owned(), ..nothing() };
        for place in [FaultPlace::Network, FaultPlace::Machine, FaultPlace::Process, FaultPlace::Wire] {
            assert_eq!(found(&d, place).0, Status::NotExamined, "{place:?}");
        }
        let ruled_out = vec![RuledOut { cause: &causes::packet_loss::CAUSE, why: String::new() }];
        let near = Diagnosis { ruled_out, rtt_ms: 40.0, ..d };
        assert_eq!(
            found(&near, FaultPlace::Network),
            (Status::Fine, "round trip 40.0 ms; ruled out: packet-loss".to_owned())
        );
    }

    #[test]
    fn a_server_on_this_machine_is_said_to_be_here() {
        let process = |address: &str, ours: Option<&str>| {
            let mut d = Diagnosis { address: address.to_owned(), ..nothing() };
            d.call.local = ours.map(|ours| ours.parse().expect("an address"));
            found(&d, FaultPlace::Process).1
        };
        let here = "--pid PID shows its threads";
        assert_eq!(process("127.0.0.1:80", None), here);
        assert_eq!(process("192.0.2.1:80", Some("192.0.2.1:40000")), here);
        let elsewhere = process("192.0.2.1:80", Some("192.0.2.2:40000"));
        assert!(elsewhere.starts_with("only on its machine"), "{elsewhere}");
    }

    #[test]
    fn a_process_that_ended_has_its_name_or_none() {
        let mut d = nothing();
        let notes = vec!["process 7 has ended while we looked".to_owned()];
        let gone = |name: &str| ProcessView {
            pid: 7,
            name: name.to_owned(),
            notes: notes.clone(),
            ..ProcessView::default()
        };
        d.shown.process = Some(Box::new(gone("")));
        assert_eq!(found(&d, FaultPlace::Process).1, "process 7: process 7 has ended while we looked");
        d.shown.process = Some(Box::new(gone("java")));
        assert_eq!(found(&d, FaultPlace::Process).1, "process 7 (java): process 7 has ended while we looked");
    }

    #[test]
    fn what_was_seen_is_told_with_its_figures() {
        let machine = Machine { waited_share: 0.18, pressure: Some(0.5), load: Some(2.0), steal: None };
        let mut d = Diagnosis { address: "127.0.0.1:80".to_owned(), machine, ..nothing() };
        assert_eq!(
            found(&d, FaultPlace::Here),
            (
                Status::Seen,
                "our calls waited 18 % of their time for a core, load 2.0 for each processor; something waited for one 50 % of the time"
                    .to_owned()
            )
        );
        assert_eq!(found(&d, FaultPlace::Network).0, Status::Fine);
        assert_eq!(found(&d, FaultPlace::Machine).0, Status::Seen);
        d.shown.packets = Some(Box::new(Packets { packets: 9, ..Packets::default() }));
        assert_eq!(
            found(&d, FaultPlace::Wire),
            (Status::Fine, "9 packets of our calls, none is remarkable".to_owned())
        );
    }
}
