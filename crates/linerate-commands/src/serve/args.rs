//! What can be said of a server: by flags, by a configuration file, with the same words for both.

use std::net::{SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use linerate_load::plan::units::{parse_count, parse_duration, quoted};
use linerate_net::link::fault::FaultOptions;
use linerate_serve::misbehave::MisbehaviourKind as Wrong;
use linerate_serve::{
    Address, ExtraFields, HostName, Hsts, Io, ListeningSocket, LogFormat, Network, NetworkAccess, RouteLimits,
};

use super::tls::TlsArgs;
use crate::args::values;
use crate::fault::CommandFault;

const TLS: &str = "HTTPS";
const LIMITS: &str = "Limits";

/// Answer requests: files, built-in routes, on an event loop per core
///
/// Without --dir and --config it answers the demo routes: / (hello), /bytes/N, /delay/MS (waits as a coroutine), /threads/MS (waits
/// on a thread beside the event loop), /block/MS (blocks, to be caught at it), /compute/N (N thousand steps of arithmetic), /echo,
/// /upper (POST), /status/CODE, /stream/N, /stats, and with --io xdp /stats/flows (its connections, as ss shows the kernel's; ?text
/// for people, ?skip=N&max=M). POST / gives the body back. --demo-routes adds them to files.
///
/// SIGTERM, SIGQUIT and Ctrl-C: no more connections are accepted, what was received is answered, then it ends, after --drain at the
/// latest; a second one ends it at once. SIGHUP: the configuration file is read again and the access log opened anew; when its
/// terminal is closed, it ends. SIGUSR1: the access log is opened anew. SIGUSR2: nothing happens.
#[derive(Args, Clone, Debug, Default)]
#[command(
    after_long_help = "Examples:\n  linerate serve --dir public --access-log access.log --metrics 127.0.0.1:9090\n  \
                             linerate serve --config serve.toml\n  \
                             linerate serve --listen 127.0.0.1:0 --misbehave nagle-split"
)]
pub(crate) struct ServeArgs {
    /// Read a configuration file: the same words as these flags, which win over it; read again at SIGHUP
    ///
    /// It can say more than flags: [[route]], a directory, redirect or status by the beginning of the path, and [[listener]],
    /// addresses with a directory and routes of their own. docs/SERVE-CONFIGURATION.md has an example of each.
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,
    /// Check flags and configuration file, say what is wrong with them, and end: 0 if they are sound, 2 if not
    ///
    /// Directories and files are looked at; addresses are not listened on, and nothing is written.
    #[arg(long)]
    pub(super) check_config: bool,
    /// Where to listen: ADDR:PORT (port 0 picks one) or unix:/path; repeatable (127.0.0.1:8080)
    ///
    /// With a certificate all addresses speak HTTPS; http://ADDR:PORT stays plain.
    ///
    /// Sockets that a service manager passes (LISTEN_FDS) are listened on as well; they take the place of the default.
    #[arg(long, value_name = "[http://]ADDR:PORT|unix:PATH", value_parser = listen)]
    pub(super) listen: Vec<Listen>,
    /// Listen at this port of 127.0.0.1, for this machine alone; 0 picks one
    #[arg(long, value_name = "N", conflicts_with = "listen")]
    pub(super) port: Option<u16>,
    /// Threads, each with its own loop and connections (as many as there are cores)
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,
    /// Pin each thread to a core of its own
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) pin: Option<bool>,
    /// What moves the bytes: auto, epoll, uring or xdp (auto)
    ///
    /// xdp: kernel bypass, with TCP in user space (AF_XDP). Takes the packets to the addresses listened on from --interface; all else
    /// stays with the kernel. Needs privileges; docs/XDP.md tells of it.
    #[arg(long, value_name = "IO")]
    pub(super) io: Option<Io>,
    /// The interface for --io xdp
    #[arg(long, value_name = "IF")]
    pub(super) interface: Option<String>,
    /// With --io xdp: poll the interface's queues instead of waiting for their interrupts, for TIME at a time, such as 50us
    ///
    /// Interrupts stay away only where the interface was told so; docs/XDP.md has the two settings.
    #[arg(long, value_name = "TIME", value_parser = values::busy_poll)]
    pub(super) busy_poll: Option<Duration>,
    /// With --io xdp: write every packet into FILE, for tcpdump, Wireshark or linerate explain --pcap (at most 1 GiB)
    #[arg(long, value_name = "FILE")]
    pub(super) pcap_out: Option<PathBuf>,
    /// With --io xdp: let packets be lost, doubled, late, overtaken or changed: loss=1%,delay=20ms
    ///
    /// Keys are loss, dup, reorder and corrupt (shares), delay and reorder-by (times) and seed; with in: or out: before a key it is
    /// for packets that come in or go out alone.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(super) fault: Option<FaultOptions>,
    /// Speak HTTP/2 beside HTTP/1.1: on or off (on)
    ///
    /// Over HTTPS clients choose by ALPN; in clear text they have to know it (prior knowledge).
    #[arg(long, value_name = "on|off", value_parser = switch)]
    pub(super) http2: Option<bool>,
    /// Speak HTTP/3 too, over UDP at the addresses with TLS; clients learn of it by Alt-Svc
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) http3: Option<bool>,
    /// Serve the files of this directory, and no demo routes unless --demo-routes asks for them
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Answer the demo routes (on only without --dir and --config)
    ///
    /// They are for tests: /block/MS holds a whole thread, and /stats tells strangers of the server.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) demo_routes: Option<bool>,
    /// Answer with files alone, never with demo routes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) files_only: Option<bool>,
    /// Show directories without index.html as a page with their entries
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) list: Option<bool>,
    /// Compress texts of --dir on the fly: off, or a level from 1 (fast) to 9 (small) (5)
    ///
    /// Compressed copies that lie beside a file (.gz, .br) are served either way.
    #[arg(long, value_name = "off|1-9", value_parser = gzip)]
    pub(super) gzip: Option<Gzip>,
    /// Add a header field to every response, as in --header 'Cache-Control: max-age=60'; repeatable
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(super) header: Vec<(String, String)>,
    /// Speak HTTPS with the certificate in this PEM file: the chain, the server's own first
    ///
    /// It is read again when it changes, and at SIGHUP. A certificate that has expired, is not valid yet or ends within 14 days is
    /// warned of. [[listener]] and [[host]] of a configuration file may have their own, chosen by the name that clients ask for (SNI).
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(super) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(super) tls_key: Option<PathBuf>,
    /// Speak HTTPS with a certificate made for this run, which nobody trusts: for trying things out
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = TLS)]
    pub(super) tls_self_signed: Option<bool>,
    /// Ask clients for a certificate that one of those in this PEM file signed
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(super) tls_client_ca: Option<PathBuf>,
    /// Send this OCSP response (DER) with the certificate; read again when it changes
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub(super) tls_ocsp: Option<PathBuf>,
    /// Redirect requests by plain HTTP to the first address that speaks HTTPS
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = TLS)]
    pub(super) redirect_to_https: Option<bool>,
    /// Say in responses over HTTPS that browsers shall use nothing else for so long (Strict-Transport-Security), such as 365d
    ///
    /// Or the whole value: 'max-age=31536000; includeSubDomains'.
    #[arg(long, value_name = "TIME", value_parser = hsts, help_heading = TLS)]
    pub(super) hsts: Option<Hsts>,
    /// Write a line per answer to this file, - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(super) access_log: Option<String>,
    /// How its lines look: common, combined, combined-time or json (combined)
    ///
    /// combined-time is combined with the duration in seconds behind it, to the microsecond. JSON has it as duration_us.
    #[arg(long, value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
    /// Counters for Prometheus at this address, or at a Unix socket
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", value_parser = place)]
    pub(super) metrics: Option<Address>,
    /// Connections open at once; those beyond are refused (200000)
    #[arg(long, value_name = "N", value_parser = count, help_heading = LIMITS)]
    pub(super) max_connections: Option<u64>,
    /// Connections that one client may have open; those beyond are closed at once (no limit)
    ///
    /// A client is an IPv4 address, or the /64 of an IPv6 address. Trusted proxies are not limited.
    #[arg(long, value_name = "N", value_parser = count, help_heading = LIMITS)]
    pub(super) max_connections_per_client: Option<u64>,
    /// Requests per second that one client may send, and as many at once; beyond it 429 (no limit)
    #[arg(long, value_name = "N[/s]", value_parser = rate, help_heading = LIMITS)]
    pub(super) max_rate_per_client: Option<f64>,
    /// Address or network of a proxy whose Forwarded or X-Forwarded-For names the client; repeatable
    ///
    /// The client is the last address there that is no trusted proxy's. From anybody else these fields count for nothing.
    #[arg(long, value_name = "ADDR[/BITS]", value_parser = network)]
    pub(super) trusted_proxy: Vec<Network>,
    /// Connections of trusted proxies begin with the PROXY protocol (version 1 or 2)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) proxy_protocol: Option<bool>,
    /// Answer clients of this network alone, and others with 403; repeatable (all clients)
    ///
    /// Where networks of --allow and --deny both have a client's address, the smaller one decides. Behind trusted proxies it is the
    /// client's address that counts.
    #[arg(long, value_name = "ADDR[/BITS]", value_parser = network)]
    pub(super) allow: Vec<Network>,
    /// Answer clients of this network with 403; repeatable
    #[arg(long, value_name = "ADDR[/BITS]", value_parser = network)]
    pub(super) deny: Vec<Network>,
    /// Largest request body in bytes, such as 1MiB; beyond it 413 (16 MiB)
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = LIMITS)]
    pub(super) max_body: Option<u64>,
    /// Largest request head in bytes, such as 16KiB; beyond it 431 (32 KiB)
    #[arg(long, value_name = "BYTES", value_parser = head_bytes, help_heading = LIMITS)]
    pub(super) max_head: Option<usize>,
    /// Most header fields of a request; beyond it 431 (128)
    #[arg(long, value_name = "N", value_parser = fields, help_heading = LIMITS)]
    pub(super) max_fields: Option<usize>,
    /// Time for a request's head; then 408 (15s)
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LIMITS)]
    pub(super) header_timeout: Option<Duration>,
    /// Time for a request's body, beside what 500 bytes a second would take; then 408 (20s)
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LIMITS)]
    pub(super) body_timeout: Option<Duration>,
    /// Time between an answer and the next request; then the connection is closed (75s)
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LIMITS)]
    pub(super) idle_timeout: Option<Duration>,
    /// Wait for handlers of clients that have sent their FIN, as long as --idle-timeout
    ///
    /// Otherwise a handler that has not answered a second after the FIN is cancelled: such a client has nearly always gone.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = LIMITS)]
    pub(super) half_close: Option<bool>,
    /// Time in which a client must take part of its response; then the connection is cut (20s)
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = LIMITS)]
    pub(super) write_timeout: Option<Duration>,
    /// How long responses in flight may take at the end (10s)
    #[arg(long, value_name = "TIME", value_parser = drain, help_heading = LIMITS)]
    pub(super) drain: Option<Duration>,
    /// Accept a connection only when it has sent something (TCP_DEFER_ACCEPT); cheaper for short ones
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) defer_accept: Option<bool>,
    /// Let other processes listen at the same addresses (SO_REUSEPORT); each of them has to say so
    ///
    /// The kernel spreads new connections over all of them. Each process has its own limit of open files, so several hold more
    /// connections than one may; and a new version can start before the old one drains.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    pub(super) share_port: Option<bool>,
    /// Become this user once the addresses are listened on; needs root
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// With --user: this group, in place of the user's
    #[arg(long, value_name = "NAME")]
    pub(super) group: Option<String>,
    /// Do it wrong on purpose, for teaching and tests; repeatable
    ///
    /// Each shows a symptom. nagle-split: calls after the first take about 40 ms more. tiny-chunks[=BYTES]: a packet per few
    /// bytes. close-after=N: new connections all the time. stall=MS: half of each answer, a pause, the rest. slow-read[=BYTES_PER_S]:
    /// uploads wait on a zero window. accept-delay=MS: connecting takes whole seconds under load. no-100-continue: clients that
    /// expect it send their body late. think=MS (or MS-MS, or exp:MS on average): the first byte is late. late-body=MS: the first
    /// byte is early, the body late. lanes=N: with think, time grows with the concurrency. workers=N: while N connections are held,
    /// calls on new ones hang. idle-close=MS: requests on connections that rested fail. no-keep-alive: each call pays for a connection.
    ///
    /// All but close-after answer the built-in routes alone, by a plain server without threads, limits and --io to choose.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(super) misbehave: Vec<Wrong>,
    /// The same as --dir DIR and --port PORT
    #[arg(value_name = "DIR|:PORT", value_parser = given, num_args = 0..=2)]
    pub(super) given: Vec<Given>,
    /// Sockets that a service manager has opened.
    #[arg(skip)]
    pub(super) sockets: Vec<ListeningSocket>,
    /// `[[route]]`, which only a file can say.
    #[arg(skip)]
    pub(super) routes: Vec<ConfiguredRoute>,
    /// `[[listener]]`, which only a file can say.
    #[arg(skip)]
    pub(super) places: Vec<SiteAddresses>,
    /// `try_files` and `error_pages`, which only a file can say.
    #[arg(skip)]
    pub(super) try_files: Vec<String>,
    #[arg(skip)]
    pub(super) error_pages: Vec<(u16, String)>,
    /// `users` and `realm`, which only a file can say.
    #[arg(skip)]
    pub(super) users: Option<UsersArgs>,
    /// `[[host]]`, which only a file can say.
    #[arg(skip)]
    pub(super) hosts: Vec<HostArgs>,
}

