//! The tables of docs/EXPLAIN-ACCURACY.md, between their markers.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::case::{Case, NOT_INJECTED};
use super::judged::{JudgedDiagnosis, alarms, calibration, judge};
use super::results::DiagnosisRun;
use super::{cases, cells};
use xtask::shell;

const PAGE: &str = "docs/EXPLAIN-ACCURACY.md";
const BEGIN: &str = "<!-- bench explain: begin -->";
const END: &str = "<!-- bench explain: end -->";

/// How near a prediction should be to the call without the fault, as a share of that.
const NEAR: f64 = 0.1;
/// Below this calls vary by themselves from one diagnosis to the next, milliseconds.
const WITHIN_MS: f64 = 0.5;

const TLS_BEGIN: &str = "<!-- bench explain tls: begin -->";
const TLS_END: &str = "<!-- bench explain tls: end -->";
const CELLS_BEGIN: &str = "<!-- bench explain cells: begin -->";
const CELLS_END: &str = "<!-- bench explain cells: end -->";

/// The runs of one case at one round-trip time.
struct CaseRuns<'a> {
    case: &'static Case,
    rtt_ms: u64,
    runs: Vec<&'a DiagnosisRun>,
}

impl CaseRuns<'_> {
    fn count(&self, f: impl Fn(&DiagnosisRun) -> bool) -> usize {
        self.runs.iter().filter(|r| f(r)).count()
    }

    fn alarms(&self) -> usize {
        self.count(|r| alarms(self.case, r).next().is_some())
    }

    fn first(&self) -> usize {
        self.count(|r| r.rank(self.case.truth, self.case.behind) == Some(1))
    }

    fn in_first_two(&self) -> usize {
        self.count(|r| r.rank(self.case.truth, self.case.behind).is_some_and(|n| n <= 2))
    }

    /// "At least 9 in 10 ranked first, all in the first two."
    fn reached(&self) -> bool {
        self.first() * 10 >= self.runs.len() * 9 && self.in_first_two() == self.runs.len()
    }

    fn median(&self, f: impl Fn(&DiagnosisRun) -> Option<f64>) -> Option<f64> {
        let mut all: Vec<f64> = self.runs.iter().filter_map(|r| f(r)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    fn cost(&self) -> String {
        let cost = |r: &DiagnosisRun| r.causes.iter().find(|c| c.0 == self.case.truth).map(|c| c.1);
        self.median(cost).map_or("-".to_owned(), |c| format!("{c:.1} ms"))
    }

    /// The prediction for the call after the fix, the time of the call without the fault, and how
    /// often they were close.
    fn predicted(&self) -> String {
        let held: Vec<f64> = self.runs.iter().filter_map(|r| r.prediction_off()).collect();
        let both = self.median(|r| Some(r.predicted.as_ref()?.ms)).zip(self.median(|r| r.fixed_ms));
        let Some((predicted, fixed)) = both.filter(|_| !held.is_empty()) else { return "- | -".to_owned() };
        let near = held.iter().filter(|off| **off <= NEAR).count();
        format!("{predicted:.2}, {fixed:.2} ms | {near} of {}", held.len())
    }

    fn took(&self) -> String {
        self.median(|r| Some(r.took_s)).map_or("-".to_owned(), |t| format!("{t:.1} s"))
    }

    /// Causes named instead of the correct one, or before it, with their counts.
    fn others(&self) -> String {
        let mut counts: Vec<(String, usize)> = Vec::new();
        for run in &self.runs {
            let id = match (run.causes.first(), &run.error) {
                (_, Some(_)) => "(no diagnosis)",
                (Some((id, _)), _) if id == self.case.truth => continue,
                (Some((id, _)), _) => id,
                (None, _) if self.case.truth.is_empty() && run.verdict == "healthy" => continue,
                (None, _) => &format!("({})", run.verdict),
            };
            match counts.iter_mut().find(|c| c.0 == id) {
                Some(c) => c.1 += 1,
                None => counts.push((id.to_owned(), 1)),
            }
        }
        let words: Vec<String> = counts.iter().map(|(id, n)| format!("{id} {n}")).collect();
        if words.is_empty() { "-".to_owned() } else { words.join(", ") }
    }
}

fn groups(runs: &[DiagnosisRun]) -> Vec<CaseRuns<'_>> {
    let of = |case: &'static Case, rtt_ms: u64| {
        let mine = runs.iter().filter(|r| r.case == case.name && r.rtt_ms == rtt_ms).collect();
        CaseRuns { case, rtt_ms, runs: mine }
    };
    let all = cases::all().flat_map(|case| case.rtts.iter().map(move |rtt| of(case, *rtt)));
    all.filter(|g| !g.runs.is_empty()).collect()
}

