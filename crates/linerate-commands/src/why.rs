//! `linerate explain --why`: a page about a cause.

use std::io;
use std::path::Path;

use linerate_explain::causes::Cause;
use linerate_explain::pages;
use linerate_report::Style;
use linerate_report::explain::why;

use crate::fault::{CommandFault, Exit};
use crate::load::output::OutputSink;
use crate::terminal;

/// Causes that are shown for a word that they share. Reason: two pages are a comparison, five a book.
const FAMILY: usize = 2;

/// Prints the page of the cause `id`, and writes it as HTML where that is wanted; without an id,
/// all there are.
pub(crate) fn run(id: &str, html: Option<&Path>) -> Result<Exit, CommandFault> {
    let style = terminal::style(&io::stdout());
    if id.is_empty() && html.is_none() {
        let begin = "Causes that have a page: linerate explain --why ID\n\n";
        return terminal::print(&format!("{begin}{}", why::list(style))).map(|()| Exit::Fine);
    }
    let several = family(id);
    if let ([_, _, ..], true) = (several.as_slice(), html.is_none()) {
        return terminal::print(&together(id, &several, style)).map(|()| Exit::Fine);
    }
    let cause = pages::of(id).ok_or_else(|| unknown(id))?;
    let sink = html.map(OutputSink::new);
    if let Some(sink) = &sink {
        sink.probe("--html")?;
        sink.write(&why::to_html(cause))?;
    }
    if sink != Some(OutputSink::Stdout) {
        terminal::print(&why::to_string(cause, style))?;
    }
    Ok(Exit::Fine)
}

/// Causes whose name has this word, where it is no cause's own name: `nagle` is one of the client and
/// one of the server.
fn family(word: &str) -> Vec<&'static Cause> {
    let all = pages::all();
    if all.iter().any(|page| page.id == word) {
        return Vec::new();
    }
    let found = all.into_iter().filter(|page| page.id.split('-').any(|part| part == word));
    let found: Vec<&Cause> = found.collect();
    if found.len() > FAMILY { Vec::new() } else { found }
}

/// The pages of a family, one after the other.
fn together(word: &str, family: &[&Cause], style: Style) -> String {
    let ids: Vec<&str> = family.iter().map(|page| page.id).collect();
    let begin = format!("{word} is {} causes: {}\n\n", ids.len(), ids.join(", "));
    let shown: Vec<String> = family.iter().map(|page| why::to_string(page, style)).collect();
    begin + &shown.join("\n\n")
}

fn unknown(id: &str) -> CommandFault {
    let ids: Vec<&str> = pages::all().iter().map(|p| p.id).collect();
    let known = format!("there are: {}", ids.join(", "));
    if id.is_empty() {
        return CommandFault::input("--why: --html needs the name of a cause").hint(known);
    }
    let near = ids.iter().find(|known| known.contains(id) || id.contains(**known));
    let fault = CommandFault::input(format!("--why: there is no cause {id:?}"));
    let fault =
        near.into_iter().fold(fault, |fault, near| fault.hint(format!("linerate explain --why {near}")));
    fault.hint(known)
}
