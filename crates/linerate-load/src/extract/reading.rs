//! What a response holds for its user, while it is read.

use linerate_http::client::HeadView;

use super::decode;
use super::expect::{BodySchema, ResponseTest, StepExpect};
use super::jar::SetCookie;
use super::redirect;
use super::take::Extractor;
use crate::limits::{COOKIES, TAKEN_FROM_BYTES};

/// A value that a step takes.
#[derive(Debug)]
pub(crate) struct StepTake {
    /// Its place among all values of the plan.
    pub(crate) value: usize,
    /// As the plan writes it, for people.
    pub(crate) shown: String,
    pub(crate) from: Extractor,
}

/// All that a step reads of its response.
#[derive(Debug, Default)]
pub(crate) struct StepReads {
    pub(crate) takes: Vec<StepTake>,
    /// What it expects, if it expects something.
    pub(crate) expect: Option<StepExpect>,
    /// Whether the plan's script sees it.
    pub(crate) is_judged: bool,
}

impl StepReads {
    fn tests(&self) -> &[ResponseTest] {
        self.expect.as_ref().map_or(&[], |expect| &expect.tests)
    }

    fn schema(&self) -> Option<&BodySchema> {
        self.expect.as_ref()?.schema.as_ref()
    }

    fn wants_body(&self) -> bool {
        self.is_judged
            || self.schema().is_some()
            || self.takes.iter().any(|take| take.from.wants_body())
            || self.tests().iter().any(ResponseTest::wants_body)
    }
}

/// What a whole response holds: the values, or which is missing; and what is not as expected.
pub(crate) type StepFound = (Result<Vec<Vec<u8>>, String>, Option<String>);

/// The part of a response that its user needs.
#[derive(Debug, Default)]
pub(crate) struct TakeReading {
    cookies: Vec<SetCookie>,
    from_head: Vec<Option<Vec<u8>>>,
    /// What of the head is not as expected.
    unmet: Option<String>,
    encoding: Vec<u8>,
    body: Vec<u8>,
    /// Its fields, where a script sees them.
    fields: Vec<(String, String)>,
    /// Where the response redirects to, and whether by a GET in any case.
    redirect: Option<(Vec<u8>, bool)>,
    wants_body: bool,
    is_too_long: bool,
}

impl TakeReading {
    /// The head of a response to a request that takes these values.
    /// `follows`: redirects are followed, unless their status is the one that is expected.
    pub(crate) fn begin(&mut self, reads: &StepReads, head: &HeadView<'_>, follows: bool) {
        let by_get = redirect::redirects(head.status()).filter(|_| follows);
        self.redirect = by_get.and_then(|get| Some((head.get(b"location")?.to_vec(), get)));
        let is_cookie = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"set-cookie");
        let set = head.fields().filter(is_cookie).filter_map(|(_, value)| SetCookie::parse(value));
        self.cookies = set.take(COOKIES).collect();
        let takes = &reads.takes;
        self.unmet = reads.tests().iter().find_map(|test| test.of_head(head.fields(), &self.cookies));
        self.from_head = takes.iter().map(|take| take.from.in_head(head.fields(), &self.cookies)).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields().filter(|_| reads.is_judged);
        self.fields = fields.map(|(name, value)| (text(name), text(value))).collect();
        self.encoding = head.get(b"content-encoding").unwrap_or_default().to_vec();
        // Each connection has one of these.
        self.body = Vec::new();
        self.wants_body = self.redirect.is_none() && reads.wants_body();
        self.is_too_long = false;
    }

    /// Whether the rest of the body is looked at.
    pub(crate) fn wants_body(&self) -> bool {
        self.wants_body && !self.is_too_long
    }

    /// A piece of the body as it came.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        if !self.wants_body() {
            return;
        }
        self.is_too_long = self.body.len() + piece.len() > TAKEN_FROM_BYTES;
        if !self.is_too_long {
            self.body.extend_from_slice(piece);
        }
    }

    /// The response is whole. `judge`: what a script says of its fields and body.
    pub(crate) fn finish(
        &mut self,
        reads: &StepReads,
        judge: impl FnOnce(&[(String, String)], &[u8]) -> Option<String>,
    ) -> StepFound {
        let body = std::mem::take(&mut self.body);
        let body = match if self.wants_body { self.plain(body) } else { Ok(body) } {
            Ok(body) => body,
            // Nothing is taken, so it is the expectation that fails.
            Err(why) if reads.takes.is_empty() => return (Ok(Vec::new()), Some(why)),
            Err(why) => return (Err(why), self.unmet.take()),
        };
        let of_tests = || reads.tests().iter().find_map(|test| test.of_body(&body));
        let of_schema = || reads.schema().and_then(|schema| schema.of_body(&body));
        let unmet = self.unmet.take().or_else(of_tests).or_else(of_schema);
        let unmet = unmet.or_else(|| if reads.is_judged { judge(&self.fields, &body) } else { None });
        (self.values(&reads.takes, &body), unmet)
    }

    fn values(&mut self, takes: &[StepTake], body: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let value = |(take, from_head): (&StepTake, Option<Vec<u8>>)| {
            let found = if take.from.wants_body() { take.from.in_body(body) } else { from_head };
            found.ok_or_else(|| format!("{} found nothing", take.shown))
        };
        takes.iter().zip(std::mem::take(&mut self.from_head)).map(value).collect()
    }

    /// The body without its coding.
    fn plain(&self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let too_long =
            || format!("the body has more than {} MiB, the most that is looked at", TAKEN_FROM_BYTES >> 20);
        if self.is_too_long {
            return Err(too_long());
        }
        if self.encoding.is_empty() {
            return Ok(body);
        }
        let mut plain = Vec::new();
        let mut is_too_long = false;
        decode::decode(&decode::codings(&self.encoding)?, &body, |piece| {
            is_too_long |= plain.len() + piece.len() > TAKEN_FROM_BYTES;
            if !is_too_long {
                plain.extend_from_slice(piece);
            }
        })?;
        if is_too_long { Err(too_long()) } else { Ok(plain) }
    }

    /// Where it redirects to, and whether by a GET in any case, if that is followed.
    pub(crate) fn redirect(&self) -> Option<(&[u8], bool)> {
        self.redirect.as_ref().map(|(location, get)| (location.as_slice(), *get))
    }

    /// The cookies that it sets.
    pub(crate) fn cookies(&self) -> &[SetCookie] {
        &self.cookies
    }
}
