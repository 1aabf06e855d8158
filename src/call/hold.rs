//! How a call is held back: before its first attempt, or longer than it meant to wait.

use super::{Call, Ended, Pending};
use crate::{
    body::BoxError,
    clock,
    deadline::LEAST_REMAINING,
    decide::spread,
    hold_off::HeldBack,
    policy::{Verdict, retry_after::Hint},
    reason::{Cause, StopReason},
};
use http_body::Body;
use std::time::{Duration, Instant, SystemTime};

impl<S, B> Call<S, B> {
    /// Decides on the first attempt: may it be made, and is it held back before?
    pub(crate) fn hold_first(&mut self, now: Instant) -> Result<bool, StopReason> {
        self.observe_deadline(LEAST_REMAINING, now);
        if self.progress.attempts > 0 && self.retries_off() {
            return Err(StopReason::Disabled);
        }
        if self
            .remaining(now)
            .is_some_and(|left| left < LEAST_REMAINING)
        {
            return Err(StopReason::DeadlineReached);
        }
        self.adapt_first(now)?;
        let resumed_at = self.resumed_at(now)?;
        let held_until = self.held_until(now)?;
        let Some(send_at) = held_until.max(resumed_at) else {
            return Ok(false);
        };
        self.sleeps_until(send_at, now)?;
        let place = self.shared.waiting.enter().ok_or(StopReason::Overloaded)?;
        self.progress.trouble.retry = Some(Pending {
            decided: now,
            send_at,
            cause: Cause::Other,
            permit: None,
            _place: place,
        });
        self.progress.trouble.waiting_since = Some(now);
        let wait = send_at.saturating_duration_since(now);
        self.tell(now, |observer, call| {
            observer.first_attempt_held(call, wait);
        });
        Ok(true)
    }

    /// Whether the wait is over; it is longer when the server has asked others to wait meanwhile.
    pub(crate) fn wait_is_over(&mut self) -> Result<bool, StopReason> {
        let now = clock::now();
        if self.has_opened(now) {
            return Err(StopReason::CircuitOpen);
        }
        let held_until = self.held_until(now)?;
        if let Some(later) = held_until {
            self.sleeps_until(later, now)?;
        }
        if let (Some(retry), Some(later)) = (&mut self.progress.trouble.retry, held_until) {
            retry.send_at = later;
            return Ok(false);
        }
        Ok(true)
    }

    /// Until when the next attempt is held back, if it is; an error when that does not fit.
    fn held_until(&mut self, now: Instant) -> Result<Option<Instant>, StopReason> {
        let holds = self.shared.hold_off.as_ref();
        let first = self.progress.attempts == 0;
        let enforced = self.shared.gates.retry.enforces();
        if first && !holds.is_some_and(|holds| enforced && holds.holds_first_attempts()) {
            return Ok(None);
        }
        let Some(held) = self.held_back(now) else {
            return Ok(None);
        };
        self.progress.trouble.hint = Some((held.left, now));
        let latest = self
            .remaining(now)
            .map(|left| left.saturating_sub(self.policy().min_attempt()));
        let latest = latest.unwrap_or(Duration::MAX);
        // Others may be asked to wait again and again. This call waits no longer for that than it would
        // for a wait that it was asked for itself.
        let waited = self
            .progress
            .trouble
            .retry
            .as_ref()
            .map(|retry| retry.decided);
        let waited = waited.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let in_all = waited.saturating_add(held.left);
        if in_all > self.policy().max_retry_after() || held.left > latest {
            return Err(StopReason::RetryAfterTooLong);
        }
        let wait = held
            .left
            .saturating_add(spread(held.length, fastrand::f64()));
        let send_at = now.checked_add(wait.min(latest));
        send_at.map(Some).ok_or(StopReason::RetryAfterTooLong)
    }

    /// How long calls like this one are held back.
    pub(super) fn held_back(&self, now: Instant) -> Option<HeldBack> {
        let holds = self.shared.hold_off.as_ref()?;
        let held_as = self.held_as.as_ref()?;
        holds.held_back(&held_as.dependency, held_as.tenant.as_deref(), now)
    }
}

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// How long the server, or the user's classifier in its place, asks this call to wait, and what
    /// it asked of others.
    pub(super) fn hint<R, E>(
        &mut self,
        ended: &Ended<R, E>,
        verdict: &Verdict,
        now: Instant,
    ) -> Option<HeldBack> {
        let asked = verdict
            .wait()
            .or_else(|| self.retry_after(ended, verdict, now));
        let asked = asked.map(|wait| HeldBack {
            left: wait,
            length: wait,
        });
        let hint = asked
            .into_iter()
            .chain(self.held_back(now))
            .max_by_key(|held| held.left);
        self.progress.trouble.hint = hint.map(|hint| (hint.left, now));
        hint
    }

    /// What the response says of when to come back. It may be said to others as well.
    fn retry_after<R, E>(
        &self,
        ended: &Ended<R, E>,
        verdict: &Verdict,
        now: Instant,
    ) -> Option<Duration> {
        let Ended::Response(response) = ended else {
            return None;
        };
        let holds = self.shared.hold_off.as_ref();
        let unread = self.again.is_none() && holds.is_none() && !self.observes_retries();
        if !verdict.is_failure() || unread {
            return None;
        }
        match self.policy().hint(response.headers(), SystemTime::now()) {
            Hint::Wait(wait) => {
                let held_as = self.held_as.as_ref();
                if let Some(((holds, held_as), cause)) = holds.zip(held_as).zip(verdict.cause()) {
                    let tenant = match cause {
                        Cause::Throttled => Some(held_as.tenant.as_deref()),
                        Cause::Unavailable => Some(None),
                        _ => None,
                    };
                    if let Some(tenant) = tenant {
                        holds.hold(&held_as.dependency, tenant, wait, now);
                        self.watched(now, |observer, call| observer.held_off(call, wait));
                    }
                }
                Some(wait)
            }
            Hint::Malformed => {
                self.tell(now, |observer, call| observer.malformed_hint(call));
                None
            }
            Hint::Absent => None,
        }
    }
}
