//! What is on a bus: agents, and runs under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::jetstream::kv;
use tokio::time::Instant;

use crate::bus::{BusError, BusOptions, Changes, ChangesSince, NatsBus, keys};
use crate::document::AgentCard;
use crate::lease;

/// How long the first of the keys may take, and each one after it. Reason: nothing says that there
/// are none.
const KEY_WITHIN: Duration = Duration::from_secs(1);

/// A run under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRun {
    /// Agents that carry it out.
    pub agents: Vec<String>,
    /// Its coordinator, such as "process 17 on eu-1"; `None`: it has none.
    pub coordinator: Option<String>,
}

/// Agents and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The agents, by name.
    pub agents: Vec<AgentCard>,
    /// The runs, by name.
    pub runs: BTreeMap<String, ListedRun>,
}

impl Listing {
    fn add(&mut self, entry: &kv::Entry) {
        if let Some(run) = keys::coordinated(&entry.key) {
            let holder = lease::holder(&entry.value).unwrap_or_else(|| "an unknown process".to_owned());
            self.runs.entry(run.to_owned()).or_default().coordinator = Some(holder);
        } else if let Ok(card) = serde_json::from_slice::<AgentCard>(&entry.value)
            && card.name == entry.key
        {
            if let Some(run) = &card.run {
                self.runs.entry(run.clone()).or_default().agents.push(card.name.clone());
            }
            self.agents.push(card);
        }
    }

    fn sorted(mut self) -> Listing {
        self.agents.sort_by(|a, b| a.name.cmp(&b.name));
        self.runs.values_mut().for_each(|run| run.agents.sort());
        self
    }
}

/// Lists what is there now.
pub async fn list(options: &BusOptions) -> Result<Listing, BusError> {
    let bus = NatsBus::open(options).await?;
    let complaints = bus.complaints.clone();
    complaints.or(list_on(&bus)).await
}

async fn list_on(bus: &NatsBus) -> Result<Listing, BusError> {
    let mut changes =
        Changes::open(&bus.agents, &[">".to_owned()], ChangesSince::Present).await.map_err(BusError::new)?;
    let (mut listing, mut seen) = (Listing::default(), BTreeSet::new());
    while let Some(entry) = changes.next_until(Instant::now() + KEY_WITHIN).await {
        // A key that is renewed meanwhile comes again.
        if entry.operation == kv::Operation::Put && seen.insert(entry.key.clone()) {
            listing.add(&entry);
        }
        if entry.delta == 0 {
            break;
        }
    }
    Ok(listing.sorted())
}

/// Orders the agents of a run to end; an error if there is no such run under way.
pub async fn stop(options: &BusOptions, run: &str) -> Result<(), BusError> {
    let bus = NatsBus::open(options).await?;
    let complaints = bus.complaints.clone();
    let stopping = async {
        let listing = list_on(&bus).await?;
        if !listing.runs.contains_key(run) {
            let known: Vec<&str> = listing.runs.keys().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => "no run is under way".to_owned(),
                false => format!("under way: {}", known.join(", ")),
            };
            return Err(BusError::new(format!("no run {run} is under way on this bus")).hint(hint).input());
        }
        bus.order(&keys::stop(run)).await
    };
    complaints.or(stopping).await
}
