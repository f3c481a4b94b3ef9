//! Causes that only the server's machine can tell (`--pid`): the garbage collector, a processor that is
//! not had, a loop that is blocked.
//!
//! Each has a counter of its own, read before and after every call. It is proved when the counter
//! owns at least 80 % of the time that the calls took beyond a round trip.

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof};
use crate::limits::BUSY_SHARE;
use crate::local::Spent;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix, spent};
use crate::probe::Experiment;
use crate::record::Record;
use crate::rule::{Cause, Judged, Judgement, Rule, excluded, nothing, nothing_beside};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static GC: Cause = Cause {
    id: "gc-pause",
    title: "the server's garbage collector stops it during calls",
    fixes: &[
        RuleFix {
            software: "JVM",
            change: "a collector with short pauses (-XX:+UseZGC, G1 with -XX:MaxGCPauseMillis), a larger heap, fewer allocations for each request; see -Xlog:gc",
        },
        RuleFix { software: "Go", change: "GOGC or GOMEMLIMIT higher; fewer allocations" },
        RuleFix { software: "Node", change: "--max-semi-space-size higher, so that less is promoted" },
        RuleFix { software: "any server", change: "fewer allocations for each request, a larger heap" },
    ],
    verify: PID_AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the server's collector"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(|c| spent(c, |s| s.collected)),
    packets: None,
    page: GC_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| {
            // Of a program without a collector, or one that does not tell, nothing is known.
            let tells = |s: &Spent| s.has_collector || !s.collected.is_zero();
            if !watched(record).iter().any(|(_, s)| tells(s)) {
                return Judgement::Silent;
            }
            counter(record, &GC, "in the garbage collector (hsperfdata)", |s| s.collected)
        },
    },
};

const GC_PAGE: CausePage = CausePage {
    what: "A runtime with garbage collection stops the whole program now and then to clear its memory. A call that comes just then waits until it is over. The more \
         the program allocates for each request, and the smaller its heap, the more often.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(30.0, "all threads stand still: the collector works"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Python",
        "gc.freeze() after start, gc.disable() or higher thresholds where there are few cycles",
    )],
};

pub(crate) static THROTTLED: Cause = Cause {
    id: "cpu-throttled",
    title: "the server's control group has used up its share of processor time and is kept from running",
    fixes: &[
        RuleFix {
            software: "Kubernetes",
            change: "raise or remove resources.limits.cpu; the static CPU manager policy for whole cores",
        },
        RuleFix {
            software: "Docker, systemd",
            change: "--cpus / CPUQuota= higher; watch nr_throttled in cpu.stat",
        },
        RuleFix {
            software: "JVM, Go, Node",
            change: "no more threads than the quota has cores (-XX:ActiveProcessorCount, GOMAXPROCS): more use it up sooner",
        },
    ],
    verify: PID_AGAIN,
    place: FaultPlace::Machine,
    part: CallPart::Call,
    pause: Some("the server is kept from running"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(|c| spent(c, |s| s.throttled)),
    packets: None,
    page: THROTTLED_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| {
            counter(record, &THROTTLED, "kept from running by its control group (cpu.stat)", |s| s.throttled)
        },
    },
};

const THROTTLED_PAGE: CausePage = CausePage {
    what: "The server's container may use only so much processor time in each period (100 ms as a rule). When it has used it up, all its threads stand still until \
         the next period begins, even if the machine is idle.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Then(10.0, "the server works"),
        PictureStep::Wait(90.0, "its share is used up until the next period"),
        PictureStep::From("answer"),
    ],
    more: &[],
};

pub(crate) static CONTENDED: Cause = Cause {
    id: "cpu-contention",
    title: "the server is ready to run and waits for a processor that others use",
    fixes: &[
        RuleFix {
            software: "the machine",
            change: "fewer neighbours on its processors, or processors of its own (cpuset, taskset)",
        },
        RuleFix {
            software: "Linux",
            change: "nice and cpu.weight; steal in /proc/stat shows a neighbour outside a virtual machine",
        },
    ],
    verify: PID_AGAIN,
    place: FaultPlace::Machine,
    part: CallPart::Call,
    pause: Some("the server waits for a processor"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(|c| spent(c, |s| s.waited.saturating_sub(s.throttled + s.collected))),
    packets: None,
    page: CONTENDED_PAGE,
    rule: Rule::Beside {
        // A control group that is throttled waits in the run queue, too.
        hidden_by: &[&THROTTLED],
        asks: &[],
        wants: nothing_beside,
        judge: contended,
    },
};

const CONTENDED_PAGE: CausePage = CausePage {
    what: "The server is ready to work, and no processor is free: others on the same machine use them all. It waits in the run queue, a few milliseconds at a time.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(21.0, "ready to run, and no processor is free"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("macOS", "Activity Monitor, CPU; taskpolicy -b for what may wait"),
        fix("Windows", "Task Manager, Details, priority; start /low for what may wait"),
    ],
};

