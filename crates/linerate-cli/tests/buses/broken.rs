//! Runs whose parts break: the report is true, nothing counts twice, and nothing is missing in
//! silence.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Broker, Program, abandoned, agent, broker, cluster, nats_server, starting_agent};
use crate::common::{Said, linerate, measured, nobody, number, run, until};
use crate::serving::{self, serve};

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// A load of `-d SECONDS` at 400 requests/s by both agents.
fn load(url: &str, nats: &str, seconds: u32, more: &[&str]) -> (Value, Said) {
    let duration = format!("{seconds}s");
    let mut args = vec!["--nats", nats, "--agents", "2", "-c", "8", "--rate", "400", "-d", &duration];
    args.extend_from_slice(more);
    args.push(url);
    measured(&args)
}

/// All that was due: requests with an outcome, and those that were never sent.
pub(crate) fn due(document: &Value) -> u64 {
    ["answered", "failed", "unknown", "unsent"]
        .iter()
        .map(|what| number(document, &format!("/requests/{what}")))
        .sum()
}

/// Runs a load, and meanwhile breaks something, once the first agent has begun.
fn broken(
    nats: &str,
    begun: &Program,
    seconds: u32,
    more: &[&str],
    break_it: impl FnOnce() + Send,
) -> (Value, Said, serving::Server) {
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let (document, said) = thread::scope(|scope| {
        scope.spawn(|| {
            begun.says("begins");
            thread::sleep(Duration::from_millis(3500));
            break_it();
        });
        load(&url, nats, seconds, more)
    });
    (document, said, server)
}

/// What the server counted is what the report says, but for `most` requests whose fate is unknown.
fn server_agrees(document: &Value, server: &serving::Server) {
    let stats: Value = serde_json::from_str(server.get("/stats").lines().last().unwrap()).unwrap();
    let counted = stats["requests"].as_u64().or_else(|| stats["responses"]["2xx"].as_u64());
    let counted = counted.unwrap_or_else(|| panic!("{stats:#}"));
    let (answered, unknown) = (number(document, "/requests/answered"), number(document, "/requests/unknown"));
    assert!(counted >= answered, "{counted} {answered}");
    // The request for the statistics counts too, and what an agent sent after its last report.
    let unreported = 400 * 2;
    assert!(counted <= answered + unknown + 1 + unreported, "{counted} {answered} {unknown}");
}

#[test]
fn a_lost_agents_share_is_taken_over() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (stays, dies) = (broker.agent("stays", &[]), broker.agent("dies", &[]));
    let more = ["--on-agent-loss", "rebalance"];
    let (document, said, server) =
        broken(&broker.url, &dies, 20, &more, || signal(&dies.child, Signal::SIGKILL));
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("agent stays took over the share of dies at "), "{}", said.err);
    let agents = document["machines"]["agents"].as_array().unwrap();
    let of: Vec<_> = agents.iter().map(|a| (a["name"].as_str(), a["standing"].as_str())).collect();
    assert_eq!(
        of,
        [(Some("dies"), Some("lost")), (Some("stays"), Some("complete")), (Some("stays"), Some("complete"))]
    );
    // The schedule, but for what was due while the last report was made.
    let all = due(&document);
    assert!((7960..=8040).contains(&all), "{all}: {:#}", document["requests"]);
    let unsent = number(&document, "/requests/unsent");
    // The share is without an agent for 5 to 6 s, from its last report on.
    assert!((200..1320).contains(&unsent), "{unsent} of a rate of 200/s");
    assert!(number(&document, "/machines/agents/2/answered") > 600, "{document:#}");
    server_agrees(&document, &server);
    stays.says("has ended, its results are published");
}

#[test]
fn a_lost_agent_ends_the_run_where_that_is_wanted() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_stays, dies) = (broker.agent("stays", &[]), broker.agent("dies", &[]));
    let more = ["--on-agent-loss", "abort"];
    let (document, said, _server) =
        broken(&broker.url, &dies, 60, &more, || signal(&dies.child, Signal::SIGKILL));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("the run was aborted because agent dies was lost"), "{}", said.err);
    assert!(number(&document, "/requests/answered") < 400 * 30, "{document:#}");
}

