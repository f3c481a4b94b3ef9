//! Compares two series of figures that were measured in turns, and says whether they differ:
//! `cargo run -p linerate-lab --example paired -- 101,99,103,98 95,94,97,92`.

use linerate_lab::stats::{mean, rounds_for, spread};

/// What the rounds say about the ratio of the first series to the second.
fn compare(a: &[f64], b: &[f64]) -> Option<String> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let found = mean(&logs)?;
    let [value, low, high] = [found.value, found.low, found.high].map(f64::exp);
    let verdict = if found.differs() {
        "they differ".to_owned()
    } else {
        // How long it would take to find a difference of 5 %.
        match rounds_for(1.05_f64.ln(), spread(&logs)) {
            Some(rounds) => format!("no difference found; {rounds} rounds would find one of 5 %"),
            None => "no difference found, and the figures spread too much to find one of 5 %".to_owned(),
        }
    };
    Some(format!("{value:.3} ({low:.3} to {high:.3}): {verdict}"))
}

fn series(word: &str) -> Result<Vec<f64>, std::num::ParseFloatError> {
    word.split(',').map(str::parse).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = args.as_slice() else { return Err("usage: paired A,A,A... B,B,B...".into()) };
    println!("{}", compare(&series(a)?, &series(b)?).ok_or("at least three rounds are needed")?);
    Ok(())
}

#[test]
fn it_runs() {
    let (a, b) = (series("101,99,103,98").expect("numbers"), series("95,94,97,92").expect("numbers"));
    let said = compare(&a, &b).expect("enough rounds");
    assert!(said.starts_with("1.06") && said.ends_with("they differ"), "{said}");
    let same = compare(&a, &series("99,101,98,103").expect("numbers")).expect("enough rounds");
    assert!(same.contains("no difference found"), "{same}");
    assert_eq!(compare(&a[..2], &b), None);
}