pub(crate) static BLOCKED: Cause = Cause {
    id: "event-loop-blocked",
    title: "the server's event loop works on something else while the request waits",
    fixes: &[
        RuleFix {
            software: "Node",
            change: "no *Sync calls and no long computations in handlers: worker_threads, or smaller pieces (setImmediate)",
        },
        RuleFix {
            software: "Netty, Vert.x",
            change: "blocking calls on an executor of their own (executeBlocking, EventExecutorGroup)",
        },
        RuleFix {
            software: "Python asyncio",
            change: "asyncio.to_thread, run_in_executor; PYTHONASYNCIODEBUG=1 names slow callbacks",
        },
        RuleFix {
            software: "Rust tokio",
            change: "spawn_blocking; tokio-console names tasks that do not yield",
        },
        RuleFix {
            software: "JDK HttpServer",
            change: "server.setExecutor(...): without one the thread that accepts runs every handler",
        },
        RuleFix {
            software: "any server",
            change: "profile the thread that is named here; move what takes long off the thread that reads requests",
        },
    ],
    verify: PID_AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the server's loop is busy"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: BLOCKED_PAGE,
    rule: Rule::Beside {
        // A collector's thread is busy without a pause, too.
        hidden_by: &[&GC, &THROTTLED],
        asks: &[],
        wants: nothing_beside,
        judge: blocked,
    },
};

const BLOCKED_PAGE: CausePage = CausePage {
    what: "Servers with an event loop (Node, asyncio, nginx, Netty) serve all connections on one thread. A piece of code that works long, or waits in a blocking \
         call, keeps everybody else waiting until it is done.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(109.0, "the loop works for somebody else"),
        PictureStep::From("answer"),
    ],
    more: &[fix("Go", "no single loop: a goroutine for each request; look for a lock that all take")],
};

const PID_AGAIN: &str = "with --pid of the process that answers then, where it was started again";
/// Below this nothing is worth naming.
const LEAST_MS: f64 = 3.0;

/// Share of a stall that a thread must have run: what is busy because it gets no processor is
/// another cause.
const AT_LEAST_RAN: f64 = 0.4;

/// A busy machine makes some calls take longer than the fastest by less than this, milliseconds, and
/// their share of all calls is then below [`SELDOM`]: a slice of a processor's time is 3 to 4 ms, and
/// a thread's time on a virtual one holds what its host took and the interrupts of others. With 8 programs
/// for each processor it was 20.5 ms.
const BUSY_STALL_MS: f64 = 40.0;
const SELDOM: f64 = 1.0 / 3.0;
/// Of fewer calls no share is known.
const ENOUGH_CALLS: usize = 12;
/// A stall of a slice or two, milliseconds, may meet every other call.
const SLICE_MS: f64 = 6.0;

/// Calls as they are, with what the process did meanwhile.
fn watched(record: &Record) -> Vec<(&Call, &Spent)> {
    record
        .calls()
        .filter(|(p, c)| {
            let as_it_is =
                matches!(p.experiment, Experiment::Observe | Experiment::Tail | Experiment::Scattered);
            as_it_is && c.answer().is_some()
        })
        .filter_map(|(_, c)| Some((c, c.server.as_deref()?)))
        .collect()
}

/// Time of a call beyond what the network takes.
fn beyond(record: &Record, call: &Call) -> f64 {
    (ms(call.total) - record.rtt_ms() * (1.0 + call.opening_trips())).max(0.0)
}

/// Waiting for a processor. A control group that is throttled waits in the run queue, too, and so
/// do those that a collector stops.
fn waited_alone(spent: &Spent) -> Duration {
    spent.waited.saturating_sub(spent.throttled + spent.collected)
}

/// How long the busiest thread ran, and the one that waited longest waited, milliseconds of all
/// calls that took longer than a round trip.
fn ran_and_waited(record: &Record) -> (f64, f64) {
    let slow = watched(record).into_iter().filter(|(c, _)| beyond(record, c) >= LEAST_MS);
    slow.fold((0.0, 0.0), |(ran, waited), (_, s)| (ran + ms(s.busiest.ran), waited + ms(waited_alone(s))))
}

