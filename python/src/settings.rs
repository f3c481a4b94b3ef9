//! Settings of a client, from Python's values.

use std::time::Duration;

use linerate_client::client::{Builder, Error, Protocol};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raise;

/// One setting. A client of several servers makes it for each of them.
type Setting = Box<dyn Fn(Builder) -> Builder + Send + Sync>;

/// The settings of a client that the program gave.
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    pub(crate) fn of(
        pipes: Option<u32>,
        depth: Option<u32>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Settings> {
        let mut all: Vec<Setting> = Vec::new();
        if let Some(pipes) = pipes {
            all.push(Box::new(move |builder| builder.pipes(pipes)));
        }
        if let Some(depth) = depth {
            all.push(Box::new(move |builder| builder.depth(depth)));
        }
        for (name, value) in named.into_iter().flatten() {
            if !value.is_none() {
                all.push(setting(&name.extract::<String>()?, &value)?);
            }
        }
        Ok(Settings(all))
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        self.0.iter().fold(builder, |builder, setting| setting(builder))
    }
}

fn with<T: Clone + Send + Sync + 'static>(
    value: PyResult<T>,
    set: impl Fn(Builder, T) -> Builder + Send + Sync + 'static,
) -> PyResult<Setting> {
    let value = value?;
    Ok(Box::new(move |builder| set(builder, value.clone())))
}

fn setting(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Setting> {
    let py = value.py();
    let wrong = |words: String| raise(py, Error::Builder(words));
    let seconds = || {
        let seconds: f64 = value.extract()?;
        Duration::try_from_secs_f64(seconds).map_err(|e| wrong(format!("{name} is {seconds}: {e}")))
    };
    let text = || value.extract::<String>();
    match name {
        "queue" => with(value.extract(), Builder::queue),
        "timeout" => with(seconds(), Builder::timeout),
        "connect_timeout" => with(seconds(), Builder::connect_timeout),
        "first_byte_timeout" => with(seconds(), Builder::first_byte_timeout),
        "idle_timeout" => with(seconds(), Builder::idle_timeout),
        "max_head" => with(value.extract(), Builder::max_head),
        "max_body" => with(value.extract(), Builder::max_body),
        "max_discarded" => with(value.extract(), Builder::max_discarded),
        "connect_attempts" => with(value.extract(), Builder::connect_attempts),
        "tag" => with(text(), |builder, tag| builder.tag(&tag)),
        "protocol" => with(text().and_then(|name| protocol(&name).map_err(wrong)), Builder::protocol),
        "h2_connections" => with(value.extract(), Builder::h2_connections),
        "add_root" => with(text(), Builder::add_root),
        "client_certificate" => with(value.extract(), |builder, (chain, key): (String, String)| {
            builder.client_certificate(chain, key)
        }),
        "proxy" => with(text(), |builder, proxy| builder.proxy(&proxy)),
        "no_proxy_for" => with(text(), |builder, hosts| builder.no_proxy_for(&hosts)),
        "server_name" => with(text(), |builder, name| builder.server_name(&name)),
        _ => Err(wrong(format!("no setting {name}\nhint: {}", hint(name)))),
    }
}

/// What a program may have wanted by a name that other clients have.
fn hint(name: &str) -> &'static str {
    match name {
        "origins" | "connections" | "redirects" | "resolve" | "unix_sockets" => "it is one of Hosts",
        "limits" => "take connections, origins and pipes of Hosts, or pipes and depth",
        "headers" | "params" => "give them to each call",
        "verify" | "cert" => "add_root trusts a certificate, client_certificate shows one",
        _ => "help(linerate.Client) names all",
    }
}

fn protocol(name: &str) -> Result<Protocol, String> {
    Ok(match name {
        "either" => Protocol::Either,
        "http1" => Protocol::Http1,
        "http2" => Protocol::Http2,
        "http3" => Protocol::Http3,
        "alt_svc" => Protocol::AltSvc,
        other => {
            let hint = r#"take "either", "http1", "http2", "http3" or "alt_svc""#;
            return Err(format!("protocol is {other:?}\nhint: {hint}"));
        }
    })
}
