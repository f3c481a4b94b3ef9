//! `linerate report`.

use linerate_report::{compare, lab, load_page, pipelining, saved};

use crate::args::ReportArgs;
use crate::documents::{self, SavedDocument};
use crate::fault::{CommandFault, Exit};
use crate::load::output::OutputSink;
use crate::terminal;

/// Runs the command. All files are read before anything is shown.
pub(crate) fn run(args: &ReportArgs) -> Result<Exit, CommandFault> {
    let (mut runs, mut comparisons, mut diagnoses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut labs, mut pipelines) = (Vec::new(), Vec::new());
    for path in &args.files {
        let file = path.display().to_string();
        let text = documents::read("report", path)?;
        match documents::parse(&file, &text).map_err(CommandFault::input)? {
            SavedDocument::Outcome(document) => runs.push((file, *document)),
            SavedDocument::Comparison(document) => comparisons.push((file, *document)),
            SavedDocument::Lab(document) => labs.push((file, *document)),
            SavedDocument::Pipelining(document) => pipelines.push((file, *document)),
            SavedDocument::Diagnosis(document) => diagnoses.push((file, *document)),
        }
    }
    let sink = args.html.as_deref().map(OutputSink::new);
    if let Some(sink) = &sink {
        sink.probe("--html")?;
        let html = match (runs.as_slice(), comparisons.as_slice(), labs.as_slice(), pipelines.as_slice()) {
            ([(_, document)], [], [], []) => load_page::to_string(document),
            ([], [(_, document)], [], []) => compare::page(document),
            ([], [], [(_, document)], []) => lab::page(document),
            ([], [], [], [(_, document)]) => pipelining::page(document),
            _ => {
                return Err(CommandFault::input("--html shows one run, one comparison or one scenario")
                    .hint("name one document that linerate load, compare or lab --json FILE wrote"));
            }
        };
        sink.write(&html)?;
    }
    let to_stderr = sink == Some(OutputSink::Stdout);
    let style = terminal::style_beside(to_stderr);
    let mut parts = Vec::new();
    if !runs.is_empty() {
        parts.push(saved::outcomes(&runs, style));
    }
    let several = args.files.len() > 1;
    let head =
        |file: &str| if several { format!("{}\n", style.bold(&format!("== {file}"))) } else { String::new() };
    parts.extend(comparisons.iter().map(|(file, d)| head(file) + &compare::text(d, style)));
    parts.extend(labs.iter().map(|(file, d)| head(file) + &lab::text(d, style)));
    parts.extend(pipelines.iter().map(|(file, d)| head(file) + &pipelining::text(d, style)));
    parts.extend(diagnoses.iter().map(|(file, d)| head(file) + &saved::diagnosis(d, style)));
    terminal::print_beside(&parts.join("\n"), to_stderr)?;
    Ok(Exit::Fine)
}
