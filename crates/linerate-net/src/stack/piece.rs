//! A range of bytes received out of order, and its memory cost.

use super::pool::{BLOCK, BlockPool, Chain, Full};

/// A range up to this size has memory of its own size, a larger one has blocks. Reason: a full
/// segment fills much of a block, but a single byte must not hold one.
const SMALL: usize = 512;

/// Cost of a range besides its bytes: its entry in the list, which may be half empty, and the
/// allocator's overhead.
const OVERHEAD: usize = 128;

enum Bytes {
    Small(Vec<u8>),
    Blocks(Chain),
}

/// Contiguous bytes, charged with the memory that they hold, not with their number (Linux calls it
/// truesize). End it by [`ChargedBytes::clear`] or [`ChargedBytes::move_to`].
pub(crate) struct ChargedBytes {
    bytes: Bytes,
    /// Number of blocks it has.
    blocks: u32,
}

impl ChargedBytes {
    pub(crate) fn new(bytes: &[u8], pool: &mut BlockPool) -> Result<ChargedBytes, Full> {
        let mut piece = ChargedBytes { bytes: Bytes::Small(Vec::new()), blocks: 0 };
        if bytes.len() > SMALL {
            piece.bytes = Bytes::Blocks(Chain::default());
            piece.add_blocks(bytes, pool)?;
        } else {
            piece.bytes = Bytes::Small(bytes.to_vec());
        }
        pool.charge_early(piece.cost());
        Ok(piece)
    }

    /// The memory it holds, bytes.
    pub(crate) fn cost(&self) -> usize {
        OVERHEAD
            + match &self.bytes {
                Bytes::Small(bytes) => bytes.capacity(),
                Bytes::Blocks(_) => self.blocks as usize * BLOCK,
            }
    }

    /// Appends to blocks, all or nothing.
    fn add_blocks(&mut self, bytes: &[u8], pool: &mut BlockPool) -> Result<(), Full> {
        let Bytes::Blocks(chain) = &mut self.bytes else { return Ok(()) };
        let before = pool.bytes_in_use();
        pool.append(chain, bytes)?;
        self.blocks += ((pool.bytes_in_use() - before) / BLOCK) as u32;
        Ok(())
    }

    /// Appends a copy, all or nothing.
    pub(crate) fn append(&mut self, more: &[u8], pool: &mut BlockPool) -> Result<(), Full> {
        let before = self.cost();
        match &mut self.bytes {
            Bytes::Small(bytes) if bytes.len() + more.len() <= SMALL => bytes.extend_from_slice(more),
            Bytes::Small(bytes) => {
                let mut both = std::mem::take(bytes);
                let small = both.len();
                both.extend_from_slice(more);
                self.bytes = Bytes::Blocks(Chain::default());
                if let Err(full) = self.add_blocks(&both, pool) {
                    both.truncate(small);
                    both.shrink_to_fit();
                    self.bytes = Bytes::Small(both);
                    return Err(full);
                }
            }
            Bytes::Blocks(_) => self.add_blocks(more, pool)?,
        }
        pool.discharge_early(before);
        pool.charge_early(self.cost());
        Ok(())
    }

    /// Appends all of `other`; returns it if there is no room.
    pub(crate) fn join(&mut self, other: ChargedBytes, pool: &mut BlockPool) -> Result<(), ChargedBytes> {
        if let (Bytes::Blocks(chain), Bytes::Blocks(_)) = (&mut self.bytes, &other.bytes) {
            pool.discharge_early(OVERHEAD + (self.blocks + other.blocks) as usize * BLOCK);
            let before = pool.bytes_in_use();
            let Bytes::Blocks(mut rest) = other.bytes else { return Ok(()) };
            pool.append_chain(chain, &mut rest);
            self.blocks += other.blocks;
            self.blocks -= ((before - pool.bytes_in_use()) / BLOCK) as u32;
            pool.charge_early(self.blocks as usize * BLOCK);
            return Ok(());
        }
        let joined = match &other.bytes {
            Bytes::Small(bytes) => self.append(bytes, pool),
            // A small range before a large one is copied once.
            Bytes::Blocks(chain) => self.append(&pool.to_vec(chain), pool),
        };
        match joined {
            Ok(()) => {
                other.clear(pool);
                Ok(())
            }
            Err(Full) => Err(other),
        }
    }

    /// Moves all but the first `skip` bytes to the end of `inbox`; bytes without room are lost.
    pub(crate) fn move_to(self, skip: usize, inbox: &mut Chain, pool: &mut BlockPool) -> Result<(), Full> {
        pool.discharge_early(self.cost());
        match self.bytes {
            Bytes::Small(bytes) => pool.append(inbox, &bytes[skip.min(bytes.len())..]),
            Bytes::Blocks(mut chain) => {
                pool.consume(&mut chain, skip);
                pool.append_chain(inbox, &mut chain);
                Ok(())
            }
        }
    }

    pub(crate) fn clear(self, pool: &mut BlockPool) {
        pool.discharge_early(self.cost());
        if let Bytes::Blocks(mut chain) = self.bytes {
            pool.clear(&mut chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(piece: ChargedBytes, pool: &mut BlockPool) -> Vec<u8> {
        let mut inbox = Chain::default();
        assert_eq!(piece.move_to(0, &mut inbox, pool), Ok(()));
        let bytes = pool.to_vec(&inbox);
        pool.clear(&mut inbox);
        bytes
    }

    proptest! {
        /// However pieces are joined, no byte is lost, the charge is the sum of the costs, and all
        /// of it is returned.
        #[test]
        fn a_piece_is_a_queue_that_is_charged(
            steps in prop::collection::vec((prop::bool::ANY, 1usize..2000), 1..40),
            skip in 0usize..1,
        ) {
            let source: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
            let mut pool = BlockPool::new(1 << 20);
            let mut at = 1;
            let mut piece = ChargedBytes::new(&source[..1], &mut pool).expect("room");
            for (join, len) in steps {
                let more = &source[at..at + len];
                if join {
                    let other = ChargedBytes::new(more, &mut pool).expect("room");
                    prop_assert_eq!(pool.early(), piece.cost() + other.cost());
                    prop_assert!(piece.join(other, &mut pool).is_ok());
                } else {
                    prop_assert_eq!(piece.append(more, &mut pool), Ok(()));
                }
                at += len;
                prop_assert_eq!(pool.early(), piece.cost());
            }
            let bytes = content(piece, &mut pool);
            prop_assert_eq!(&bytes[skip..], &source[skip..at]);
            prop_assert_eq!((pool.early(), pool.in_use()), (0, 0));
        }
    }

    #[test]
    fn without_room_nothing_changes() {
        let mut pool = BlockPool::new(BLOCK);
        let mut piece = ChargedBytes::new(&[1; SMALL], &mut pool).expect("room");
        let block = ChargedBytes::new(&[2; BLOCK], &mut pool).expect("one block");
        let before = pool.early();
        assert_eq!(piece.append(b"x", &mut pool), Err(Full));
        let block = piece.join(block, &mut pool).expect_err("there is no second block");
        assert_eq!(pool.early(), before);
        block.clear(&mut pool);
        assert_eq!(content(piece, &mut pool), [1; SMALL]);
        assert_eq!((pool.early(), pool.in_use()), (0, 0));
    }
}
