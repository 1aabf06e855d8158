//! Amounts in whole thousandths, and the numbers that become them. Validated once, exact ever after.

use crate::config_error::ConfigError;
use std::time::Duration;

/// Milli-tokens in a token. Ratios finer than this are refused, so that every sum is exact.
pub(super) const TOKEN: u64 = 1000;

/// What a retry costs unless a budget says otherwise: one token.
pub(super) const COST: u32 = 1000;

/// The largest ratio, in tokens per first attempt. Beyond it a budget limits nothing.
const MAX_RATIO: f64 = 1000.0;

/// Turns the value of a setting into milli-tokens, or says what it would have accepted.
pub(crate) fn checked(setting: &'static str, given: f64) -> Result<u64, ConfigError> {
    ratio(given).ok_or_else(|| {
        ConfigError::new(
            setting,
            given,
            "a number from 0 to 1000 in whole thousandths",
        )
    })
}

/// Turns a ratio into milli-tokens, if it is one.
///
/// The noise of floating-point sums is tolerated (0.1 + 0.2 is 0.3), a finer ratio is not rounded.
fn ratio(ratio: f64) -> Option<u64> {
    const NOISE: f64 = 1e-9;

    if !(0.0..=MAX_RATIO).contains(&ratio) {
        return None;
    }
    let nearest = (ratio * 1000.0).round();
    if (nearest / 1000.0 - ratio).abs() > NOISE {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of at most a million, by the two tests above"
    )]
    Some(nearest as u64)
}

/// Whole nanoseconds, at most `u64::MAX`.
pub(super) fn nanos(duration: Duration) -> u64 {
    const PER_SECOND: u64 = 1_000_000_000;

    duration
        .as_secs()
        .saturating_mul(PER_SECOND)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

/// Milli-tokens as tokens. Exact to the thousandth: three million times the largest balance still
/// fits a float.
pub(super) fn tokens(milli: u64) -> f64 {
    milli as f64 / TOKEN as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_ratios_exactly() {
        for (given, milli) in [
            (0.6, 600),
            (0.1 + 0.2, 300),
            (0.7, 700),
            (0.001, 1),
            (-0.0, 0),
            (1.0, 1000),
            (1000.0, 1_000_000),
        ] {
            assert_eq!(ratio(given), Some(milli), "{given}");
        }
        for n in 0..=100_000_u32 {
            assert_eq!(ratio(f64::from(n) / 1000.0), Some(n.into()));
        }
    }

    #[test]
    fn does_not_round_a_finer_ratio() {
        for given in [0.0005, 0.0001, 0.1234, 1.0 / 3.0, f64::MIN_POSITIVE + 1e-8] {
            assert_eq!(ratio(given), None, "{given}");
        }
    }

    #[test]
    fn refuses_what_is_no_ratio() {
        for given in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.1,
            -1e-12,
            1000.001,
        ] {
            assert_eq!(ratio(given), None, "{given}");
        }
    }
}
