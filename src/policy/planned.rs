//! Policies from schedules, and the schedules of policies.

use super::{
    DEFAULT_TOTAL_TIMEOUT, RetryPolicy, RetryPolicyBuilder,
    backoff::scale,
    builder::{AttemptTimeout, Settings},
    plan::{Bound, Delays, MOST_ATTEMPTS, Plan, Schedule},
};
use std::time::Duration;

impl RetryPolicy {
    /// Starts a policy that tries for as long as `window`, with the attempts that
    /// [fit](Plan::fit) into it.
    ///
    /// The window becomes the total time-out, and a server may ask for a wait of any length within it.
    /// After a `429` or `503` too the waits are the plan's. A cap of the back-off of at most a tenth of the
    /// window leaves at most a tenth of it unused. See [where the window comes
    /// from](super::plan#where-the-window-comes-from).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_retry_budget::policy::{Backoff, RetryPolicy, plan::Plan};
    ///
    /// let backoff = Backoff::builder()
    ///     .base(Duration::from_millis(500))
    ///     .cap(Duration::from_secs(6))
    ///     .build()?;
    /// let plan = Plan::new(backoff).attempt_timeout(Duration::from_secs(5));
    /// let policy = RetryPolicy::for_window(Duration::from_secs(60), &plan).build()?;
    /// assert_eq!(policy.max_attempts(), 23);
    /// println!("{}", policy.schedule());
    /// # Ok::<_, tower_retry_budget::ConfigError>(())
    /// ```
    pub fn for_window(window: Duration, plan: &Plan) -> RetryPolicyBuilder {
        Self::builder()
            .schedule(&plan.fit(window))
            .max_retry_after(window)
    }

    /// When the attempts of a call begin, on average and at the latest.
    ///
    /// For failures that are no `429` or `503`, and without waits that a server asks for. It has all
    /// attempts up to [`MOST_ATTEMPTS`], also those that do not fit the total time-out, which print with a
    /// star.
    pub fn schedule(&self) -> Schedule {
        let settings = &*self.0;
        let limit = settings
            .total_timeout
            .unwrap_or(Some(DEFAULT_TOTAL_TIMEOUT));
        let attempts = settings.max_attempts.min(MOST_ATTEMPTS) as usize;
        let delays = Delays::new(&settings.backoff, |begins| length(settings, limit, begins));
        Schedule {
            backoff: settings.backoff.clone(),
            attempt_timeout: match settings.attempt_timeout {
                Some(AttemptTimeout::Fixed(fixed)) => Some(fixed),
                _ => None,
            },
            attempts: delays.take(attempts).collect(),
            bound: Bound::MaxAttempts,
            limit,
        }
    }
}

impl RetryPolicyBuilder {
    /// Takes over what a [`Plan`] found: the attempts, the back-off, which applies after `429` and `503`
    /// too, the attempt time-out if there is one, and the schedule's time limit as the total time-out.
    pub fn schedule(self, schedule: &Schedule) -> Self {
        let builder = self
            .max_attempts(schedule.max_attempts())
            .backoff(schedule.backoff.clone())
            .throttled_backoff(schedule.backoff.clone())
            .total_timeout(schedule.limit);
        match schedule.attempt_timeout {
            Some(limit) => builder.attempt_timeout(limit),
            None => builder,
        }
    }
}

/// How many attempts fit `total` if all of them are slow.
pub(super) fn fit(settings: &Settings, total: Duration) -> u32 {
    let delays = Delays::new(&settings.backoff, |begins| {
        length(settings, Some(total), begins)
    });
    let attempts = settings.max_attempts.min(MOST_ATTEMPTS) as usize;
    let fitting = delays
        .take(attempts)
        .take_while(|planned| planned.latest_end <= total);
    let fit = fitting.last().map_or(1, |last| last.attempt);
    if fit == MOST_ATTEMPTS {
        // Nobody counts further.
        return settings.max_attempts;
    }
    fit
}

/// How long an attempt may take that begins at an offset.
fn length(settings: &Settings, limit: Option<Duration>, begins: Duration) -> Duration {
    match (settings.attempt_timeout, limit) {
        (Some(AttemptTimeout::Fixed(fixed)), _) => fixed,
        (Some(AttemptTimeout::Share(share)), Some(limit)) if (0.0..=1.0).contains(&share) => {
            scale(limit.saturating_sub(begins), share)
        }
        _ => Duration::ZERO,
    }
}
