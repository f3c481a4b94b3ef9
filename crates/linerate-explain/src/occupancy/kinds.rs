//! The verdict on each kind of server, by figures as `load --pid` took them: on a quiet machine, beside
//! programs that now and then have the cores, and beside two loops that always want both.

use super::*;

/// A thread: what it does at looks, at which share of them (otherwise it waits for a core), and its
/// shares of time on a core and ready without one.
type Kind = (ThreadActivity, f64, f64, f64);

const SLEEPS: ThreadActivity = ThreadActivity::Blocked("nanosleep");
use ThreadActivity::{Free, Running, Waiting};

/// Fifty looks in five seconds.
fn table(threads: &[Kind], queued: u64) -> OccupancyTable {
    let mut table = OccupancyTable::default();
    for look in 0..=50_u32 {
        let passed = f64::from(look) * 100.0;
        let one = |(i, (activity, share, ran, waited)): (usize, &Kind)| {
            // Not all at the same looks.
            let turn = f64::from((look + 3 * i as u32) % 10) / 10.0;
            let activity = if turn < *share { *activity } else { Running };
            let time = |share: f64| Duration::from_micros((passed * share * 1e3) as u64);
            let (id, slices) = (i as u32 + 1, u64::from(look));
            ThreadMoment { id, activity, ran: time(*ran), waited: time(*waited), slices }
        };
        let threads = threads.iter().enumerate().map(one).collect();
        table.add(&OccupancyLook { threads, queued: Some(queued) });
    }
    table
}

/// What the client saw: responses a second, latency in ms, requests in flight.
#[derive(Clone, Copy)]
struct KnownLoad(f64, f64, u64);

/// Judges threads under a load; `busy` is the share of the machine's time that was used.
fn verdict(threads: &[Kind], queued: u64, client: KnownLoad, busy: f64) -> OccupancyVerdict {
    let KnownLoad(rate, latency_ms, places) = client;
    judge(&table(threads, queued), &figures(threads, rate, latency_ms, Some(places), busy))
}

fn figures(
    threads: &[Kind],
    rate: f64,
    latency_ms: f64,
    places: Option<u64>,
    machine_busy: f64,
) -> LoadFigures {
    let sum = |of: fn(&Kind) -> f64| 5.0 * threads.iter().map(of).sum::<f64>();
    LoadFigures {
        seconds: 5.0,
        answered: (5.0 * rate) as u64,
        latency_s: Some(latency_ms / 1e3),
        places,
        round_trip_s: Some(40e-6),
        client_cpu_s: 0.05,
        cpu_s: sum(|t| t.2),
        waited_s: sum(|t| t.3),
        own_share: Some(0.7),
        switches: (10.0 * rate) as u64,
        cores: 2.0,
        machine_busy: Some(machine_busy),
        ..LoadFigures::default()
    }
}

#[track_caller]
fn is(expected: ServerLimit, found: &OccupancyVerdict) {
    assert_eq!(found.limit, expected, "{found:#?}");
    assert!(!found.text.is_empty() && found.signs.len() >= usize::from(expected != ServerLimit::Unknown));
}

#[test]
fn one_thread_that_sleeps_is_blocked_on_any_machine() {
    // 50 ms of sleep in Python's HTTPServer, gunicorn's sync worker, or /block/50.
    is(ServerLimit::Blocked, &verdict(&[(SLEEPS, 1.0, 0.012, 0.001)], 14, KnownLoad(19.7, 800.0, 16), 0.05));
    // Beside two loops it waits 4 ms for a core after each sleep.
    is(ServerLimit::Blocked, &verdict(&[(SLEEPS, 0.9, 0.012, 0.07)], 14, KnownLoad(18.2, 860.0, 16), 1.0));
    // Node blocks nobody by a timer, and its pool for files sleeps in a futex.
    let node = [(Free, 1.0, 0.02, 0.001), (Waiting, 1.0, 0.0, 0.0), (Waiting, 1.0, 0.0, 0.0)];
    is(ServerLimit::Waits, &verdict(&node, 0, KnownLoad(158.0, 101.0, 16), 0.05));
    let node = [(Free, 0.9, 0.02, 0.2), (Waiting, 1.0, 0.0, 0.0), (Waiting, 1.0, 0.0, 0.0)];
    is(ServerLimit::Waits, &verdict(&node, 0, KnownLoad(152.0, 105.0, 16), 1.0));
}

