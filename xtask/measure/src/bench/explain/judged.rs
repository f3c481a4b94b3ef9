//! Whether a diagnosis was right, and how often what was called proved or likely was true.

use super::case::Case;
use super::results::DiagnosisRun;

/// What a diagnosis was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JudgedDiagnosis {
    /// The cause was named, or that nothing is wrong.
    Right,
    /// Neither right nor a false statement.
    Unclear,
    /// A cause that is not there was called proved or likely, or the one that is there was ruled
    /// out or overlooked.
    Wrong,
}

/// The cause is there.
pub(crate) fn is_there(case: &Case, cause: &str) -> bool {
    cause == case.truth || case.also.contains(&cause) || case.behind.contains(&cause)
}

/// Causes in the network or the connection that were named and are not there.
pub(crate) fn alarms<'a>(case: &'a Case, run: &'a DiagnosisRun) -> impl Iterator<Item = &'a str> {
    run.on_the_way().filter(|id| !is_there(case, id))
}

/// A run of a case.
pub(crate) fn judge(case: &Case, run: &DiagnosisRun) -> JudgedDiagnosis {
    let said = |i: usize| run.proofs.get(i).map_or("likely", String::as_str);
    let mut named = run.causes.iter().enumerate();
    if run.error.is_some() {
        return JudgedDiagnosis::Unclear;
    }
    let false_one = named.any(|(i, c)| said(i) != "possible" && !is_there(case, &c.0));
    let never = run.causes.iter().any(|c| case.never.contains(&c.0.as_str()));
    let ruled_out = run.ruled_out.iter().any(|id| id == case.truth || case.open.contains(&id.as_str()));
    if false_one || never || ruled_out {
        return JudgedDiagnosis::Wrong;
    }
    let only_there = run.causes.iter().all(|c| is_there(case, &c.0));
    match case.truth {
        "" if run.verdict == "healthy" || run.verdict == "caused" && only_there => JudgedDiagnosis::Right,
        "" => JudgedDiagnosis::Unclear,
        truth if run.rank(truth, case.behind).is_some() => JudgedDiagnosis::Right,
        _ if run.verdict == "healthy" => JudgedDiagnosis::Wrong,
        _ => JudgedDiagnosis::Unclear,
    }
}

/// Of the causes that were called so: how many are there, of how many.
pub(crate) fn calibration<'a>(
    runs: impl Iterator<Item = (&'a Case, &'a DiagnosisRun)>,
) -> [(&'static str, usize, usize); 3] {
    let mut all = [("proved", 0, 0), ("likely", 0, 0), ("possible", 0, 0)];
    for (case, run) in runs {
        for ((id, _), proof) in run.causes.iter().zip(&run.proofs) {
            for (name, there, of) in all.iter_mut().filter(|(name, ..)| name == proof) {
                debug_assert_eq!(*name, proof);
                *there += usize::from(is_there(case, id));
                *of += 1;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::explain::case::PLAIN;

    fn run(verdict: &str, causes: &[(&str, &str)]) -> DiagnosisRun {
        DiagnosisRun {
            verdict: verdict.to_owned(),
            causes: causes.iter().map(|c| (c.0.to_owned(), 10.0)).collect(),
            proofs: causes.iter().map(|c| c.1.to_owned()).collect(),
            ..DiagnosisRun::default()
        }
    }

    #[test]
    fn right_unclear_and_wrong() {
        let healthy = Case { also: &["no-keep-alive"], never: &["path-mtu"], ..PLAIN };
        let think = Case { truth: "server-think", ..PLAIN };
        for (case, run, judged) in [
            (&healthy, run("healthy", &[]), JudgedDiagnosis::Right),
            (&healthy, run("caused", &[("no-keep-alive", "proved")]), JudgedDiagnosis::Right),
            (&healthy, run("inconclusive", &[]), JudgedDiagnosis::Unclear),
            (&healthy, run("caused", &[("gc-pause", "possible")]), JudgedDiagnosis::Unclear),
            (&healthy, run("caused", &[("gc-pause", "likely")]), JudgedDiagnosis::Wrong),
            (&healthy, run("caused", &[("path-mtu", "possible")]), JudgedDiagnosis::Wrong),
            (&think, run("caused", &[("server-think", "possible")]), JudgedDiagnosis::Right),
            (&think, run("inconclusive", &[]), JudgedDiagnosis::Unclear),
            (&think, run("healthy", &[]), JudgedDiagnosis::Wrong),
            (
                &think,
                DiagnosisRun { ruled_out: vec!["server-think".to_owned()], ..run("inconclusive", &[]) },
                JudgedDiagnosis::Wrong,
            ),
        ] {
            assert_eq!(judge(case, &run), judged, "{run:?}");
        }
        let runs = [run("caused", &[("server-think", "likely"), ("gc-pause", "likely")])];
        let calibration = calibration(runs.iter().map(|r| (&think, r)));
        assert_eq!(calibration[1], ("likely", 1, 2));
    }
}
