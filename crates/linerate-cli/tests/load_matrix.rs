//! Each way to use `load` together with each other one, once: pairs of flags from all its rooms against servers of
//! several kinds. Whatever they are, the counts of a run agree with each other and with its exit code.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::collections::BTreeSet;
use std::path::Path;

use common::number;
use serde_json::Value;

const REQUESTS: u64 = 30;

/// Alternatives of which a run has one: its target, or words of flags.
type Factor = &'static [&'static str];

/// What a run is made of.
const FACTORS: [Factor; 8] = [
    &["/", "tls", "/stream/2000", "/bytes/100000", "/status/503", "closes", "nobody"],
    &["", "--rate 600", "--rate 600 --arrival poisson", "--warm-up 50ms"],
    &["-c 1", "-c 4 -p 4", "-c 6 --per-connection 3"],
    &["-t 1", "-t 1 --io epoll", "--way threads", "--way async", "-t 1 --agents-local 2"],
    &["", "--http 2", "--http auto"],
    &["", "--body abc", "--body-template @rows.csv", "--form f=@rows.csv", "-X HEAD"],
    &["", "--check errors<1%", "--check p50<1us", "--expect-status 404", "--tag X-Tag"],
    &["", "--log-requests log.csv", "--csv out.csv", "--html out.html", "--junit out.xml"],
];

/// Runs that have each pair of levels of two factors at least once, found greedily.
fn pairs_of(factors: &[Factor]) -> Vec<Vec<usize>> {
    let mut left = BTreeSet::new();
    for (i, one) in factors.iter().enumerate() {
        for (j, other) in factors.iter().enumerate().skip(i + 1) {
            for a in 0..one.len() {
                left.extend((0..other.len()).map(|b| (i, a, j, b)));
            }
        }
    }
    let mut runs = Vec::new();
    while let Some(&(i, a, j, b)) = left.first() {
        let mut run: Vec<Option<usize>> = vec![None; factors.len()];
        (run[i], run[j]) = (Some(a), Some(b));
        let is_refused = |run: &[Option<usize>]| refusal(&words(run, factors)).is_some();
        let refused = is_refused(&run);
        for k in 0..factors.len() {
            if run[k].is_some() {
                continue;
            }
            let fits = |level: &usize| {
                let mut with = run.clone();
                with[k] = Some(*level);
                refused || !is_refused(&with)
            };
            let news = |level: &usize| {
                let chosen = run.iter().enumerate().filter_map(|(at, chosen)| Some((at, (*chosen)?)));
                let pair = |(at, of): (usize, usize)| match at < k {
                    true => (at, of, k, *level),
                    false => (k, *level, at, of),
                };
                chosen.filter(|chosen| left.contains(&pair(*chosen))).count()
            };
            run[k] = (0..factors[k].len()).filter(fits).max_by_key(news);
        }
        let all: Vec<usize> = run.into_iter().flatten().collect();
        assert_eq!(all.len(), factors.len(), "each pair fits into a run");
        // A run that is refused shows nothing but why.
        left.retain(|pair| {
            *pair != (i, a, j, b) && (refused || all[pair.0] != pair.1 || all[pair.2] != pair.3)
        });
        runs.push(all);
    }
    runs
}

/// The flags of a run, as far as they are chosen.
fn words(run: &[Option<usize>], factors: &[Factor]) -> String {
    let levels = run.iter().zip(factors).skip(1).filter_map(|(at, factor)| Some(factor[(*at)?]));
    levels.collect::<Vec<_>>().join(" ")
}

/// Why `load` refuses a run, by what its words have together; it must say so, and begin nothing.
fn refusal(words: &str) -> Option<&'static str> {
    let has = |any: &[&str]| any.iter().any(|flag| words.contains(flag));
    let blocking = has(&["--way "]);
    if blocking && has(&["--rate", "-p 4", "--http 2", "--tag"]) {
        return Some("--way loop");
    }
    if has(&["--agents-local"]) && has(&["-c 1"]) {
        return Some("too few");
    }
    None
}

