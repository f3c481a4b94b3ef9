//! Values as they are typed, for both directions or one.

use std::time::Duration;

use linerate_netbox::values::{ParseValueError, probability, time};
use linerate_netbox::{DropRule, LinkDirection, ParseRuleError};

/// A value for both directions (`None`) or one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sided<T> {
    pub(crate) way: Option<LinkDirection>,
    pub(crate) value: T,
}

/// `up:VALUE`, `down:VALUE` or `VALUE`.
pub(crate) fn sided<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Sided<T>, E> {
    let (way, rest) = match (text.strip_prefix("up:"), text.strip_prefix("down:")) {
        (Some(rest), _) => (Some(LinkDirection::Up), rest),
        (_, Some(rest)) => (Some(LinkDirection::Down), rest),
        _ => (None, text),
    };
    Ok(Sided { way, value: parse(rest)? })
}

/// A share, and by how much: 1%:5ms.
pub(crate) fn reorder(text: &str) -> Result<(f64, Duration), ParseValueError> {
    let (share, by) = text.split_once(':').unwrap_or((text, "1ms"));
    Ok((probability(share)?, time(by)?))
}

/// A drop rule.
pub(crate) fn rule(text: &str) -> Result<DropRule, ParseRuleError> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones() {
        assert_eq!(reorder("1%:5ms"), Ok((0.01, Duration::from_millis(5))));
        assert_eq!(
            sided("up:1s", time),
            Ok(Sided { way: Some(LinkDirection::Up), value: Duration::from_secs(1) })
        );
        assert_eq!(sided("down:1s", time).map(|s| s.way), Ok(Some(LinkDirection::Down)));
    }

    #[test]
    fn a_bad_rule_says_what_would_be_right() {
        let error = rule("sin=1").expect_err("it is bad").to_string();
        assert!(error.contains("syn=1"), "{error}");
    }
}
