use super::*;

fn thread(id: u32, activity: ThreadActivity, ran_ms: u64) -> ThreadMoment {
    ThreadMoment { id, activity, ran: Duration::from_millis(ran_ms), waited: Duration::ZERO, slices: 0 }
}

/// Twenty looks in two seconds: `at` says what each thread does, and `share` the cores that it uses.
fn table(threads: &[(ThreadActivity, f64)], queued: Option<u64>) -> OccupancyTable {
    let mut table = OccupancyTable::default();
    for look in 0..=20_u32 {
        let one = |(i, (activity, share)): (usize, &(ThreadActivity, f64))| {
            thread(i as u32 + 1, *activity, (f64::from(look) * 100.0 * share) as u64)
        };
        table.add(&OccupancyLook { threads: threads.iter().enumerate().map(one).collect(), queued });
    }
    table
}

fn figures(rate: f64, latency_s: f64, cpu_s: f64) -> LoadFigures {
    LoadFigures {
        seconds: 2.0,
        answered: (rate * 2.0) as u64,
        latency_s: Some(latency_s),
        places: Some(64),
        round_trip_s: Some(50e-6),
        cpu_s,
        own_share: Some(0.6),
        cores: 2.0,
        machine_busy: Some(0.5),
        switches: 100,
        ..LoadFigures::default()
    }
}

fn rate_of(verdict: &OccupancyVerdict, part: &str) -> f64 {
    let found = verdict.cures.iter().find(|c| c.change.contains(part));
    found.unwrap_or_else(|| panic!("{part}: {verdict:#?}")).rate_rps
}

const SLEEPS: ThreadActivity = ThreadActivity::Blocked("nanosleep");
use ThreadActivity::{Free, Running, Waiting};

#[test]
fn one_thread_that_sleeps_in_its_handler_is_blocked() {
    // 10 ms of sleep and 0.2 ms of CPU each: 98 a second.
    let verdict = judge(&table(&[(SLEEPS, 0.02)], Some(62)), &figures(98.0, 0.65, 0.04));
    assert_eq!(verdict.limit, ServerLimit::Blocked, "{verdict:#?}");
    assert!((verdict.blocked_per_request_s - 0.0102).abs() < 1e-4);
    // Little's law: 64 in flight, each 10.2 ms held and 0.2 ms of CPU.
    assert!((rate_of(&verdict, "coroutines") - 64.0 / 0.010_408).abs() < 60.0, "{verdict:#?}");
    assert!((rate_of(&verdict, "processes") - 2.0 / 0.010_408).abs() < 4.0);
    assert_eq!(verdict.signs.len(), 3);
}

#[test]
fn a_pool_of_sleeping_threads_is_full_only_while_requests_wait() {
    let threads = [(SLEEPS, 0.01); 8];
    let run = figures(780.0, 0.08, 0.16);
    assert_eq!(judge(&table(&threads, Some(50)), &run).limit, ServerLimit::PoolFull);
    // The queue may be inside the server: only the client's figures show it.
    assert_eq!(judge(&table(&threads, Some(0)), &run).limit, ServerLimit::PoolFull);
    // As many threads as requests in flight: nothing queues.
    let threads = [(SLEEPS, 0.001); 64];
    let verdict = judge(&table(&threads, Some(0)), &figures(6_200.0, 0.0102, 0.128));
    assert_eq!(verdict.limit, ServerLimit::Waits, "{verdict:#?}");
}

/// A thread for each request, of which some have not got theirs yet.
#[test]
fn threads_that_end_with_their_requests_are_no_pool() {
    let mut table = OccupancyTable::default();
    for look in 0..=20_u32 {
        let threads = (0..12).map(|i| thread(12 * look + i, SLEEPS, 1)).collect();
        table.add(&OccupancyLook { threads, queued: Some(0) });
    }
    let verdict = judge(&table, &LoadFigures { places: Some(16), ..figures(53.0, 0.3, 0.05) });
    assert_ne!(verdict.limit, ServerLimit::PoolFull, "{verdict:#?}");
}

/// A thread for each request under one lock, of which one now and then waits for memory.
#[test]
fn threads_that_come_and_go_are_judged_by_all_of_them() {
    let mut table = OccupancyTable::default();
    for look in 0..=20_u32 {
        let one = |i: u32| {
            let waits = if i == 0 && look % 7 == 3 { ThreadActivity::Blocked("a device") } else { Waiting };
            thread(4 * look + i, if i == 1 { Running } else { waits }, 5)
        };
        table.add(&OccupancyLook { threads: (0..4).map(one).collect(), queued: Some(6) });
    }
    let run = LoadFigures { waited_s: 1.8, machine_busy: Some(1.0), ..figures(53.0, 0.15, 0.2) };
    let verdict = judge(&table, &run);
    assert!(![ServerLimit::Blocked, ServerLimit::PoolFull].contains(&verdict.limit), "{verdict:#?}");
}

