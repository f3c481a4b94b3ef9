//! Sequence numbers.

use std::ops::{Add, AddAssign, Sub};

/// A sequence number. They wrap, and are compared within half of their range (RFC 9293 section
/// 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seq(pub(crate) u32);

impl Seq {
    /// Before `other`.
    pub(crate) fn lt(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Before or equal to `other`.
    pub(crate) fn le(self, other: Seq) -> bool {
        !other.lt(self)
    }

    /// Behind `other`.
    pub(crate) fn gt(self, other: Seq) -> bool {
        other.lt(self)
    }

    /// Behind or equal to `other`.
    pub(crate) fn ge(self, other: Seq) -> bool {
        !self.lt(other)
    }

    pub(crate) fn max(self, other: Seq) -> Seq {
        if self.lt(other) { other } else { self }
    }

    pub(crate) fn min(self, other: Seq) -> Seq {
        if self.lt(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    fn sub(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }
}

/// How far `self` is after `earlier`; the caller knows that it is.
impl Sub<Seq> for Seq {
    type Output = u32;
    fn sub(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}
