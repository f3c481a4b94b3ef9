//! Sites and their routes: `[[route]]`, and `[[listener]]`, addresses with a site of their own.

use std::io::Read;
use std::path::Path;

use linerate_load::plan::file::FileError;
use linerate_load::plan::file::table::{Item, Keys, Table};
use linerate_net::InputFile;
use linerate_serve::{
    Action, Address, BadField, BadRule, BadTable, ExtraFields, FileOptions, FileRoot, HostName, Network,
    NetworkAccess, RouteLimits, RouteTable, Rule, Users,
};

use super::super::args::{self, ConfiguredRoute, HostArgs, Listen, SiteAddresses, SiteArgs, To, UsersArgs};
use super::super::tls::TlsArgs;
use super::{WHOLE, beside, directory, value, values};
use crate::fault::said;

/// Most listeners of a file. Reason: each thread has a socket for each address, and compares a
/// request's with all.
const LISTENERS: usize = 64;

/// Largest file of users. Reason: it is read into memory, and the most users that are taken have
/// 400 bytes each.
const USERS_BYTES: u64 = 4 << 20;

const ROUTE: Keys = Keys {
    known: &[
        &["prefix", "dir", "redirect", "status", "list", "gzip", "headers", "users", "realm"],
        &["allow", "deny", "max_body", "body_timeout", "write_timeout"],
    ],
    elsewhere: &[
        (
            &["access_log", "max_head", "max_fields", "header_timeout", "idle_timeout"],
            "is said for the whole server, not for a route",
        ),
        (
            &["listen", "demo_routes", "files_only"],
            "is said for the whole server or in [[listener]], not for a route",
        ),
        (&["host", "server_name"], "is said by [[host]], which has routes of its own"),
    ],
};

/// Keys of one site: the usual one, at the top of the file, each listener's and each host's.
pub(super) const KEYS: &[&str] = &[
    "dir",
    "demo_routes",
    "files_only",
    "list",
    "gzip",
    "try_files",
    "error_pages",
    "route",
    "headers",
    "users",
    "realm",
];

/// What a host says of TLS, and a listener too.
const CERTIFICATE: &[&str] = &["tls_cert", "tls_key", "tls_ocsp"];

const LISTENER: Keys = Keys {
    known: &[
        KEYS,
        CERTIFICATE,
        &["listen", "host", "tls_self_signed", "tls_client_ca", "redirect_to_https", "hsts"],
    ],
    elsewhere: &[
        (WHOLE, "is said for the whole server, not for a listener"),
        (&["name", "server_name"], "is said by [[listener.host]]"),
    ],
};

const HOST: Keys = Keys {
    known: &[KEYS, CERTIFICATE, &["name"]],
    elsewhere: &[
        (
            &["tls_self_signed", "tls_client_ca", "redirect_to_https", "hsts"],
            "is said for the whole server or in [[listener]], not for a host",
        ),
        (WHOLE, "is said for the whole server, not for a host"),
        (
            &["listen"],
            "is said for the whole server or in [[listener]]; hosts at that address are [[listener.host]]",
        ),
        (&["host", "server_name"], "is called name here"),
    ],
};

/// Most hosts of one place, names together. Reason: a request's host is compared with all.
const HOSTS: usize = 256;

/// What browsers show where nothing is written.
const REALM: &str = "restricted";

/// Most names of `try_files`. Reason: each is looked up for every path that is no file.
const TRIED: usize = 16;

/// Most fields that one place adds. Reason: every response carries them.
const HEADERS: usize = 64;

/// Most networks of a list. Reason: a client's address is compared with all.
const NETWORKS: usize = 1024;

/// What a route may say without saying what is at its prefix.
const MORE: &[&str] = &["allow", "deny", "max_body", "body_timeout", "write_timeout", "headers", "users"];

/// What a redirect has as its status where none is written; as elsewhere.
const REDIRECT: u16 = 302;

