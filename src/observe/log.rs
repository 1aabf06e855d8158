//! What is told to `tracing`.

use super::{Adapted, CallView, Observe, Phase, RetryScheduled, Shadow, Skipped};
use crate::{Exhausted, clock::millis, exhausted::whole_seconds, reason::SkipReason};
use http::{Method, StatusCode};
use std::{error::Error, fmt, time::Duration};

/// What the events are filtered by.
pub(super) const TARGET: &str = "tower_retry_budget";

/// The observer that every layer has. Without a subscriber an event costs the look at a level.
pub(crate) struct Tracing;

impl Observe for Tracing {
    fn adapted(&self, call: &CallView<'_>, adapted: &Adapted) {
        if adapted.limit < adapted.base {
            let health = &adapted.health;
            tracing::debug!(
                target: TARGET,
                dependency = %call.dependency,
                attempts = call.attempts,
                limit = adapted.limit,
                max_attempts = adapted.base,
                error_rate = health.error_rate(),
                p99_ms = health.p99.map(millis),
                usual_p99_ms = health.usual_p99.map(millis),
                circuit = adapted.circuit.as_str(),
                "attempts limited"
            );
        }
    }

    fn first_attempt_held(&self, call: &CallView<'_>, wait: Duration) {
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            wait_ms = millis(wait),
            "first attempt held back"
        );
    }

    fn malformed_hint(&self, call: &CallView<'_>) {
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            attempt = call.attempts,
            "malformed Retry-After: own back-off applies"
        );
    }

    fn retry_scheduled(&self, call: &CallView<'_>, retry: &RetryScheduled) {
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            attempt = call.attempts,
            cause = retry.cause.as_str(),
            status = retry.status.as_ref().map(StatusCode::as_u16),
            error.type = retry.error_type,
            wait_ms = millis(retry.wait),
            retry_after_ms = retry.hint.map(millis),
            remaining_ms = call.remaining().map(millis),
            "retry scheduled"
        );
    }

    fn shadow(&self, call: &CallView<'_>, shadow: &Shadow) {
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            gate = shadow.gate.as_str(),
            decision = shadow.decision.as_str(),
            attempts = call.attempts,
            "only observed"
        );
    }

    fn not_ready(&self, call: &CallView<'_>, error: Option<&(dyn Error + 'static)>) {
        let error = error.map(tracing::field::display);
        tracing::debug!(
            target: TARGET,dependency = %call.dependency, error, "not ready for a retry");
    }

    fn skipped(&self, call: &CallView<'_>, skipped: &Skipped) {
        let status = skipped.status.map(|status| status.as_u16());
        if skipped.reason == SkipReason::FinalAnswer && status.is_some() {
            tracing::trace!(
                target: TARGET,
                dependency = %call.dependency,
                http.request.method = %call.method,
                reason = skipped.reason.as_str(),
                attempts = call.attempts,
                status,
                "final answer"
            );
            return;
        }
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            http.request.method = %call.method,
            reason = skipped.reason.as_str(),
            attempts = call.attempts,
            status,
            error.type = skipped.error_type,
            "not retried"
        );
    }

    fn stopped(&self, call: &CallView<'_>, exhausted: &Exhausted) {
        stopped(call.method, exhausted);
    }

    fn cancelled(&self, call: &CallView<'_>, during: Phase) {
        tracing::debug!(
            target: TARGET,
            dependency = %call.dependency,
            http.request.method = %call.method,
            during = during.as_str(),
            attempts = call.attempts,
            elapsed_ms = millis(call.elapsed()),
            "cancelled"
        );
    }
}

/// A configuration comes into force.
#[cfg(feature = "serde")]
pub(crate) fn configured(hash: &str, configuration: &str) {
    tracing::info!(target: TARGET, hash, configuration, "configuration in force");
}

/// A call that was given up, also by a layer that knows of nothing but the deadline.
pub(crate) fn stopped(method: &Method, exhausted: &Exhausted) {
    tracing::info!(
        target: TARGET,
        dependency = %exhausted.dependency(),
        http.request.method = %method,
        reason = exhausted.reason().as_str(),
        attempts = exhausted.attempts(),
        max_attempts = exhausted.max_attempts(),
        elapsed_ms = millis(exhausted.elapsed()),
        waited_ms = millis(exhausted.waited()),
        last_status = exhausted.last_status().map(|status| status.as_u16()),
        error.type = exhausted.error_type(),
        error = exhausted.error().map(|error| tracing::field::display(Causes(&**error))),
        processed = exhausted.processed().as_str(),
        retry_after_ms = exhausted.retry_after().map(whole_seconds).map(|wait| wait.saturating_mul(1000)),
        instance = exhausted.instance(),
        "retries exhausted"
    );
}

pub(crate) fn malformed_deadline() {
    tracing::debug!(target: TARGET, "malformed deadline header: as if it were absent");
}

/// The state of a call could not be kept.
pub(crate) fn not_persisted(error: &(dyn Error + 'static)) {
    tracing::debug!(target: TARGET, error = %Causes(error), "state of the call not kept");
}

/// Credentials were refused, and could not be refreshed.
pub(crate) fn not_refreshed(error: &(dyn Error + 'static)) {
    tracing::debug!(target: TARGET, error = %Causes(error), "credentials not refreshed");
}

/// An error with all that caused it.
struct Causes<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = std::iter::successors(Some(self.0), |error| (*error).source());
        for (depth, error) in causes.take(8).enumerate() {
            let colon = if depth == 0 { "" } else { ": " };
            write!(f, "{colon}{error}")?;
        }
        Ok(())
    }
}
