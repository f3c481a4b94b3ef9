//! A server that runs, and what it becomes when its configuration changes.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_net::machine;
use linerate_serve::{
    AccessLog, Address, Content, Contents, Counts, ExtraFields, FileOptions, FileRoot, Handle, Host,
    HostName, LogTarget, Metrics, Notices, Request, Response, RouteTable, Rule, ServerOptions, ServerTls,
    SharedContent, spawn_boxed, spawn_site,
};

use signal_hook::iterator::Signals;

use super::ServeArgs;
use super::args::{ConfiguredRoute, HostArgs, SiteAddresses, SiteArgs, UsersArgs, within};
use super::config::NoRule;
use super::events::say;
use super::identity::Identity;
use super::options::options;
use super::renew::{self, ServedCertificates};
use super::tls::SiteTls;
use crate::fault::{CommandFault, said};

const DEMO_ROUTES: &str = "/, /bytes/N, /delay/MS, /block/MS, /threads/MS, /compute/N, /echo, /upper, /status/CODE, /stream/N, /stats";

/// How long the end waits for the last lines of the access log beyond --drain. Reason: a disk that
/// stands still must not hold it for ever.
const LOG_PATIENCE: Duration = Duration::from_millis(500);
/// How long scrapes of the metrics are waited for at the end. Reason: they are small, and come
/// again.
const METRICS_DRAIN: Duration = Duration::from_millis(250);

/// The server and its options.
pub(super) struct RunningServer {
    args: ServeArgs,
    threads: usize,
    server: Handle,
    content: SharedContent,
    log: Option<AccessLog>,
    metrics: Option<Handle>,
    tls: Arc<Mutex<ServedCertificates>>,
}

/// What flags and file name, looked at and opened: `--check-config` ends with it, and a server
/// begins with it.
pub(super) struct Prepared {
    identity: Option<Identity>,
    sites: Sites,
    tls: SiteTls,
}

impl Prepared {
    pub(super) fn new(args: &ServeArgs) -> Result<Prepared, CommandFault> {
        let (identity, sites) = (Identity::of(args)?, Sites::open(args)?);
        let tls = SiteTls::of(args, None)?;
        if args.http3 == Some(true) && tls.each().all(|tls| tls.is_none()) {
            return Err(CommandFault::input("--http3 needs TLS, and no address has any")
                .hint("add --tls-cert and --tls-key, or --tls-self-signed"));
        }
        Ok(Prepared { identity, sites, tls })
    }

    /// Certificates that have expired, are not valid yet or end soon.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.tls.warnings()
    }

    /// What each address of `listen` speaks.
    pub(super) fn tls(&self) -> impl Iterator<Item = Option<&ServerTls>> {
        self.tls.each()
    }
}

impl RunningServer {
    pub(super) fn start(args: ServeArgs, prepared: Prepared) -> Result<RunningServer, CommandFault> {
        let Prepared { identity, sites, tls } = prepared;
        let threads = args.threads.unwrap_or_else(|| machine::allowed_cores().len());
        let content = SharedContent::new(sites.at(&args.addresses(), &tls));
        let log = access_log(&args)?;
        let held = identity.is_some();
        let mut options = ServerOptions { access_log: log.clone(), held, ..options(&args, threads) };
        tls.add_to(&mut options, &args);
        let server = spawn_site(options, content.clone()).map_err(|e| cannot_listen(&e))?;
        // The kernel's choice of ports is known now, and not yet announced.
        content.replace(sites.at(&resolved(&args, &server), &tls));
        let metrics = args.metrics.as_ref().map(|at| serve_metrics(at, &server)).transpose()?;
        if let Some(identity) = identity {
            identity.take()?;
            // Nothing was served with more rights.
            server.accept();
        }
        let tls = Arc::new(Mutex::new(ServedCertificates::new(tls)));
        renew::watch(&tls)?;
        Ok(RunningServer { args, threads, server, content, log, metrics, tls })
    }

