//! Fields that a configuration adds to responses: Cache-Control, Strict-Transport-Security, CORS.

use std::sync::Arc;

use linerate_http::server::{BadField, CheckedFields};

use crate::Response;

/// Fields added to every response of a site or route. They replace the response's own fields of the
/// same names.
///
/// ```
/// use linerate_serve::ExtraFields;
///
/// let fields = ExtraFields::new(vec![("Cache-Control".to_owned(), "no-store".to_owned())]);
/// assert!(fields.is_ok_and(|fields| !fields.is_empty()));
/// // The server itself sets this one.
/// assert!(ExtraFields::new(vec![("Content-Length".to_owned(), "3".to_owned())]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraFields(Arc<[(String, String)]>);

impl ExtraFields {
    /// Names and values; a name may occur more than once.
    ///
    /// # Errors
    /// The index of the first invalid field, and why.
    pub fn new(fields: Vec<(String, String)>) -> Result<ExtraFields, (usize, BadField)> {
        for (i, (name, value)) in fields.iter().enumerate() {
            CheckedFields::new().add(name, value).map_err(|e| (i, e))?;
        }
        Ok(ExtraFields(fields.into()))
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn apply(&self, response: &mut Response) {
        for (name, _) in self.0.iter() {
            response.fields.remove(name);
            if name.eq_ignore_ascii_case("content-type") {
                response.content_type = None;
            }
        }
        for (name, value) in self.0.iter() {
            // `new` has checked it.
            let _ = response.fields.add(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_replace_and_may_repeat() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields =
            vec![own("X-A", "1"), own("Link", "<a>"), own("link", "<b>"), own("Content-Type", "text/x")];
        let fields = ExtraFields::new(fields).expect("sound");
        let mut response = Response::text("t").with_field("x-a", "0").expect("sound");
        fields.apply(&mut response);
        let all: Vec<_> = response.fields.iter().collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"X-A", b"1"), (b"Link", b"<a>"), (b"link", b"<b>"), (b"Content-Type", b"text/x")];
        assert_eq!(all, expected);
        assert_eq!(response.content_type, None);
    }

    #[test]
    fn what_would_break_a_message_is_refused() {
        for (name, value) in [("a b", "c"), ("a", "b\r\nc: d"), ("content-length", "5"), ("", "x")] {
            let fields = vec![("ok".to_owned(), "ok".to_owned()), (name.to_owned(), value.to_owned())];
            assert_eq!(ExtraFields::new(fields).expect_err(name).0, 1);
        }
    }
}
