//! What a call makes of an attempt that ended: the outcome is classified, told to the budget, recorded
//! and decided on.

use super::{Asking, Call, Ended, Pending, Step};
use crate::{
    Exhausted,
    body::BoxError,
    budget::{Permit, Withdrawal},
    client, clock,
    decide::{Decision, Situation, decide, spread},
    exhausted::{AttemptRecord, Ending},
    hold_off::HeldBack,
    observe::RetryScheduled,
    policy::{Outcome, ResultView, Verdict},
    reason::{Cause, Processed, SkipReason, StopReason},
};
use http::StatusCode;
use http_body::Body;
use std::{
    any::type_name,
    sync::Arc,
    time::{Duration, Instant},
};

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Makes the next step of an attempt that ended.
    pub(crate) fn ended<R, E: 'static>(&mut self, ended: Ended<R, E>) -> Step<R, E> {
        let now = clock::now();
        let cut = matches!(ended, Ended::Cut);
        self.observe_deadline(Duration::ZERO, now);
        let mut verdict = self.classify(&ended, now);
        if cut && !verdict.is_failure() {
            // Whatever a classifier says: there is no outcome that could stand.
            verdict = Verdict::final_error();
        }
        self.attempt_ended(&ended, &verdict, now);
        self.record_health(&verdict, now);
        self.settle(&verdict, now);
        if verdict.is_success() {
            return Step::Answer(self.let_stand(ended, None, now));
        }
        if verdict.is_local_overload() && self.progress.attempts > 1 {
            return Step::Answer(self.shed(ended, now));
        }
        self.record(&ended, &verdict, now);
        if cut && self.is_over(now) {
            return self.stop(StopReason::DeadlineReached, Some(ended), now);
        }
        let hint = self.hint(&ended, &verdict, now);
        if self.is_given_up_below(&ended) && !self.overrules_below() {
            let skip = SkipReason::FinalAnswer;
            return Step::Answer(self.let_stand(ended, Some(skip), now));
        }
        let ended = match self.refresh(ended, &verdict, now) {
            Ok(step) => return step,
            Err(ended) => ended,
        };
        match self.decide(&verdict, hint, now) {
            Decision::LetStand(_) if cut => self.stop(StopReason::AttemptTimeout, Some(ended), now),
            Decision::LetStand(skip) => {
                let gone =
                    skip == SkipReason::FinalAnswer && ended.status() == Some(StatusCode::GONE);
                let skip = if gone { SkipReason::Gone } else { skip };
                Step::Answer(self.let_stand(ended, Some(skip), now))
            }
            Decision::Stop(reason) => self.stop(reason, Some(ended), now),
            Decision::RetryAfter(wait) => {
                if let Some((again, name)) = self.again.as_mut().zip(verdict.take_header_to_drop())
                {
                    again.template.leave_out(name);
                }
                let cause = verdict.cause().unwrap_or(Cause::Other);
                if self.again().template.body.prepare() {
                    self.withdraw(wait, cause, ended, now)
                } else {
                    self.not_retried(SkipReason::NotReplayable, ended, now)
                }
            }
        }
    }

    /// Takes the answer of a shared budget, or learns that the credentials are refreshed.
    pub(crate) fn answered<R, E: 'static>(
        &mut self,
        answer: Result<Option<Permit>, StopReason>,
        ended: Ended<R, E>,
    ) -> Step<R, E> {
        let now = clock::now();
        let too_late = self.too_late(now);
        if self.is_refreshing() {
            return self.refreshed(answer.is_ok() && too_late.is_none(), ended, now);
        }
        match (answer, too_late) {
            (Ok(permit), None) => self.granted(permit, ended),
            // The asking took so long that nothing can be sent any more. The outcome is still here.
            (Ok(permit), Some(reason)) => {
                drop(permit);
                self.stop(reason, Some(ended), now)
            }
            (Err(reason), _) => self.denied(reason, ended, now),
        }
    }

    /// The deadline came before the answer.
    pub(crate) fn unanswered<R, E: 'static>(&mut self, ended: Ended<R, E>) -> Step<R, E> {
        let now = clock::now();
        if self.is_refreshing() {
            return self.refreshed(false, ended, now);
        }
        self.stop(StopReason::DeadlineReached, Some(ended), now)
    }

    fn denied<R, E: 'static>(
        &mut self,
        reason: StopReason,
        ended: Ended<R, E>,
        now: Instant,
    ) -> Step<R, E> {
        if self.overrules_budget(reason, now) {
            return self.granted(None, ended);
        }
        self.watched(now, |observer, call| {
            let asked = self.progress.trouble.retry.as_ref();
            let cause = asked.map_or(Cause::Other, |retry| retry.cause);
            observer.budget_denied(call, cause, reason);
        });
        self.stop(reason, Some(ended), now)
    }

    fn classify<R, E: 'static>(&self, ended: &Ended<R, E>, now: Instant) -> Verdict {
        let result = self.result(ended);
        // Only who has a classifier looks at the request again.
        let asked = self.policy().has_classifier() && !self.is_never();
        let Some(again) = self.again.as_ref().filter(|_| asked) else {
            return self.policy().classify_by_tables(result, self.shared.side);
        };
        let outcome = Outcome {
            request: again.template.view(),
            result,
            attempt: self.progress.attempts,
            elapsed: now - self.started,
            remaining: self.remaining(now),
        };
        self.policy().classify(&outcome, self.shared.side)
    }

    fn result<'a, R, E: 'static>(&self, ended: &'a Ended<R, E>) -> ResultView<'a> {
        match ended {
            Ended::Response(response) => ResultView::Response(response.into()),
            Ended::Error(error) => ResultView::Error(self.policy().see_error(error)),
            Ended::Cut => ResultView::Cut,
        }
    }

    /// Whether the layer below gave up for a reason that leaves nothing to gain from asking again.
    fn is_given_up_below<R, E>(&self, ended: &Ended<R, E>) -> bool {
        let Ended::Response(response) = ended else {
            return false;
        };
        if !response.status().is_server_error() {
            return false;
        }
        let in_stack = response.extensions().get().map(Exhausted::marker);
        let told = || self.shared.headers.marker(response.headers());
        // A host that was told nothing has no say.
        let marker = in_stack.or_else(|| self.tells.then(told).flatten());
        let Some(marker) = marker.filter(|marker| marker.reason.forbids_retry_above()) else {
            return false;
        };
        let ran_out = matches!(
            marker.reason,
            StopReason::DeadlineReached | StopReason::DeadlineTooClose
        );
        if ran_out && self.attempt_is_shorter() {
            // It was told of this attempt's own time-out. The call has more time than that.
            return false;
        }
        if let Some(scope) = &self.scope {
            scope.note(marker);
        }
        true
    }

    /// Notes how the attempt ended, for whoever asks later.
    fn record<R, E: 'static>(&mut self, ended: &Ended<R, E>, verdict: &Verdict, now: Instant) {
        let ending = self.ending(ended, now);
        let progress = &mut self.progress;
        progress.last = ending;
        if let Some(trouble) = progress.trouble.get_mut() {
            trouble.last_error = None;
            trouble.rate_limit.clear();
        }
        if verdict.processed() != Processed::No {
            progress.processed = Processed::Unknown;
        }
        if self.again.is_some() || matches!(ended, Ended::Cut) {
            progress.trouble.history.push(AttemptRecord {
                attempt: progress.attempts,
                ending,
                elapsed: now - progress.attempt_started,
                wait: Duration::ZERO,
            });
        }
    }

    /// How the attempt ended.
    pub(super) fn ending<R, E: 'static>(&self, ended: &Ended<R, E>, now: Instant) -> Ending {
        match self.result(ended) {
            ResultView::Response(response) => Ending {
                status: Some(response.status),
                error_type: None,
            },
            ResultView::Error(error) => Ending {
                status: None,
                error_type: Some(
                    error
                        .recognised
                        .map_or(type_name::<E>(), |found| found.name),
                ),
            },
            ResultView::Cut if self.is_over(now) => Ending {
                status: None,
                error_type: Some(StopReason::DeadlineReached.as_str()),
            },
            ResultView::Cut => Ending {
                status: None,
                error_type: Some(StopReason::AttemptTimeout.as_str()),
            },
        }
    }

    fn decide(&mut self, verdict: &Verdict, hint: Option<HeldBack>, now: Instant) -> Decision {
        let attempts = self.progress.attempts;
        let more = verdict.is_failure() && attempts < self.limit;
        let circuit_open = more && self.adapt_again(now);
        let more = more && attempts < self.limit;
        let progress = &self.progress;
        let replayable = match &self.again {
            Some(again) if more => again.template.body.is_replayable(),
            _ => true,
        };
        let backoff = match verdict.cause() {
            Some(cause) if more => {
                self.policy()
                    .backoff(cause, attempts, progress.trouble.last_wait)
            }
            _ => Duration::ZERO,
        };
        let situation = Situation {
            class: self.class_now(),
            failure: verdict.is_failure(),
            processed: verdict.processed(),
            replayable,
            attempts,
            max_attempts: self.limit,
            circuit_open,
            hint: hint.map(|hint| hint.left),
            max_retry_after: self.policy().max_retry_after(),
            backoff,
            spread: hint.map_or(Duration::ZERO, |hint| spread(hint.length, fastrand::f64())),
            remaining: self.remaining(now),
            min_attempt: self.policy().min_attempt(),
        };
        self.observe_decision(&situation, verdict.cause(), now);
        decide(&situation)
    }

    /// The request cannot be sent again after all.
    fn not_retried<R, E: 'static>(
        &mut self,
        skip: SkipReason,
        ended: Ended<R, E>,
        now: Instant,
    ) -> Step<R, E> {
        self.progress.trouble.retry = None;
        if matches!(ended, Ended::Cut) {
            return self.stop(StopReason::AttemptTimeout, Some(ended), now);
        }
        Step::Answer(self.let_stand(ended, Some(skip), now))
    }

    /// Asks what costs something to ask: a place to wait in, and the budget.
    fn withdraw<R, E: 'static>(
        &mut self,
        wait: Duration,
        cause: Cause,
        ended: Ended<R, E>,
        now: Instant,
    ) -> Step<R, E> {
        let Some(send_at) = now.checked_add(wait) else {
            return self.stop(StopReason::RetryAfterTooLong, Some(ended), now);
        };
        let Some(place) = self.shared.waiting.enter() else {
            return self.stop(StopReason::Overloaded, Some(ended), now);
        };
        self.progress.trouble.retry = Some(Pending {
            decided: now,
            send_at,
            cause,
            permit: None,
            _place: place,
        });
        if self.has_no_budget() {
            return self.granted(None, ended);
        }
        let budget = Arc::clone(self.budget());
        match budget.withdraw(&self.key, cause, now) {
            Withdrawal::Granted(permit) => self.granted(Some(permit), ended),
            Withdrawal::Denied(reason) => self.denied(reason, ended, now),
            Withdrawal::Pending(asking) => Step::Ask(Asking::Budget(asking), ended),
        }
    }

    /// The decision to retry stands: lets go of the outcome and of all that reads the request body.
    pub(super) fn granted<R, E: 'static>(
        &mut self,
        mut permit: Option<Permit>,
        ended: Ended<R, E>,
    ) -> Step<R, E> {
        let now = clock::now();
        // What read the body until now may have read too much while the budget was asked.
        let skip = if self.retries_off() {
            Some(SkipReason::Disabled)
        } else {
            (!self.again().template.body.supersede()).then_some(SkipReason::NotReplayable)
        };
        if let Some(skip) = skip {
            drop(permit);
            return self.not_retried(skip, ended, now);
        }
        if let Some(permit) = &mut permit {
            permit.observed(self.shared.observer.as_ref());
        }
        let withdrawn = permit.is_some();
        if let Some(send_at) = self.deferred_to() {
            return self.defer(permit, send_at, ended, now);
        }
        let last = self.progress.last;
        let trouble = &mut *self.progress.trouble;
        let Some(retry) = &mut trouble.retry else {
            unreachable!("a budget is asked only for a retry that was decided on");
        };
        retry.permit = permit;
        trouble.last_wait = retry.send_at - retry.decided;
        trouble.waiting_since = Some(retry.decided);
        let scheduled = RetryScheduled {
            cause: retry.cause,
            status: last.status,
            error_type: last.error_type,
            wait: trouble.last_wait,
            hint: trouble.hint.map(|(hint, _)| hint),
            withdrawn,
        };
        self.tell(now, |observer, call| {
            observer.retry_scheduled(call, &scheduled);
        });
        self.persist_wait(now);
        Step::Retry(match ended {
            Ended::Response(response) => {
                self.progress.trouble.rate_limit = super::stop::rate_limit(&response);
                Some(response.into_body())
            }
            Ended::Error(error) => {
                let kept = client::keep_error(error, self.policy().error_types());
                self.progress.trouble.last_error = kept;
                None
            }
            Ended::Cut => None,
        })
    }
}
