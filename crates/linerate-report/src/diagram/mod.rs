//! Sequence diagrams of calls: two lanes, what went from one to the other and when, and the pauses.
//! Plain data, drawn for a terminal ([`to_text`]) and as SVG ([`to_svg`]).

mod svg;
mod terminal;

pub use svg::{to_svg, to_svgs};
pub use terminal::{beside, to_text};

/// Something between a client and a server, over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagram {
    /// The heading above the diagram.
    pub title: String,
    /// Names of the two lanes.
    pub lanes: [String; 2],
    /// In order of time.
    pub rows: Vec<DiagramRow>,
}

impl Diagram {
    /// With at most about `most` rows: arrows in the middle are counted instead, trouble and long
    /// pauses stay.
    #[must_use]
    pub fn shortened(mut self, most: usize) -> Diagram {
        let rows = self.rows.len();
        if rows <= most {
            return self;
        }
        let edge = most / 3;
        let mut spared = most.saturating_sub(2 * edge);
        let mut kept: Vec<DiagramRow> = Vec::with_capacity(most + 1);
        for (i, row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            let telling = match &row {
                DiagramRow::Arrow(arrow) => arrow.bad,
                DiagramRow::Pause { .. } => true,
                DiagramRow::LeftOut(_) => false,
            };
            let inside = (edge..rows - edge).contains(&i);
            if inside && !(telling && spared > 0) {
                let n = match row {
                    DiagramRow::Arrow(_) => 1,
                    DiagramRow::Pause { .. } => 0,
                    DiagramRow::LeftOut(n) => n,
                };
                match kept.last_mut() {
                    Some(DiagramRow::LeftOut(sum)) => *sum += n,
                    _ => kept.push(DiagramRow::LeftOut(n)),
                }
                continue;
            }
            spared -= usize::from(inside);
            kept.push(row);
        }
        Diagram { rows: kept, ..self }
    }
}

/// A row of it.
#[derive(Clone, Debug, PartialEq)]
pub enum DiagramRow {
    /// Something that was sent.
    Arrow(Arrow),
    /// Nothing was sent for that long.
    Pause {
        /// How long, milliseconds.
        ms: f64,
        /// The cause, if it is known.
        why: String,
        /// It is what the call is slow by.
        bad: bool,
    },
    /// Arrows that are not shown: their number.
    LeftOut(u64),
}

/// Something that was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrow {
    /// When, milliseconds from the start.
    pub at_ms: f64,
    /// From the client (the left lane) to the server.
    pub to_server: bool,
    /// Flags and bytes of the segment.
    pub label: String,
    /// Marks such as "retransmission".
    pub notes: Vec<String>,
    /// It is trouble.
    pub bad: bool,
}

/// Both renderings need the same words for a time.
fn time(ms: f64, unicode: bool) -> String {
    if ms == 0.0 { "0".to_owned() } else { crate::units::time_us(ms * 1e3, unicode) }
}

/// The text beside a row, without its time.
fn words(arrow: &Arrow) -> String {
    match arrow.notes.is_empty() {
        true => arrow.label.clone(),
        false => format!("{} [{}]", arrow.label, arrow.notes.join(", ")),
    }
}

#[cfg(test)]
mod tests;
