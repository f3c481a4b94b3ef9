//! A line as it is typed: `100mbit,26ms,loss=1%`, or by a name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::conditions::ConditionsError;
use crate::netbox::{NetBox, NetboxBuilder};
use crate::values::{self, ParseValueError};

/// A line between client and server: the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LineShape {
    /// Bits per second in each direction, Ethernet headers included.
    pub rate: Option<u64>,
    /// What the line adds to a round trip; half of it in each direction.
    pub round_trip: Duration,
    /// The probability that a packet is lost, in each direction, 0 to 1.
    pub loss: f64,
}

/// Networks by name.
pub const NAMED: [(&str, LineShape); 3] = [
    ("telecom", LineShape { rate: Some(100_000_000), round_trip: Duration::ZERO, loss: 0.0 }),
    ("lan", LineShape { rate: None, round_trip: Duration::from_micros(1900), loss: 0.0 }),
    ("regions", LineShape { rate: None, round_trip: Duration::from_millis(26), loss: 0.0 }),
];

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseShapeError {
    /// One of its parts is neither a rate nor a time nor a share.
    #[error(
        "{part:?}: {why}; a line is a rate, a round trip and a loss, as in 100mbit,26ms,loss=1%, or a name: \
         telecom (100mbit), lan (1.9ms), regions (26ms)"
    )]
    Part {
        /// The part.
        part: String,
        /// What is wrong with it.
        why: String,
    },
    /// One of its values is impossible.
    #[error(transparent)]
    Conditions(#[from] ConditionsError),
}

impl FromStr for LineShape {
    type Err = ParseShapeError;

    fn from_str(text: &str) -> Result<LineShape, ParseShapeError> {
        let mut line = LineShape::default();
        for part in text.split(',') {
            let wrong = |why: &dyn fmt::Display| ParseShapeError::Part {
                part: part.to_owned(),
                why: why.to_string(),
            };
            if let Some((_, named)) = NAMED.iter().find(|(name, _)| *name == part) {
                line = *named;
            } else if let Some(share) = part.strip_prefix("loss=") {
                line.loss = values::probability(share).map_err(|e| wrong(&e))?;
            } else if part.ends_with("bit") {
                line.rate = Some(values::rate(part).map_err(|e| wrong(&e))?);
            } else {
                let not = |_: ParseValueError| wrong(&"that is no part of a line");
                line.round_trip = values::time(part).map_err(not)?;
            }
        }
        line.builder().check()?;
        Ok(line)
    }
}

impl LineShape {
    /// A box with these conditions.
    pub fn builder(&self) -> NetboxBuilder {
        let builder = NetBox::builder().delay(self.round_trip / 2).loss(self.loss);
        self.rate.map_or(builder.clone(), |rate| builder.rate(rate))
    }
}

/// In words, for a person: "100 Mbit/s, 26 ms round trip, 1 % lost each way".
impl fmt::Display for LineShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(rate) = self.rate {
            let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
            let (per, unit) =
                units.into_iter().find(|(per, _)| rate as f64 >= *per).unwrap_or((1.0, "bit/s"));
            parts.push(format!("{} {unit}", rate as f64 / per));
        }
        if !self.round_trip.is_zero() {
            parts.push(format!("{} ms round trip", self.round_trip.as_nanos() as f64 / 1e6));
        }
        if self.loss > 0.0 {
            parts.push(format!("{} % lost each way", (self.loss * 1e4).round() / 100.0));
        }
        if parts.is_empty() {
            return f.write_str("no delay and no loss");
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_their_lines() {
        for (text, said) in [
            ("100mbit,26ms,loss=1%", "100 Mbit/s, 26 ms round trip, 1 % lost each way"),
            ("loss=0.1%,1gbit", "1 Gbit/s, 0.1 % lost each way"),
            ("telecom", "100 Mbit/s"),
            ("lan", "1.9 ms round trip"),
            ("regions,loss=2%", "26 ms round trip, 2 % lost each way"),
            ("telecom,5ms", "100 Mbit/s, 5 ms round trip"),
            ("0ms", "no delay and no loss"),
        ] {
            assert_eq!(text.parse::<LineShape>().map(|line| line.to_string()), Ok(said.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("", "no part of a line"),
            ("100", "\"100\": that is no part of a line; a line is a rate"),
            ("fastbit", "\"fastbit\": a rate is a number"),
            ("26ms,loss=101%", "\"loss=101%\": a share is from 0% to 100%"),
            ("26ms,", "\"\": that is no part"),
            ("10bit", "at least 1000 bit/s"),
            ("200s", "at most 60 s"),
        ] {
            let error = text.parse::<LineShape>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
