//! What does not go with flows, said before anything is sent.

use linerate_load::Plan;
use linerate_load::plan::Way;
use linerate_load::plan::flow::FlowPlan;

use crate::args::LoadArgs;
use crate::fault::CommandFault;

/// `compare` and the lab run single requests alone.
///
/// # Errors
/// The plan has flows.
pub(crate) fn refuse(plan: &Plan, command: &str) -> Result<(), CommandFault> {
    match &plan.flows {
        Some(_) => {
            Err(CommandFault::input(format!("{command} does not support the flows of a plan file yet"))
                .hint("use linerate load for them"))
        }
        None => Ok(()),
    }
}

/// Whether flags ask for what flows cannot do.
///
/// # Errors
/// The first of them, and what to do instead.
pub(crate) fn check(args: &LoadArgs, flows: Option<&FlowPlan>) -> Result<(), CommandFault> {
    if flows.is_none() {
        return Ok(());
    }
    const CONNECTIONS: &str = "set users in the plan file: each user has a connection";
    const PACE: &str = "users go on when their responses come";
    const FILE: &str = "write it in the plan file, at the step that is meant";
    const ABSENT: &str = "it is not supported in flows yet";
    let of_request = &args.request;
    let way = args.way.map(Way::from).is_some_and(|way| way != Way::Loop);
    let conflicts = [
        ("-c", args.connections.is_some(), CONNECTIONS),
        ("-r", args.rate.is_some(), PACE),
        ("--arrival", args.arrival.is_some(), PACE),
        ("-n", args.requests.is_some(), "set iterations in the plan file"),
        ("--pipeline", args.pipeline.is_some(), "a user waits for each response"),
        ("--per-connection", args.per_connection.is_some(), ABSENT),
        ("--tag", args.tag.is_some(), ABSENT),
        ("--throughput", args.throughput, "flows need each response as it comes"),
        ("--way", way, "flows need event loops"),
        ("--find", args.find.is_some(), ABSENT),
        ("--find-by", args.find_by.is_some(), ABSENT),
        ("--explain", args.explain, ABSENT),
        ("--dry-run", args.dry_run, ABSENT),
        ("--agents", args.machines.are_wanted(), ABSENT),
        ("--method", of_request.method.is_some(), FILE),
        ("--body", of_request.body.is_some(), FILE),
        ("--body-template", args.body_template.is_some(), FILE),
        ("--form", !args.form.is_empty(), FILE),
        ("--raw", args.raw.is_some(), FILE),
    ];
    match conflicts.into_iter().find(|(_, given, _)| *given) {
        Some((flag, _, advice)) => {
            Err(CommandFault::input(format!("{flag} does not go with the flows of the plan file"))
                .hint(advice))
        }
        None => Ok(()),
    }
}
