//! `--curl 'curl ...'`: a curl command, typed or copied from a browser, as a request.

mod options;

use std::path::Path;
use std::sync::Arc;

use linerate_http::client::{Body, BodyPart};
use linerate_load::plan::body::read_file;
use linerate_load::plan::file::{DEFAULT_SEED, RouteKeys};
use linerate_load::plan::form::{FormField, multipart};
use linerate_load::plan::parts::{
    COMPRESSED, basic_auth, has_field, is_hop_by_hop, is_token, literal, set_field,
};
use linerate_load::plan::route::HaproxyVersion;
use linerate_load::plan::tls::TlsVersion;
use linerate_load::plan::units::quoted;
use linerate_load::plan::{Expectation, Order, Request};

use self::options::{CurlOption, Effect};
use super::{
    PlanSource, SourceError, SourceProtocol, decode_percent, encode_component, listed, origin_of, shell,
    split_url,
};

/// Reads a curl command. Files that it names (`-d @FILE`) are read. Slots in it are filled in.
pub(crate) fn parse(command: &str) -> Result<PlanSource, SourceError> {
    parse_command(command).map_err(|why| SourceError::new(format!("--curl: {why}")))
}

/// What the command's options add up to.
#[derive(Debug, Default)]
struct Command {
    urls: Vec<String>,
    method: Option<String>,
    fields: Vec<(String, String)>,
    /// Fields that curl would send by itself and `-H 'Name:'` takes away.
    removed: Vec<String>,
    body: Option<Body>,
    form: Vec<FormField>,
    json: bool,
    get: bool,
    head: bool,
    globoff: bool,
    compressed: bool,
    wire: SourceProtocol,
    ciphers: [Option<String>; 2],
    cookies: Vec<String>,
    user: Option<String>,
    upload: Option<String>,
    query: Vec<String>,
    route: RouteKeys,
    proxy_user: Option<String>,
    left_out: Vec<String>,
    notes: Vec<String>,
}

fn parse_command(command: &str) -> Result<PlanSource, String> {
    const FOR_WINDOWS: &str = "this is quoted for the Windows command prompt; copy it as cURL (bash) instead";
    let first =
        command.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start());
    if first.starts_with('^') {
        return Err(FOR_WINDOWS.to_owned());
    }
    let (words, rest) = shell::words(command)?;
    if words.iter().any(|word| word == "^") {
        return Err(FOR_WINDOWS.to_owned());
    }
    let Some((program, arguments)) = words.split_first() else {
        return Err("the command is empty; write for example 'curl http://127.0.0.1:8080/'".to_owned());
    };
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    if name != "curl" && name != "curl.exe" {
        return Err(format!("a command that begins with curl is wanted, not with {}", quoted(program)));
    }
    let mut command = Command::default();
    if let Some(rest) = rest {
        command.notes.push(format!("curl: what follows the command is left out: {}", quoted(&rest)));
    }
    command.read(arguments)?;
    command.finish()
}

impl Command {
    fn read(&mut self, arguments: &[String]) -> Result<(), String> {
        let mut rest = arguments.iter();
        let mut only_urls = false;
        while let Some(word) = rest.next() {
            let mut value =
                |option: &str| rest.next().cloned().ok_or_else(|| format!("{option} needs a value after it"));
            match word.strip_prefix('-') {
                Some("-") if !only_urls => only_urls = true,
                Some(long) if long.starts_with('-') && !only_urls => {
                    let option = options::long(&long[1..]).ok_or_else(|| unknown(word))?;
                    let value = if option.takes_value { value(word)? } else { String::new() };
                    self.apply(option, word, &value)?;
                }
                Some(letters) if !letters.is_empty() && !only_urls => self.read_short(letters, value)?,
                _ => self.urls.push(word.clone()),
            }
        }
        Ok(())
    }

    /// `-sSX POST`, `-XPOST`: letters that may be run on, the last with its value.
    fn read_short(
        &mut self,
        letters: &str,
        mut value: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        for (at, letter) in letters.char_indices() {
            let shown = format!("-{letter}");
            let option = options::short(letter).ok_or_else(|| unknown(&shown))?;
            if option.takes_value {
                let attached = &letters[at + letter.len_utf8()..];
                let value = if attached.is_empty() { value(&shown)? } else { attached.to_owned() };
                return self.apply(option, &shown, &value);
            }
            self.apply(option, &shown, "")?;
        }
        Ok(())
    }

