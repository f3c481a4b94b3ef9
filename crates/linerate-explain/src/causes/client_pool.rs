//! Calls wait in the client for a connection of its pool. Packets alone show it.

use crate::parts::{CausePage, ENDS, FaultPlace, PacketDoubt, PacketSigns, PictureStep, fix};
use crate::rule::{Cause, PacketCause};

pub(crate) static CAUSE: Cause =
    PacketCause { id: "client-pool", place: FaultPlace::Here, packets: PACKETS, page: PAGE }.cause();

const PAGE: CausePage = CausePage {
    what: "The program that calls keeps a pool of connections, and the pool is too small. Calls wait inside the program until a connection is free. Nothing of that \
         is seen at the server, which is bored.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request 1"),
        PictureStep::Wait(80.0, "request 2 waits in the program for a connection"),
        PictureStep::From("answer 1"),
        PictureStep::To("request 2"),
        PictureStep::From("answer 2"),
    ],
    more: &[
        fix(
            "JDK",
            "HTTP/2, or more connections: jdk.httpclient.connectionPoolSize; Apache HttpClient: setMaxConnPerRoute",
        ),
        fix("Go", "Transport.MaxConnsPerHost, MaxIdleConnsPerHost (2 by default)"),
        fix("Python", "requests: HTTPAdapter(pool_maxsize=N); aiohttp: TCPConnector(limit=N)"),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "calls wait in the calling program for one of its few connections",
    fixes: &[
        fix(
            "Apache HttpClient",
            "PoolingHttpClientConnectionManager: setDefaultMaxPerRoute (2 in version 4, 5 in version 5) and setMaxTotal; a lease time-out that is logged",
        ),
        fix(
            "Spring RestTemplate, WebClient",
            "the pool of the client below it: ConnectionProvider.builder(...).maxConnections(n)",
        ),
        fix("OkHttp", "Dispatcher.setMaxRequestsPerHost (5 by default)"),
        fix(
            "Node",
            "new http.Agent({ keepAlive: true, maxSockets: n }); requests that wait are in agent.requests",
        ),
        fix(
            "Go",
            "Transport.MaxConnsPerHost; MaxIdleConnsPerHost (2 by default) makes it open new ones instead",
        ),
        fix(
            "Python requests, urllib3, aiohttp",
            "HTTPAdapter(pool_maxsize=n, pool_block=...), TCPConnector(limit=n, limit_per_host=n)",
        ),
        fix(
            ".NET",
            "SocketsHttpHandler.MaxConnectionsPerServer; ServicePointManager.DefaultConnectionLimit (2) on .NET Framework",
        ),
        fix("browsers", "six connections for each host under HTTP/1.1: HTTP/2"),
    ],
    verify: "capture again with a larger pool: more calls at once, and none that follows an answer",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};
