//! What one call knows of itself, and what it makes of an attempt that ended.
//!
//! Everything here happens between two polls of the inner service: nothing waits. The
//! [future](crate::future) does the waiting and asks this for the next step.

mod adaptive;
mod defer;
mod gates;
mod hold;
mod outcome;
mod refresh;
mod resume;
mod settle;
mod stop;
mod tell;
mod trouble;

use crate::{
    body::{BoxError, ReplayBody, ResponseBody},
    budget::{Budget, Key, Permit},
    clock,
    control::Sleeper,
    deadline::{LEAST_REMAINING, Ownership, Received, RetriedAbove, RetryAttempt, Scope},
    decide::ReplayClass,
    drain,
    exhausted::Ending,
    observe::Watch,
    policy::{Credentials, RetryPolicy},
    reason::{Cause, Processed, StopReason},
    shared::Shared,
    template::Template,
    waiting::WaitingPlace,
};
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body::Body;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_service::Service;
use tracing::Span;

pub(crate) use self::{gates::Gated, refresh::Asking, resume::Resume};
use self::{refresh::Refresh, trouble::LazyTrouble};

/// The answer of a call.
pub(crate) type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

/// How an attempt ended.
pub(crate) enum Ended<R, E> {
    Response(Response<R>),
    Error(E),
    /// It ran into its limit and was dropped.
    Cut,
}

impl<R, E> From<Result<Response<R>, E>> for Ended<R, E> {
    fn from(result: Result<Response<R>, E>) -> Self {
        match result {
            Ok(response) => Self::Response(response),
            Err(error) => Self::Error(error),
        }
    }
}

impl<R, E> Ended<R, E> {
    /// The status, if it ended with a response.
    fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Response(response) => Some(response.status()),
            Self::Error(_) | Self::Cut => None,
        }
    }
}

/// What to do after an attempt has ended.
pub(crate) enum Step<R, E> {
    Answer(Answer<R, E>),
    /// Wait for a shared budget or for credentials; keep the outcome until that has decided.
    Ask(Asking, Ended<R, E>),
    /// The retry stands. The body, if any, is drained so that its connection can be used again.
    Retry(Option<R>),
}

/// One call, from the start to its answer.
pub(crate) struct Call<S, B> {
    pub(crate) shared: Arc<Shared>,
    /// Its own policy, where that is not the layer's.
    pub(crate) own_policy: Option<RetryPolicy>,
    /// How many attempts it may make: the policy's, or fewer while the dependency is not well.
    pub(crate) limit: u32,
    pub(crate) key: Key,
    /// The budget of its route, where that is not the layer's.
    pub(crate) budget: Option<Arc<dyn Budget>>,
    pub(crate) class: ReplayClass,
    pub(crate) method: Method,
    /// Whether repeating the request is safe, retried here or not.
    pub(crate) idempotent: bool,
    pub(crate) instance: Option<String>,
    /// `None` when there is one attempt, whatever happens.
    pub(crate) again: Option<Again<S, B>>,
    pub(crate) started: Instant,
    pub(crate) deadline: Option<Instant>,
    /// What the call inherited: on the client side from the request that is being served, around
    /// handlers from the one that it serves.
    pub(crate) scope: Option<Scope>,
    /// The request that the call serves, around handlers.
    pub(crate) received: Option<Received>,
    /// Who retries the call, when that is not this layer.
    pub(crate) above: Option<Ownership>,
    /// Where calls may be held back. In a box: most layers have none.
    pub(crate) held_as: Option<Box<HeldAs>>,
    /// Whether the next hop is told of deadlines and retries.
    pub(crate) tells: bool,
    /// What outlives the process, if the caller wants that.
    pub(crate) resume: Option<Box<Resume>>,
    /// What it knows of gates that it is not held to.
    pub(crate) gated: Option<Box<Gated>>,
    /// Woken when retries are switched off while it waits.
    pub(crate) sleeper: Option<Sleeper>,
    pub(crate) progress: Progress,
    pub(crate) watch: Watch,
}

/// What a call is held back as.
pub(crate) struct HeldAs {
    /// The dependency, whatever account the budget keeps.
    pub(crate) dependency: Key,
    /// Whose call it is, where that decides who is held back.
    pub(crate) tenant: Option<String>,
}

