//! What was seen of a way of sending, in words. Each sentence follows from the figures of its row and
//! of the rows before it; none says what a way is supposed to do.

use std::time::Duration;

use linerate_report::units;

/// A share of a core from which on it was the limit.
const BUSY: f64 = 0.85;
/// A share of the time without a core from which on other programs decide a row.
const HELD_UP: f64 = 0.2;
/// Rates that differ by less are alike. Reason: rows run once, one after the other.
const ALIKE: f64 = 1.25;

/// What is known of a way after its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) name: String,
    /// Connections, and requests in flight on each.
    pub(crate) connections: u32,
    /// Requests in flight on each connection.
    pub(crate) depth: u32,
    /// Requests on each connection, where that is limited.
    pub(crate) per_connection: Option<u32>,
    /// Streams of HTTP/2.
    pub(crate) streams: bool,
    /// Threads or tasks that serve one connection each, as baselines do.
    pub(crate) baseline: bool,
    /// Good and bad responses per second.
    pub(crate) rate_rps: f64,
    /// Median latency, microseconds.
    pub(crate) p50_us: f64,
    /// Processor time of both sides for each request, microseconds, as far as it is known.
    pub(crate) cpu_us: [Option<f64>; 2],
    /// Cores that both sides kept busy: 0.5 is half of one.
    pub(crate) cores: [Option<f64>; 2],
    /// The busiest thread of both sides, as a share of a core.
    pub(crate) busiest: [Option<f64>; 2],
    /// Cores that both sides may use together, where they share a machine.
    pub(crate) machine: Option<f64>,
    /// Share of the time in which a side had no core.
    pub(crate) held_up: f64,
    /// Share of requests that failed, are unknown or bad.
    pub(crate) errors: f64,
}

/// What held a way back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// Other programs: the share of the time in which a side had no core.
    Others(f64),
    /// The client's core.
    Client(f64),
    /// The server's core.
    Server(f64),
    /// All cores of the machine that both share.
    Machine,
    /// Nothing was busy: responses were waited for.
    Waiting,
}

impl Seen {
    fn in_flight(&self) -> f64 {
        f64::from(self.connections) * f64::from(self.depth)
    }

    /// Both sides' processor time for each request.
    fn cpu(&self) -> Option<f64> {
        let [client, server] = self.cpu_us;
        Some(client? + server.unwrap_or(0.0))
    }

    /// What held it back.
    pub(crate) fn limit(&self) -> Limit {
        let [client, server] = self.busiest;
        let [client_cores, server_cores] = self.cores;
        let used = client_cores.unwrap_or(0.0) + server_cores.unwrap_or(0.0);
        if self.machine.is_some_and(|cores| used >= BUSY * cores) {
            Limit::Machine
        } else if self.held_up > HELD_UP {
            Limit::Others(self.held_up)
        } else if let Some(busy) = server.filter(|busy| *busy >= BUSY && client.is_none_or(|c| *busy >= c)) {
            Limit::Server(busy)
        } else if let Some(busy) = client.filter(|busy| *busy >= BUSY) {
            Limit::Client(busy)
        } else {
            Limit::Waiting
        }
    }

    /// Whether each connection's responses came as far apart as one request at a time takes.
    pub(crate) fn one_after_another(&self, alone: &Seen) -> bool {
        // With half of its time taken, a pipeline that works still has many times this rate.
        let told = self.held_up <= 0.5;
        let many = self.depth > 1 && alone.rate_rps > 0.0;
        many && told && self.rate_rps / f64::from(self.connections) <= alone.rate_rps * ALIKE
    }
}

/// The sentences about a way. `before` are the rows so far; the first is one request at a time.
pub(crate) fn words(seen: &Seen, before: &[Seen]) -> String {
    if seen.rate_rps <= 0.0 {
        return "No response came.".to_owned();
    }
    let mut said = vec![what(seen, before)];
    said.extend(limit(seen));
    said.extend(better(seen, before));
    said.join(" ")
}

/// The sentences about a row of a scenario, `beside` others to the same server.
pub(crate) fn in_a_group(seen: &Seen, beside: &[Seen]) -> String {
    if seen.rate_rps <= 0.0 {
        return String::new();
    }
    let alone = beside.iter().find(|other| other.in_flight() <= 1.0);
    let in_line = alone.filter(|alone| seen.one_after_another(alone)).map(|alone| in_line(seen, alone));
    let said = in_line.into_iter().chain(limit(seen)).chain(better(seen, beside));
    said.collect::<Vec<_>>().join(" ")
}

