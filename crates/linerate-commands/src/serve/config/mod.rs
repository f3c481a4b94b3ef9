//! The configuration file: TOML with the words of the flags. Each value is read as the flag's would
//! be; what can't be points at its line and column.

mod site;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use linerate_load::plan::file::table::{Item, Keys, PlanText, Table};
use linerate_load::plan::file::{FileError, read_text};

pub(super) use self::site::NoRule;
use super::args::{self, ServeArgs};
use crate::args::values::busy_poll;
use crate::fault::said;

/// Keys that hold for the server as a whole.
const WHOLE: &[&str] = &[
    "threads",
    "pin",
    "io",
    "interface",
    "busy_poll",
    "pcap_out",
    "fault",
    "http2",
    "http3",
    "tls_cert",
    "tls_key",
    "tls_self_signed",
    "tls_client_ca",
    "tls_ocsp",
    "redirect_to_https",
    "hsts",
    "access_log",
    "log_format",
    "metrics",
    "max_connections",
    "max_connections_per_client",
    "max_rate_per_client",
    "trusted_proxy",
    "proxy_protocol",
    "allow",
    "deny",
    "max_body",
    "max_head",
    "max_fields",
    "header_timeout",
    "body_timeout",
    "idle_timeout",
    "half_close",
    "write_timeout",
    "drain",
    "defer_accept",
    "share_port",
    "user",
    "group",
    "misbehave",
];

const KEYS: Keys = Keys {
    known: &[site::KEYS, WHOLE, &["listen", "host", "listener"]],
    elsewhere: &[
        (&["config", "check_config"], "can't be said in the file itself"),
        (&["cert", "key", "ssl_certificate", "ssl_certificate_key"], "is tls_cert or tls_key here"),
    ],
};

/// Reads it. What it does not say is `None`.
pub(super) fn read(path: &Path) -> Result<ServeArgs, FileError> {
    parse(&read_text(path, "a server's configuration is a screen of text")?, path)
}

fn parse(text: &str, path: &Path) -> Result<ServeArgs, FileError> {
    let source = PlanText { path, text };
    let parsed = source.parse()?;
    let top = Table::new(source, 0..0, parsed.get_ref(), KEYS)?;
    let flag = |key: &str| top.read(key, Item::flag);
    let time = |key: &str| top.read(key, |i| value(i, args::time));
    let name = |key: &str, what: &str| top.read(key, |i| i.text(what).map(str::to_owned));
    let count = |key: &str| top.read(key, |i| value(i, args::count));
    Ok(ServeArgs {
        config: None,
        listen: values(&top, "listen", |text| args::listen_beside(text, path))?,
        threads: top.read("threads", |i| value(i, args::threads))?,
        pin: flag("pin")?,
        io: top.read("io", parsed_word)?,
        interface: top
            .read("interface", |i| i.text("the name of an interface, such as \"eth0\"").map(str::to_owned))?,
        busy_poll: top.read("busy_poll", |i| value(i, busy_poll))?,
        pcap_out: top.read("pcap_out", |i| beside(i, path))?,
        fault: top.read("fault", parsed_word)?,
        http2: top.read("http2", |i| value(i, args::switch))?,
        http3: flag("http3")?,
        dir: top.read("dir", |i| directory(i, path))?,
        demo_routes: flag("demo_routes")?,
        files_only: flag("files_only")?,
        tls_cert: top.read("tls_cert", |i| beside(i, path))?,
        tls_key: top.read("tls_key", |i| beside(i, path))?,
        tls_self_signed: flag("tls_self_signed")?,
        tls_client_ca: top.read("tls_client_ca", |i| beside(i, path))?,
        tls_ocsp: top.read("tls_ocsp", |i| beside(i, path))?,
        redirect_to_https: flag("redirect_to_https")?,
        hsts: top.read("hsts", |i| value(i, args::hsts))?,
        access_log: top.read("access_log", |i| log(i, path))?,
        log_format: top.read("log_format", parsed_word)?,
        metrics: top.read("metrics", |i| value(i, |text| args::beside(text, path)))?,
        max_connections: count("max_connections")?,
        max_connections_per_client: count("max_connections_per_client")?,
        max_rate_per_client: top.read("max_rate_per_client", |i| value(i, args::rate))?,
        trusted_proxy: values(&top, "trusted_proxy", args::network)?,
        proxy_protocol: flag("proxy_protocol")?,
        allow: site::networks(&top, "allow")?,
        deny: site::networks(&top, "deny")?,
        max_body: top.read("max_body", |i| value(i, args::bytes))?,
        max_head: top.read("max_head", |i| value(i, args::head_bytes))?,
        max_fields: top.read("max_fields", |i| value(i, args::fields))?,
        header_timeout: time("header_timeout")?,
        body_timeout: time("body_timeout")?,
        idle_timeout: time("idle_timeout")?,
        half_close: flag("half_close")?,
        write_timeout: time("write_timeout")?,
        drain: top.read("drain", |i| value(i, args::drain))?,
        defer_accept: flag("defer_accept")?,
        share_port: flag("share_port")?,
        user: name("user", "the name of a user, such as \"www-data\"")?,
        group: name("group", "the name of a group, such as \"www-data\"")?,
        check_config: false,
        list: flag("list")?,
        gzip: top.read("gzip", |i| value(i, args::gzip))?,
        header: site::headers(&top)?,
        try_files: site::try_files(&top)?,
        error_pages: site::error_pages(&top)?,
        users: site::users(&top, path)?,
        routes: site::routes(&top, path)?,
        places: site::listeners(&top, path)?,
        hosts: site::hosts(&top, path)?,
        port: None,
        given: Vec::new(),
        sockets: Vec::new(),
        misbehave: values(&top, "misbehave", |text| text.parse().map_err(|e| format!("{e}")))?,
    })
}

