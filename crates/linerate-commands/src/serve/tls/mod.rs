//! How the addresses of a server speak TLS: what flags and file say of it, and the certificates
//! that are read for that.

use std::path::{Path, PathBuf};

use linerate_serve::{Address, ServerOptions, ServerTls};

use self::files::{CertificateFile, Files, Material};
use super::ServeArgs;
use super::args::{HostArgs, Listen, Scheme};
use crate::args::tls::pem;
use crate::fault::CommandFault;

mod files;

/// TLS settings of one place: the whole server, a listener or a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsArgs {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) self_signed: bool,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) ocsp: Option<PathBuf>,
    /// HTTP/2 is not offered by ALPN.
    pub(super) no_http2: bool,
}

impl TlsArgs {
    fn has_certificate(&self) -> bool {
        self.cert.is_some() || self.key.is_some() || self.self_signed
    }

    /// The options of a listener, laid over those of the whole server.
    fn over(&self, whole: &TlsArgs) -> TlsArgs {
        let certificate = if self.has_certificate() { self } else { whole };
        TlsArgs {
            client_ca: self.client_ca.clone().or_else(|| whole.client_ca.clone()),
            ocsp: self.ocsp.clone().or_else(|| certificate.ocsp.clone()),
            no_http2: whole.no_http2,
            ..certificate.clone()
        }
    }

    /// The files that are to be read; `None`: no certificate is named.
    fn files(&self) -> Result<Option<Files>, CommandFault> {
        match (&self.cert, &self.key) {
            (Some(_), _) if self.self_signed => {
                Err(CommandFault::input("--tls-self-signed makes a certificate, and --tls-cert names one")
                    .hint("leave out one of the two"))
            }
            (Some(cert), Some(key)) => {
                Ok(Some(Files { cert: cert.clone(), key: key.clone(), ocsp: self.ocsp.clone() }))
            }
            (Some(_), None) => {
                Err(CommandFault::input("--tls-cert needs its private key").hint("name it by --tls-key"))
            }
            (None, Some(_)) => Err(CommandFault::input("--tls-key needs the certificate it is for")
                .hint("name it by --tls-cert")),
            (None, None) if self.ocsp.is_some() => {
                Err(CommandFault::input("--tls-ocsp needs the certificate that it is about")
                    .hint("name it by --tls-cert and --tls-key"))
            }
            (None, None) => Ok(None),
        }
    }
}

/// What addresses that speak the same TLS have: those of the usual site, or of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TlsSource {
    /// `None`: the certificate is made.
    usual: Option<Files>,
    /// By host name, where a host has its own.
    named: Vec<(String, Files)>,
    client_ca: Option<PathBuf>,
    no_http2: bool,
    addresses: Vec<Address>,
}

impl TlsSource {
    fn of(args: &TlsArgs, hosts: &[HostArgs], listen: &[Listen]) -> Result<Option<TlsSource>, CommandFault> {
        let mut named = Vec::new();
        for host in hosts {
            if let Some(files) = host.tls.files()? {
                named.extend(host.names.iter().map(|name| (name.to_string(), files.clone())));
            }
        }
        // Clients that ask for no host, or for another, are shown the first.
        let usual = args.files()?.or_else(|| named.first().map(|(_, files)| files.clone()));
        if usual.is_none() && !args.self_signed {
            return match args.client_ca {
                Some(_) => {
                    Err(CommandFault::input("--tls-client-ca needs a certificate of the server's own")
                        .hint("name it by --tls-cert and --tls-key"))
                }
                None => Ok(None),
            };
        }
        let usual = usual.filter(|_| !args.self_signed);
        let addresses = listen.iter().map(|listen| listen.at.clone()).collect();
        Ok(Some(TlsSource {
            usual,
            named,
            client_ca: args.client_ca.clone(),
            no_http2: args.no_http2,
            addresses,
        }))
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = self.usual.iter().chain(self.named.iter().map(|(_, files)| files));
        files.flat_map(Files::paths).chain(self.client_ca.as_deref())
    }

    /// Reads all files. A certificate that was made before stays.
    fn read(&self, made: Option<&CertificateFile>) -> Result<Material, CommandFault> {
        let usual = match (&self.usual, made) {
            (Some(files), _) => files.read()?,
            (None, Some(made)) => made.clone(),
            (None, None) => files::self_signed(&self.addresses)?,
        };
        let named = self.named.iter().map(|(name, files)| Ok((name.clone(), files.read()?)));
        let client_roots = self.client_ca.as_ref().map(|path| pem("--tls-client-ca", path)).transpose()?;
        let named = named.collect::<Result<_, CommandFault>>()?;
        Ok(Material { usual, named, client_roots, no_http2: self.no_http2 })
    }
}

