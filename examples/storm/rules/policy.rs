//! The policy that all rules of a comparison have.

use super::Rule;
use std::time::Duration;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    policy::{Backoff, BackoffBuilder},
};

/// How a client retries, apart from how often it may.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// As many as the crate allows by default where `None`.
    pub(crate) max_attempts: Option<u32>,
    pub(crate) waits: Waits,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) total_timeout: Limit,
}

/// How long a call may take in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Limit {
    /// What the crate does by default: 30 s.
    #[default]
    Default,
    After(Duration),
    None,
}

/// The waits before retries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Waits {
    /// What the crate does by default.
    #[default]
    Default,
    /// Full jitter of this, doubling, whatever the failure.
    Full(Duration),
    Fixed(Duration),
    None,
}

impl Policy {
    /// The policy of the model that the figures of this crate's documentation come from.
    pub(crate) fn model() -> Self {
        Self {
            waits: Waits::Full(Duration::from_millis(25)),
            ..Self::default()
        }
    }

    pub(crate) fn attempts(self, max_attempts: u32) -> Self {
        Self {
            max_attempts: Some(max_attempts),
            ..self
        }
    }

    pub(crate) fn waits(self, waits: Waits) -> Self {
        Self { waits, ..self }
    }

    pub(crate) fn attempt_timeout(self, limit: Duration) -> Self {
        Self {
            attempt_timeout: Some(limit),
            ..self
        }
    }

    pub(crate) fn total_timeout(self, total_timeout: Limit) -> Self {
        Self {
            total_timeout,
            ..self
        }
    }

    /// The crate's own policy, with randomness that can be repeated.
    pub(super) fn retry(&self, seed: u64, once: bool) -> RetryPolicy {
        let mut policy = RetryPolicy::builder()
            .backoff(self.backoff(seed))
            .throttled_backoff(self.throttled_backoff(seed));
        if let Some(attempts) = self.max_attempts {
            policy = policy.max_attempts(attempts);
        }
        if once {
            policy = policy.max_attempts(1);
        }
        if let Some(limit) = self.attempt_timeout {
            policy = policy.attempt_timeout(limit);
        }
        match self.total_timeout {
            Limit::Default => {}
            Limit::After(limit) => policy = policy.total_timeout(limit),
            Limit::None => policy = policy.total_timeout(None),
        }
        policy.build().expect("valid numbers")
    }

    /// A layer of this policy, with the crate's budget or with none.
    pub(crate) fn layer(&self, rule: Rule, seed: u64) -> RetryBudgetLayer {
        let layer = RetryBudgetLayer::new().policy(self.retry(seed, false));
        match rule {
            Rule::Unlimited => layer.budget(super::unlimited()),
            _ => layer,
        }
    }

    pub(super) fn backoff(&self, seed: u64) -> Backoff {
        match self.waits {
            Waits::Default => seeded(Backoff::builder(), seed),
            Waits::Full(base) => seeded(Backoff::builder().base(base), seed),
            Waits::Fixed(wait) => Backoff::fixed(wait),
            Waits::None => Backoff::none(),
        }
    }

    fn throttled_backoff(&self, seed: u64) -> Backoff {
        match self.waits {
            Waits::Default => {
                let default = Backoff::throttled();
                let same = Backoff::builder()
                    .base(default.base())
                    .factor(default.factor())
                    .cap(default.cap())
                    .jitter(default.jitter().clone());
                seeded(same, seed.wrapping_add(1 << 32))
            }
            _ => self.backoff(seed),
        }
    }

    pub(super) fn most_attempts(&self) -> u32 {
        let default = || RetryPolicy::default().max_attempts();
        self.max_attempts.unwrap_or_else(default)
    }
}

fn seeded(backoff: BackoffBuilder, seed: u64) -> Backoff {
    backoff.seed(seed).build().expect("valid numbers")
}
