//! What is told of a call while it runs.
//!
//! Called from the transitions of a call only, so that each thing is told once. `info` shows the
//! calls that were given up, `debug` every retry and every failure that was let stand. No header
//! value, body or query string is ever written.

use crate::{
    Exhausted,
    budget::Key,
    client::KeptError,
    clock::millis,
    reason::{Cause, SkipReason},
};
use http::Method;
use std::time::Duration;
use tracing::Span;

/// The span of one call. Everything that the inner service logs on its behalf is inside.
pub(crate) fn call_span(method: &Method, dependency: &Key, max_attempts: u32) -> Span {
    tracing::debug_span!(
        "retry_budget",
        http.request.method = %method,
        dependency = %dependency,
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
        http.request.method = %method,
        dependency = %exhausted.dependency(),
        reason = exhausted.reason().as_str(),
        attempts = exhausted.attempts(),
        max_attempts = exhausted.max_attempts(),
        elapsed_ms = millis(exhausted.elapsed()),
        waited_ms = millis(exhausted.waited()),
        last_status = exhausted.last_status().map(|status| status.as_u16()),
        error.type = exhausted.error_type(),
        error = exhausted.error().map(tracing::field::display),
        processed = exhausted.processed().as_str(),
        retry_after_ms = exhausted.retry_after().map(millis),
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
    status: Option<u16>,
) {
    tracing::debug!(
        http.request.method = %method,
        dependency = %dependency,
        reason = reason.as_str(),
        attempts,
        status,
        "not retried"
    );
}

pub(crate) fn malformed_deadline() {
    tracing::debug!("malformed deadline header: as if it were absent");
}

/// The inner service could not be made ready for a retry.
pub(crate) fn not_ready(dependency: &Key, error: Option<&KeptError>) {
    let error = error.map(tracing::field::display);
    tracing::debug!(dependency = %dependency, error, "not ready for a retry");
}

pub(crate) fn malformed_retry_after(dependency: &Key, attempt: u32) {
    tracing::debug!(
        dependency = %dependency,
        attempt,
        "malformed Retry-After: own back-off applies"
    );
}