    /// Becomes what `args` say; all of it, or, with an error, nothing.
    pub(super) fn reload(&mut self, args: ServeArgs) -> Result<(), CommandFault> {
        if self.needs_restart(&args) {
            return Err(CommandFault::input(
                "threads, pin, io, interface, busy_poll, pcap_out, fault, http3, share_port, user, group and misbehave hold until a restart",
            ));
        }
        let (sites, tls) = (Sites::open(&args)?, self.next_tls(&args)?);
        let same_log = args.access_log == self.args.access_log && args.log_format == self.args.log_format;
        let log = if same_log { self.log.clone() } else { access_log(&args)? };
        let same_metrics = args.metrics == self.args.metrics;
        let metrics = match args.metrics.as_ref().filter(|_| !same_metrics) {
            Some(at) => Some(serve_metrics(at, &self.server)?),
            None => None,
        };
        let mut options = ServerOptions { access_log: log.clone(), ..options(&args, self.threads) };
        tls.add_to(&mut options, &args);
        // Clients of a new address must not see what is served to others.
        let before = self.content.get();
        let (mut meanwhile, new) = (before.clone(), sites.at(&args.addresses(), &tls));
        let is_new = |at: &Address| before.places.iter().all(|(known, _)| known != at);
        meanwhile.hosts.extend(new.hosts.into_iter().filter(|host| host.at.as_ref().is_some_and(is_new)));
        meanwhile.places.extend(new.places);
        self.content.replace(meanwhile);
        if let Err(e) = self.server.reload(&options) {
            self.content.replace(before);
            return Err(self.in_the_way(&args).unwrap_or_else(|| cannot_listen(&e)));
        }
        self.content.replace(sites.at(&resolved(&args, &self.server), &tls));
        self.shown().succeed(tls)?;
        self.log = log;
        if same_log {
            self.reopen_log();
        }
        if !same_metrics {
            self.metrics = metrics;
        }
        self.args = args;
        Ok(())
    }

    /// The fault if an old address blocks a new one: old addresses are closed only once the new ones are open.
    fn in_the_way(&self, args: &ServeArgs) -> Option<CommandFault> {
        let share = args.share_port == Some(true);
        let (new, old) = (args.addresses(), self.server.addrs());
        let mut pairs = new.iter().flat_map(|new| old.iter().map(move |old| (new, old)));
        let (new, old) = pairs.find(|(new, old)| !share && within(new, old))?;
        Some(
            CommandFault::ours(format!("cannot listen on {new} while this server listens on {old}"))
                .hint("going from one of them to the other needs a restart"),
        )
    }

    fn needs_restart(&self, args: &ServeArgs) -> bool {
        let threads = args.threads.is_some_and(|n| n != self.threads);
        let io = args.io.unwrap_or_default() != self.args.io.unwrap_or_default();
        let pin = args.pin.unwrap_or(false) != self.args.pin.unwrap_or(false);
        let interface = (&args.interface, args.busy_poll, &args.pcap_out, &args.fault)
            != (&self.args.interface, self.args.busy_poll, &self.args.pcap_out, &self.args.fault);
        let share = args.share_port.unwrap_or(false) != self.args.share_port.unwrap_or(false);
        let http3 = args.http3.unwrap_or(false) != self.args.http3.unwrap_or(false);
        let user = (&args.user, &args.group) != (&self.args.user, &self.args.group);
        threads || io || pin || interface || http3 || share || user || args.misbehave != self.args.misbehave
    }

    /// What addresses are to speak from now on.
    fn next_tls(&self, args: &ServeArgs) -> Result<SiteTls, CommandFault> {
        let shown = self.shown();
        let tls = SiteTls::of(args, Some(shown.tls()))?;
        if tls.needs_restart(shown.tls()) {
            return Err(CommandFault::input("whether an address speaks TLS holds until a restart"));
        }
        Ok(tls)
    }

