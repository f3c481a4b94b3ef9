//! A transport of two, one for connections over TCP and one for those over QUIC.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use linerate_net::{
    After, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError, NetErrorKind,
    TcpInfo, Time, Transport, Waker,
};

use crate::route::BY_QUIC;

/// How long one of the two waits while the other one might have events. Reason: drivers of a client take turns that do
/// not wait.
const SLICE: Duration = Duration::from_millis(1);

/// Two transports as one. Connections whose profile is [`BY_QUIC`] are the second's.
///
/// It has no listeners, and bytes that are lent are copied.
#[derive(Debug)]
pub(crate) struct DualTransport<T, Q> {
    tcp: T,
    quic: Q,
    lent: Vec<Arc<[u8]>>,
}

impl<T: Transport, Q: Transport> DualTransport<T, Q> {
    /// Of both.
    pub(crate) fn new(tcp: T, quic: Q) -> DualTransport<T, Q> {
        DualTransport { tcp, quic, lent: Vec::new() }
    }

    /// The second one.
    #[cfg(test)]
    pub(crate) fn quic(&mut self) -> &mut Q {
        &mut self.quic
    }

    fn both(&mut self, until: Time, events: &mut Vec<Event>) -> io::Result<()> {
        let start = events.len();
        self.tcp.turn(Some(until), events)?;
        events[start..].iter_mut().for_each(|event| renumber(event, Way::Tcp));
        let start = events.len();
        self.quic.turn(Some(until), events)?;
        events[start..].iter_mut().for_each(|event| renumber(event, Way::Quic));
        Ok(())
    }
}

/// Which of the two has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    Quic,
}

/// The number of a connection for the application: those of the two have every other slot.
fn outer(conn: Conn, way: Way) -> Conn {
    Conn::new(conn.slot() as u32 * 2 + way as u32, conn.generation())
}

/// The number for the one that has it.
fn inner(conn: Conn) -> (Conn, Way) {
    let way = if conn.slot().is_multiple_of(2) { Way::Tcp } else { Way::Quic };
    (Conn::new(conn.slot() as u32 / 2, conn.generation()), way)
}

fn renumber(event: &mut Event, way: Way) {
    match event {
        Event::Readable { conn, data } => {
            *conn = outer(*conn, way);
            *data = Data::new(outer(data.conn(), way), data.token());
        }
        Event::Connected { conn, .. }
        | Event::Accepted { conn, .. }
        | Event::Drained { conn }
        | Event::Failed { conn, .. } => *conn = outer(*conn, way),
        Event::Woken => {}
    }
}

/// The same call on the transport of a connection.
macro_rules! on {
    ($self:ident, $conn:expr, |$transport:ident, $inner:ident| $call:expr) => {{
        let ($inner, way) = inner($conn);
        match way {
            Way::Tcp => {
                let $transport = &$self.tcp;
                $call
            }
            Way::Quic => {
                let $transport = &$self.quic;
                $call
            }
        }
    }};
    (mut $self:ident, $conn:expr, |$transport:ident, $inner:ident| $call:expr) => {{
        let ($inner, way) = inner($conn);
        match way {
            Way::Tcp => {
                let $transport = &mut $self.tcp;
                $call
            }
            Way::Quic => {
                let $transport = &mut $self.quic;
                $call
            }
        }
    }};
}

impl<T: Transport, Q: Transport> Transport for DualTransport<T, Q> {
    fn now(&mut self) -> Time {
        self.tcp.now().max(self.quic.now())
    }

    fn listen(&mut self, _: SocketAddr, _: &ListenOptions) -> Result<(Listener, SocketAddr), NetError> {
        Err(NetError::of(NetErrorKind::Misuse))
    }

    fn unlisten(&mut self, _: Listener) {}

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        match options.profile {
            BY_QUIC => self.quic.connect(to, options).map(|conn| outer(conn, Way::Quic)),
            _ => self.tcp.connect(to, options).map(|conn| outer(conn, Way::Tcp)),
        }
    }

    fn local(&mut self, conn: Conn) -> Option<SocketAddr> {
        on!(mut self, conn, |transport, conn| transport.local(conn))
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let (before, until) = (events.len(), until.unwrap_or(Time::NEVER));
        loop {
            let slice = until.min(self.now() + SLICE);
            self.both(slice, events)?;
            if events.len() > before || until <= self.now() {
                return Ok(());
            }
        }
    }

    fn next_turn(&self) -> Time {
        self.tcp.next_turn().min(self.quic.next_turn())
    }

    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After {
        on!(mut self, data.conn(), |transport, conn| transport.receive(Data::new(conn, data.token()), take))
    }

    fn unread(&mut self, conn: Conn) -> Option<Data> {
        let (_, way) = inner(conn);
        let data = on!(mut self, conn, |transport, conn| transport.unread(conn))?;
        Some(Data::new(outer(data.conn(), way), data.token()))
    }

    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError> {
        on!(mut self, conn, |transport, conn| transport.send(conn, bytes))
    }

    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        on!(mut self, conn, |transport, conn| transport.send_shared(conn, bytes))
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        on!(mut self, conn, |transport, conn| transport.send_last(conn, bytes, how))
    }

    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.lent.push(bytes);
        Lent::new(self.lent.len() as u32 - 1)
    }

    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError> {
        let bytes = self.lent.get(lent.index() as usize).and_then(|bytes| bytes.get(range));
        let bytes = bytes.ok_or(NetError::of(NetErrorKind::Misuse))?;
        on!(mut self, conn, |transport, conn| transport.send(conn, bytes))
    }

    fn unsent(&self, conn: Conn) -> usize {
        on!(self, conn, |transport, conn| transport.unsent(conn))
    }

    fn pause(&mut self, conn: Conn) {
        on!(mut self, conn, |transport, conn| transport.pause(conn));
    }

    fn resume(&mut self, conn: Conn) {
        on!(mut self, conn, |transport, conn| transport.resume(conn));
    }

    fn set_low_water(&mut self, conn: Conn, bytes: usize) {
        on!(mut self, conn, |transport, conn| transport.set_low_water(conn, bytes));
    }

    fn close(&mut self, conn: Conn, how: Close) {
        on!(mut self, conn, |transport, conn| transport.close(conn, how));
    }

    fn unfinished(&self) -> usize {
        self.tcp.unfinished() + self.quic.unfinished()
    }

    fn half_closed(&self) -> usize {
        self.tcp.half_closed() + self.quic.half_closed()
    }

    fn protocol(&self, conn: Conn) -> Option<&[u8]> {
        on!(self, conn, |transport, conn| transport.protocol(conn))
    }

    fn reason(&self, conn: Conn) -> Option<String> {
        on!(self, conn, |transport, conn| transport.reason(conn))
    }

    fn about(&self, conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
        on!(self, conn, |transport, conn| transport.about(conn))
    }

    fn info(&mut self, conn: Conn) -> Option<TcpInfo> {
        on!(mut self, conn, |transport, conn| transport.info(conn))
    }

    fn waker(&self) -> Waker {
        self.tcp.waker()
    }

    fn name(&self) -> &'static str {
        self.tcp.name()
    }
}
