//! How a call is resumed that another process began, and kept for the next one.

use super::{Answer, Call, refresh::AskingBudget};
use crate::{
    Exhausted, Persist, RetryState,
    body::{BoxError, ReplayBody},
    budget::Withdrawal,
    clock, observe,
    policy::RetryPolicy,
    reason::{Cause, StopReason},
    retry_state::Persisting,
};
use http::{Request, request::Parts};
use http_body::Body;
use std::{
    future,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime},
};
use tower_service::Service;
use uuid::Uuid;

/// What a call has that outlives the process.
pub(crate) struct Resume {
    state: RetryState,
    persist: Option<Persist>,
    /// The wall time at an instant, so that it runs with the call's own clock.
    wall: SystemTime,
    at: Instant,
    persisting: Option<Persisting>,
    /// Whether it is kept that the next attempt begins.
    begun: bool,
    paying: Paying,
}

/// Who pays for the attempt that resumes the call.
enum Paying {
    /// Nobody has, yet.
    Owed,
    /// A shared budget is asked.
    Asked(AskingBudget),
    Paid,
}

impl Resume {
    /// Whether the caller put something on the request.
    pub(crate) fn is_on(head: &Parts) -> bool {
        let extensions = &head.extensions;
        extensions.get::<RetryState>().is_some() || extensions.get::<Persist>().is_some()
    }

    /// Takes what the caller put on the request.
    pub(crate) fn take(head: &mut Parts, now: Instant) -> Option<Box<Self>> {
        let state = head.extensions.remove::<RetryState>();
        let persist = head.extensions.remove::<Persist>();
        if state.is_none() && persist.is_none() {
            return None;
        }
        Some(Self::new(state.unwrap_or_default(), persist, now))
    }

    /// Of a call that begins, and may have to be resumed.
    pub(crate) fn begin(now: Instant) -> Box<Self> {
        Self::new(RetryState::new(), None, now)
    }

    fn new(state: RetryState, persist: Option<Persist>, now: Instant) -> Box<Self> {
        // A clock that went back would give the call more time.
        let wall = SystemTime::now();
        let wall = state.seen_at.map_or(wall, |seen| seen.max(wall));
        Box::new(Self {
            state,
            persist,
            wall,
            at: now,
            persisting: None,
            begun: false,
            paying: match state.attempts > 0 && !state.paid {
                true => Paying::Owed,
                false => Paying::Paid,
            },
        })
    }

    /// How many attempts are used.
    pub(crate) fn attempts(&self) -> u32 {
        self.state.attempts
    }

    /// The key that the call was given when it began.
    pub(crate) fn idempotency_key(&self) -> Option<Uuid> {
        self.state.idempotency_key
    }

    pub(crate) fn keep_idempotency_key(&mut self, key: Uuid) {
        self.state.idempotency_key = Some(key);
    }

    /// The policy, with no more attempts than the call was admitted with.
    pub(crate) fn limit(&self, policy: RetryPolicy) -> RetryPolicy {
        match self.state.max_attempts {
            Some(admitted) => policy.at_most(admitted),
            None => policy,
        }
    }

    /// The deadline of the first admission.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let left = self.state.deadline?.duration_since(self.wall);
        self.at.checked_add(left.unwrap_or_default())
    }

    /// Admits a call that is not admitted yet.
    pub(crate) fn admit(&mut self, max_attempts: u32, deadline: Option<Instant>) {
        if self.state.max_attempts.is_none() {
            self.state.max_attempts = Some(max_attempts);
            self.state.deadline = deadline.and_then(|deadline| self.wall_at(deadline));
        }
    }

    fn wall_at(&self, instant: Instant) -> Option<SystemTime> {
        let since = instant.saturating_duration_since(self.at);
        self.wall.checked_add(since)
    }

    fn change(&mut self, attempts: u32, not_before: Option<Instant>, paid: bool, now: Instant) {
        let seen = self.wall_at(now);
        self.state.attempts = attempts;
        self.state.not_before = not_before.and_then(|at| self.wall_at(at));
        self.state.seen_at = seen;
        self.state.paid = paid;
        if attempts > 0 && self.state.first_attempted_at.is_none() {
            self.state.first_attempted_at = seen;
        }
    }

    fn persist(&mut self) {
        let state = self.state;
        self.persisting = self.persist.as_ref().map(|persist| persist.persist(state));
    }

    fn poll_persisting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Some(persisting) = &mut self.persisting else {
            return Poll::Ready(Ok(()));
        };
        let result = ready!(persisting.as_mut().poll(cx));
        self.persisting = None;
        if let Err(error) = &result {
            observe::not_persisted(&**error);
        }
        Poll::Ready(result)
    }

    /// Ready when it is kept that attempt number `attempt` begins.
    fn poll_begin(&mut self, attempt: u32, cx: &mut Context<'_>) -> Poll<Result<(), StopReason>> {
        loop {
            let result = ready!(self.poll_persisting(cx));
            if self.begun {
                return Poll::Ready(result.map_err(|_| StopReason::Overloaded));
            }
            // Whatever became of the last one: this says all that it said.
            self.change(attempt, None, false, clock::now());
            self.persist();
            self.begun = true;
        }
    }
}

