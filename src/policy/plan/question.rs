use super::{Bound, Delays, MOST_ATTEMPTS, PlannedAttempt, Schedule};
use crate::{ConfigError, policy::Backoff};
use std::time::Duration;

/// What the success of one more attempt has to be worth at least: half a per cent of all calls.
const LEAST_GAIN: f64 = 0.005;

/// A back-off and limits, to be asked how many attempts fit.
///
/// Without limits of its own: attempts take no time, there may be up to [`MOST_ATTEMPTS`] of them, and
/// nothing is known of what each of them gains.
#[derive(Clone, Debug)]
#[must_use = "a plan does nothing until it is asked"]
pub struct Plan {
    backoff: Backoff,
    attempt_timeout: Option<Duration>,
    max_attempts: u32,
    recovery: Option<Duration>,
    /// The attempt from which on one more is not worth it.
    worth: u32,
}

impl Plan {
    /// Creates a plan for the waits of `backoff`.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            attempt_timeout: None,
            max_attempts: MOST_ATTEMPTS,
            recovery: None,
            worth: MOST_ATTEMPTS,
        }
    }

    /// Sets the time-out of each attempt. In the worst case every one of them uses it.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.attempt_timeout = Some(limit);
        self
    }

    /// Sets how many attempts there may be at most, whatever fits. At least 1, at most [`MOST_ATTEMPTS`].
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.clamp(1, MOST_ATTEMPTS);
        self
    }

    /// Sets how long the dependency is expected to take to recover. Attempts after the first one that
    /// begins later than that are left out: they would gain nothing.
    pub fn recovery(mut self, expected: Duration) -> Self {
        self.recovery = Some(expected);
        self
    }

    /// Leaves out attempts that gain too little. `gains` are measured: the share of all calls that
    /// succeeded at attempt 1, at attempt 2, and so on. The first attempt whose share is under 0.5 % is
    /// the first that is left out; of attempts that were not measured nothing is known, and none is left
    /// out for it.
    ///
    /// # Errors
    ///
    /// When a share is not within 0 to 1, or all of them together are more than 1.
    pub fn gains(self, gains: impl IntoIterator<Item = f64>) -> Result<Self, ConfigError> {
        self.gains_over(LEAST_GAIN, gains)
    }

    /// As [`gains`](Self::gains), with a threshold other than 0.5 % (which is 0.005).
    ///
    /// # Errors
    ///
    /// As there, and when the threshold is not within 0 to 1.
    pub fn gains_over(
        mut self,
        least: f64,
        gains: impl IntoIterator<Item = f64>,
    ) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&least) {
            return Err(ConfigError::new(
                "gains_over",
                least,
                "a share within 0 to 1",
            ));
        }
        let (mut attempt, mut sum, mut worth) = (0_u32, 0.0, MOST_ATTEMPTS);
        for gain in gains {
            attempt = attempt.saturating_add(1);
            sum += gain;
            if !(0.0..=1.0).contains(&gain) {
                return Err(ConfigError::new("gains", gain, "a share within 0 to 1"));
            }
            if attempt > 1 && gain < least {
                worth = worth.min(attempt - 1);
            }
        }
        // Shares that were measured add up to 1 only roughly.
        if sum > 1.0 + 1e-6 {
            return Err(ConfigError::new(
                "gains",
                sum,
                "shares of at most 1 together",
            ));
        }
        self.worth = worth;
        Ok(self)
    }

    /// As few retries as it takes for their waits, on average, to cover a recovery window.
    ///
    /// The last attempt begins at the end of the window or later. The schedule has no time limit.
    pub fn cover(&self, window: Duration) -> Schedule {
        self.answer(Bound::Recovery, None, |attempts| {
            attempts.last().is_none_or(|last| last.offset < window)
        })
    }

    /// As many attempts as begin, on average, within a window that was promised.
    ///
    /// The window is the schedule's [time limit](Schedule::limit): if the waits come out long, the last
    /// attempts fall away, and the promise is kept.
    pub fn fit(&self, window: Duration) -> Schedule {
        self.answer(Bound::Window, Some(window), |attempts| {
            let next = self.after(attempts);
            next.is_some_and(|next| next.offset <= window)
        })
    }

    /// As many attempts as end within a total, though every one of them uses its time-out and every wait
    /// is as long as it can be.
    ///
    /// The total is the schedule's [time limit](Schedule::limit). One attempt is made even if its
    /// time-out alone is longer than that.
    pub fn fit_latency(&self, total: Duration) -> Schedule {
        self.answer(Bound::Latency, Some(total), |attempts| {
            let next = self.after(attempts);
            next.is_some_and(|next| next.latest_end <= total)
        })
    }

    fn delays(&self) -> Delays<'_, impl Fn(Duration) -> Duration> {
        let length = self.attempt_timeout.unwrap_or_default();
        Delays::new(&self.backoff, move |_| length)
    }

    /// The attempt that would come after these.
    fn after(&self, attempts: &[PlannedAttempt]) -> Option<PlannedAttempt> {
        self.delays().continued(attempts.last().copied()).next()
    }

    /// Adds attempts for as long as there is to be one more. `bound` names what ended them, unless one of
    /// the plan's own limits came first.
    fn answer(
        &self,
        bound: Bound,
        limit: Option<Duration>,
        more: impl Fn(&[PlannedAttempt]) -> bool,
    ) -> Schedule {
        let mut attempts = Vec::new();
        let mut delays = self.delays();
        let bound = loop {
            attempts.extend(delays.next());
            let made = u32::try_from(attempts.len()).unwrap_or(MOST_ATTEMPTS);
            let begins = attempts.last().map_or(Duration::ZERO, |last| last.offset);
            if !more(&attempts) {
                break bound;
            } else if self.recovery.is_some_and(|recovery| begins >= recovery) {
                break Bound::Recovery;
            } else if made >= self.worth {
                break Bound::Gain;
            } else if made >= self.max_attempts {
                break Bound::MaxAttempts;
            }
        };
        Schedule {
            backoff: self.backoff.clone(),
            attempt_timeout: self.attempt_timeout,
            attempts,
            bound,
            limit,
        }
    }
}