    fn shown(&self) -> MutexGuard<'_, ServedCertificates> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files of certificates again. One that was made for this run stays.
    pub(super) fn renew_certificates(&self) -> Result<(), CommandFault> {
        self.shown().renew()
    }

    /// The access log is opened anew, after it was renamed.
    pub(super) fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Prints the addresses it listens on, and the content of each.
    pub(super) fn announce(&self) {
        let (addresses, args) = (self.server.addrs(), &self.args);
        for (address, tls) in addresses.iter().zip(self.shown().tls().speaks(args)) {
            say(&listening(address, tls));
        }
        let own: usize = args.places.iter().map(|place| place.listen.len()).sum();
        if addresses.len() > own {
            let has = answers(&args.site(), args.hosts.len());
            say(&format!("answering with {has}"));
        }
        let addresses = resolved(args, &self.server);
        let mut rest = addresses.iter().skip(args.listen.len());
        for place in &args.places {
            let has = answers(&place.site, place.hosts.len());
            let at: Vec<String> = rest.by_ref().take(place.listen.len()).map(ToString::to_string).collect();
            say(&format!("answering at {} with {has}", at.join(", ")));
        }
        if let Some(metrics) = &self.metrics {
            match metrics.addrs() {
                [at @ Address::Unix(_)] => say(&format!("metrics on {at}")),
                _ => say(&format!("metrics on http://{}/metrics", metrics.addr())),
            }
        }
    }

    /// Ends the wait for signals when no thread serves any more.
    /// The flag it raises then.
    pub(super) fn end_with_the_last_thread(
        &mut self,
        signals: &Signals,
    ) -> Result<Arc<AtomicBool>, CommandFault> {
        let (handle, dead) = (signals.handle(), Arc::new(AtomicBool::new(false)));
        let raised = Arc::clone(&dead);
        let end = move || {
            raised.store(true, Ordering::SeqCst);
            handle.close();
        };
        self.server
            .when_dead(end)
            .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?;
        Ok(dead)
    }

    pub(super) fn stop(self) -> Counts {
        let until = Instant::now() + options(&self.args, self.threads).drain + LOG_PATIENCE;
        let counts = self.server.stop();
        if let Some(log) = &self.log {
            log.flush(until.saturating_duration_since(Instant::now()));
            if log.dropped() > 0 {
                say(&format!(
                    "{} lines of the access log were lost: it was written too slowly",
                    log.dropped()
                ));
            }
        }
        counts
    }
}

/// Where the server listens, in the order of [`ServeArgs::addresses`]: ports are chosen.
fn resolved(args: &ServeArgs, server: &Handle) -> Vec<Address> {
    let mut own = server.addrs().iter();
    let addresses = args.addresses().into_iter();
    addresses.filter_map(|at| if args.is_passed(&at) { Some(at) } else { own.next().cloned() }).collect()
}

/// The sites of all addresses. The addresses are added once they are known.
struct Sites {
    usual: OpenSite,
    /// With how many addresses each has.
    places: Vec<(usize, OpenSite)>,
}

/// A site and those of its hosts.
struct OpenSite {
    content: Content,
    hosts: Vec<(Vec<HostName>, Content)>,
    /// Requests by plain HTTP, also to the hosts.
    redirects_to_https: bool,
}

impl OpenSite {
    fn open(site: &SiteArgs, hosts: &[HostArgs]) -> Result<OpenSite, CommandFault> {
        let content =
            |of: &SiteArgs| Ok::<_, CommandFault>(Content { hsts: site.hsts.clone(), ..content(of)? });
        let hosts = hosts.iter().map(|host| Ok((host.names.clone(), content(&host.site)?)));
        Ok(OpenSite {
            content: content(site)?,
            hosts: hosts.collect::<Result<_, CommandFault>>()?,
            redirects_to_https: site.redirect_to_https == Some(true),
        })
    }

    fn content_with(&self, content: &Content, https: Option<u16>) -> Content {
        let redirect_to_https = https.filter(|_| self.redirects_to_https);
        Content { redirect_to_https, ..content.clone() }
    }