/// A value as the flag reads it.
fn value<T>(item: &Item<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<T, FileError> {
    read(&item.scalar()?).map_err(|why| item.error(format!("{}: {why}", item.key)))
}

/// One of them, or several in an array.
fn values<T>(
    top: &Table<'_>,
    key: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, FileError> {
    let Some(item) = top.get(key) else { return Ok(Vec::new()) };
    let items = item.one_or_more();
    if items.is_empty() {
        return Err(item.error(format!("{key}: none is written here; leave the key out for the default")));
    }
    items.iter().map(|i| value(i, &read)).collect()
}

fn parsed_word<T: FromStr<Err = String>>(item: &Item<'_>) -> Result<T, FileError> {
    value(item, |text| text.parse())
}

/// A path; what is not absolute lies beside the file.
fn beside(item: &Item<'_>, config: &Path) -> Result<PathBuf, FileError> {
    let name = item.text("a path such as \"public\"")?;
    let folder = config.parent().unwrap_or(Path::new(""));
    Ok(folder.join(name))
}

fn directory(item: &Item<'_>, config: &Path) -> Result<PathBuf, FileError> {
    let dir = beside(item, config)?;
    match dir.metadata() {
        Ok(meta) if meta.is_dir() => Ok(dir),
        Ok(_) => Err(item.error(format!("dir: {} is no directory", dir.display()))),
        Err(e) => Err(item.error(format!("dir: {} cannot be served: {}", dir.display(), said(&e)))),
    }
}

fn log(item: &Item<'_>, config: &Path) -> Result<String, FileError> {
    if item.text("a file, or \"-\" for standard output")? == "-" {
        return Ok("-".to_owned());
    }
    let file = beside(item, config)?;
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(item.error(format!("access_log: there is no directory {}", folder.display())));
    }
    file.into_os_string().into_string().map_err(|_| item.error("access_log: the path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text, Path::new("serve.toml")).expect_err(text).to_string()
    }

    #[test]
    fn everything_that_flags_say() {
        let text = "listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nthreads = 2\npin = true\nio = \"uring\"\ndir = \".\"\n\
            files-only = false\naccess_log = \"-\"\nlog_format = \"json\"\nmetrics = \"127.0.0.1:9\"\n\
            max_connections = \"10k\"\nmax_body = \"1MiB\"\nhalf_close = true\nmax_head = 4096\nmax_fields = 7\nheader_timeout = \"3s\"\n\
            body_timeout = 4\nidle_timeout = \"500ms\"\nwrite_timeout = \"1m\"\ndrain = 0\ndefer_accept = true\n\
            share_port = true\nhttp2 = \"off\"\nhttp3 = true\nbusy_poll = \"50us\"\nmisbehave = \"stall=5\"\n";
        let all = parse(text, Path::new("serve.toml")).expect("sound");
        assert_eq!((all.listen.len(), all.threads, all.max_connections), (2, Some(2), Some(10_000)));
        assert_eq!(all.idle_timeout.map(|d| d.as_millis()), Some(500));
        assert_eq!((all.max_body, all.half_close), (Some(1 << 20), Some(true)));
        assert_eq!((all.pin, all.files_only, all.misbehave.len()), (Some(true), Some(false), 1));
        assert_eq!((all.defer_accept, all.share_port), (Some(true), Some(true)));
        assert_eq!((all.http2, all.http3), (Some(false), Some(true)));
        assert_eq!(all.busy_poll.map(|d| d.as_micros()), Some(50));
        let flags = ServeArgs { threads: Some(1), ..ServeArgs::default() };
        let both = flags.over(all);
        assert_eq!((both.threads, both.max_fields), (Some(1), Some(7)), "flags win");
    }

    /// What the pages show, put together, is a configuration.
    #[test]
    fn the_documented_file_is_sound() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let read = |page| std::fs::read_to_string(docs.join(page)).expect("read");
        let page = ["SERVE-CONFIGURATION.md", "HTTP-SERVER.md"].map(read).concat();
        let blocks: Vec<&str> = page
            .split("```toml\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap_or_default())
            .collect();
        let folder = tempfile::tempdir().expect("a folder");
        for dir in ["public", "build/assets", "admin", "blog", "staff"] {
            std::fs::create_dir_all(folder.path().join(dir)).expect("made");
        }
        let hash = "$2b$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234";
        std::fs::write(folder.path().join("staff.htpasswd"), format!("ann:{hash}\n")).expect("written");
        let all = parse(&blocks.concat(), &folder.path().join("serve.toml")).expect("sound");
        assert_eq!((blocks.len(), all.routes.len(), all.places.len()), (5, 6, 2));
        assert_eq!(
            (all.listen.len(), all.max_connections, all.places[0].site.routes.len()),
            (2, Some(50_000), 1)
        );
    }

    #[test]
    fn a_file_of_users_has_a_largest_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = std::fs::File::create(folder.path().join("users")).expect("made");
        let read = |bytes: u64| {
            file.set_len(bytes).expect("as long");
            let all = parse("users = \"users\"", &folder.path().join("serve.toml"));
            all.expect_err("NULs are no users").to_string()
        };
        assert!(read((4 << 20) + 1).contains("users is larger than 4 MiB"));
        assert!(read(4 << 20).contains("users: line 1"));
    }

    /// Files that can't be.
    const WRONG: &[&str] = &[
        "lisen = \"127.0.0.1:1\"",
        "threads = 1\nlisten = \"8080\"",
        "listen = []",
        "threads = 0",
        "pin = 1",
        "io = \"dpdk\"",
        "dir = \"no/such\"",
        "dir = 5",
        "access_log = \"no/such/file\"",
        "log_format = \"apache\"",
        "header_timeout = \"soon\"",
        "max_body = -1",
        "allow = \"10.0.0.0/33\"",
        "deny = [\"10.0.0.1\", \"localhost\"]",
        "dir = \".\"\ngzip = 10",
        "dir = \".\"\ngzip = \"on\"",
        "[[host]]\nname = \"a\"\ngzip = \"off\"",
        "[[route]]\nprefix = \"/a\"\nallow = \"everybody\"",
        "[[route]]\nprefix = \"/a\"\nstatus = 403\ngzip = 1",
        "[[route]]\nprefix = \"/a\"\nmax_body = 0",
        "[[route]]\nprefix = \"/a\"\nbody_timeout = 0",
        "[[route]]\nprefix = \"/a\"\nidle_timeout = \"3s\"",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nallow = \"10.0.0.1\"",
        "misbehave = [\"think\"]",
        "config = \"other.toml\"",
        "ssl_certificate = \"cert.pem\"",
        "listen = \"localhost:80\"",
        "listen = \"127.0.0.1:80800\"",
        "threads = ",
        "route = 5",
        "[route]\nprefix = \"/\"",
        "[[route]]\nstatus = 403",
        "[[route]]\nprefix = \"/a\"",
        "[[route]]\nprefix = \"a\"\nstatus = 403",
        "[[route]]\nprefix = \"/a%20b\"\nstatus = 403",
        "[[route]]\nprefix = \"/a\"\nstatus = 42",
        "[[route]]\nprefix = \"/a\"\nstatus = 302",
        "[[route]]\nprefix = \"/a\"\nredirect = \"b\"",
        "[[route]]\nprefix = \"/a\"\nredirect = \"/b\"\nstatus = 200",
        "[[route]]\nprefix = \"/a\"\ndir = \".\"\nstatus = 403",
        "[[route]]\nprefix = \"/a\"\ndir = \"no/such\"",
        "[[route]]\nprefix = \"/a\"\nstatus = 403\n[[route]]\nprefix = \"/a/\"\nstatus = 404",
        "[[route]]\nprefix = \"/a\"\nhost = \"b\"",
        "[[route]]\nprefix = \"/a\"\nredirekt = \"/b\"",
        "headers = \"Cache-Control: no-cache\"",
        "headers = { Content-Length = \"5\" }",
        "headers = { \"a b\" = \"c\" }",
        "headers = { Cache-Control = 5 }",
        "[[route]]\nprefix = \"/a\"\nstatus = 403\nheaders = { X = \"a\\nb\" }",
        "max_rate_per_client = \"fast\"",
        "max_connections_per_client = 0",
        "trusted_proxy = \"10.0.0.0/40\"",
        "list = 5",
        "dir = \".\"\ntry_files = \"index.html\"",
        "dir = \".\"\ntry_files = [\"/../x\"]",
        "dir = \".\"\nerror_pages = { 200 = \"/x\" }",
        "dir = \".\"\nerror_pages = { 404 = \"x\" }",
        "dir = \".\"\nerror_pages = \"/x\"",
        "[[host]]\nname = \"a\"\nlist = true",
        "[[route]]\nprefix = \"/a\"\nstatus = 403\nlist = true",
        "realm = \"a\"",
        "users = \"no/such\"",
        "users = \"/dev/null\"",
        "hsts = \"soon\"",
        "redirect_to_https = \"yes\"",
        "[[host]]\nname = \"a\"\ntls_cert = \"cert.pem\"",
        "[[host]]\nname = \"a\"\ntls_client_ca = \"cert.pem\"",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\ntls_key = \"key.pem\"",
        "[[listener]]\nlisten = \"ftp://127.0.0.1:1\"",
        "check_config = true",
        "[[host]]\ndir = \".\"",
        "[[host]]\nname = \"example.org:80\"",
        "[[host]]\nname = []",
        "[[host]]\nname = \"a\"\n[[host]]\nname = [\"b\", \"A.\"]",
        "[[host]]\nname = \"a\"\nlisten = \"127.0.0.1:1\"",
        "[[host]]\nserver_name = \"a\"",
        "[host]\nname = \"a\"",
        "listener = \"127.0.0.1:1\"",
        "[[listener]]\ndir = \".\"",
        "[[listener]]\nlisten = \"9000\"",
        "listen = \"127.0.0.1:1\"\n[[listener]]\nlisten = [\"127.0.0.1:2\", \"127.0.0.1:1\"]",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\n[[listener]]\nlisten = \"127.0.0.1:1\"",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nthreads = 2",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\nfiles_only = true",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\ndir = \"no/such\"",
        "[[listener]]\nlisten = \"127.0.0.1:1\"\n[[listener.route]]\nprefix = \"a\"\nstatus = 403",
    ];

    #[test]
    fn errors_name_the_place() {
        let all: Vec<String> = WRONG.iter().map(|text| wrong(text)).collect();
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(all.join("\n"));
        });
    }
}
