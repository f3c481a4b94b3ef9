//! Counts the kinds of segments on the connections to some servers, and nothing else. It is cheap
//! enough to run beside a load at full speed.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::sequence::{Marks, Side, analyse};
use crate::passive::limits::TALLIED;
use crate::passive::observation::Traced;
use crate::passive::packet::{Endpoint, Packet, Segment, flag, segment};

/// A segment, and what is remarkable about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemarkedSegment {
    /// The client's end of its connection.
    pub client: SocketAddr,
    /// The segment, with marks by the rules of Wireshark's TCP analysis; times are since 1970.
    pub segment: Traced,
}

/// One connection.
#[derive(Debug, Default)]
struct Tracked {
    client: Side,
    server: Side,
    /// When its first SYN passed, and when a SYN answered it.
    syn_ns: Option<i64>,
    answered: bool,
    /// How long the handshake took.
    handshake_ns: Option<i64>,
}

/// Says of each segment to and from some servers what is remarkable about it.
#[derive(Debug)]
pub struct Tally {
    servers: Vec<SocketAddr>,
    /// Connections that were heard of recently, by the client's end and the server's place in the
    /// list.
    young: HashMap<(Endpoint, usize), Tracked>,
    /// Those before them: half of all are forgotten at once.
    old: HashMap<(Endpoint, usize), Tracked>,
}

impl Tally {
    /// Of the connections with these servers.
    pub fn new(servers: &[SocketAddr]) -> Tally {
        Tally { servers: servers.to_vec(), young: HashMap::new(), old: HashMap::new() }
    }

    /// The next packet; `None` when it is of no connection with these servers.
    pub fn packet(&mut self, packet: &Packet<'_>) -> Option<RemarkedSegment> {
        let s = segment(packet).ok()?;
        let time_ns = packet.time_ns.clamp(0, i64::MAX / 2);
        let place = |end: Endpoint| self.servers.iter().position(|server| *server == end.addr());
        let (from_server, key) = match (place(s.dst), place(s.src)) {
            (Some(place), _) => (false, (s.src, place)),
            (None, Some(place)) => (true, (s.dst, place)),
            (None, None) => return None,
        };
        let client = key.0.addr();
        let tracked = self.tracked(key);
        let marks = tracked.segment(&s, from_server, time_ns);
        let (me, peer) = match from_server {
            true => (&tracked.server, &tracked.client),
            false => (&tracked.client, &tracked.server),
        };
        let since = |number: u32, side: &Side| side.base.map_or(number, |base| number.wrapping_sub(base));
        let segment = Traced {
            time_ns,
            from_client: !from_server,
            flags: s.flags,
            seq: since(s.seq, me),
            ack: since(s.ack, peer),
            len: s.len,
            window: s.window,
            marks,
        };
        Some(RemarkedSegment { client, segment })
    }

    fn tracked(&mut self, key: (Endpoint, usize)) -> &mut Tracked {
        if self.young.len() >= TALLIED / 2 && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let old = &mut self.old;
        self.young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or_default())
    }
}

impl Tracked {
    fn segment(&mut self, s: &Segment<'_>, from_server: bool, now: i64) -> Marks {
        let asks = s.has(flag::SYN) && !s.has(flag::ACK) && !from_server;
        if asks && self.client.base.is_some_and(|base| base != s.seq) {
            // The same ports again.
            *self = Tracked::default();
        }
        if self.is_of_another(s, from_server) {
            return Marks::default();
        }
        let (me, peer) = match from_server {
            true => (&mut self.server, &mut self.client),
            false => (&mut self.client, &mut self.server),
        };
        let marks = analyse(me, peer, s, now, self.handshake_ns);
        if asks {
            self.syn_ns.get_or_insert(now);
        } else if from_server && s.has(flag::SYN) {
            self.answered = true;
        } else if self.answered && !from_server && s.has(flag::ACK) && self.handshake_ns.is_none() {
            self.handshake_ns = self.syn_ns.map(|syn| now - syn);
        }
        marks
    }