/// What one site answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SiteArgs {
    pub(super) dir: Option<PathBuf>,
    pub(super) demo_routes: bool,
    pub(super) routes: Vec<ConfiguredRoute>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) list: bool,
    pub(super) gzip: Option<Gzip>,
    pub(super) try_files: Vec<String>,
    pub(super) error_pages: Vec<(u16, String)>,
    pub(super) users: Option<UsersArgs>,
    pub(super) redirect_to_https: Option<bool>,
    pub(super) hsts: Option<Hsts>,
}

/// The users that are let in: a file of names and hashes, and the realm that browsers show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsersArgs {
    pub(super) file: PathBuf,
    pub(super) realm: String,
}

/// Addresses with a site of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteAddresses {
    pub(super) listen: Vec<Listen>,
    pub(super) site: SiteArgs,
    pub(super) hosts: Vec<HostArgs>,
    pub(super) tls: TlsArgs,
}

/// An address, and what it speaks if that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen {
    pub(super) at: Address,
    pub(super) scheme: Option<Scheme>,
}

/// `http://` or `https://` in front of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl From<Address> for Listen {
    fn from(at: Address) -> Listen {
        Listen { at, scheme: None }
    }
}

/// Host names with a site of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostArgs {
    pub(super) names: Vec<HostName>,
    pub(super) site: SiteArgs,
    pub(super) tls: TlsArgs,
}