/// A thread by its time on cores, how often it got one, and whether it waits for requests at rest; fifty
/// looks find each of them asleep.
fn asleep(threads: &[(Duration, u64, bool)]) -> OccupancyTable {
    let look = |at: u32| {
        let one = |(i, (ran, slices, _)): (usize, &(Duration, u64, bool))| ThreadMoment {
            id: i as u32 + 1,
            activity: if at == 0 { Waiting } else { SLEEPS },
            ran: *ran * at / 50,
            waited: *ran * at / 50,
            slices: slices * u64::from(at) / 50,
        };
        OccupancyLook { threads: threads.iter().enumerate().map(one).collect(), queued: Some(14) }
    };
    let mut rest = look(0);
    for (moment, (.., is_free)) in rest.threads.iter_mut().zip(threads) {
        moment.activity = if *is_free { Free } else { Waiting };
    }
    let mut table = OccupancyTable::after_rest(&rest);
    (0..=50).for_each(|at| table.add(&look(at)));
    table
}

#[test]
fn a_thread_that_only_sleeps_is_none_of_the_pool_however_much_time_it_uses() {
    let ms = Duration::from_millis;
    let found = |threads: &[(Duration, u64, bool)], answered: u64| {
        let cpu_s = threads.iter().map(|(ran, ..)| ran.as_secs_f64()).sum();
        let latency_s = Some(15.5 * 5.0 / answered as f64);
        let run = LoadFigures { cpu_s, answered, latency_s, ..figures(&[], 20.0, 0.0, Some(16), 0.9) };
        judge(&asleep(threads), &run)
    };
    // Our own server, /block/50: its watchdog looks 200 times a second.
    let (serves, watches) = ((ms(25), 98, true), (ms(55), 950, false));
    is(ServerLimit::Blocked, &found(&[serves, watches, (ms(0), 5, false)], 96));
    // /block/10.
    is(ServerLimit::Blocked, &found(&[(ms(150), 440, true), (ms(72), 930, false)], 436));
    // /block/20 with three loops.
    let serves = [(ms(50), 240, true), (ms(60), 243, true), (ms(52), 238, true)];
    let pool = found(&[&serves[..], &[(ms(73), 930, false)]].concat(), 720);
    is(ServerLimit::PoolFull, &pool);
    assert!(pool.text.contains("its 3 threads"), "{}", pool.text);
    // Threads that take turns at a lock at rest: one waits for connections then.
    let turns = [(ms(50), 240, true), (ms(60), 243, false), (ms(52), 238, false)];
    let pool = found(&turns, 720);
    assert!(pool.text.contains("its 3 threads"), "{}", pool.text);
}

#[test]
fn a_thread_that_waits_for_a_core_longer_than_it_sleeps_is_still_the_one_that_serves() {
    // /block/10 at a load of 12: ready at six looks of ten, and its watchdog beside it.
    let (ms, mut table) = (Duration::from_millis, OccupancyTable::default());
    table.at_rest.insert(1);
    for look in 0..=20_u32 {
        let serves = if look % 10 < 4 { SLEEPS } else { Running };
        let watches = if look % 10 < 7 { SLEEPS } else { Running };
        let moment = |id, activity, ran: u64, slices: u64| {
            let (ran, slices) = (ms(ran) * look / 20, slices * u64::from(look) / 20);
            ThreadMoment { id, activity, ran, waited: ran * 30, slices }
        };
        let threads = vec![moment(1, serves, 45, 60), moment(2, watches, 30, 200)];
        table.add(&OccupancyLook { threads, queued: Some(12) });
    }
    let run = LoadFigures { cpu_s: 0.075, waited_s: 2.0, ..figures(&[], 20.0, 720.0, Some(16), 1.0) };
    let found = judge(&table, &run);
    assert_ne!(found.limit, ServerLimit::PoolFull, "{found:#?}");
}