/// What later attempts need: an inner service of their own, and the request.
pub(crate) struct Again<S, B> {
    pub(crate) service: S,
    pub(crate) template: Template<B>,
}

/// How far a call has come.
pub(crate) struct Progress {
    /// How often the request was sent.
    attempts: u32,
    attempt_started: Instant,
    /// When the attempt under way is cut: its own time-out or the deadline, whichever is earlier.
    attempt_limit: Option<Instant>,
    refresh: Refresh,
    /// The generation of the credentials that the attempt under way was sent with.
    credentials: u64,
    processed: Processed,
    last: Ending,
    trouble: LazyTrouble,
}

/// A retry between its decision and its sending.
struct Pending {
    decided: Instant,
    send_at: Instant,
    cause: Cause,
    /// `None` while a shared budget is being asked, and where none is needed.
    permit: Option<Permit>,
    _place: WaitingPlace,
}

impl Progress {
    /// Of a call that has used so many attempts before.
    pub(crate) fn new(started: Instant, attempts: u32) -> Self {
        Self {
            attempts,
            attempt_started: started,
            attempt_limit: None,
            refresh: Refresh::default(),
            credentials: 0,
            processed: if attempts == 0 {
                Processed::No
            } else {
                Processed::Unknown
            },
            last: Ending::default(),
            trouble: LazyTrouble::default(),
        }
    }
}

impl<S, B> Call<S, B> {
    /// What it goes by.
    pub(crate) fn policy(&self) -> &RetryPolicy {
        self.own_policy.as_ref().unwrap_or(&self.shared.policy)
    }

    /// What limits its retries over many calls.
    pub(crate) fn budget(&self) -> &Arc<dyn Budget> {
        self.budget.as_ref().unwrap_or(&self.shared.budget)
    }

    /// When the attempt under way is cut.
    pub(crate) fn attempt_limit(&self) -> Option<Instant> {
        self.progress.attempt_limit
    }

    /// The inner service of later attempts.
    pub(crate) fn service(&mut self) -> &mut S {
        &mut self.again().service
    }

    fn again(&mut self) -> &mut Again<S, B> {
        let again = self.again.as_mut();
        again.expect("a call is retried only with what a retry needs")
    }

    /// How long the failed response may be drained.
    pub(crate) fn drain_until(&self) -> Option<Instant> {
        let decided = self.progress.trouble.retry.as_ref()?.decided;
        let longest = decided.checked_add(drain::LONGEST);
        let latest = self
            .deadline
            .and_then(|deadline| deadline.checked_sub(self.policy().min_attempt()));
        longest.into_iter().chain(latest).min()
    }