/// Both tables.
pub(crate) fn markdown(runs: &[DiagnosisRun]) -> String {
    let groups = groups(runs);
    let (alike, faults): (Vec<_>, Vec<_>) = groups.iter().partition(|g| g.case.alike);
    let mut out = String::new();
    out += "| cause | injected as | RTT | runs | ranked first | in the first two | it costs, median | predicted, fixed | within 10 % | verdict after, median | named before it or instead |\n";
    out += "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for g in &faults {
        let mark = if g.reached() { "" } else { " (missed)" };
        let _ = writeln!(
            out,
            "| `{}`{mark} | {} | {} ms | {} | {} | {} | {} | {} | {} | {} |",
            g.case.truth,
            g.case.name,
            g.rtt_ms,
            g.runs.len(),
            g.first(),
            g.in_first_two(),
            g.cost(),
            g.predicted(),
            g.took(),
            g.others()
        );
    }
    out += "\nHealthy servers and look-alikes. A cause on the way that is named here is a false alarm.\n\n";
    out += "| server | right is | RTT | runs | right | false alarms on the way | verdict after, median | else named first |\n";
    out += "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for g in &alike {
        let right = g.count(|r| judge(g.case, r) == JudgedDiagnosis::Right);
        let truth =
            if g.case.truth.is_empty() { "healthy".to_owned() } else { format!("`{}`", g.case.truth) };
        let alarms = g.alarms();
        let _ = writeln!(
            out,
            "| {} | {truth} | {} ms | {} | {right} | {alarms} | {} | {} |",
            g.case.name,
            g.rtt_ms,
            g.runs.len(),
            g.took(),
            g.others()
        );
    }
    out + &sums(&groups)
}

/// Of each cell how often it was right, unclear and wrong.
pub(crate) fn cells(runs: &[DiagnosisRun]) -> String {
    let mut out =
        "| server | quiet, 0 ms | quiet, 40 ms | beside 4 loops, 0 ms | beside 4 loops, 40 ms | wrong |\n"
            .to_owned();
    out += "| --- | --- | --- | --- | --- | --- |\n";
    let (mut all, mut known) = ([0; 3], Vec::new());
    for pair in cells::all().chunks(2) {
        let row = cell_row(pair, runs, &mut all);
        known.extend(row);
    }
    known.iter().for_each(|row| out += row);
    let [right, unclear, wrong] = all;
    let n = right + unclear + wrong;
    let _ = writeln!(
        out,
        "\nEach field: right / unclear / wrong. Of {n} diagnoses {right} were right, {unclear} unclear and {wrong} wrong."
    );
    let of = |run| cells::all().iter().find(|c: &&Case| run_of(c, run)).map(|c| (c, run));
    out += "\n| called | true | of | share | goal |\n| --- | --- | --- | --- | --- |\n";
    let goals = ["at least 99 %", "at least 80 %", "-"];
    for ((name, there, of), goal) in calibration(runs.iter().filter_map(of)).into_iter().zip(goals) {
        let share =
            if of == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * there as f64 / of as f64) };
        let _ = writeln!(out, "| {name} | {there} | {of} | {share} | {goal} |");
    }
    out
}