#[test]
fn a_stopped_agent_and_a_late_one_are_waited_for() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_runs, stops) = (broker.agent("runs", &[]), broker.agent("stops", &[]));
    let (document, said, server) = broken(&broker.url, &stops, 8, &[], || {
        signal(&stops.child, Signal::SIGSTOP);
        thread::sleep(Duration::from_secs(8));
        signal(&stops.child, Signal::SIGCONT);
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (3200, &true.into()), "{said:?}");
    server_agrees(&document, &server);
    // Stopped before the start: it joins late, and says so. The whole schedule is accounted for.
    let (begins, url) = (&stops, format!("http://{}/", server.address));
    let (document, said) = thread::scope(|scope| {
        scope.spawn(|| {
            until("the second start", || begins.said.lock().unwrap().matches("begins").count() == 2);
            signal(&begins.child, Signal::SIGSTOP);
            thread::sleep(Duration::from_secs(4));
            signal(&begins.child, Signal::SIGCONT);
        });
        load(&url, &broker.url, 8, &[])
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("agent stops was late and joined at "), "{}", said.err);
    assert_eq!((due(&document), &document["machines"]["complete"]), (3200, &true.into()), "{said:?}");
    assert!(number(&document, "/requests/unsent") >= 400, "{document:#}");
}

#[test]
fn a_broker_that_comes_back_has_everything() {
    let Some(program) = nats_server() else { return };
    let mut broker = broker(&program);
    let (_one, two) = (broker.agent("one", &[]), broker.agent("two", &[]));
    let (document, said, server) = {
        let (url, broker) = (broker.url.clone(), &mut broker);
        broken(&url, &two, 10, &[], || {
            broker.kill();
            thread::sleep(Duration::from_secs(6));
            broker.start();
        })
    };
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (4000, &true.into()), "{said:?}");
    let away = said.err.find("no NATS server can be reached: agents go on").expect("it is said");
    assert!(said.err[away..].contains("a NATS server is back"), "{}", said.err);
    server_agrees(&document, &server);
}

/// A broker that is there and says nothing is no order to stop, and no loss of an agent.
#[test]
fn a_silent_broker_stops_nothing() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_one, two) = (broker.agent("one", &[]), broker.agent("two", &[]));
    let pid = Pid::from_raw(broker.child.as_ref().unwrap().child.id() as i32);
    for more in [&[][..], &["--on-agent-loss", "rebalance"], &["--on-agent-loss", "abort"]] {
        let (document, said, server) = broken(&broker.url, &two, 20, more, || {
            kill(pid, Signal::SIGSTOP).unwrap();
            thread::sleep(Duration::from_secs(13));
            kill(pid, Signal::SIGCONT).unwrap();
        });
        assert_eq!(said.code, Some(0), "{more:?}: {said:?}");
        assert_eq!((due(&document), &document["complete"]), (8000, &true.into()), "{more:?}: {said:?}");
        assert_eq!(document["interrupted"], false, "{more:?}: {said:?}");
        // A load that ended when the broker fell silent has 1,400 to 1,600.
        assert!(number(&document, "/requests/answered") > 4000, "{more:?}: {said:?}");
        for word in ["this machine was the limit", "took over", "aborted"] {
            assert!(!said.err.contains(word), "{more:?}: {}", said.err);
        }
        let old = said.err.find("the figures shown are old").expect("it is said");
        assert!(said.err[old..].contains("reports come again"), "{more:?}: {}", said.err);
        server_agrees(&document, &server);
    }
}

/// What was late because an agent stood still is told as that agent's doing.
#[test]
fn the_agent_that_stood_still_is_named() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_one, two) = (broker.agent("one", &[]), broker.agent("two", &[]));
    let (document, said, server) = broken(&broker.url, &two, 6, &[], || {
        signal(&two.child, Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(1200));
        signal(&two.child, Signal::SIGCONT);
    });
    let shares = document["agents"].as_array().unwrap();
    let still = |id: &str| {
        let share = shares.iter().find(|share| share["id"] == id);
        share.unwrap_or_else(|| panic!("{document}"))["stood_still_ms"].as_f64().unwrap()
    };
    assert!(still("two") >= 1_000.0 && still("one") < still("two"), "{document}");
    assert!(said.err.contains("agent two stood still for up to 1."), "{}", said.err);
    // On a busy machine more is said of it in between.
    let mut of_two = said.err.lines().filter(|line| line.contains("whole,") && line.contains("stood still"));
    assert!(of_two.next_back().is_some_and(|line| line.contains("for up to 1.")), "{}", said.err);
    assert!(!said.err.contains("this client stood still"), "{}", said.err);
    server_agrees(&document, &server);
}

