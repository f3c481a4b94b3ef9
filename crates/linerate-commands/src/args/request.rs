//! Flags that say what a request is and where it goes: the same for every command that makes requests.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use linerate_http::client::Body;
use linerate_load::plan::parts;

use super::values::{self, Resolve};
use crate::fault::CommandFault;

/// Heading of what a request is.
pub(super) const WHAT: &str = "What to send";
/// Heading of where it goes.
pub(super) const WHERE: &str = "Addresses";

/// What a request is, besides its URL.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RequestFlags {
    /// Method [default: GET; POST with --body]
    #[arg(short = 'X', long, value_name = "METHOD", value_parser = values::method, help_heading = WHAT)]
    pub(crate) method: Option<String>,

    /// Header field "Name: value"; repeatable
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = parts::parse_header, help_heading = WHAT)]
    pub(crate) header: Vec<(String, String)>,

    /// Body: the text itself, @FILE for a file's bytes as they are, @- for standard input
    #[arg(long, value_name = "TEXT|@FILE", help_heading = WHAT)]
    pub(crate) body: Option<String>,

    /// User and password for basic authentication
    #[arg(short = 'u', long, value_name = "NAME:PASS", value_parser = values::user, help_heading = WHAT)]
    pub(crate) user: Option<String>,

    /// Ask for a compressed answer (unpacked only where a check reads it)
    #[arg(long, help_heading = WHAT)]
    pub(crate) compressed: bool,
}

impl RequestFlags {
    /// The body with nothing taken for a slot, from wherever it is to come.
    pub(crate) fn literal_body(&self) -> Result<Body, CommandFault> {
        let text = self.body.as_deref().unwrap_or_default();
        Ok(Body::raw(match text.strip_prefix('@') {
            Some(path) => read_body_file("--body", path)?,
            None => text.as_bytes().into(),
        }))
    }

    /// The method of what would be a request by `usual`.
    pub(crate) fn method_over(&self, usual: &str) -> String {
        match &self.method {
            Some(method) => method.clone(),
            None if self.body.is_some() && usual == "GET" => "POST".to_owned(),
            None => usual.to_owned(),
        }
    }

    /// Lays these over fields that are there. `of_url`: the user and password that the URL names.
    pub(crate) fn dress(&self, fields: &mut Vec<(String, String)>, of_url: Option<&String>) {
        if let Some(user) = self.user.as_ref().or(of_url) {
            let (name, value) = parts::basic_auth(user);
            parts::set_field(fields, &name, &value);
        }
        if self.compressed {
            let (name, value) = parts::COMPRESSED;
            parts::set_field(fields, name, value);
        }
        // A field given here takes the place of one that was there; given twice, it is sent twice.
        fields.retain(|(name, _)| !parts::has_field(&self.header, name));
        fields.extend(self.header.iter().cloned());
    }
}

/// Which address stands for a name.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AddressFlags {
    /// Use ADDRESS for HOST:PORT instead of asking for it, as in curl; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = values::resolve, help_heading = WHERE)]
    pub(crate) resolve: Vec<Resolve>,

    /// Use only IPv4 addresses
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = WHERE)]
    pub(crate) ipv4: bool,

    /// Use only IPv6 addresses
    #[arg(short = '6', long, help_heading = WHERE)]
    pub(crate) ipv6: bool,
}

/// A file that a flag names, or `-`.
pub(crate) fn read_body_file(flag: &str, path: &str) -> Result<Arc<[u8]>, CommandFault> {
    let (name, read) = match path {
        "-" => ("standard input", linerate_load::plan::body::read(std::io::stdin())),
        _ => (path, linerate_load::plan::body::read_file(Path::new(path))),
    };
    read.map_err(|why| CommandFault::input(format!("{flag}: {name} cannot be read: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn what_is_typed_wins_over_what_was_there() {
        let flags = RequestFlags {
            header: vec![field("accept", "a"), field("Accept", "b")],
            user: Some("ada:1".to_owned()),
            compressed: true,
            ..RequestFlags::default()
        };
        let mut fields = vec![field("Host", "h"), field("Accept", "*/*"), field("accept-encoding", "br")];
        flags.dress(&mut fields, Some(&"url:2".to_owned()));
        let names: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            names,
            [
                "Host: h",
                "accept-encoding: gzip, deflate, br, zstd",
                "Authorization: Basic YWRhOjE=",
                "accept: a",
                "Accept: b"
            ]
        );
    }

    #[test]
    fn a_body_makes_a_post_of_a_get_alone() {
        let body = RequestFlags { body: Some("x".to_owned()), ..RequestFlags::default() };
        assert_eq!((body.method_over("GET").as_str(), body.method_over("PUT").as_str()), ("POST", "PUT"));
        let get = RequestFlags { method: Some("GET".to_owned()), ..body };
        assert_eq!(get.method_over("PUT"), "GET");
        assert_eq!(RequestFlags::default().method_over("GET"), "GET");
    }
}
