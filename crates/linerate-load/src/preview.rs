//! Shows what would be sent, without sending it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::kinds::Kinds;
use crate::plan::{Plan, Way};
use crate::start::StartError;

/// Whether the plan can be carried out: the error is the one [`start`](crate::start) would give for
/// it.
///
/// ```
/// use linerate_load::plan::{Plan, Target};
///
/// let plan = Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/");
/// assert!(linerate_load::check(&plan).is_ok());
/// assert!(linerate_load::check(&Plan { connections: 0, ..plan }).is_err());
/// ```
pub fn check(plan: &Plan) -> Result<(), StartError> {
    plan.validate()?;
    Kinds::new(plan, 0, 1)?;
    Ok(())
}

/// Whether several machines can carry the plan out together, each with [`start_part`](crate::start_part): they send by
/// event loops, and a flow's users stay on one machine.
///
/// ```
/// use linerate_load::plan::{Plan, Target, Way};
///
/// let plan = Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/");
/// assert!(linerate_load::check_part(&plan).is_ok());
/// assert!(linerate_load::check_part(&Plan { way: Way::Threads, ..plan }).is_err());
/// ```
pub fn check_part(plan: &Plan) -> Result<(), StartError> {
    if plan.way != Way::Loop {
        return Err(StartError::Plan("a run of several machines needs event loops".to_owned()));
    }
    check(plan)
}

/// The bytes of the plan's first request, as they would leave now. The error is the one
/// [`start`](crate::start) would give for the plan.
///
/// ```
/// use linerate_load::plan::{Plan, Target};
///
/// let plan = Plan::get(Target::at(([127, 0, 0, 1], 8080).into()), "/items/{{seq}}");
/// let bytes = linerate_load::first_request(&plan)?;
/// assert!(bytes.starts_with(b"GET /items/0 HTTP/1.1\r\n"));
/// # Ok::<(), linerate_load::StartError>(())
/// ```
pub fn first_request(plan: &Plan) -> Result<Vec<u8>, StartError> {
    plan.validate()?;
    let kinds = Kinds::new(plan, 0, 1)?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    let (kind, _) = kinds.pick(0, 1);
    let mut bytes = Vec::new();
    kinds.render(kind, 0, plan.per_connection == Some(1), now_ms, &mut bytes);
    Ok(bytes)
}
