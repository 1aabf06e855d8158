//! How a call ends: with an outcome that stands, or given up.

use super::{Answer, Call, Ended, Progress, Step};
use crate::{
    Exhausted, RetryInfo,
    body::{BoxError, ResponseBody},
    client, clock,
    exhausted::{Details, respond},
    observe::{CallOutcome, Skipped},
    policy::OnExhausted,
    reason::{Processed, SkipReason, StopReason},
};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use std::{
    error::Error,
    time::{Duration, Instant},
};

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Gives up on a call that has no outcome in hand.
    pub(crate) fn give_up<R, E: 'static>(&mut self, reason: StopReason) -> Answer<R, E> {
        self.answer_exhausted(reason, None, clock::now())
    }

    /// The inner service could not be made ready for the retry that stands.
    pub(crate) fn not_ready<E: 'static>(&mut self, error: E) -> StopReason {
        let error = client::keep_error(error, self.policy().error_types());
        self.tell(clock::now(), |observer, call| {
            let error = error
                .as_deref()
                .map(|error| error as &(dyn Error + 'static));
            observer.not_ready(call, error);
        });
        StopReason::Overloaded
    }

    /// The attempt was turned away inside this process: it was not sent, and the outcome before it is
    /// the last one.
    pub(super) fn shed<R, E: 'static>(&mut self, ended: Ended<R, E>, now: Instant) -> Answer<R, E> {
        self.progress.attempts -= 1;
        let answer = self.policy().on_exhausted(self.shared.side);
        let in_hand = (answer == OnExhausted::PassThrough).then_some(ended);
        self.answer_exhausted(StopReason::Overloaded, in_hand, now)
    }

    pub(super) fn let_stand<R, E>(
        &mut self,
        ended: Ended<R, E>,
        skipped: Option<SkipReason>,
        now: Instant,
    ) -> Answer<R, E> {
        let attempts = self.progress.attempts;
        let response = match ended {
            Ended::Response(response) => Ok(response),
            Ended::Error(error) => Err(error),
            Ended::Cut => unreachable!("an attempt that was cut has no outcome to let stand"),
        };
        match skipped {
            None => {
                self.watched(now, |observer, call| observer.succeeded(call));
                self.watch.call_ended(CallOutcome::Success, attempts, None);
            }
            Some(reason) => {
                let skipped = Skipped {
                    reason,
                    status: self.progress.last.status,
                    error_type: self.progress.last.error_type,
                };
                self.tell(now, |observer, call| observer.skipped(call, &skipped));
                let reason = Some(reason.as_str());
                self.watch.call_ended(skipped.outcome(), attempts, reason);
            }
        }
        let again = self.again.take();
        let mut response = response?;
        if attempts > 1 || (skipped.is_some() && again.is_some() && !self.is_never()) {
            let info = self.info(skipped, now);
            response.extensions_mut().insert(info);
        }
        Ok(response.map(ResponseBody::inner))
    }

    fn info(&self, skipped: Option<SkipReason>, now: Instant) -> RetryInfo {
        RetryInfo {
            attempts: self.progress.attempts,
            elapsed: now - self.started,
            waited: self.progress.trouble.waited,
            skipped,
        }
    }

    pub(super) fn stop<R, E: 'static>(
        &mut self,
        reason: StopReason,
        ended: Option<Ended<R, E>>,
        now: Instant,
    ) -> Step<R, E> {
        Step::Answer(self.answer_exhausted(reason, ended, now))
    }

    fn answer_exhausted<R, E: 'static>(
        &mut self,
        reason: StopReason,
        ended: Option<Ended<R, E>>,
        now: Instant,
    ) -> Answer<R, E> {
        self.end_wait(now);
        // Gives back a permit whose retry was not sent, and the place in the waiting room.
        self.progress.trouble.retry = None;
        self.again = None;
        let answer = self.policy().on_exhausted(self.shared.side);
        let pass_through = answer == OnExhausted::PassThrough;
        match ended {
            Some(Ended::Response(mut response)) if pass_through => {
                let exhausted = self.exhausted(reason, now);
                let info = self.info(None, now);
                response.extensions_mut().insert(exhausted);
                response.extensions_mut().insert(info);
                return Ok(response.map(ResponseBody::inner));
            }
            Some(Ended::Error(error)) if pass_through => {
                self.exhausted(reason, now);
                return Err(error);
            }
            Some(Ended::Response(response)) => {
                self.progress.trouble.rate_limit = rate_limit(&response);
            }
            Some(Ended::Error(error)) => {
                let error_types = self.policy().error_types();
                self.progress.trouble.last_error = client::keep_error(error, error_types);
            }
            Some(Ended::Cut) | None => {}
        }
        let exhausted = self.exhausted(reason, now);
        let answer = match &self.shared.inbound {
            Some(inbound) if inbound.edge => OnExhausted::Terse,
            _ => answer,
        };
        let kept = std::mem::take(&mut self.progress.trouble.rate_limit);
        let info = self.info(None, now);
        let mut response = respond(exhausted, kept, answer, &self.method);
        response.extensions_mut().insert(info);
        Ok(response.map(ResponseBody::own))
    }

    /// The details of a call that is given up, and told to whoever is to know.
    fn exhausted(&mut self, reason: StopReason, now: Instant) -> Exhausted {
        let progress = &mut self.progress;
        let unsafe_to_repeat = !self.idempotent && progress.processed != Processed::No;
        let retry_after = match reason {
            StopReason::Deferred => progress.hint_left(now),
            _ => (!unsafe_to_repeat).then(|| progress.retry_after(now)),
        };
        let exhausted = Exhausted::new(Details {
            reason,
            dependency: self.key.clone(),
            attempts: progress.attempts,
            max_attempts: self.limit,
            elapsed: now - self.started,
            waited: progress.trouble.waited,
            last: progress.last,
            error: progress.trouble.last_error.take(),
            retryable: reason == StopReason::Deferred || !unsafe_to_repeat,
            processed: progress.processed,
            retry_after,
            instance: self.instance.take(),
            history: std::mem::take(&mut progress.trouble.history),
        });
        self.tell(now, |observer, call| observer.stopped(call, &exhausted));
        let attempts = self.progress.attempts;
        self.watch
            .call_ended(CallOutcome::Exhausted, attempts, Some(reason.as_str()));
        if let Some(scope) = &self.scope {
            scope.note(exhausted.marker());
        }
        exhausted
    }
}

