//! The search for the highest rate, or for the most connections, at which a check holds. It neither
//! sends nor reads a clock: it says what to try for how long, and takes the observations. Whatever these
//! comments state of rates holds for connections too.
//!
//! 1. It doubles the rate until the check fails. A rate that fails gets a second chance after a
//!    longer warm-up, because a server may just be scaling out.
//! 2. It halves the interval between the highest rate that held and the lowest that did not, by
//!    short looks, and then looks at the upper end again, for the same reason.
//! 3. It takes long looks where the knee should be. Close to its capacity a server needs seconds to
//!    show what a rate does to it, and pass or fail of one look is chance. What decides is by how
//!    much: the inverse of a latency falls in a straight line towards capacity (Kingman's formula).
//!    So a line through all looks around the knee gives the estimate.

mod share;

use std::time::Duration;

use share::FAR;
pub use share::{RequestShare, ShareSlice};

/// Time for the whole search. Reason: users do not watch for longer than that.
pub const BUDGET: Duration = Duration::from_secs(42);

/// Time of disturbed looks that does not count as the search's own. With it, `BUDGET`, `EXTRA` and the
/// last look, a search ends after 80 s. Reason: on a machine that is always busy no time suffices.
const LOST: Duration = Duration::from_secs(18);

/// More time than that for looks that make an end of the interval certain.
const EXTRA: Duration = Duration::from_secs(10);

/// Time kept back for connections that are opened, and queues that drain.
const RESERVE: Duration = Duration::from_millis(1_500);

/// The lowest rate that is tried, requests per second; the fewest connections.
pub const LEAST_RATE: f64 = 1.0;

/// The interval between a rate that held and one that did not is narrow enough for long looks.
const CLOSE: f64 = 1.2;

/// Times that the upper end is looked at again.
const CONFIRMATIONS: u32 = 3;

/// A rate that failed and holds now means a faster server only if it holds by that score: late
/// requests come in clumps, and a short look may fall between two of them.
const CLEARLY: f64 = 0.5;

/// How far from the knee it looks to be certain: below it that the check holds, above that it fails.
const ASIDE: f64 = 1.035;

/// An end of the interval that is closer to the knee than that is close enough.
const ENOUGH: f64 = 1.045;

/// Closer to the estimate no look is an end of the interval. Close to its capacity a queue moves
/// so slowly that one look may miss what another one of the same rate shows.
const CLOSEST: f64 = 1.025;

/// The same where the client was disturbed. Fewer looks decide then, so chance decides more of them.
const CLOSEST_DISTURBED: f64 = 1.04;

/// So often in a row that must be so.
const FASTER: usize = 2;

/// On a disturbed machine, an interval with ends further apart than that is no answer.
const WIDE: f64 = 1.5;

/// A look shorter than that proves little.
const PROVEN: Duration = Duration::from_millis(1_500);

/// How far outside of the interval the knee may turn out to be: one look that held proves little.
const BEYOND: f64 = 1.12;

/// How far from the knee, as a logarithm of rates, a look still says something about it.
const NEAR: f64 = 0.25;

/// Late requests that the estimate adds to each look at a rate: they come in clumps, and most looks
/// that can hold only a few of them fall between two clumps.
const CLUMP: f64 = 2.0;

/// The score falls at least this fast with the logarithm of the rate: near its capacity, a queue
/// grows faster than the load. Looks that contradict each other would show no slope.
const LEAST_SLOPE: f64 = -2.0;

/// Scores beyond these say no more: far below the limit, and far over it.
const SCORES: [f64; 2] = [-0.7, 0.4];

/// What a load is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadUnit {
    /// Requests per second, of an open loop.
    #[default]
    Rate,
    /// Connections of a closed loop. A `rate` is their number then, which is whole.
    Connections,
}

impl LoadUnit {
    /// A rate as it is; a number of connections made whole.
    fn whole(self, rate: f64, how: fn(f64) -> f64) -> f64 {
        match self {
            LoadUnit::Rate => rate,
            LoadUnit::Connections => how(rate).max(LEAST_RATE),
        }
    }
}

/// The unit, the goal and the limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchSettings {
    /// Of what the highest is looked for.
    pub unit: LoadUnit,
    /// The share of requests that may be over the limit: 0.01 for a p99.
    pub allowed: f64,
    /// The first rate, requests per second.
    pub start: f64,
    /// The highest rate that is tried.
    pub most: f64,
    /// Time for all of it.
    pub budget: Duration,
}