/// What the addresses of one place speak.
#[derive(Debug)]
struct PlaceTls {
    source: TlsSource,
    material: Material,
    tls: ServerTls,
}

impl PlaceTls {
    fn new(source: TlsSource, before: Option<&SiteTls>) -> Result<PlaceTls, CommandFault> {
        let mut places = before.iter().flat_map(|tls| tls.places.iter().flatten());
        let old = places.find(|old| old.source.usual.is_none() && old.source.addresses == source.addresses);
        let material = source.read(old.map(|old| &old.material.usual))?;
        Ok(PlaceTls { tls: material.build()?, material, source })
    }

    /// Shows what was read. Where the same clients are asked for certificates as before, sessions
    /// are resumed still.
    fn take(&mut self, material: Material) -> Result<(), CommandFault> {
        if material.client_roots == self.material.client_roots {
            self.tls.replace(&material.usual.identity, &material.identities());
        } else {
            self.tls.become_as(&material.build()?);
        }
        self.material = material;
        Ok(())
    }
}

/// How all addresses of a server speak TLS.
#[derive(Debug)]
pub(super) struct SiteTls {
    /// Of the usual site, then of each listener.
    places: Vec<Option<PlaceTls>>,
    /// Of each address, in the order of [`ServeArgs::addresses`].
    at: Vec<At>,
}

/// What an address speaks.
#[derive(Debug)]
struct At {
    address: Address,
    /// Among the places.
    place: usize,
    /// The place's, in a cell of its own that survives reloads; `None`: plain HTTP.
    tls: Option<ServerTls>,
}

impl SiteTls {
    /// What flags and file mean. Reads all certificates; those that were made `before` stay.
    pub(super) fn of(args: &ServeArgs, before: Option<&SiteTls>) -> Result<SiteTls, CommandFault> {
        let whole = args.tls();
        let mut sources = vec![TlsSource::of(&whole, &args.hosts, &args.listen)?];
        for place in &args.places {
            sources.push(TlsSource::of(&place.tls.over(&whole), &place.hosts, &place.listen)?);
        }
        let new = |source: Option<TlsSource>| source.map(|source| PlaceTls::new(source, before)).transpose();
        let places: Vec<Option<PlaceTls>> =
            sources.into_iter().map(new).collect::<Result<_, CommandFault>>()?;
        let mut at = Vec::new();
        let listens = std::iter::once(&args.listen).chain(args.places.iter().map(|place| &place.listen));
        for (place, listen) in listens.enumerate().flat_map(|(i, all)| all.iter().map(move |one| (i, one))) {
            let tls = match (&places[place], listen.scheme) {
                (_, Some(Scheme::Http)) | (None, None) => None,
                (Some(place), _) => Some(place.tls.another()),
                (None, Some(Scheme::Https)) => {
                    return Err(CommandFault::input(format!("https://{} needs a certificate", listen.at))
                        .hint(
                            "name it by --tls-cert and --tls-key, or try things out with --tls-self-signed",
                        ));
                }
            };
            at.push(At { address: listen.at.clone(), place, tls });
        }
        let tls = SiteTls { places, at };
        tls.is_of_use(args)?;
        Ok(tls)
    }

    /// A certificate that no address shows was meant for one.
    fn is_of_use(&self, args: &ServeArgs) -> Result<(), CommandFault> {
        let speaks_https = self.at.iter().any(|at| at.tls.is_some());
        let speaks = speaks_https || !args.sockets.is_empty();
        if self.places.iter().any(Option::is_some) && !speaks {
            return Err(CommandFault::input("there is a certificate, and every address is plain HTTP")
                .hint("write an address without http://"));
        }
        if args.redirects_to_https() && self.https_port(&args.addresses()).is_none() {
            return Err(CommandFault::input("redirect_to_https needs an address that speaks HTTPS").hint(
                "name its certificate by tls_cert and tls_key; http://ADDR among listen is the plain one",
            ));
        }
        let says_hsts = args.hsts.is_some() || args.places.iter().any(|place| place.site.hsts.is_some());
        if says_hsts && !speaks_https && args.sockets.is_empty() {
            return Err(CommandFault::input("--hsts needs an address that speaks HTTPS").hint(
                "browsers ignore it over plain HTTP (RFC 6797 section 8.1); name a certificate by --tls-cert and --tls-key",
            ));
        }
        Ok(())
    }

