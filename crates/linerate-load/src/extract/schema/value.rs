//! Values of JSON as JSON Schema compares them: 1 and 1.0 are the same number, and objects have no order.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::{Number, Value};

/// A number, whole as often as it can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JsonNumber {
    Whole(i128),
    Real(f64),
}

impl JsonNumber {
    pub(super) fn of(number: &Number) -> JsonNumber {
        if let Some(whole) = number.as_i64() {
            return JsonNumber::Whole(whole.into());
        }
        if let Some(whole) = number.as_u64() {
            return JsonNumber::Whole(whole.into());
        }
        let real = number.as_f64().unwrap_or(f64::NAN);
        // Below this, a whole number is exact in both forms.
        const LARGEST: f64 = 1e36;
        match real.fract() == 0.0 && real.abs() < LARGEST {
            true => JsonNumber::Whole(real as i128),
            false => JsonNumber::Real(real),
        }
    }

    pub(super) fn is_whole(self) -> bool {
        match self {
            JsonNumber::Whole(_) => true,
            JsonNumber::Real(real) => real.fract() == 0.0,
        }
    }

    fn real(self) -> f64 {
        match self {
            JsonNumber::Whole(whole) => whole as f64,
            JsonNumber::Real(real) => real,
        }
    }

    pub(super) fn compare(self, other: JsonNumber) -> Option<Ordering> {
        match (self, other) {
            (JsonNumber::Whole(one), JsonNumber::Whole(two)) => Some(one.cmp(&two)),
            // One of them has a fraction or is out of the other's range, so rounding changes no order.
            (one, two) => one.real().partial_cmp(&two.real()),
        }
    }

    /// Whether it is a multiple of another one, which is greater than 0, as decimals: 0.3 is one of 0.1.
    pub(super) fn is_multiple_of(self, of: JsonNumber) -> bool {
        if let (JsonNumber::Whole(one), JsonNumber::Whole(of)) = (self, of) {
            return one % of == 0;
        }
        let (Some(one), Some(of)) = (Decimal::of(self.real()), Decimal::of(of.real())) else { return false };
        if one.digits == 0 {
            return true;
        }
        let up = one.exponent - of.exponent;
        if up >= 0 {
            // The digits are fewer than 18, so products stay below 2^128.
            let tens = (0..up).try_fold(1u128, |power, _| match power * 10 % of.digits {
                0 => None,
                rest => Some(rest),
            });
            return tens.is_none_or(|tens| one.digits % of.digits * tens % of.digits == 0);
        }
        let power = u32::try_from(-up).ok().and_then(|up| 10u128.checked_pow(up));
        let of = power.and_then(|power| of.digits.checked_mul(power));
        of.is_some_and(|of| one.digits % of == 0)
    }
}

/// The shortest digits that mean a number, without its sign, and the power of ten of the last one.
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    fn of(real: f64) -> Option<Decimal> {
        let text = format!("{:e}", real.abs());
        let (digits, exponent) = text.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let exponent = exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?;
        Some(Decimal { digits: format!("{whole}{fraction}").parse().ok()?, exponent })
    }
}

/// A text that equal values have in common, and others have not.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, to: &mut String) {
    // Writing to a string never fails.
    match value {
        Value::Number(number) => {
            let _ = match JsonNumber::of(number) {
                JsonNumber::Whole(whole) => write!(to, "{whole}"),
                JsonNumber::Real(real) => write!(to, "{real:e}"),
            };
        }
        Value::Array(items) => {
            to.push('[');
            for item in items {
                write_canonical(item, to);
                to.push(',');
            }
            to.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            to.push('{');
            for (name, value) in members {
                let _ = write!(to, "{name:?}:");
                write_canonical(value, to);
                to.push(',');
            }
            to.push('}');
        }
        Value::String(text) => {
            let _ = write!(to, "{text:?}");
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(to, "{value}");
        }
    }
}

/// What `\s` is in ECMA-262.
const BLANK: &str = r"[\t-\r \u00a0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]";

/// A pattern of ECMA-262 as the regex crate writes it: `\d` and `\w` are ASCII, and in a class `[`, `&` and `~` are
/// themselves.
pub(super) fn translated(pattern: &str) -> String {
    if pattern.is_empty() {
        return "(?:)".to_owned();
    }
    let mut out = String::new();
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(BLANK),
                Some('S') if !in_class => {
                    out.push_str("[^");
                    out.push_str(&BLANK[1..]);
                }
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some('/') => out.push('/'),
                other => {
                    out.push('\\');
                    out.extend(other);
                }
            },
            '[' if !in_class => {
                in_class = true;
                out.push(c);
            }
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> JsonNumber {
        match serde_json::from_str(text).unwrap() {
            Value::Number(number) => JsonNumber::of(&number),
            other => panic!("{other} is no number"),
        }
    }

    #[test]
    fn multiples_are_those_of_decimals() {
        for (of, one, is) in [
            ("0.01", "4.02", true),
            ("0.01", "4.025", false),
            ("0.1", "0.3", true),
            ("1e-8", "12391239123", true),
            ("0.0001", "0.0075", true),
            ("0.0001", "0.00751", false),
            ("7", "21", true),
            ("7", "-22", false),
            ("2.5", "1e300", true),
            ("0.3", "1e300", false),
            ("1e300", "3", false),
            ("1e300", "0", true),
            ("0.123456789", "1e308", false),
        ] {
            assert_eq!(number(one).is_multiple_of(number(of)), is, "{one} of {of}");
        }
    }

    #[test]
    fn numbers_compare_beyond_what_floats_hold() {
        use Ordering::{Equal, Greater, Less};
        for (one, two, order) in [
            ("9007199254740993", "9007199254740992", Greater),
            ("1.0", "1", Equal),
            ("18446744073709551615", "18446744073709551616.0", Less),
            ("-0.5", "0", Less),
            ("1e308", "9223372036854775807", Greater),
        ] {
            assert_eq!(number(one).compare(number(two)), Some(order), "{one} {two}");
        }
    }

    #[test]
    fn equal_values_have_one_form() {
        let form = |text: &str| canonical(&serde_json::from_str(text).unwrap());
        assert_eq!(form("{\"a\":1.0,\"b\":[1e2,null]}"), form("{\"b\":[100,null],\"a\":1}"));
        for (one, two) in
            [("1", "true"), ("1", "\"1\""), ("[1,2]", "[2,1]"), ("[[1],2]", "[[1,2]]"), ("0", "false")]
        {
            assert_ne!(form(one), form(two), "{one} {two}");
        }
    }
}
