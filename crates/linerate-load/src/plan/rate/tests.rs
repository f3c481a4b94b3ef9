//! Rates: how they are read, and the arithmetic of when a request is due.

use proptest::prelude::*;

use super::super::curve::Curve;
use super::*;

fn step(from: f64, to: f64, secs: u64) -> RateStep {
    RateStep { from, to, lasts: Some(Duration::from_secs(secs)) }
}

#[test]
fn reads_what_people_write() {
    let constant = |r| Ok(Rate::constant(r));
    assert_eq!(Rate::parse("500"), constant(500.0));
    assert_eq!(Rate::parse(" 50k "), constant(50_000.0));
    assert_eq!(Rate::parse("1.5M"), constant(1_500_000.0));
    assert_eq!(Rate::parse("100/s"), constant(100.0));
    assert_eq!(Rate::parse("0.5"), constant(0.5));
    assert_eq!(
        Rate::parse("0..5000@30s,5000@60s"),
        Ok(Rate { steps: vec![step(0.0, 5000.0, 30), step(5000.0, 5000.0, 60)] })
    );
    assert_eq!(
        Rate::parse("100@10s, 100..1k@20, 1k"),
        Ok(Rate {
            steps: vec![
                step(100.0, 100.0, 10),
                step(100.0, 1000.0, 20),
                RateStep { from: 1000.0, to: 1000.0, lasts: None }
            ]
        })
    );
}

#[test]
fn errors_name_the_place_and_what_would_be_right() {
    let wrong = [
        "fast",
        "",
        "-5",
        "0",
        "0@10s",
        "5..",
        "0..5000",
        "100,200@5s",
        "100@",
        "100@0s",
        "100@soon",
        "1@1s,x@2s",
        "2G",
        "1e9",
        "inf",
        "0.0000001",
        "100@10s@5s",
        "1..2..3@5s",
    ];
    let said: String =
        wrong.iter().map(|text| format!("{text:14} -> {}\n", Rate::parse(text).unwrap_err())).collect();
    insta::assert_snapshot!(said);
}