/// A route of the configuration file; what can be seen without opening anything is checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfiguredRoute {
    pub(super) prefix: String,
    pub(super) to: To,
    pub(super) list: bool,
    pub(super) gzip: Option<Gzip>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) users: Option<UsersArgs>,
    pub(super) access: NetworkAccess,
    pub(super) limits: RouteLimits,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    Dir(PathBuf),
    Redirect(String, u16),
    Status(u16),
    /// What the site has there.
    Site,
}

/// The level of gzip; `None`: off.
pub(super) type Gzip = Option<u8>;

impl ServeArgs {
    /// These, and where they say nothing, `others`.
    pub(super) fn over(self, others: ServeArgs) -> ServeArgs {
        fn either<T>(one: Vec<T>, other: Vec<T>) -> Vec<T> {
            if one.is_empty() { other } else { one }
        }
        ServeArgs {
            config: self.config.or(others.config),
            check_config: self.check_config,
            listen: either(self.listen, others.listen),
            threads: self.threads.or(others.threads),
            pin: self.pin.or(others.pin),
            io: self.io.or(others.io),
            interface: self.interface.or(others.interface),
            busy_poll: self.busy_poll.or(others.busy_poll),
            pcap_out: self.pcap_out.or(others.pcap_out),
            fault: self.fault.or(others.fault),
            http2: self.http2.or(others.http2),
            http3: self.http3.or(others.http3),
            dir: self.dir.or(others.dir),
            demo_routes: self.demo_routes.or(others.demo_routes),
            files_only: self.files_only.or(others.files_only),
            list: self.list.or(others.list),
            gzip: self.gzip.or(others.gzip),
            header: either(self.header, others.header),
            try_files: either(self.try_files, others.try_files),
            error_pages: either(self.error_pages, others.error_pages),
            users: self.users.or(others.users),
            tls_cert: self.tls_cert.or(others.tls_cert),
            tls_key: self.tls_key.or(others.tls_key),
            tls_self_signed: self.tls_self_signed.or(others.tls_self_signed),
            tls_client_ca: self.tls_client_ca.or(others.tls_client_ca),
            tls_ocsp: self.tls_ocsp.or(others.tls_ocsp),
            redirect_to_https: self.redirect_to_https.or(others.redirect_to_https),
            hsts: self.hsts.or(others.hsts),
            access_log: self.access_log.or(others.access_log),
            log_format: self.log_format.or(others.log_format),
            metrics: self.metrics.or(others.metrics),
            max_connections: self.max_connections.or(others.max_connections),
            max_connections_per_client: self.max_connections_per_client.or(others.max_connections_per_client),
            max_rate_per_client: self.max_rate_per_client.or(others.max_rate_per_client),
            trusted_proxy: either(self.trusted_proxy, others.trusted_proxy),
            proxy_protocol: self.proxy_protocol.or(others.proxy_protocol),
            allow: either(self.allow, others.allow),
            deny: either(self.deny, others.deny),
            max_body: self.max_body.or(others.max_body),
            max_head: self.max_head.or(others.max_head),
            max_fields: self.max_fields.or(others.max_fields),
            header_timeout: self.header_timeout.or(others.header_timeout),
            body_timeout: self.body_timeout.or(others.body_timeout),
            idle_timeout: self.idle_timeout.or(others.idle_timeout),
            half_close: self.half_close.or(others.half_close),
            write_timeout: self.write_timeout.or(others.write_timeout),
            drain: self.drain.or(others.drain),
            defer_accept: self.defer_accept.or(others.defer_accept),
            share_port: self.share_port.or(others.share_port),
            user: self.user.or(others.user),
            group: self.group.or(others.group),
            misbehave: either(self.misbehave, others.misbehave),
            port: self.port.or(others.port),
            given: either(self.given, others.given),
            sockets: either(self.sockets, others.sockets),
            routes: either(self.routes, others.routes),
            places: either(self.places, others.places),
            hosts: either(self.hosts, others.hosts),
        }
    }

