//! Urgent data out of line, as Linux does it by default (RFC 6093): the byte that the pointer means
//! is removed from the stream. Otherwise a proxy or peer that relies on this would see another
//! request than we do.

use super::Flow;
use super::parts::Urgent;
use crate::stack::wire::{Seq, TcpHeader};

impl Flow {
    /// Handles a segment with an urgent pointer.
    #[cold]
    pub(super) fn note_urgent(&mut self, tcp: &TcpHeader) {
        // It points behind the byte (RFC 793 as implemented everywhere; RFC 6093 section 3.1).
        let at = tcp.seq + u32::from(tcp.urgent.saturating_sub(1));
        if at.lt(self.receive.nxt) {
            return;
        }
        if let Some(known) = self.receive.urgent.at {
            if at.le(known) {
                return;
            }
            if known == self.first_unread() && self.has_bytes() {
                self.receive.urgent.next = Some(known);
            }
        }
        self.receive.urgent.at = Some(at);
    }

    /// The number of the first unread byte.
    fn first_unread(&self) -> Seq {
        self.receive.nxt - u32::from(self.receive.ended) - self.receive.inbox.len() as u32
    }

    /// Offsets of the bytes to remove, from the first unread one; `None` if there are none.
    pub(super) fn urgent_places(&self) -> Option<[usize; 2]> {
        let Urgent { at, next } = self.receive.urgent;
        at.or(next)?;
        let place = |at: Option<Seq>| at.map_or(usize::MAX, |at| (at - self.first_unread()) as usize);
        Some([place(next), place(at)])
    }

    /// Accounts for bytes that were read.
    pub(super) fn pass_urgent(&mut self, [next, at]: [usize; 2], read: usize) {
        self.receive.urgent.next = self.receive.urgent.next.filter(|_| next >= read);
        self.receive.urgent.at = self.receive.urgent.at.filter(|_| at >= read);
    }
}

/// Lends all bytes except those at these offsets to `take`.
pub(super) fn without(
    [mut first, mut second]: [usize; 2],
    mut take: impl FnMut(&mut [u8]),
) -> impl FnMut(&mut [u8]) {
    let mut begins = 0;
    move |bytes| {
        let ends = begins + bytes.len();
        let mut rest = &mut bytes[..];
        let mut from = begins;
        for place in [&mut first, &mut second] {
            if (from..ends).contains(place) {
                let (before, behind) = rest.split_at_mut(*place - from);
                if !before.is_empty() {
                    take(before);
                }
                rest = &mut behind[1..];
                from = *place + 1;
                *place = usize::MAX;
            }
        }
        if !rest.is_empty() {
            take(rest);
        }
        begins = ends;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_out_wherever_they_are() {
        let read = |places: [usize; 2], pieces: &[usize]| {
            let (mut got, mut number) = (Vec::new(), 0u8);
            {
                let mut lend = without(places, |bytes| got.extend_from_slice(bytes));
                for len in pieces {
                    let mut bytes: Vec<u8> = (number..number + *len as u8).collect();
                    number += *len as u8;
                    lend(&mut bytes);
                }
            }
            got
        };
        const NONE: usize = usize::MAX;
        for pieces in [&[6][..], &[3, 3], &[1, 1, 1, 1, 1, 1], &[5, 1]] {
            assert_eq!(read([NONE, NONE], pieces), [0, 1, 2, 3, 4, 5]);
            assert_eq!(read([NONE, 0], pieces), [1, 2, 3, 4, 5]);
            assert_eq!(read([NONE, 5], pieces), [0, 1, 2, 3, 4]);
            assert_eq!(read([0, 3], pieces), [1, 2, 4, 5]);
            assert_eq!(read([0, 1], pieces), [2, 3, 4, 5]);
            assert_eq!(read([NONE, 9], pieces), [0, 1, 2, 3, 4, 5]);
        }
    }
}
