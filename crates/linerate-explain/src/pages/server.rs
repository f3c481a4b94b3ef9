//! In HTTP, and in the server.

use super::page::PictureStep::{From, LostTo, Then, To, Wait};
use super::page::{CausePage, fix, page};

pub(super) static PAGES: &[CausePage] = &[
    page(
        "expect-continue",
        "A client with a large body may ask first whether the server wants it: it sends the head with \"Expect: 100-continue\" and holds the body back. \
         A server, or a proxy, that never says \"100 Continue\" leaves it waiting until it gives up, for a second as a rule.",
        &[
            To("request head, Expect"),
            Wait(1000.0, "the client waits for 100 Continue"),
            To("request body"),
            From("answer"),
        ],
        &[
            fix(
                "Go, Python, Node, JDK, as callers",
                "they send Expect only when told: Transport.ExpectContinueTimeout, expectContinue(true)",
            ),
            fix(
                "nginx",
                "answers 100 Continue by itself; proxy_request_buffering on keeps backends out of it",
            ),
        ],
    ),
    page(
        "no-keep-alive",
        "The server ends the connection with each answer, so each call has to open a new one first: at least a round trip more, and with TLS two or three.",
        &[
            To("SYN"),
            Wait(40.0, "a round trip to open"),
            From("SYN, ACK"),
            To("request"),
            From("answer, Connection: close"),
        ],
        &[fix(
            "JDK HttpServer",
            "it keeps connections if each exchange is read to its end and closed (sun.net.httpserver.idleInterval)",
        )],
    ),
    page(
        "proxy-buffering",
        "A proxy collects the whole answer before it passes on the first byte. Where the server makes it piece by piece (a stream, a large report), the caller \
         sees nothing until all is there, although the beginning was ready at once.",
        &[To("request"), Wait(100.0, "the proxy collects the answer"), From("answer, all of it")],
        &[],
    ),
    page(
        "compression",
        "The server compresses each answer, and that takes longer than the bytes it saves would take on the network. On a fast network, or for what is \
         compressed already (pictures, archives), it costs more than it gives.",
        &[To("request, Accept-Encoding: gzip"), Wait(76.0, "the server compresses"), From("answer, smaller")],
        &[fix(
            "Node, Go, Python, JDK",
            "a lower level (zlib 1 to 4), a least size, and not for types that are compressed already",
        )],
    ),
    page(
        "redirects",
        "The address that is called is not where the answer is: the server says \"look there\", and the client has to ask again, perhaps several times. \
         Each costs a round trip, and a new connection where it leads to another host.",
        &[
            To("GET /report"),
            Wait(40.0, "a round trip for nothing"),
            From("302, Location: /report/"),
            To("GET /report/"),
            From("answer"),
        ],
        &[fix(
            "Go, Python, Node, JDK",
            "web frameworks redirect for a trailing slash by themselves (RedirectTrailingSlash, APPEND_SLASH): link to the exact path",
        )],
    ),
    page(
        "late-close",
        "The answer says neither how long it is nor that it comes in chunks: it ends when the connection is closed. The server closes late, because it \
         cleans up first. All bytes are there, and the caller cannot know that.",
        &[
            To("request"),
            From("answer, all of it"),
            Wait(500.0, "until the server closes"),
            From("FIN: so that was all"),
        ],
        &[],
    ),
    page(
        "rate-limit",
        "The server, or a proxy or gateway before it, lets only so many calls through per second. What comes sooner waits for its turn or is refused (429). A \
         call after a pause is quick: nothing works for long, the pace is held down on purpose.",
        &[
            To("first request"),
            From("answer"),
            To("the next one, at once"),
            Wait(100.0, "held until its turn"),
            From("answer"),
        ],
        &[fix(
            "Go, Python, JDK",
            "where the application limits: rate.Limiter, slowapi, Bucket4j, Resilience4j",
        )],
    ),
    page(
        "periodic-stall",
        "The server answers nothing for a while, again and again at regular intervals: work that a timer starts holds a lock which calls want, or a loop looks \
         for requests only on each tick. A call that comes meanwhile waits for the end. Calls that follow one another at once ride in the gap and see nothing \
         of it: only calls at random times show how many wait.",
        &[
            To("first request"),
            From("answer, at once"),
            Then(25.0, "the server stops"),
            To("a request that comes now"),
            Wait(70.0, "until the stall ends"),
            From("answer"),
        ],
        &[fix(
            "PostgreSQL, MySQL behind it",
            "checkpoints, vacuum and table locks that recur: their logs name them",
        )],
    ),
    page(
        "fd-limit",
        "Each connection and each open file is a descriptor, and a process may have only so many (ulimit -n). When all are taken, the kernel still completes \
         handshakes, and the server cannot accept what they opened: new calls hang or are closed at once, while those on connections that stand go on.",
        &[
            To("SYN"),
            From("SYN, ACK: by the kernel"),
            To("request"),
            Wait(4000.0, "accept fails: too many open files"),
        ],
        &[fix("Linux", "prlimit --pid PID --nofile=65536 changes it while the process runs")],
    ),
    page(
        "workers-held",
        "The server has so many workers, each serves one connection, and all of them are taken: by clients that keep a connection open and send nothing, or by \
         calls that wait for something behind the server. It has nothing to do, and a new connection waits until another one is let go.",
        &[
            To("SYN"),
            From("SYN, ACK: by the kernel"),
            To("request"),
            Wait(5000.0, "until an idle connection is closed"),
            From("answer"),
        ],
        &[fix("clients", "close connections that are not used for a while, and open no more than they need")],
    ),
    page(
        "connection-limit",
        "The server serves only so many connections at a time, and a connection that is idle counts. New ones wait until another is closed. Servers with a \
         process or thread for each connection are so: some idle browsers are enough to fill them.",
        &[
            To("SYN"),
            From("SYN, ACK"),
            To("request"),
            Wait(120.0, "until another connection is closed"),
            From("answer"),
        ],
        &[fix(
            "JDK HttpServer",
            "an executor with more threads; jdk.httpserver.maxConnections where it is set",
        )],
    ),
    page(
        "pinned-to-busy-worker",
        "The server has several workers, and a connection belongs to one of them for its whole life. Who was given to a worker that is busy waits at every \
         call, while the others are idle. Another connection may be quick.",
        &[
            To("request, on a connection of worker 1"),
            Wait(60.0, "worker 1 is busy; worker 2 is idle"),
            From("answer"),
        ],
        &[],
    ),
    page(
        "reverse-dns",
        "Some servers look up the name of each new caller, to log it or to check who it is. Where the name server for the callers' addresses is slow or silent, \
         the first call of each connection waits for it. Other work that is done once for each connection looks the same.",
        &[
            To("request, the first of its connection"),
            Wait(200.0, "work for the new connection"),
            From("answer"),
            To("request"),
            From("answer, at once"),
        ],
        &[fix(
            "nginx, Go, Node",
            "they look nothing up by themselves: look for it in your own code (LookupAddr, dns.reverse)",
        )],
    ),
    page(
        "gc-pause",
        "A runtime with garbage collection stops the whole program now and then to clear its memory. A call that comes just then waits until it is over. The more \
         the program allocates for each request, and the smaller its heap, the more often.",
        &[To("request"), Wait(30.0, "all threads stand still: the collector works"), From("answer")],
        &[fix(
            "Python",
            "gc.freeze() after start, gc.disable() or higher thresholds where there are few cycles",
        )],
    ),
    page(
        "cpu-throttled",
        "The server's container may use only so much processor time in each period (100 ms as a rule). When it has used it up, all its threads stand still until \
         the next period begins, even if the machine is idle.",
        &[
            To("request"),
            Then(10.0, "the server works"),
            Wait(90.0, "its share is used up until the next period"),
            From("answer"),
        ],
        &[],
    ),
    page(
        "cpu-contention",
        "The server is ready to work, and no processor is free: others on the same machine use them all. It waits in the run queue, a few milliseconds at a time.",
        &[To("request"), Wait(21.0, "ready to run, and no processor is free"), From("answer")],
        &[
            fix("macOS", "Activity Monitor, CPU; taskpolicy -b for what may wait"),
            fix("Windows", "Task Manager, Details, priority; start /low for what may wait"),
        ],
    ),
    page(
        "event-loop-blocked",
        "Servers with an event loop (Node, asyncio, nginx, Netty) serve all connections on one thread. A piece of code that works long, or waits in a blocking \
         call, keeps everybody else waiting until it is done.",
        &[To("request"), Wait(109.0, "the loop works for somebody else"), From("answer")],
        &[fix("Go", "no single loop: a goroutine for each request; look for a lock that all take")],
    ),
    page(
        "server-queueing",
        "The server has only so many workers, and more calls than that come at once. The rest stands in a line. A call alone is quick; among others it waits for those before it.",
        &[To("request"), Wait(41.0, "behind other requests"), Then(5.0, "the server works"), From("answer")],
        &[
            fix("Go", "a semaphore or a database pool (SetMaxOpenConns) that is too small is such a line"),
            fix("nginx", "max_conns of the upstream, or a backend with too few workers"),
        ],
    ),
    page(
        "server-think",
        "The request has arrived, and the server works on it: queries, files, other services, computing. Seen from outside that is one long wait. The network and \
         the connection are not at fault, and nothing about them will help.",
        &[To("request"), Wait(40.0, "the server works"), From("answer")],
        &[fix(
            "Linux, macOS, Windows",
            "look at what it does while a call runs: perf, Instruments, Windows Performance Recorder",
        )],
    ),
    page(
        "client-pool",
        "The program that calls keeps a pool of connections, and the pool is too small. Calls wait inside the program until a connection is free. Nothing of that \
         is seen at the server, which is bored.",
        &[
            To("request 1"),
            Wait(80.0, "request 2 waits in the program for a connection"),
            From("answer 1"),
            To("request 2"),
            From("answer 2"),
        ],
        &[
            fix(
                "JDK",
                "HTTP/2, or more connections: jdk.httpclient.connectionPoolSize; Apache HttpClient: setMaxConnPerRoute",
            ),
            fix("Go", "Transport.MaxConnsPerHost, MaxIdleConnsPerHost (2 by default)"),
            fix("Python", "requests: HTTPAdapter(pool_maxsize=N); aiohttp: TCPConnector(limit=N)"),
        ],
    ),
    page(
        "head-of-line",
        "Several requests were sent on one connection without waiting (pipelining). HTTP/1.1 wants the answers in the same order, so a quick one waits behind a slow one.",
        &[
            To("slow request"),
            To("quick request"),
            Wait(51.0, "the quick answer waits behind the slow one"),
            From("slow answer"),
            From("quick answer"),
        ],
        &[fix("nginx, Node, Go, JDK", "HTTP/2 on the listener: streams overtake each other")],
    ),
    page(
        "cold-start",
        "The first call, or the first after a long pause, is much slower than the ones that follow: the server starts a process, compiles code, fills caches, opens \
         connections to its database. Later calls find all that done.",
        &[
            To("first request"),
            Wait(1500.0, "the server starts"),
            From("answer"),
            To("request"),
            From("answer, at once"),
        ],
        &[
            fix("JDK", "class data sharing (-XX:SharedArchiveFile), call the paths once after start"),
            fix(
                "any server",
                "warm it up before it gets calls (a readiness probe that calls the real path), and keep one instance alive",
            ),
        ],
    ),
    page(
        "cork",
        "The server told its kernel to collect small writes (TCP_CORK, or MSG_MORE on the last one) and forgot to let go. The kernel sends the rest by \
         itself after 200 ms.",
        &[To("request"), Wait(200.0, "corked: until the kernel's own time-out"), From("answer")],
        &[
            fix("any server", "clear TCP_CORK (or no MSG_MORE) with the last write"),
            fix("nginx", "tcp_nopush only together with sendfile, and tcp_nodelay on"),
        ],
    ),
    page(
        "stopped",
        "The server's process was stopped (SIGSTOP, a debugger, Ctrl-Z). The kernel still opens connections and takes requests, and nobody answers them.",
        &[
            To("SYN"),
            From("SYN, ACK"),
            To("request"),
            LostTo("nobody reads it"),
            Wait(4000.0, "the process is stopped"),
        ],
        &[
            fix("Linux, macOS", "kill -CONT PID; ps -o stat shows a T"),
            fix("Windows", "Resume in Process Explorer, or detach the debugger"),
        ],
    ),
];
