//! Which modules a script may import, and where they come from.

use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Module, Result};

use super::state::UserState;
use crate::limits::MODULES;
use crate::program::ScriptProgram;

/// Modules of ours, by the name under which scripts import them.
const OURS: [(&str, &str); 11] = [
    ("k6", include_str!("../js/k6.js")),
    ("k6/http", include_str!("../js/http.js")),
    ("k6/metrics", include_str!("../js/metrics.js")),
    ("k6/data", include_str!("../js/data.js")),
    ("k6/execution", include_str!("../js/execution.js")),
    ("k6/encoding", include_str!("../js/encoding.js")),
    ("k6/crypto", include_str!("../js/crypto.js")),
    ("k6/timers", include_str!("../js/timers.js")),
    // Under their older names.
    ("k6/experimental/timers", include_str!("../js/timers.js")),
    ("k6/experimental/webcrypto", include_str!("../js/experimental-webcrypto.js")),
    ("k6/html", include_str!("../js/html.js")),
];

/// Modules of ours for URLs, by the part of the URL that names them.
const BY_URL: [(&str, &str); 7] = [
    ("k6-utils", include_str!("../js/jslib/k6-utils.js")),
    ("k6-summary", include_str!("../js/jslib/k6-summary.js")),
    ("httpx", include_str!("../js/jslib/httpx.js")),
    ("url", include_str!("../js/jslib/url.js")),
    ("formdata", include_str!("../js/jslib/formdata.js")),
    ("papaparse", include_str!("../js/jslib/papaparse.js")),
    ("k6chaijs", include_str!("../js/jslib/k6chaijs.js")),
];

/// Finds modules.
pub(super) struct ScriptResolver(pub(super) Rc<UserState>);

/// Loads them.
pub(super) struct ScriptLoader(pub(super) Rc<UserState>);

/// The name of our module behind a URL.
fn behind(url: &str) -> Option<&'static str> {
    let place = url.split_once("://")?.1.split_once('/')?;
    let name = place.1.split('/').next()?;
    (place.0 == "jslib.k6.io")
        .then(|| BY_URL.iter().find(|(known, _)| *known == name))
        .flatten()
        .map(|(n, _)| *n)
}

/// Why there is no such module.
fn refusal(name: &str) -> String {
    match name {
        "k6/browser" | "k6/experimental/browser" => "the browser module is not supported".to_owned(),
        _ if name.starts_with("k6/x/") => format!("extensions are not supported: {name}"),
        _ if name.starts_with("k6") => format!("the module {name} is not supported"),
        _ if name.contains("://") => format!(
            "{name} is not fetched\nhint: download it and import it by its path; of https://jslib.k6.io there are {}",
            BY_URL.map(|(name, _)| name).join(", ")
        ),
        _ => format!("there is no module {name}\nhint: begin a path with ./ or ../"),
    }
}

impl ScriptResolver {
    fn find(&self, base: &str, name: &str) -> std::result::Result<String, String> {
        if OURS.iter().any(|(ours, _)| *ours == name) {
            return Ok(name.to_owned());
        }
        if let Some(ours) = behind(name) {
            return Ok(ours.to_owned());
        }
        let is_path = ["./", "../", "/", "file://"].iter().any(|start| name.starts_with(start));
        if is_path { Ok(ScriptProgram::path_of(base, name)) } else { Err(refusal(name)) }
    }

    /// The line of the import, for people.
    fn line(&self, base: &str, name: &str) -> String {
        let source = self.0.program.file(base).unwrap_or_else(|_| std::sync::Arc::from([].as_slice()));
        let text = String::from_utf8_lossy(&source);
        let has =
            |line: &str| ["'", "\"", "`"].iter().any(|quote| line.contains(&format!("{quote}{name}{quote}")));
        match text.lines().position(has) {
            Some(line) => format!("{base}:{}", line + 1),
            None => base.to_owned(),
        }
    }
}

impl Resolver for ScriptResolver {
    fn resolve<'js>(
        &mut self,
        _: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        self.find(base, name).map_err(|why| {
            let why = format!("{}: {why}", self.line(base, name));
            self.0.refuse(&why);
            Error::new_resolving_message(base, name, why)
        })
    }
}

impl Loader for ScriptLoader {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let ours = OURS.iter().chain(&BY_URL).find(|(ours, _)| *ours == name);
        if let Some((_, source)) = ours {
            return Module::declare(ctx.clone(), name, *source);
        }
        let loaded = self.0.count_module();
        let source = match loaded > MODULES {
            true => Err(format!("more than {MODULES} modules")),
            false => self.0.program.file(name),
        };
        match source {
            Ok(source) => Module::declare(ctx.clone(), name, source.to_vec()),
            Err(why) => {
                self.0.refuse(&format!("{name}: {why}"));
                Err(Error::new_loading_message(name, why))
            }
        }
    }
}