/// `[[listener]]`, each with addresses that nothing else of the file has.
pub(super) fn listeners(top: &Table<'_>, config: &Path) -> Result<Vec<SiteAddresses>, FileError> {
    let Some(item) = top.get("listener") else { return Ok(Vec::new()) };
    let tables = item.tables(LISTENER)?;
    if tables.len() > LISTENERS {
        return Err(
            item.error(format!("listener: {} of them: at most {LISTENERS} are possible", tables.len()))
        );
    }
    let usual: Vec<Listen> = values(top, "listen", |text| args::listen_beside(text, config))?;
    let mut taken: Vec<Address> = usual.into_iter().map(|listen| listen.at).collect();
    tables.iter().map(|table| listener(table, config, &mut taken)).collect()
}

fn listener(table: &Table<'_>, config: &Path, taken: &mut Vec<Address>) -> Result<SiteAddresses, FileError> {
    let Some(item) = table.get("listen") else {
        let message = "a listener needs its address, as in listen = \"127.0.0.1:9000\"";
        return Err(table.source.error(table.span.clone(), message));
    };
    let listen: Vec<Listen> = values(table, "listen", |text| args::listen_beside(text, config))?;
    for (Listen { at, .. }, written) in listen.iter().zip(item.one_or_more()) {
        if !at.is_open() && taken.contains(at) {
            return Err(written.error(format!("listen: {at} is given twice")));
        }
        taken.push(at.clone());
    }
    let (site, hosts) = (site(table, config)?, hosts(table, config)?);
    Ok(SiteAddresses { listen, site, hosts, tls: tls(table, config)? })
}

/// What a listener or a host says of TLS.
fn tls(table: &Table<'_>, config: &Path) -> Result<TlsArgs, FileError> {
    let file = |key: &str| table.read(key, |i| beside(i, config));
    let tls = TlsArgs {
        cert: file("tls_cert")?,
        key: file("tls_key")?,
        self_signed: table.read("tls_self_signed", Item::flag)?.unwrap_or(false),
        client_ca: file("tls_client_ca")?,
        ocsp: file("tls_ocsp")?,
        no_http2: false,
    };
    let alone = match (&tls.cert, &tls.key) {
        (Some(_), None) => Some(("tls_cert", "tls_cert: its private key is missing; name it by tls_key")),
        (None, Some(_)) => Some(("tls_key", "tls_key: the certificate is missing; name it by tls_cert")),
        (Some(_), Some(_)) if tls.self_signed => Some((
            "tls_self_signed",
            "tls_self_signed: tls_cert names a certificate; leave out one of the two",
        )),
        _ => None,
    };
    match alone.and_then(|(key, why)| Some((table.get(key)?, why))) {
        Some((item, why)) => Err(item.error(why)),
        None => Ok(tls),
    }
}

/// What a listener or a host says of its site.
fn site(table: &Table<'_>, config: &Path) -> Result<SiteArgs, FileError> {
    let site = SiteArgs {
        dir: table.read("dir", |i| directory(i, config))?,
        demo_routes: table.read("demo_routes", Item::flag)?.unwrap_or(false),
        routes: routes(table, config)?,
        headers: headers(table)?,
        list: table.read("list", Item::flag)?.unwrap_or(false),
        gzip: table.read("gzip", |i| value(i, args::gzip))?,
        try_files: try_files(table)?,
        error_pages: error_pages(table)?,
        users: users(table, config)?,
        redirect_to_https: table.read("redirect_to_https", Item::flag)?,
        hsts: table.read("hsts", |i| value(i, args::hsts))?,
    };
    let has_files = site.dir.is_some() || site.routes.iter().any(|route| matches!(route.to, To::Dir(_)));
    if let (Some(item), false) = (table.get("gzip"), has_files) {
        return Err(item.error("gzip needs files; name a directory, as in dir = \"public\""));
    }
    if site.dir.is_none()
        && let Some(item) = ["list", "try_files", "error_pages"].iter().find_map(|key| table.get(key))
    {
        return Err(item.error(format!("{} needs files; name a directory, as in dir = \"public\"", item.key)));
    }
    let files_only = table.read("files_only", Item::flag)? == Some(true);
    match table.get("files_only") {
        Some(item) if files_only && site.dir.is_none() && site.routes.is_empty() => Err(item.error(
            "files_only: there is nothing else to answer with; name a directory, as in dir = \"public\"",
        )),
        Some(item) if files_only && site.demo_routes => {
            Err(item.error("files_only: demo_routes = true says the opposite; leave out one of them"))
        }
        _ => Ok(site),
    }
}

