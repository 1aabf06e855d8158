//! Calls that are only watched: one attempt, no time limit, and nobody who listens.
//!
//! They make up the traffic of whoever has switched retries off, and leave out all that only other calls
//! need. What they tell the budget is the same.

use crate::{
    body::ResponseBody,
    budget::Key,
    chosen::Chosen,
    clock,
    deadline::{Deadline, Ownership, RetriedAbove, Scope},
    observe::{CallView, Observe, Skipped, Tracing, WATCHED},
    policy::{ResultView, RetryPolicy, Verdict},
    reason::SkipReason,
    shared::Shared,
};
use http::{Method, Response, StatusCode, request::Parts};
use std::{any::type_name, sync::Arc};
use tracing::level_filters::LevelFilter;

/// What is known of such a call when it ends.
pub(crate) struct Passing {
    shared: Arc<Shared>,
    /// Its own, where that is not the layer's.
    policy: Option<RetryPolicy>,
    key: Key,
    method: Method,
}

impl Passing {
    /// Whether there is nothing to a call but to watch how it ends.
    pub(crate) fn suffices(shared: &Shared, chosen: &Chosen, head: &Parts) -> bool {
        let policy = chosen.policy.as_ref().unwrap_or(&shared.policy);
        policy.only_watches(shared.side)
            && chosen.budget.is_none()
            && !is_watched(shared)
            && !is_special(head)
    }

    /// Begins a call, and says of its request what the next hop is to know.
    pub(crate) fn begin(shared: Arc<Shared>, chosen: Chosen, head: &mut Parts) -> Self {
        if shared.tells(&head.uri) {
            let nobody = Ownership::Nobody;
            shared.headers.stamp(&mut head.headers, None, nobody);
        } else {
            shared.headers.strip(&mut head.headers);
        }
        Self {
            key: shared.keys.key(head),
            method: head.method.clone(),
            shared,
            policy: chosen.policy,
        }
    }

    fn policy(&self) -> &RetryPolicy {
        self.policy.as_ref().unwrap_or(&self.shared.policy)
    }

    /// Tells the budget how it ended.
    pub(crate) fn end<R, E: 'static>(
        &self,
        result: Result<Response<R>, E>,
    ) -> Result<Response<ResponseBody<R>>, E> {
        let now = clock::now();
        let view = match &result {
            Ok(response) => ResultView::Response(response.into()),
            Err(error) => ResultView::Error(self.policy().see_error(error)),
        };
        let verdict = self.policy().classify_by_tables(view, self.shared.side);
        if !verdict.is_local_overload() {
            let failed = verdict.earns_nothing();
            self.shared.budget.deposit(&self.key, failed, now);
        }
        if !verdict.is_success() {
            let error_type = match view {
                ResultView::Error(error) => Some(
                    error
                        .recognised
                        .map_or(type_name::<E>(), |known| known.name),
                ),
                _ => None,
            };
            let status = result.as_ref().ok().map(Response::status);
            self.tell(&verdict, status, error_type);
        }
        result.map(|response| response.map(ResponseBody::inner))
    }

    /// Tells `tracing` of a failure, in case that somebody began to listen meanwhile.
    #[cold]
    fn tell(&self, verdict: &Verdict, status: Option<StatusCode>, error: Option<&'static str>) {
        let reason = match status {
            _ if verdict.is_failure() => SkipReason::Disabled,
            Some(StatusCode::GONE) => SkipReason::Gone,
            _ => SkipReason::FinalAnswer,
        };
        let skipped = Skipped {
            reason,
            status,
            error_type: error,
        };
        let at = clock::now();
        let call = CallView::of_one_attempt(&self.key, &self.method, at, &self.shared);
        Tracing.skipped(&call, &skipped);
    }
}

/// Whether anybody is to be told of more than the budget is.
fn is_watched(shared: &Shared) -> bool {
    let traced = WATCHED && LevelFilter::current() >= LevelFilter::INFO;
    traced
        || (WATCHED && shared.observer.is_some())
        || shared.hold_off.is_some()
        || shared.adaptive.is_some()
        || shared.inbound.is_some()
        || !shared.gates.all_enforce()
}

/// Whether the request brings along, or inherits, what has a say in the call.
fn is_special(head: &Parts) -> bool {
    let extensions = &head.extensions;
    let brought = !extensions.is_empty()
        && (extensions.get::<Deadline>().is_some() || extensions.get::<RetriedAbove>().is_some());
    brought || Scope::is_inherited(head)
}
