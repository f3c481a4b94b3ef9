//! The native part of the Python package `linerate`: `linerate::client` on a thread of its own. What Python sees is in
//! `python/linerate/__init__.py`.

mod call;
mod caller;
mod core;
mod error;
mod group;
mod limits;
mod message;
mod ready;
mod settings;
mod stream;

/// The module that the package imports.
#[pyo3::pymodule]
mod linerate_native {
    #[pymodule_export]
    use super::call::Call;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::group::Group;
    #[pymodule_export]
    use super::message::{Request, Response};
    #[pymodule_export]
    use super::stream::Stream;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python has for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
