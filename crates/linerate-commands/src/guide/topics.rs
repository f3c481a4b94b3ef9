//! The pages that the program carries.

/// A page that the program carries.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
}

macro_rules! topic {
    ($name:literal, $title:literal) => {
        Topic { name: $name, title: $title, text: include_str!(concat!("../../pages/", $name, ".md")) }
    };
}

macro_rules! recipe {
    ($name:literal, $title:literal) => {
        Topic {
            name: $name,
            title: $title,
            text: include_str!(concat!("../../pages/recipes/", $name, ".md")),
        }
    };
}

/// In the order of the book.
pub(super) const TOPICS: [Topic; 39] = [
    topic!("start", "the first five minutes"),
    topic!("tasks", "twenty-four tasks: the command of each, and its page"),
    topic!("recipes", "everyday tasks and their commands; each is a topic too"),
    topic!("load-testing", "closed and open loop, and what a closed loop leaves out"),
    topic!("how-long", "for how long, and with how many connections"),
    topic!("doubts", "when not to believe a figure"),
    topic!("ci", "load tests as a gate in CI"),
    topic!("plans", "plan files: several requests, data, checks"),
    topic!("tcp-events", "what TCP did during a run"),
    topic!("why", "why a call is slow: how to ask, and every cause"),
    topic!("proofs", "how explain works"),
    topic!("accuracy", "how often explain is right"),
    topic!("captures", "what packets show: --pcap and --capture"),
    topic!("pipelining", "what it is, which response is whose, and where it ends"),
    topic!("cure", "HTTP/2: what it cures of pipelining, and what not"),
    topic!("connection-cost", "what a connection costs"),
    topic!("nagle", "Nagle and delayed ACK, in both directions"),
    topic!("first-window", "slow start: why a large answer on a new connection takes several round trips"),
    topic!("waiting", "processes, threads, event loops, coroutines"),
    topic!("ports", "ports and descriptors: why 65,535 is no limit for a server"),
    topic!("past-kernel", "the kernel's share of the work, and past it"),
    topic!("comparing", "two servers or builds in turns, and the highest rate"),
    topic!("scenarios", "whole tables: linerate lab"),
    topic!("outputs", "a run as a page, a file of its requests, metrics"),
    topic!("machines", "one load from many machines"),
    topic!("serving", "the server: limits, files, HTTPS, metrics"),
    topic!("configuration", "the server's configuration file"),
    topic!("conformance", "what the server refuses, and what public test suites say"),
    topic!("library", "the server as a Rust library"),
    topic!("client-library", "calling a server from a program"),
    topic!("xdp", "kernel bypass with --io xdp"),
    topic!("user-space-tcp", "the TCP behind --io xdp"),
    topic!("json", "the JSON documents and their schemas"),
    topic!("client", "how the client reads and writes HTTP"),
    topic!("http2", "the client's HTTP/2"),
    topic!("architecture", "how the code is organised"),
    topic!("performance", "how fast it is, beside which peer"),
    topic!("truth", "what load reports about broken servers"),
    topic!("network", "a bad network to test in"),
];

/// In the order of the page `recipes`.
pub(super) const RECIPES: [Topic; 29] = [
    recipe!("json-post", "POST JSON with a bearer token"),
    recipe!("upload", "upload a file"),
    recipe!("self-signed", "HTTPS with a self-signed certificate"),
    recipe!("ramp", "raise the rate step by step"),
    recipe!("weights", "several URLs, with weights"),
    recipe!("per-endpoint", "one row per endpoint"),
    recipe!("log-in", "users that log in"),
    recipe!("grpc", "call a unary gRPC method"),
    recipe!("from-curl", "from a curl command"),
    recipe!("from-har", "from a recorded page (HAR)"),
    recipe!("from-openapi", "from an OpenAPI description"),
    recipe!("from-logs", "from an access log"),
    recipe!("from-other-tools", "from wrk, ab and hey"),
    recipe!("k6-scripts", "run a k6 script"),
    recipe!("many-machines", "load from many machines"),
    recipe!("github-actions", "a gate in GitHub Actions"),
    recipe!("share-report", "a report for other people"),
    recipe!("stop-at-first-error", "stop at the first error"),
    recipe!("capacity", "find the capacity"),
    recipe!("compare-builds", "compare two builds"),
    recipe!("unclear", "the result is unclear on a busy machine"),
    recipe!("before-after", "did the fix help?"),
    recipe!("capture-production", "look at production without touching it"),
    recipe!("folder-https", "serve a folder over HTTPS"),
    recipe!("rest-database", "a REST API with a database"),
    recipe!("behind-nginx", "behind nginx"),
    recipe!("systemd", "as a systemd service"),
    recipe!("docker", "in Docker"),
    recipe!("kubernetes", "in Kubernetes"),
];