/// An agent that ends its part without saying what it measured is named, and nobody waits for it.
#[test]
fn an_idle_agent_without_a_last_message_ends_the_wait() {
    let Some(program) = nats_server() else { return };
    // The last message, which is the longest, is more than this broker takes.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nats.conf").display().to_string();
    std::fs::write(&config, "max_payload: 4500\n").unwrap();
    let broker = Broker::with(&program, "small", nobody().port(), &["-c", &config]);
    let _agent = broker.agent("one", &[]);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let args =
        ["--nats", &broker.url, "--agents", "1", "-c", "4", "-t", "1", "--rate", "500", "-d", "3s", &url];
    let (document, said) = measured(&args);
    assert_eq!((said.code, &document["complete"]), (Some(4), &false.into()), "{said:?}");
    let named = "agent one has ended its part without a last message";
    assert!(said.err.contains(named), "{}", said.err);
}

/// SIGTERM: it stops sending, publishes what it measured, and leaves.
#[test]
fn an_agent_that_is_told_to_leave_publishes_first() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_stays, leaves) = (broker.agent("stays", &[]), broker.agent("leaves", &[]));
    let (document, said, server) =
        broken(&broker.url, &leaves, 8, &[], || signal(&leaves.child, Signal::SIGTERM));
    leaves.says("its results are published");
    assert_eq!((said.code, &document["complete"]), (Some(4), &false.into()), "{said:?}");
    assert!(said.err.contains("agent leaves was told to leave at"), "{}", said.err);
    let agents = document["machines"]["agents"].as_array().unwrap();
    let left = agents.iter().find(|agent| agent["name"] == "leaves").unwrap();
    assert_eq!((&left["standing"], &left["unknown"]), (&"left".into(), &0.into()), "{left:#}");
    let stats: Value = serde_json::from_str(server.get("/stats").lines().last().unwrap()).unwrap();
    let counted = stats["requests"].as_u64().or_else(|| stats["responses"]["2xx"].as_u64()).unwrap();
    // All that the server answered, but for the request for this page.
    assert!(counted - number(&document, "/requests/answered") <= 1, "{document:#} {stats}");
}

/// One of three brokers dies, the one that leads; later all three are away.
#[test]
fn three_brokers_lose_their_leader_and_then_each_other() {
    let Some(program) = nats_server() else { return };
    let mut brokers = cluster(&program);
    let folder = brokers[0].folder.path().to_owned();
    let urls = brokers.iter().map(|b| b.url.clone()).collect::<Vec<_>>().join(",");
    let (_one, two) = (agent(&urls, &folder, "one", &[]), agent(&urls, &folder, "two", &[]));
    let (document, said, server) = broken(&urls, &two, 14, &[], || {
        let leader = brokers.iter().find_map(Broker::leader_of_the_stream).expect("one leads");
        let led = brokers.iter_mut().find(|b| b.name == leader).expect("it is one of them");
        led.kill();
        thread::sleep(Duration::from_secs(3));
        led.start();
        brokers.iter_mut().for_each(Broker::kill);
        thread::sleep(Duration::from_secs(6));
        brokers.iter_mut().for_each(Broker::start);
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (5600, &true.into()), "{said:?}");
    server_agrees(&document, &server);
}

/// A way to a broker that can be cut: bytes wait in it meanwhile.
fn cut_way(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let up = Arc::new(AtomicBool::new(true));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_up = Arc::clone(&up);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(to) else { continue };
            let ways = [(stream.try_clone().unwrap(), server.try_clone().unwrap()), (server, stream)];
            for (mut from, mut into) in ways {
                let up = Arc::clone(&is_up);
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(n @ 1..) = io::Read::read(&mut from, &mut bytes) {
                        while !up.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(20));
                        }
                        if io::Write::write_all(&mut into, &bytes[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, up)
}

#[test]
fn an_agent_whose_link_was_down_reports_everything_later() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (through, up) = cut_way(broker.url.trim_start_matches("nats://").parse().unwrap());
    let _near = broker.agent("near", &[]);
    let far = agent(&format!("nats://{through}"), broker.folder.path(), "far", &[]);
    let (document, said, server) = broken(&broker.url, &far, 8, &[], || {
        up.store(false, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(6));
        up.store(true, Ordering::Relaxed);
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (3200, &true.into()), "{said:?}");
    server_agrees(&document, &server);
}

#[test]
fn another_coordinator_continues_with_the_run() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_one, two) = (broker.agent("one", &[]), broker.agent("two", &[]));
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--nats", &broker.url, "--agents", "2", "-c", "8", "--rate", "400"]);
    command.args(["-d", "7s", &url]);
    let mut first = Program::start(command);
    first.says("--resume continues with it");
    two.says("begins");
    thread::sleep(Duration::from_millis(3500));
    first.child.kill().unwrap();
    let words = first.said.lock().unwrap().clone();
    let name = words.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let (document, said) = measured(&["--nats", &broker.url, "--resume", &name]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (2800, &true.into()), "{said:?}");
    server_agrees(&document, &server);
}

