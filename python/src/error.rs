//! Errors of the client as exceptions of the package.

use linerate_client::client::{self, FailedPart, Phase};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

use crate::message::Request;

/// The Python module that defines the exceptions.
static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn make(py: Python<'_>, class: &str, text: String, values: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let module =
        ERRORS.get_or_try_init(py, || PyModule::import(py, "linerate._errors").map(Bound::unbind))?;
    let error = module.bind(py).getattr(class)?.call1((text,))?;
    for (name, value) in values {
        error.setattr(name.cast::<pyo3::types::PyString>()?, value)?;
    }
    Ok(PyErr::from_value(error))
}

/// The exception for an error of the client.
pub(crate) fn raise(py: Python<'_>, error: client::Error) -> PyErr {
    convert(py, error).unwrap_or_else(|failed| failed)
}

/// The client or its thread has ended.
pub(crate) fn closed(py: Python<'_>, why: &str) -> PyErr {
    make(py, "Closed", why.to_owned(), &PyDict::new(py)).unwrap_or_else(|failed| failed)
}

/// The request is wrong.
pub(crate) fn request(py: Python<'_>, problem: String) -> PyErr {
    raise(py, client::Error::Request(problem.into()))
}

/// A response whose status says that the request failed.
pub(crate) fn status(py: Python<'_>, status: u16, response: &Bound<'_, PyAny>) -> PyErr {
    let values = PyDict::new(py);
    let made = values.set_item("response", response);
    made.and_then(|()| make(py, "StatusError", format!("the status is {status}"), &values))
        .unwrap_or_else(|failed| failed)
}

fn convert(py: Python<'_>, error: client::Error) -> PyResult<PyErr> {
    let (text, values) = (error.to_string(), PyDict::new(py));
    let class = match error {
        client::Error::Builder(_) => "BuilderError",
        client::Error::Request(_) => "RequestError",
        client::Error::Connect(_) => "ConnectError",
        client::Error::Proxy { status, .. } => {
            values.set_item("status", status.map(|status| status.as_u16()))?;
            "ProxyError"
        }
        client::Error::Timeout { phase, .. } => {
            let phase = match phase {
                Phase::Queue => "queue",
                Phase::Limit => "limit",
                Phase::FirstByte => "first byte",
                Phase::Response => "response",
            };
            values.set_item("phase", phase)?;
            "Timeout"
        }
        client::Error::Failed { failure, .. } => {
            values.set_item("failure", format!("{failure:?}"))?;
            "Failed"
        }
        client::Error::TooLarge { part, limit, .. } => {
            values.set_item("part", if part == FailedPart::Head { "head" } else { "body" })?;
            values.set_item("limit", limit)?;
            "TooLarge"
        }
        client::Error::Mismatch(_) => "Mismatch",
        client::Error::OutcomeUnknown(unknown) => {
            values.set_item("why", unknown.why.to_string())?;
            values.set_item("request", Request(unknown.request).into_pyobject(py)?)?;
            "OutcomeUnknown"
        }
        client::Error::Closed => "Closed",
        // The client may learn of new kinds.
        _ => "Error",
    };
    make(py, class, text, &values)
}