fn run_of(case: &Case, run: &DiagnosisRun) -> bool {
    run.case == case.name
}

/// A server with an application: on a quiet machine and beside the loops, near and far.
fn cell_row(pair: &[Case], runs: &[DiagnosisRun], all: &mut [usize; 3]) -> Option<String> {
    let (mut fields, mut wrong, mut any) = (Vec::new(), Vec::<String>::new(), false);
    for case in pair {
        for rtt in case.rtts {
            let mut counts = [0; 3];
            for run in runs.iter().filter(|r| run_of(case, r) && r.rtt_ms == *rtt) {
                any = true;
                let judged = judge(case, run);
                counts[judged as usize] += 1;
                if judged == JudgedDiagnosis::Wrong {
                    let named = run.causes.first().map_or(run.verdict.as_str(), |c| c.0.as_str());
                    wrong.push(named.to_owned());
                }
            }
            (0..3).for_each(|i| all[i] += counts[i]);
            fields.push(counts.map(|n| n.to_string()).join(" / "));
        }
    }
    wrong.sort_unstable();
    wrong.dedup();
    let wrong = if wrong.is_empty() { "-".to_owned() } else { wrong.join(", ") };
    any.then(|| format!("| {} | {} | {wrong} |\n", pair[0].name, fields.join(" | ")))
}