impl<S, B> Call<S, B> {
    /// When the first attempt of this process is to be made, if there is anything to do before; an error
    /// when the state is over its limits.
    pub(super) fn resumed_at(&self, now: Instant) -> Result<Option<Instant>, StopReason> {
        let Some(resume) = &self.resume else {
            return Ok(None);
        };
        if resume.attempts() >= self.policy().max_attempts() {
            return Err(StopReason::MaxAttempts);
        }
        let wait = resume.state.wait(resume.wall);
        let latest = self
            .remaining(now)
            .map(|left| left.saturating_sub(self.policy().min_attempt()));
        if !wait.is_zero() && latest.is_some_and(|latest| wait > latest) {
            return Err(StopReason::DeadlineTooClose);
        }
        if wait.is_zero() && resume.attempts() == 0 && resume.persist.is_none() {
            return Ok(None);
        }
        let at = now.checked_add(wait);
        at.map(Some).ok_or(StopReason::DeadlineTooClose)
    }

    /// Goes on keeping the state while the call waits.
    pub(crate) fn poll_persisting(&mut self, cx: &mut Context<'_>) {
        if let Some(resume) = &mut self.resume {
            _ = resume.poll_persisting(cx);
        }
    }

    /// Keeps that a retry is made, and when.
    pub(super) fn persist_wait(&mut self, now: Instant) {
        let send_at = self.send_at();
        let attempts = self.progress.attempts;
        if let Some(resume) = &mut self.resume {
            resume.change(attempts, send_at, true, now);
            resume.persist();
            resume.begun = false;
        }
    }

    /// Hands the state back with the response.
    pub(super) fn keep<R, E>(&mut self, mut answer: Answer<R, E>) -> Answer<R, E> {
        if let (Some(resume), Ok(response)) = (&mut self.resume, &mut answer) {
            let exhausted = response.extensions().get::<Exhausted>();
            let wait = exhausted.and_then(Exhausted::retry_after);
            let now = clock::now();
            let not_before = wait.and_then(|wait: Duration| now.checked_add(wait));
            let deferred = exhausted.is_some_and(|it| it.reason() == StopReason::Deferred);
            let paid = deferred && !matches!(resume.paying, Paying::Owed);
            resume.change(self.progress.attempts, not_before, paid, now);
            response.extensions_mut().insert(resume.state);
        }
        answer
    }
}

impl<S, B> Call<S, B>
where
    S: Service<Request<ReplayBody<B>>>,
    S::Error: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Ready when the next attempt may be sent: it is kept that it begins, and the inner service is ready.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StopReason>> {
        self.poll_switch(cx)?;
        let attempt = self.progress.attempts.saturating_add(1);
        ready!(self.poll_paying(cx))?;
        if let Some(resume) = &mut self.resume {
            ready!(resume.poll_begin(attempt, cx))?;
        }
        let ready = ready!(self.service().poll_ready(cx));
        Poll::Ready(ready.map_err(|error| self.not_ready(error)))
    }

    /// Ready when the attempt that resumes the call is paid for.
    fn poll_paying(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StopReason>> {
        // What it answers was lost with the process that asked.
        const CAUSE: Cause = Cause::Other;
        let has_no_budget = self.has_no_budget();
        let budget = self.budget.as_ref().unwrap_or(&self.shared.budget);
        let Some(resume) = self.resume.as_mut().filter(|_| !has_no_budget) else {
            return Poll::Ready(Ok(()));
        };
        if matches!(resume.paying, Paying::Owed) {
            let budget = Arc::clone(budget);
            let asked: AskingBudget = match budget.withdraw(&self.key, CAUSE, clock::now()) {
                Withdrawal::Granted(permit) => Box::pin(future::ready(Ok(permit))),
                Withdrawal::Denied(reason) => Box::pin(future::ready(Err(reason))),
                Withdrawal::Pending(asking) => asking,
            };
            resume.paying = Paying::Asked(asked);
        }
        let Paying::Asked(asked) = &mut resume.paying else {
            return Poll::Ready(Ok(()));
        };
        let answer = ready!(asked.as_mut().poll(cx));
        match answer {
            Ok(mut permit) => {
                resume.paying = Paying::Paid;
                permit.observed(self.shared.observer.as_ref());
                if let Some(retry) = &mut self.progress.trouble.retry {
                    retry.permit = Some(permit);
                }
                Poll::Ready(Ok(()))
            }
            Err(reason) => {
                // Asked once, whatever comes of it.
                resume.paying = Paying::Paid;
                let now = clock::now();
                if self.overrules_budget(reason, now) {
                    return Poll::Ready(Ok(()));
                }
                if let Some(resume) = &mut self.resume {
                    resume.paying = Paying::Owed;
                }
                self.watched(now, |observer, call| {
                    observer.budget_denied(call, CAUSE, reason);
                });
                Poll::Ready(Err(reason))
            }
        }
    }
}
