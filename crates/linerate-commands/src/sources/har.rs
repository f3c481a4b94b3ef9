//! `--har FILE`: what a browser recorded (HTTP Archive 1.2 and 1.3), sent again in its order.
//!
//! Only the parts that make up a request are read. So a HAR whose timings or responses are not quite by the format
//! serves as well, and errors keep their line and column.

use std::collections::BTreeMap;
use std::path::Path;

use linerate_http::client::Body;
use linerate_load::plan::file::RouteKeys;
use linerate_load::plan::limits::MAX_REQUESTS;
use linerate_load::plan::parts::{is_hop_by_hop, is_token, literal};
use linerate_load::plan::units::quoted;
use linerate_load::plan::{Expectation, Order, Request};
use serde::Deserialize;

use super::limits::MAX_HAR_BYTES;
use super::{
    PlanSource, SourceError, SourceProtocol, count_of, encode_component, listed, origin_of, read_bytes,
    split_url,
};

#[derive(Debug, Deserialize)]
struct Har {
    log: Log,
}

#[derive(Debug, Deserialize)]
struct Log {
    entries: Vec<HarEntry>,
}

#[derive(Debug, Deserialize)]
struct HarEntry {
    request: Recorded,
    #[serde(default)]
    response: Option<HarResponse>,
}

#[derive(Debug, Deserialize)]
struct HarResponse {
    #[serde(default)]
    status: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Recorded {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    #[serde(default, rename = "postData")]
    post_data: Option<PostData>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    name: String,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    params: Option<Vec<Pair>>,
}

/// Reads a HAR. Taken are the requests to `origin` (`http://host:port`), or else to that of the first entry that was not
/// redirected.
pub(crate) fn load(path: &Path, origin: Option<&str>) -> Result<PlanSource, SourceError> {
    let bytes = read_bytes(path, MAX_HAR_BYTES)?;
    parse(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes), path, origin)
}

fn parse(bytes: &[u8], path: &Path, origin: Option<&str>) -> Result<PlanSource, SourceError> {
    let har: Har = serde_json::from_slice(bytes).map_err(|e| not_har(path, &e))?;
    let entries = har.log.entries;
    if entries.is_empty() {
        return Err(SourceError::file(path, "log.entries is empty; record a page load, then save it as HAR"));
    }
    let origins: Vec<Result<(String, String), String>> =
        entries.iter().map(|e| place(&e.request.url)).collect();
    let chosen = match origin {
        Some(origin) => origin.to_owned(),
        None => first_origin(&entries, &origins)
            .ok_or_else(|| SourceError::file(path, "no entry has an http or https URL"))?,
    };
    let mut taken = HarRequests::default();
    for (number, (entry, place)) in entries.iter().zip(&origins).enumerate() {
        match place {
            Ok((origin, target)) if *origin == chosen => taken.add(number, &entry.request, target),
            Ok((origin, _)) => *taken.elsewhere.entry(origin.clone()).or_default() += 1,
            Err(why) => taken.left_out.push(format!("entry {} ({why})", number + 1)),
        }
    }
    if taken.requests.is_empty() {
        let others: Vec<String> = taken.elsewhere.keys().cloned().collect();
        let found = if others.is_empty() {
            String::new()
        } else {
            format!("; there are some for {}", listed(&others))
        };
        return Err(SourceError::file(path, format!("none of its requests can be sent to {chosen}{found}")));
    }
    if taken.requests.len() > MAX_REQUESTS {
        let most =
            format!("has {} requests to {chosen}; at most {MAX_REQUESTS} are possible", taken.requests.len());
        return Err(SourceError::file(path, most));
    }
    let notes = taken.notes(path, &chosen, entries.len());
    let order = Order::Listed((0..taken.requests.len() as u32).collect());
    Ok(PlanSource {
        url: Some(chosen),
        requests: taken.requests,
        order,
        pace: None,
        wire: SourceProtocol::default(),
        route: RouteKeys::default(),
        notes,
    })
}

/// A JSON error with its place, without repeating it.
fn not_har(path: &Path, error: &serde_json::Error) -> SourceError {
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
    let why = if error.is_data() { "not a HAR" } else { "not JSON" };
    SourceError::at(path, error.line(), Some(error.column().max(1)), format!("{why}: {said}"))
}

