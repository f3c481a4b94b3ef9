//! Servers without a fault, and servers that take their time in ways that look like a fault on the
//! path.

use crate::bench::explain::case::{BackgroundActivity, Case, CaseServer, PLAIN, ServerCpus};

/// An nginx with a constant response.
const ANSWER: &str = "location / { return 200 'Hello, World!'; }";

pub(super) static CASES: &[Case] = &[
    Case { name: "healthy-linerate", alike: true, ..PLAIN },
    Case {
        name: "healthy-jdk",
        alike: true,
        server: CaseServer::Jdk("plain", &["-Dsun.net.httpserver.nodelay=true"]),
        ..PLAIN
    },
    Case { name: "healthy-python", alike: true, server: CaseServer::Python("whole"), ..PLAIN },
    Case { name: "healthy-node", alike: true, server: CaseServer::Node("plain"), ..PLAIN },
    Case { name: "healthy-go", alike: true, server: CaseServer::Go, ..PLAIN },
    Case { name: "healthy-nginx", alike: true, server: CaseServer::Nginx(ANSWER), ..PLAIN },
    Case {
        name: "closes-when-idle",
        alike: true,
        server: CaseServer::Linerate(&["--idle-timeout", "2s"]),
        flags: super::connection::IDLE_LONG,
        never: &["idle-forgotten", "keep-alive-race"],
        ..PLAIN
    },
    Case { name: "healthy-body", alike: true, path: "/bytes/8000", ..PLAIN },
    Case {
        name: "healthy-post",
        alike: true,
        path: "/upper",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "hello"],
        ..PLAIN
    },
    // 100 kB to a server that is quick: they leave in pieces.
    Case {
        name: "healthy-upload",
        alike: true,
        path: "/echo",
        flags: &["-X", "POST", "--repeat-unsafe", "--body", "@BODY"],
        also: &["slow-start"],
        never: &["server-think", "reverse-dns", "packet-loss", "local-drops"],
        ..PLAIN
    },
    // A JVM that was started a moment ago: its compiler is at work.
    Case {
        name: "healthy-jdk-young",
        alike: true,
        rtts: &[0],
        server: CaseServer::Jdk("plain", &["-Dsun.net.httpserver.nodelay=true"]),
        cold: true,
        also: &["cold-start"],
        never: &["event-loop-blocked"],
        ..PLAIN
    },
    // A large body on a line that is wide enough, and one that the server pauses in.
    Case { name: "healthy-large", alike: true, path: "/bytes/560000", also: &["slow-start"], ..PLAIN },
    Case {
        name: "pause-in-the-body",
        truth: "server-think",
        alike: true,
        server: CaseServer::Odd("pause"),
        never: &["bandwidth"],
        ..PLAIN
    },
    // Paths that vary as Wi-Fi, mobile networks and VPNs do.
    Case { name: "healthy-jitter-5", alike: true, net: "--jitter 5ms", ..PLAIN },
    Case { name: "healthy-jitter-12", alike: true, net: "--jitter 12ms", never: &["server-think"], ..PLAIN },
    Case { name: "healthy-jitter-20", alike: true, net: "--jitter 20ms", never: &["server-think"], ..PLAIN },
    // README's own, beside four loops that never sleep.
    Case {
        name: "delay-20-busy",
        truth: "server-think",
        alike: true,
        rtts: &[0],
        path: "/delay/20",
        share: ServerCpus::Beside(4),
        alone: true,
        ..PLAIN
    },
    Case {
        name: "think-40",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "think=40"]),
        ..PLAIN
    },
    Case {
        name: "think-30-50",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "think=30-50"]),
        ..PLAIN
    },
    Case {
        name: "think-exp-20",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "think=exp:20"]),
        ..PLAIN
    },
    Case {
        name: "late-body-41",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "late-body=41"]),
        ..PLAIN
    },
    // Callers in which no call waits: a closed loop, and bursts with as many connections as calls.
    Case {
        name: "closed-loop",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "think=40"]),
        beside: &[BackgroundActivity::Load("/ -c 4")],
        watched: true,
        ..PLAIN
    },
    Case {
        name: "wide-pool",
        truth: "server-think",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "think=40"]),
        beside: &[BackgroundActivity::Bursts(0)],
        watched: true,
        ..PLAIN
    },
    // Pools of workers without other callers: no call had to queue.
    Case {
        name: "pool-1",
        truth: "server-think",
        alike: true,
        server: CaseServer::Python("pool=1"),
        ..PLAIN
    },
    Case {
        name: "pool-2",
        truth: "server-think",
        alike: true,
        server: CaseServer::Python("pool=2"),
        ..PLAIN
    },
    Case {
        name: "pool-4",
        truth: "server-think",
        alike: true,
        server: CaseServer::Python("pool=4"),
        ..PLAIN
    },
    // Four loops that never sleep beside it on its processor.
    Case { name: "healthy-contended", alike: true, share: ServerCpus::Contended(4), alone: true, ..PLAIN },
    Case {
        name: "queueing-41",
        truth: "server-queueing",
        alike: true,
        server: CaseServer::Linerate(&["--misbehave", "lanes=1", "--misbehave", "think=5"]),
        beside: &[BackgroundActivity::LoadNear("/ -c 7")],
        pid: true,
        ..PLAIN
    },
];