struct Servers {
    plain: serving::Server,
    tls: serving::Server,
    closes: serving::Server,
    nobody: String,
}

impl Servers {
    fn url(&self, target: &str) -> String {
        match target {
            "tls" => format!("https://{}/", self.tls.address),
            "closes" => format!("http://{}/", self.closes.address),
            "nobody" => format!("http://{}/", self.nobody),
            path => format!("http://{}{path}", self.plain.address),
        }
    }
}

/// The document, with what must agree in it.
fn agrees(document: &Value, words: &str, code: Option<i32>) {
    let count = |name: &str| number(document, &format!("/requests/{name}"));
    let (sent, answered) = (count("sent"), count("answered"));
    let total = |of: &Value| of.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!(sent, answered + count("failed") + count("unknown"), "{words}: {document:#}");
    assert_eq!(answered, total(&document["status"]), "{words}: {document:#}");
    assert_eq!(count("failed"), total(&document["failures"]), "{words}: {document:#}");
    // A target that was never there ends a closed loop early, in its warm-up too.
    let is_whole = sent + count("unsent") == REQUESTS || code == Some(3);
    assert!(is_whole, "{words}: {document:#}");
    let errors = REQUESTS - answered + count("unsolicited_responses") + total(&document["bad"]);
    let checks = document["checks"].as_array().unwrap();
    for check in checks.iter().filter(|check| check["expr"] == "errors<1%") {
        assert_eq!(check["pass"], errors == 0, "{words}: {document:#}");
    }
    let failed = checks.iter().any(|check| check["pass"] == false);
    let expected = match code {
        Some(3) => answered == 0,
        Some(1) => failed || errors > 0,
        Some(0) => !failed && errors < REQUESTS,
        _ => false,
    };
    assert!(expected, "{words}: exit code {code:?}: {document:#}");
}

/// What a run wrote.
fn wrote(folder: &Path, words: &str, document: &Value) {
    for (file, begins) in [("out.csv", "t_s,"), ("out.html", "<!"), ("out.xml", "<?xml"), ("log.csv", "seq,")]
    {
        let path = folder.join(file);
        if words.contains(file) {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{words}: {file}: {e}"));
            assert!(text.starts_with(begins), "{words}: {text}");
            if file == "log.csv" {
                let rows = text.lines().count() as u64 - 1;
                let (sent, unsent) =
                    (number(document, "/requests/sent"), number(document, "/requests/unsent"));
                assert_eq!(rows, sent + unsent, "{words}: {document:#}");
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn each_pair_of_ways_to_use_it_counts_right() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rows.csv"), "id,name\n{{seq}},a\n").unwrap();
    let servers = Servers {
        plain: serving::serve(&[]),
        tls: serving::serve(&["--tls-self-signed"]),
        closes: serving::serve(&["--misbehave", "close-after=7"]),
        nobody: common::nobody().to_string(),
    };
    let has_bus = linerate_skips::program_for("agents", "nats-server").is_some();
    for run in pairs_of(&FACTORS) {
        let target = FACTORS[0][run[0]];
        let words = words(&run.into_iter().map(Some).collect::<Vec<_>>(), &FACTORS);
        if words.contains("--agents-local") && !has_bus {
            continue;
        }
        let mut command = common::linerate(&["load", "--quiet", "--json", "-"]);
        command.current_dir(folder.path()).arg("-n").arg(REQUESTS.to_string());
        command.args(words.split_ascii_whitespace());
        command.args((target == "tls").then_some("--insecure")).arg(servers.url(target));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if let Some(why) = refusal(&words) {
            let refused = output.status.code() == Some(2) && output.stdout.is_empty() && said.contains(why);
            assert!(refused, "{words}: {output:?}");
            continue;
        }
        let document =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{words}: {e}: {said}"));
        agrees(&document, &words, output.status.code());
        wrote(folder.path(), &words, &document);
    }
}
