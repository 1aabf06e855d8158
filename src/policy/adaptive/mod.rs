//! Fewer attempts for a dependency that is not well.
//!
//! A policy's attempts are chosen for a dependency in health. [`AdaptiveLimits`] lowers them, call by
//! call, while the dependency fails or is slower than it used to be, and lets none through while a
//! breaker is open:
//!
//! | of the attempts of the last 10 s | the attempts of a call |
//! |---|---|
//! | 5 % or more failed | 0.6 of the policy's, rounded down |
//! | 25 % or more failed | 0.3 of them |
//! | the 99th percentile takes twice as long as usual, or more | then 0.7 of that |
//! | five times as long, or more | 0.4 of that |
//! | a breaker is half open | one |
//! | a breaker is open | none: [`circuit_open`](crate::reason::StopReason::CircuitOpen) |
//!
//! Never fewer than one, but for an open breaker. It is off unless a layer is given it:
//!
//! ```
//! use tower_retry_budget::{RetryBudgetLayer, RetryPolicy, policy::AdaptiveLimits};
//!
//! let policy = RetryPolicy::builder().max_attempts(5).build()?;
//! let layer = RetryBudgetLayer::new().policy(policy).adaptive(AdaptiveLimits::default());
//! # let _ = layer;
//! # Ok::<_, tower_retry_budget::ConfigError>(())
//! ```
//!
//! It is no budget and needs one beside it: it makes the calls of a bad time cheaper, and says nothing of
//! how many there are.
//!
//! # How it is known
//!
//! Each attempt that ends counts, retries included, unless it was turned away inside this process.
//! What is kept for a dependency, [`Health`], is two counts and a histogram for each fifth of the window,
//! 2.6 kilobytes in all, written without a lock. Durations are told apart in steps of a fifth
//! (2^(1/4)) from 1 ms to 55 s, and anything quicker counts as 1 ms. What is *usual* is the 99th
//! percentile of the past half hour, an average of logarithms, learnt only while less than the lowest
//! threshold fails: five minutes at ten times the duration raise it by less than half, and a dependency
//! that stays slow becomes usual in the end.
//!
//! # With a breaker
//!
//! Any breaker that can say where it stands will do:
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::policy::{AdaptiveLimits, CircuitState};
//!
//! # struct Breaker;
//! # impl Breaker { fn is_open(&self, _: &str) -> bool { false } }
//! # let breaker = Breaker;
//! let limits = AdaptiveLimits::builder()
//!     .circuit(move |dependency| match breaker.is_open(&dependency.to_string()) {
//!         true => CircuitState::Open { retry_after: Some(Duration::from_secs(5)) },
//!         false => CircuitState::Closed,
//!     })
//!     .build()?;
//! # Ok::<_, tower_retry_budget::ConfigError>(())
//! ```
//!
//! It is told of the attempts by an [observer](crate::observe::Observe), or sits inside of the layer as a
//! layer of its own. `tests/adaptive/breaker.rs` does it with one from crates.io.

mod builder;
mod health;
mod histogram;
mod tracker;

pub(crate) use self::tracker::{Adaptive, Allowed};
pub use self::{builder::AdaptiveLimitsBuilder, health::Health};
use crate::budget::Key;
use std::{fmt, sync::Arc, time::Duration};

pub(crate) type CircuitFn = dyn Fn(&Key) -> CircuitState + Send + Sync;

/// Where a circuit breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// Calls go through.
    Closed,
    /// It is being tried out whether the dependency is well again: a call makes one attempt.
    HalfOpen,
    /// No call goes through.
    Open {
        /// In what time it is tried again, where the breaker knows. The `503` says so in its
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
}

impl CircuitState {
    /// Returns the state as it is written in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open { .. } => "open",
        }
    }
}

/// How the attempts of a call are lowered while a dependency is not well. See the
/// [module](self) for what it does.
#[derive(Clone)]
pub struct AdaptiveLimits {
    error_rates: Vec<Step>,
    latencies: Vec<Step>,
    min_sample: u32,
    min_latency_sample: u32,
    window: Duration,
    baseline: Duration,
    max_keys: usize,
    circuit: Option<Arc<CircuitFn>>,
}

/// From a threshold on, this part of the attempts. Both in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: u64,
    factor: u64,
}

impl AdaptiveLimits {
    /// Returns a builder with the default settings.
    pub fn builder() -> AdaptiveLimitsBuilder {
        AdaptiveLimitsBuilder::new()
    }

