//! Our statistics against scipy's: a table that `reference.py` made, and scipy itself where it is.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use linerate_lab::stats;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn near(ours: f64, theirs: f64, within: f64, what: &str) {
    assert!((ours - theirs).abs() <= within * theirs.abs().max(1e-9), "{what}: {ours} and {theirs}");
}

fn compare(table: &Value) {
    for row in table["t"].as_array().unwrap() {
        near(stats::t_cdf(number(&row["t"]), number(&row["df"])), number(&row["cdf"]), 1e-9, "cdf");
    }
    for row in table["quantile"].as_array().unwrap() {
        near(stats::t_quantile(number(&row["p"]), number(&row["df"])), number(&row["t"]), 1e-9, "quantile");
    }
    for row in table["means"].as_array().unwrap() {
        let (name, values) = (row["name"].as_str().unwrap(), numbers(&row["values"]));
        let ours = stats::mean(&values).unwrap();
        let ends = |of: &str, end: &str| number(&row[of][end]);
        // The wider of both at each end. A bootstrap's ends vary by some percent of its width.
        let low = ends("student", "low").min(ends("studentised", "low"));
        let high = ends("student", "high").max(ends("studentised", "high"));
        let within = 0.04 * (high - low);
        assert!(
            (ours.low - low).abs() <= within && (ours.high - high).abs() <= within,
            "{name}: {ours:?}, {row}"
        );
        assert!(ours.p >= number(&row["student"]["p"]) - 1e-9, "{name}: {ours:?}");
    }
    for row in table["welch"].as_array().unwrap() {
        let ours = stats::difference(&numbers(&row["a"]), &numbers(&row["b"])).unwrap();
        let theirs = number(&row["p"]);
        assert!(ours.p >= theirs - 1e-9 && ours.p <= theirs * 1.6 + 0.02, "{ours:?}, {row}");
    }
}

#[test]
fn the_table_agrees() {
    compare(&serde_json::from_str(include_str!("reference.json")).unwrap());
}

#[test]
fn scipy_itself_agrees_where_it_is_installed() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference.py");
    let Some(python) = linerate_skips::python_for("", &["scipy"]) else { return };
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    compare(&serde_json::from_slice(&output.stdout).unwrap());
}
