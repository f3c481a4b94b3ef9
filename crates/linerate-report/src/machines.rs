//! The machines of one run side by side, below its summary.

use std::fmt::Write as _;

use crate::markup::escape;
use crate::schema::machines::{Agent, Machines};
use crate::style::Style;
use crate::units;

/// A table with a line for each machine, and what is missing.
pub fn to_string(machines: &Machines, style: Style) -> String {
    let mut out = String::from("\n");
    let longest = machines.agents.iter().map(|agent| agent.name.chars().count()).max().unwrap_or(0);
    let width = longest.max("agent".len());
    let head = format!(
        "{:<width$}  {:>11}  {:>10}  {:>10}  {:>8}  {:>8}  {}",
        "agent", "requests/s", "p50", "p99", "late p99", "errors", "figures"
    );
    out.push_str(&style.bold(head.trim_end()));
    out.push('\n');
    for agent in &machines.agents {
        let time = |us: f64| units::time_us(us, style.unicode);
        let latency = |us: Option<f64>| us.map_or("-".to_owned(), time);
        let line = format!(
            "{:<width$}  {:>11}  {:>10}  {:>10}  {:>8}  {:>8}  ",
            agent.name,
            units::rate(agent.rate_rps),
            bounded(agent, "p50_us", &latency(agent.p50_us), ">="),
            bounded(agent, "p99_us", &latency(agent.p99_us), ">="),
            time(agent.lateness_p99_us),
            units::count(agent.errors),
        );
        let standing = standing(agent, style.unicode);
        if line.chars().count() + standing.chars().count() <= usize::from(style.width) {
            out.push_str(&line);
            out.push_str(&standing);
        } else {
            // Below, behind the name.
            out.push_str(line.trim_end());
            out.push('\n');
            out.push_str(&style.wrapped(&" ".repeat(width + 2), &standing));
        }
        out.push('\n');
    }
    if let Some(text) = together(machines, style) {
        out.push_str(&style.dim(&text));
        out.push('\n');
    }
    let run = &machines.run;
    let whole = if machines.complete { "complete" } else { "NOT complete" };
    out.push_str(&format!("run {run}: {whole}\n"));
    if !machines.complete {
        let advice = format!(
            "linerate agent replay --nats URL SPOOL on such an agent's machine publishes what is missing; then linerate load --nats URL --resume {run}"
        );
        out.push_str(&advice);
        out.push('\n');
    }
    out
}

/// A percentile of an agent, marked where requests without a good response make it a bound.
fn bounded(agent: &Agent, row: &str, time: &str, mark: &str) -> String {
    if agent.at_least.iter().any(|bound| bound == row) { format!("{mark} {time}") } else { time.to_owned() }
}

/// How far apart the machines began: by their clocks, and by what they needed to begin.
fn together(machines: &Machines, style: Style) -> Option<String> {
    let time = |us: f64| units::time_us(us, style.unicode);
    let clocks = machines.clock_uncertainty_us.map(|us| format!("clocks agree to within {}", time(us)));
    let late = machines.agents.iter().filter_map(|agent| agent.start_late_us).reduce(f64::max);
    let late = late.map(|us| format!("the last thread began {} late", time(us)));
    let both: Vec<String> = [clocks, late].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join(", "))
}

fn standing(agent: &Agent, unicode: bool) -> String {
    let limit = if agent.saturated { ", this machine was the limit" } else { "" };
    let figures = match (agent.standing.as_str(), agent.last_second) {
        ("lost", Some(second)) => format!("lost after second {second}"),
        ("lost", None) => "lost before its first report".to_owned(),
        ("missing", _) => format!("{} messages missing", agent.missing.len()),
        ("left", Some(second)) => format!("left after second {second}"),
        ("complete", _) => "whole".to_owned(),
        (other, _) => other.to_owned(),
    };
    let stood_still = (agent.stood_still_ms > 0.0)
        .then(|| format!(", stood still for up to {}", units::time_us(agent.stood_still_ms * 1e3, unicode)));
    format!("{figures}{limit}{}", stood_still.unwrap_or_default())
}

