//! Does what a [`Planner`] asks for, with sockets and the clock. Thin: it decides nothing.

mod answer;
mod behind;
mod counters;
mod crowd;
mod disorder;
mod dns;
mod drops;
mod errors;
mod exchange;
mod find;
mod http;
mod idle;
mod machine;
mod occupancy;
mod packets;
mod process;
mod rate;
mod scattered;
mod socket_owners;
mod streams;
mod talk;
mod view;
mod wire;

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use linerate_http::client::{RequestSpec, StreamTemplate, Template, TemplateError, Values};
use linerate_net::Time;
use linerate_net::instrument::{self, Levers, Probe as Socket, has_delayed_ack_lever};
use linerate_tls::Variant;

use crate::call::{Call, Why};
use crate::causes::seen_in_packets;
use crate::diagnosis::Diagnosis;
use crate::limits;
use crate::packets::Packets;
use crate::planner::Planner;
use crate::probe::{
    CallProbe, Connected, Experiment, HeldCall, Lane, Observation, Probe, Resolved, Together, Variation,
    Writes,
};
use crate::process::ProcessView;
use crate::record::{Record, Settings};
use crate::signs::congestion::FIRST_WINDOW;

use errors::words_of;
use wire::{ProbeWire, Speak};

pub use find::listening_processes;
pub use http::Http;
pub use occupancy::OccupancyWatch;
pub use socket_owners::{OwnedSocket, SocketOwners};
pub use wire::ProbeTls;

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct Request {
    /// Host to be looked up, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// TLS towards it; `None`: plain HTTP.
    pub tls: Option<ProbeTls>,
    /// Which HTTP. That TLS offers as much is its maker's part.
    pub http: Http,
    /// As it is sent.
    pub spec: RequestSpec,
    /// The server behind the proxy that is called, where that is known.
    pub origin: Option<Origin>,
}

/// The same resource without the proxy.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Where it is.
    pub address: SocketAddr,
    /// The value of its `Host` field.
    pub authority: String,
    /// The request's target there.
    pub target: String,
    /// TLS towards it; `None`: plain HTTP.
    pub tls: Option<ProbeTls>,
}

/// The outcome of an explanation.
#[derive(Debug)]
pub enum Explained {
    /// The diagnosis, and the record it was made from.
    Diagnosed(Box<Diagnosis>, Box<Planner>),
    /// The server could not be reached at all: why.
    Unreachable(String),
}