    /// The site for requests that belong to no listener and no host of the configuration.
    pub(super) fn site(&self) -> SiteArgs {
        SiteArgs {
            dir: self.dir.clone(),
            demo_routes: self.has_demo_routes(),
            routes: self.routes.clone(),
            headers: self.header.clone(),
            list: self.list == Some(true),
            gzip: self.gzip,
            try_files: self.try_files.clone(),
            error_pages: self.error_pages.clone(),
            users: self.users.clone(),
            redirect_to_https: self.redirect_to_https,
            hsts: self.hsts.clone(),
        }
    }

    /// Whether the usual site answers the demo routes.
    pub(super) fn has_demo_routes(&self) -> bool {
        let alone = self.dir.is_none() && self.config.is_none() && self.files_only != Some(true);
        self.demo_routes.unwrap_or(alone)
    }

    /// Every address: those of the usual site, then those of listeners, in the order of the file.
    pub(super) fn addresses(&self) -> Vec<Address> {
        let own = self.places.iter().flat_map(|place| &place.listen);
        self.listen.iter().chain(own).map(|listen| listen.at.clone()).collect()
    }

    /// TLS flags for the whole server.
    pub(super) fn tls(&self) -> TlsArgs {
        TlsArgs {
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            self_signed: self.tls_self_signed == Some(true),
            client_ca: self.tls_client_ca.clone(),
            ocsp: self.tls_ocsp.clone(),
            no_http2: self.http2 == Some(false),
        }
    }

