use super::{Backoff, Jitter, RetryPolicy, RetryPolicyBuilder, StatusTable};
use std::time::Duration;

/// A policy by what an attempt costs.
///
/// What one more attempt costs decides how many there may be: a read from a service next door costs next
/// to nothing, a payment made twice costs a customer. Each preset is data, and a place to start from.
///
/// | preset | attempts | attempt time-out | total | first waits, after 429 and 503 | longest `Retry-After` | statuses |
/// |---|---|---|---|---|---|---|
/// | [`InternalCall`](Self::InternalCall) | 7 | 1 s | 12 s | 25 ms, 100 ms | 10 s | default |
/// | [`MeteredApi`](Self::MeteredApi) | 4 | 10 s | 2 min | 500 ms, 2 s | 90 s | [APIs](StatusTable::apis) |
/// | [`PaidWork`](Self::PaidWork) | 2 | none | 10 min | 2 s, 5 s | 2 min | 425 429 502 503 529 |
/// | [`SideEffect`](Self::SideEffect) | 3 with an `Idempotency-Key`, else 1 | 10 s | 40 s | 500 ms, 1 s | 20 s | default |
/// | [`BatchStep`](Self::BatchStep) | 2 | 2 min | 10 min | 10 s, 30 s | 5 min | default |
/// | [`ConnectionErrors`](Self::ConnectionErrors) | 3 | none | 30 s, for calls that can be retried | 50 ms | none is waited for | none |
///
/// ```
/// use std::time::Duration;
/// use tower_retry_budget::{RetryBudgetLayer, policy::Preset};
///
/// let layer = RetryBudgetLayer::new().policy(Preset::MeteredApi.policy());
///
/// // With one number of one's own:
/// let policy = Preset::InternalCall.builder().total_timeout(Duration::from_secs(2)).build()?;
/// # let _ = (layer, policy);
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// An idempotent call to a service of one's own: cheap, fast, and mended by the next replica. Many
    /// attempts with short waits; the budget, not their number, is what protects the other side.
    InternalCall,
    /// An API of somebody else that counts requests. Every attempt uses up quota, so there are few; its
    /// `Retry-After` leads, and is waited for up to 90 s.
    MeteredApi,
    /// Inference, rendering: an attempt costs money and may take minutes. Two at most, and only where the
    /// work was refused, not where it may have been done and its answer lost. So there is no attempt
    /// time-out either: a time-out would pay twice. Such calls are mostly POSTs, and need an
    /// `Idempotency-Key` or [`Idempotent(true)`](super::Idempotent) to be repeated after a status.
    PaidWork,
    /// An effect that must not happen twice: a payment, a message. One attempt whatever the method, and
    /// even on proof that nothing was processed; three for a request with an `Idempotency-Key` that the
    /// server honours, or with
    /// [`Idempotent(true)`](super::Idempotent).
    SideEffect,
    /// A step of a batch job, which the scheduler will run again anyway. One patient retry saves that;
    /// more would hold a worker that could do another step.
    BatchStep,
    /// Nothing but connections that failed or broke: any response is the answer. For callers who
    /// interpret responses themselves.
    ConnectionErrors,
}

/// The numbers of a preset.
struct Numbers {
    max_attempts: u32,
    attempt_timeout: Option<Duration>,
    /// `None` leaves the default.
    total_timeout: Option<Duration>,
    /// The base and the cap of the waits, with full jitter.
    backoff: (Duration, Duration),
    /// After `429` and `503`, with equal jitter.
    throttled: (Duration, Duration),
    max_retry_after: Duration,
    statuses: StatusTable,
    /// Only what carries a key, or says so itself, is repeated.
    only_with_key: bool,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Preset {
    /// Every preset there is.
    pub const ALL: &'static [Self] = &[
        Self::InternalCall,
        Self::MeteredApi,
        Self::PaidWork,
        Self::SideEffect,
        Self::BatchStep,
        Self::ConnectionErrors,
    ];