/// Explains a call. `settings` says what may be done; `told` is called with each probe before it is
/// made, and ends it all early by returning `false`.
///
/// ```no_run
/// use linerate_explain::driver::{Explained, Http, explain};
/// use linerate_explain::{Request, Settings};
/// use linerate_http::client::RequestSpec;
///
/// let fields = vec![("Host".to_owned(), "localhost".to_owned())];
/// let spec = RequestSpec { method: "GET".to_owned(), target: "/".to_owned(), fields, ..RequestSpec::default() };
/// let request =
///     Request { host: "localhost".to_owned(), port: 8080, tls: None, http: Http::One, spec, origin: None };
/// let settings = Settings { named: true, may_repeat: true, ..Settings::default() };
/// match explain(&request, settings, |_| true)? {
///     Explained::Diagnosed(diagnosis, _) => {
///         for cause in &diagnosis.causes {
///             println!("{}: {:.1} ms", cause.title(), cause.cost_ms());
///         }
///     }
///     Explained::Unreachable(why) => println!("{why}"),
/// }
/// # Ok::<(), linerate_http::client::TemplateError>(())
/// ```
///
/// # Errors
/// The request is no valid HTTP/1.1 message.
pub fn explain(
    request: &Request,
    mut settings: Settings,
    mut told: impl FnMut(&Probe) -> bool,
) -> Result<Explained, TemplateError> {
    settings.delayed_ack_lever = has_delayed_ack_lever();
    settings.target.clone_from(&request.spec.target);
    settings.body_bytes = request.spec.body.len() as u64;
    settings.tls = request.tls.as_ref().map(ProbeTls::settings);
    settings.expects_continue = says_expect(&request.spec);
    let mut hands = Hands {
        request,
        lanes: HashMap::new(),
        addresses: settings.addresses.clone(),
        chosen: 0,
        end: instrument::now(),
        process: settings.pid.map(process::ProcessCounters::new),
        window: settings.window,
        writes: settings.writes,
        loses: AtomicBool::new(false),
    };
    hands.render(&Variation::None)?;
    if request.http == Http::Two {
        StreamTemplate::compile(&request.spec, &[], request.tls.is_some())?;
    }
    let mut looker = Looker::new(&settings, request.port);
    let mut film = Film::new(settings.capture);
    let (machine, start) = (machine::Clocked::begin(), instrument::now());
    let mut planner = Planner::new(settings);
    hands.end = start + planner.until();
    let mut ended_early = false;
    while let Some(probe) = planner.poll_probe(instrument::now() - start) {
        if !told(&probe) {
            ended_early = true;
            break;
        }
        film.begin(&probe, &hands);
        looker.begin(&probe, &mut hands, &mut planner);
        let observation = hands.make(&probe)?;
        film.made(&observation);
        if let Observation::Resolved(resolved) = &observation
            && hands.addresses.is_empty()
        {
            hands.addresses.clone_from(&resolved.addresses);
        }
        let failed = matches!(&observation, Observation::Resolved(r) if r.addresses.is_empty())
            && hands.addresses.is_empty();
        planner.handle_observation(probe, observation);
        hands.chosen = planner.record().chosen();
        if failed {
            break;
        }
    }
    if let Some(why) = planner.unreachable() {
        return Ok(Explained::Unreachable(why));
    }
    planner.under_pressure(machine.pressure());
    let packets = film.develop(&mut planner);
    let mut diagnosis = planner.diagnose();
    diagnosis.machine = machine.end(diagnosis.machine.waited_share);
    show_packets(packets, &mut diagnosis);
    let left = planner.record().settings.budget.saturating_sub(instrument::now() - start);
    looker.show(
        &mut hands,
        planner.record(),
        &mut diagnosis,
        if ended_early { Duration::ZERO } else { left },
    );
    Ok(Explained::Diagnosed(Box::new(diagnosis), Box::new(planner)))
}

/// Looks at the server's process, where it was named or is found on this machine.
struct Looker {
    port: u16,
    watch: Option<view::ProcessWatch>,
    /// It is to be found, when it is known where calls go.
    wanted: bool,
    found: bool,
    /// The processes that may accept, until calls have shown which of them does.
    holders: Option<find::Holders>,
    /// The outcome, if no single process was found.
    limit: Option<String>,
}

impl Looker {
    fn new(settings: &Settings, port: u16) -> Looker {
        let watch = settings.pid.map(|pid| view::ProcessWatch::new(pid, port));
        let wanted = settings.find_pid && watch.is_none();
        Looker { port, watch, wanted, found: false, holders: None, limit: None }
    }

    /// Before each probe. Only before the first call it is known where calls go, and only after
    /// some it is known which of several processes accepts.
    fn begin(&mut self, probe: &Probe, hands: &mut Hands<'_>, planner: &mut Planner) {
        let to = hands.address(hands.chosen);
        if probe.calls() == 0 {
            return;
        }
        if std::mem::take(&mut self.wanted) && to.ip().is_loopback() {
            let holders = find::Holders::of(to);
            if let Some(pid) = holders.only() {
                self.choose(vec![pid], hands, planner);
            }
            self.holders = Some(holders);
        }
        let enough = planner.record().calls_made() >= limits::CALLS_TO_FIND;
        if enough && self.holders.as_ref().is_some_and(|holders| holders.forks(&hands.open_ends())) {
            planner.forks();
        }
        if enough && let Some(pids) = self.decide(hands) {
            self.choose(pids, hands, planner);
        }
    }

