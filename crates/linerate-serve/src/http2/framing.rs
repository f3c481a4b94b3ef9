//! What frames the streams of a connection: HTTP/2 or HTTP/3.

use linerate_http::h2::Code;
use linerate_http::h2::server::{ClientEvent, Heads, Server, ServerOptions};
use linerate_http::h3::H3Code;
use linerate_http::h3::server::{H3Server, H3ServerOptions};
use linerate_http::server::CheckedFields;
use linerate_net::Time;

/// One of both, with the face that they have in common.
#[derive(Debug)]
pub(crate) enum StreamFraming {
    Http2(Server),
    Http3(H3Server),
}

/// Calls the method of either.
macro_rules! either {
    ($framing:expr, $server:ident => $call:expr) => {
        match $framing {
            StreamFraming::Http2($server) => $call,
            StreamFraming::Http3($server) => $call,
        }
    };
}

/// The code that HTTP/3 has for one of HTTP/2.
fn code3(code: Code) -> H3Code {
    match code {
        Code::NO_ERROR => H3Code::NO_ERROR,
        Code::ENHANCE_YOUR_CALM => H3Code::EXCESSIVE_LOAD,
        Code::REFUSED_STREAM => H3Code::REQUEST_REJECTED,
        Code::CANCEL => H3Code::REQUEST_CANCELLED,
        Code::INTERNAL_ERROR => H3Code::INTERNAL_ERROR,
        _ => H3Code::GENERAL_PROTOCOL_ERROR,
    }
}

impl StreamFraming {
    pub(super) fn http2(options: ServerOptions) -> StreamFraming {
        StreamFraming::Http2(Server::new(options))
    }

    pub(super) fn http3(options: H3ServerOptions, now: Time) -> StreamFraming {
        StreamFraming::Http3(H3Server::new(options, now))
    }

    pub(crate) fn is_http3(&self) -> bool {
        matches!(self, StreamFraming::Http3(_))
    }

    #[inline]
    pub(crate) fn next<'i>(&mut self, input: &mut &'i [u8], heads: &mut Heads) -> Option<ClientEvent<'i>> {
        either!(self, server => server.next(input, heads))
    }

    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        either!(self, server => server.out())
    }

    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time) {
        match self {
            StreamFraming::Http2(server) => server.begin_turn(),
            StreamFraming::Http3(server) => server.begin_turn(now),
        }
    }

    /// Whether the client's preface has come, where it has one.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            StreamFraming::Http2(server) => server.is_open(),
            StreamFraming::Http3(_) => true,
        }
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        either!(self, server => server.is_over())
    }

    /// Whether the client asked for too much work.
    pub(crate) fn is_flooded(&self) -> bool {
        match self {
            StreamFraming::Http2(server) => server.error().is_some_and(|e| e.code == Code::ENHANCE_YOUR_CALM),
            StreamFraming::Http3(server) => server.error().is_some_and(|e| e.code == H3Code::EXCESSIVE_LOAD),
        }
    }

    /// When the head of a request began to come that has not come whole, where the framing knows.
    pub(crate) fn head_since(&self) -> Option<Time> {
        match self {
            StreamFraming::Http2(_) => None,
            StreamFraming::Http3(server) => server.head_since(),
        }
    }

    /// Frames without content and requests given up since this was last asked, where the framing counts
    /// them.
    pub(crate) fn take_spent(&mut self) -> (u32, u32) {
        match self {
            StreamFraming::Http2(_) => (0, 0),
            StreamFraming::Http3(server) => server.take_spent(),
        }
    }

    #[inline]
    pub(crate) fn whole_body<'i>(
        &mut self,
        stream: u32,
        most: u64,
        input: &mut &'i [u8],
    ) -> Option<&'i [u8]> {
        either!(self, server => server.whole_body(stream, most, input))
    }

    #[inline]
    pub(crate) fn respond(&mut self, stream: u32, block: &[u8], ends: bool) {
        either!(self, server => server.respond(stream, block, ends));
    }

    pub(crate) fn write_interim(&mut self, stream: u32, status: u16) {
        either!(self, server => server.write_interim(stream, status));
    }

    #[inline]
    pub(crate) fn room(&self, stream: u32) -> Option<usize> {
        either!(self, server => server.room(stream))
    }

    #[inline]
    pub(crate) fn write_data(&mut self, stream: u32, content: &[u8], ends: bool) -> usize {
        either!(self, server => server.write_data(stream, content, ends))
    }

    pub(crate) fn write_trailers(&mut self, stream: u32, fields: &CheckedFields) {
        either!(self, server => server.write_trailers(stream, fields));
    }

    pub(crate) fn release(&mut self, stream: u32, bytes: usize) {
        either!(self, server => server.release(stream, bytes));
    }

    pub(crate) fn release_to_connection(&mut self, bytes: u32) {
        either!(self, server => server.release_to_connection(bytes));
    }

    pub(crate) fn widen(&mut self, window: u32) {
        either!(self, server => server.widen(window));
    }

    pub(crate) fn say_goodbye(&mut self) {
        either!(self, server => server.say_goodbye());
    }

    pub(crate) fn go_away(&mut self, code: Code) {
        match self {
            StreamFraming::Http2(server) => server.go_away(code),
            StreamFraming::Http3(server) => server.go_away(code3(code)),
        }
    }

    pub(crate) fn reset(&mut self, stream: u32, code: Code) {
        match self {
            StreamFraming::Http2(server) => server.reset(stream, code),
            StreamFraming::Http3(server) => server.reset(stream, code3(code)),
        }
    }

    #[inline]
    pub(crate) fn close(&mut self, stream: u32) {
        either!(self, server => server.close(stream));
    }
}
