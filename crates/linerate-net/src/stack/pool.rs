//! Buffered bytes, in blocks that all connections of a stack share. A connection has a chain of
//! blocks only while it has bytes.

use std::ops::Range;

use crate::outbox::LentTable;

/// Bytes of a block. Reason: two full Ethernet segments; most requests and responses need one
/// block.
pub(crate) const BLOCK: usize = 4096;
/// Free blocks that are always kept; beyond them, as many as are in use. Reason: a steady load
/// allocates nothing, and the memory of a peak is freed. These are 16 MiB.
const SPARE_BLOCKS: usize = 4096;
/// Of the free bytes, a connection may buffer one in this many. Reason: of 1 GiB, 15,000 that take
/// nothing may have 64 KiB each, and those that come then less and less.
const SHARES: usize = 512;
/// One byte in this many is kept for connections that move. Reason: a new one needs some at once.
const RESERVED: usize = 64;
const NONE: u32 = u32::MAX;

struct Node {
    next: u32,
    /// The lent buffer, or `NONE` if the bytes are in `memory`.
    lent: u32,
    start: usize,
    len: u32,
    memory: Box<[u8]>,
}

/// A queue of bytes.
#[derive(Debug)]
pub(crate) struct Chain {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { head: NONE, tail: NONE, len: 0 }
    }
}

impl Chain {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A position in a chain to continue reading from: a node, and how many bytes precede it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    node: u32,
    before: u32,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { node: NONE, before: 0 }
    }
}

impl Cursor {
    /// Adjusts it after `n` bytes were removed from the front of the chain.
    pub(crate) fn consumed(&mut self, n: usize) {
        // If its node may be gone, the cursor restarts.
        match self.before.checked_sub(n as u32) {
            Some(before) if self.node != NONE => self.before = before,
            _ => *self = Cursor::default(),
        }
    }
}

/// No block is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// All blocks.
pub(crate) struct BlockPool {
    nodes: Vec<Node>,
    /// Free nodes with memory, and free nodes without.
    blocks: Vec<u32>,
    bare: Vec<u32>,
    /// Number of blocks allocated, and their limit.
    made: usize,
    limit: usize,
    /// Cost of bytes received out of order, including those that are in no block.
    early: usize,
}

impl BlockPool {
    /// `bytes`: the limit of all blocks together.
    pub(crate) fn new(bytes: usize) -> BlockPool {
        BlockPool {
            nodes: Vec::new(),
            blocks: Vec::new(),
            bare: Vec::new(),
            made: 0,
            limit: bytes.div_ceil(BLOCK),
            early: 0,
        }
    }

    /// Memory held by bytes received out of order.
    pub(crate) fn early(&self) -> usize {
        self.early
    }

    pub(super) fn charge_early(&mut self, cost: usize) {
        self.early += cost;
    }

    pub(super) fn discharge_early(&mut self, cost: usize) {
        self.early -= cost;
    }

    /// Bytes of the blocks that connections hold.
    pub(crate) fn bytes_in_use(&self) -> usize {
        (self.made - self.blocks.len()) * BLOCK
    }

