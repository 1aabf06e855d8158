//! How long a caller waits before a retry when the server does not say.
//!
//! The default grows exponentially with full jitter, which spreads callers that failed together
//! over the whole of the delay:
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::policy::Backoff;
//!
//! let backoff = Backoff::default();
//! assert_eq!(backoff.upper_bound(1), Duration::from_millis(50));
//! assert_eq!(backoff.upper_bound(2), Duration::from_millis(100));
//! assert_eq!(backoff.upper_bound(100), Duration::from_secs(20));
//! assert!(backoff.delay(1, Duration::ZERO) <= Duration::from_millis(50));
//! ```
//!
//! Every part of it can be chosen; with a seed the delays can be repeated:
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::policy::{Backoff, Jitter};
//!
//! # fn main() -> Result<(), tower_retry_budget::ConfigError> {
//! let build = || {
//!     Backoff::builder()
//!         .base(Duration::from_millis(200))
//!         .factor(1.5)
//!         .cap(Duration::from_secs(5))
//!         .jitter(Jitter::Equal)
//!         .seed(42)
//!         .build()
//! };
//! let (one, other) = (build()?, build()?);
//! let first = one.delay(1, Duration::ZERO);
//! assert!(first >= Duration::from_millis(100) && first <= Duration::from_millis(200));
//! assert_eq!(first, other.delay(1, Duration::ZERO));
//!
//! assert!(Backoff::builder().factor(0.5).build().is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Jitter
//!
//! Full, equal and decorrelated jitter are those of Marc Brooker, ["Exponential Backoff And
//! Jitter"], 2015. Without jitter, callers that failed together come back together.
//!
//! ["Exponential Backoff And Jitter"]:
//!     https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

mod random;

use self::random::Random;
use crate::ConfigError;
use std::{fmt, sync::Arc, time::Duration};

const BASE: Duration = Duration::from_millis(50);
const FACTOR: f64 = 2.0;
const CAP: Duration = Duration::from_secs(20);

/// A server that says "too much" is given longer than one that stumbled.
const THROTTLED_BASE: Duration = Duration::from_secs(1);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// An exponential delay with a cap and jitter. Cheap to clone.
///
/// The delay before retry `n`, counted from 1, is `base * factor^(n - 1)`, at most `cap`, made
/// shorter by the [`Jitter`]. The default is a base of 50 ms, a factor of 2, a cap of 20 s and
/// [`Jitter::Full`].
///
/// It is never negative, never over the cap, and stays at the cap for ever. The random numbers are
/// the thread's own, not fit for secrets, unless a [`seed`](BackoffBuilder::seed) is set.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    factor: f64,
    cap: Duration,
    jitter: Jitter,
    random: Random,
}

impl Backoff {
    /// Returns a builder that holds the default.
    pub fn builder() -> BackoffBuilder {
        BackoffBuilder {
            backoff: Self::default(),
        }
    }

    /// Returns the default for a server that asks for less (`429`, `503`): a base of 1 s, a factor
    /// of 2, a cap of 20 s and [`Jitter::Equal`].
    pub fn throttled() -> Self {
        Self {
            base: THROTTLED_BASE,
            jitter: Jitter::Equal,
            ..Self::default()
        }
    }

    /// Returns a back-off that never waits.
    pub fn none() -> Self {
        Self::fixed(Duration::ZERO)
    }

    /// Returns a back-off that always waits for `delay`, without jitter.
    pub fn fixed(delay: Duration) -> Self {
        Self {
            base: delay,
            factor: 1.0,
            cap: delay,
            jitter: Jitter::None,
            random: Random::Thread,
        }
    }

    /// Returns the delay before the first retry, without jitter.
    pub fn base(&self) -> Duration {
        self.base
    }

    /// Returns what the delay is multiplied by from one retry to the next.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns what no delay exceeds.
    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// Returns the jitter.
    pub fn jitter(&self) -> &Jitter {
        &self.jitter
    }

    /// Returns the delay before a retry.
    ///
    /// `retry` counts from 1; 0 is taken for 1. `previous` is the delay before the retry that came
    /// last, zero if there was none; only [`Jitter::Decorrelated`] looks at it. Draws a random
    /// number unless the jitter needs none.
    pub fn delay(&self, retry: u32, previous: Duration) -> Duration {
        let bound = self.upper_bound(retry);
        let random_share = match &self.jitter {
            Jitter::None => return bound,
            Jitter::Full => 1.0,
            Jitter::Equal => 0.5,
            Jitter::Share(share) => *share,
            Jitter::Injected(ratio) => return scale(bound, (ratio.0)()),
            Jitter::Decorrelated => {
                let low = self.base.min(bound);
                let high = previous.max(self.base).saturating_mul(3).min(bound);
                let span = high.saturating_sub(low);
                return low.saturating_add(scale(span, self.random.draw()));
            }
        };
        if random_share == 0.0 {
            return bound;
        }
        scale(bound, 1.0 - random_share * self.random.draw())
    }

