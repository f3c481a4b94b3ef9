//! `--open`: the live page on loopback, as long as the run lasts.

use std::io::{IsTerminal, Write, stderr};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use linerate_load::{Plan, Snapshot, Watcher};
use linerate_report::live_page::{self, Viewer};
use linerate_report::schema::outcome::Document;
use linerate_serve::{Address, Handle, Request, Response, ServerOptions, spawn_boxed};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::beside::{Look, Looking, SECOND};
use super::capture::Counted;
use crate::fault::{CommandFault, said};

/// Pages that are kept up to date. Reason: each costs work on the machine that measures.
const VIEWERS: usize = 8;
/// Events that wait for a page. Reason: one that does not read is left behind, and catches up later.
const EVENTS: usize = 4;
/// How long pages have at the end to take the report.
const DRAIN: Duration = Duration::from_secs(2);

/// A page, and the state that it was last sent.
#[derive(Debug)]
struct LivePage {
    to: Sender<Bytes>,
    told: Viewer,
}

/// The pages that show the run.
#[derive(Clone, Debug, Default)]
struct LivePages(Arc<Mutex<Vec<LivePage>>>);

impl LivePages {
    fn lock(&self) -> MutexGuard<'_, Vec<LivePage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, unless there are too many.
    fn join(&self) -> Option<Receiver<Bytes>> {
        let mut pages = self.lock();
        pages.retain(|page| !page.to.is_closed());
        if pages.len() >= VIEWERS {
            return None;
        }
        let (to, events) = channel(EVENTS);
        pages.push(LivePage { to, told: Viewer::default() });
        Some(events)
    }

    /// Tells each what it does not know yet.
    fn tell(&self, snapshot: &Snapshot) {
        let mut pages = self.lock();
        pages.retain(|page| !page.to.is_closed());
        for page in pages.iter_mut() {
            if let Ok(room) = page.to.try_reserve() {
                room.send(page.told.news(snapshot).into());
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// The page's address.
pub(super) struct Open {
    server: Handle,
    pages: LivePages,
    telling: Option<Looking<Teller>>,
}

/// Tells the pages each second of the run.
struct Teller {
    pages: LivePages,
    watcher: Watcher,
    counted: Option<Counted>,
    next: Instant,
}

impl Look for Teller {
    fn begin(&mut self) -> Instant {
        self.next = Instant::now();
        self.next
    }

    fn look(&mut self, is_last: bool) -> Instant {
        // The report comes instead of the last second.
        if !is_last && !self.pages.is_empty() {
            let mut snapshot = self.watcher.snapshot();
            if let Some(counted) = &self.counted {
                counted.show_in(&mut snapshot);
            }
            self.pages.tell(&snapshot);
        }
        self.next += SECOND;
        self.next
    }
}

/// Listens on loopback, and says where.
pub(super) fn serve(plan: &Plan) -> Result<Open, CommandFault> {
    let pages = LivePages::default();
    let page = Bytes::from(live_page::to_string(&plan.target.url));
    let options = ServerOptions {
        listen: vec![Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())],
        threads: 1,
        drain: DRAIN,
        ..ServerOptions::default()
    };
    let joined = pages.clone();
    let server = spawn_boxed(options, move || {
        let (pages, page) = (joined.clone(), page.clone());
        move |request: Request| {
            let response = respond(&request, &pages, &page);
            async move { response }
        }
    })
    .map_err(|e| CommandFault::ours(format!("--open: no address to listen on: {}", said(&e))))?;
    let url = format!("http://{}/", server.addr());
    let _ = writeln!(stderr(), "live page on {url}");
    browse(&url);
    Ok(Open { server, pages, telling: None })
}

fn respond(request: &Request, pages: &LivePages, page: &Bytes) -> Response {
    // A name that somebody else points to this address shows nothing.
    let host = request.field("host").unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if !["127.0.0.1", "localhost"].contains(&host) {
        return Response::status(421);
    }
    match request.path() {
        "/" => Response::status(200).with_content_type("text/html; charset=utf-8").with_body(page.clone()),
        "/events" => match pages.join() {
            Some(events) => Response::status(200).with_content_type("text/event-stream").with_stream(events),
            None => Response::status(503),
        },
        _ => Response::status(404),
    }
}

/// Shows it in a browser, where somebody looks.
fn browse(url: &str) {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if stderr().is_terminal() && has_screen {
        let mut command = Command::new("xdg-open");
        // Without the program the address is still there to read.
        let _ = command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    }
}

impl Open {
    /// The run has begun.
    pub(super) fn watch(&mut self, watcher: Watcher, counted: Option<Counted>) -> Result<(), CommandFault> {
        let teller = Teller { pages: self.pages.clone(), watcher, counted, next: Instant::now() };
        self.telling = Some(Looking::start("open", SystemTime::now(), teller)?);
        Ok(())
    }

    /// The report takes the page's place, and the address is closed once all pages have it.
    pub(super) fn finish(mut self, document: &Document) {
        // It does not panic; if it did, the report would still follow.
        drop(self.telling.take().map(Looking::finish));
        let mut pages = std::mem::take(&mut *self.pages.lock());
        if !pages.is_empty() {
            let end = Bytes::from(live_page::end(document));
            let begun = Instant::now();
            while !pages.is_empty() && begun.elapsed() < DRAIN {
                pages.retain(|page| page.to.try_send(end.clone()).is_err() && !page.to.is_closed());
                thread::sleep(Duration::from_millis(10));
            }
        }
        drop(pages);
        self.server.stop();
    }
}