/// `[[host]]`, of the whole server or of a listener; no name is there twice.
pub(super) fn hosts(table: &Table<'_>, config: &Path) -> Result<Vec<HostArgs>, FileError> {
    let Some(item) = table.get("host") else { return Ok(Vec::new()) };
    let mut taken: Vec<HostName> = Vec::new();
    let mut all = Vec::new();
    for table in &item.tables(HOST)? {
        let Some(names) = table.get("name") else {
            let message = "a host needs its name, as in name = \"example.org\"";
            return Err(table.source.error(table.span.clone(), message));
        };
        let before = taken.len();
        for name in names.one_or_more() {
            let text = name.text("a name such as \"example.org\"")?;
            let host: HostName = text.parse().map_err(|e| name.error(format!("name: {e}")))?;
            if taken.contains(&host) {
                return Err(name.error(format!("name: {text} has a site already")));
            }
            taken.push(host);
        }
        if taken.len() > HOSTS {
            return Err(names.error(format!("name: more than {HOSTS} hosts")));
        }
        if taken.len() == before {
            return Err(names.error("name: none is written here; leave out the [[host]]"));
        }
        let names = taken[before..].to_vec();
        all.push(HostArgs { names, site: site(table, config)?, tls: tls(table, config)? });
    }
    Ok(all)
}

/// `try_files`: names of files, or patterns with `$uri`.
pub(super) fn try_files(table: &Table<'_>) -> Result<Vec<String>, FileError> {
    let Some(item) = table.get("try_files") else { return Ok(Vec::new()) };
    let names = item.one_or_more();
    if names.len() > TRIED {
        return Err(item.error(format!("try_files: more than {TRIED} names")));
    }
    let name = |item: &Item<'_>| {
        file_beneath(item, "a file of the directory, such as \"/index.html\" or \"$uri.html\"")
    };
    names.iter().map(name).collect()
}

/// `error_pages`: files by status.
pub(super) fn error_pages(table: &Table<'_>) -> Result<Vec<(u16, String)>, FileError> {
    let Some(item) = table.get("error_pages") else { return Ok(Vec::new()) };
    let entries = item.entries("pages by status, as in error_pages = { 404 = \"/404.html\" }")?;
    let page = |item: &Item<'_>| {
        let status = item.key.parse().ok().filter(|status| (400..=599).contains(status));
        let Some(status) = status else {
            let message =
                format!("error_pages: {} is no status of an error; write one from 400 to 599", item.key);
            return Err(item.source.error(item.key_span.clone(), message));
        };
        Ok((status, file_beneath(item, "a file of the directory, such as \"/404.html\"")?))
    };
    entries.iter().map(page).collect()
}

/// `users` and `realm`.
pub(super) fn users(table: &Table<'_>, config: &Path) -> Result<Option<UsersArgs>, FileError> {
    let realm = table.read("realm", |i| i.text("what browsers show, such as \"staff\""))?;
    let Some(item) = table.get("users") else {
        return match table.get("realm") {
            Some(item) => {
                Err(item
                    .error("realm: there are no users; name their file, as in users = \"users.htpasswd\""))
            }
            None => Ok(None),
        };
    };
    let users = UsersArgs { file: beside(item, config)?, realm: realm.unwrap_or(REALM).to_owned() };
    users.read().map_err(|why| item.error(format!("users: {why}")))?;
    Ok(Some(users))
}

