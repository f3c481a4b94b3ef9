//! Connections by slot and generation.

use crate::Conn;

/// Generations from here on belong to no connection: transports use them for tokens of other
/// things.
pub(crate) const LAST_GENERATION: u32 = u32::MAX - 1;

struct TableSlot<T> {
    generation: u32,
    value: Option<T>,
}

/// A table that reuses slots but never a [`Conn`].
pub(crate) struct Table<T> {
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
    limit: u32,
}

impl<T> Table<T> {
    /// At most `limit` entries at once.
    pub(crate) fn new(limit: u32) -> Table<T> {
        Table { slots: Vec::new(), free: Vec::new(), limit }
    }

    /// How many more entries fit.
    pub(crate) fn room(&self) -> usize {
        self.free.len() + (self.limit as usize).saturating_sub(self.slots.len())
    }

    /// Number of entries, including slots whose generations are used up.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of slots, including free ones.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Puts `value` into a free slot; returns it if none is free.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Result<Conn, T> {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            debug_assert!(place.value.is_none(), "a free slot is empty");
            place.value = Some(value);
            return Ok(Conn { slot, generation: place.generation });
        }
        if self.is_full() {
            return Err(value);
        }
        // Below the limit, which is a u32.
        let slot = self.slots.len() as u32;
        self.slots.push(TableSlot { generation: 0, value: Some(value) });
        Ok(Conn { slot, generation: 0 })
    }

    /// All there are.
    pub(crate) fn conns(&self) -> Vec<Conn> {
        let conn = |(slot, place): (usize, &TableSlot<T>)| {
            place.value.as_ref().map(|_| Conn { slot: slot as u32, generation: place.generation })
        };
        self.slots.iter().enumerate().filter_map(conn).collect()
    }

    pub(crate) fn get(&self, conn: Conn) -> Option<&T> {
        let place = self.slots.get(conn.slot())?;
        if place.generation == conn.generation { place.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, conn: Conn) -> Option<&mut T> {
        let place = self.slots.get_mut(conn.slot())?;
        if place.generation == conn.generation { place.value.as_mut() } else { None }
    }

    /// As `get`, immutable and by slot.
    pub(crate) fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    /// The entry in a slot, whatever its generation.
    pub(crate) fn by_slot(&mut self, slot: u32) -> Option<(Conn, &mut T)> {
        let place = self.slots.get_mut(slot as usize)?;
        let conn = Conn { slot, generation: place.generation };
        place.value.as_mut().map(|value| (conn, value))
    }

    /// Removes an entry. Its `Conn` is never used again.
    pub(crate) fn remove(&mut self, conn: Conn) -> Option<T> {
        let value = self.get_slot(conn)?.value.take()?;
        self.free_slot(conn);
        Some(value)
    }

    /// Removes an entry where it lies. Reason: large ones take long to move out.
    pub(crate) fn drop_entry(&mut self, conn: Conn) {
        if let Some(place) = self.get_slot(conn).filter(|place| place.value.is_some()) {
            place.value = None;
            self.free_slot(conn);
        }
    }

    fn get_slot(&mut self, conn: Conn) -> Option<&mut TableSlot<T>> {
        self.slots.get_mut(conn.slot()).filter(|place| place.generation == conn.generation)
    }

    fn free_slot(&mut self, conn: Conn) {
        let place = &mut self.slots[conn.slot()];
        if place.generation < LAST_GENERATION {
            place.generation += 1;
            self.free.push(conn.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conn_is_never_handed_out_again() {
        let mut table = Table::new(1);
        let first = table.insert('a').expect("room");
        assert_eq!(table.insert('b'), Err('b'), "the limit holds");
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('c').expect("room again");
        assert_eq!(first.slot(), second.slot());
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(second), Some(&mut 'c'));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.room(), 0);
    }

    #[test]
    fn a_slot_out_of_generations_is_not_used_again() {
        let mut table = Table::new(2);
        let first = table.insert(1).expect("room");
        table.slots[0].generation = LAST_GENERATION;
        let worn = Conn { generation: LAST_GENERATION, ..first };
        assert_eq!(table.remove(worn), Some(1));
        assert_eq!(table.insert(2).map(|c| c.slot), Ok(1));
        assert!(table.is_full());
    }
}
