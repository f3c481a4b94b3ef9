//! The source port of connections that we open, and another one if a peer does not accept the
//! first.

use super::core::Core;
use super::demux::Owner;
use super::tuple::Tuple;
use crate::{Conn, NetError, NetErrorKind};

impl Core {
    /// Selects a port; a TIME_WAIT entry may be reused if that is safe. Returns the 4-tuple and its
    /// hash.
    pub(super) fn choose_port(&mut self, tuple: Tuple) -> Result<(Tuple, u64), NetError> {
        let mut ports = std::mem::take(&mut self.ports);
        let key = self.shared.keys.ports;
        let mut chosen = None;
        ports.choose(&tuple, key, |port| {
            let tuple = Tuple { local_port: port, ..tuple };
            let hash = self.hash(&tuple);
            let earlier = match self.find(&tuple, hash) {
                None => None,
                Some(Owner::Wait(index))
                    if self.waits.get(index).is_some_and(|remains| remains.may_connect_anew(self.now)) =>
                {
                    Some(index)
                }
                Some(_) => return false,
            };
            chosen = Some((tuple, hash, earlier));
            true
        });
        self.ports = ports;
        let (tuple, hash, earlier) = chosen.ok_or(NetError::of(NetErrorKind::PortsExhausted))?;
        if let Some(index) = earlier {
            self.shared.stats.time_waits_reused += 1;
            self.forget(index);
        }
        Ok((tuple, hash))
    }

    /// Retries a connection attempt from another port. If none is free it keeps its own.
    pub(super) fn move_to_another_port(&mut self, conn: Conn) {
        let Some(entry) = self.table.get(conn) else { return };
        let (tuple, before) = (entry.flow.tuple, entry.hash);
        let Ok((tuple, hash)) = self.choose_port(tuple) else { return };
        let Some(entry) = self.table.get_mut(conn) else { return };
        entry.hash = hash;
        entry.flow.ask_from(tuple, self.now, &self.shared);
        self.demux.remove(before, Owner::Flow(conn.slot));
        self.demux.insert(hash, Owner::Flow(conn.slot));
        self.shared.stats.ports_moved += 1;
        self.touch(conn);
    }
}
