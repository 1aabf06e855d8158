//! What the budget is told of an attempt that ended, and the end of nearly all calls, which is no more.

use super::Call;
use crate::{
    body::BoxError,
    clock,
    deadline::{Ownership, RetryAttempt, Scope},
    policy::{ResultView, Verdict},
};
use http::Response;
use http_body::Body;
use std::time::Instant;

impl<S, B> Call<S, B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Whether the first attempt is a success that nobody has anything to add to. It is settled then.
    pub(crate) fn is_plain_success<R>(&mut self, response: &Response<R>) -> bool {
        if self.progress.attempts > 1 || self.has_more_to_say() || self.policy().has_classifier() {
            return false;
        }
        let view = ResultView::Response(response.into());
        let verdict = self.policy().classify_by_tables(view, self.shared.side);
        if verdict.is_success() {
            self.settle(&verdict, clock::now());
            self.again = None;
        }
        verdict.is_success()
    }

    /// Tells the budget of the attempt that ended: a first one fills it, a retry settles its permit.
    /// What was refused within this process never reached the dependency, and counts as neither.
    pub(super) fn settle(&mut self, verdict: &Verdict, now: Instant) {
        if self.deposits() && !verdict.is_local_overload() && !self.has_no_budget() {
            let failed = verdict.earns_nothing();
            self.budget().deposit(&self.key, failed, now);
            self.watched(now, |observer, call| observer.deposited(call, failed));
        }
        let trouble = self.progress.trouble.get_mut();
        match trouble.and_then(|trouble| trouble.permit.take()) {
            Some(permit) if verdict.is_local_overload() => permit.give_back(now),
            Some(permit) if !verdict.earns_nothing() => permit.succeeded(now),
            // Dropped, it counts as failed.
            _ => {}
        }
    }

    /// Whether the attempt that ended fills the budget: the first one does, unless the call is itself
    /// somebody's retry, or a layer outside in this stack counts it.
    fn deposits(&self) -> bool {
        let inherited = self.scope.as_ref().and_then(Scope::attempt);
        self.progress.attempts == 1
            && self.above != Some(Ownership::Told)
            && !inherited.is_some_and(RetryAttempt::is_retry)
    }

    /// Whether somebody is to be told of a success, or counts it.
    fn has_more_to_say(&self) -> bool {
        self.watch.is_some()
            || self.received.is_some()
            || self.resume.is_some()
            || self.gated.is_some()
            || self.shared.adaptive.is_some()
    }
}
