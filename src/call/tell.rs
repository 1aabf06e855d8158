//! What a call tells those who watch it: each transition once.

use super::{Call, Ended};
use crate::{
    body::BoxError,
    clock,
    observe::{AttemptFinished, AttemptOutcome, CallOutcome, CallView, Observe, Phase, Tracing},
    policy::Verdict,
};
use http::request::Parts;
use http_body::Body;
use std::time::{Duration, Instant};

impl<S, B> Call<S, B> {
    /// Tells the layer's observer, if there is one, what `tracing` has no event for.
    ///
    /// This is on the way of every call. Where nobody watches it is one look at a pointer.
    #[inline]
    pub(crate) fn watched(&self, at: Instant, event: impl FnOnce(&dyn Observe, &CallView<'_>)) {
        if self.watch.is_some() {
            self.tell_observer(at, event);
        }
    }

    #[inline(never)]
    fn tell_observer(&self, at: Instant, event: impl FnOnce(&dyn Observe, &CallView<'_>)) {
        if let Some(observer) = &self.shared.observer {
            event(&**observer, &self.view(at));
        }
    }

    /// Tells `tracing`, and the layer's observer, if there is one.
    pub(crate) fn tell(&self, at: Instant, event: impl Fn(&dyn Observe, &CallView<'_>)) {
        let call = self.view(at);
        event(&Tracing, &call);
        if let Some(observer) = &self.shared.observer {
            event(&**observer, &call);
        }
    }

    fn view(&self, at: Instant) -> CallView<'_> {
        CallView {
            dependency: &self.key,
            method: &self.method,
            operation: self.watch.operation(),
            attempts: self.progress.attempts,
            max_attempts: self.max_attempts(),
            started: self.started,
            at,
            deadline: self.deadline,
            waited: self.progress.trouble.waited,
            waiting_since: self.progress.trouble.waiting_since,
            hint: self.progress.trouble.hint.map(|(hint, _)| hint),
            routed: self.budget.as_ref(),
            shared: &self.shared,
        }
    }

    /// An attempt is being sent, after its wait, if it had one.
    #[inline]
    pub(super) fn attempt_started(&mut self, head: &Parts, now: Instant) {
        if self.watch.is_some() {
            self.tell_of_attempt(head, now);
        }
        if let Some(trouble) = self.progress.trouble.get_mut() {
            trouble.waiting_since = None;
        }
    }

    #[inline(never)]
    fn tell_of_attempt(&mut self, head: &Parts, now: Instant) {
        let attempts = self.progress.attempts;
        self.watch.attempt_started(attempts, head, self.shared.side);
        self.watched(now, |observer, call| {
            let retry = self
                .progress
                .trouble
                .retry
                .as_ref()
                .filter(|_| attempts > 1);
            observer.attempt_started(call, retry.map(|retry| retry.cause));
        });
    }

    /// The call is dropped. What it had of the inner service is gone already.
    pub(crate) fn cancelled(&mut self, during: Phase) {
        let now = clock::now();
        if during == Phase::Attempt {
            self.attempt_finished(
                AttemptFinished {
                    outcome: AttemptOutcome::Cancelled,
                    cause: None,
                    status: None,
                    error_type: Some("cancelled"),
                    elapsed: now.saturating_duration_since(self.progress.attempt_started),
                },
                now,
            );
        }
        self.end_wait(now);
        self.observe_deadline(Duration::ZERO, now);
        // Dropped, they tell the budget what became of the retry.
        if let Some(trouble) = self.progress.trouble.get_mut() {
            trouble.retry = None;
            trouble.permit = None;
        }
        self.tell(now, |observer, call| observer.cancelled(call, during));
        self.watch
            .call_ended(CallOutcome::Cancelled, self.progress.attempts, None);
    }

    fn attempt_finished(&mut self, attempt: AttemptFinished, now: Instant) {
        self.watched(now, |observer, call| {
            observer.attempt_finished(call, &attempt);
        });
        self.watch.attempt_finished(&attempt, self.shared.side);
    }
}

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// An attempt ended, and was classified.
    #[inline]
    pub(super) fn attempt_ended<R, E: 'static>(
        &mut self,
        ended: &Ended<R, E>,
        verdict: &Verdict,
        now: Instant,
    ) {
        if self.watch.is_some() {
            self.tell_of_end(ended, verdict, now);
        }
    }

    #[inline(never)]
    fn tell_of_end<R, E: 'static>(&mut self, ended: &Ended<R, E>, verdict: &Verdict, now: Instant) {
        let ending = self.ending(ended, now);
        let elapsed = now.saturating_duration_since(self.progress.attempt_started);
        let attempt = AttemptFinished {
            outcome: verdict.outcome(),
            cause: verdict.cause(),
            status: ending.status,
            error_type: ending.error_type,
            elapsed,
        };
        self.attempt_finished(attempt, now);
    }
}
