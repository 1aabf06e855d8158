//! What a call does when its credentials are refused.

use super::{Call, Ended, Pending, Step};
use crate::{
    body::BoxError,
    budget::Permit,
    decide::{Decision, ReplayClass, Situation, decide},
    policy::{Refreshing, Verdict},
    reason::{Cause, Processed, SkipReason, StopReason},
};
use futures_util::FutureExt;
use http::{StatusCode, header};
use http_body::Body;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

pub(super) type AskingBudget = Pin<Box<dyn Future<Output = Result<Permit, StopReason>> + Send>>;

/// Something being asked that decides whether the retry stands.
pub(crate) enum Asking {
    /// A shared budget.
    Budget(AskingBudget),
    /// Whoever refreshes the credentials. Costs the budget nothing.
    Refresh(Refreshing),
}

impl Asking {
    /// The permit, if one is needed; or why there is no retry.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Permit>, StopReason>> {
        match self {
            Self::Budget(asking) => asking.as_mut().poll(cx).map_ok(Some),
            // The reason is never told: the refusal stands.
            Self::Refresh(refreshing) => refreshing
                .poll_unpin(cx)
                .map(|refreshed| refreshed.then_some(None).ok_or(StopReason::Overloaded)),
        }
    }
}

/// How far a call has come with its credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refresh {
    #[default]
    NotTried,
    UnderWay,
    Done,
}

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Begins to refresh the credentials, if they were refused and another attempt may be made for that.
    /// Otherwise hands the outcome back.
    pub(super) fn refresh<R, E>(
        &mut self,
        ended: Ended<R, E>,
        verdict: &Verdict,
        now: Instant,
    ) -> Result<Step<R, E>, Ended<R, E>> {
        let refused = matches!(
            ended.status(),
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        );
        if !refused || verdict.is_failure() || self.progress.refresh != Refresh::NotTried {
            return Err(ended);
        }
        let Some(credentials) = self.policy().credentials().cloned() else {
            return Err(ended);
        };
        if matches!(self.class_now(), ReplayClass::Never(_)) || !self.fits_another(now) {
            return Err(ended);
        }
        let Some(place) = self.shared.waiting.enter() else {
            return Err(ended);
        };
        self.progress.refresh = Refresh::UnderWay;
        self.progress.trouble.retry = Some(Pending {
            decided: now,
            send_at: now,
            cause: Cause::Credentials,
            permit: None,
            _place: place,
        });
        let refreshing = credentials.refresh(self.progress.credentials);
        Ok(Step::Ask(Asking::Refresh(refreshing), ended))
    }

    /// Whether the attempts, the body and the time are left for one more attempt.
    fn fits_another(&mut self, now: Instant) -> bool {
        let situation = Situation {
            class: self.class,
            failure: true,
            // The server refused it.
            processed: Processed::No,
            replayable: self.again().template.body.is_replayable(),
            attempts: self.progress.attempts,
            max_attempts: self.max_attempts(),
            circuit_open: false,
            hint: None,
            max_retry_after: Duration::ZERO,
            backoff: Duration::ZERO,
            spread: Duration::ZERO,
            remaining: self.remaining(now),
            min_attempt: self.policy().min_attempt(),
        };
        matches!(decide(&situation), Decision::RetryAfter(_))
            && self.again().template.body.prepare()
    }

    /// Ends a refresh: lets the refusal stand if it failed, else has the new credentials sent.
    pub(super) fn refreshed<R, E: 'static>(
        &mut self,
        stands: bool,
        ended: Ended<R, E>,
        now: Instant,
    ) -> Step<R, E> {
        self.progress.refresh = Refresh::Done;
        if !stands {
            self.progress.trouble.retry = None;
            let skip = SkipReason::FinalAnswer;
            return Step::Answer(self.let_stand(ended, Some(skip), now));
        }
        let value = self
            .policy()
            .credentials()
            .and_then(|it| it.authorization());
        if let Some(value) = value {
            self.again().template.set(header::AUTHORIZATION, value);
        }
        if let Some(retry) = &mut self.progress.trouble.retry {
            retry.send_at = now;
        }
        self.granted(None, ended)
    }

    /// Whether the credentials are what is being waited for.
    pub(super) fn is_refreshing(&self) -> bool {
        self.progress.refresh == Refresh::UnderWay
    }
}