/// The same as part of a page.
pub(crate) fn page(out: &mut String, machines: &Machines) {
    let _ = write!(
        out,
        "<h2>Agents</h2><table><tr><th>agent</th><th>requests/s</th><th>p50</th><th>p99</th>\
         <th>late p99</th><th>errors</th><th>unsent</th><th>figures</th></tr>"
    );
    let time = |us: f64| units::time_us(us, true);
    let latency = |us: Option<f64>| us.map_or("-".to_owned(), time);
    for agent in &machines.agents {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&agent.name),
            units::rate(agent.rate_rps),
            bounded(agent, "p50_us", &latency(agent.p50_us), "\u{2265}"),
            bounded(agent, "p99_us", &latency(agent.p99_us), "\u{2265}"),
            time(agent.lateness_p99_us),
            units::count(agent.errors),
            units::count(agent.unsent),
            escape(&standing(agent, true)),
        );
    }
    out.push_str("</table>");
    let whole = if machines.complete { "complete" } else { "NOT complete" };
    let _ = write!(out, "<p class=\"source\">run {}: {whole}</p>", escape(&machines.run));
}

/// Why the figures of a run are not whole; `None`: they are.
pub fn not_complete(machines: &Machines) -> Option<String> {
    let not_whole = machines.agents.iter().filter(|agent| agent.standing != "complete");
    let agents: Vec<String> =
        not_whole.map(|agent| format!("agent {}: {}", agent.name, standing(agent, true))).collect();
    (!machines.complete).then(|| format!("the run is NOT complete: {}", agents.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Agent {
        Agent {
            name: name.to_owned(),
            standing: "complete".to_owned(),
            last_second: None,
            missing: Vec::new(),
            threads: 2,
            rate_rps: 51_234.5,
            sent: 100,
            answered: 100,
            failed: 0,
            unknown: 0,
            unsent: 0,
            errors: 0,
            p50_us: Some(310.0),
            p99_us: Some(1_250.0),
            at_least: Vec::new(),
            lateness_p99_us: 12.0,
            start_late_us: Some(410.0),
            stood_still_ms: 0.0,
            saturated: false,
        }
    }

    #[test]
    fn the_machine_that_stood_still_is_named() {
        assert_eq!(standing(&agent("a"), true), "whole");
        let still = Agent { stood_still_ms: 1_204.0, ..agent("b") };
        assert_eq!(standing(&still, true), "whole, stood still for up to 1.20 s");
    }

    #[test]
    fn an_agent_that_sent_nothing_was_not_the_fastest() {
        let idle = Agent { sent: 0, answered: 0, p50_us: None, p99_us: None, ..agent("a") };
        let machines = Machines {
            run: "0123".to_owned(),
            complete: true,
            clock_uncertainty_us: None,
            agents: vec![idle],
        };
        let text = to_string(&machines, Style::default());
        let line = text.lines().find(|line| line.starts_with("a ")).expect("the agent's line");
        assert_eq!(line.split_whitespace().filter(|word| *word == "-").count(), 2, "{text}");
        let unheard = Agent { standing: "lost".to_owned(), last_second: None, ..agent("a") };
        assert_eq!(standing(&unheard, true), "lost before its first report");
    }

    #[test]
    fn what_no_response_reached_is_an_error_and_a_bound() {
        let cut = Agent { errors: 24, at_least: vec!["p99_us".to_owned()], ..agent("a") };
        let machines = Machines {
            run: "0123".to_owned(),
            complete: true,
            clock_uncertainty_us: None,
            agents: vec![cut],
        };
        let text = to_string(&machines, Style::default());
        let line = text.lines().find(|line| line.starts_with("a ")).expect("the agent's line");
        assert!(line.contains(" >= 1.25 ms ") && !line.contains(">= 310"), "{text}");
        assert!(line.contains(" 24  whole"), "{text}");
        let mut html = String::new();
        page(&mut html, &machines);
        assert!(html.contains("<td>\u{2265} 1.25 ms</td>") && html.contains("<td>24</td>"), "{html}");
    }

    #[test]
    fn each_machine_has_a_line_and_what_is_missing_is_said() {
        let lost = Agent { standing: "lost".to_owned(), last_second: Some(4), saturated: true, ..agent("b") };
        let mut machines = Machines {
            run: "0123".to_owned(),
            complete: false,
            clock_uncertainty_us: Some(83.0),
            agents: vec![agent("eu-west-1"), lost],
        };
        let text = to_string(&machines, Style::default());
        let table = text.lines().filter(|line| !line.starts_with("linerate "));
        assert!(table.clone().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
        let why = not_complete(&machines).expect("it is not");
        assert_eq!(why, "the run is NOT complete: agent b: lost after second 4, this machine was the limit");
        let mut html = String::new();
        page(&mut html, &machines);
        assert!(html.contains("<td>eu-west-1</td><td>51,2") && html.contains("<td>b</td>"), "{html}");
        assert!(html.contains("run 0123: NOT complete"), "{html}");
        machines.complete = true;
        assert_eq!(not_complete(&machines), None);
        assert!(to_string(&machines, Style::default()).ends_with("run 0123: complete\n"));
    }
}