/// A pipeline whose responses come one after another.
fn in_line(seen: &Seen, alone: &Seen) -> String {
    let apart = |rate: f64| units::time_us(1e6 / rate, true);
    format!(
        "On each connection the responses came one after another, {} apart; one request at a time has one each {}. \
         {} in flight gained nothing.",
        apart(seen.rate_rps / f64::from(seen.connections)),
        apart(alone.rate_rps),
        seen.depth
    )
}

/// What the way's own idea brought here.
fn what(seen: &Seen, before: &[Seen]) -> String {
    let alone = before.first();
    let apart = |rate: f64| units::time_us(1e6 / rate, true);
    match (alone, seen.per_connection) {
        (None, _) => format!("One request at a time: a response each {}.", apart(seen.rate_rps)),
        (Some(alone), _) if seen.one_after_another(alone) => in_line(seen, alone),
        (_, Some(n)) => of_connections(seen, before, n),
        _ if seen.streams => of_streams(seen, before),
        (Some(alone), None) => {
            // With most of its time taken by others, even a pipeline may gain nothing.
            let gains = seen.rate_rps / f64::from(seen.connections) > alone.rate_rps;
            let how = if seen.depth > 1 && gains {
                "Many requests in a write, many responses in a read".to_owned()
            } else {
                format!("{} at once", units::count(seen.in_flight() as u64))
            };
            format!("{how}: {}{}.", times(seen, alone), cost(seen, kept(before)))
        }
    }
}

/// `12 x the rate of poll`.
fn times(seen: &Seen, other: &Seen) -> String {
    if other.rate_rps <= 0.0 {
        return format!("{}/s, where {} had no response", units::rate(seen.rate_rps), other.name);
    }
    let ratio = seen.rate_rps / other.rate_rps;
    if (1.0 / ALIKE..=ALIKE).contains(&ratio) {
        return format!("about the rate of {}", other.name);
    }
    format!("{} x the rate of {}", units::three_digits(ratio), other.name)
}

/// `, 15.1 µs of CPU a request on both sides (threads 55.6 µs)`.
fn cost(seen: &Seen, beside: Option<&Seen>) -> String {
    let Some(cpu) = seen.cpu() else { return String::new() };
    let sides = if seen.cpu_us[1].is_some() { "both sides" } else { "this side" };
    let other = beside
        .and_then(|b| Some((b, b.cpu().filter(|_| b.cpu_us[1].is_some() == seen.cpu_us[1].is_some())?)));
    let other =
        other.map_or_else(String::new, |(b, cpu)| format!(" ({} {})", b.name, units::time_us(cpu, true)));
    format!(", {} of CPU a request on {sides}{other}", units::time_us(cpu, true))
}

/// The event loop over connections that stay, where it had a response.
fn kept(before: &[Seen]) -> Option<&Seen> {
    let is_kept = |b: &&Seen| b.per_connection.is_none() && b.depth == 1 && !b.baseline;
    before.iter().rev().find(is_kept).filter(|b| b.rate_rps > 0.0)
}

/// Short and mixed connections, beside those that stay.
fn of_connections(seen: &Seen, before: &[Seen], n: u32) -> String {
    let kept = kept(before);
    let shared = if n == 1 {
        "A connection for each request".to_owned()
    } else {
        format!("{n} requests share a connection")
    };
    let Some(kept) = kept else { return format!("{shared}{}.", cost(seen, None)) };
    let ratio = kept.rate_rps / seen.rate_rps;
    let rest = if [seen, kept].iter().any(|row| matches!(row.limit(), Limit::Others(_))) {
        ""
    } else if ratio > ALIKE {
        "; the difference is what opening and closing costs"
    } else if ratio > 1.0 / ALIKE {
        "; what the connection costs hardly shows beside the rest"
    } else {
        "; opening connections cost nothing here"
    };
    format!("{shared}: {}{}{rest}.", times(seen, kept), cost(seen, Some(kept)))
}

/// HTTP/2 beside the pipeline.
fn of_streams(seen: &Seen, before: &[Seen]) -> String {
    let pipe = before.iter().rev().find(|b| b.depth > 1 && !b.streams);
    let Some(pipe) = pipe else { return format!("Streams side by side{}.", cost(seen, None)) };
    let in_line = before.first().is_some_and(|alone| pipe.one_after_another(alone));
    let how = if in_line && seen.rate_rps > pipe.rate_rps * ALIKE {
        "The responses came side by side, each on its stream"
    } else {
        "As many in flight, on streams"
    };
    format!("{how}: {}{}.", times(seen, pipe), cost(seen, Some(pipe)))
}