    fn apply(&mut self, option: &CurlOption, shown: &str, value: &str) -> Result<(), String> {
        match option.effect {
            Effect::None => {}
            Effect::Note(why) => self.notes.push(format!("curl: {shown}: {why}")),
            Effect::Refuse(why) => return Err(format!("{shown}: {why}")),
            Effect::Url => self.urls.push(value.to_owned()),
            Effect::Method if !is_token(value) => {
                return Err(format!("{shown} {}: is no method", quoted(value)));
            }
            Effect::Method => self.method = Some(value.to_owned()),
            Effect::Header => self.header(value)?,
            Effect::Field(name) => self.add_default(name, value),
            Effect::Referer => {
                self.add_default("Referer", value.split(";auto").next().unwrap_or(value));
            }
            Effect::Range => self.add_default("Range", &format!("bytes={value}")),
            Effect::Bearer => self.add_default("Authorization", &format!("Bearer {value}")),
            Effect::Cookie if !value.contains('=') => {
                return Err(format!(
                    "{shown} {}: cookie files are not read; write the cookies as NAME=VALUE",
                    quoted(value)
                ));
            }
            Effect::Cookie => self.cookies.push(value.trim_end_matches([';', ' ']).to_owned()),
            Effect::User => self.user = Some(value.to_owned()),
            Effect::Data => {
                self.add_data(with_file(shown, value, |bytes| {
                    bytes.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n' | 0)).collect()
                })?);
            }
            Effect::DataBinary => self.add_data(with_file(shown, value, |bytes| bytes)?),
            Effect::DataRaw => self.add_data(typed(value)),
            Effect::Form => {
                self.form
                    .push(FormField::parse(value, Path::new("")).map_err(|why| format!("{shown}: {why}"))?);
            }
            Effect::FormString => {
                self.form.push(FormField::plain(value).map_err(|why| format!("{shown}: {why}"))?);
            }
            Effect::DataUrlencode => self.add_data(typed(&urlencoded(shown, value)?)),
            Effect::Json => {
                self.json = true;
                let more = with_file(shown, value, |bytes| bytes)?;
                self.body.get_or_insert_default().push(more);
            }
            Effect::Query => self.query.push(value.to_owned()),
            Effect::Upload => self.upload = Some(value.to_owned()),
            Effect::Get => self.get = true,
            Effect::Head => self.head = true,
            Effect::Globoff => self.globoff = true,
            Effect::Compressed => self.compressed = true,
            Effect::UnixSocket => self.route.unix_socket = Some(value.into()),
            Effect::ConnectTo => self.route.connect_to.push(value.to_owned()),
            Effect::Resolve => self.route.resolve.push(value.to_owned()),
            Effect::Proxy => self.route.proxy = Some(value.to_owned()),
            Effect::ProxyUser => self.proxy_user = Some(value.to_owned()),
            Effect::NoProxy => self.route.noproxy = Some(value.to_owned()),
            Effect::ProxyLine => self.route.haproxy_protocol = Some(HaproxyVersion::V1),
            Effect::Insecure => self.wire.tls.insecure = Some(true),
            Effect::Http(version) => self.wire.http = Some(version),
            Effect::Family(is_ipv6) => self.wire.ipv6 = Some(is_ipv6),
            Effect::TlsFrom(version) => self.wire.tls.least = Some(version),
            Effect::TlsTo => self.wire.tls.most = tls_to(shown, value)?,
            Effect::Ciphers(of) => self.ciphers[of] = Some(value.to_owned()),
        }
        Ok(())
    }