    /// The server replies to our SYN with an ACK of a connection that it still remembers.
    fn is_of_another(&self, s: &Segment<'_>, from_server: bool) -> bool {
        let waits = self.syn_ns.is_some() && !self.answered;
        let ours = self.client.base.map(|isn| isn.wrapping_add(1));
        let bare = s.has(flag::ACK) && !s.has(flag::SYN | flag::RST) && s.len == 0;
        waits && from_server && bare && ours.is_some_and(|ours| s.ack != ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passive::LinkType;

    const SERVER: u16 = 80;

    /// A segment between `client` and the server, at this time in milliseconds.
    fn packet(
        client: u16,
        from_server: bool,
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        len: usize,
    ) -> Vec<u8> {
        let (src, dst) = if from_server { (SERVER, client) } else { (client, SERVER) };
        let mut p = vec![0x45, 0];
        p.extend((40 + len as u16).to_be_bytes());
        p.extend([0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        p.extend(src.to_be_bytes());
        p.extend(dst.to_be_bytes());
        p.extend(seq.to_be_bytes());
        p.extend(ack.to_be_bytes());
        p.extend([0x50, flags]);
        p.extend(window.to_be_bytes());
        p.extend([0; 4]);
        p.resize(p.len() + len, b'x');
        p
    }

    fn told(tally: &mut Tally, ms: i64, data: &[u8]) -> Option<RemarkedSegment> {
        let cut = &data[..data.len().min(60)];
        let wire_len = data.len() as u32;
        tally.packet(&Packet { time_ns: ms * 1_000_000, link: LinkType::Raw, data: cut, wire_len })
    }

    fn opened(tally: &mut Tally, client: u16) {
        let (syn, ack) = (flag::SYN, flag::ACK);
        for (ms, p) in [
            (0, packet(client, false, 100, 0, syn, 1000, 0)),
            (1, packet(client, true, 500, 101, syn | ack, 1000, 0)),
            (2, packet(client, false, 101, 501, ack, 1000, 0)),
        ] {
            let told = told(tally, ms, &p).expect("ours");
            assert_eq!((told.segment.from_client, told.segment.marks), (ms != 1, Marks::default()));
            let numbers = [(0, 0), (0, 1), (1, 1)][ms as usize];
            assert_eq!(
                (told.client.port(), told.segment.seq, told.segment.ack),
                (client, numbers.0, numbers.1)
            );
        }
    }

    #[test]
    fn marks_are_those_of_each_direction() {
        let mut tally = Tally::new(&[([127, 0, 0, 1], SERVER).into()]);
        opened(&mut tally, 5000);
        for (ms, p, from_server, marks) in [
            // It fills the window, which then closes; the same again after a while.
            (3, packet(5000, false, 101, 501, flag::ACK, 1000, 1000), false, Marks::WINDOW_FULL),
            (4, packet(5000, true, 501, 1101, flag::ACK, 0, 0), true, Marks::ZERO_WINDOW),
            (
                400,
                packet(5000, false, 101, 501, flag::ACK, 1000, 1000),
                false,
                Marks::SPURIOUS_RETRANSMISSION,
            ),
            (401, packet(5000, true, 501, 1101, flag::ACK, 1000, 0), true, Marks::WINDOW_UPDATE),
            (402, packet(5000, true, 501, 1101, flag::ACK, 1000, 0), true, Marks::DUPLICATE_ACK),
        ] {
            let told = told(&mut tally, ms, &p).expect("ours");
            assert_eq!(told.segment.from_client, !from_server, "at {ms}");
            assert!(told.segment.marks.has(marks), "at {ms}: {:?}", told.segment.marks);
        }
    }

    #[test]
    fn other_connections_are_not_ours() {
        let mut tally = Tally::new(&[([127, 0, 0, 2], SERVER).into(), ([127, 0, 0, 1], 81).into()]);
        assert_eq!(told(&mut tally, 0, &packet(5000, false, 1, 1, flag::ACK, 10, 0)), None);
        assert_eq!(told(&mut tally, 0, b"no packet"), None);
    }

    #[test]
    fn the_quiet_are_forgotten_and_the_others_are_not() {
        let mut tally = Tally::new(&[([127, 0, 0, 1], SERVER).into()]);
        opened(&mut tally, 5000);
        let full = packet(5000, false, 101, 501, flag::ACK, 1000, 1000);
        for ip in 0..(2 * TALLIED as u32) {
            let mut other = packet(7, false, 1, 1, flag::ACK, 10, 0);
            other[12..16].copy_from_slice(&(0x0a00_0000 + ip).to_be_bytes());
            told(&mut tally, 3, &other);
            if ip % 1000 == 0 {
                told(&mut tally, 3, &packet(5000, false, 101, 501, flag::ACK, 1000, 0));
            }
        }
        assert!(tally.young.len() + tally.old.len() <= TALLIED);
        assert!(told(&mut tally, 4, &full).is_some_and(|t| t.segment.marks.has(Marks::WINDOW_FULL)));
    }
}