    /// Whether requests by plain HTTP are redirected somewhere.
    pub(super) fn redirects_to_https(&self) -> bool {
        let said = self.places.iter().map(|place| place.site.redirect_to_https);
        said.chain([self.redirect_to_https]).any(|said| said == Some(true))
    }
}

impl ServeArgs {
    /// With what stands without a flag, and `--port`, where the other flags are.
    pub(super) fn placed(mut self) -> Result<ServeArgs, CommandFault> {
        let mut ports: Vec<u16> = self.port.take().into_iter().collect();
        for given in std::mem::take(&mut self.given) {
            match given {
                Given::Port(port) => ports.push(port),
                Given::Dir(dir) if self.dir.is_none() => self.dir = Some(dir),
                Given::Dir(dir) => {
                    let dir = dir.display();
                    return Err(CommandFault::input(format!(
                        "{dir} is a second directory, and one is served"
                    ))
                    .hint("give each a [[route]] of its own (--config FILE.toml)"));
                }
            }
        }
        let places = ports.iter().map(|port| Address::from(SocketAddr::from(([127, 0, 0, 1], *port))).into());
        self.listen.extend(places);
        Ok(self)
    }

    /// Whether a service manager has opened this address already.
    pub(super) fn is_passed(&self, at: &Address) -> bool {
        self.sockets.iter().any(|socket| socket.address() == at)
    }