#[test]
fn a_client_without_a_core_is_no_limit_and_no_wait() {
    // Node behind a timer, and a client that was ready for two thirds of the run.
    let node = [(Free, 0.5, 0.07, 0.6), (Waiting, 1.0, 0.0, 0.0)];
    let run = figures(&node, 100.0, 150.0, Some(16), 1.0);
    let run = LoadFigures { client_is_limit: true, client_waited: 0.66, ..run };
    let found = judge(&table(&node, 3), &run);
    is(ServerLimit::Unknown, &found);
    assert!(found.text.contains("this machine was busy (100 %"), "{}", found.text);
    assert!(found.text.contains("the client's were ready without a core for 66 % of the run"));
    assert!((found.unserved - 0.6 / 0.67).abs() < 0.01, "{found:?}");
}

#[test]
fn pools_of_processes_and_of_threads_are_full() {
    // gunicorn's arbiter waits in select, and each of three workers sleeps in its handler.
    let arbiter = (Free, 1.0, 0.001, 0.0);
    let workers = [arbiter, (SLEEPS, 1.0, 0.01, 0.0), (SLEEPS, 1.0, 0.01, 0.0), (SLEEPS, 1.0, 0.01, 0.0)];
    let found = verdict(&workers, 12, KnownLoad(59.0, 270.0, 16), 0.06);
    is(ServerLimit::PoolFull, &found);
    assert!(found.text.contains("its 3 threads sit in nanosleep for 50"), "{}", found.text);
    let late = workers.map(|(what, _, ran, _)| (what, if what == SLEEPS { 0.8 } else { 1.0 }, ran, 0.1));
    is(ServerLimit::PoolFull, &verdict(&late, 12, KnownLoad(52.0, 300.0, 16), 1.0));
    // gthread: a thread that accepts beside four that work; requests wait in its own queue.
    let acceptor = (Free, 1.0, 0.02, 0.0);
    let threads = [arbiter, acceptor, (SLEEPS, 1.0, 0.01, 0.0), (SLEEPS, 1.0, 0.01, 0.0)];
    let threads = [&threads[..], &[(SLEEPS, 1.0, 0.01, 0.0), (SLEEPS, 1.0, 0.01, 0.0)]].concat();
    is(ServerLimit::PoolFull, &verdict(&threads, 0, KnownLoad(79.0, 202.0, 16), 0.08));
    // A thread for each connection: nothing queues.
    let each = [&[acceptor][..], &[(SLEEPS, 1.0, 0.002, 0.0); 16]].concat();
    is(ServerLimit::Waits, &verdict(&each, 0, KnownLoad(52.9, 302.0, 16), 0.05));
}

#[test]
fn one_thread_that_computes_is_bound_by_its_core_or_waits_for_one() {
    let node = |ran: f64, waited: f64| {
        [(Running, 1.0, ran, waited), (Waiting, 1.0, 0.0, 0.0), (Waiting, 1.0, 0.0, 0.0)]
    };
    let found = verdict(&node(0.985, 0.005), 14, KnownLoad(98.0, 162.0, 16), 0.55);
    is(ServerLimit::CpuBound, &found);
    assert!(found.text.contains("one thread fills its core"), "{}", found.text);
    // Others had its core now and then.
    for waited in [0.1, 0.2, 0.28] {
        let found = verdict(&node(0.985 - waited, waited), 14, KnownLoad(80.0, 200.0, 16), 0.95);
        is(ServerLimit::CpuBound, &found);
        assert!(found.text.contains("which others had for"), "{}", found.text);
    }
    for waited in [0.31, 0.5, 0.66] {
        is(
            ServerLimit::WaitingForCore,
            &verdict(&node(0.985 - waited, waited), 14, KnownLoad(50.0, 320.0, 16), 1.0),
        );
    }
}