/// A server that waits `wait` for each response, in `lanes` places at once.
pub(crate) fn waiting(seen: &Seen, wait: Duration, lanes: u32) -> String {
    let most = f64::from(lanes) / wait.as_secs_f64();
    let places = match lanes {
        1 => "One request waits at a time".to_owned(),
        n if f64::from(n) >= seen.in_flight() => format!("All {n} requests wait at once"),
        n => format!("{n} requests wait at once"),
    };
    let mut text = format!("{places}: at most {}/s.", units::rate(most));
    if seen.rate_rps > most * 1.1 {
        text += " More came in this short run, from before it began.";
    } else if seen.rate_rps >= most * 0.7 {
        text += &format!(" It reached {}/s: the wait is the limit.", units::rate(seen.rate_rps));
    } else if let Some(why) = limit(seen) {
        text += &format!(" It reached {}/s. {why}", units::rate(seen.rate_rps));
    }
    text
}

/// Which resource was the limit.
fn limit(seen: &Seen) -> Option<String> {
    let [client, server] = seen.busiest.map(|busy| busy.map(|b| units::percent(b.min(1.0))));
    Some(match seen.limit() {
        Limit::Others(share) => format!(
            "Other programs kept client or server from its core for {} of the time: no more can be said of this row.",
            units::percent(share.min(1.0))
        ),
        Limit::Client(busy) => {
            format!("The limit was this client's core ({} busy).", units::percent(busy.min(1.0)))
        }
        Limit::Server(busy) => {
            format!("The limit was the server's core ({} busy).", units::percent(busy.min(1.0)))
        }
        Limit::Machine => "The limit was the cores: client and server kept all of them busy.".to_owned(),
        Limit::Waiting => {
            let idle = match (client, server) {
                (Some(client), Some(server)) => {
                    format!("No core was the limit (client {client}, server {server} busy)")
                }
                (Some(client), None) => format!("This client's core was not the limit ({client} busy)"),
                _ => return None,
            };
            // All that were in flight waited for their response, as Little's law says.
            let waited = seen.rate_rps * seen.p50_us / 1e6 / seen.in_flight();
            if (0.6..1.6).contains(&waited) {
                format!("{idle}: responses took {}.", units::time_us(seen.p50_us, true))
            } else {
                format!("{idle}.")
            }
        }
    })
}

/// The way that was better, if one was.
fn better(seen: &Seen, before: &[Seen]) -> Option<String> {
    let sound = before.iter().filter(|b| b.errors < 0.01 && !matches!(b.limit(), Limit::Others(_)));
    let best = sound.max_by(|a, b| a.rate_rps.total_cmp(&b.rate_rps))?;
    let ratio = best.rate_rps / seen.rate_rps;
    let known = !matches!(seen.limit(), Limit::Others(_)) && ratio > ALIKE;
    known.then(|| format!("Better here: {}, {} x its rate.", best.name, units::three_digits(ratio)))
}

/// What follows from all rows: the way to take here, and why.
pub(crate) fn conclusion(rows: &[Seen]) -> Option<String> {
    let alone = rows.first()?;
    let sound = || rows.iter().filter(|row| row.errors < 0.01 && row.rate_rps > 0.0);
    let best = sound().max_by(|a, b| a.rate_rps.total_cmp(&b.rate_rps))?;
    let mut text = format!("Fastest here: {}, {}/s", best.name, units::rate(best.rate_rps));
    text += match best.limit() {
        Limit::Others(_) => ", though other programs had its cores.",
        Limit::Client(_) => "; this client's core was the limit, so the server may be faster.",
        Limit::Server(_) => "; the server's core was the limit.",
        Limit::Machine => "; client and server kept all cores busy.",
        Limit::Waiting => "; no core was the limit: more in flight may be faster still.",
    };
    let in_line = rows.iter().find(|row| !row.streams && row.one_after_another(alone));
    if let Some(pipe) = in_line {
        text += &format!(
            " Do not pipeline here: the responses of {} came one after another, as they do behind proxies.",
            pipe.name
        );
        let streams =
            rows.iter().find(|row| row.streams && row.errors < 0.01 && !row.one_after_another(alone));
        text += match streams {
            Some(_) => " HTTP/2 or more connections serve requests side by side.",
            None => " More connections serve requests side by side.",
        };
    }
    Some(text)
}

#[cfg(test)]
mod denied;
#[cfg(test)]
mod tests;