    /// Where requests by plain HTTP are redirected to: the first port that speaks HTTPS.
    /// `addresses`: those of [`ServeArgs::addresses`], with their ports.
    pub(super) fn https_port(&self, addresses: &[Address]) -> Option<u16> {
        let mut all = addresses.iter().zip(&self.at).filter(|(_, at)| at.tls.is_some());
        all.find_map(|(address, _)| address.tcp()).map(|at| at.port())
    }

    /// For the library: what each address speaks that is listened on by `options`, and each socket.
    pub(super) fn add_to(&self, options: &mut ServerOptions, args: &ServeArgs) {
        let own = self.at.iter().filter(|at| !args.is_passed(&at.address)).map(|at| at.tls.clone());
        let usual = self.places.first().and_then(Option::as_ref).map(|place| place.tls.clone());
        let of_socket = |address: &Address| {
            let known = self.at.iter().find(|at| at.address == *address);
            known.map_or_else(|| usual.clone(), |at| at.tls.clone())
        };
        let sockets = args.sockets.iter().map(|socket| of_socket(socket.address()));
        options.tls_at = own.chain(sockets).enumerate().collect();
    }

    /// What each address speaks; `None`: plain HTTP.
    pub(super) fn each(&self) -> impl Iterator<Item = Option<&ServerTls>> {
        self.at.iter().map(|at| at.tls.as_ref())
    }

    /// Whether each of these speaks TLS, in the same order.
    pub(super) fn speaks(&self, args: &ServeArgs) -> Vec<bool> {
        let mut options = ServerOptions::default();
        self.add_to(&mut options, args);
        options.tls_at.iter().map(|(_, tls)| tls.is_some()).collect()
    }

    /// What the same address spoke before, if it was there: the n-th with port 0 is the n-th.
    fn known<'a>(&self, index: usize, before: &'a SiteTls) -> Option<&'a At> {
        let address = &self.at[index].address;
        let nth = self.at[..index].iter().filter(|at| at.address == *address).count();
        before.at.iter().filter(|at| at.address == *address).nth(nth)
    }

    /// Whether an address of before would have to begin or end to speak TLS.
    pub(super) fn needs_restart(&self, before: &SiteTls) -> bool {
        let speaks = |tls: &SiteTls| tls.at.iter().any(|at| at.tls.is_some());
        let changes = |(i, at): (usize, &At)| {
            self.known(i, before).is_some_and(|known| known.tls.is_some() != at.tls.is_some())
        };
        (speaks(self) && !speaks(before)) || self.at.iter().enumerate().any(changes)
    }

    /// These take the place of `before`, for the connections to come. Sessions are resumed where
    /// the same clients are asked for certificates.
    pub(super) fn succeed(&mut self, before: &mut SiteTls) -> Result<(), CommandFault> {
        for i in 0..self.at.len() {
            if let Some(At { tls: Some(cell), .. }) = self.known(i, before) {
                self.at[i].tls = Some(cell.clone());
            }
        }
        for place in self.places.iter_mut().flatten() {
            let mut old = before.places.iter_mut().flatten();
            if let Some(old) = old.find(|old| old.source.addresses == place.source.addresses) {
                old.take(place.material.clone())?;
                place.tls = old.tls.clone();
            }
        }
        self.fill_cells();
        Ok(())
    }

    fn fill_cells(&self) {
        for at in &self.at {
            if let (Some(cell), Some(place)) = (&at.tls, &self.places[at.place]) {
                cell.become_as(&place.tls);
            }
        }
    }

    /// Reads all files again: all are good and shown from now on, or nothing changes.
    pub(super) fn renew(&mut self) -> Result<(), CommandFault> {
        let read = |place: &PlaceTls| place.source.read(Some(&place.material.usual));
        let all: Vec<Material> =
            self.places.iter().flatten().map(read).collect::<Result<_, CommandFault>>()?;
        for material in &all {
            material.build()?;
        }
        for (place, material) in self.places.iter_mut().flatten().zip(all) {
            place.take(material)?;
        }
        self.fill_cells();
        Ok(())
    }

    /// The files that were read, each once.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let all = self.places.iter().flatten().flat_map(|place| place.source.paths());
        let mut all: Vec<PathBuf> = all.map(Path::to_owned).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Certificates that have expired, are not valid yet or end soon, each once.
    pub(super) fn warnings(&self) -> Vec<String> {
        let all = self.places.iter().flatten().flat_map(|place| place.material.warnings());
        let mut all: Vec<String> = all.collect();
        all.sort();
        all.dedup();
        all
    }
}