/// The longest wait that the layer's own `503` asks for on its own account.
const LONGEST_OWN_RETRY_AFTER: f64 = 60.0;

impl Progress {
    /// What is left of the wait that the call was asked for.
    fn hint_left(&self, now: Instant) -> Option<Duration> {
        let (hint, seen) = self.trouble.hint?;
        Some(hint.saturating_sub(now.saturating_duration_since(seen)))
    }

    /// How long the caller is asked to wait: what is left of the server's hint, or a wait that
    /// doubles with every attempt, half of it random, whichever is longer. A `429` knows best.
    fn retry_after(&self, now: Instant) -> Duration {
        let hint = self.hint_left(now);
        if let (Some(hint), Some(StatusCode::TOO_MANY_REQUESTS)) = (hint, self.last.status) {
            return hint;
        }
        let exponent = i32::try_from(self.attempts).unwrap_or(i32::MAX);
        let longest = 2_f64.powi(exponent).min(LONGEST_OWN_RETRY_AFTER);
        let own = Duration::from_secs_f64(longest * (0.5 + 0.5 * fastrand::f64()));
        own.max(hint.unwrap_or_default())
    }
}

/// What a `429` says of the caller's limits: `RateLimit`, `RateLimit-Policy` and the older forms.
pub(super) fn rate_limit<R>(response: &Response<R>) -> HeaderMap {
    let mut kept = HeaderMap::new();
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        for (name, value) in response.headers() {
            if name.as_str().contains("ratelimit") {
                kept.append(name, value.clone());
            }
        }
    }
    kept
}
