//! nginx as packaged: a master that is root, and workers that are not.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// nginx's workers that have said that they serve in user space, in order.
pub(super) fn owners(server: &PreloadedProgram) -> Vec<u32> {
    let said = server.said();
    let lines = said.lines().filter(|line| line.contains("is served by TCP in user space"));
    lines.map(|line| line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process")).collect()
}

/// Waits until so many workers have said so.
pub(super) fn wait_for_owners(server: &PreloadedProgram, count: usize) -> Vec<u32> {
    let begin = Instant::now();
    loop {
        let owners = owners(server);
        if owners.len() >= count {
            return owners;
        }
        assert!(begin.elapsed() < PATIENCE, "{count} of {}", server.said());
        thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn packaged(folder: &Path, workers: usize) -> Option<Command> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("set");
    nginx(folder, &format!("user www-data; worker_processes {workers};"))
}

fn user_of(process: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    status.lines().find(|line| line.starts_with("Uid:")).expect("a user").to_owned()
}

#[test]
fn unprivileged_workers_share_the_receive_queues() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 2) else { return };
    let Some(cable) = Cable::new(2) else { return };
    let server = PreloadedProgram::start(&cable, command, true);
    let owners = wait_for_owners(&server, 2);
    assert_ne!(owners[0], owners[1]);
    owners.iter().for_each(|owner| assert!(!user_of(*owner).contains("\t0"), "{owner} is root"));
    cable.theirs.run(|| {
        let mut kept: Vec<_> = (0..100).map(|_| BufReader::new(connected())).collect();
        for _ in 0..3 {
            for client in &mut kept {
                client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            }
            kept.iter_mut().for_each(|client| assert_eq!(body(client), [b'x'; 600]));
        }
        assert_eq!(of_the_kernel(&cable), 0);
        assert!(get("/file") == pattern(20 << 20));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    cable.theirs.enter();
                    (0..500).for_each(|_| assert_eq!(get("/"), [b'x'; 600]));
                });
            }
        });
    });
    // The kernel's listener stays beside it, for this machine's own clients.
    cable.ours.run(|| assert_eq!(get("/"), [b'x'; 600]));
    let errors = server.said();
    assert!(!errors.contains("[alert]") && !errors.contains("serves from the kernel"), "{errors}");
}

/// After a timeout a kernel of Linux sends by another queue of a veth pair, whose process does not know the connection.
#[test]
fn connections_outlive_that_their_segments_come_by_another_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 2) else { return };
    let Some(cable) = Cable::new(2) else { return };
    let server = PreloadedProgram::start(&cable, command, true);
    let owners = wait_for_owners(&server, 2);
    cable.theirs.run(|| {
        let mut kept: Vec<_> = (0..32).map(|_| BufReader::new(connected())).collect();
        signal("-STOP", owners[0]);
        for client in &mut kept {
            client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        }
        // For a probe of the last segment, and two timeouts.
        thread::sleep(Duration::from_millis(1500));
        signal("-CONT", owners[0]);
        kept.iter_mut().for_each(|client| assert_eq!(body(client), [b'x'; 600]));
        assert_eq!(of_the_kernel(&cable), 0);
    });
}

pub(super) fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().expect("kill").success());
}

#[test]
fn workers_beyond_the_queues_are_named_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 2) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let mut server = PreloadedProgram::start(&cable, command, true);
    server.wait_for("serves from the kernel: here has 1 receive queue, which 1 process uses");
    cable.theirs.run(|| {
        let _open = connected();
        (0..200).for_each(|_| assert_eq!(get("/"), [b'x'; 600]));
        assert_eq!(of_the_kernel(&cable), 0);
    });
    let said = server.said();
    assert_eq!(said.matches("ethtool -L here combined 2").count(), 1, "{said}");
    assert_eq!(owners(&server).len(), 1, "{said}");
}

/// No packet wakes it: the launcher does.
#[test]
fn a_process_that_sleeps_in_a_call_gets_the_queue_of_one_that_ended() {
    for how in ["epoll_pwait", "poll", "select", "accept"] {
        let [ip, port] = at();
        let file = script("successor.py");
        let Some(command) = python(&[file.to_str().expect("a name"), &ip, &port, how]) else { return };
        let Some(cable) = Cable::new(1) else { return };
        let server = PreloadedProgram::start(&cable, command, true);
        wait_for_owners(&server, 2);
        cable.theirs.run(|| {
            let mut client = connected();
            let mut said = [0; 4];
            client.read_exact(&mut said).expect("a greeting");
            assert_eq!((&said, of_the_kernel(&cable)), (b"here", 0), "{how}");
        });
    }
}

/// One short connection.
fn try_get() -> std::io::Result<Vec<u8>> {
    let mut client = TcpStream::connect_timeout(&AT, Duration::from_secs(20))?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    client.read_to_end(&mut response)?;
    Ok(response)
}

#[test]
fn the_peers_of_a_killed_worker_are_reset_and_its_queue_goes_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(command) = packaged(folder.path(), 1) else { return };
    let Some(cable) = Cable::new(1) else { return };
    let server = PreloadedProgram::start(&cable, command, true);
    let (failed, served, ends) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    // They wait in silence for what never comes.
    let mut silent: Vec<TcpStream> = cable.theirs.run(|| (0..20).map(|_| connected()).collect());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                cable.theirs.enter();
                while !ends.load(Ordering::Relaxed) {
                    let is_served = try_get().is_ok_and(|response| response.ends_with(&[b'x'; 600]));
                    let count = if is_served { &served } else { &failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_millis(300));
        let worker = owners(&server)[0].to_string();
        assert!(Command::new("kill").args(["-KILL", &worker]).status().expect("kill").success());
        let begin = Instant::now();
        for client in &mut silent {
            let told = client.read(&mut [0]).expect_err("no response");
            assert_eq!(told.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        wait_for_owners(&server, 2);
        let before = served.load(Ordering::Relaxed);
        let begin = Instant::now();
        while served.load(Ordering::Relaxed) < before + 100 {
            assert!(begin.elapsed() < PATIENCE, "{} served", served.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(10));
        }
        ends.store(true, Ordering::Relaxed);
    });
    // Each thread had a connection.
    assert!(failed.load(Ordering::Relaxed) <= 4, "{}", failed.load(Ordering::Relaxed));
    cable.theirs.run(|| {
        let _open = connected();
        assert_eq!(of_the_kernel(&cable), 0);
    });
}
