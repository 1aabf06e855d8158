//! What is told of a call while it runs.
//!
//! Called from the transitions of a call only, so that each thing is told once. `info` shows the
//! calls that were given up, `debug` every retry and every failure that was let stand, `trace` other
//! answers. No header value, body or query string is ever written, but the request's id where a policy
//! names it.

use crate::{
    Exhausted,
    budget::Key,
    client::KeptError,
    clock::millis,
    exhausted::{Ending, whole_seconds},
    reason::{Cause, SkipReason},
};
use http::Method;
use std::{error::Error, fmt, time::Duration};
use tracing::Span;

/// What the events are filtered by.
const TARGET: &str = "tower_retry_budget";

/// The span of one call. Everything that the inner service logs on its behalf is inside.
pub(crate) fn call_span(method: &Method, dependency: &Key, max_attempts: u32) -> Span {
    tracing::debug_span!(
        target: TARGET,
        "retry_budget",
        dependency = %dependency,
        http.request.method = %method,
        max_attempts,
    )
}

/// A retry that stands: it will be sent after the wait, unless the call ends before.
#[derive(Debug)]
pub(crate) struct Scheduled<'a> {
    pub(crate) dependency: &'a Key,
    /// The attempt that failed.
    pub(crate) attempt: u32,
    pub(crate) cause: Cause,
    pub(crate) status: Option<u16>,
    pub(crate) error_type: Option<&'static str>,
    pub(crate) wait: Duration,
    pub(crate) hint: Option<Duration>,
    pub(crate) remaining: Option<Duration>,
}

pub(crate) fn retry_scheduled(retry: &Scheduled<'_>) {
    tracing::debug!(
        target: TARGET,
        dependency = %retry.dependency,
        attempt = retry.attempt,
        cause = retry.cause.as_str(),
        status = retry.status,
        error.type = retry.error_type,
        wait_ms = millis(retry.wait),
        retry_after_ms = retry.hint.map(millis),
        remaining_ms = retry.remaining.map(millis),
        "retry scheduled"
    );
}

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

/// An outcome, other than a success, that is the call's own answer.
pub(crate) fn skipped(
    method: &Method,
    dependency: &Key,
    reason: SkipReason,
    attempts: u32,
    ending: Ending,
) {
    let status = ending.status.map(|status| status.as_u16());
    if reason == SkipReason::FinalAnswer && status.is_some() {
        tracing::trace!(
            target: TARGET,
            dependency = %dependency,
            http.request.method = %method,
            reason = reason.as_str(),
            attempts,
            status,
            "final answer"
        );
        return;
    }
    tracing::debug!(
        target: TARGET,
        dependency = %dependency,
        http.request.method = %method,
        reason = reason.as_str(),
        attempts,
        status,
        error.type = ending.error_type,
        "not retried"
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

/// The inner service could not be made ready for a retry.
pub(crate) fn not_ready(dependency: &Key, error: Option<&KeptError>) {
    let error = error.map(tracing::field::display);
    tracing::debug!(
        target: TARGET,dependency = %dependency, error, "not ready for a retry");
}

pub(crate) fn malformed_retry_after(dependency: &Key, attempt: u32) {
    tracing::debug!(
        target: TARGET,
        dependency = %dependency,
        attempt,
        "malformed Retry-After: own back-off applies"
    );
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