    fn hosts_at(&self, at: Option<&Address>, https: Option<u16>) -> impl Iterator<Item = Host> {
        self.hosts.iter().map(move |(names, content)| Host {
            at: at.cloned(),
            names: names.clone(),
            content: self.content_with(content, https),
        })
    }
}

impl Sites {
    fn open(args: &ServeArgs) -> Result<Sites, CommandFault> {
        let usual = OpenSite::open(&args.site(), &args.hosts)?;
        let place = |place: &SiteAddresses| {
            let site = SiteArgs {
                redirect_to_https: place.site.redirect_to_https.or(args.redirect_to_https),
                hsts: place.site.hsts.clone().or_else(|| args.hsts.clone()),
                ..place.site.clone()
            };
            Ok((place.listen.len(), OpenSite::open(&site, &place.hosts)?))
        };
        Ok(Sites { usual, places: args.places.iter().map(place).collect::<Result<_, CommandFault>>()? })
    }

    /// `addresses`: as [`ServeArgs::addresses`] has them, in that order.
    fn at(&self, addresses: &[Address], tls: &SiteTls) -> Contents {
        let https = tls.https_port(addresses);
        let own: usize = self.places.iter().map(|(count, _)| count).sum();
        let mut rest = addresses[addresses.len().saturating_sub(own)..].iter();
        let mut contents = Contents::from(self.usual.content_with(&self.usual.content, https));
        contents.hosts.extend(self.usual.hosts_at(None, https));
        for (count, site) in &self.places {
            for at in rest.by_ref().take(*count) {
                contents.places.push((at.clone(), site.content_with(&site.content, https)));
                contents.hosts.extend(site.hosts_at(Some(at), https));
            }
        }
        contents
    }
}

/// A summary of a site's content.
fn answers(site: &SiteArgs, hosts: usize) -> String {
    let mut all = Vec::new();
    match site.routes.len() {
        0 => {}
        1 => all.push("1 [[route]]".to_owned()),
        n => all.push(format!("{n} [[route]]s")),
    }
    match hosts {
        0 => {}
        1 => all.push("1 [[host]]".to_owned()),
        n => all.push(format!("{n} [[host]]s")),
    }
    all.extend(site.dir.as_ref().map(|dir| format!("the files of {}", dir.display())));
    match (site.demo_routes, all.is_empty()) {
        (true, _) => all.push(format!("the demo routes ({DEMO_ROUTES})")),
        (false, true) => return "404 alone: no dir, no [[route]], and demo_routes is off".to_owned(),
        (false, false) => all.push("no demo routes".to_owned()),
    }
    all.join(", ")
}

fn content(site: &SiteArgs) -> Result<Content, CommandFault> {
    let open = |dir: &Path| {
        FileRoot::open(dir).map_err(|e| {
            let fault = CommandFault::input(format!(
                "the directory {} cannot be served: {}",
                dir.display(),
                said(&e)
            ));
            if e.kind() == io::ErrorKind::Unsupported {
                return fault.hint("files need openat2, which Linux has since 5.6");
            }
            fault
        })
    };
    let defaults = FileOptions::default();
    let gzip = site.gzip.unwrap_or(defaults.gzip);
    let options = FileOptions { list: site.list, try_files: site.try_files.clone(), gzip };
    let root = site.dir.as_deref().map(open).transpose()?.map(|root| root.with_options(options));
    // A route's directory is compressed as the site's is, unless it says otherwise.
    let routes =
        site.routes.iter().map(|route| ConfiguredRoute { gzip: route.gzip.or(site.gzip), ..route.clone() });
    let rules: Result<Vec<Rule>, CommandFault> = routes.map(|route| rule(&route)).collect();
    let table = RouteTable::new(rules?).map_err(|e| CommandFault::input(format!("the routes: {e}")))?;
    let fields = ExtraFields::new(site.headers.clone())
        .map_err(|(i, e)| CommandFault::input(format!("the header {}: {e}", site.headers[i].0)))?;
    let users = site.users.as_ref().map(UsersArgs::read).transpose();
    let users = users.map_err(|why| CommandFault::input(format!("the users: {why}")))?;
    let error_pages = site.error_pages.clone();
    let content =
        Content { root, routes: site.demo_routes, table, fields, error_pages, users, ..Content::default() };
    Ok(content)
}