    /// Those of [`ServeArgs::addresses`] that are still to be listened at.
    pub(super) fn own_addresses(&self) -> Vec<Address> {
        self.addresses().into_iter().filter(|at| !self.is_passed(at)).collect()
    }
}

/// What a value without a flag stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Dir(PathBuf),
    Port(u16),
}

fn given(text: &str) -> Result<Given, String> {
    if let Some(port) = text.strip_prefix(':') {
        return port
            .parse()
            .map(Given::Port)
            .map_err(|_| format!("{} is no port: they go from 0 to 65535", quoted(port)));
    }
    if text.parse::<u16>().is_ok() || text.parse::<SocketAddr>().is_ok() {
        let port = text.rsplit(':').next().unwrap_or_default();
        return Err(format!(
            "an address is named by --listen, as in --listen 127.0.0.1:{port}, or by :{port} for this machine alone"
        ));
    }
    Ok(Given::Dir(text.into()))
}

/// A TCP address, or a path behind `unix:`.
pub(crate) fn place(text: &str) -> Result<Address, String> {
    match text.strip_prefix("unix:") {
        None => address(text).map(Address::Tcp),
        Some("") => Err("unix: needs the path of a socket, as in unix:/run/linerate.sock".to_owned()),
        Some(path) => Ok(PathBuf::from(path).into()),
    }
}

/// An address to listen on.
pub(super) fn listen(text: &str) -> Result<Listen, String> {
    with_scheme(text, place)
}

/// The same in a file.
pub(super) fn listen_beside(text: &str, config: &Path) -> Result<Listen, String> {
    with_scheme(text, |text| beside(text, config))
}

fn with_scheme(text: &str, read: impl Fn(&str) -> Result<Address, String>) -> Result<Listen, String> {
    let schemes = [("http://", Scheme::Http), ("https://", Scheme::Https)];
    let found = schemes.into_iter().find_map(|(begin, scheme)| Some((text.strip_prefix(begin)?, scheme)));
    let (rest, scheme) = found.map_or((text, None), |(rest, scheme)| (rest, Some(scheme)));
    let rest = if scheme.is_some() { rest.trim_end_matches('/') } else { rest };
    Ok(Listen { at: read(rest)?, scheme })
}

/// A time, or the whole value of the field.
pub(super) fn hsts(text: &str) -> Result<Hsts, String> {
    match parse_duration(text) {
        Ok(time) => Ok(Hsts::seconds(time.as_secs())),
        Err(_) => text.parse().map_err(|e| format!("{e}")),
    }
}

/// The same in a file: a relative path lies beside it.
pub(super) fn beside(text: &str, config: &Path) -> Result<Address, String> {
    Ok(match place(text)? {
        Address::Unix(path) => config.parent().unwrap_or(Path::new("")).join(path).into(),
        at => at,
    })
}

