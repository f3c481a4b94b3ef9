//! `{{env.NAME}}`: variables of the environment, read once before a run. They are a data set of one
//! row, so that filters and checks hold for them as for cells; what prints plans and samples leaves
//! their values out.

use std::ffi::OsString;

use linerate_http::client::{RequestPart, TemplateError};

use super::{DataSet, Request};

/// The name of that data set, which no other may have.
pub const NAME: &str = "env";

/// The variables that requests name, with the values that `lookup` gives; `None` if they name none.
///
/// # Errors
/// The request's index, and the place at which it names a variable that is not set or is not text.
pub fn data_set(
    requests: &[Request],
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<DataSet>, (usize, TemplateError)> {
    let (mut columns, mut row) = (Vec::new(), Vec::new());
    for (index, request) in requests.iter().enumerate() {
        let mut problem = None;
        each_of(request, "env.", |place, at, name| {
            if problem.is_some() || columns.iter().any(|known| known == name) {
                return;
            }
            match lookup(name).map(OsString::into_string) {
                Some(Ok(value)) => {
                    columns.push(name.to_owned());
                    row.push(value);
                }
                found => {
                    let what = if found.is_none() { "is not set" } else { "is not UTF-8 text" };
                    let problem_text = format!("{{{{env.{name}}}}}: the environment variable {name} {what}");
                    problem = Some(TemplateError { place, at, problem: problem_text });
                }
            }
        });
        if let Some(problem) = problem {
            return Err((index, problem));
        }
    }
    Ok((!columns.is_empty()).then(|| DataSet { name: NAME.to_owned(), columns, rows: vec![row] }))
}

/// The variables that a script names as `__ENV.NAME`, as slots of a request that is never sent.
pub fn of_script(text: &str) -> Request {
    let named = text.split("__ENV.").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    });
    let path: String =
        named.filter(|name| !name.is_empty()).map(|name| format!("/{{{{env.{name}}}}}")).collect();
    Request { name: "the script".to_owned(), ..Request::get(&path) }
}

/// The slots of a request whose names begin so, without that, with their places.
pub(super) fn each_of(request: &Request, prefix: &str, mut each: impl FnMut(RequestPart, usize, &str)) {
    let mut within = |place: &RequestPart, before: usize, text: &[u8]| {
        each_slot(text, |at, name| {
            let name = name.split('|').next().unwrap_or_default().trim();
            if let Some(name) = name.strip_prefix(prefix) {
                each(place.clone(), before + at, name);
            }
        });
    };
    within(&RequestPart::Target, 0, request.path.as_bytes());
    for (name, value) in &request.fields {
        within(&RequestPart::Field(name.clone()), 0, value.as_bytes());
    }
    let mut before = 0;
    for part in request.body.iter().flat_map(|body| body.parts()) {
        if part.slots {
            within(&RequestPart::Body, before, &part.bytes);
        }
        before += part.bytes.len();
    }
}

/// The slots of a text, read as templates read it: of three braces the first means itself, four
/// stand for two.
fn each_slot(text: &[u8], mut each: impl FnMut(usize, &str)) {
    let mut at = 0;
    while let Some(n) = memchr::memmem::find(&text[at..], b"{{") {
        at += n;
        match text[at..].iter().take_while(|b| **b == b'{').count() {
            2 => {
                let Some(end) = memchr::memmem::find(&text[at..], b"}}") else { return };
                each(at, &String::from_utf8_lossy(&text[at + 2..at + end]));
                at += end + 2;
            }
            3 => at += 1,
            _ => at += 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, body: &str) -> Result<Option<DataSet>, (usize, TemplateError)> {
        let fields = vec![("Authorization".to_owned(), "Bearer {{ env.TOKEN | url }}".to_owned())];
        let request = Request { fields, body: Some(body.into()), ..Request::get(path) };
        data_set(&[Request::get("/"), request], |name| match name {
            "TOKEN" => Some("secret".into()),
            "EMPTY" => Some(OsString::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_a_row() {
        let set = found("/{{env.EMPTY}}{{seq}}", "{{{env.TOKEN}}}{{{{env.NONE}}").unwrap().unwrap();
        assert_eq!(set.columns, ["EMPTY", "TOKEN"]);
        assert_eq!(set.rows, [["".to_owned(), "secret".to_owned()]]);
        assert_eq!(data_set(&[Request::get("/{{seq}}")], |_| None), Ok(None));
    }

    #[test]
    fn a_missing_variable_is_named_with_its_place() {
        let (index, error) = found("/", "token={{env.NONE}}").unwrap_err();
        assert_eq!((index, error.at), (1, 6));
        assert_eq!(
            error.to_string(),
            "the body, byte 6: {{env.NONE}}: the environment variable NONE is not set"
        );
    }
}
