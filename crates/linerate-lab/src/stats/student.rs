//! Student's t distribution, by the incomplete beta function.

/// Probability that a value of the distribution is at most `t`.
pub fn t_cdf(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return if t > 0.0 { 1.0 } else { 0.0 };
    }
    let tail = 0.5 * incomplete_beta(df / (df + t * t), df / 2.0, 0.5);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The value that the distribution stays below with probability `p`.
pub fn t_quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (-1.0, 1.0);
    while t_cdf(low, df) > p && low > -1e12 {
        low *= 2.0;
    }
    while t_cdf(high, df) < p && high < 1e12 {
        high *= 2.0;
    }
    // Each step halves the interval; 100 of them exhaust the digits of any number.
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if t_cdf(middle, df) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function (DLMF 8.17).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side of the mean alone (DLMF 8.17.4).
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of DLMF 8.17.22, by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let step = |d: f64| if d.abs() < TINY { TINY } else { d };
    let mut c = 1.0;
    let mut d = 1.0 / step(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / step(1.0 + term * d);
            c = step(1.0 + term / c);
            change = c * d;
            h *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    h
}

/// The logarithm of the gamma function (Lanczos, g = 7), for positive numbers.
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = C[0] + C[1..].iter().zip(1..).map(|(c, i)| c / (x + f64::from(i))).sum::<f64>();
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}
