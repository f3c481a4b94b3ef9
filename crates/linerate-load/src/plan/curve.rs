//! The integral of a rate and its inverse: which request is due when.
//!
//! A rate is pieces of straight lines, so its integral is pieces of parabolas. Arrivals are
//! half-open: request `k` is due at the moment at which the integral begins to exceed `k`, so
//! `100@10s` makes 1000 requests, the first at 0 and the last at 9.99 s, and a pause makes none.

use super::rate::Rate;

const NANOS: f64 = 1e9;

/// Whole parts of a request per second that constant rates are counted in where that is exact:
/// decimal rates such as 33.3 are then met without the error of their binary form.
const PARTS: u64 = 1_000_000;

/// A constant rate as a fraction: `parts / per` requests/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction {
    pub(super) parts: u64,
    pub(super) per: u128,
}

impl Fraction {
    /// A positive rate, exactly; `None` for zero.
    pub(super) fn of(rate: f64) -> Option<Fraction> {
        if rate.is_nan() || rate <= 0.0 || rate > 1e12 {
            return None;
        }
        let parts = (rate * PARTS as f64).round();
        if parts >= 1.0 && (parts / PARTS as f64 - rate).abs() <= rate * f64::EPSILON {
            return Some(Fraction { parts: parts as u64, per: u128::from(PARTS) });
        }
        let bits = rate.to_bits();
        let exponent = i32::try_from(bits >> 52).ok()? - 1075;
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        // A rate up to 1e12 that is not a whole number of millionths has bits after the point.
        let shift = u32::try_from(-exponent).ok()?;
        Some(Fraction {
            parts: mantissa,
            per: 1_u128.checked_shl(shift).filter(|per| *per > 0 && shift < 100)?,
        })
    }

    /// Time after which `count` requests have become due, nanoseconds, rounded down.
    fn ns_of(self, count: u64) -> Option<u64> {
        let nanos =
            u128::from(count).checked_mul(1_000_000_000)?.checked_mul(self.per)? / u128::from(self.parts);
        Some(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A straight line of the rate.
#[derive(Clone, Debug)]
struct RatePiece {
    from: f64,
    to: f64,
    seconds: f64,
    start_ns: u64,
    end_ns: u64,
    start_count: f64,
    end_count: f64,
    /// Set where the rate is constant.
    fraction: Option<Fraction>,
}

/// A rate made ready for many questions.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pieces: Vec<RatePiece>,
}

impl Curve {
    pub(super) fn new(rate: &Rate) -> Curve {
        let mut pieces: Vec<RatePiece> = Vec::with_capacity(rate.steps.len());
        let (mut start_ns, mut start_count) = (0_u64, 0.0_f64);
        for step in &rate.steps {
            let seconds = step.lasts.map_or(f64::INFINITY, |d| d.as_secs_f64());
            let lasts_ns = step.lasts.map_or(u64::MAX, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
            let grows = match step.lasts {
                Some(_) => (step.from + step.to) / 2.0 * seconds,
                None if step.from > 0.0 => f64::INFINITY,
                None => 0.0,
            };
            let end_ns = start_ns.saturating_add(lasts_ns);
            let end_count = whole_if_nearly(start_count + grows);
            let fraction = if step.from == step.to { Fraction::of(step.from) } else { None };
            let (from, to) = (step.from, step.to);
            pieces.push(RatePiece { from, to, seconds, start_ns, end_ns, start_count, end_count, fraction });
            (start_ns, start_count) = (end_ns, end_count);
        }
        Curve { pieces }
    }

    /// The fraction, when the rate is one constant that never ends.
    pub(super) fn only_constant(&self) -> Option<Fraction> {
        match self.pieces.as_slice() {
            [only] if only.end_count.is_infinite() => only.fraction,
            _ => None,
        }
    }

    pub(super) fn total(&self) -> Option<f64> {
        self.pieces.last().map(|p| p.end_count).filter(|n| n.is_finite())
    }

    pub(super) fn due_ns(&self, k: u64) -> Option<u64> {
        let piece = self.piece_of(k as f64)?;
        let start = piece.start_count;
        if let Some(fraction) = piece.fraction
            && start.fract() == 0.0
            && let Some(into) = fraction.ns_of(k.saturating_sub(start as u64))
        {
            return Some(piece.start_ns.saturating_add(into).min(piece.end_ns));
        }
        Some(piece.due_ns(k as f64 - start))
    }

    pub(super) fn due_ns_at(&self, cumulative: f64) -> Option<u64> {
        let piece = self.piece_of(cumulative)?;
        Some(piece.due_ns(cumulative - piece.start_count))
    }

    /// How many requests are due before `ns`.
    pub(super) fn due_before(&self, ns: u64) -> u64 {
        // No rate is above one request a nanosecond, so that many can be due at most.
        let (mut due, mut not_due) = (0, ns.saturating_add(1));
        while due < not_due {
            let middle = due + (not_due - due) / 2;
            match self.due_ns(middle) {
                Some(at) if at < ns => due = middle + 1,
                _ => not_due = middle,
            }
        }
        due
    }

    /// The piece in which the integral begins to exceed `count`.
    fn piece_of(&self, count: f64) -> Option<&RatePiece> {
        self.pieces.get(self.pieces.partition_point(|p| p.end_count <= count))
    }
}

impl RatePiece {
    /// When `count` requests have become due since its start.
    fn due_ns(&self, count: f64) -> u64 {
        let count = count.max(0.0);
        let seconds = if self.from == self.to {
            count / self.from
        } else {
            let slope = (self.to - self.from) / self.seconds;
            if slope > 0.0 {
                rise(self.from, slope, count)
            } else {
                // From its end backwards it rises: near a rate of zero the other direction would
                // lose digits.
                self.seconds - rise(self.to, -slope, self.end_count - self.start_count - count)
            }
        };
        // The cast saturates, and takes what is not a number for 0.
        self.start_ns.saturating_add((seconds * NANOS) as u64).min(self.end_ns)
    }
}

/// Seconds until `count` requests have become due at a rate that starts with `from` and rises by
/// `slope` a second: the root of `from * t + slope / 2 * t^2 = count`, in the form that does not
/// subtract nearly equal numbers.
fn rise(from: f64, slope: f64, count: f64) -> f64 {
    let count = count.max(0.0);
    if count == 0.0 {
        return 0.0;
    }
    2.0 * count / (from + (from * from + 2.0 * slope * count).sqrt())
}

/// Sums of decimal rates times durations miss whole numbers by a few last bits; a request more or
/// less would show.
fn whole_if_nearly(count: f64) -> f64 {
    let whole = count.round();
    if (count - whole).abs() <= whole.max(1.0) * 1e-12 { whole } else { count }
}
