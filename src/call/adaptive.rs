//! How many attempts a call is allowed towards a dependency that is not well.

use super::Call;
use crate::{
    observe::Adapted,
    policy::{Allowed, CircuitState, Verdict},
    reason::StopReason,
};
use std::time::Instant;

impl<S, B> Call<S, B> {
    /// How many attempts the call may make: those of the policy, or fewer.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.limit
    }

    /// Finds out how many attempts the call may make, before the first one.
    pub(super) fn adapt_first(&mut self, now: Instant) -> Result<(), StopReason> {
        let Some(allowed) = self.allowed(now) else {
            return Ok(());
        };
        // A call that another process began has used attempts before; this one is not taken from it.
        let next = self.progress.attempts.saturating_add(1);
        match allowed.attempts {
            Some(attempts) => {
                self.limit = self.limit.min(attempts.max(next));
                self.tell_adapted(&allowed, now);
                Ok(())
            }
            None => {
                self.note_open(&allowed, now);
                self.tell_adapted(&allowed, now);
                Err(StopReason::CircuitOpen)
            }
        }
    }

    /// Finds it out again before a retry, and whether the breaker is open. What was allowed once may
    /// become less and not more: the next hop was told of it.
    pub(super) fn adapt_again(&mut self, now: Instant) -> bool {
        let Some(allowed) = self.allowed(now) else {
            return false;
        };
        let before = self.limit;
        let is_open = allowed.attempts.is_none();
        match allowed.attempts {
            Some(attempts) => self.limit = self.limit.min(attempts.max(self.progress.attempts)),
            None => self.note_open(&allowed, now),
        }
        if is_open || self.limit < before {
            self.tell_adapted(&allowed, now);
        }
        is_open
    }

    /// Whether the breaker has opened while the call waited.
    pub(super) fn has_opened(&mut self, now: Instant) -> bool {
        match self.allowed(now) {
            Some(allowed) if allowed.attempts.is_none() => {
                self.note_open(&allowed, now);
                self.tell_adapted(&allowed, now);
                true
            }
            _ => false,
        }
    }

    /// Counts the attempt that ended towards the health of the dependency.
    pub(super) fn record_health(&self, verdict: &Verdict, now: Instant) {
        if let Some(adaptive) = &self.shared.adaptive {
            if !verdict.is_local_overload() {
                let took = now.saturating_duration_since(self.progress.attempt_started);
                adaptive.record(&self.key, verdict.is_failure(), took, now);
            }
        }
    }

    /// `None` where the call has the policy's attempts: without limits, and while retries are not enforced,
    /// which is to change nothing on the wire.
    fn allowed(&self, now: Instant) -> Option<Allowed> {
        let enforced = self.shared.gates.retry.enforces();
        let adaptive = self.shared.adaptive.as_ref().filter(|_| enforced)?;
        Some(adaptive.allowed(&self.key, self.policy().max_attempts(), now))
    }

    /// The breaker knows when it lets calls through again.
    fn note_open(&mut self, allowed: &Allowed, now: Instant) {
        if let CircuitState::Open {
            retry_after: Some(wait),
        } = allowed.circuit
        {
            let hint = self.progress.trouble.hint.map(|(hint, _)| hint);
            self.progress.trouble.hint = Some((hint.max(Some(wait)).unwrap_or(wait), now));
        }
    }

    fn tell_adapted(&self, allowed: &Allowed, now: Instant) {
        let adapted = Adapted {
            base: self.policy().max_attempts(),
            limit: allowed.attempts.map_or(0, |_| self.limit),
            health: allowed.health,
            circuit: allowed.circuit,
        };
        self.tell(now, |observer, call| observer.adapted(call, &adapted));
    }
}
