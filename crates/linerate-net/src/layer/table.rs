//! Entries beside the transport's own table, by its slots.

use super::entry::LayeredConnection;
use crate::Conn;

pub(super) struct Entries<S> {
    slots: Vec<Option<Box<Held<S>>>>,
}

/// Only whose connection is the slot's has the entry.
type Held<S> = (Conn, LayeredConnection<S>);

impl<S> Entries<S> {
    pub(super) fn new() -> Entries<S> {
        Entries { slots: Vec::new() }
    }

    pub(super) fn insert(&mut self, conn: Conn, entry: LayeredConnection<S>) {
        if self.slots.len() <= conn.slot() {
            self.slots.resize_with(conn.slot() + 1, || None);
        }
        self.slots[conn.slot()] = Some(Box::new((conn, entry)));
    }

    pub(super) fn get(&self, conn: Conn) -> Option<&LayeredConnection<S>> {
        let (of, entry) = self.slots.get(conn.slot())?.as_deref()?;
        (*of == conn).then_some(entry)
    }

    pub(super) fn get_mut(&mut self, conn: Conn) -> Option<&mut LayeredConnection<S>> {
        let (of, entry) = self.slots.get_mut(conn.slot())?.as_deref_mut()?;
        (*of == conn).then_some(entry)
    }

    pub(super) fn remove(&mut self, conn: Conn) -> Option<LayeredConnection<S>> {
        let place = self.slots.get_mut(conn.slot())?;
        let (_, entry) = *place.take_if(|held| held.0 == conn)?;
        Some(entry)
    }
}
