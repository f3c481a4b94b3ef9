//! On the connection, and before it.

use super::page::PictureStep::{From, LostFrom, LostTo, Then, To, Wait};
use super::page::{CausePage, fix, page};

pub(super) static PAGES: &[CausePage] = &[
    page(
        "server-nagle-delayed-ack",
        "Two good ideas that meet badly. Nagle's algorithm (in the sender) holds a small packet back while an earlier one is not \
         acknowledged. Delayed acknowledgements (in the receiver) wait some 40 ms for data to travel with. A server that writes its answer in two \
         pieces meets both: its second piece waits for our acknowledgement, and our acknowledgement waits for its second piece. Nobody \
         computes anything meanwhile.",
        &[
            To("request"),
            From("answer, first part"),
            Wait(41.6, "the rest waits for the ACK, the ACK for the rest"),
            To("ACK"),
            From("answer, the rest"),
        ],
        &[
            fix(
                "macOS, Windows",
                "the same option: TCP_NODELAY on the accepted socket (on Windows delayed ACKs wait 40 to 200 ms)",
            ),
            fix(
                "Linux, as the caller",
                "ip route change ... quickack 1 acknowledges at once: it hides the fault, and the server keeps it",
            ),
        ],
    ),
    page(
        "path-jitter",
        "Each packet takes another time to the other end and back: a radio that waits for its turn and sends again what was disturbed, a tunnel through a busy \
         machine, a line that others use. No server is slow, and each call still takes another time, since it needs at least one round trip.",
        &[
            To("request"),
            Wait(35.0, "this time the way there and back takes 75 ms, the time before it took 40"),
            From("answer"),
        ],
        &[fix(
            "mobile networks",
            "the radio sleeps between calls: one that is kept awake (a call every few seconds) varies less, and costs battery",
        )],
    ),
    page(
        "client-nagle-delayed-ack",
        "The same as in a server, the other way round: the client writes the request's head and its body apart, with Nagle's algorithm on. The \
         body waits until the server has acknowledged the head, and the server delays that acknowledgement, since it has nothing to \
         answer yet.",
        &[
            To("request head"),
            Wait(41.0, "the body waits for the ACK"),
            From("ACK"),
            To("request body"),
            From("answer"),
        ],
        &[fix(
            "JDK HttpClient, macOS, Windows",
            "their HTTP clients set TCP_NODELAY; your own sockets: Socket.setTcpNoDelay(true), setsockopt(TCP_NODELAY)",
        )],
    ),
    page(
        "tiny-writes",
        "The server writes its answer in many small pieces, and each leaves as a packet of its own. Each packet costs both machines a \
         system call, an interrupt and an acknowledgement, whatever its size; thousands of them make a small answer slow.",
        &[
            To("request"),
            From("answer, 12 bytes"),
            From("answer, 12 bytes"),
            From("answer, 12 bytes"),
            Wait(5.0, "and so on"),
            From("answer ends"),
        ],
        &[],
    ),
    page(
        "accept-queue",
        "The kernel opens connections for the server and keeps them in a queue until the program accepts them. A program that does not \
         come to accept (it is busy, or has too few threads) leaves them there: the connection stands, and nobody reads the request. When the \
         queue is full, the kernel drops what asks for more, and callers ask again after a second.",
        &[
            To("SYN"),
            From("SYN, ACK"),
            To("request"),
            Wait(150.0, "in the queue until the program accepts"),
            From("answer"),
        ],
        &[
            fix("macOS", "sysctl kern.ipc.somaxconn (128 by default) bounds each backlog"),
            fix("Windows", "SOMAXCONN as the backlog of listen(); in .NET Socket.Listen(backlog)"),
            fix(
                "Go",
                "net.Listen takes net.core.somaxconn by itself; accept in a loop that only starts goroutines",
            ),
        ],
    ),
    page(
        "syn-loss",
        "The first packet of a connection (SYN), or the answer to it, gets lost. The caller cannot know that, and waits a whole second before \
         it asks again: no earlier measurement tells it how long an answer takes. Every later packet is repaired much faster.",
        &[
            LostTo("SYN"),
            Wait(1000.0, "until the SYN is sent again"),
            To("SYN again"),
            From("SYN, ACK"),
            To("request"),
            From("answer"),
        ],
        &[fix(
            "Linux, macOS",
            "look for drops: nstat -az, netstat -s; a host firewall that limits new connections",
        )],
    ),
    page(
        "packet-loss",
        "Packets get lost on the way: a full queue, a bad cable, radio. TCP repairs that by sending them again, but it has to notice first: after a \
         round trip or two where more packets follow, after a time-out of 200 ms or more where the lost one was the last.",
        &[To("request"), LostFrom("answer"), Wait(240.0, "until it is sent again"), From("answer again")],
        &[
            fix("macOS", "netstat -s -p tcp (retransmitted); networkQuality shows the link under load"),
            fix("Windows", "pathping HOST; netstat -s -p tcp (segments retransmitted)"),
        ],
    ),
    page(
        "reordering",
        "Packets of one connection take different ways, or wait in different queues, and come in another order than they were sent. TCP hands on \
         nothing before what was sent first is there, so what came first waits. When a packet is late by much, its sender takes it for lost, \
         sends it again for nothing, and slows down. In the kernel's counters that looks like loss; the timestamps in the packets tell.",
        &[
            To("request"),
            From("answer, second packet"),
            Wait(20.0, "it cannot be read before the first one"),
            From("answer, first packet"),
        ],
        &[
            fix("macOS", "netstat -s -p tcp (out-of-order packets, duplicate packets)"),
            fix(
                "Wi-Fi, mobile networks",
                "the link repairs its own losses later than what follows: a driver or firmware that keeps the order",
            ),
        ],
    ),
    page(
        "response-cut",
        "The connection ends before the answer is whole: the server, or something between, resets or closes it. Its client sees \"connection reset\", \
         an unexpected end, or an answer that is too short. A worker that crashes, is killed or runs into a time-out does that, and so does a \
         proxy whose time is over.",
        &[To("request"), From("answer, first part"), Wait(30.0, "the worker ends"), From("reset (RST)")],
        &[fix(
            "clients",
            "count it as failed: an answer without its end is not one; repeat what is idempotent",
        )],
    ),
    page(
        "slow-start",
        "A new connection does not know how much the path takes, so TCP begins with ten packets (some 14 kB), waits for them to be acknowledged, \
         sends twice as many, and so on. Far away a large answer on a new connection costs several round trips; on a connection that was used \
         before, the window has grown already.",
        &[
            To("request"),
            From("10 packets"),
            Wait(40.0, "a round trip"),
            To("ACKs"),
            From("20 packets"),
            Wait(40.0, "a round trip"),
            To("ACKs"),
            From("40 packets"),
        ],
        &[
            fix(
                "JDK, Node, Go, Python, as callers",
                "one HttpClient, Agent, http.Client, requests.Session for the whole program: they keep connections",
            ),
            fix("nginx", "keepalive_timeout and keepalive_requests high enough that callers can keep theirs"),
        ],
    ),
    page(
        "idle-restart",
        "A connection that rested for a while forgets how much the path takes (RFC 2861) and begins with ten packets again, as a new one does. \
         Callers that come every few seconds meet it each time, although they keep their connection.",
        &[
            To("request, after a pause"),
            From("10 packets"),
            Wait(40.0, "a round trip"),
            To("ACKs"),
            From("20 packets"),
        ],
        &[fix("Windows, macOS", "no switch: keep the connection busy, or the answers small")],
    ),
    page(
        "zero-window",
        "The receiver says with each acknowledgement how much room it has. A server that does not read the body as it comes runs out of room and says 0: \
         the sender must stop until there is some again. The network is idle meanwhile.",
        &[
            To("request body"),
            From("ACK, window 0"),
            Wait(150.0, "the window is closed"),
            From("window opens"),
            To("request body goes on"),
            From("answer"),
        ],
        &[fix("Go, Python", "read the body (io.Copy, async for) before or beside the work, not in between")],
    ),
    page(
        "client-slow-reader",
        "The program that calls does not read its answer as fast as it comes: it works on what came, or does something else. Its buffer fills, its kernel \
         tells the server to stop, and the answer waits at the server although everything else is fast.",
        &[
            To("request"),
            From("answer"),
            To("ACK, window 0"),
            Wait(150.0, "the client does not read"),
            To("window opens"),
            From("answer goes on"),
        ],
        &[fix(
            "Node, Go, Python, JDK",
            "read in one task and work in another, with a bounded queue between them",
        )],
    ),
    page(
        "send-buffer",
        "What is sent stays in the sender's buffer until it is acknowledged. A buffer smaller than what the path holds (its rate times its round \
         trip) makes the sender stop and wait for acknowledgements, as a slow link would.",
        &[
            To("one buffer full"),
            Wait(40.0, "the buffer is full until the ACK"),
            From("ACK"),
            To("the next buffer full"),
            From("answer"),
        ],
        &[
            fix("macOS", "sysctl net.inet.tcp.autosndbufmax; no SO_SNDBUF in the program"),
            fix("Windows", "no SO_SNDBUF: the system sizes it by itself (ISB)"),
        ],
    ),
    page(
        "server-send-buffer",
        "What the server sends stays in its send buffer until the client has acknowledged it. A program that sets that buffer itself (SO_SNDBUF) keeps it \
         at that size, however far the client is: each round trip brings one buffer full. On the same machine nobody notices; at 40 ms a buffer \
         of 16 kB carries 400 kB a second.",
        &[
            To("request"),
            From("one buffer full"),
            Wait(40.0, "the buffer is full until the ACK"),
            From("the next buffer full"),
            Wait(40.0, "and so on"),
            From("the last one"),
        ],
        &[
            fix("macOS", "no SO_SNDBUF in the program; sysctl net.inet.tcp.autosndbufmax"),
            fix("Windows", "no SO_SNDBUF: the system sizes it by itself (ISB)"),
            fix("JDK", "no setSendBufferSize; a server socket hands its setting to all it accepts"),
        ],
    ),
    page(
        "path-mtu",
        "Somewhere on the way packets must be smaller than the senders believe, and the message that says so (ICMP \"too big\") does not arrive. \
         Small packets pass, so connections open and requests arrive; full ones vanish, again and again. The call hangs.",
        &[
            To("request"),
            LostFrom("full packet"),
            Wait(4000.0, "sent again, and lost again"),
            LostFrom("full packet again"),
        ],
        &[
            fix("macOS", "sudo ifconfig IF mtu 1280 to test it; black holes are detected by default"),
            fix(
                "Windows",
                "netsh interface ipv4 set subinterface IF mtu=1280 store=active to test it; EnablePMTUBHDetect",
            ),
        ],
    ),
    page(
        "bandwidth",
        "The answer is large, and it comes only so fast: the line to the caller carries no more, somebody shapes it, or the server has a limit for each \
         connection. Bytes per second are the same from its beginning to its end, and twice the bytes take twice the time. Two calls at once tell whose \
         limit it is: on a slow path each gets half, and where each connection has a limit both get all of it.",
        &[
            To("request"),
            From("the beginning of the answer"),
            Wait(2240.0, "560 kB at 2 Mbit/s"),
            From("its end"),
        ],
        &[
            fix(
                "Go, JDK, Node, Python",
                "compress answers (gzip, br, zstd) where they are text; fields and pages that callers ask for",
            ),
            fix(
                "clouds",
                "instances and gateways have a bandwidth of their own, some with credits that run out",
            ),
        ],
    ),
    page(
        "bufferbloat",
        "A queue on the way is long and full: somebody sends more than the link takes, and the router keeps it all instead of dropping early. Every packet \
         waits at the end of that queue, so each round trip takes long, for everybody.",
        &[To("request"), Wait(116.0, "in the queue before the narrow link"), From("answer")],
        &[fix(
            "macOS, Windows",
            "the sender's system does not matter much: mend the router, or send less at a time",
        )],
    ),
    page(
        "slow-connect",
        "Opening a connection takes far longer than a round trip on one that stands, though no SYN is lost. Something on the way treats the first packets of a \
         connection in another way than all later ones: a firewall that asks somebody, a SYN proxy, a tunnel or a radio that has to wake up first.",
        &[
            To("SYN"),
            Wait(400.0, "held on the way"),
            From("SYN, ACK"),
            To("request"),
            Then(20.0, "a round trip"),
            From("answer"),
        ],
        &[fix(
            "macOS, Windows",
            "endpoint protection and content filters look at each new connection: test without them",
        )],
    ),
    page(
        "ports-exhausted",
        "Each connection to the same server takes a port of its own at the caller, out of some 28,000, and keeps it for a minute after it was closed \
         (TIME_WAIT). A program that opens a connection for each call uses them up; then none can be opened at all.",
        &[
            To("connection 1, closed"),
            To("connection 2, closed"),
            To("... connection 28,000, closed"),
            Wait(1000.0, "no port is left"),
        ],
        &[
            fix("macOS", "sysctl net.inet.ip.portrange.first=10000; net.inet.tcp.msl shorter"),
            fix("Windows", "netsh int ipv4 set dynamicport tcp start=10000 num=55000; TcpTimedWaitDelay"),
            fix(
                "JDK, Node, Go, Python, as callers",
                "one client object for the whole program, and read each response to its end, so that its connection is used again",
            ),
        ],
    ),
    page(
        "keep-alive-race",
        "A kept connection may be closed by the server when it was idle for long enough. A request that leaves just then meets a closed door: it gets no \
         answer, and the caller has to send it again on a new connection, if it may.",
        &[
            To("request"),
            From("answer"),
            Then(30.0, "idle"),
            From("FIN: the server closes"),
            LostTo("request: too late"),
            Wait(40.0, "a new connection"),
            To("request again"),
            From("answer"),
        ],
        &[fix(
            "JDK, Go, Python, as callers",
            "an idle time-out below the server's (jdk.httpclient.keepalive.timeout, IdleConnTimeout, pool_recycle)",
        )],
    ),
    page(
        "time-wait-collision",
        "A connection is known by its addresses and ports. After it was closed, the server remembers it for a minute. When a new one comes with the same \
         ports (many callers behind one NAT address), the server takes its SYN for something old, and answers with what makes the caller reset and ask again.",
        &[
            To("SYN, from a port used before"),
            From("ACK of the old connection"),
            To("RST"),
            Wait(12.0, "until the SYN is sent again"),
            To("SYN again"),
            From("SYN, ACK"),
        ],
        &[fix("Windows", "TcpTimedWaitDelay at the server; a wider range of ports at the NAT gateway")],
    ),
    CausePage {
        lanes: ["client", "name server"],
        ..page(
            "dns-slow",
            "Before a call its name must become an address. The name server that is asked takes long, because it is far away, busy, or asks others itself. \
             Every call that looks the name up pays for it.",
            &[To("A server.example?"), Wait(300.0, "the name server works"), From("192.0.2.7")],
            &[
                fix("Linux", "a cache on the machine: systemd-resolved, dnsmasq or nscd"),
                fix(
                    "macOS, Windows",
                    "they cache by themselves: check the configured servers (scutil --dns, ipconfig /all)",
                ),
                fix("Go, Python", "they do not cache: keep connections, or put a cache on the machine"),
            ],
        )
    },
    CausePage {
        lanes: ["client", "first name server"],
        ..page(
            "dns-timeout",
            "Several name servers are configured, and the first does not answer. The resolver waits (5 s by default) before it asks the next one, at \
             every single lookup: it does not remember who was silent.",
            &[
                LostTo("A server.example?"),
                Wait(5000.0, "until the resolver gives up"),
                To("the next one is asked"),
                From("192.0.2.7"),
            ],
            &[
                fix(
                    "macOS",
                    "System Settings, Network, DNS: remove the server that is silent (scutil --dns shows them)",
                ),
                fix("Windows", "ipconfig /all; remove it from the adapter's list"),
            ],
        )
    },
    page(
        "ipv6-fallback",
        "The name has an IPv6 and an IPv4 address, and one of them leads nowhere. A client that tries the dead one first waits until it gives up. Good ones \
         try the other after 250 ms (\"happy eyeballs\"), older ones after seconds.",
        &[
            LostTo("SYN over IPv6"),
            Wait(1200.0, "until it gives up"),
            To("SYN over IPv4"),
            From("SYN, ACK"),
            To("request"),
            From("answer"),
        ],
        &[
            fix("Windows", "netsh interface ipv6 show prefixpolicies; prefer IPv4 (DisabledComponents=0x20)"),
            fix(
                "Python",
                "aiohttp and httpx with happy eyeballs; requests tries one address after the other",
            ),
        ],
    ),
    page(
        "dead-address",
        "The name has several addresses, and one of them leads nowhere: its machine was switched off, and the name servers were not told. A client that \
         gets it first sends its SYN there and waits, for seconds or minutes, before it tries the next one. Name servers often change the order, \
         so that only some calls meet it.",
        &[
            LostTo("SYN to the first address"),
            Wait(1200.0, "until it gives up"),
            To("SYN to the second"),
            From("SYN, ACK"),
            To("request"),
            From("answer"),
        ],
        &[
            fix("Kubernetes", "a headless service lists pods that are ready alone: readiness probes"),
            fix("Python", "requests: timeout=(connect, read); it tries one address after the other"),
        ],
    ),
    page(
        "connection-refused",
        "The server's machine answers, and says that nobody listens on that port: the program is not running, listens on another address or port, \
         or a firewall answers in its place.",
        &[To("SYN"), From("RST: nobody listens there")],
        &[
            fix("Linux", "ss -ltnp shows who listens where; nft list ruleset the firewall"),
            fix("macOS", "lsof -iTCP -sTCP:LISTEN"),
            fix("Windows", "netstat -abno; Test-NetConnection HOST -Port PORT"),
        ],
    ),
    page(
        "connection-died",
        "One end sends the same packet again and again and hears nothing any more: the other end, or something between that remembers connections \
         (NAT, a firewall), went away without a word.",
        &[
            To("request"),
            LostTo("request again"),
            LostTo("request again"),
            Wait(4000.0, "nothing comes back"),
        ],
        &[
            fix(
                "Linux",
                "net.ipv4.tcp_keepalive_time below the time-out of what is between; TCP_USER_TIMEOUT in the program",
            ),
            fix("macOS, Windows", "SO_KEEPALIVE with TCP_KEEPALIVE / SIO_KEEPALIVE_VALS"),
        ],
    ),
];
