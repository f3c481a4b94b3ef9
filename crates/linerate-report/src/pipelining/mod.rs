//! Whether pipelining pays at a server, and what would: as text, as a document and as a page.

mod page;

use crate::json::text_of;
use crate::schema::outcome::Environment;
use crate::schema::pipelining::{PipelineWay, PipelineWayName, PipeliningDocument, SCHEMA};
use crate::style::{Style, clean};
use crate::units;

pub use page::to_string as page;

/// From this factor on a way pays.
const PAYS: f64 = 1.5;
/// Below this share of what as many connections give, requests of a pipeline are served one after
/// another.
const ONE_BY_ONE: f64 = 0.5;
/// Share of failed requests from which on a way does not work.
const FAILS: f64 = 0.05;

/// What was measured at a server.
#[derive(Clone, Debug)]
pub struct PipeliningFigures {
    /// The URL.
    pub target: String,
    /// When it began (RFC 3339, UTC).
    pub started_at: String,
    /// The field `Via` of a response.
    pub proxy: Option<String>,
    /// Whether responses come in the order of their requests; `None`: not told.
    pub in_order: Option<bool>,
    /// All four ways.
    pub ways: Vec<PipelineWay>,
    /// Where it happened.
    pub environment: Environment,
}

impl PipelineWay {
    /// Its rate, where its requests get good responses.
    fn good_rate(&self) -> Option<f64> {
        self.rate_rps.filter(|_| self.failed_share < FAILS)
    }

    fn in_words(&self) -> String {
        match self.name {
            PipelineWayName::Alone => "one request at a time".to_owned(),
            PipelineWayName::Pipelined => format!("{} in flight on one connection", self.in_flight),
            PipelineWayName::Connections => {
                units::several(self.connections.into(), "connection", "connections")
            }
            PipelineWayName::Http2 => format!("HTTP/2, {} streams on one connection", self.in_flight),
        }
    }
}

impl PipeliningFigures {
    fn way(&self, name: PipelineWayName) -> Option<&PipelineWay> {
        self.ways.iter().find(|way| way.name == name)
    }

    fn rate(&self, name: PipelineWayName) -> f64 {
        self.way(name).and_then(|way| way.rate_rps).unwrap_or(0.0)
    }

    fn works(&self) -> bool {
        let answered = self.way(PipelineWayName::Pipelined).and_then(PipelineWay::good_rate).is_some();
        answered && self.in_order != Some(false)
    }

    fn pays(&self) -> bool {
        self.works() && self.rate(PipelineWayName::Pipelined) >= PAYS * self.rate(PipelineWayName::Alone)
    }

    fn one_after_another(&self) -> bool {
        self.rate(PipelineWayName::Pipelined) < ONE_BY_ONE * self.rate(PipelineWayName::Connections)
    }

    /// The best way that is not pipelining, where it beats it.
    fn cure(&self) -> Option<&PipelineWay> {
        let others = [PipelineWayName::Connections, PipelineWayName::Http2];
        let good = others.iter().filter_map(|name| self.way(*name)).filter(|way| way.good_rate().is_some());
        let best = good.max_by(|a, b| a.rate_rps.unwrap_or(0.0).total_cmp(&b.rate_rps.unwrap_or(0.0)))?;
        let pipelined = if self.works() { self.rate(PipelineWayName::Pipelined) } else { 0.0 };
        let least = self.rate(PipelineWayName::Alone).max(pipelined);
        (best.rate_rps? >= PAYS * least).then_some(best)
    }

    /// In sentences, the most important first.
    fn words(&self) -> Vec<String> {
        let rate = |r: f64| format!("{}/s", units::rate(r));
        let of = |name| rate(self.rate(name));
        let pipelined = self.way(PipelineWayName::Pipelined);
        let depth = pipelined.map_or(0, |way| way.in_flight);
        let mut words = Vec::new();
        words.push(if self.works() {
            let verb = if self.pays() { "pays" } else { "does not pay" };
            format!(
                "Pipelining {verb} here: {depth} requests in flight on one connection give {}, one at a time {} ({:.1} times as many).",
                of(PipelineWayName::Pipelined),
                of(PipelineWayName::Alone),
                self.rate(PipelineWayName::Pipelined) / self.rate(PipelineWayName::Alone).max(1e-9)
            )
        } else if self.in_order == Some(false) {
            "Pipelining does not work here: answers come in another order than the requests, so a client takes one for another's (RFC \
             9112, section 9.3.2)."
                .to_owned()
        } else {
            format!(
                "Pipelining does not work here: {:.0} % of the requests that were sent without waiting got no good answer.",
                100.0 * pipelined.map_or(0.0, |way| way.failed_share)
            )
        });
        if self.one_after_another() {
            words.push(format!(
                "The requests of a pipeline are served one after another: as many on {depth} connections give {}.",
                of(PipelineWayName::Connections)
            ));
        } else if self.pays() {
            words.push(
                "The requests of a pipeline are served at once, or it spares their round trips.".to_owned(),
            );
        }
        if self.works() && self.in_order == Some(true) {
            words.push("Answers come in the order of the requests.".to_owned());
        }
        if let Some(n) = pipelined.and_then(|way| way.closes_after) {
            words.push(format!(
                "The server closes a connection after {n:.0} answers: what was sent behind them goes out again."
            ));
        }
        if let Some(proxy) = &self.proxy {
            words.push(format!(
                "A proxy answers ({proxy}): proxies serve a pipeline one request after another, whatever the server behind them does."
            ));
        }
        if let Some(best) = self.cure() {
            words.push(format!("What pays: {}, {}.", best.in_words(), of(best.name)));
        }
        words.extend(self.way(PipelineWayName::Http2).map(|way| match (way.rate_rps, &way.not_measured) {
            (Some(got), _) => format!("HTTP/2 with {depth} streams on one connection gives {}.", rate(got)),
            (None, why) => {
                format!("HTTP/2 was not measured: {}.", why.as_deref().unwrap_or("no reason is known"))
            }
        }));
        words
    }
}

/// The verdict on what was measured.
pub fn document(figures: PipeliningFigures) -> PipeliningDocument {
    PipeliningDocument {
        schema: SCHEMA.to_owned(),
        works: figures.works(),
        pays: figures.pays(),
        one_after_another: figures.one_after_another(),
        in_order: figures.in_order,
        cure: figures.cure().map(|way| way.name),
        summary: figures.words(),
        target: figures.target,
        started_at: Some(figures.started_at),
        proxy: figures.proxy,
        ways: figures.ways,
        environment: figures.environment,
    }
}

/// The document as indented JSON, with a line end.
pub fn json(document: &PipeliningDocument) -> String {
    text_of(document)
}

/// For a terminal.
pub fn text(document: &PipeliningDocument, style: Style) -> String {
    document.summary.iter().map(|line| format!("{}\n", style.wrapped("", &clean(line)))).collect()
}

#[cfg(test)]
mod tests;
