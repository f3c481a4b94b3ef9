//! Requests and responses.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use linerate_client::client::{ResponseExt, percent_encoded};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::error;

/// A request: `Request("PUT", "/documents/1", headers={"content-type": "text/plain"}, body=b"...")`.
#[pyclass(frozen, module = "linerate")]
pub(crate) struct Request(pub(crate) http::Request<Bytes>);

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (method, path, *, headers=None, body=None))]
    fn new(
        py: Python<'_>,
        method: &str,
        path: &str,
        headers: Option<&Bound<'_, PyAny>>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        let mut request = http::Request::new(body.map_or(Ok(Bytes::new()), bytes_of)?);
        *request.method_mut() = Method::from_bytes(method.as_bytes())
            .map_err(|_| error::request(py, format!("{method:?} is no method")))?;
        *request.uri_mut() = uri(py, path)?;
        add_fields(py, request.headers_mut(), headers)?;
        Ok(Request(request))
    }

    #[getter]
    fn method(&self) -> &str {
        self.0.method().as_str()
    }

    #[getter]
    fn path(&self) -> String {
        self.0.uri().to_string()
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        mapping(py, self.0.headers())
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.body())
    }

    /// For pickle.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(RequestStart, Bound<'py, PyDict>)> {
        Ok(((self.method().to_owned(), self.path()), rest(py, self.0.headers(), self.0.body())?))
    }

    fn __repr__(&self) -> String {
        format!("<Request {} {}>", self.0.method(), self.0.uri())
    }
}

/// A whole response.
#[pyclass(frozen, module = "linerate")]
pub(crate) struct Response(pub(crate) http::Response<Bytes>);

#[pymethods]
impl Response {
    #[new]
    #[pyo3(signature = (status, *, headers=None, body=None))]
    fn new(
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Response> {
        let mut response = http::Response::new(body.map_or(Ok(Bytes::new()), bytes_of)?);
        *response.status_mut() = StatusCode::from_u16(status)
            .map_err(|_| PyValueError::new_err(format!("{status} is no status: take 100 to 999")))?;
        add_fields(py, response.headers_mut(), headers)?;
        Ok(Response(response))
    }

    #[getter]
    fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        mapping(py, self.0.headers())
    }

    /// The URL that it came from, after redirects, if a client of several servers sent the request.
    #[getter]
    fn url(&self) -> Option<String> {
        self.0.uri().map(Uri::to_string)
    }

    /// The first field of this name.
    #[pyo3(signature = (name, default=None))]
    fn header(&self, name: &str, default: Option<String>) -> Option<String> {
        self.0.headers().get(name).map(text_of).or(default)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.body())
    }

    /// The body as UTF-8; what is none becomes U+FFFD.
    fn text(&self) -> String {
        String::from_utf8_lossy(self.0.body()).into_owned()
    }

    /// The body as JSON.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (PyBytes::new(py, self.0.body()),))
    }

    /// Returns the response itself, or raises `StatusError` where its status is 400 or more.
    fn raise_for_status(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let status = slf.get().0.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(error::status(slf.py(), status.as_u16(), slf.as_any()));
        }
        Ok(slf)
    }

    /// For pickle.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((u16,), Bound<'py, PyDict>)> {
        Ok(((self.status(),), rest(py, self.0.headers(), self.0.body())?))
    }

    fn __repr__(&self) -> String {
        format!("<Response {}, {} bytes>", self.0.status().as_u16(), self.0.body().len())
    }
}

/// Method and path.
type RequestStart = (String, String);

/// Adds fields from a mapping or from pairs.
fn add_fields(py: Python<'_>, to: &mut http::HeaderMap, from: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let Some(from) = from else { return Ok(()) };
    let pairs = match from.getattr_opt("pairs")? {
        Some(pairs) => pairs,
        None if from.hasattr("items")? => from.call_method0("items")?,
        None => from.clone(),
    };
    for pair in pairs.try_iter()? {
        let (name, value): (String, String) = pair?.extract()?;
        let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let bytes = bytes.unwrap_or_else(|| value.clone().into_bytes());
        let named = HeaderName::try_from(&name).ok().zip(HeaderValue::from_bytes(&bytes).ok());
        let Some((name, value)) = named else {
            return Err(error::request(py, format!("{name:?}: {value:?} is no header field")));
        };
        to.append(name, value);
    }
    Ok(())
}

/// Fields and body, as the constructors take them.
fn rest<'py>(py: Python<'py>, headers: &http::HeaderMap, body: &Bytes) -> PyResult<Bound<'py, PyDict>> {
    let named = PyDict::new(py);
    named.set_item("headers", fields(headers))?;
    named.set_item("body", PyBytes::new(py, body))?;
    Ok(named)
}

/// The Python class `Headers`.
static HEADERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn mapping<'py>(py: Python<'py>, of: &http::HeaderMap) -> PyResult<Bound<'py, PyAny>> {
    let class = HEADERS
        .get_or_try_init(py, || py.import("linerate._headers")?.getattr("Headers").map(Bound::unbind))?;
    class.bind(py).call1((fields(of),))
}

/// A path as text means GET.
pub(crate) fn request_of(from: &Bound<'_, PyAny>) -> PyResult<http::Request<Bytes>> {
    if let Ok(path) = from.cast::<PyString>() {
        let mut request = http::Request::new(Bytes::new());
        *request.uri_mut() = uri(from.py(), &path.to_string_lossy())?;
        return Ok(request);
    }
    match from.cast::<Request>() {
        Ok(request) => Ok(request.get().0.clone()),
        Err(_) => Err(PyTypeError::new_err("a request is a path as str or a linerate.Request")),
    }
}

fn uri(py: Python<'_>, path: &str) -> PyResult<Uri> {
    Uri::try_from(&*percent_encoded(path)).map_err(|e| {
        let hint = "write /PATH, or for Hosts http://HOST:PORT/PATH";
        error::request(py, format!("{path:?}: {e}\nhint: {hint}"))
    })
}

pub(crate) fn bytes_of(body: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(text) = body.cast::<PyString>() {
        return Ok(Bytes::copy_from_slice(text.to_string_lossy().as_bytes()));
    }
    // From bytes this is a copy of the whole; other types go through bytes().
    let whole = body.py().get_type::<PyBytes>().call1((body,))?;
    Ok(Bytes::copy_from_slice(whole.cast::<PyBytes>()?.as_bytes()))
}

/// Fields are bytes; Latin-1 keeps each (RFC 9110 section 5.5).
fn text_of(value: &HeaderValue) -> String {
    value.as_bytes().iter().map(|byte| char::from(*byte)).collect()
}

fn fields(of: &http::HeaderMap) -> Vec<(String, String)> {
    of.iter().map(|(name, value)| (name.as_str().to_owned(), text_of(value))).collect()
}
