//! Requests of a counted run.

use linerate_http::client::{self, Body, RequestSpec, StreamTemplate};

use super::error::{Error, ErrorDetail};
use super::options::{CallOptions, Protocol};
use super::target::Target;

/// A template for HTTP/1.1, and for HTTP/2 if connections may speak it.
pub(super) type Compiled = (client::Template, Option<StreamTemplate>);

/// A request with slots that are filled anew for each: `{{seq}}` is its number from 0, `{{rand:1-1000}}` a random
/// number, `{{uuid}}` a random UUID. `linerate load` has the same slots.
///
/// ```
/// # extern crate linerate_client as linerate;
/// use linerate::client::Template;
///
/// let template = Template::post("/items/{{seq}}")?.header("Content-Type", "text/plain").body("item {{seq}}");
/// # Ok::<(), linerate::client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    spec: RequestSpec,
}

impl Template {
    /// A GET of this target.
    ///
    /// # Errors
    /// [`Error::Request`]: the target is invalid, or a slot is unknown.
    pub fn get(target: &str) -> Result<Template, Error> {
        Template::new("GET", target)
    }

    /// A POST to this target.
    ///
    /// # Errors
    /// As for [`get`](Template::get).
    pub fn post(target: &str) -> Result<Template, Error> {
        Template::new("POST", target)
    }

    /// A request of any method but CONNECT.
    ///
    /// # Errors
    /// As for [`get`](Template::get); or the method is invalid.
    pub fn new(method: &str, target: &str) -> Result<Template, Error> {
        let spec =
            RequestSpec { method: method.to_owned(), target: target.to_owned(), ..RequestSpec::default() };
        let template = Template { spec };
        template.compile_with("localhost")?;
        Ok(template)
    }

    /// Adds a field. Its value may have slots.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Template {
        self.spec.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body. It may have slots.
    #[must_use]
    pub fn body(mut self, text: &str) -> Template {
        self.spec.body = Body::text(text.as_bytes());
        self
    }

    pub(super) fn compile(&self, target: &Target, options: &CallOptions) -> Result<Compiled, Error> {
        let host = String::from_utf8_lossy(target.field.as_bytes());
        if let Some(proxy) = options.proxy.as_ref().filter(|proxy| proxy.forwards()) {
            let mut spec = self.spec_for(&host)?;
            spec.target = format!("http://{host}{}", spec.target);
            if let Some(value) = proxy.authorization() {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                spec.fields.push(("Proxy-Authorization".to_owned(), value));
            }
            return Ok((compiled(&spec)?, None));
        }
        let streamed = match options.protocol {
            Protocol::Http1 => None,
            _ => {
                let (spec, coding) =
                    (self.spec_for(&host)?, CallOptions::field_coding(options.first_streams()));
                Some(StreamTemplate::compile_coded(&spec, &[], target.secure, coding))
            }
        };
        let streamed = streamed
            .transpose()
            .map_err(|error| Error::Request(ErrorDetail::by(error.to_string(), error)))?;
        Ok((self.compile_with(&host)?, streamed))
    }

    fn compile_with(&self, host: &str) -> Result<client::Template, Error> {
        compiled(&self.spec_for(host)?)
    }

    fn spec_for(&self, host: &str) -> Result<RequestSpec, Error> {
        if self.spec.method == "CONNECT" {
            return Err(Error::Request("CONNECT opens a tunnel, and the client has none".into()));
        }
        let mut spec = self.spec.clone();
        if !spec.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            spec.fields.insert(0, ("Host".to_owned(), host.to_owned()));
        }
        Ok(spec)
    }
}

fn compiled(spec: &RequestSpec) -> Result<client::Template, Error> {
    client::Template::compile(spec, &[]).map_err(|e| Error::Request(ErrorDetail::by(e.to_string(), e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let target = Target::parse("http://example.org").unwrap();
        let template = Template::get("/item/{{seq}}").unwrap().header("A", "b");
        let mut bytes = Vec::new();
        let values = client::Values { seq: 7, now_ms: 0, seed: 0, row: &[] };
        template.compile(&target, &CallOptions::default()).unwrap().0.render(&values, &mut bytes);
        assert_eq!(bytes, b"GET /item/7 HTTP/1.1\r\nHost: example.org\r\nA: b\r\n\r\n");
        for (method, path, problem) in [
            ("GET", "/a b", "a space ends the target"),
            ("G T", "/", "the method"),
            ("GET", "/{{none}}", "none"),
            ("CONNECT", "a:80", "tunnel"),
        ] {
            let error = Template::new(method, path).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