/// Parses an address. A form that other servers take is refused with the form to write here.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let scoped = |at: &SocketAddrV6| {
        format!(
            "each interface has addresses of its own that begin with fe80; say which by its number, as in [{}%2]:{} (ip link shows them)",
            at.ip(),
            at.port()
        )
    };
    if let Ok(at) = text.parse::<SocketAddrV6>()
        && at.ip().is_unicast_link_local()
        && at.scope_id() == 0
    {
        return Err(scoped(&at));
    }
    text.parse().map_err(|_| {
        let unnamed = text.split_once('%').and_then(|(ip, rest)| {
            let (_, port) = rest.split_once(']')?;
            format!("{ip}]{port}").parse::<SocketAddrV6>().ok()
        });
        if let Some(at) = unnamed {
            return scoped(&at);
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        match (host, port.parse::<u16>()) {
            ("" | "*", Ok(port)) => format!(
                "an address and a port are needed: 127.0.0.1:{port} is for this machine alone, 0.0.0.0:{port} for all that reach it"
            ),
            ("localhost", Ok(port)) => {
                format!("names are not looked up; write 127.0.0.1:{port} or [::1]:{port}")
            }
            (_, Err(_)) if number => format!("{port} is no port: they go from 0 to 65535"),
            _ => "an address and a port are needed, as in 127.0.0.1:8080 or [::1]:8080".to_owned(),
        }
    })
}

/// A field as it stands in a response.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once(':') else {
        return Err("a name, a colon and a value are needed, as in 'Cache-Control: max-age=60'".to_owned());
    };
    field(name, value.trim())
}

/// A field that a response may have.
pub(super) fn field(name: &str, value: &str) -> Result<(String, String), String> {
    let field = (name.to_owned(), value.to_owned());
    ExtraFields::new(vec![field.clone()]).map_err(|(_, e)| format!("{name}: {e}"))?;
    Ok(field)
}

/// Of two addresses one is all of this machine's, so that both can't be listened on apart.
pub(super) fn within(one: &Address, other: &Address) -> bool {
    let (Some(one), Some(other)) = (one.tcp(), other.tcp()) else { return false };
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && all && one != other
}

/// As nginx writes it; a file may say true and false too.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        n @ 1..=1024 => Ok(n as usize),
        n => Err(format!("{n} threads: 1 to 1024 are possible")),
    }
}

pub(super) fn count(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 would answer nothing; at least 1 is needed".to_owned()),
        n => Ok(n),
    }
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("0 would refuse every body; at least 1 is needed".to_owned()),
        n => Ok(n),
    }
}

/// A count, or one with a binary unit behind it.
fn parse_size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let found = units.into_iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let Some((number, bits)) = found else { return Ok(parse_count(text)?) };
    let wrong = || format!("{} is not a size; write for example 65536, 64KiB or 1MiB", quoted(text));
    let number: u64 = number.trim_end().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << bits).ok_or_else(wrong)
}

/// `100` and `100/s` are the same.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim().parse::<f64>().ok();
    number
        .filter(|rate| (0.001..=1e9).contains(rate))
        .ok_or_else(|| format!("{text} is no rate; write requests per second, such as 50 or 0.5/s"))
}

/// A level, or off.
pub(super) fn gzip(text: &str) -> Result<Gzip, String> {
    match text.parse() {
        Ok(level @ 1..=9) => Ok(Some(level)),
        _ if matches!(text, "off" | "false") => Ok(None),
        _ => Err(format!("{text} is neither off nor a level from 1 to 9")),
    }
}

pub(super) fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}

/// The largest head. A limit above that of the request line keeps its meaning; a tiny one would refuse all requests.
pub(super) fn head_bytes(text: &str) -> Result<usize, String> {
    match parse_size(text)? {
        n @ 256..=1_048_576 => Ok(n as usize),
        n => Err(format!("a head of {n} bytes: 256 to 1048576 are possible")),
    }
}

pub(super) fn fields(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        n @ 1..=65536 => Ok(n as usize),
        n => Err(format!("{n} fields: 1 to 65536 are possible")),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => {
            Err("no time at all would close every connection; write for example 10s".to_owned())
        }
        time => Ok(time),
    }
}

pub(super) fn drain(text: &str) -> Result<Duration, String> {
    Ok(parse_duration(text)?)
}
