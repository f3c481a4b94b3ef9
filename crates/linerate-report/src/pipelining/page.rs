//! The verdict on pipelining as one page of HTML that needs nothing else.

use std::fmt::Write as _;

use crate::markup::escape;
use crate::passive::page::{footer, page};
use crate::schema::pipelining::PipeliningDocument;
use crate::units;

/// The page.
pub fn to_string(document: &PipeliningDocument) -> String {
    let class = if document.pays {
        "good"
    } else if document.cure.is_some() {
        "bad"
    } else {
        ""
    };
    let mut out = String::new();
    for (at, text) in document.summary.iter().enumerate() {
        let (tag, class) = if at == 0 { ("h1", class) } else { ("p", "lead") };
        let _ = write!(out, "<{tag} class=\"{class}\">{}</{tag}>", escape(text));
    }
    let _ = write!(out, "<p class=\"source\"><code>{}</code></p>", escape(&document.target));
    out.push_str(
        "<section><h2>Ways of sending</h2><div class=\"wide\"><table class=\"many\"><thead><tr><th class=\"l\">way</th>\
         <th>responses/s</th><th>without a good response</th><th>closed after</th></tr></thead><tbody>",
    );
    for way in &document.ways {
        let cure =
            if document.cure == Some(way.name) { " <span class=\"good\">what pays</span>" } else { "" };
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}{cure}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&way.in_words()),
            way.rate_rps.map_or("not measured".to_owned(), units::rate),
            units::percent(way.failed_share),
            way.closes_after.map_or("-".to_owned(), |n| format!("{n:.0} responses"))
        );
    }
    out.push_str("</tbody></table></div></section>");
    footer(&mut out, &document.environment, document.started_at.as_deref());
    page("linerate explain --pipelining", &out)
}