    fn choose(&mut self, pids: Vec<u32>, hands: &mut Hands<'_>, planner: &mut Planner) {
        let Some(pid) = pids.first().copied() else { return };
        self.found = true;
        self.watch = Some(view::ProcessWatch::new(pid, self.port));
        hands.process = Some(process::ProcessCounters::together(pids));
        planner.found(pid);
    }

    /// The processes that accept, if they were not chosen before. Once.
    fn decide(&mut self, hands: &Hands<'_>) -> Option<Vec<u32>> {
        let holders = self.holders.take()?;
        let ours = hands.open_ends();
        if let Some(pid) = holders.only() {
            self.limit = holders.handed_to(&ours).map(|other| {
                format!(
                    "process {pid} accepts, and process {other} has the connection of our calls: --pid {other} looks at that one"
                )
            });
            return None;
        }
        let listed = |pids: &[u32]| {
            let some: Vec<String> = pids.iter().take(8).map(ToString::to_string).collect();
            let more = if pids.len() > 8 { ", ..." } else { "" };
            format!("{}{more}", some.join(", "))
        };
        match holders.found(&ours) {
            find::AcceptingProcess::One(pid) => return Some(vec![pid]),
            find::AcceptingProcess::Several(pids) => {
                self.limit = Some(format!(
                    "{} processes accept there ({}): their threads and their control group are looked at together, files and sockets are \
                     those of the first; --pid PID looks at one of them",
                    pids.len(),
                    listed(&pids)
                ));
                return Some(pids);
            }
            find::AcceptingProcess::Unclear(pids) => {
                self.limit = Some(format!(
                    "{} processes have the listening socket ({}), and it is unclear which of them accepts: --pid PID looks at one of them",
                    pids.len(),
                    listed(&pids)
                ));
            }
            find::AcceptingProcess::Nobody => {}
        }
        None
    }

    /// With nothing to be compared any more it does not matter what looking costs.
    fn show(mut self, hands: &mut Hands<'_>, record: &Record, diagnosis: &mut Diagnosis, left: Duration) {
        if let Some(pid) = self.decide(hands).and_then(|pids| pids.first().copied()) {
            self.found = true;
            self.watch = Some(view::ProcessWatch::new(pid, self.port));
        }
        diagnosis.limits.extend(self.limit);
        let Some(watch) = self.watch else { return };
        let settings = &record.settings;
        let calls = record.calls_allowed().saturating_sub(diagnosis.calls);
        let time = left > 4 * diagnosis.call.total;
        let repeats = settings.may_repeat && time && diagnosis.call.answer().is_some();
        let plain = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
        let probe = CallProbe { writes: settings.writes, ..plain };
        let view = watch.look(if repeats { calls } else { 0 }, || drop(hands.call(&probe)));
        diagnosis.calls += view.calls;
        diagnosis.shown.process = Some(Box::new(ProcessView { found: self.found, ..view }));
    }
}

/// The packets of our calls, if they are wanted and available.
struct Film {
    wanted: bool,
    recorder: Option<packets::Recorder>,
    refused: Option<String>,
}

impl Film {
    fn new(wanted: bool) -> Film {
        Film { wanted, recorder: None, refused: None }
    }

    /// Before the first call: only then it is known where calls go.
    fn begin(&mut self, probe: &Probe, hands: &Hands<'_>) {
        if !self.wanted || probe.calls() == 0 {
            return;
        }
        self.wanted = false;
        match packets::Recorder::open(hands.address(hands.chosen)) {
            Ok(recorder) => self.recorder = Some(recorder),
            Err(e) => self.refused = Some(format!("the packets of our calls were not looked at: {e}")),
        }
    }