fn counter(record: &Record, cause: &'static Cause, what: &str, of: fn(&Spent) -> Duration) -> Judgement {
    let calls = watched(record);
    if calls.len() < 2 {
        return Judgement::Silent;
    }
    // A counter that moves in steps may be read late; it owns no more of a call than there is.
    let owned: Vec<f64> = calls.iter().map(|(c, s)| ms(of(s)).min(beyond(record, c))).collect();
    let all: f64 = calls.iter().map(|(c, _)| beyond(record, c)).sum();
    let share = owned.iter().sum::<f64>() / all.max(1e-6);
    let hit: Vec<f64> = owned.iter().copied().filter(|t| *t >= LEAST_MS).collect();
    if hit.is_empty() && share >= 0.25 {
        // Of quick calls a large share is still nothing.
        return Judgement::Open(format!(
            "a note and no cause: of all calls' time {:.0} % was {what}, never for {} or longer",
            100.0 * share,
            say(LEAST_MS)
        ));
    }
    if hit.is_empty() || share < 0.25 {
        return excluded(format!("of all calls' time {:.0} % was {what}", 100.0 * share));
    }
    let words = format!(
        "in {} of {} calls the server was {what}, for {} in the middle; that is {:.0} % of all their time beyond the network's",
        hit.len(),
        calls.len(),
        say(median(&hit)),
        100.0 * share
    );
    Judgement::Named(Box::new(Verdict::new(cause, median(&hit), Grounds::Counted { words, share })))
}

fn contended(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    // A busy thread always waits a little.
    let (ran, waited) = ran_and_waited(record);
    if ran > waited {
        return excluded(format!(
            "in slow calls the server's busiest thread ran for {} and waited for a processor for {}",
            say(ran),
            say(waited)
        ));
    }
    let judgement =
        counter(record, &CONTENDED, "ready to run and waiting for a processor (schedstat)", waited_alone);
    match judgement {
        // It is this machine, and whether the reader wants to hear of the server's part of it
        // was not asked.
        Judgement::Named(verdict) if record.settings.pid_found => Judgement::Open(format!(
            "a note and no cause: this machine is busy, and the server waited for a processor, too, {} a call; --pid makes it a cause",
            say(verdict.cost_ms())
        )),
        judgement => judgement,
    }
}

/// Calls without a stall after the last one with one, from which on it is over.
const OVER: usize = 10;

/// Slow calls are among the first third alone: a process that was started a moment ago compiles and
/// loads what it needs.
fn warms_up(record: &Record, calls: &[(&Call, &Spent)]) -> bool {
    let usual = median(&calls.iter().map(|(c, _)| beyond(record, c)).collect::<Vec<_>>());
    let slow = |(c, _): &(&Call, &Spent)| beyond(record, c) > LEAST_MS.max(5.0 * usual);
    let Some(last) = calls.iter().rposition(slow) else { return false };
    let after = calls.len() - last - 1;
    after >= OVER && 3 * (last + 1) <= calls.len()
}

