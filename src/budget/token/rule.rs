//! The numbers of a token budget, validated. Milli-tokens throughout.

use std::{num::NonZeroU64, time::Duration};

/// Milli-tokens in a token. Ratios finer than this are refused, so that every sum is exact.
pub(super) const TOKEN: u64 = 1000;

/// What one retry costs.
pub(super) const COST: u32 = 1000;

/// One retry for five successes: enough to retry one failure in six calls for as long as it lasts
/// even if nothing is ever given back, and a fifth of the load at the very worst.
pub(super) const DEFAULT_RATIO: u64 = 200;

/// Small enough to be spent in the first instants of an outage, large enough for a client that sends
/// too little for the ratio to mean anything.
pub(super) const DEFAULT_CAP: u64 = 10;

/// Half the floor cap: a process that starts into an outage has some retries, not all.
pub(super) const DEFAULT_INITIAL: u64 = 5;

/// One token in this time keeps a client with a request a minute able to retry, and adds nothing
/// that a server would notice.
pub(super) const DEFAULT_TRICKLE: Duration = Duration::from_secs(10);

/// One retry for two first attempts, given back or not: what bounds the load when all retries
/// succeed and are thus free.
pub(super) const DEFAULT_CEILING_RATIO: u64 = 500;

/// The ceiling holds as much as this many caps: refunds make retries cheaper than the ratio, and a
/// short burst of them is no harm.
pub(super) const CEILING_CAPS: u64 = 3;

/// The largest cap, in tokens.
pub(super) const MAX_TOKENS: u64 = u32::MAX as u64;

/// The largest ratio, in tokens per first attempt. Beyond it a budget limits nothing.
pub(super) const MAX_RATIO: f64 = 1000.0;

/// How a bucket fills and what it holds, in milli-tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Earned by a first attempt that ends without failure.
    pub(super) ratio: u64,
    /// What the cap never falls below.
    pub(super) floor: u64,
    /// The balance of a new bucket, at most `floor`.
    pub(super) initial: u64,
    /// Nanoseconds per token; `None` for no trickle.
    pub(super) trickle: Option<NonZeroU64>,
    /// Added to the ceiling by every first attempt; `None` for no ceiling.
    pub(super) ceiling_ratio: Option<u64>,
}

impl Rule {
    /// The cap of a bucket that saw so many first attempts in the busier of two seconds.
    pub(super) fn cap(&self, first_attempts: u32) -> u64 {
        self.ratio
            .saturating_mul(u64::from(first_attempts))
            .min(MAX_TOKENS * TOKEN)
            .max(self.floor)
    }

    /// The most that the ceiling holds beside a cap.
    pub(super) fn ceiling(cap: u64) -> u64 {
        cap.saturating_mul(CEILING_CAPS)
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            ratio: DEFAULT_RATIO,
            floor: DEFAULT_CAP * TOKEN,
            initial: DEFAULT_INITIAL * TOKEN,
            trickle: trickle(DEFAULT_TRICKLE),
            ceiling_ratio: Some(DEFAULT_CEILING_RATIO),
        }
    }
}

/// Turns a ratio into milli-tokens, if it is one.
///
/// The noise of floating-point sums is tolerated (0.1 + 0.2 is 0.3), a finer ratio is not rounded.
pub(super) fn ratio(ratio: f64) -> Option<u64> {
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

/// Turns the time per token into nanoseconds. Longer than `u64` holds (584 years) is as long.
pub(super) fn trickle(per_token: Duration) -> Option<NonZeroU64> {
    NonZeroU64::new(nanos(per_token))
}

/// Whole nanoseconds, at most `u64::MAX`.
pub(super) fn nanos(duration: Duration) -> u64 {
    const PER_SECOND: u64 = 1_000_000_000;

    duration
        .as_secs()
        .saturating_mul(PER_SECOND)
        .saturating_add(u64::from(duration.subsec_nanos()))
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