    fn made(&mut self, observation: &Observation) {
        let Some(recorder) = &mut self.recorder else { return };
        match observation {
            Observation::Call(call) => recorder.made([&**call]),
            Observation::Burst(calls) | Observation::Rate(calls) => recorder.made(calls),
            Observation::SideBySide(lanes) => recorder.made(lanes.iter().flatten()),
            Observation::Held(held) => recorder.made([&held.call]),
            Observation::Together(rounds) => recorder.made(rounds.iter().flatten()),
            Observation::Scattered(calls) => recorder.made(calls),
            Observation::Behind(seen) => {
                recorder.made(seen.iter().flat_map(|b| b.calls.iter().chain(&b.beside)));
            }
            Observation::Resolved(_)
            | Observation::NameServers(_)
            | Observation::Connected(_)
            | Observation::IdleLimit(_)
            | Observation::IdleSpans(_) => {}
        }
    }

    /// What they show, or why they were not looked at. The planner hears of segments that came late.
    fn develop(self, planner: &mut Planner) -> Result<Option<crate::packets::Seen>, String> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let packets = self.recorder.map(packets::Recorder::finish);
        packets.iter().for_each(|packets| planner.saw_packets(|call| packets.late(call)));
        Ok(packets)
    }
}

/// The packets beside what the calls themselves saw.
fn show_packets(packets: Result<Option<crate::packets::Seen>, String>, diagnosis: &mut Diagnosis) {
    let packets = match packets {
        Ok(Some(packets)) => packets.of(&diagnosis.call, diagnosis.shown.arms.as_deref()),
        Ok(None) => return,
        Err(refused) => return diagnosis.limits.push(refused),
    };
    if packets.dropped > 0 {
        diagnosis.limits.push(format!(
            "{} packets found no room in the capture's ring: what the packets show has holes",
            packets.dropped
        ));
    }
    seen_in_packets(&mut diagnosis.causes, packets.collisions);
    contradicted(diagnosis, &packets);
    diagnosis.shown.packets = Some(Box::new(packets));
}

fn says_expect(spec: &RequestSpec) -> bool {
    spec.fields
        .iter()
        .any(|(n, v)| n.eq_ignore_ascii_case("expect") && v.trim().eq_ignore_ascii_case("100-continue"))
}

/// A cause that the experiments ruled out but the packets show is unclear; this is reported.
fn contradicted(diagnosis: &mut Diagnosis, packets: &Packets) {
    let limits = &mut diagnosis.limits;
    diagnosis.ruled_out.retain(|ruled| {
        let Some(shown) = packets.shown_of(ruled.cause) else { return true };
        limits.push(format!(
            "{}: unclear: the experiments say that it is not ({}), and the packets of our calls show {shown}; a second diagnosis on a \
             quieter machine would tell",
            ruled.cause.id, ruled.why
        ));
        false
    });
}

/// A connection that is kept.
struct KeptConnection {
    wire: ProbeWire,
}

/// Carries out probes.
struct Hands<'a> {
    request: &'a Request,
    lanes: HashMap<u8, KeptConnection>,
    addresses: Vec<SocketAddr>,
    chosen: usize,
    /// When whatever is under way is cut short.
    end: Time,
    process: Option<process::ProcessCounters>,
    /// The HTTP/2 windows that we announce.
    window: u32,
    /// How the user's client writes a request with a body.
    writes: Writes,
    /// Calls lose segments: what this machine drops is looked at.
    loses: AtomicBool,
}