impl UsersArgs {
    /// The users, or what is wrong with them.
    pub(crate) fn read(&self) -> Result<Users, String> {
        let file = self.file.display();
        let mut text = String::new();
        InputFile::open(&self.file)
            .and_then(|users| users.take(USERS_BYTES + 1).read_to_string(&mut text))
            .map_err(|e| format!("{file} cannot be read: {}", said(&e)))?;
        if text.len() as u64 > USERS_BYTES {
            return Err(format!("{file} is larger than {} MiB", USERS_BYTES >> 20));
        }
        Users::parse(&text, &self.realm).map_err(|e| format!("{file}: {e}"))
    }
}

/// The kernel keeps it beneath the directory; obvious faults are reported at once.
fn file_beneath(item: &Item<'_>, what: &str) -> Result<String, FileError> {
    let name = item.text(what)?;
    let plain = name.strip_prefix('/').or(name.starts_with("$uri").then_some(name));
    if plain.is_none_or(|name| name.is_empty() || name.split('/').any(|s| s == ".." || s == ".")) {
        let message = format!("{}: write {what}: with a slash in front, and without . and ..", item.key);
        return Err(item.error(message));
    }
    Ok(name.to_owned())
}

/// `headers`, each checked where it stands.
pub(super) fn headers(table: &Table<'_>) -> Result<Vec<(String, String)>, FileError> {
    let Some(item) = table.get("headers") else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for field in item.entries("names and values, as in headers = { Cache-Control = \"max-age=60\" }")? {
        for value in field.one_or_more() {
            let text = value.text("the value of a field, such as \"max-age=60\"")?;
            all.push(args::field(&field.key, text).map_err(|e| value.error(format!("headers: {e}")))?);
        }
    }
    if all.len() > HEADERS {
        return Err(item.error(format!("headers: more than {HEADERS} fields")));
    }
    Ok(all)
}

/// `[[route]]`, each checked where it stands.
pub(super) fn routes(top: &Table<'_>, config: &Path) -> Result<Vec<ConfiguredRoute>, FileError> {
    let Some(item) = top.get("route") else { return Ok(Vec::new()) };
    let tables = item.tables(ROUTE)?;
    let mut all = Vec::new();
    let mut rules = Vec::new();
    for table in &tables {
        let (route, rule) = route(table, config)?;
        all.push(route);
        rules.push(rule);
    }
    RouteTable::new(rules).map_err(|e| match e {
        BadTable::Twice(i) => tables[i].source.error(
            tables[i].get("prefix").map_or(tables[i].span.clone(), Item::span),
            format!("prefix: {e}, {}", all[i].prefix),
        ),
        BadTable::TooMany => item.error(format!("route: {e}")),
    })?;
    Ok(all)
}