    /// When the retry that stands is to be sent.
    pub(crate) fn send_at(&self) -> Option<Instant> {
        self.progress
            .trouble
            .retry
            .as_ref()
            .map(|retry| retry.send_at)
    }

    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(now))
    }

    /// Whether there is one attempt, whatever happens.
    fn is_never(&self) -> bool {
        matches!(self.class, ReplayClass::Never(_))
    }

    /// Whether the deadline has passed.
    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Begins an attempt, and stamps its request at the moment of sending.
    pub(crate) fn begin_attempt(&mut self, head: &mut Parts, now: Instant) {
        // A handler is told through its scope.
        if self.received.is_none() && !self.is_never() {
            head.extensions.insert(RetriedAbove);
        }
        let attempts = self.progress.attempts + 1;
        let policy = self.policy();
        let credentials = policy.credentials().map(Credentials::generation);
        let own = policy.attempt_timeout(attempts, self.remaining(now));
        let own = own.and_then(|limit| now.checked_add(limit));
        let progress = &mut self.progress;
        progress.credentials = credentials.unwrap_or_default();
        progress.attempts = attempts;
        progress.attempt_started = now;
        progress.attempt_limit = own.into_iter().chain(self.deadline).min();
        let left = progress.attempt_limit.map(|limit| limit - now);
        let attempt = RetryAttempt::new(attempts, self.limit);
        let ownership = match self.above {
            Some(above) => above,
            None if self.class == ReplayClass::Full && self.limit > 1 => {
                Ownership::Attempt(attempt)
            }
            None => self.passed_on(),
        };
        if let Some(received) = &mut self.received {
            // A handler is told through its scope; it sees the headers as they came.
            if self.class == ReplayClass::Full {
                received.scope = received.scope.owned_by(attempt);
            }
        } else if self.tells {
            self.shared
                .headers
                .stamp(&mut head.headers, left, ownership);
        } else {
            self.shared.headers.strip(&mut head.headers);
        }
        self.attempt_started(head, now);
    }

    /// Who retries a call that this layer does not: where it makes one attempt whatever happens, still
    /// the caller of the request being served.
    fn passed_on(&self) -> Ownership {
        let inherited = self.scope.as_ref().and_then(Scope::attempt);
        match (self.class, inherited) {
            (ReplayClass::Never(_), Some(attempt)) => Ownership::Attempt(attempt),
            _ => Ownership::Nobody,
        }
    }

    /// Sends the request of a later attempt.
    pub(crate) fn send(&mut self, request: Request<ReplayBody<B>>) -> S::Future
    where
        S: Service<Request<ReplayBody<B>>>,
    {
        let span = self.watch.attempt();
        let _inside = span.as_ref().map(Span::enter);
        match self
            .received
            .as_ref()
            .map(|received| received.scope.clone())
        {
            Some(scope) => scope.enter(|| self.service().call(request)),
            None => self.service().call(request),
        }
    }

    /// Runs the inner service's work: a handler's, in the scope of the request that it serves.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.watch.enter();
        match &self.received {
            Some(received) => received.scope.enter(work),
            None => work(),
        }
    }

    /// Sends an answer on its way.
    pub(crate) fn finish<R, E>(&mut self, answer: Answer<R, E>) -> Answer<R, E> {
        let answer = self.keep(answer);
        match (&self.received, &self.shared.inbound) {
            (Some(received), Some(inbound)) => answer.map(|mut response| {
                inbound.tell(received, &mut response);
                response
            }),
            _ => answer,
        }
    }

    /// Whether the attempt under way is limited more than the call.
    fn attempt_is_shorter(&self) -> bool {
        match (self.progress.attempt_limit, self.deadline) {
            (Some(limit), Some(deadline)) => limit < deadline,
            (limit, None) => limit.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Whether there is still time for the retry that stands.
    ///
    /// Its wait was planned to leave `min_attempt`, and may have been stretched to leave no more. Half
    /// of it has to do when the time comes: timers fire in whole milliseconds, and late.
    fn too_late(&self, now: Instant) -> Option<StopReason> {
        let remaining = self.remaining(now)?;
        if remaining < LEAST_REMAINING {
            Some(StopReason::DeadlineReached)
        } else if remaining < self.policy().min_attempt() / 2 {
            Some(StopReason::DeadlineTooClose)
        } else {
            None
        }
    }

    /// Counts the time that the retry waited until it was sent or given up.
    fn end_wait(&mut self, now: Instant) {
        let Some(trouble) = self.progress.trouble.get_mut() else {
            return;
        };
        if let Some(retry) = &trouble.retry {
            let waited = now.saturating_duration_since(retry.decided);
            trouble.waited += waited;
            trouble.history.wait(waited);
        }
    }
}

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Checks the time that is left, now that the wait is over, and makes the request of the next
    /// attempt.
    pub(crate) fn next_request(&mut self) -> Result<Request<ReplayBody<B>>, StopReason> {
        let now = clock::now();
        if let Some(reason) = self.too_late(now) {
            return Err(reason);
        }
        let last = self.progress.attempts + 1 >= self.limit;
        let (mut head, body) = self.again().template.request(last);
        self.end_wait(now);
        self.sleeper = None;
        self.begin_attempt(&mut head, now);
        if let Some(trouble) = self.progress.trouble.get_mut() {
            trouble.permit = trouble.retry.take().and_then(|retry| retry.permit);
            if let Some(permit) = &mut trouble.permit {
                permit.sent();
            }
        }
        Ok(Request::from_parts(head, body))
    }
}