/// Origin and target of a recorded URL.
fn place(url: &str) -> Result<(String, String), String> {
    let shown: String = url.chars().take(60).collect();
    let (origin, target) =
        split_url(url).map_err(|_| format!("{} is not asked for over HTTP", quoted(&shown)))?;
    Ok((origin_of(&origin), target))
}

/// The origin of the first entry whose response is no redirection.
fn first_origin(entries: &[HarEntry], origins: &[Result<(String, String), String>]) -> Option<String> {
    let redirected = |e: &HarEntry| {
        e.response.as_ref().and_then(|r| r.status).is_some_and(|status| (300.0..400.0).contains(&status))
    };
    let http =
        || entries.iter().zip(origins).filter_map(|(e, o)| o.as_ref().ok().map(|(origin, _)| (e, origin)));
    http().find(|(e, _)| !redirected(e)).or_else(|| http().next()).map(|(_, origin)| origin.clone())
}

/// Requests taken so far, and what was not.
#[derive(Debug, Default)]
struct HarRequests {
    requests: Vec<Request>,
    elsewhere: BTreeMap<String, usize>,
    left_out: Vec<String>,
    fields_left_out: usize,
}

impl HarRequests {
    fn add(&mut self, number: usize, recorded: &Recorded, target: &str) {
        match self.request(recorded, target) {
            Ok(request) => self.requests.push(request),
            Err(why) => self.left_out.push(format!("entry {} ({why})", number + 1)),
        }
    }

    fn request(&mut self, recorded: &Recorded, target: &str) -> Result<Request, String> {
        let method = &recorded.method;
        if !is_token(method) || method == "CONNECT" {
            return Err(format!("method {}", quoted(method)));
        }
        let body = recorded.post_data.as_ref().map(body_of).transpose()?.flatten();
        let mut fields = Vec::with_capacity(recorded.headers.len());
        for header in &recorded.headers {
            let (name, value) = (header.name.as_str(), header.value.as_deref().unwrap_or("").trim());
            // HTTP/2 pseudo-fields; Host is that of wherever the load goes.
            if name.starts_with(':') || is_hop_by_hop(name) || name.eq_ignore_ascii_case("host") {
                continue;
            }
            match is_token(name) && !value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f) {
                true => fields.push((name.to_owned(), literal(value).into_owned())),
                false => self.fields_left_out += 1,
            }
        }
        let path = literal(target).into_owned();
        let shown = path.split('?').next().unwrap_or(&path);
        Ok(Request {
            name: format!("{method} {shown}"),
            weight: 1.0,
            method: method.clone(),
            path,
            fields,
            body: body.map(Body::from),
            expect: Expectation::default(),
        })
    }

    fn notes(&self, path: &Path, chosen: &str, entries: usize) -> Vec<String> {
        let file = path.display();
        let mut notes = Vec::new();
        if self.requests.len() < entries {
            let others = self.elsewhere.iter().map(|(origin, n)| format!("{n} to {origin}"));
            let left_out: Vec<String> = others.chain(self.left_out.iter().cloned()).collect();
            let taken = self.requests.len();
            notes.push(format!(
                "{file}: {taken} of {entries} requests are taken, those to {chosen}; left out: {}",
                listed(&left_out)
            ));
        }
        if self.fields_left_out > 0 {
            let fields = count_of(
                self.fields_left_out,
                "header field that no request may hold is",
                "header fields that no request may hold are",
            );
            notes.push(format!("{file}: {fields} left out"));
        }
        notes
    }
}