/// The agent's disk takes 8 kB; then the brokers lose everything, and spools fill a new one.
#[test]
fn a_full_disk_costs_nothing_while_the_broker_lives() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut command = std::process::Command::new("sh");
    let agent = "trap '' XFSZ; ulimit -f 8; exec \"$0\" agent --nats \"$1\" --name small --spool \"$2\"";
    command.args(["-c", agent, env!("CARGO_BIN_EXE_linerate"), &broker.url]).arg(broker.folder.path());
    let small = Program::start(command);
    small.says("waits for runs");
    let args = ["--nats", &broker.url, "--agents", "1", "-c", "4", "--rate", "400", "-d", "6s", url.as_str()];
    let (document, said) = measured(&args);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((due(&document), &document["machines"]["complete"]), (2400, &true.into()), "{said:?}");
    small.says("keeps results in memory alone");
}

/// The disk takes all but the last message, which is the longest.
#[test]
fn a_disk_that_is_full_at_the_end_is_named() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut command = std::process::Command::new("sh");
    let agent = "trap '' XFSZ; ulimit -f 8; exec \"$0\" agent --nats \"$1\" --name small --spool \"$2\"";
    command.args(["-c", agent, env!("CARGO_BIN_EXE_linerate"), &broker.url]).arg(broker.folder.path());
    let small = Program::start(command);
    small.says("waits for runs");
    let name = abandoned(&broker, &[&small], &["--agents", "1", "-c", "1", "-n", "2", &url]);
    let spool =
        std::fs::read_to_string(broker.folder.path().join(format!("linerate-{name}-small.jsonl"))).unwrap();
    assert!(spool.lines().count() == 3 && !spool.ends_with('\n'), "the last line is cut: {spool}");
    assert!(small.said().contains("keeps results in memory alone"), "{}", small.said());
    let (document, _) = measured(&["--nats", &broker.url, "--resume", &name]);
    assert_eq!(document["machines"]["complete"], true);
}

#[test]
fn spools_bring_a_run_to_a_new_broker() {
    let Some(program) = nats_server() else { return };
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let first = broker(&program);
    let agents = [first.agent("one", &[]), first.agent("two", &[])];
    let args = ["--agents", "2", "-c", "4", "-n", "500", url.as_str()];
    let (whole, _) = measured(&[&["--nats", &first.url][..], &args].concat());
    assert_eq!(whole["complete"], true);
    for (agent, id) in whole["agents"].as_array().unwrap().iter().zip(["one", "two"]) {
        assert_eq!((agent["id"].as_str(), agent["missing_seconds"].as_u64()), (Some(id), Some(0)), "{agent}");
        // All of them have one clock.
        let clock = |name: &str| agent[name].as_f64().unwrap();
        assert!(clock("clock_offset_us").abs() <= clock("clock_uncertainty_us"), "{agent}");
    }
    // The spools of a run whose result is complete are needed no more.
    let spools = || {
        let names = std::fs::read_dir(first.folder.path()).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".jsonl")).count()
    };
    until("the spools are removed", || spools() == 0);
    let name = abandoned(&first, &[&agents[0], &agents[1]], &args);
    let second = broker(&program);
    for agent in ["one", "two"] {
        let spool = first.folder.path().join(format!("linerate-{name}-{agent}.jsonl"));
        let said = run(&["agent", "replay", "--nats", &second.url, spool.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let (before, _) = measured(&["--nats", &first.url, "--resume", &name]);
    let (again, said) = measured(&["--nats", &second.url, "--resume", &name]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((&again["requests"], &again["histogram"]), (&before["requests"], &before["histogram"]));
}

#[test]
fn an_agent_waits_for_a_broker_that_starts_later() {
    let Some(program) = nats_server() else { return };
    let mut late = broker(&program);
    late.kill();
    let agent = starting_agent(&late.url, late.folder.path(), "one", &["--wait", "30s"]);
    agent.says("tries again");
    late.start();
    agent.says("waits for runs");
}

#[test]
fn what_agents_cannot_do_is_refused() {
    for flag in [&["--explain"][..], &["--save-responses", "x"], &["--capture", "auto"]] {
        let mut args = vec!["load", "--agents-local", "2"];
        args.extend_from_slice(flag);
        args.push("http://127.0.0.1:1/");
        let output = linerate(&args).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag:?}: {err}");
        assert!(err.contains(flag[0]) && err.contains("--agents-local"), "{flag:?}: {err}");
    }
}
