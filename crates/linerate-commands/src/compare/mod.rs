//! `linerate compare`.

mod rounds;
mod sides;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use linerate_lab::comparison::{self, Pair, RatioChange};
use linerate_report::compare::{self, ComparisonReport, Saved};
use linerate_report::schema::comparison as schema;

use crate::args::CompareArgs;
use crate::fault::{CommandFault, Exit};
use crate::load::Interrupt;
use crate::load::output::ReportSinks;
use crate::{documents, environment, terminal};
use rounds::Measured;
pub(crate) use rounds::one_run;
use sides::Planned;
pub(crate) use sides::{first_line, flags_of_load};

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<Exit, CommandFault> {
    let typed: Vec<String> = std::env::args().collect();
    let planned = sides::of(args, &typed)?;
    let baseline = args.baseline.as_deref().map(saved).transpose()?;
    let checks = args.gates.iter();
    if let (None, Some(check)) =
        (&baseline, checks.clone().find(|c| c.looked == linerate_lab::check::CheckedQuantity::Change))
    {
        return Err(CommandFault::input(format!(
            "--check {}: there is nothing it could have changed from",
            check.expr
        ))
        .hint("add --baseline FILE, a document that an earlier linerate compare --json FILE wrote"));
    }
    let sinks = ReportSinks::of(args.load.json.as_deref(), args.load.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let started_at = SystemTime::now();
    let measured = rounds::measure(args, &planned, &interrupt)?;
    let document = document(args, &planned, &measured, baseline.as_ref(), started_at);
    report(&document, &sinks)?;
    Ok(exit(&document, &measured))
}

/// Logarithms of B's value over A's, round by round, by metric.
type LogRatios = BTreeMap<String, Vec<f64>>;

/// `--baseline`: a saved comparison.
fn saved(path: &Path) -> Result<(Saved, LogRatios), CommandFault> {
    let text = documents::read("--baseline", path)?;
    let file = path.display().to_string();
    match documents::parse(&file, &text).map_err(|why| CommandFault::input(format!("--baseline: {why}")))? {
        documents::SavedDocument::Comparison(document) => {
            let saved = Saved { file, document: *document };
            let wrong = |why| CommandFault::input(format!("--baseline: {}: {why}", saved.file));
            let ratios = saved.log_ratios().map_err(wrong)?;
            Ok((saved, ratios))
        }
        other => Err(CommandFault::input(format!("--baseline: {file} is {}", other.what()))
            .hint("name a document that an earlier linerate compare --json FILE wrote")),
    }
}

fn document(
    args: &CompareArgs,
    planned: &Pair<Planned>,
    measured: &Measured,
    baseline: Option<&(Saved, LogRatios)>,
    started_at: SystemTime,
) -> schema::Document {
    let since: Vec<RatioChange> =
        baseline.map(|(_, ratios)| comparison::since(ratios, &measured.rounds)).unwrap_or_default();
    let checks = measured.rounds.checked(&args.gates, &since);
    let side = |i: usize| schema::Side {
        given: planned[i].given.clone(),
        target: measured.targets[i].clone(),
        flags: planned[i].flags.clone(),
        sending: measured.sending[i].clone(),
        server_cores: if planned[i].given.starts_with("cmd:") {
            measured.server_cores.clone()
        } else {
            Vec::new()
        },
    };
    compare::document(&ComparisonReport {
        sides: [side(0), side(1)],
        rounds: &measured.rounds,
        planned: args.rounds,
        run: measured.run,
        warm_up: measured.warm_up,
        started_at,
        checks: &checks,
        baseline: baseline.map(|(saved, _)| (saved, since.as_slice())),
        warnings: measured.warnings.clone(),
        interrupted: measured.interrupted,
        broken: measured.broken.clone(),
        environment: &environment::here(),
        io: measured.io.clone(),
    })
}

/// Prints the report first, so that nothing is lost where a file cannot be written.
fn report(document: &schema::Document, sinks: &ReportSinks) -> Result<(), CommandFault> {
    let to_stderr = sinks.to_stderr();
    let text = compare::text(document, terminal::style_beside(to_stderr));
    let printed = terminal::print_beside(&text, to_stderr);
    sinks.write("comparison", &compare::json(document), || compare::page(document)).and(printed)
}

fn exit(document: &schema::Document, measured: &Measured) -> Exit {
    if measured.interrupted {
        return Exit::Interrupted;
    }
    if measured.rounds.counted() == 0 {
        return if measured.broken.is_some() { Exit::Unreachable } else { Exit::CheckFailed };
    }
    let each: Vec<&String> = measured.rounds.pairs.iter().flatten().flat_map(|r| &r.failed_checks).collect();
    if let Some(first) = each.first() {
        let n = each.len();
        let _ = writeln!(io::stderr(), "FAILED  --check-each failed in {n} runs, first with {first}");
    }
    let failed = document.checks.iter().any(|c| !c.pass) || !each.is_empty() || measured.broken.is_some();
    let all_bad = measured.rounds.pairs.iter().flatten().any(linerate_lab::figures::RunFigures::is_all_bad);
    if failed || all_bad { Exit::CheckFailed } else { Exit::Fine }
}