/// The body as text with nothing taken for a slot.
fn body_of(data: &PostData) -> Result<Option<String>, String> {
    let text = data.text.as_deref().filter(|t| !t.is_empty());
    let params = data.params.as_deref().filter(|p| !p.is_empty());
    let multipart = data.mime_type.as_deref().is_some_and(|m| m.starts_with("multipart/"));
    match (text, params) {
        (Some(text), _) => Ok(Some(literal(text).into_owned())),
        (None, Some(_)) if multipart => Err("its multipart body was not recorded as text".to_owned()),
        (None, Some(params)) => {
            let pair = |p: &Pair| {
                let value = p.value.as_deref().unwrap_or("");
                format!("{}={}", encode_component(p.name.as_bytes()), encode_component(value.as_bytes()))
            };
            Ok(Some(params.iter().map(pair).collect::<Vec<_>>().join("&")))
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn har(entries: &[&str]) -> String {
        format!(r#"{{"log":{{"version":"1.2","creator":{{}},"entries":[{}]}}}}"#, entries.join(","))
    }

    fn entry(method: &str, url: &str, more: &str) -> String {
        format!(
            r#"{{"startedDateTime":"x","request":{{"method":"{method}","url":"{url}"{more}}},"response":{{"status":200}}}}"#
        )
    }

    fn read(text: &str, origin: Option<&str>) -> Result<PlanSource, String> {
        parse(text.as_bytes(), Path::new("page.har"), origin).map_err(|e| e.to_string())
    }

    #[test]
    fn what_a_browser_recorded() {
        let text = har(&[
            r#"{"request":{"method":"GET","url":"http://shop.example/"},"response":{"status":301}}"#,
            &entry(
                "GET",
                "https://shop.example/?a={{b}}#top",
                r#","headers":[{"name":":authority","value":"shop.example"},{"name":"Host","value":"shop.example"},
                {"name":"accept","value":"text/html"},{"name":"Connection","value":"keep-alive"},{"name":"x y","value":"z"},
                {"name":"cookie","value":"a={{1}}"}]"#,
            ),
            &entry("GET", "https://cdn.example/x.js", ""),
            &entry("GET", "https://cdn.example/y.js", ""),
            &entry("GET", "data:image/png;base64,AAAA", ""),
            &entry("GET", "wss://shop.example/socket", ""),
            &entry(
                "POST",
                "https://shop.example/cart",
                r#","headers":[{"name":"content-type","value":"application/json"}],
                "postData":{"mimeType":"application/json","text":"{\"a\":\"{{x}}\"}"}"#,
            ),
            &entry(
                "POST",
                "https://shop.example/form",
                r#","postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"a b","value":"c&d"},{"name":"e"}]}"#,
            ),
            &entry(
                "POST",
                "https://shop.example/upload",
                r#","postData":{"mimeType":"multipart/form-data; boundary=x","params":[{"name":"f","fileName":"a.png"}]}"#,
            ),
        ]);
        let source = read(&text, None).unwrap();
        assert_eq!(
            (source.url.as_deref(), source.order),
            (Some("https://shop.example"), Order::Listed(vec![0, 1, 2]))
        );
        let [page, cart, form] = source.requests.as_slice() else { panic!("{:?}", source.requests) };
        assert_eq!((page.name.as_str(), page.path.as_str()), ("GET /", "/?a={{{{b}}"));
        let fields =
            [("accept", "text/html"), ("cookie", "a={{{{1}}")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(page.fields, fields);
        assert_eq!(cart.body, Some(r#"{"a":"{{{{x}}"}"#.into()));
        assert_eq!(form.body, Some("a%20b=c%26d&e=".into()));
        insta::assert_snapshot!(source.notes.join("\n"));
    }

    #[test]
    fn the_origin_can_be_chosen() {
        let text = har(&[&entry("GET", "http://a/1", ""), &entry("GET", "http://b:8080/2", "")]);
        assert_eq!(read(&text, Some("http://b:8080")).unwrap().requests[0].path, "/2");
        assert!(read(&text, Some("http://a")).unwrap().notes[0].contains("left out: 1 to http://b:8080"));
    }

    #[test]
    fn errors_name_the_place() {
        let cases = [
            "".to_owned(),
            "{\n  \"log\": }".to_owned(),
            "{}".to_owned(),
            "{\"log\":\n {\"entries\": [{\"request\": {\"method\": 5}}]}}".to_owned(),
            "{\"log\":\n {\"entries\": [{\"request\":\n {\"method\": \"GET\"}}]}}".to_owned(),
            har(&[]),
            har(&[&entry("GET", "data:,x", "")]),
        ];
        let mut said: String =
            cases.iter().map(|text| format!("{}\n", read(text, None).unwrap_err())).collect();
        let text = har(&[&entry("GET", "http://a/1", ""), &entry("GET", "http://b/2", "")]);
        said += &format!("{}\n", read(&text, Some("http://c")).unwrap_err());
        said += &load(Path::new("no/such.har"), None).unwrap_err().to_string();
        insta::assert_snapshot!(said);
    }

    #[test]
    fn no_more_requests_than_a_plan_may_have() {
        let one = entry("GET", "http://a/1", "");
        let text = har(&vec![one.as_str(); MAX_REQUESTS]);
        assert_eq!(read(&text, None).unwrap().requests.len(), MAX_REQUESTS);
        let text = har(&vec![one.as_str(); MAX_REQUESTS + 1]);
        assert!(read(&text, None).unwrap_err().contains("at most"));
    }
}