    /// `Name: value` adds, `Name:` takes away what curl would add, `Name;` sends an empty value.
    fn header(&mut self, text: &str) -> Result<(), String> {
        if text.starts_with('@') {
            return Err(format!(
                "-H {}: files of headers are not read; write each as -H 'Name: value'",
                quoted(text)
            ));
        }
        let (name, value) = match (text.split_once(':'), text.strip_suffix(';')) {
            (Some((name, value)), _) => (name.trim(), Some(value.trim()).filter(|v| !v.is_empty())),
            (None, Some(name)) => (name.trim(), Some("")),
            (None, None) => return Err(format!("-H {}: has no colon; write 'Name: value'", quoted(text))),
        };
        // Copied HTTP/2 requests name their pseudo-fields :authority and so on.
        if text.starts_with(':') {
            self.left_out.push(text.split(':').take(2).collect::<Vec<_>>().join(":"));
            return Ok(());
        }
        if !is_token(name) {
            return Err(format!("-H {}: {} is no header name", quoted(text), quoted(name)));
        }
        if value.is_some_and(|v| v.chars().any(char::is_control)) {
            return Err(format!(
                "-H {}: the value holds a control character, such as a line break",
                quoted(text)
            ));
        }
        match value {
            None => self.removed.push(name.to_owned()),
            Some(value) if is_hop_by_hop(name) && !closes(name, value) => self.left_out.push(name.to_owned()),
            Some(value) => self.fields.push((name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn add_data(&mut self, more: BodyPart) {
        match &mut self.body {
            Some(body) => {
                body.push(typed("&"));
                body.push(more);
            }
            None => self.body.get_or_insert_default().push(more),
        }
    }

    /// A field that curl adds unless `-H` gives or removes it; an empty value removes it.
    fn add_default(&mut self, name: &str, value: &str) {
        let taken =
            has_field(&self.fields, name) || self.removed.iter().any(|r| r.eq_ignore_ascii_case(name));
        if !taken && !value.is_empty() {
            self.fields.push((name.to_owned(), value.to_owned()));
        }
    }

    fn finish(mut self) -> Result<PlanSource, String> {
        if self.urls.is_empty() {
            return Err("there is no URL in the command".to_owned());
        }
        self.add_proxy_user()?;
        let upload = self.upload.take();
        if !self.form.is_empty() {
            if self.body.is_some() || upload.is_some() {
                return Err("-F and -d or -T are both given; a request has one body".to_owned());
            }
            let (content_type, body) = multipart(&self.form, DEFAULT_SEED, std::iter::empty());
            set_field(&mut self.fields, "Content-Type", &content_type);
            self.body = Some(body);
        }
        if let Some(name) = &upload {
            if self.body.is_some() {
                return Err("-T and -d are both given; a request has one body".to_owned());
            }
            self.body = Some(Body::raw(file("-T", name)?));
        }
        if self.get {
            let shown = |part: &BodyPart| {
                let text = String::from_utf8_lossy(&part.bytes);
                if part.slots { text.into_owned() } else { literal(&text).into_owned() }
            };
            self.query.extend(self.body.take().map(|body| body.parts().iter().map(shown).collect()));
        }
        self.add_ciphers();
        self.add_own_fields(upload.is_some());
        let method = self.method(upload.is_some());
        let mut origin: Option<String> = None;
        let mut first_url = String::new();
        let mut requests = Vec::new();
        for url in std::mem::take(&mut self.urls) {
            let (this_origin, request) = self.request(&url, &method, upload.as_deref())?;
            match &origin {
                Some(origin) if *origin != this_origin => {
                    return Err(format!("{origin} and {this_origin} are two servers; a run has one target"));
                }
                _ => origin = Some(this_origin),
            }
            if requests.is_empty() {
                first_url = format!("{}{}", origin.as_deref().unwrap_or(""), request.path);
            }
            requests.push(request);
        }
        if !self.left_out.is_empty() {
            self.notes.push(format!(
                "curl: fields of its connection are left out, ours come by themselves: {}",
                listed(&self.left_out)
            ));
        }
        let order = match requests.len() {
            1 => Order::Weighted,
            n => Order::Listed((0..n as u32).collect()),
        };
        Ok(PlanSource {
            url: Some(first_url),
            requests,
            order,
            pace: None,
            wire: self.wire,
            route: self.route,
            notes: self.notes,
        })
    }

    /// curl has a list for TLS 1.3 and one for the versions before. What one of them does not say stays as it was.
    fn add_ciphers(&mut self) {
        if self.ciphers.iter().all(Option::is_none) {
            return;
        }
        let mut all = Vec::new();
        let given = std::mem::take(&mut self.ciphers);
        for (given, usual) in given.iter().zip([SUITES_13, SUITES_12]) {
            let Some(list) = given else {
                all.extend(usual.map(str::to_owned));
                continue;
            };
            for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
                if linerate_tls::is_cipher(name) {
                    all.push(name.to_owned());
                } else {
                    self.notes
                        .push(format!("curl: no cipher suite of linerate's, left out: {}", quoted(name)));
                }
            }
        }
        self.wire.tls.ciphers = Some(all.join(":"));
    }

    /// `-U NAME:PASSWORD` belongs into the proxy's URL.
    fn add_proxy_user(&mut self) -> Result<(), String> {
        let Some(user) = self.proxy_user.take() else { return Ok(()) };
        let Some(proxy) = &mut self.route.proxy else {
            return Err("-U is for a proxy, and there is none: add -x http://HOST:PORT".to_owned());
        };
        let (name, password) = user.split_once(':').unwrap_or((&user, ""));
        let encoded = [name, password].map(|part| encode_component(part.as_bytes())).join(":");
        let (scheme, place) = proxy.split_once("://").unwrap_or(("http", proxy));
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        *proxy = format!("{scheme}://{encoded}@{place}");
        Ok(())
    }

    fn add_own_fields(&mut self, upload: bool) {
        self.add_default("Accept", if self.json { "application/json" } else { "*/*" });
        if self.compressed {
            self.add_default(COMPRESSED.0, COMPRESSED.1);
        }
        if !self.cookies.is_empty() {
            self.add_default("Cookie", &self.cookies.join("; "));
        }
        if let Some(user) = self.user.take() {
            let user = if user.contains(':') { user } else { format!("{user}:") };
            self.add_default("Authorization", &basic_auth(&user).1);
        }
        if self.body.is_some() && !upload {
            let usual = if self.json { "application/json" } else { "application/x-www-form-urlencoded" };
            self.add_default("Content-Type", usual);
        }
    }

    fn method(&self, upload: bool) -> String {
        let usual = match (self.head, upload, &self.body) {
            (true, ..) => "HEAD",
            (_, true, _) => "PUT",
            (.., Some(_)) => "POST",
            _ => "GET",
        };
        self.method.clone().unwrap_or_else(|| usual.to_owned())
    }

    /// The origin and the request of a URL.
    fn request(&self, url: &str, method: &str, upload: Option<&str>) -> Result<(String, Request), String> {
        if !self.globoff && (url.replace("{{", "").contains('{') || past_authority(url).contains('[')) {
            return Err(format!(
                "{}: curl would make several URLs of it; write each by itself, or -g to take it as it is",
                quoted(url)
            ));
        }
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let (parsed, mut path) = split_url(&full)?;
        if let Some(name) = upload.filter(|_| path.ends_with('/')) {
            path.push_str(&encode_component(
                Path::new(name).file_name().unwrap_or_default().as_encoded_bytes(),
            ));
        }
        for part in &self.query {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&linerate_load::plan::parts::encode_target(part));
        }
        let mut fields = self.fields.clone();
        if !parsed.username().is_empty() && !has_field(&fields, "Authorization") {
            let user = [parsed.username(), parsed.password().unwrap_or("")].map(decode_percent);
            fields.push(basic_auth(&String::from_utf8_lossy(&user.join(&b':'))));
        }
        let request = Request {
            name: format!("{method} {path}"),
            weight: 1.0,
            method: method.to_owned(),
            path,
            fields,
            body: self.body.clone(),
            expect: Expectation::default(),
        };
        Ok((origin_of(&parsed), request))
    }
}

/// The suites that are offered where curl's list says nothing.
const SUITES_13: [&str; 3] =
    ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
const SUITES_12: [&str; 3] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
];

/// `--tls-max VERSION`.
fn tls_to(shown: &str, value: &str) -> Result<Option<TlsVersion>, String> {
    match value {
        "default" => Ok(None),
        "1.2" => Ok(Some(TlsVersion::Tls12)),
        "1.3" => Ok(Some(TlsVersion::Tls13)),
        _ => Err(format!("{shown} {}: only TLS 1.2 and 1.3 are spoken", quoted(value))),
    }
}

fn unknown(option: &str) -> String {
    format!(
        "unknown option {} of curl; leave it out, or say the same with a flag of linerate",
        quoted(option)
    )
}

/// `Connection: close` is meant: each request on a connection of its own.
fn closes(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
}

/// What of a URL follows its host, in which brackets mean ranges.
fn past_authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find(['/', '?']).map_or("", |at| &rest[at..])
}

