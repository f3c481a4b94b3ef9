//! What does not go with flows, said before anything is sent.

use linerate_load::Plan;
use linerate_load::plan::flow::{FlowPlan, UserPace};
use linerate_load::plan::{Arrival, Way};

use crate::args::{FindBy, LoadArgs};
use crate::fault::CommandFault;

/// Some commands send single requests alone.
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

/// The flows of the plan file, with the users that flags ask for.
///
/// # Errors
/// Nobody says how many users there are, or flags are about users and there are no flows.
pub(crate) fn with_users(args: &LoadArgs, flows: Option<FlowPlan>) -> Result<Option<FlowPlan>, CommandFault> {
    let Some(mut flows) = flows else {
        let given = [
            ("--users", args.users.is_some()),
            ("--user-rate", args.user_rate.is_some()),
            ("--follow", args.follow.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                let fault =
                    CommandFault::input(format!("{flag} is about the users of flows, and there are none"));
                Err(fault.hint("write [[flow]] in a plan file, or use -c or -r for single requests"))
            }
            None => Ok(None),
        };
    };
    if let Some(rate) = &args.user_rate {
        if flows.keep_cookies {
            let fault = CommandFault::input("--user-rate makes new users, which have no cookies to keep");
            return Err(fault.hint("leave cookies = \"keep\" out of the plan file"));
        }
        // Those that the file says for a closed loop are no limit.
        if !matches!(flows.pace, UserPace::Arriving(..)) {
            flows.users = flows.usual_users();
        }
        flows.pace = UserPace::Arriving(rate.clone(), Arrival::default());
        flows.own_connections = true;
    }
    if let (UserPace::Arriving(_, arrival), Some(typed)) = (&mut flows.pace, args.arrival) {
        *arrival = typed.into();
    }
    if let Some(users) = &args.users {
        flows.set_users(users.clone()).map_err(|why| CommandFault::input(format!("--users: {why}")))?;
    }
    if let Some(follow) = args.follow {
        flows.set_follow(follow).map_err(|why| CommandFault::input(format!("--follow: {why}")))?;
    }
    if flows.users == 0 {
        let path = args.plan.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
        let message = format!("{path}: a plan with flows says how many users there are");
        return Err(CommandFault::input(message).hint("write users = 10 at its top, or use --users 10"));
    }
    Ok(Some(flows))
}

/// Whether flags ask for what flows cannot do.
///
/// # Errors
/// The first of them, and what to do instead.
pub(crate) fn check(args: &LoadArgs, flows: Option<&FlowPlan>) -> Result<(), CommandFault> {
    let Some(flows) = flows else { return Ok(()) };
    let is_arriving = matches!(flows.pace, UserPace::Arriving(..));
    const CONNECTIONS: &str = "use --users N: each user has a connection";
    const PACE: &str = "use --user-rate R: so many users begin in a second";
    const FILE: &str = "write it in the plan file, at the step that is meant";
    const ABSENT: &str = "it is not supported in flows yet";
    const FIND: &str = "add --find-by connections: it finds how many users the server can take";
    let finds_users = matches!(args.find_by, Some(FindBy::Connections)) && flows.pace == UserPace::Always;
    let of_request = &args.request;
    let way = args.way.map(Way::from).is_some_and(|way| way != Way::Loop);
    let conflicts = [
        ("-c", args.connections.is_some(), CONNECTIONS),
        ("-r", args.rate.is_some(), PACE),
        ("--arrival", args.arrival.is_some() && !is_arriving, PACE),
        ("-n", args.requests.is_some(), "set iterations in the plan file"),
        ("--pipeline", args.pipeline.is_some(), "a user waits for each response"),
        ("--per-connection", args.per_connection.is_some(), ABSENT),
        ("--tag", args.tag.is_some(), ABSENT),
        ("--throughput", args.throughput, "flows need each response as it comes"),
        ("--way", way, "flows need event loops"),
        ("--find", args.find.is_some() && !finds_users, FIND),
        ("--explain", args.explain, ABSENT),
        ("--dry-run", args.dry_run, ABSENT),
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
