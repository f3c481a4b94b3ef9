//! Mixed load on unchanged servers: what connections took is given back, whatever became of them.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::packaged::{HAPROXY, NGINX, PackagedServer, SECURE_NGINX, ServerClient};
use super::reloads::{Tunnel, backend, kept_alive};
use super::workers::wait_for_owners;
use super::*;

/// How long the load lasts, in seconds.
const SECONDS: &str = "LINERATE_BYPASS_SECONDS";
const SECONDS_IN_TESTS: u64 = 8;
/// The load has so many parts; the server gets quiet after each.
const PARTS: u32 = 4;
/// Allowed growth of a process from the largest value of the earlier parts to the last part, kB. Reason: allocators keep
/// pages. A leak of a hundred bytes a connection is more after ten minutes.
const GROWTH_KB: u64 = 4 << 10;
/// The same of descriptors. Reason: as many as were in use at once stay for connections to come.
const MORE_DESCRIPTORS: u64 = 16;
/// Between two connections of a client. Reason: its server shares the machine with all else.
const PAUSE: Duration = Duration::from_millis(4);

/// What a server's processes hold when it is quiet.
#[derive(Clone, Copy, Debug)]
struct HeldByProcesses {
    memory_kb: u64,
    descriptors: u64,
}

impl HeldByProcesses {
    fn of(processes: &[u32]) -> HeldByProcesses {
        let memory = |process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
        };
        let descriptors =
            |process: &u32| fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count() as u64;
        HeldByProcesses {
            memory_kb: processes.iter().map(memory).sum(),
            descriptors: processes.iter().map(descriptors).sum(),
        }
    }

    /// What they hold once that does not change any more.
    fn when_quiet(processes: &[u32]) -> HeldByProcesses {
        let begin = Instant::now();
        let mut before = HeldByProcesses::of(processes);
        loop {
            thread::sleep(Duration::from_secs(1));
            let held = HeldByProcesses::of(processes);
            if held.descriptors >= before.descriptors {
                return held;
            }
            assert!(begin.elapsed() < PATIENCE, "{held:?}");
            before = held;
        }
    }
}

/// A client of the mixture: one connection, or a few.
type MixedClient = fn(&ServerClient, usize);

fn short(of: &ServerClient, _: usize) {
    assert_eq!(of.get("/"), [b'x'; 600]);
}

/// A download to its end, or broken off in its midst.
fn download(of: &ServerClient, nth: usize) {
    let mut client = BufReader::new(of.connected());
    client.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    if nth.is_multiple_of(4) {
        assert!(body(&mut client) == pattern(20 << 20));
        return;
    }
    let mut some = vec![0; (nth * 7919) % (1 << 20) + 1];
    client.read_exact(&mut some).expect("a part");
}

fn slow_reader(of: &ServerClient, nth: usize) {
    let mut client = of.connected();
    client.write_all(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut some = vec![0; 64 << 10];
    for _ in 0..nth % 8 + 2 {
        client.read_exact(&mut some).expect("a part");
        thread::sleep(25 * PAUSE);
    }
}

fn tunnel(of: &ServerClient, nth: usize) {
    let mut tunnel = Tunnel::through(of.connected());
    for n in 0..nth % 8 {
        tunnel.echoes_bytes(&pattern(n * 5000 + 1));
        thread::sleep(PAUSE);
    }
}

/// Connections that say nothing, or half a request.
fn silent(of: &ServerClient, nth: usize) {
    let mut all: Vec<_> = (0..8).map(|_| of.connected()).collect();
    if nth.is_multiple_of(2) {
        all.iter_mut().for_each(|client| client.write_all(b"GET / HTTP/1.1\r\nHo").expect("sent"));
    }
}

/// Has said all, and still gets the response.
fn half_closed(of: &ServerClient, _: usize) {
    let mut client = BufReader::new(of.connected());
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    client.get_ref().stream().shutdown(Shutdown::Write).expect("a connection");
    assert_eq!(body(&mut client), [b'x'; 600]);
}

const MIXTURE: [MixedClient; 6] = [short, download, slow_reader, tunnel, silent, half_closed];

/// All kinds at once. Returns how many clients there were of each, and how many requests on kept connections.
fn mixed(cable: &Cable, of: &ServerClient, time: Duration) -> ([usize; 6], usize) {
    let (ends, kept) = (AtomicBool::new(false), AtomicUsize::new(0));
    let counts: [AtomicUsize; 6] = Default::default();
    thread::scope(|scope| {
        for (call, count) in MIXTURE.iter().zip(&counts) {
            let ends = &ends;
            scope.spawn(move || {
                cable.theirs.enter();
                while !ends.load(Ordering::Relaxed) {
                    call(of, count.fetch_add(1, Ordering::Relaxed));
                    thread::sleep(PAUSE);
                }
            });
        }
        scope.spawn(|| {
            cable.theirs.enter();
            kept_alive(of, &kept, &ends);
        });
        thread::sleep(time);
        ends.store(true, Ordering::Relaxed);
    });
    (counts.map(AtomicUsize::into_inner), kept.into_inner())
}

fn gives_all_back(of: &PackagedServer, workers: usize) {
    let seconds = env::var(SECONDS).map_or(SECONDS_IN_TESTS, |word| word.parse().expect("seconds"));
    let folder = tempfile::tempdir().expect("a folder");
    let Some((behind, command)) = of.commands(folder.path(), AT, workers) else { return };
    let Some(cable) = Cable::new(workers as u32) else { return };
    // A busy machine causes timeouts, after which connections of a veth pair would change their queue.
    // Kernels before 5.18 have no such setting.
    let _ = cable.theirs.run(|| fs::write("/proc/sys/net/core/txrehash", "0"));
    cable.ours.run(|| backend(usize::MAX));
    let _behind = behind.map(|command| PreloadedProgram::start(&cable, command, false));
    let server = PreloadedProgram::start(&cable, command, true);
    let client = of.client(folder.path(), AT);
    let mut processes = wait_for_owners(&server, workers);
    processes.dedup();
    // The first connections open what all use.
    mixed(&cable, &client, Duration::from_millis(500));
    let mut levels = vec![HeldByProcesses::when_quiet(&processes)];
    for part in 1..=PARTS {
        let (clients, kept) = mixed(&cable, &client, Duration::from_secs(seconds) / PARTS);
        assert!(kept > 0 && clients.iter().all(|count| *count > 0), "{clients:?}, {kept}");
        let held = HeldByProcesses::when_quiet(&processes);
        println!("part {part}: clients {clients:?}, {kept} requests on kept connections, {held:?}");
        levels.push(held);
        assert_eq!(of_the_kernel(&cable), 0, "{}", server.said());
    }
    let (last, before) = levels.split_last().expect("parts");
    let most = |of: fn(&HeldByProcesses) -> u64| before.iter().map(of).max().expect("parts before");
    assert!(last.memory_kb <= most(|held| held.memory_kb) + GROWTH_KB, "{levels:?}");
    assert!(last.descriptors <= most(|held| held.descriptors) + MORE_DESCRIPTORS, "{levels:?}");
    let said = server.said();
    assert!(!said.contains("[alert]") && !said.contains("[crit]"), "{said}");
}

#[test]
fn nginx_gives_back_what_mixed_load_took() {
    gives_all_back(&NGINX, 2);
}

#[test]
fn nginx_with_tls_gives_back_what_mixed_load_took() {
    gives_all_back(&SECURE_NGINX, 1);
}

#[test]
fn haproxy_gives_back_what_mixed_load_took() {
    gives_all_back(&HAPROXY, 1);
}