    /// Returns how many attempts of `base` a call is allowed towards a dependency in such health.
    ///
    /// At least 1, and at most `base` (or 1, if that is 0). Exact: a factor of 0.3 makes 3 of 10.
    pub fn limit(&self, base: u32, health: &Health) -> u32 {
        let mut limit = u64::from(base);
        if health.attempts >= self.min_sample {
            let reached = |from: u64| health.failed_at_least(from);
            limit = lowered(limit, &self.error_rates, reached);
        }
        if health.attempts >= self.min_latency_sample {
            let reached = |from: u64| health.slower_by_at_least(from);
            limit = lowered(limit, &self.latencies, reached);
        }
        u32::try_from(limit).unwrap_or(base).max(1)
    }

    /// The same, with the breaker of another one.
    #[cfg(feature = "serde")]
    pub(crate) fn with_circuit_of(mut self, other: Option<&Self>) -> Self {
        self.circuit = other.and_then(|other| other.circuit.clone());
        self
    }

    /// The rate of failures, in thousandths, from which on nothing is learnt of what is usual.
    fn unwell_from(&self) -> u64 {
        let lowest = self.error_rates.iter().map(|step| step.from).min();
        lowest.unwrap_or(u64::MAX)
    }
}

/// What the highest threshold that is reached leaves of `limit`, rounded down.
fn lowered(limit: u64, steps: &[Step], reached: impl Fn(u64) -> bool) -> u64 {
    let highest = steps
        .iter()
        .filter(|step| reached(step.from))
        .max_by_key(|step| step.from);
    highest.map_or(limit, |step| limit * step.factor / THOUSAND)
}

/// In one.
const THOUSAND: u64 = 1000;

impl Default for AdaptiveLimits {
    /// As in the table of the [module](self).
    fn default() -> Self {
        builder::defaults()
    }
}

impl fmt::Debug for AdaptiveLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimits")
            .field("error_rates", &self.error_rates)
            .field("latencies", &self.latencies)
            .field("min_sample", &self.min_sample)
            .field("min_latency_sample", &self.min_latency_sample)
            .field("window", &self.window)
            .field("baseline", &self.baseline)
            .field("max_keys", &self.max_keys)
            .field("circuit", &self.circuit.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn health(failures: u32, p99: u32) -> Health {
        Health {
            attempts: 1000,
            failures,
            p99: Some(MS * p99),
            usual_p99: Some(MS * 100),
        }
    }

    #[test]
    fn lowers_by_the_table_of_the_design() {
        let limits = AdaptiveLimits::default();
        for (failures, p99, expected) in [
            (0, 100, 5),
            (49, 100, 5),
            (50, 100, 3),
            (100, 100, 3),
            (249, 100, 3),
            (250, 100, 1),
            (300, 100, 1),
            (0, 199, 5),
            (0, 200, 3),
            (0, 250, 3),
            (0, 499, 3),
            (0, 500, 2),
            (0, 600, 2),
            (100, 250, 2),
            (100, 600, 1),
            (300, 600, 1),
        ] {
            let got = limits.limit(5, &health(failures, p99));
            assert_eq!(got, expected, "{failures} failed, p99 of {p99}");
        }
        // What a float would round down too far.
        assert_eq!(limits.limit(10, &health(300, 100)), 3);
        assert_eq!(limits.limit(10, &health(0, 300)), 7);
    }

    #[test]
    fn says_nothing_of_a_few_attempts() {
        let limits = AdaptiveLimits::default();
        let few = |attempts| Health {
            attempts,
            failures: attempts,
            p99: Some(MS * 10_000),
            usual_p99: Some(MS),
        };
        assert_eq!(limits.limit(5, &few(19)), 5);
        assert_eq!(limits.limit(5, &few(20)), 1);
        let slow = |attempts| Health {
            failures: 0,
            ..few(attempts)
        };
        assert_eq!(limits.limit(5, &slow(99)), 5);
        assert_eq!(limits.limit(5, &slow(100)), 2);
        assert_eq!(limits.limit(5, &Health::default()), 5);
    }

    proptest! {
        #[test]
        fn is_within_one_and_the_policys_and_never_rises_as_things_get_worse(
            base in 1..=u32::MAX,
            attempts in 0..10_000_u32,
            failures in 0..=10_000_u32,
            worse in 0..=10_000_u32,
            p99 in 0..1_000_000_u32,
            slower in 0..1_000_000_u32,
            usual in 0..1_000_000_u32,
        ) {
            let limits = AdaptiveLimits::default();
            let of = |failures: u32, p99: u32| {
                let health = Health {
                    attempts,
                    failures: failures.min(attempts),
                    p99: Some(MS * p99),
                    usual_p99: Some(MS * usual),
                };
                limits.limit(base, &health)
            };
            let limit = of(failures, p99);
            prop_assert!((1..=base).contains(&limit));
            prop_assert!(of(failures.saturating_add(worse), p99) <= limit);
            prop_assert!(of(failures, p99.saturating_add(slower)) <= limit);
        }
    }
}