    /// Number of blocks in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.nodes.len() - self.blocks.len() - self.bare.len()
    }

    fn room(&self) -> usize {
        (self.blocks.len() + self.limit - self.made).saturating_mul(BLOCK)
    }

    /// The most that one connection may buffer now. The more is in use, the less each may have, so
    /// that some always stays free for new connections.
    pub(crate) fn share(&self) -> usize {
        (self.room() / SHARES).max(BLOCK)
    }

    /// Whether this many bytes certainly fit, beside those that are kept for new connections.
    pub(crate) fn has_room_beyond_reserve(&self, bytes: usize) -> bool {
        self.has_room(bytes.saturating_add(self.limit * BLOCK / RESERVED))
    }

    /// Whether this many bytes certainly fit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.room()
    }

    fn node(&mut self, lent: bool) -> Result<u32, Full> {
        let free = if lent { self.bare.pop() } else { self.blocks.pop() };
        if let Some(free) = free {
            return Ok(free);
        }
        if !lent && self.made >= self.limit {
            return Err(Full);
        }
        let index = if let Some(bare) = self.bare.pop() {
            bare
        } else {
            self.nodes.push(Node { next: NONE, lent: NONE, start: 0, len: 0, memory: Box::default() });
            self.nodes.len() as u32 - 1
        };
        if !lent {
            self.made += 1;
            self.nodes[index as usize].memory = vec![0; BLOCK].into_boxed_slice();
        }
        Ok(index)
    }

    fn free(&mut self, index: u32) {
        if self.nodes[index as usize].memory.is_empty() {
            return self.bare.push(index);
        }
        self.blocks.push(index);
        // Frees two for each one returned, so that fewer are kept in the end than were in use at
        // the peak.
        for _ in 0..2 {
            let in_use = self.made - self.blocks.len();
            if self.blocks.len() <= in_use.max(SPARE_BLOCKS) {
                return;
            }
            let Some(index) = self.blocks.pop() else { return };
            self.nodes[index as usize].memory = Box::default();
            self.made -= 1;
            self.bare.push(index);
        }
    }

    fn link(&mut self, chain: &mut Chain, node: u32) {
        if chain.tail == NONE {
            chain.head = node;
        } else {
            self.nodes[chain.tail as usize].next = node;
        }
        chain.tail = node;
    }

    /// Appends a copy, all or nothing.
    pub(crate) fn append(&mut self, chain: &mut Chain, mut bytes: &[u8]) -> Result<(), Full> {
        if !self.has_room(bytes.len()) {
            return Err(Full);
        }
        chain.len += bytes.len() as u32;
        if chain.tail != NONE {
            let taken = self.fill(chain.tail, bytes);
            bytes = &bytes[taken..];
        }
        while !bytes.is_empty() {
            let index = self.node(false)?;
            let node = &mut self.nodes[index as usize];
            (node.next, node.lent, node.start, node.len) = (NONE, NONE, 0, 0);
            self.link(chain, index);
            let taken = self.fill(index, bytes);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Copies what still fits behind a node's bytes.
    fn fill(&mut self, index: u32, bytes: &[u8]) -> usize {
        let node = &mut self.nodes[index as usize];
        if node.lent != NONE {
            return 0;
        }
        let end = node.start + node.len as usize;
        let taken = bytes.len().min(node.memory.len() - end);
        node.memory[end..end + taken].copy_from_slice(&bytes[..taken]);
        node.len += taken as u32;
        taken
    }

    /// Appends a range of lent bytes without copying it.
    pub(crate) fn append_lent(
        &mut self,
        chain: &mut Chain,
        lent: u32,
        range: Range<usize>,
    ) -> Result<(), Full> {
        if range.is_empty() {
            return Ok(());
        }
        let index = self.node(true)?;
        let node = &mut self.nodes[index as usize];
        (node.next, node.lent, node.start, node.len) = (NONE, lent, range.start, range.len() as u32);
        chain.len += range.len() as u32;
        self.link(chain, index);
        Ok(())
    }

    /// Moves all of `other` to the end of `chain`. Small pieces are copied together, so that many
    /// small segments cannot hold many large blocks.
    pub(crate) fn append_chain(&mut self, chain: &mut Chain, other: &mut Chain) {
        let Chain { head, tail, len } = std::mem::take(other);
        if len == 0 {
            return;
        }
        chain.len += len;
        let mut head = head;
        while chain.tail != NONE && head != NONE {
            let (last, first) = (&self.nodes[chain.tail as usize], &self.nodes[head as usize]);
            let room = last.memory.len().saturating_sub(last.start + last.len as usize);
            if first.len as usize > room || last.lent != NONE || first.lent != NONE {
                break;
            }
            let next = first.next;
            let memory = std::mem::take(&mut self.nodes[head as usize].memory);
            let Node { start, len, .. } = self.nodes[head as usize];
            self.fill(chain.tail, &memory[start..start + len as usize]);
            self.nodes[head as usize].memory = memory;
            self.free(head);
            head = next;
        }
        if head != NONE {
            self.link(chain, head);
            chain.tail = tail;
        }
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, chain: &mut Chain, mut n: usize) {
        debug_assert!(n <= chain.len());
        chain.len -= n as u32;
        while n > 0 {
            let node = &mut self.nodes[chain.head as usize];
            let len = node.len as usize;
            if n < len {
                node.start += n;
                node.len -= n as u32;
                return;
            }
            n -= len;
            let gone = chain.head;
            chain.head = node.next;
            self.free(gone);
        }
        if chain.len == 0 {
            *chain = Chain::default();
        }
    }

    /// A copy of all bytes, none of which may be lent.
    pub(super) fn to_vec(&self, chain: &Chain) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(chain.len());
        let mut at = chain.head;
        while bytes.len() < chain.len() {
            let Some(node) = self.nodes.get(at as usize) else { break };
            bytes.extend_from_slice(&node.memory[node.start..node.start + node.len as usize]);
            at = node.next;
        }
        bytes
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self, chain: &mut Chain) {
        let mut node = chain.head;
        while node != NONE {
            let next = self.nodes[node as usize].next;
            self.free(node);
            if node == chain.tail {
                break;
            }
            node = next;
        }
        *chain = Chain::default();
    }

    /// Copies bytes from `offset` on into `out`; the chain must have them. `cursor` remembers the
    /// position for the next call.
    pub(crate) fn copy(
        &self,
        chain: &Chain,
        lent: &LentTable,
        cursor: &mut Cursor,
        offset: usize,
        mut out: &mut [u8],
    ) {
        debug_assert!(offset + out.len() <= chain.len());
        if cursor.node == NONE || offset < cursor.before as usize {
            *cursor = Cursor { node: chain.head, before: 0 };
        }
        let mut at = offset;
        while !out.is_empty() {
            let Some(node) = self.nodes.get(cursor.node as usize) else { return };
            let within = at - cursor.before as usize;
            if within >= node.len as usize {
                *cursor = Cursor { node: node.next, before: cursor.before + node.len };
                continue;
            }
            let bytes = match node.lent {
                NONE => &node.memory[node.start..node.start + node.len as usize],
                lent_index => lent.bytes(lent_index, &(node.start..node.start + node.len as usize)),
            };
            let taken = out.len().min(bytes.len() - within);
            let (now, later) = out.split_at_mut(taken);
            now.copy_from_slice(&bytes[within..within + taken]);
            out = later;
            at += taken;
        }
    }

    /// Lends up to `most` bytes, block by block, and drops them; at least one block.
    pub(crate) fn take(&mut self, chain: &mut Chain, most: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        let mut taken = 0;
        while chain.head != NONE && (taken == 0 || taken < most) {
            let index = chain.head;
            let node = &mut self.nodes[index as usize];
            let len = node.len as usize;
            take(&mut node.memory[node.start..node.start + len]);
            taken += len;
            chain.len -= len as u32;
            chain.head = if index == chain.tail { NONE } else { node.next };
            self.free(index);
        }
        if chain.head == NONE {
            *chain = Chain::default();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A chain is a queue of bytes under any sequence of calls, and its blocks are freed.
        #[test]
        fn a_chain_is_a_queue(steps in prop::collection::vec((0u8..5, 0usize..9000), 0..60)) {
            let mut table = LentTable::default();
            let source: Arc<[u8]> = (0..9000u32).map(|i| ((i * 7) >> 3) as u8).collect();
            let lent = table.add(source.clone());
            let mut pool = BlockPool::new(1 << 20);
            let (mut chain, mut model, mut cursor) = (Chain::default(), Vec::new(), Cursor::default());
            for (what, n) in steps {
                match what {
                    0 => if pool.append(&mut chain, &source[..n]).is_ok() { model.extend_from_slice(&source[..n]) },
                    1 => {
                        pool.append_lent(&mut chain, lent.0, 0..n).expect("bare nodes have no limit");
                        model.extend_from_slice(&source[..n]);
                    }
                    2 => {
                        let n = n.min(chain.len());
                        pool.consume(&mut chain, n);
                        cursor.consumed(n);
                        model.drain(..n);
                    }
                    3 => {
                        let mut other = Chain::default();
                        if pool.append(&mut other, &source[n / 2..n]).is_ok() {
                            pool.append_chain(&mut chain, &mut other);
                            model.extend_from_slice(&source[n / 2..n]);
                        }
                    }
                    _ => {
                        let from = n.min(chain.len());
                        let mut out = vec![0; (chain.len() - from).min(3000)];
                        pool.copy(&chain, &table, &mut cursor, from, &mut out);
                        prop_assert_eq!(&out[..], &model[from..from + out.len()]);
                    }
                }
                prop_assert_eq!(chain.len(), model.len());
            }
            let mut all = vec![0; chain.len()];
            pool.copy(&chain, &table, &mut Cursor::default(), 0, &mut all);
            prop_assert_eq!(all, model);
            pool.clear(&mut chain);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn the_limit_holds_and_nothing_is_half_done() {
        let mut pool = BlockPool::new(2 * BLOCK);
        let mut chain = Chain::default();
        assert_eq!(pool.append(&mut chain, &[1; BLOCK + 1]), Ok(()));
        assert_eq!(pool.append(&mut chain, &[2; BLOCK]), Err(Full));
        assert_eq!(chain.len(), BLOCK + 1);
        pool.take(&mut chain, usize::MAX, |piece| assert!(piece.iter().all(|b| *b == 1)));
        assert_eq!(pool.append(&mut chain, &[3; 2 * BLOCK]), Ok(()));
    }

    #[test]
    fn what_a_moment_needed_is_given_back() {
        let many = 4 * SPARE_BLOCKS;
        let mut pool = BlockPool::new(many * BLOCK);
        let mut chain = Chain::default();
        for _ in 0..2 {
            assert_eq!(pool.append(&mut chain, &vec![1; many * BLOCK]), Ok(()));
            assert_eq!((pool.made, pool.in_use(), pool.append(&mut chain, b"x")), (many, many, Err(Full)));
            pool.clear(&mut chain);
            assert_eq!((pool.made, pool.in_use()), (SPARE_BLOCKS, 0));
            assert!(pool.has_room(many * BLOCK) && !pool.has_room(many * BLOCK + 1));
        }
        assert_eq!(pool.nodes.len(), many);
    }

    /// A peer that sends single bytes out of order cannot make us hold a block for each.
    #[test]
    fn small_pieces_are_put_together() {
        let mut pool = BlockPool::new(1 << 20);
        let mut chain = Chain::default();
        for _ in 0..200 {
            let mut other = Chain::default();
            pool.append(&mut other, b"x").expect("room");
            pool.append_chain(&mut chain, &mut other);
        }
        assert_eq!((chain.len(), pool.in_use()), (200, 1));
    }
}