    /// Returns the policy.
    pub fn policy(self) -> RetryPolicy {
        self.builder().build().unwrap_or_default()
    }

    /// Starts from the policy.
    pub fn builder(self) -> RetryPolicyBuilder {
        let numbers = self.numbers();
        let mut builder = RetryPolicy::builder()
            .max_attempts(numbers.max_attempts)
            .attempt_timeout(numbers.attempt_timeout)
            .backoff(backoff(numbers.backoff, Jitter::Full))
            .throttled_backoff(backoff(numbers.throttled, Jitter::Equal))
            .max_retry_after(numbers.max_retry_after)
            .statuses(numbers.statuses);
        if let Some(limit) = numbers.total_timeout {
            builder = builder.total_timeout(limit);
        }
        if numbers.only_with_key {
            builder = builder.trust_methods(false).no_proof();
        }
        builder
    }

    const fn numbers(self) -> Numbers {
        match self {
            Self::InternalCall => Numbers {
                max_attempts: 7,
                attempt_timeout: Some(secs(1)),
                total_timeout: Some(secs(12)),
                backoff: (ms(25), secs(1)),
                throttled: (ms(100), secs(1)),
                max_retry_after: secs(10),
                statuses: StatusTable::DEFAULT,
                only_with_key: false,
            },
            Self::MeteredApi => Numbers {
                max_attempts: 4,
                attempt_timeout: Some(secs(10)),
                total_timeout: Some(secs(120)),
                backoff: (ms(500), secs(20)),
                throttled: (secs(2), secs(20)),
                max_retry_after: secs(90),
                statuses: StatusTable::apis(),
                only_with_key: false,
            },
            Self::PaidWork => Numbers {
                max_attempts: 2,
                attempt_timeout: None,
                total_timeout: Some(secs(600)),
                backoff: (secs(2), secs(20)),
                throttled: (secs(5), secs(60)),
                max_retry_after: secs(120),
                statuses: StatusTable::REFUSED,
                only_with_key: false,
            },
            Self::SideEffect => Numbers {
                max_attempts: 3,
                attempt_timeout: Some(secs(10)),
                total_timeout: Some(secs(40)),
                backoff: (ms(500), secs(5)),
                throttled: (secs(1), secs(5)),
                max_retry_after: secs(20),
                statuses: StatusTable::DEFAULT,
                only_with_key: true,
            },
            Self::BatchStep => Numbers {
                max_attempts: 2,
                attempt_timeout: Some(secs(120)),
                total_timeout: Some(secs(600)),
                backoff: (secs(10), secs(60)),
                throttled: (secs(30), secs(60)),
                max_retry_after: secs(300),
                statuses: StatusTable::DEFAULT,
                only_with_key: false,
            },
            Self::ConnectionErrors => Numbers {
                max_attempts: 3,
                attempt_timeout: None,
                total_timeout: None,
                backoff: (ms(50), secs(20)),
                throttled: (ms(50), secs(20)),
                max_retry_after: Duration::ZERO,
                statuses: StatusTable::connection_errors_only(),
                only_with_key: false,
            },
        }
    }
}

fn backoff((base, cap): (Duration, Duration), jitter: Jitter) -> Backoff {
    let builder = Backoff::builder().base(base).cap(cap).jitter(jitter);
    builder.build().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Warning;

    #[test]
    fn every_preset_is_valid_and_all_its_attempts_fit() {
        for preset in Preset::ALL {
            let policy = preset.builder().build().expect("a valid preset");
            assert_eq!(policy.max_attempts(), preset.numbers().max_attempts);
            let warnings = policy.warnings();
            let unlimited = preset.numbers().attempt_timeout.is_none();
            let expected = [Warning::NoAttemptTimeout];
            let expected: &[Warning] = if unlimited { &expected } else { &[] };
            assert_eq!(warnings, expected, "{preset:?}");
        }
    }
}