fn blocked(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let calls = watched(record);
    if warms_up(record, &calls) {
        return Judgement::Open(
            "a note and no cause: only the first calls met a thread that was busy, as while a process warms up".to_owned(),
        );
    }
    let least = calls.iter().map(|(c, _)| beyond(record, c)).fold(f64::INFINITY, f64::min);
    // Work for this very request would be there in each call.
    let slow: Vec<_> = calls.iter().filter(|(c, _)| beyond(record, c) > LEAST_MS.max(5.0 * least)).collect();
    if calls.len() < 5 || slow.len() < 2 {
        return Judgement::Silent;
    }
    // Waits of such a thread for a processor in between are a part of its work.
    let at_work = |s: &Spent| ms(s.busiest.ran + s.busiest.waited);
    let busy: Vec<_> = slow.iter().filter(|(c, s)| at_work(s) >= 0.7 * beyond(record, c)).collect();
    if busy.len() * 3 < slow.len() * 2 {
        return excluded(format!(
            "in {} slow calls no thread of the server was busy all the time",
            slow.len()
        ));
    }
    let worked: f64 = slow.iter().map(|(_, s)| ms(s.busiest.ran)).sum();
    if worked < AT_LEAST_RAN * slow.iter().map(|(c, _)| beyond(record, c)).sum::<f64>() {
        return Judgement::Silent;
    }
    let cost = median(&busy.iter().map(|(c, _)| beyond(record, c) - least).collect::<Vec<_>>());
    // A process that was found, not named by the user, may have a thread of its own that is always busy.
    let found = record.settings.pid_found;
    let seldom =
        (busy.len() as f64) < SELDOM * calls.len() as f64 || calls.len() < ENOUGH_CALLS || cost < SLICE_MS;
    // Quick calls hardly wait themselves, and a stall of a slice comes of a machine that is hardly busy.
    let is_busy = record.is_contended() || (cost < SLICE_MS && record.waited_share() > BUSY_SHARE);
    if found && is_busy && seldom && cost < BUSY_STALL_MS {
        return Judgement::Open(format!(
            "a note and no cause: a thread of the server was at work without a pause in {} of {} calls that took {} longer, on a machine that is busy itself; --pid makes it a cause",
            busy.len(),
            calls.len(),
            say(cost)
        ));
    }
    let ran: f64 = slow.iter().map(|(_, s)| at_work(s)).sum();
    let all: f64 = slow.iter().map(|(c, _)| beyond(record, c)).sum();
    let words = format!(
        "{} of {} calls took {} longer than the fastest; meanwhile one thread ({:?}) was at work without a pause, {:.0} % of that time",
        busy.len(),
        calls.len(),
        say(cost),
        busy[0].1.busiest.name,
        100.0 * (ran / all).min(1.0)
    );
    let verdict = Verdict::new(&BLOCKED, cost, Grounds::Counted { words, share: ran / all });
    Judgement::Named(Box::new(if found { verdict.at_most(Proof::Likely) } else { verdict }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ProbeResponse;
    use crate::local::Thread;
    use crate::probe::{CallProbe, Lane, Observation, Probe};
    use crate::record::Settings;
    use crate::rule::Judgements;

    fn t(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// Calls at a distance of 40 ms: time beyond it, and of it run, waited for a processor,
    /// throttled. We ourselves waited for a processor for this share of each.
    fn record(calls: &[(f64, f64, f64, f64)], starved: f64) -> Record {
        record_at(40.0, calls, starved)
    }

    /// The same at another distance.
    fn record_at(distance: f64, calls: &[(f64, f64, f64, f64)], starved: f64) -> Record {
        let mut record = Record::new(Settings::default());
        for (beyond, ran, waited, throttled) in calls {
            let busiest = Thread { name: "loop".to_owned(), ran: t(*ran), waited: t(*waited) };
            let spent = Spent {
                busiest,
                ran: t(*ran),
                waited: t(*waited),
                throttled: t(*throttled),
                ..Spent::default()
            };
            let total = t(distance + beyond);
            let mut call = Call { wait: total, total, ..Call::default() };
            call.starved = call.total.mul_f64(starved);
            call.facts.min_rtt_us = (distance * 1e3) as u32;
            call.end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
            call.server = Some(Box::new(spent));
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        record
    }

    fn who(calls: &[(f64, f64, f64, f64)]) -> Vec<&'static str> {
        named(&record(calls, 0.0))
    }

    fn named(record: &Record) -> Vec<&'static str> {
        let all = [&THROTTLED, &CONTENDED, &GC, &BLOCKED];
        let judgements = Judgements::new(record, &all);
        let named = |c: &&Cause| matches!(judgements.of(c.id), Judgement::Named(_));
        all.into_iter().filter(named).map(|c| c.id).collect()
    }

    #[test]
    fn a_loop_that_works_is_told_from_one_that_gets_no_processor() {
        let quick = (0.3, 0.2, 0.0, 0.0);
        let stalls = |ran, waited| {
            [quick, (110.0, ran, waited, 0.0), quick, (90.0, ran * 0.8, waited * 0.8, 0.0), quick]
        };
        assert_eq!(who(&stalls(108.0, 1.0)), ["event-loop-blocked"]);
        // Others on the machine take a third of its time.
        assert_eq!(who(&stalls(70.0, 38.0)), ["event-loop-blocked"]);
        assert_eq!(who(&stalls(10.0, 98.0)), ["cpu-contention"]);
        assert_eq!(who(&stalls(0.5, 0.2)), [""; 0]);
        assert_eq!(who(&[quick; 6]), [""; 0]);
    }

    /// The server's process was found, and our own calls waited 6 % of their time for a processor.
    fn named_on_a_busy_machine(calls: &[(f64, f64, f64, f64)]) -> Vec<&'static str> {
        let mut record = record(calls, 0.06);
        record.settings.pid_found = true;
        named(&record)
    }

    #[test]
    fn a_few_short_stalls_on_a_busy_machine_are_no_blocked_loop() {
        let quick = (0.3, 0.2, 0.0, 0.0);
        let stalls = |n: usize, late: f64| {
            let mut calls = vec![quick; 30 - n];
            calls.extend(vec![(late, 0.6 * late, 0.25 * late, 0.0); n]);
            calls
        };
        assert_eq!(named_on_a_busy_machine(&stalls(2, 5.5)), [""; 0]);
        // The user's own word for it, a quiet machine, long stalls and many of them are another matter.
        assert_eq!(who(&stalls(2, 5.5)), ["event-loop-blocked"]);
        assert_eq!(named_on_a_busy_machine(&stalls(2, 90.0)), ["event-loop-blocked"]);
        assert_eq!(named_on_a_busy_machine(&stalls(15, 8.0)), ["event-loop-blocked"]);
    }

    /// nginx on this machine, healthy: each call of 0.3 ms waited for a processor for 0.05 ms of it.
    #[test]
    fn a_slice_or_two_beside_quick_calls_that_waited_are_no_blocked_loop() {
        let quick = (0.3, 0.2, 0.0, 0.0);
        let named_found = |late: f64, starved: f64| {
            let calls =
                [vec![quick; 27], vec![(late, 0.9 * late, 0.1 * late, 0.0); 2], vec![quick; 2]].concat();
            let mut record = record_at(0.02, &calls, starved);
            record.settings.pid_found = true;
            assert!(!record.is_contended());
            named(&record)
        };
        assert_eq!(named_found(3.6, 0.157), [""; 0]);
        assert_eq!(named_found(3.6, 0.0), ["event-loop-blocked"]);
        assert_eq!(named_found(12.0, 0.157), ["event-loop-blocked"]);
    }

    /// A server of events, healthy, beside other programs: our own calls hardly waited.
    #[test]
    fn short_stalls_are_no_blocked_loop_where_programs_compete_for_processors() {
        let named_under_pressure = |calls: &[(f64, f64, f64, f64)]| {
            let mut record = record(calls, 0.005);
            (record.settings.pid_found, record.pressure) = (true, Some(0.99));
            named(&record)
        };
        let quick = (0.3, 0.2, 0.0, 0.0);
        let late = |ms: f64| (ms, 0.6 * ms, 0.35 * ms, 0.0);
        let of = |slow: usize, ms: f64, all: usize| {
            named_under_pressure(&[vec![late(ms); slow], vec![quick; all - slow]].concat())
        };
        assert_eq!(of(3, 12.1, 8), [""; 0]);
        assert_eq!(of(3, 3.1, 14), [""; 0]);
        assert_eq!(of(2, 4.7, 16), [""; 0]);
        assert_eq!(of(10, 4.1, 20), [""; 0]);
        assert_eq!(of(4, 120.0, 8), ["event-loop-blocked"]);
    }

    /// A JDK server that was started a moment ago, and a loop that is blocked now and then.
    #[test]
    fn a_process_that_warms_up_has_no_blocked_loop() {
        let quick = (0.3, 0.2, 0.0, 0.0);
        let slow = (36.5, 30.0, 2.0, 0.0);
        let mut young = vec![quick; 31];
        (young[0], young[3]) = (slow, slow);
        assert_eq!(who(&young), [""; 0]);
        let mut blocked = vec![quick; 31];
        (blocked[3], blocked[20]) = (slow, slow);
        assert_eq!(who(&blocked), ["event-loop-blocked"]);
    }

    #[test]
    fn a_large_share_of_short_waits_is_a_note_and_ruled_out_by_nobody() {
        let record = record(&[(2.0, 0.2, 1.5, 0.0); 8], 0.0);
        let all = [&THROTTLED, &CONTENDED, &GC, &BLOCKED];
        let judgements = Judgements::new(&record, &all);
        let Judgement::Open(words) = judgements.of("cpu-contention") else {
            unreachable!("{:?}", judgements.of("cpu-contention"))
        };
        assert!(
            words.starts_with("a note and no cause: of all calls' time 75 % was ready to run"),
            "{words}"
        );
    }

    #[test]
    fn who_is_throttled_waits_in_the_run_queue_and_nobody_takes_its_processor() {
        let throttled = [(88.0, 12.0, 76.0, 75.0); 6];
        assert_eq!(who(&throttled), ["cpu-throttled"]);
        // Now and then only, beside work of its own.
        let seldom = [
            (12.0, 12.0, 0.0, 0.0),
            (12.0, 12.0, 0.0, 0.0),
            (60.0, 12.0, 48.0, 47.0),
            (70.0, 12.0, 58.0, 57.0),
        ];
        assert_eq!(who(&seldom), ["cpu-throttled"]);
        assert_eq!(who(&[(35.0, 5.0, 30.0, 0.0); 6]), ["cpu-contention"]);
    }
}
