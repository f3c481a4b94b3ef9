//! HTTP/2.

use super::page::PictureStep::{From, LostFrom, To, Wait};
use super::page::{CausePage, fix, page};

pub(super) static PAGES: &[CausePage] = &[
    page(
        "h2-flow-control",
        "Over HTTP/2 each side says how many bytes the other may send before it has to wait: the window, for each stream and for the whole \
         connection. It begins with 65,535 bytes, and many clients leave it there. The server sends a window and stops; the client's word \
         that there is room again takes a round trip. So no answer is faster than one window per round trip: at 40 ms, 1.6 MB a second, \
         however fast the line is.",
        &[
            To("request"),
            From("answer, 65535 bytes"),
            Wait(40.0, "the window is full until WINDOW_UPDATE arrives"),
            To("WINDOW_UPDATE"),
            From("answer, 65535 bytes"),
            Wait(40.0, "and again"),
            From("answer, the rest"),
        ],
        &[fix("nghttp", "nghttp -w 24 -W 24 URL announces windows of 16 MiB: compare with -w 16 -W 16")],
    ),
    page(
        "h2-stream-limit",
        "An HTTP/2 connection carries many calls at once, each on a stream of its own, and the server says how many: \
         SETTINGS_MAX_CONCURRENT_STREAMS. A client with more calls than that keeps the rest back until a stream ends. In the server's \
         log they look quick, since they had not been sent while they waited.",
        &[
            To("requests 1 and 2"),
            Wait(50.0, "request 3 waits in the client: two streams are admitted"),
            From("answers 1 and 2"),
            To("request 3"),
            From("answer 3"),
        ],
        &[fix(
            "browsers",
            "chrome://net-export shows the limit a server announces, in the events of HTTP2_SESSION",
        )],
    ),
    page(
        "h2-head-of-line",
        "TCP hands bytes on in their order. Where a packet is lost, all that came behind it waits in the kernel until it was sent again, \
         a round trip or more later. Over HTTP/2 all calls share a connection, so that one lost packet holds up all of them, while of \
         several connections only one stands still. HTTP/3 was made for that.",
        &[
            To("requests 1, 2 and 3"),
            LostFrom("answer 1, its second packet"),
            From("answers 2 and 3 arrive and wait"),
            Wait(40.0, "all three wait for one packet"),
            From("the lost packet again: all are whole"),
        ],
        &[fix("any server", "HTTP/3 beside HTTP/2 (Alt-Svc), so that clients that can take it")],
    ),
];