/// A look at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchStep {
    /// Requests per second.
    pub rate: f64,
    /// Time that does not count.
    pub warm_up: Duration,
    /// Time that counts.
    pub lasts: Duration,
    /// It begins with a burst: as many requests more as are due in the time of the limit. Close to
    /// its capacity a server's queue takes longer to fill by itself than a look takes. A queue that
    /// was full drains, if the rate allows it.
    pub burst: bool,
    /// It is not cut short when it is lost: by how much it fails matters.
    pub whole: bool,
}

impl SearchStep {
    /// Whether `over` requests over the limit decide the step of an open loop before its end: whatever
    /// follows, it fails for certain.
    pub fn is_lost(&self, over: u64, allowed: f64) -> bool {
        let planned = self.rate * self.lasts.as_secs_f64();
        let share = if self.whole { 0.3 } else { (1.1 * FAR * allowed).min(0.3) };
        over as f64 > (share * planned).max(2.0)
    }
}

/// Observations at one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateObservation {
    /// Requests that were due, and how many were over the limit, piece by piece.
    pub slices: Vec<ShareSlice>,
    /// How far the check is from failing: the logarithm of the limit over what was measured. It
    /// holds from 0 on.
    pub score: f64,
    /// How long it took, with everything around it.
    pub took: Duration,
    /// Other work took this client's core, or it stood still: what was late may be our own doing.
    pub disturbed: bool,
}

/// What a look says of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The check holds there for certain, over all looks at that rate.
    Holds,
    /// It fails there for certain.
    Fails,
    /// Neither is certain.
    Open,
    /// The client was disturbed, so this look decides nothing.
    Disturbed,
    /// The server became faster afterwards.
    Outdated,
}

/// A look: a rate and what was seen of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchPoint {
    /// Requests per second.
    pub rate: f64,
    /// The share that was over the limit.
    pub share: RequestShare,
    /// How far the check was from failing; it held from 0 on.
    pub score: f64,
    /// How long was looked.
    pub lasted: Duration,
    /// The client was disturbed.
    pub disturbed: bool,
    /// The server became faster afterwards.
    pub outdated: bool,
}

impl SearchPoint {
    fn counts(&self) -> bool {
        !self.disturbed && !self.outdated
    }
}