#[test]
fn is_shown_as_it_is_read() {
    for text in ["500", "50000", "0.5", "0..5000@30s,5000@1m", "100@10s,100..1000@20s,1000"] {
        assert_eq!(Rate::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn a_constant_rate_is_exact_and_never_ends() {
    for rate in [1_u64, 3, 7, 1000, 50_000, 999_999, 123_456_789] {
        let r = Rate::constant(rate as f64);
        for k in [0, 1, 2, 999, 1_000_000, 123_456_789_012, 1_000_000_000_000] {
            let exact = u128::from(k) * 1_000_000_000 / u128::from(rate);
            assert_eq!(r.due_ns(k), Some(u64::try_from(exact).unwrap_or(u64::MAX)), "{k} at {rate}");
        }
        assert_eq!((r.total(), r.duration()), (None, None));
    }
}

#[test]
fn decimal_rates_are_met_as_written() {
    assert_eq!(Rate::constant(33.3).due_ns(333), Some(10_000_000_000));
    assert_eq!(Rate::constant(0.1).due_ns(1), Some(10_000_000_000));
    assert_eq!(Rate::constant(0.1).due_ns(3), Some(30_000_000_000));
    // No whole number of millionths: the binary value itself counts.
    assert_eq!(Rate::constant(1.0 / 3.0).due_ns(1_000_000), Some(3_000_000_000_000_000));
}

#[test]
fn steps_end_and_are_half_open() {
    let r = Rate::parse("100@10s").unwrap();
    assert_eq!(r.total(), Some(1000.0));
    assert_eq!(r.duration(), Some(Duration::from_secs(10)));
    assert_eq!((r.due_ns(0), r.due_ns(999), r.due_ns(1000)), (Some(0), Some(9_990_000_000), None));
    // Sums such as 0.1 * 3 miss whole numbers in binary; no fourth request comes of it.
    let tenths = Rate::parse("0.1@10s,0.1@10s,0.1@10s").unwrap();
    assert_eq!((tenths.due_ns(2), tenths.due_ns(3)), (Some(20_000_000_000), None));
}

#[test]
fn pauses_make_nothing_due() {
    let r = Rate::parse("0@5s,100@1s,0@1s,100@1s").unwrap();
    assert_eq!(r.due_ns(0), Some(5_000_000_000));
    assert_eq!(r.due_ns(99), Some(5_990_000_000));
    assert_eq!(r.due_ns(100), Some(7_000_000_000));
    assert_eq!(r.due_ns(200), None);
    assert_eq!(r.total(), Some(200.0));
    assert_eq!(Rate::parse("5@1s,0").unwrap().due_ns(5), None, "rests for ever");
}

#[test]
fn ramps_follow_the_parabola() {
    // 0 to 5000/s in 30 s: after t seconds 5000 / 60 * t^2 have become due.
    let r = Rate::parse("0..5000@30s,5000@60s").unwrap();
    assert_eq!(r.total(), Some(75_000.0 + 300_000.0));
    assert_eq!(r.due_ns(0), Some(0));
    for k in [1_u64, 10, 1000, 33_333, 74_999] {
        let exact = (k as f64 * 60.0 / 5000.0).sqrt() * 1e9;
        assert!((r.due_ns(k).unwrap() as f64 - exact).abs() <= 16.0, "{k}");
    }
    assert_eq!(r.due_ns(75_000), Some(30_000_000_000));
    assert_eq!(r.due_ns(75_001), Some(30_000_200_000));
    assert_eq!(r.due_ns(374_999), Some(89_999_800_000));
    assert_eq!(r.due_ns(375_000), None);
    // Downwards it is the mirror image, as exact near the end as near the start.
    let down = Rate::parse("5000..0@30s").unwrap();
    for k in [1_u64, 10, 1000, 74_999] {
        let mirrored = 30_000_000_000 - r.due_ns(75_000 - k).unwrap();
        assert!(down.due_ns(k).unwrap().abs_diff(mirrored) <= 16, "{k}");
    }
}

#[test]
fn asked_rate_over_time() {
    let r = Rate::parse("0..1000@10s,500@10s").unwrap();
    let at = |s| r.at(Duration::from_secs(s));
    assert_eq!([at(0), at(5), at(10), at(19), at(20)], [0.0, 500.0, 500.0, 500.0, 0.0]);
    assert_eq!(r.highest(), 1000.0);
}

fn any_rate() -> impl Strategy<Value = Rate> {
    let number = prop_oneof![Just(0.0), (1_u64..2_000_000).prop_map(|n| n as f64), 0.001..500_000.0];
    let ramp = (number.clone(), number.clone(), 1_u64..200_000_000_000).prop_map(|(from, to, ns)| RateStep {
        from,
        to,
        lasts: Some(Duration::from_nanos(ns)),
    });
    let flat = (number, 1_u64..200_000_000_000).prop_map(|(r, ns)| RateStep {
        from: r,
        to: r,
        lasts: Some(Duration::from_nanos(ns)),
    });
    let last = prop_oneof![Just(None), (0.5..1e6).prop_map(Some)];
    (prop::collection::vec(prop_oneof![ramp, flat], 0..5), last).prop_map(|(mut steps, last)| {
        steps.extend(last.map(|r| RateStep { from: r, to: r, lasts: None }));
        if steps.is_empty() {
            steps.push(RateStep { from: 1000.0, to: 1000.0, lasts: None });
        }
        Rate { steps }
    })
}

/// The integral up to a time, for comparison: plain, without any of the care of the inverse.
fn integral(rate: &Rate, ns: u64) -> f64 {
    let mut left = ns as f64 / 1e9;
    let mut sum = 0.0;
    for step in &rate.steps {
        let lasts = step.lasts.map_or(f64::INFINITY, |d| d.as_secs_f64());
        let t = left.min(lasts);
        let slope = if lasts.is_finite() { (step.to - step.from) / lasts } else { 0.0 };
        sum += step.from * t + slope * t * t / 2.0;
        left -= t;
        if left <= 0.0 {
            break;
        }
    }
    sum
}

proptest! {
    #[test]
    fn due_never_decreases(rate in any_rate(), first in 0_u64..10_000_000_000, steps in prop::collection::vec(0_u64..1000, 1..50)) {
        let curve = Curve::new(&rate);
        let (mut k, mut before) = (first, 0);
        for by in steps {
            match curve.due_ns(k) {
                Some(due) => {
                    prop_assert!(due >= before, "{due} < {before} at {k}");
                    before = due;
                }
                None => before = u64::MAX,
            }
            k += by;
        }
    }

    #[test]
    fn due_inverts_the_integral(rate in any_rate(), share in 0.0..1.0_f64) {
        let most = rate.total().unwrap_or(1e9).min(1e9);
        let k = (most * share) as u64;
        if let Some(due) = rate.due_ns(k) {
            // The clock's nanosecond and the sums' last bits are the only error.
            let slack = 1e-6 + most * 1e-11 + rate.highest() * 4e-9;
            prop_assert!((integral(&rate, due) - k as f64).abs() <= slack, "{k} due {due}: {}", integral(&rate, due));
            prop_assert!(rate.duration().is_none_or(|d| u128::from(due) <= d.as_nanos()));
            prop_assert!(rate.due_ns_at(k as f64).unwrap().abs_diff(due) <= 1 + due / 1_000_000_000_000);
        } else {
            prop_assert!(rate.total().is_some_and(|t| k as f64 >= t - 1e-3));
        }
    }

    #[test]
    fn constant_is_exact(rate in 1_u64..1_000_000_000, k in 0_u64..1_000_000_000_000) {
        let exact = u128::from(k) * 1_000_000_000 / u128::from(rate);
        prop_assert_eq!(Rate::constant(rate as f64).due_ns(k), Some(u64::try_from(exact).unwrap_or(u64::MAX)));
    }

    #[test]
    fn all_of_the_total_becomes_due_and_no_more(rate in any_rate()) {
        if let Some(total) = rate.total() && total < 1e12 {
            let n = total.ceil() as u64;
            prop_assert!(rate.due_ns(n).is_none());
            prop_assert_eq!(rate.due_ns(n.saturating_sub(1)).is_some(), n > 0);
        }
    }

    #[test]
    fn counting_agrees_with_due(rate in any_rate(), ns in 0_u64..300_000_000_000) {
        let curve = Curve::new(&rate);
        let n = curve.due_before(ns);
        prop_assert!(n == 0 || curve.due_ns(n - 1).is_some_and(|due| due < ns));
        prop_assert!(curve.due_ns(n).is_none_or(|due| due >= ns));
    }

    #[test]
    fn reading_never_panics(text in "\\PC{0,40}") {
        let _ = Rate::parse(&text);
    }

    #[test]
    fn what_is_shown_is_read_back(rate in any_rate()) {
        if rate.check().is_ok() {
            prop_assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
        }
    }
}