#[test]
fn threads_under_one_lock_compute_one_at_a_time() {
    let python = |ran: f64, waited: f64| {
        let each = (Waiting, 1.0, ran / 8.0, waited / 8.0);
        [&[(Free, 1.0, 0.01, 0.0), (Running, 1.0, ran / 8.0, waited / 8.0)][..], &[each; 7]].concat()
    };
    let found = verdict(&python(0.99, 0.02), 0, KnownLoad(100.0, 80.0, 8), 0.55);
    is(ServerLimit::CpuBound, &found);
    assert!(found.text.contains("one at a time"), "{}", found.text);
    is(ServerLimit::CpuBound, &verdict(&python(0.75, 0.24), 0, KnownLoad(75.0, 106.0, 8), 0.97));
    is(ServerLimit::WaitingForCore, &verdict(&python(0.5, 0.6), 0, KnownLoad(50.0, 160.0, 8), 1.0));
}

#[test]
fn gos_coroutines_wait_without_a_thread_and_compute_on_all_cores() {
    // The runtime's own thread sleeps for 10 ms at a time; the others are idle.
    let idle = [(SLEEPS, 1.0, 0.003, 0.0), (Free, 1.0, 0.02, 0.0), (Waiting, 1.0, 0.01, 0.0)];
    let found = verdict(&idle, 0, KnownLoad(158.0, 101.0, 16), 0.05);
    is(ServerLimit::Waits, &found);
    assert!(found.text.contains("none holds a thread"), "{}", found.text);
    let late = idle.map(|(what, _, ran, _)| (what, 0.9, ran, 0.05));
    is(ServerLimit::Waits, &verdict(&late, 0, KnownLoad(150.0, 106.0, 16), 1.0));
    let busy = |ran: f64, waited: f64| {
        let works = (Running, 1.0, ran, waited);
        [(SLEEPS, 1.0, 0.002, 0.0), works, works, (Waiting, 1.0, 0.0, 0.0)]
    };
    let found = verdict(&busy(0.97, 0.02), 3, KnownLoad(40.0, 400.0, 16), 1.0);
    is(ServerLimit::CpuBound, &found);
    assert!(found.text.contains("2 cores in use"), "{}", found.text);
    for waited in [0.15, 0.25, 0.5] {
        let found = verdict(&busy(0.97 - waited, waited), 6, KnownLoad(30.0, 530.0, 16), 1.0);
        is(ServerLimit::WaitingForCore, &found);
    }
}

#[test]
fn a_server_with_room_is_not_blamed_for_a_client_without_a_core() {
    let nginx = [(Free, 1.0, 0.02, 0.001)];
    let slow =
        |latency_ms, machine| judge(&table(&nginx, 0), &figures(&nginx, 300.0, latency_ms, None, machine));
    is(ServerLimit::NotReached, &slow(0.2, 0.06));
    // A quiet machine delays nothing by 4 ms, and on a full one it may be the client.
    is(ServerLimit::Waits, &slow(4.0, 0.06));
    is(ServerLimit::NotReached, &slow(4.0, 1.0));
    is(ServerLimit::Waits, &slow(40.0, 1.0));
    let saturated = LoadFigures { client_is_limit: true, ..figures(&nginx, 300.0, 4.0, None, 1.0) };
    is(ServerLimit::Client, &judge(&table(&nginx, 0), &saturated));
}

#[test]
fn a_client_that_decodes_is_the_limit() {
    // 8 MB of text for each kilobyte that nginx sends.
    let nginx = [(Free, 1.0, 0.005, 0.0)];
    let run = figures(&nginx, 60.0, 66.0, Some(4), 0.5);
    let run = LoadFigures { client_is_limit: true, client_cpu_s: 4.95, ..run };
    let found = judge(&table(&nginx, 0), &run);
    is(ServerLimit::Client, &found);
    assert!(found.text.contains("the client was the limit"), "{}", found.text);
    assert!(found.cures[0].rate_rps > 60.0);
}
