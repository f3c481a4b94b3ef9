//! Bad input: each kind gets its own message and exit code 2, and no request is sent.

#[macro_use]
mod common;

use common::{nobody, run};

/// The message and exit code of a command line, without this machine's paths and versions.
fn said(args: &[&str]) -> String {
    let said = run(args);
    assert_eq!(said.out, "", "{args:?}");
    format!("$ linerate {}\n{}-> {}\n", args.join(" "), said.err, said.code.unwrap_or(-1))
}

fn all(lines: &[&[&str]]) -> String {
    lines.iter().map(|line| said(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn urls() {
    snapshot!(all(&[
        &["load"],
        &["load", ""],
        &["load", "http://"],
        &["load", "http:///path"],
        &["load", "ftp://127.0.0.1/"],
        &["load", "http://127.0.0.1:99999/"],
        &["load", "http://127.0.0.1:http/"],
        &["load", "http://::1/"],
        &["load", "http:/127.0.0.1/"],
        &["load", "http://127.0.0.1/", "http://127.0.0.2/"],
    ]));
}

#[test]
fn numbers_and_times() {
    snapshot!(all(&[
        &["load", "-p", "0", "http://127.0.0.1/"],
        &["load", "-c", "0", "http://127.0.0.1/"],
        &["load", "-c", "lots", "http://127.0.0.1/"],
        &["load", "-t", "0", "http://127.0.0.1/"],
        &["load", "-n", "0", "http://127.0.0.1/"],
        &["load", "-n", "1.5", "http://127.0.0.1/"],
        &["load", "-d", "0s", "http://127.0.0.1/"],
        &["load", "-d", "10 minutes", "http://127.0.0.1/"],
        &["load", "--timeout", "61m", "http://127.0.0.1/"],
        &["load", "--timeout", "0", "http://127.0.0.1/"],
        &["load", "--rate", "fast", "http://127.0.0.1/"],
        &["load", "--rate", "0..5000", "http://127.0.0.1/"],
        &["load", "--rate", "0..5k@30s,fast@60s", "http://127.0.0.1/"],
        &["load", "--per-connection", "0", "http://127.0.0.1/"],
        &["load", "-n", "-5", "http://127.0.0.1/"],
        &["load", "-d", "-5", "http://127.0.0.1/"],
        &["load", "-d", "-5s", "http://127.0.0.1/"],
        &["load", "--timeout", "-1ms", "http://127.0.0.1/"],
        &["load", "--warm-up", "-1s", "http://127.0.0.1/"],
        &["load", "--seed", "abc", "http://127.0.0.1/"],
    ]));
}

#[test]
fn requests_and_checks() {
    snapshot!(all(&[
        &["load", "-X", "get", "http://127.0.0.1/"],
        &["load", "-H", "no colon", "http://127.0.0.1/"],
        &["load", "-H", "Content-Length: 5", "http://127.0.0.1/"],
        &["load", "-u", "ada", "http://127.0.0.1/"],
        &["load", "--body", "@no/such/file", "http://127.0.0.1/"],
        &["load", "http://127.0.0.1/{{sequence}}"],
        &["load", "http://127.0.0.1/{{seq"],
        &["load", "http://127.0.0.1/{{csv.id}}"],
        &["load", "--data", "no-such.csv", "http://127.0.0.1/"],
        &["load", "--tag", "X Id", "http://127.0.0.1/"],
        &["load", "--expect-status", "20", "http://127.0.0.1/"],
        &["load", "--check", "p99", "http://127.0.0.1/"],
        &["load", "--check", "q99<5ms", "http://127.0.0.1/"],
        &["load", "--throughput", "--check", "p99<5ms", "http://127.0.0.1/"],
    ]));
}

#[test]
fn what_does_not_go_together_or_does_not_exist() {
    snapshot!(all(&[
        &["load", "--connection", "5", "http://127.0.0.1/"],
        &["load", "-z", "5s", "http://127.0.0.1/"],
        &["load", "-q", "100", "http://127.0.0.1/"],
        &["load", "--rps", "100", "http://127.0.0.1/"],
        &["load", "--stages", "1m:10", "http://127.0.0.1/"],
        &["load", "-w", "10", "http://127.0.0.1/"],
        &["load", "-A", "text/plain", "http://127.0.0.1/"],
        &["load", "--vus", "5", "http://127.0.0.1/"],
        &["load", "--latency", "http://127.0.0.1/"],
        &["load", "-T", "5s", "http://127.0.0.1/"],
        &["load", "-T", "text/plain", "http://127.0.0.1/"],
        &["load", "-s", "post.lua", "http://127.0.0.1/"],
        &["load", "-i", "100", "http://127.0.0.1/"],
        &["load", "-a", "me:secret", "http://127.0.0.1/"],
        &["load", "--no-tui", "http://127.0.0.1/"],
        &["load", "--json", "{\"a\":1}", "http://127.0.0.1/"],
        &["load", "--throughput", "--explain", "http://127.0.0.1/"],
        &["load", "--way", "loops", "http://127.0.0.1/"],
        &["load", "--io", "xdp", "http://127.0.0.1/"],
        &["load", "--arrival", "poisson", "http://127.0.0.1/"],
        &["load", "--way", "poll", "-c", "5", "http://127.0.0.1/"],
        &["load", "--way", "threads", "-p", "5", "http://127.0.0.1/"],
        &["load", "--way", "async", "--rate", "5", "http://127.0.0.1/"],
        &["load", "--from", "127.0.0.1,::1", "http://127.0.0.1/"],
        &["load", "--from", "::1", "http://127.0.0.1/"],
        &["load", "--from", "localhost", "http://127.0.0.1/"],
        &["load", "--from", "192.0.2.1", "http://127.0.0.1/"],
        &["load", "--resolve", "h:80", "http://h/"],
        &["load", "--resolve", "h:81:127.0.0.1", "http://h/"],
        &["load", "--json", "no/such/folder/out.json", "http://127.0.0.1/"],
        &["load", "--speed", "2", "http://127.0.0.1/"],
        &["lood", "http://127.0.0.1/"],
        &["demo", "--time", "1h"],
        &["man", "lood"],
    ]));
}

#[test]
fn plan_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    plan("users.csv", "id,name\n1,ada\n");
    let misspelt = plan("misspelt.toml", "url = \"http://127.0.0.1/\"\nconections = 100\n");
    let column = plan(
        "column.toml",
        "url = \"http://127.0.0.1/\"\n[[request]]\npath = \"/{{users.mail}}\"\n[[data]]\nname = \"users\"\nfile = \"users.csv\"\n",
    );
    let rate = plan("rate.toml", "url = \"http://127.0.0.1/\"\nrate = \"fast\"\n");
    let nowhere = plan("nowhere.toml", "connections = 5\n");
    let said = all(&[
        &["load", "--plan", &misspelt],
        &["load", "--plan", &column],
        &["load", "--plan", &rate],
        &["load", "--plan", &nowhere],
        &["load", "--plan", "no-such.toml"],
        &["load", "--plan", &nowhere, "--curl", "curl http://127.0.0.1/"],
        &["load", "--curl", "wget http://127.0.0.1/"],
        &["load", "--har", "no-such.har"],
        &["load", "--openapi", "no-such.yaml"],
        &["load", "--replay", "no-such.log", "http://127.0.0.1/"],
    ]);
    snapshot!(said.replace(&folder.path().display().to_string(), "FOLDER"));
}

#[test]
fn more_connections_than_ports() {
    // The numbers are this machine's; the words are not.
    let said = run(&["load", "-c", "70000", "http://127.0.0.1/"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
    for words in [
        "70,000 connections",
        "net.ipv4.ip_local_port_range",
        "hint: more source addresses",
        "or fewer connections",
    ] {
        assert!(said.err.contains(words), "{said:?}");
    }
}

#[test]
fn nothing_is_sent_before_all_is_sound() {
    // With a closed port, a run would end with exit code 3.
    let url = format!("http://{}/{{{{csv.id}}}}", nobody());
    assert_eq!(run(&["load", "-n", "1", &url]).code, Some(2));
}

#[test]
fn where_and_what_to_serve() {
    snapshot!(all(&[
        &["serve", "no/such/dir"],
        &["serve", "8080"],
        &["serve", ":80800"],
        &["serve", "one", "two"],
        &["serve", "--port", "8080", "--listen", "127.0.0.1:8081"],
        &["serve", "--max-body", "1MB"],
        &["serve", "--listen", "[fe80::1]:80"],
        &["serve", "--listen", "[fe80::1%eth0]:80"],
    ]));
}

#[test]
fn captures_and_faults() {
    snapshot!(all(&[
        &["load", "--pcap-out", "run.pcap", "http://127.0.0.1/"],
        &["load", "--fault", "loss=1%", "http://127.0.0.1/"],
        &["load", "--fault", "loss=200%", "http://127.0.0.1/"],
        &["load", "--fault", "gain=1%", "http://127.0.0.1/"],
        &["serve", "--pcap-out", "run.pcap"],
        &["serve", "--fault", "loss=1%"],
        &["serve", "--io", "xdp", "--interface", "eth0", "--fault", "delay=20"],
        &["serve", "--io", "xdp", "--interface", "eth0", "--pcap-out", "/no/such/folder/run.pcap"],
        &[
            "load",
            "--io",
            "xdp",
            "--interface",
            "eth0",
            "--from",
            "10.0.0.9",
            "--pcap-out",
            "/no/such/folder/run.pcap",
            "http://10.0.0.1/"
        ],
    ]));
}

/// It would be waited for without end.
#[test]
fn a_pipe_that_nobody_writes_to_is_no_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe").display().to_string();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let users = folder.path().join("serve.toml");
    std::fs::write(&users, "users = \"pipe\"\n").expect("written");
    let (users, data) = (users.display().to_string(), format!("u={pipe}"));
    let url = "http://127.0.0.1:1/";
    let lines: [&[&str]; 8] = [
        &["serve", "--config", &pipe],
        &["serve", "--config", &users, "--check-config"],
        &["load", "--plan", &pipe],
        &["load", "--body", &format!("@{pipe}"), url],
        &["load", "--body-template", &format!("@{pipe}"), url],
        &["load", "--data", &data, url],
        &["load", "--har", &pipe],
        &["load", "--replay", &pipe, url],
    ];
    // Each waits for a moment: a writer may be about to come.
    std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(move || {
                let said = run(line);
                assert_eq!(said.code, Some(2), "{line:?}: {said:?}");
                assert!(said.err.contains("it is a pipe that nobody writes to"), "{line:?}: {said:?}");
            });
        }
    });
}

/// As a shell's `<(command)` gives them.
#[test]
fn a_pipe_with_a_writer_is_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let theirs = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(theirs, "listen = \"127.0.0.1:0\"\n"));
    let said = run(&["serve", "--config", &pipe.display().to_string(), "--check-config"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    writer.join().expect("no panic").expect("written");
}