/// How the search ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchEnd {
    /// The knee: the estimate, and the interval it lies in. At `low` the check holds for certain, at
    /// `high` it fails for certain: the 95 % bound of the share over the limit, over all looks at that
    /// rate, is on that side of the allowed share.
    Knee {
        /// The estimate, requests per second.
        rate: f64,
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// The check fails at this rate already, the lowest that was tried.
    AlwaysFails(f64),
    /// The check holds at this rate still, the highest that was tried.
    NeverFails(f64),
    /// Only looks during which the client was disturbed failed, or there were no others.
    ClientLimit {
        /// The highest rate at which it holds for certain.
        low: Option<f64>,
    },
    /// The time did not suffice to be certain.
    NotMeasured {
        /// The highest rate at which it holds for certain.
        low: Option<f64>,
        /// The lowest rate at which it fails for certain.
        high: Option<f64>,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchNext {
    /// Look at this rate.
    Look(SearchStep),
    /// It is over.
    Done(SearchEnd),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SearchPhase {
    /// Upwards by doubling. A rate that fails gets a second chance, after a longer warm-up.
    Climb {
        rate: f64,
        again: bool,
    },
    /// Downwards, since even the first rate failed.
    Fall {
        rate: f64,
    },
    /// Between two rates.
    Halve {
        rate: f64,
    },
    /// Whether the upper end still fails.
    Confirm,
    /// Long, where the knee should be.
    Settle {
        rate: f64,
    },
    Over,
}

/// The search.
#[derive(Clone, Debug)]
pub struct Search {
    settings: SearchSettings,
    phase: SearchPhase,
    spent: Duration,
    points: Vec<SearchPoint>,
    /// The highest rate that held, and the lowest that did not.
    low: Option<f64>,
    high: Option<f64>,
    confirmations: u32,
    is_confirmed: bool,
    /// How often in a row the upper end held clearly when it was looked at again.
    faster: usize,
    /// Time of looks that were disturbed, which the budget does not count.
    lost: Duration,
}

impl Search {
    /// One that has seen nothing yet.
    pub fn new(settings: SearchSettings) -> Search {
        let rate = settings.unit.whole(settings.start.clamp(LEAST_RATE, settings.most), f64::round);
        Search {
            settings,
            phase: SearchPhase::Climb { rate, again: false },
            spent: Duration::ZERO,
            points: Vec::new(),
            low: None,
            high: None,
            confirmations: 0,
            is_confirmed: false,
            faster: 0,
            lost: Duration::ZERO,
        }
    }

    /// All looks in order of time, and what each says.
    pub fn points(&self) -> impl Iterator<Item = (&SearchPoint, Says)> {
        self.points.iter().map(|point| (point, self.says(point)))
    }

    fn says(&self, point: &SearchPoint) -> Says {
        if point.disturbed {
            return Says::Disturbed;
        }
        if point.outdated {
            return Says::Outdated;
        }
        let share = self.share_at(point.rate);
        match self.settings.allowed {
            allowed if share.is_below(allowed) => Says::Holds,
            allowed if share.is_above(allowed) => Says::Fails,
            _ => Says::Open,
        }
    }

    /// The share over the limit, over all looks at a rate that count.
    fn share_at(&self, rate: f64) -> RequestShare {
        let mut share = RequestShare::default();
        let same = self.points.iter().filter(|p| p.counts() && (p.rate / rate - 1.0).abs() < 1e-3);
        same.for_each(|p| share.add(&p.share));
        share
    }

    /// The highest rate that holds for certain, and the lowest that fails for certain, at some distance
    /// from the knee.
    fn certain_beside(&self, knee: f64, closest: f64) -> (Option<f64>, Option<f64>) {
        let closest = if self.settings.unit == LoadUnit::Rate { closest } else { 1.0 };
        self.certain(knee / closest, knee * closest)
    }

    /// The same up to a rate, and from a rate. Where looks contradict each other, both lie outside of
    /// the contradiction.
    fn certain(&self, most: f64, least: f64) -> (Option<f64>, Option<f64>) {
        let rates = |says: Says| -> Vec<f64> {
            self.points().filter(|(_, s)| *s == says).map(|(p, _)| p.rate).collect()
        };
        let (holds, fails) = (rates(Says::Holds), rates(Says::Fails));
        let least_fail = fails.iter().copied().fold(f64::INFINITY, f64::min);
        let most_hold = holds.iter().copied().fold(0.0, f64::max);
        let low = holds.into_iter().filter(|rate| *rate < least_fail && *rate <= most);
        let high = fails.into_iter().filter(|rate| *rate > most_hold && *rate >= least);
        (low.max_by(f64::total_cmp), high.min_by(f64::total_cmp))
    }

    /// What to do next.
    pub fn next_step(&mut self) -> SearchNext {
        let Some(step) = self.step() else { return SearchNext::Done(self.end()) };
        let left = self.settings.budget.saturating_sub(self.spent + RESERVE);
        if step.warm_up + step.lasts <= left {
            return SearchNext::Look(step);
        }
        // A shorter look is better than none, as long as it holds enough requests.
        let lasts = left.saturating_sub(step.warm_up);
        let proves = step.rate * lasts.as_secs_f64() * self.settings.allowed >= 3.0;
        let enough =
            lasts >= Duration::from_secs(1) && (proves || self.settings.unit == LoadUnit::Connections);
        if enough {
            return SearchNext::Look(SearchStep { lasts, ..step });
        }
        // Both ends must be certain, however far apart.
        let late = self.spent.saturating_sub(self.settings.budget);
        if let Some(rate) = self.uncertain().filter(|_| late < EXTRA) {
            self.phase = SearchPhase::Settle { rate: self.settings.unit.whole(rate, f64::round) };
            if let Some(step) = self.step() {
                return SearchNext::Look(step);
            }
        }
        self.phase = SearchPhase::Over;
        SearchNext::Done(self.end())
    }

    fn step(&self) -> Option<SearchStep> {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        // With this many requests, none over the limit is proof of its own (the rule of three).
        let proof = 3.2 / self.settings.allowed.max(1e-4);
        let is_rate = self.settings.unit == LoadUnit::Rate;
        let step = |rate: f64, warm_up: f64, least: f64, most: f64| SearchStep {
            rate,
            warm_up: seconds(warm_up),
            // A closed loop has its queue full at once, and the number of requests that come of it is unknown.
            lasts: seconds(if is_rate { (proof / rate).clamp(least, most) } else { least }),
            burst: is_rate && warm_up > 0.5,
            whole: false,
        };
        match self.phase {
            SearchPhase::Climb { rate, again: false } => Some(step(rate, 0.1, 0.3, 1.0)),
            SearchPhase::Climb { rate, again: true } => Some(step(rate, 1.0, 0.5, 1.5)),
            SearchPhase::Fall { rate } => Some(step(rate, 0.1, 1.0, 3.0)),
            SearchPhase::Halve { rate } => Some(step(rate, 0.8, 1.5, 3.0)),
            SearchPhase::Confirm => Some(SearchStep { whole: true, ..step(self.high?, 1.0, 1.5, 3.0) }),
            SearchPhase::Settle { rate } => Some(SearchStep { whole: true, ..step(rate, 1.5, 4.0, 4.0) }),
            SearchPhase::Over => None,
        }
    }

    /// Takes the observations at the step that was asked for last.
    pub fn take(&mut self, seen: &RateObservation) {
        let Some(step) = self.step() else { return };
        let (share, disturbed) = (RequestShare::of(&seen.slices), seen.disturbed);
        let (rate, score, lasted) = (step.rate, seen.score, step.lasts);
        let point = SearchPoint { rate, share, score, lasted, disturbed, outdated: false };
        let holds = point.score >= 0.0;
        self.points.push(point.clone());
        let left = LOST.saturating_sub(self.lost);
        let free = if disturbed { seen.took.min(left) } else { Duration::ZERO };
        self.lost += free;
        self.spent += seen.took.saturating_sub(free);
        // What fails while we are disturbed is looked at again: it may be our own doing.
        if disturbed && !holds && !left.is_zero() {
            if self.lost * 3 > self.settings.budget && self.points.iter().all(|p| p.disturbed) {
                // It never had its core so far.
                self.phase = SearchPhase::Over;
            }
            return;
        }
        match self.phase {
            SearchPhase::Climb { rate, again } => self.climbed(rate, again, holds),
            SearchPhase::Fall { rate } => self.fell(rate, holds),
            SearchPhase::Halve { rate } => self.halved(rate, holds),
            // A long look moves the line, and with it the knee.
            SearchPhase::Settle { rate } => {
                if self.high.is_none() && !holds {
                    self.high = Some(rate);
                }
                self.phase = self.settle();
            }
            SearchPhase::Confirm => self.confirmed(&point),
            SearchPhase::Over => {}
        }
    }

    fn climbed(&mut self, rate: f64, again: bool, holds: bool) {
        self.phase = match (holds, again) {
            (true, _) => {
                self.low = Some(rate);
                if rate >= self.settings.most {
                    SearchPhase::Over
                } else {
                    SearchPhase::Climb { rate: (rate * 2.0).min(self.settings.most), again: false }
                }
            }
            (false, false) => SearchPhase::Climb { rate, again: true },
            (false, true) => {
                self.high = Some(rate);
                match self.low {
                    Some(_) => self.between(),
                    None => self.below(rate),
                }
            }
        };
    }

    fn below(&self, rate: f64) -> SearchPhase {
        let lower = self.settings.unit.whole((rate / 4.0).max(LEAST_RATE), f64::floor);
        // Where even requests that all hold would prove nothing in the time that is left, there is
        // nothing to find.
        let left = self.settings.budget.saturating_sub(self.spent + RESERVE).as_secs_f64();
        let proves =
            lower * left * self.settings.allowed >= 3.0 || self.settings.unit == LoadUnit::Connections;
        if rate <= LEAST_RATE || !(proves || self.all_over()) {
            SearchPhase::Over
        } else {
            SearchPhase::Fall { rate: lower }
        }
    }

    /// Nearly every request was over the limit wherever it was looked: that is certain after a few.
    fn all_over(&self) -> bool {
        self.points.iter().filter(|p| p.counts()).all(|p| p.share.value() > 0.9)
    }

    fn fell(&mut self, rate: f64, holds: bool) {
        self.phase = if holds {
            self.low = Some(rate);
            self.between()
        } else {
            self.high = Some(rate);
            self.below(rate)
        };
    }

    /// The next rate between the two ends.
    fn between(&self) -> SearchPhase {
        let (Some(low), Some(high)) = (self.low, self.high) else { return SearchPhase::Over };
        if high / low > CLOSE && !self.are_neighbours(low, high) {
            return SearchPhase::Halve { rate: self.fitting((low * high).sqrt(), low, high) };
        }
        let seen_well = |p: &SearchPoint| {
            p.counts() && p.rate >= low * 0.999 && p.rate <= low * 1.001 && p.lasted >= PROVEN
        };
        if !self.points.iter().any(seen_well) {
            // It held for a moment, which may have been a credit of tokens.
            return SearchPhase::Halve { rate: low };
        }
        if !self.is_confirmed && self.confirmations < CONFIRMATIONS {
            return SearchPhase::Confirm;
        }
        self.settle()
    }

    /// The next long look: where an end of the interval is missing, or else where the knee should be.
    fn settle(&self) -> SearchPhase {
        let (Some(low), Some(high)) = (self.low, self.high) else { return SearchPhase::Over };
        let knee = self.root(low, high, 0.0);
        let (holds, fails) = self.certain_beside(knee, CLOSEST);
        let rate = if holds.is_none_or(|rate| rate * ENOUGH < knee) {
            self.again_at(knee / ASIDE.powi(2), knee / ASIDE.sqrt()).unwrap_or(knee / ASIDE)
        } else if fails.is_none_or(|rate| rate > knee * ENOUGH) {
            self.again_at(knee * ASIDE.sqrt(), knee * ASIDE.powi(2)).unwrap_or(knee * ASIDE)
        } else {
            knee
        };
        SearchPhase::Settle { rate: self.settings.unit.whole(rate, f64::round) }
    }

    /// A rate between two others that was looked at for long and left open: more looks at it may
    /// decide.
    fn again_at(&self, from: f64, to: f64) -> Option<f64> {
        let is_open = |(p, says): &(&SearchPoint, Says)| {
            *says == Says::Open && p.lasted >= PROVEN && (from..=to).contains(&p.rate)
        };
        self.points().filter(is_open).map(|(p, _)| p.rate).last()
    }

    /// The rate of a look that may make an end of the interval certain; `None` where both are. Each look that left it open moves the next one further away.
    fn uncertain(&self) -> Option<f64> {
        let knee = self.estimate().or(self.low.map(|low| low * CLOSE.sqrt()))?;
        let open = |is_aside: &dyn Fn(f64) -> bool| {
            let is_open = |(p, says): &(&SearchPoint, Says)| {
                *says == Says::Open && p.lasted >= PROVEN && is_aside(p.rate)
            };
            1 + self.points().filter(is_open).count() as i32
        };
        match self.certain_beside(knee, CLOSEST) {
            (None, _) => Some(knee / ASIDE.powi(open(&|rate| rate < knee / CLOSEST))),
            (_, None) => Some(knee * ASIDE.powi(open(&|rate| rate > knee * CLOSEST))),
            _ => None,
        }
    }

    /// No number of connections lies between them.
    fn are_neighbours(&self, low: f64, high: f64) -> bool {
        self.settings.unit == LoadUnit::Connections && high - low <= 1.0
    }

    /// A rate between two others, which is whole if it has to be.
    fn fitting(&self, rate: f64, low: f64, high: f64) -> f64 {
        match self.settings.unit {
            LoadUnit::Rate => rate,
            LoadUnit::Connections => rate.round().clamp(low + 1.0, high - 1.0),
        }
    }

    fn halved(&mut self, rate: f64, holds: bool) {
        if holds {
            self.low = Some(rate);
        } else {
            self.high = Some(rate);
            if self.low.is_some_and(|low| low >= rate) {
                let held =
                    self.points.iter().filter(|p| !p.outdated && p.rate < rate * 0.999 && p.score >= 0.0);
                self.low = held.map(|p| p.rate).max_by(f64::total_cmp);
            }
        }
        self.phase = if self.low.is_some() { self.between() } else { self.below(rate) };
    }

    /// The upper end was looked at again. If it holds clearly now, twice, the server is faster now.
    fn confirmed(&mut self, seen: &SearchPoint) {
        if seen.disturbed && seen.score >= 0.0 {
            // It held in spite of that, which is no proof of a faster server.
            self.confirmations += 1;
            self.phase = self.between();
            return;
        }
        if seen.score >= CLEARLY && seen.share.is_below(self.settings.allowed) {
            self.faster += 1;
            if self.faster < FASTER {
                return;
            }
        } else {
            self.faster = 0;
            self.confirmations += 1;
            self.is_confirmed = true;
            self.phase = self.between();
            return;
        }
        // The server is faster now: earlier points no longer describe it.
        self.faster = 0;
        self.confirmations += 1;
        let recent = self.points.len().saturating_sub(FASTER);
        self.points[..recent].iter_mut().for_each(|p| p.outdated = true);
        self.low = Some(seen.rate);
        let higher = self.settings.unit.whole((seen.rate * 1.3).min(self.settings.most), f64::ceil);
        self.high = None;
        self.phase = SearchPhase::Climb { rate: higher, again: true };
    }

    fn end(&self) -> SearchEnd {
        let was_disturbed = self.points.iter().any(|p| p.disturbed && p.score < 0.0);
        let knee = self.estimate();
        let closest = if was_disturbed { CLOSEST_DISTURBED } else { CLOSEST };
        let beside = knee.map_or((None, None), |knee| self.certain_beside(knee, closest));
        // Better an end that is close to the knee than none.
        let (low, high) = self.certain(f64::INFINITY, 0.0);
        match (beside.0.or(low), beside.1.or(high)) {
            // Too wide to be an answer, because we were disturbed.
            (Some(low), Some(high)) if was_disturbed && high > low * WIDE => {
                SearchEnd::ClientLimit { low: Some(low) }
            }
            (Some(low), Some(high)) => {
                let rate = knee.unwrap_or_else(|| (low * high).sqrt()).clamp(low, high);
                SearchEnd::Knee { rate: self.settings.unit.whole(rate, f64::floor), low, high }
            }
            (Some(low), None) if low >= self.settings.most => SearchEnd::NeverFails(low),
            (None, Some(high)) if high <= LEAST_RATE => SearchEnd::AlwaysFails(high),
            (low, None) if was_disturbed => SearchEnd::ClientLimit { low },
            (low, high) => SearchEnd::NotMeasured { low, high },
        }
    }

    /// Where the knee should be; `None` where nothing held, or nothing failed.
    fn estimate(&self) -> Option<f64> {
        let clump = if self.settings.unit == LoadUnit::Rate { CLUMP } else { 0.0 };
        Some(self.root(self.low?, self.high?, clump))
    }

    /// Where the line through the scores around the knee is 0, at most a little outside of the
    /// interval. Each look counts as if it had `clump` late requests more.
    fn root(&self, low: f64, high: f64, clump: f64) -> f64 {
        let centre = (low * high).sqrt();
        let [least, most] = SCORES;
        let (mut sum, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for point in self.points.iter().filter(|p| p.counts()) {
            let off = (point.rate / centre).ln();
            // A look counts by its time, and by how close it is.
            let weight = (1.0 - (off / NEAR).powi(2)).max(0.0) * point.lasted.as_secs_f64();
            let weight = if point.lasted < PROVEN { 0.0 } else { weight };
            let late = point.rate * point.lasted.as_secs_f64() * self.settings.allowed;
            let score = (point.score - clump / late.max(1.0)).clamp(least, most);
            sum += weight;
            x += weight * off;
            y += weight * score;
            xx += weight * off * off;
            xy += weight * off * score;
        }
        let spread = sum * xx - x * x;
        let slope = (sum * xy - x * y) / spread;
        let is_flat = spread <= 1e-12 || slope >= 0.0;
        let slope = match self.settings.unit {
            LoadUnit::Rate if sum > 0.0 && is_flat => LEAST_SLOPE,
            LoadUnit::Rate if sum > 0.0 => slope.min(LEAST_SLOPE),
            // A closed loop's latency grows only as fast as the number of its connections.
            LoadUnit::Connections if !is_flat => slope,
            LoadUnit::Rate | LoadUnit::Connections => return centre,
        };
        let zero = centre * ((x - y / slope) / sum).exp();
        zero.clamp(low / BEYOND, high * BEYOND)
    }
}

#[cfg(test)]
mod tests;