/// Checked before; only a directory can have gone since.
fn rule(route: &ConfiguredRoute) -> Result<Rule, CommandFault> {
    route.rule().map_err(|e| {
        let why = match e {
            NoRule::Bad(e) => e.to_string(),
            NoRule::Field(e) => e.to_string(),
            NoRule::Users(e) => e,
            NoRule::Dir(e) => format!("its directory cannot be served: {}", said(&e)),
        };
        CommandFault::input(format!("the route {}: {why}", route.prefix))
    })
}

fn access_log(args: &ServeArgs) -> Result<Option<AccessLog>, CommandFault> {
    let Some(place) = &args.access_log else { return Ok(None) };
    let target = if place == "-" { LogTarget::Stdout } else { LogTarget::File(place.into()) };
    AccessLog::open(target, args.log_format.unwrap_or_default(), Notices::default()).map(Some).map_err(|e| {
        CommandFault::input(format!("the access log {place} cannot be written: {}", said(&e)))
            .hint("name a file in a folder that exists, or - for standard output")
    })
}

fn listening(address: &Address, tls: bool) -> String {
    match address {
        Address::Tcp(at) if tls => format!("listening on https://{at}"),
        Address::Tcp(at) => format!("listening on http://{at}"),
        Address::Unix(_) => format!("listening on {address}"),
    }
}

/// The error names the address.
pub(crate) fn cannot_listen(error: &io::Error) -> CommandFault {
    if let Some(error) = error.get_ref().and_then(|e| e.downcast_ref::<linerate_net::link::xdp::XdpError>()) {
        return error.into();
    }
    let text = said(error);
    let fault = CommandFault::ours(format!("cannot listen on {text}"));
    match error.kind() {
        io::ErrorKind::AddrInUse if text.starts_with("unix:") => {
            fault.hint("a server listens there; ss -lxp names it")
        }
        io::ErrorKind::AddrInUse => {
            fault.hint("another program listens there; port 0 picks a free one").hint("ss -ltnp names it")
        }
        io::ErrorKind::PermissionDenied => {
            fault.hint("ports below 1024 need root or CAP_NET_BIND_SERVICE; 8080 does not")
        }
        io::ErrorKind::AddrNotAvailable => {
            fault.hint("this machine has no such address; 0.0.0.0 and [::] stand for all it has")
        }
        _ => fault,
    }
}

fn serve_metrics(at: &Address, server: &Handle) -> Result<Handle, CommandFault> {
    let (counter, metrics, live) = (server.counter(), server.metrics(), server.live_stats());
    let options = ServerOptions {
        listen: vec![at.clone()],
        threads: 1,
        drain: METRICS_DRAIN,
        ..ServerOptions::default()
    };
    spawn_boxed(options, move || {
        let (counter, metrics, live) = (counter.clone(), metrics.clone(), live.clone());
        move |request: Request| {
            let answer = match request.path() {
                "/metrics" | "/" => {
                    Some(Response::text(metrics.to_prometheus()).with_content_type(Metrics::CONTENT_TYPE))
                }
                "/stats" => Some(Response::json(counter().to_json())),
                _ => None,
            };
            let live = live.clone();
            async move {
                match answer {
                    Some(answer) => answer,
                    None => live.answer(request).await.unwrap_or(Response::status(404)),
                }
            }
        }
    })
    .map_err(|e| {
        let text = said(&e);
        let why = text.strip_prefix(&format!("{at}: ")).unwrap_or(&text);
        cannot_listen(&io::Error::new(e.kind(), format!("{at} (--metrics): {why}")))
    })
}