    /// Returns the delay without jitter, which no delay before that retry exceeds.
    ///
    /// With [`Jitter::Decorrelated`], which knows no factor, it is `base * 3^retry`, at most `cap`:
    /// what the delay is when every draw so far was the highest.
    pub fn upper_bound(&self, retry: u32) -> Duration {
        let retry = retry.max(1);
        let growth = match self.jitter {
            Jitter::Decorrelated => 3_f64.powf(f64::from(retry)),
            _ => self.factor.powf(f64::from(retry - 1)),
        };
        // Zero times infinity is no number, and times one a large base would lose its last digits.
        if self.base.is_zero() || growth == 1.0 {
            return self.base.min(self.cap);
        }
        let nanos = self.base.as_nanos() as f64 * growth;
        from_nanos(nanos).max(self.base).min(self.cap)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: BASE,
            factor: FACTOR,
            cap: CAP,
            jitter: Jitter::Full,
            random: Random::Thread,
        }
    }
}

/// Builds a [`Backoff`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct BackoffBuilder {
    backoff: Backoff,
}

impl BackoffBuilder {
    /// Sets the delay before the first retry. 50 ms by default; zero never waits.
    pub fn base(mut self, base: Duration) -> Self {
        self.backoff.base = base;
        self
    }

    /// Sets what the delay is multiplied by from one retry to the next. 2 by default; 1 keeps it
    /// as it is.
    pub fn factor(mut self, factor: f64) -> Self {
        self.backoff.factor = factor;
        self
    }

    /// Sets what no delay exceeds, the first included. 20 s by default.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.backoff.cap = cap;
        self
    }

    /// Sets the jitter. [`Jitter::Full`] by default.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.backoff.jitter = jitter;
        self
    }

    /// Makes the random numbers a sequence that follows from `seed`.
    ///
    /// What is built has one sequence, and its clones draw from it too: their delays taken together
    /// are the same again when they are asked for in the same order. Another version of this crate
    /// may have another sequence.
    pub fn seed(mut self, seed: u64) -> Self {
        self.backoff.random = Random::seeded(seed);
        self
    }

    /// Returns the back-off.
    ///
    /// # Errors
    ///
    /// When the factor is not a finite number of at least 1, or a [`Jitter::Share`] is not within
    /// 0 to 1.
    pub fn build(self) -> Result<Backoff, ConfigError> {
        let mut backoff = self.backoff;
        if !backoff.factor.is_finite() || backoff.factor < 1.0 {
            return Err(ConfigError::new(
                "factor",
                backoff.factor,
                "a finite number, at least 1",
            ));
        }
        if let Jitter::Share(share) = backoff.jitter {
            if !(0.0..=1.0).contains(&share) {
                return Err(ConfigError::new("jitter", share, "a share within 0 to 1"));
            }
        }
        // A builder may be cloned; what it builds does not share the sequence.
        backoff.random = backoff.random.restarted();
        Ok(backoff)
    }
}

/// How a delay is made random. Below, `u` is uniform from 0 up to but not including 1.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Jitter {
    /// The delay as it is. The same as `Share(0.0)`.
    None,
    /// Anything from nothing to the delay. The same as `Share(1.0)`.
    Full,
    /// Half of the delay, and anything up to the other half. The same as `Share(0.5)`.
    Equal,
    /// Uniform between the base and three times the delay before, at most the cap. The factor plays
    /// no part.
    Decorrelated,
    /// This part of the delay is random: `delay * (1 - share * u)`. The share is within 0 to 1.
    Share(f64),
    /// The delay times a ratio that a function returns; made by [`Jitter::from_fn`].
    Injected(InjectedRatio),
}

impl Jitter {
    /// Returns a jitter that multiplies each delay by what `ratio` returns.
    ///
    /// Ratios below 0 are taken for 0, those above 1 for 1, and what is not a number for 1. The
    /// function is called once per delay, wherever the retry is decided; it must not block.
    pub fn from_fn(ratio: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self::Injected(InjectedRatio(Arc::new(ratio)))
    }
}

/// A function that returns the ratio by which a delay is multiplied. See [`Jitter::from_fn`].
#[derive(Clone)]
pub struct InjectedRatio(Arc<dyn Fn() -> f64 + Send + Sync>);

impl fmt::Debug for InjectedRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InjectedRatio(..)")
    }
}

/// Multiplies `delay` by `ratio`, which is first brought into 0 to 1. Never exceeds `delay`.
pub(super) fn scale(delay: Duration, ratio: f64) -> Duration {
    if ratio >= 1.0 || ratio.is_nan() {
        return delay;
    }
    from_nanos(delay.as_nanos() as f64 * ratio).min(delay)
}

/// Saturates at zero and at [`Duration::MAX`].
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast to an integer saturates, and a remainder is less than its divisor"
)]
fn from_nanos(nanos: f64) -> Duration {
    let nanos = nanos as u128;
    match u64::try_from(nanos / NANOS_PER_SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}