fn route(table: &Table<'_>, config: &Path) -> Result<(ConfiguredRoute, Rule), FileError> {
    let Some(prefix) = table.get("prefix") else {
        return Err(table
            .source
            .error(table.span.clone(), "a route needs a prefix, as in prefix = \"/static/\""));
    };
    let name = prefix.text("the beginning of a path, such as \"/static/\"")?;
    if encoded(name) {
        let message = "prefix: a prefix is compared with the path as it is once decoded; write it so, \"/a b\" instead of \"/a%20b\"";
        return Err(prefix.error(message));
    }
    let status = table.read("status", |i| i.whole(0, 999).map(|n| n as u16))?;
    let (item, to) = match (table.get("dir"), table.get("redirect"), table.get("status")) {
        (Some(item), None, None) => (item, To::Dir(directory(item, config)?)),
        (None, Some(item), _) => {
            let to = item.text("a path or a URL to go to")?.to_owned();
            (item, To::Redirect(to, status.unwrap_or(REDIRECT)))
        }
        (None, None, Some(item)) if matches!(status, Some(301 | 302 | 303 | 307 | 308)) => {
            return Err(item.error("status: a redirect needs a place, as in redirect = \"/new/\""));
        }
        (None, None, Some(item)) => (item, To::Status(status.unwrap_or(0))),
        (None, None, None) if MORE.iter().any(|key| table.get(key).is_some()) => (prefix, To::Site),
        (None, None, None) => {
            let message = "a route says one of dir, redirect and status: what is at its prefix; or more of what the site has there, as in allow = \"10.0.0.0/8\"";
            return Err(table.source.error(table.span.clone(), message));
        }
        (Some(_), Some(other), _) | (Some(_), None, Some(other)) => {
            let message = format!("{} does not go with dir: one of them is at the prefix", other.key);
            return Err(table.source.error(other.key_span.clone(), message));
        }
    };
    let list = table.read("list", Item::flag)?.unwrap_or(false);
    if let (Some(item), true, None) = (table.get("list"), list, table.get("dir")) {
        return Err(item.error("list: there is nothing to list at this prefix; name a directory by dir"));
    }
    if let (Some(item), None) = (table.get("gzip"), table.get("dir")) {
        return Err(item.error("gzip: there are no files at this prefix; name a directory by dir"));
    }
    let route = ConfiguredRoute {
        prefix: name.to_owned(),
        to,
        list,
        gzip: table.read("gzip", |i| value(i, args::gzip))?,
        headers: headers(table)?,
        users: users(table, config)?,
        access: NetworkAccess { allow: networks(table, "allow")?, deny: networks(table, "deny")? },
        limits: RouteLimits {
            body: table.read("max_body", |i| value(i, args::bytes))?,
            body_time: table.read("body_timeout", |i| value(i, args::time))?,
            write_time: table.read("write_timeout", |i| value(i, args::time))?,
        },
    };
    let rule = route.rule().map_err(|e| match e {
        NoRule::Bad(e @ BadRule::Prefix) => prefix.error(format!("prefix: {e}")),
        NoRule::Bad(e @ BadRule::RedirectStatus) => {
            table.get("status").unwrap_or(item).error(format!("status: {e}"))
        }
        NoRule::Bad(e) => item.error(format!("{}: {e}", item.key)),
        NoRule::Dir(e) => item.error(format!("dir: it cannot be served: {}", said(&e))),
        NoRule::Users(why) => table.get("users").unwrap_or(item).error(format!("users: {why}")),
        NoRule::Field(e) => table.get("headers").unwrap_or(item).error(format!("headers: {e}")),
    })?;
    Ok((route, rule))
}

/// A list of networks.
pub(super) fn networks(table: &Table<'_>, key: &str) -> Result<Vec<Network>, FileError> {
    let all = values(table, key, args::network)?;
    match table.get(key) {
        Some(item) if all.len() > NETWORKS => {
            Err(item.error(format!("{key}: {} networks: at most {NETWORKS} are possible", all.len())))
        }
        _ => Ok(all),
    }
}

/// Whether there are bytes written as `%20` is.
fn encoded(name: &str) -> bool {
    name.as_bytes().windows(3).any(|w| w[0] == b'%' && w[1..].iter().all(u8::is_ascii_hexdigit))
}

/// Why there is no rule for a route.
#[derive(Debug)]
pub(crate) enum NoRule {
    Bad(BadRule),
    Dir(std::io::Error),
    Field(BadField),
    Users(String),
}

impl ConfiguredRoute {
    /// Makes the server's rule of it; opens the directory.
    pub(crate) fn rule(&self) -> Result<Rule, NoRule> {
        let action = match &self.to {
            To::Dir(dir) => {
                let defaults = FileOptions::default();
                let gzip = self.gzip.unwrap_or(defaults.gzip);
                let options = FileOptions { list: self.list, gzip, ..defaults };
                Action::Dir(FileRoot::open(dir).map_err(NoRule::Dir)?.with_options(options))
            }
            To::Redirect(to, status) => Action::Redirect { to: to.clone(), status: *status },
            To::Status(status) => Action::Status(*status),
            To::Site => Action::Site,
        };
        let fields = ExtraFields::new(self.headers.clone()).map_err(|(_, e)| NoRule::Field(e))?;
        let users = self.users.as_ref().map(UsersArgs::read).transpose().map_err(NoRule::Users)?;
        let rule = Rule::new(&self.prefix, action).map_err(NoRule::Bad)?;
        let rule = rule.with_access(self.access.clone()).with_limits(self.limits);
        Ok(rule.with_fields(fields).with_users(users))
    }
}
