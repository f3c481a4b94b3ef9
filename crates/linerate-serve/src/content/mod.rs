//! What `linerate serve` serves: files, built-in routes, and tables that say which.

pub(crate) mod extra_fields;
pub(crate) mod files;
pub(crate) mod host_name;
pub(crate) mod https;
pub(crate) mod routes;
pub(crate) mod service;
pub(crate) mod site;
pub(crate) mod table;
pub(crate) mod users;
