//! `--watch URL`: the page that a server has for Prometheus, read beside the run.

use std::io;
use std::time::{Instant, SystemTime};

use linerate_explain::occupancy::{LoadFigures, OccupancyTable, judge};
use linerate_load::Outcome;
use linerate_load::plan::tls::TargetTls;
use linerate_report::load_page;
use linerate_report::schema::concurrency::ServerConcurrency;
use linerate_report::schema::outcome as schema;

use super::beside::{Look, Looking, SECOND, for_each_request, round, rounded};
use super::exchange::{PATIENCE, Peer, Secure};
use super::exposition::{Tally, parse};
use super::target::Url;
use crate::fault::{CommandFault, said};

/// The page's address.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
    secure: Option<Secure>,
}

impl Endpoint {
    /// From `--watch`. Without a path it is `/metrics`. `tls`: how the run itself speaks TLS, if it
    /// does; the page is read with the same trust and certificate.
    pub(super) fn parse(text: &str, tls: Option<&TargetTls>) -> Result<Endpoint, CommandFault> {
        let mut url = Url::parse(text)?;
        let refused =
            |why: &str, hint: &str| Err(CommandFault::input(format!("--watch: {why}")).hint(hint.to_owned()));
        if url.user.is_some() {
            return refused("the URL must not contain credentials", "name a page that needs none");
        }
        if url.path == "/" {
            "/metrics".clone_into(&mut url.path);
        }
        let secure = url.is_https().then(|| {
            let options = tls.map_or_else(|| TargetTls::towards(url.host()).options(), TargetTls::options);
            let options = options.map_err(|e| CommandFault::input(format!("--watch: {e}")))?;
            Secure::towards("--watch", &url, &options)
        });
        let secure = secure.transpose()?;
        Ok(Endpoint { url, secure })
    }

    /// Reads it once a second until [`Watching::finish`].
    pub(super) fn watch(self, from: SystemTime) -> Result<Watching, CommandFault> {
        let name = self.url.shown();
        let now = Instant::now();
        let peer = Peer::new(&self.url, self.secure.clone());
        let pages = RunPages { endpoint: self, peer, begun: now, next: now, seen: ServedPages::default() };
        Ok(Watching { looking: Looking::start("watch", from, pages)?, name })
    }

    /// The page.
    fn read(&self, peer: &mut Peer) -> io::Result<String> {
        // HTTP/1.0: the end of the connection is that of the page, and nothing is chunked.
        let head = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain;version=0.0.4\r\nUser-Agent: linerate\r\n\
             Connection: close\r\n\r\n",
            self.url.path, self.url.authority
        );
        let page = peer.exchange(&[head.as_bytes()], Instant::now() + PATIENCE)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

/// What the pages said.
#[derive(Debug, Default)]
struct ServedPages {
    tally: Tally,
    looks: u32,
    failed: u32,
    /// The last failure.
    why: String,
}

/// The pages of a run, one each second.
#[derive(Debug)]
struct RunPages {
    endpoint: Endpoint,
    peer: Peer,
    begun: Instant,
    next: Instant,
    seen: ServedPages,
}

impl Look for RunPages {
    fn begin(&mut self) -> Instant {
        self.begun = Instant::now();
        self.next = self.begun;
        self.next
    }

    fn look(&mut self, is_last: bool) -> Instant {
        self.next = (self.next + SECOND).max(Instant::now());
        let seen = &mut self.seen;
        seen.looks += 1;
        match self.endpoint.read(&mut self.peer) {
            Ok(page) => seen.tally.add(self.begun.elapsed().as_secs_f64(), parse(&page), is_last),
            Err(e) => {
                seen.failed += 1;
                seen.why = said(&e);
            }
        }
        self.next
    }
}

/// A page that is being read.
#[derive(Debug)]
pub(super) struct Watching {
    looking: Looking<RunPages>,
    name: String,
}

impl Watching {
    /// Ends it, and says what the server used; what is not known is a warning.
    pub(super) fn finish(self, outcome: &mut Outcome) -> Option<schema::Server> {
        let ServedPages { tally, looks, failed, why } =
            self.looking.finish().map(|pages| pages.seen).unwrap_or_default();
        let name = self.name;
        if failed > 0 {
            outcome.warnings.push(format!("--watch {name}: {failed} of {looks} reads failed: {why}"));
        }
        if tally.lacks_cpu() {
            let lacks = "the page has no process_cpu_seconds_total, so the server's CPU time is not known";
            outcome.warnings.push(format!("--watch {name}: {lacks}"));
        }
        if tally.cpu_s.is_none() && tally.rss.is_none() {
            return None;
        }
        let answered = outcome.arrived;
        Some(schema::Server {
            pid: None,
            name,
            processes: 0,
            cpu_s: tally.cpu_s.map(round),
            cpu_us_per_request: tally.cpu_s.and_then(|cpu| for_each_request(cpu, answered)),
            useful_share: None,
            context_switches: tally.switches.map(|n| n as u64),
            run_queue_wait_s: None,
            rss_mb: tally.rss.map(|bytes| round(bytes / 1e6)),
            concurrency: tally.cpu_s.map(|cpu| by_cpu(cpu, outcome)),
            series: rounded(&tally.series),
        })
    }
}

/// What CPU time alone says of the server's limit.
fn by_cpu(cpu_s: f64, outcome: &Outcome) -> ServerConcurrency {
    let latency = &outcome.latency.from_sent;
    let run = LoadFigures {
        seconds: outcome.duration.as_secs_f64(),
        answered: outcome.arrived,
        latency_s: (latency.count() > 0).then(|| latency.mean_ns() / 1e9),
        cpu_s,
        ..LoadFigures::default()
    };
    let table = OccupancyTable::default();
    load_page::concurrency(&table, &run, judge(&table, &run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_path_need_not_be_written() {
        let shown = |text| Endpoint::parse(text, None).map(|endpoint| endpoint.url.shown());
        assert_eq!(shown("http://h:9090").unwrap(), "http://h:9090/metrics");
        assert_eq!(shown("http://h/actuator/prometheus").unwrap(), "http://h/actuator/prometheus");
        assert_eq!(shown("https://h:9090").unwrap(), "https://h:9090/metrics");
        assert!(shown("http://a:b@h/metrics").is_err());
    }
}
