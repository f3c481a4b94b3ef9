//! One call under way.

use pyo3::prelude::*;
use tokio::task::AbortHandle;

/// A call whose future somebody awaits.
#[pyclass(frozen)]
pub(crate) struct Call(pub(crate) AbortHandle);

#[pymethods]
impl Call {
    /// Gives it up.
    fn abort(&self) {
        self.0.abort();
    }
}
