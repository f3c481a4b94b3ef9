//! URLs for scripts, as browsers read them.

use rquickjs::function::Opt;
use rquickjs::{Ctx, Result};
use url::{Url, quirks};

use super::values::{Natives, thrown};

/// A URL's parts, in the order in which `url.js` takes them.
type UrlParts = Vec<String>;

pub(super) fn install<'js>(natives: &Natives<'js>) -> Result<()> {
    natives.add("urlParts", |ctx: Ctx<'js>, text: String, base: Opt<Option<String>>| {
        let base = base.0.flatten();
        let parsed = match &base {
            Some(base) => Url::parse(base).and_then(|base| base.join(&text)),
            None => Url::parse(&text),
        };
        let url = parsed.map_err(|e| thrown(&ctx, &format!("Invalid URL {text:?}: {e}")))?;
        Ok::<_, rquickjs::Error>(parts(&url))
    })?;
    natives.add("urlWith", |ctx: Ctx<'js>, href: String, part: String, value: String| {
        let mut url = Url::parse(&href).map_err(|e| thrown(&ctx, &format!("Invalid URL {href:?}: {e}")))?;
        set(&mut url, &part, &value);
        Ok::<_, rquickjs::Error>(parts(&url))
    })?;
    natives.add("formPairs", |text: String| {
        let pairs = url::form_urlencoded::parse(text.as_bytes());
        pairs.map(|(name, value)| vec![name.into_owned(), value.into_owned()]).collect::<Vec<_>>()
    })
}

fn parts(url: &Url) -> UrlParts {
    let all = [
        quirks::href(url),
        &quirks::origin(url),
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
    ];
    all.map(str::to_owned).to_vec()
}

/// Sets a part. A value that does not fit changes nothing, as the URL standard has it.
fn set(url: &mut Url, part: &str, value: &str) {
    let _ = match part {
        "protocol" => quirks::set_protocol(url, value),
        "username" => quirks::set_username(url, value),
        "password" => quirks::set_password(url, value),
        "host" => quirks::set_host(url, value),
        "hostname" => quirks::set_hostname(url, value),
        "port" => quirks::set_port(url, value),
        "pathname" => {
            quirks::set_pathname(url, value);
            Ok(())
        }
        "search" => {
            quirks::set_search(url, value);
            Ok(())
        }
        _ => {
            quirks::set_hash(url, value);
            Ok(())
        }
    };
}