/// The totals of all groups.
fn sums(groups: &[CaseRuns<'_>]) -> String {
    let (alike, faults): (Vec<_>, Vec<_>) = groups.iter().partition(|g| g.case.alike);
    let runs: usize = alike.iter().map(|g| g.runs.len()).sum();
    let alarms: usize = alike.iter().map(|g| g.alarms()).sum();
    let reached = faults.iter().filter(|g| g.reached()).count();
    let all = || groups.iter().flat_map(|g| &g.runs);
    let longest = all().map(|r| r.took_s).fold(0.0, f64::max);
    let off = all().filter_map(|r| r.parts_off).fold(0.0, f64::max);
    let mut out = format!(
        "\n{reached} of {} injections reached the goal (9 in 10 ranked first, all in the first two). {alarms} false alarms on the way in {runs} runs \
         of healthy servers and look-alikes. The longest diagnosis took {longest:.1} s; the parts of a call (of a millisecond or more) were at most {:.2} % off its time.\n",
        faults.len(),
        off * 100.0
    );
    let held: Vec<f64> = all().filter_map(|r| r.prediction_off()).collect();
    if !held.is_empty() {
        let near = held.iter().filter(|off| **off <= NEAR).count();
        let share = 100.0 * near as f64 / held.len() as f64;
        let _ = writeln!(
            out,
            "\nOf {} predictions {near} ({share:.0} %) were within 10 % of what the call took without the fault (goal 90 %).",
            held.len()
        );
        let or_near: Vec<bool> = all()
            .filter_map(|r| Some(r.prediction_off()? <= NEAR || r.prediction_holds(WITHIN_MS)?))
            .collect();
        let holds = or_near.iter().filter(|holds| **holds).count();
        let _ = writeln!(
            out,
            "Within 10 %, within their own interval, or within {WITHIN_MS} ms, below which calls on this machine vary by themselves: {holds} ({:.0} %).",
            100.0 * holds as f64 / or_near.len().max(1) as f64
        );
    }
    out += "\nNot injected: ";
    let words: Vec<String> = NOT_INJECTED.iter().map(|(id, why)| format!("`{id}` ({why})")).collect();
    out + &words.join("; ") + ".\n"
}

/// Whether all requested cases were measured.
pub(crate) fn all_reached(runs: &[DiagnosisRun]) -> bool {
    groups(runs).iter().all(|g| if g.case.alike { g.alarms() == 0 } else { g.reached() })
}

/// Puts the tables into the page, at the place of those in clear text or over TLS.
pub(crate) fn write(runs: &[DiagnosisRun], tls: bool, machine: &str) -> Result<()> {
    let markers = if tls { [TLS_BEGIN, TLS_END] } else { [BEGIN, END] };
    put(markers, &format!("{machine}\n\n{}", markdown(runs)))
}

/// The same of cells.
pub(crate) fn write_cells(runs: &[DiagnosisRun], machine: &str) -> Result<()> {
    put([CELLS_BEGIN, CELLS_END], &format!("{machine}\n\n{}", cells(runs)))
}

fn put(markers: [&str; 2], tables: &str) -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = std::fs::read_to_string(&path).context(PAGE)?;
    let new = super::super::between(&page, markers, tables).context(PAGE)?;
    std::fs::write(path, new).context(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &str, rtt_ms: u64, verdict: &str, causes: &[&str]) -> DiagnosisRun {
        DiagnosisRun {
            case: case.into(),
            rtt_ms,
            verdict: verdict.into(),
            causes: causes.iter().map(|id| ((*id).to_owned(), 40.0)).collect(),
            took_s: 2.0,
            ..DiagnosisRun::default()
        }
    }

    #[test]
    fn ranks_and_false_alarms_are_counted() {
        let nagle = "server-nagle-delayed-ack";
        let mut runs = vec![run("jdk", 0, "caused", &[nagle]); 9];
        runs.push(run("jdk", 0, "caused", &["server-think", nagle]));
        runs.push(run("healthy-go", 0, "healthy", &[]));
        runs.push(run("think-40", 40, "caused", &["server-think"]));
        assert!(all_reached(&runs));
        let text = markdown(&runs);
        assert!(
            text.contains(&format!(
                "| `{nagle}` | jdk | 0 ms | 10 | 9 | 10 | 40.0 ms | - | - | 2.0 s | server-think 1 |"
            )),
            "{text}"
        );
        assert!(text.contains("| healthy-go | healthy | 0 ms | 1 | 1 | 0 | 2.0 s | - |"), "{text}");
        runs.push(run("think-40", 40, "caused", &[nagle]));
        assert!(!all_reached(&runs));
        assert!(markdown(&runs).contains(
            "| think-40 | `server-think` | 40 ms | 2 | 1 | 1 | 2.0 s | server-nagle-delayed-ack 1 |"
        ));
        runs.push(run("syn-lost", 0, "inconclusive", &[]));
        assert!(markdown(&runs).contains(
            "`syn-loss` (missed) | syn-lost | 0 ms | 1 | 0 | 0 | - | - | - | 2.0 s | (inconclusive) 1 |"
        ));
    }

    #[test]
    fn cells_are_judged() {
        let think = |proof: &str| DiagnosisRun {
            proofs: vec![proof.to_owned()],
            ..run("go think", 40, "caused", &["server-think"])
        };
        let wrong = DiagnosisRun { case: "go healthy busy".to_owned(), ..think("likely") };
        let text = cells(&[think("likely"), think("possible"), wrong]);
        assert!(text.contains("| go think | 0 / 0 / 0 | 2 / 0 / 0 | 0 / 0 / 0 | 0 / 0 / 0 | - |"), "{text}");
        assert!(
            text.contains("| go healthy | 0 / 0 / 0 | 0 / 0 / 0 | 0 / 0 / 0 | 0 / 0 / 1 | server-think |"),
            "{text}"
        );
        assert!(text.contains("| likely | 1 | 2 | 50.0 % |"), "{text}");
        assert!(text.contains("Of 3 diagnoses 2 were right, 0 unclear and 1 wrong."), "{text}");
    }

    #[test]
    fn what_is_outside_the_markers_stays() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let between = |page: &str| crate::bench::between(page, [BEGIN, END], "new\n");
        assert_eq!(between(&page).expect("markers"), format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert!(between("no markers").is_err());
    }
}