impl Hands<'_> {
    fn make(&mut self, probe: &Probe) -> Result<Observation, TemplateError> {
        Ok(match probe {
            Probe::Resolve => Observation::Resolved(self.resolve()),
            Probe::NameServers => Observation::NameServers(dns::ask_all(&self.request.host, self.left())),
            Probe::Connect(n) => Observation::Connected(self.connect_only(*n)),
            Probe::Call(call) => {
                std::thread::sleep(call.pause.min(self.left()));
                Observation::Call(Box::new(self.call(call)?))
            }
            Probe::Burst(n) => Observation::Burst(self.burst(*n)?),
            Probe::Rate(n, cut) => Observation::Rate(self.rate(*n, *cut)?),
            Probe::SideBySide(lanes) => Observation::SideBySide(self.side_by_side(lanes)?),
            Probe::Held(n, time) => Observation::Held(Box::new(self.held(*n, *time)?)),
            Probe::Together(together) => Observation::Together(self.together(together)?),
            Probe::Scattered(times) => Observation::Scattered(self.scattered(times)?),
            Probe::IdleLimit(time) => Observation::IdleLimit(Box::new(self.idle_limit(*time)?)),
            Probe::IdleSpans(spans) => Observation::IdleSpans(self.idle_spans(spans)?),
            Probe::Behind(probe) => Observation::Behind(self.behind(*probe)?.map(Box::new)),
        })
    }

    /// Time that is left.
    fn left(&self) -> Duration {
        self.end - instrument::now()
    }

    fn resolve(&self) -> Resolved {
        let start = instrument::now();
        let found = self.look_up();
        let took = instrument::now() - start;
        match found {
            Ok(found) => {
                let mut addresses: Vec<SocketAddr> = Vec::new();
                for address in found.filter(|a| a.port() == self.request.port) {
                    if !addresses.contains(&address) && addresses.len() < limits::ADDRESSES {
                        addresses.push(address);
                    }
                }
                let error = match addresses.is_empty() {
                    true => Some(format!("the name {:?} has no address", self.request.host)),
                    false if took >= limits::LOOKUP_TIME => Some("the lookup had not ended".to_owned()),
                    false => None,
                };
                Resolved { took, addresses, error }
            }
            Err(error) => {
                let why = error.to_string();
                let why = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
                let error = Some(format!("the name {:?} has no address: {why}", self.request.host));
                Resolved { took, addresses: Vec::new(), error }
            }
        }
    }

    /// The system's resolver, which cannot be told how long it may take: where the time is over
    /// first, or the name servers have told the addresses by then, it is left to itself.
    fn look_up(&self) -> std::io::Result<std::vec::IntoIter<SocketAddr>> {
        let (host, port) = (self.request.host.clone(), self.request.port);
        let (found, is_found) = mpsc::channel();
        std::thread::spawn(move || found.send((host.as_str(), port).to_socket_addrs()));
        let begun = instrument::now();
        if let Ok(result) = is_found.recv_timeout(limits::LOOKUP_QUICK.min(self.left())) {
            return result;
        }
        let direct = dns::addresses(&self.request.host, self.left());
        if !direct.is_empty() {
            let left = (begun + limits::LOOKUP_TIME) - instrument::now();
            return is_found.recv_timeout(left.min(self.left())).unwrap_or_else(|_| {
                let all: Vec<SocketAddr> = direct.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
                Ok(all.into_iter())
            });
        }
        is_found.recv_timeout(self.left()).unwrap_or_else(|_| {
            Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the name servers did not answer in the time there was (--budget)",
            ))
        })
    }

    /// Our own end of every connection that is open.
    fn open_ends(&self) -> Vec<SocketAddr> {
        self.lanes.values().filter_map(|k| k.wire.look().local()).collect()
    }

    fn address(&self, n: usize) -> SocketAddr {
        self.addresses
            .get(n)
            .or(self.addresses.first())
            .copied()
            .unwrap_or(([127, 0, 0, 1], self.request.port).into())
    }

    fn connect_only(&self, n: usize) -> Connected {
        let address = self.address(n);
        let start = instrument::now();
        match Socket::connect(address, &Levers::default(), self.end.min(start + limits::FAMILY_TIME)) {
            Ok(socket) => Connected {
                address,
                took: socket.connected() - socket.asked(),
                error: None,
                facts: socket.facts(),
            },
            Err(e) => Connected {
                address,
                took: e.at - start,
                error: Some(words_of(&e.error, address)),
                facts: *e.facts,
            },
        }
    }

    /// The request, changed so.
    fn spec(&self, variation: &Variation) -> RequestSpec {
        let mut spec = self.request.spec.clone();
        match variation {
            Variation::None => {}
            Variation::WithoutExpect => spec.fields.retain(|(n, _)| !n.eq_ignore_ascii_case("expect")),
            Variation::Gzip | Variation::Identity => {
                spec.fields.retain(|(n, _)| !n.eq_ignore_ascii_case("accept-encoding"));
                let coding = if *variation == Variation::Gzip { "gzip" } else { "identity" };
                spec.fields.push(("Accept-Encoding".to_owned(), coding.to_owned()));
            }
            Variation::Range(bytes) => {
                spec.fields.retain(|(n, _)| !n.eq_ignore_ascii_case("range"));
                spec.fields.push(("Range".to_owned(), format!("bytes=0-{}", bytes.saturating_sub(1))));
            }
            Variation::Target(target) => spec.target.clone_from(target),
            Variation::Origin => {
                if let Some(origin) = &self.request.origin {
                    spec.target.clone_from(&origin.target);
                    let host = spec.fields.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case("host"));
                    host.into_iter().for_each(|(_, value)| value.clone_from(&origin.authority));
                }
            }
        }
        spec
    }

    /// The field block of a request over HTTP/2; empty where it cannot be sent so.
    fn block(&self, spec: &RequestSpec, https: bool) -> Result<Vec<u8>, TemplateError> {
        if self.request.http == Http::One {
            return Ok(Vec::new());
        }
        let mut block = Vec::new();
        match StreamTemplate::compile(spec, &[], https) {
            Ok(template) => {
                template.render_block(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut block);
                Ok(block)
            }
            Err(_) if self.request.http == Http::Auto => Ok(block),
            Err(error) => Err(error),
        }
    }

    /// The request's bytes, head and body apart.
    fn render(&self, variation: &Variation) -> Result<(Vec<u8>, Vec<u8>), TemplateError> {
        let template = Template::compile(&self.spec(variation), &[])?;
        let mut bytes = Vec::new();
        template.render(&Values { seq: 0, now_ms: 0, seed: 0, row: &[] }, &mut bytes);
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let body = bytes.split_off(end);
        Ok((bytes, body))
    }

    fn plan(&self, probe: &CallProbe) -> Result<exchange::Plan, TemplateError> {
        let (head, body) = self.render(&probe.variation)?;
        let template = Template::compile(&self.request.spec, &[])?;
        let waits = says_expect(&self.request.spec)
            && probe.variation != Variation::WithoutExpect
            && !body.is_empty();
        let origin = self.request.origin.as_ref().filter(|_| probe.variation == Variation::Origin);
        let https = origin.map_or(self.request.tls.is_some(), |o| o.tls.is_some());
        let block = self.block(&self.spec(&probe.variation), https)?;
        Ok(exchange::Plan {
            http: self.request.http,
            block,
            window: probe.window.unwrap_or(self.window),
            head,
            body,
            expect: template.expect(),
            writes: probe.writes,
            waits_for_continue: waits,
            patience: probe.patience,
            packs: probe.experiment == Experiment::Packed,
        })
    }

    fn call(&mut self, probe: &CallProbe) -> Result<Call, TemplateError> {
        let kept = match probe.lane {
            Lane::Kept(lane) => self.lanes.remove(&lane),
            Lane::Fresh => None,
        };
        if self.lanes.len() >= limits::LANES {
            self.lanes.clear();
        }
        let (call, wire) = self.call_on(kept.map(|k| k.wire), probe)?;
        if let (Some(wire), Lane::Kept(lane)) = (wire, probe.lane) {
            self.lanes.insert(lane, KeptConnection { wire });
        }
        Ok(call)
    }

    /// On that connection, or on a new one; the connection comes back when it may carry another
    /// request.
    fn call_on(
        &self,
        kept: Option<ProbeWire>,
        probe: &CallProbe,
    ) -> Result<(Call, Option<ProbeWire>), TemplateError> {
        let plan = self.plan(probe)?;
        let origin = self.request.origin.as_ref().filter(|_| probe.variation == Variation::Origin);
        let to = origin.map_or_else(|| self.address(self.chosen), |o| o.address);
        let tls = origin.map_or(self.request.tls.as_ref(), |o| o.tls.as_ref());
        let speak = tls.map(|tls| Speak { tls, variant: probe.tls });
        // A connection that the peer has closed by now is none: any client looks before it sends.
        let kept = kept.filter(|k| !k.look().facts().peer_closed());
        let kept = kept.and_then(|mut kept| kept.is_fit().then_some(kept));
        let overflows = exchange::overflows(to);
        let before = self.process.as_ref().map(process::ProcessCounters::look);
        let drops = self.loses.load(Ordering::Relaxed).then(drops::Drops::now);
        let stalled = machine::stalled();
        let starved = exchange::waited_here();
        let (mut call, wire) = match kept {
            Some(kept) => exchange::again(kept, &plan, self.end),
            None => std::thread::scope(|scope| {
                let watcher = crowd::CrowdWatcher::begin(scope, to);
                let anew = |levers: &Levers| exchange::anew(to, levers, speak, &plan, self.end);
                let stamped = self.stamped(probe).map(|levers| anew(&levers));
                // A kernel without stamps does without.
                let lacks = |call: &Call| call.failure().is_some_and(|f| f.why == Why::NoLever);
                let (mut call, wire) =
                    stamped.filter(|(call, _)| !lacks(call)).unwrap_or_else(|| anew(&probe.levers));
                call.crowd = watcher.and_then(crowd::CrowdWatcher::end);
                (call, wire)
            }),
        };
        call.starved = exchange::waited_here().saturating_sub(starved);
        call.contended = stalled.and_then(|before| Some(machine::stalled()?.saturating_sub(before)));
        self.loses.fetch_or(call.lossy(), Ordering::Relaxed);
        call.drops_here = drops.map(|before| drops::Drops::now().since(&before));
        if call.answer().is_some_and(|a| a.endless) {
            // The rest of an endless response is not part of the call, nor are waits for a processor during it.
            (call.starved, call.contended) = (Duration::ZERO, None);
        }
        call.overflows = exchange::overflows(to).saturating_sub(overflows);
        call.queue_full = call.overflows > 0 && exchange::queue_full(to);
        if let (Some(process), Some(before)) = (&self.process, before) {
            call.server = Some(Box::new(process.look().since(&before)));
        }
        Ok((call, wire.filter(|_| !probe.closes)))
    }

    /// With stamps of when the end of a large request leaves; `None`: it is small, or has them anyway.
    fn stamped(&self, probe: &CallProbe) -> Option<Levers> {
        let large = self.request.spec.body.len() as u64 >= FIRST_WINDOW;
        (large && !probe.levers.stamps).then_some(Levers { stamps: true, ..probe.levers })
    }

    /// TLS as an ordinary client speaks it with the server that is called.
    fn speak(&self) -> Option<Speak<'_>> {
        self.request.tls.as_ref().map(|tls| Speak { tls, variant: Variant::Usual })
    }

    /// Each connection on a thread of its own. All are opened for it and closed after it.
    fn side_by_side(&self, lanes: &[Vec<CallProbe>]) -> Result<Vec<Vec<Call>>, TemplateError> {
        let one = |probes: &[CallProbe]| {
            let (mut calls, mut kept) = (Vec::with_capacity(probes.len()), None);
            for probe in probes {
                std::thread::sleep(probe.pause.min(self.left()));
                let (call, wire) = self.call_on(kept.take(), probe)?;
                calls.push(call);
                kept = wire;
            }
            Ok(calls)
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = lanes.iter().map(|probes| scope.spawn(move || one(probes))).collect();
            all.into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    /// On a new connection, beside `n` idle ones and none of those that were kept.
    fn held(&mut self, n: u8, time: Duration) -> Result<HeldCall, TemplateError> {
        self.lanes.clear();
        let plan = self.plan(&CallProbe::plain(Experiment::Held, 0, Lane::Fresh))?;
        let to = self.address(self.chosen);
        let deadline = self.end.min(instrument::now() + limits::FAMILY_TIME);
        let idle: Vec<Socket> = std::thread::scope(|scope| {
            let open = || Socket::connect(to, &Levers::default(), deadline).ok();
            let all: Vec<_> = (0..n).map(|_| scope.spawn(open)).collect();
            all.into_iter().filter_map(|t| t.join().ok().flatten()).collect()
        });
        let held = u8::try_from(idle.len()).unwrap_or(n);
        if held > 0 {
            std::thread::sleep(limits::TAKEN_UP.min(self.left()));
        }
        let start = instrument::now();
        // A call with no response soon after the idle connections are gone was not waiting for them.
        let until = self.end.min(start + time + limits::HOLD_TIME);
        let (ended, end) = mpsc::channel::<()>();
        Ok(std::thread::scope(|scope| {
            let releasing = scope.spawn(move || {
                let over = end.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
                drop(idle);
                over.then(|| instrument::now() - start)
            });
            let (call, _) = exchange::anew(to, &Levers::default(), self.speak(), &plan, until);
            drop(ended);
            HeldCall { idle: held, released: releasing.join().ok().flatten(), call }
        }))
    }

    /// Calls at once on connections of HTTP/2, which are opened for it.
    fn together(&self, wanted: &Together) -> Result<Vec<Vec<Call>>, TemplateError> {
        let probe = CallProbe::plain(wanted.experiment, wanted.arm, Lane::Fresh);
        let plan = self.plan(&probe)?;
        let to = self.address(self.chosen);
        let opened = std::thread::scope(|scope| {
            let open = || exchange::anew(to, &Levers::default(), self.speak(), &plan, self.end).1;
            let all: Vec<_> = (0..wanted.connections).map(|_| scope.spawn(open)).collect();
            all.into_iter().map(|t| t.join().ok().flatten()).collect::<Option<Vec<ProbeWire>>>()
        });
        let wires = opened.filter(|wires| wires.iter().all(ProbeWire::is_streamed)).unwrap_or_default();
        Ok(streams::rounds(wires, &plan, (wanted.calls, wanted.rounds), self.end))
    }

    /// All at once, each on a connection of its own.
    fn burst(&self, n: u8) -> Result<Vec<Call>, TemplateError> {
        let probe = CallProbe::plain(Experiment::Burst, 0, Lane::Fresh);
        let plan = self.plan(&probe)?;
        let to = self.address(self.chosen);
        let overflows = exchange::overflows(to);
        let pid = self.process.as_ref().map(process::ProcessCounters::pid);
        let ours: HashSet<SocketAddr> = self.open_ends().into_iter().collect();
        let others = machine::others(to, pid, &ours);
        let mut calls: Vec<(Time, Call)> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..n)
                .map(|_| {
                    scope.spawn(|| {
                        let starved = exchange::waited_here();
                        let (mut call, _) =
                            exchange::anew(to, &Levers::default(), self.speak(), &plan, self.end);
                        call.starved = exchange::waited_here().saturating_sub(starved);
                        (instrument::now(), call)
                    })
                })
                .collect();
            all.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        calls.sort_by_key(|(ended, _)| *ended);
        let mut calls: Vec<Call> = calls.into_iter().map(|(_, call)| call).collect();
        if let Some(first) = calls.first_mut() {
            first.others = others;
            first.overflows = exchange::overflows(to).saturating_sub(overflows);
            first.queue_full = first.overflows > 0 && exchange::queue_full(to);
        }
        Ok(calls)
    }
}