#[test]
fn a_full_thread_is_helped_by_processes_and_not_by_coroutines() {
    let run = LoadFigures { waited_s: 0.05, ..figures(272.0, 0.235, 1.98) };
    let verdict = judge(&table(&[(Running, 0.99), (Waiting, 0.0)], Some(60)), &run);
    assert_eq!(verdict.limit, ServerLimit::CpuBound);
    assert!(verdict.text.contains("275/s a core at most"), "{}", verdict.text);
    assert!(verdict.text.contains("coroutines cannot help"));
    assert!((rate_of(&verdict, "coroutines") - 275.0).abs() < 1.0);
    assert!((rate_of(&verdict, "2 processes") - 549.0).abs() < 2.0);
    // The counters say so, and no look found a thread that ran.
    let verdict = judge(&table(&[(Waiting, 0.99)], Some(60)), &run);
    assert_eq!(verdict.limit, ServerLimit::Unknown);
}

#[test]
fn threads_that_run_one_at_a_time_use_one_core() {
    let mut threads = vec![(Waiting, 0.1); 9];
    threads.push((Running, 0.1));
    let verdict = judge(&table(&threads, Some(0)), &figures(272.0, 0.235, 2.0));
    assert_eq!(verdict.limit, ServerLimit::CpuBound);
    assert!(verdict.text.contains("one at a time"), "{}", verdict.text);
    assert!(rate_of(&verdict, "2 processes") > 1.9 * rate_of(&verdict, "coroutines"));
}

#[test]
fn a_core_that_others_have_is_not_the_servers_work() {
    let run = LoadFigures {
        waited_s: 1.6,
        machine_busy: Some(0.99),
        client_cpu_s: 1.0,
        ..figures(5_000.0, 0.012, 1.0)
    };
    let threads = [(Running, 0.25), (Running, 0.25)];
    let verdict = judge(&table(&threads, Some(30)), &run);
    assert_eq!(verdict.limit, ServerLimit::WaitingForCore);
    assert!(verdict.text.contains("this client"), "{}", verdict.text);
    // The machine was not busy: something else kept it.
    let idle = LoadFigures { machine_busy: Some(0.3), ..run };
    assert_ne!(judge(&table(&threads, Some(30)), &idle).limit, ServerLimit::WaitingForCore);
}

#[test]
fn cores_full_of_switches_are_told_from_cores_full_of_work() {
    let threads = [(Running, 0.5), (Running, 0.5), (Running, 0.5), (Running, 0.5)];
    let run = LoadFigures { switches: 600_000, own_share: Some(0.2), ..figures(100_000.0, 0.000_64, 3.9) };
    assert_eq!(judge(&table(&threads, None), &run).limit, ServerLimit::Switching);
    let few = LoadFigures { switches: 40_000, ..run.clone() };
    assert_eq!(judge(&table(&threads, None), &few).limit, ServerLimit::CpuBound);
    let own = LoadFigures { own_share: Some(0.9), ..run };
    assert_eq!(judge(&table(&threads, None), &own).limit, ServerLimit::CpuBound);
}

#[test]
fn what_sleeps_in_a_runtime_is_no_handler() {
    // Go: one thread of the runtime sleeps again and again, others wait, and handlers are coroutines.
    let threads = [(SLEEPS, 0.005), (Free, 0.05), (Waiting, 0.05)];
    let run = figures(6_200.0, 0.0103, 0.21);
    let verdict = judge(&table(&threads, Some(0)), &run);
    assert_eq!(verdict.limit, ServerLimit::Waits, "{verdict:#?}");
    assert!(verdict.text.contains("none holds a thread"));
}

#[test]
fn a_server_with_room_and_a_full_client() {
    let threads = [(Free, 0.2), (Free, 0.2)];
    let run = figures(9_000.0, 0.000_2, 0.8);
    let verdict = judge(&table(&threads, Some(0)), &run);
    assert_eq!(verdict.limit, ServerLimit::NotReached, "{verdict:#?}");
    let full = LoadFigures { client_is_limit: true, client_cpu_s: 1.9, ..run };
    assert_eq!(judge(&table(&threads, Some(0)), &full).limit, ServerLimit::Client);
}

#[test]
fn threads_that_wait_for_each_other_cannot_be_told() {
    let verdict = judge(&table(&[(Waiting, 0.02); 8], Some(20)), &figures(98.0, 0.65, 0.3));
    assert_eq!(verdict.limit, ServerLimit::Unknown);
    assert!(verdict.text.starts_with("cannot be told") && verdict.cures.is_empty());
}

#[test]
fn too_few_looks_say_nothing() {
    let mut table = OccupancyTable::default();
    for _ in 0..4 {
        table.add(&OccupancyLook { threads: vec![thread(1, SLEEPS, 0)], queued: Some(9) });
    }
    assert_eq!(judge(&table, &figures(98.0, 0.65, 0.04)).limit, ServerLimit::Unknown);
    assert_eq!(judge(&OccupancyTable::default(), &LoadFigures::default()).limit, ServerLimit::Unknown);
    // A page for Prometheus tells the CPU time alone.
    let page = judge(&OccupancyTable::default(), &figures(98.0, 0.65, 0.04));
    assert!(page.limit == ServerLimit::Unknown && page.text.contains("4,900/s a core at most"), "{page:?}");
}

#[test]
fn a_thread_for_each_request_is_not_remembered_for_ever() {
    let mut table = OccupancyTable::default();
    for id in 0..3 * OCCUPANCY_IDS as u32 {
        table.add(&OccupancyLook { threads: vec![thread(id, Running, 1)], queued: None });
    }
    assert_eq!(table.by_thread.len(), OCCUPANCY_IDS);
    assert!((table.running() - 1.0).abs() < 1e-9 && table.queued().is_none());
}
