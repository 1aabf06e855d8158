//! How a dependency does.

use super::THOUSAND;
use std::time::Duration;

/// Both durations are rounded: more than that makes, and far less than a step of the histogram.
const ROUNDING: Duration = Duration::from_micros(1);

/// How a dependency did of late, as far as this process has seen.
///
/// Looked at with [`RetryBudgetLayer::health`](crate::RetryBudgetLayer::health).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The attempts that ended within the window.
    pub attempts: u32,
    /// How many of them were failures.
    pub failures: u32,
    /// The 99th percentile of how long they took. Rounded up to a step of its histogram, a fifth at the
    /// most. `None` without an attempt.
    pub p99: Option<Duration>,
    /// What the 99th percentile usually is. `None` until enough attempts were seen.
    pub usual_p99: Option<Duration>,
}

impl Health {
    /// Returns the part of the attempts that failed, from 0 to 1. 0 without an attempt.
    pub fn error_rate(&self) -> f64 {
        match self.attempts {
            0 => 0.0,
            attempts => f64::from(self.failures) / f64::from(attempts),
        }
    }

    /// Returns how many times as long as usual the 99th percentile takes. 1 where that is not known.
    pub fn latency_ratio(&self) -> f64 {
        match (self.p99, self.usual_p99) {
            (Some(p99), Some(usual)) if !usual.is_zero() => p99.div_duration_f64(usual),
            _ => 1.0,
        }
    }

    pub(super) fn failed_at_least(&self, thousandths: u64) -> bool {
        let failed = u64::from(self.failures) * THOUSAND;
        failed >= u64::from(self.attempts).saturating_mul(thousandths)
    }

    pub(super) fn slower_by_at_least(&self, thousandths: u64) -> bool {
        let (Some(p99), Some(usual)) = (self.p99, self.usual_p99) else {
            return false;
        };
        let threshold = usual.as_nanos().saturating_mul(thousandths.into());
        let p99 = p99.saturating_add(ROUNDING).as_nanos();
        !usual.is_zero() && p99.saturating_mul(THOUSAND.into()) >= threshold
    }
}