fn file(shown: &str, name: &str) -> Result<Arc<[u8]>, String> {
    match name {
        "-" => Err(format!("{shown} -: standard input is not read; put it in a file, with @FILE")),
        name => read_file(Path::new(name)).map_err(|why| format!("{shown}: {name}: cannot be read: {why}")),
    }
}

/// Text of the command itself, in which slots are filled.
fn typed(text: &str) -> BodyPart {
    BodyPart { bytes: text.as_bytes().into(), slots: true }
}

/// The value, or the file that it names as `@FILE`, which is sent as it is but for `change`.
fn with_file(shown: &str, value: &str, change: impl Fn(Arc<[u8]>) -> Arc<[u8]>) -> Result<BodyPart, String> {
    match value.strip_prefix('@') {
        Some(name) => Ok(BodyPart { bytes: change(file(shown, name)?), slots: false }),
        None => Ok(typed(value)),
    }
}

/// `content`, `=content`, `name=content`, `@file` and `name@file`, as `--data-urlencode` takes them.
fn urlencoded(shown: &str, value: &str) -> Result<String, String> {
    let (name, content) = match value.find(['=', '@']) {
        Some(at) if value[at..].starts_with('=') => (&value[..at], value.as_bytes()[at + 1..].to_vec()),
        Some(at) => (&value[..at], file(shown, &value[at + 1..])?.to_vec()),
        None => ("", value.as_bytes().to_vec()),
    };
    let content = encode_component(&content);
    Ok(if name.is_empty() { content } else { format!("{name}={content}") })
}

#[cfg(test)]
mod tests;
