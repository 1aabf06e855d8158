use crate::{
    ConfigError,
    policy::{RetryPolicy, RetryPolicyBuilder, backoff::scale},
};
use std::{num::NonZeroU32, time::Duration};

/// Divides attempts and time among nested layers, so that neither adds up to more than a total.
///
/// Attempts multiply: of 8 attempts in all, shares of 2, 2 and 4 would be 16. Here the innermost layer,
/// which retries cheapest, has what it wishes first; the layers outside have what the product leaves.
///
/// ```
/// use std::time::Duration;
/// use tower_retry_budget::policy::plan::Tiers;
///
/// let tiers = Tiers::new(8, Duration::from_secs(10)).reserve(0.1).divide([2, 2, 4])?;
/// let attempts: Vec<u32> = tiers.iter().map(|tier| tier.max_attempts).collect();
/// assert_eq!(attempts, [1, 2, 4]);
/// assert_eq!(tiers[0].attempt_timeout, Duration::from_secs(9));
/// assert_eq!(tiers[1].total_timeout, Duration::from_secs(9));
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "nothing is divided before `divide`"]
pub struct Tiers {
    attempts: u32,
    time: Duration,
    reserve: f64,
}

/// What one layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tier {
    /// How many attempts it makes, the first included.
    pub max_attempts: u32,
    /// How long one of its calls may take.
    pub total_timeout: Duration,
    /// How long one of its attempts may take: the time of a call of the layer inside.
    pub attempt_timeout: Duration,
}

impl Tiers {
    /// Divides so many attempts at the innermost server, and so much time of the outermost call.
    pub const fn new(attempts: u32, time: Duration) -> Self {
        Self {
            attempts,
            time,
            reserve: 0.1,
        }
    }

    /// Sets which share of its time each layer keeps back for its waits and for the way of the answer,
    /// from 0 up to but not including 1. 0.1 by default.
    pub const fn reserve(mut self, share: f64) -> Self {
        self.reserve = share;
        self
    }

    /// Divides. `wishes` are the attempts that each layer would like, the outermost layer first.
    ///
    /// # Errors
    ///
    /// When there are no attempts to divide, a wish is 0, or the reserve is not within its range.
    pub fn divide(self, wishes: impl IntoIterator<Item = u32>) -> Result<Vec<Tier>, ConfigError> {
        if !(0.0..1.0).contains(&self.reserve) {
            let expected = "a share from 0 up to but not including 1";
            return Err(ConfigError::new("reserve", self.reserve, expected));
        }
        let mut left = NonZeroU32::new(self.attempts)
            .ok_or_else(|| ConfigError::new("attempts", 0, "at least 1 in all"))?
            .get();
        let mut attempts = wishes.into_iter().collect::<Vec<_>>();
        for wish in attempts.iter_mut().rev() {
            if *wish == 0 {
                return Err(ConfigError::new("wishes", 0, "at least 1 for each layer"));
            }
            *wish = left.min(*wish);
            left /= *wish;
        }
        let mut time = self.time;
        let tiers = attempts.into_iter().map(|max_attempts| {
            let total_timeout = time;
            time = scale(total_timeout, 1.0 - self.reserve) / max_attempts;
            Tier {
                max_attempts,
                total_timeout,
                attempt_timeout: time,
            }
        });
        Ok(tiers.collect())
    }
}

impl Tier {
    /// Starts a policy with these attempts and times.
    pub fn policy(&self) -> RetryPolicyBuilder {
        RetryPolicy::builder()
            .max_attempts(self.max_attempts)
            .total_timeout(self.total_timeout)
            .attempt_timeout(self.attempt_timeout)
    }
}
