//! Samples of metrics, and their tags.

use std::borrow::Cow;
use std::sync::Arc;

/// Tags of a request that its script gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTags {
    /// In place of its URL.
    pub name: Option<String>,
    /// The group that it was sent in.
    pub group: Arc<str>,
    /// The script's own.
    pub custom: Vec<(String, String)>,
}

/// Finds the value of a tag.
pub trait TagLookup {
    /// Its value, if the sample has it.
    fn tag(&self, key: &str) -> Option<Cow<'_, str>>;
}

/// Tags of a sample that no request has made.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleTags<'a> {
    /// The group.
    pub group: &'a str,
    /// The scenario.
    pub scenario: &'a str,
    /// The check.
    pub check: Option<&'a str>,
    /// Given by the script for this sample.
    pub custom: &'a [(String, String)],
    /// Given for the whole scenario, and by `exec.vu.tags`.
    pub wide: &'a [(String, String)],
}

/// The first of some pairs with this key.
fn find<'a>(pairs: &'a [(String, String)], key: &str) -> Option<Cow<'a, str>> {
    pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| Cow::Borrowed(value.as_str()))
}

impl TagLookup for SampleTags<'_> {
    fn tag(&self, key: &str) -> Option<Cow<'_, str>> {
        find(self.custom, key).or_else(|| find(self.wide, key)).or_else(|| match key {
            "group" => Some(Cow::Borrowed(self.group)),
            "scenario" => Some(Cow::Borrowed(self.scenario)),
            "check" => self.check.map(Cow::Borrowed),
            _ => None,
        })
    }
}

/// Tags of a request's samples.
#[derive(Clone, Copy, Debug)]
pub struct HttpTags<'a> {
    /// As for other samples.
    pub sample: SampleTags<'a>,
    /// GET, POST ...
    pub method: &'a str,
    /// Its URL.
    pub url: &'a str,
    /// The name given to it.
    pub name: Option<&'a str>,
    /// 0: no response.
    pub status: u16,
    /// `HTTP/1.1`
    pub proto: &'a str,
    /// Why there is no response.
    pub error: &'a str,
    /// k6's number for that.
    pub error_code: u32,
    /// Whether the status was an expected one, if that is judged.
    pub expected: Option<bool>,
}

impl TagLookup for HttpTags<'_> {
    fn tag(&self, key: &str) -> Option<Cow<'_, str>> {
        let text = |text: &'static str| Some(Cow::Borrowed(text));
        if let Some(value) = find(self.sample.custom, key) {
            return Some(value);
        }
        match key {
            "method" => Some(Cow::Borrowed(self.method)),
            "url" => Some(Cow::Borrowed(self.url)),
            "name" => Some(Cow::Borrowed(self.name.unwrap_or(self.url))),
            "status" => Some(Cow::Owned(self.status.to_string())),
            "proto" => Some(Cow::Borrowed(self.proto)),
            "error" if !self.error.is_empty() => Some(Cow::Borrowed(self.error)),
            "error_code" if self.error_code > 0 => Some(Cow::Owned(self.error_code.to_string())),
            "expected_response" => self.expected.and_then(|e| text(if e { "true" } else { "false" })),
            _ => self.sample.tag(key),
        }
    }
}
