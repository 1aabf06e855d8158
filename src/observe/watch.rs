//! The spans of a call and of its attempts.
//!
//! Numbers are signed: OpenTelemetry knows no others, and an unsigned one arrives as text.

use super::{AttemptFinished, CallOutcome};
use crate::{budget::Key, policy::Side};
use http::{Method, StatusCode, request::Parts};
use std::borrow::Cow;
use tracing::{Span, field::Empty, span::Entered};

/// Not set but to measure what being watched costs where nobody watches: `benches/instructions/observed`
/// builds the crate without it.
pub(crate) const WATCHED: bool = !cfg!(tower_retry_budget_unobserved);

/// What the spans are filtered by, apart from the events.
const TARGET: &str = "tower_retry_budget::call";

/// The span of one call. Whatever happens on its behalf is inside.
pub(crate) fn call_span(method: &Method, dependency: &Key, max_attempts: u32) -> Span {
    if !WATCHED {
        return Span::none();
    }
    tracing::info_span!(
        target: TARGET,
        "retry_budget",
        dependency = %dependency,
        http.request.method = known(method),
        max_attempts = i64::from(max_attempts),
        attempts = Empty,
        outcome = Empty,
        reason = Empty,
        otel.kind = "internal",
        otel.status_code = Empty,
    )
}

/// What is kept for those who watch a call: nothing at all when nobody does.
#[derive(Default)]
pub(crate) struct Watch(Option<Box<Watched>>);

struct Watched {
    call: Span,
    attempt: Span,
    operation: Option<Cow<'static, str>>,
}

impl Watch {
    pub(crate) fn new(call: &Span, operation: Option<Cow<'static, str>>) -> Self {
        Self(Some(Box::new(Watched {
            call: call.clone(),
            attempt: Span::none(),
            operation,
        })))
    }

    pub(crate) fn is_some(&self) -> bool {
        WATCHED && self.0.is_some()
    }

    pub(crate) fn operation(&self) -> Option<&str> {
        self.0.as_ref()?.operation.as_deref()
    }

    /// Enters the span of the attempt under way.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let watched = self.0.as_ref().filter(|_| WATCHED);
        watched.map(|watched| watched.attempt.enter())
    }

    /// The span of the attempt under way, where `enter` would hold on to the call.
    pub(crate) fn attempt(&self) -> Option<Span> {
        let watched = self.0.as_ref().filter(|_| WATCHED);
        watched.map(|watched| watched.attempt.clone())
    }

    /// Begins the span of an attempt.
    pub(crate) fn attempt_started(&mut self, attempt: u32, head: &Parts, side: Side) {
        if let Some(watched) = &mut self.0 {
            watched.attempt = attempt_span(&watched.call, attempt, head, side);
        }
    }

    pub(crate) fn attempt_finished(&mut self, finished: &AttemptFinished, side: Side) {
        let Some(watched) = &mut self.0 else {
            return;
        };
        let span = std::mem::replace(&mut watched.attempt, Span::none());
        let status = finished.status;
        if let Some(status) = status {
            span.record("http.response.status_code", i64::from(status.as_u16()));
        }
        // A server's span is none the worse for what its client did wrong.
        let is_error = |status: &StatusCode| match side {
            Side::Client => status.is_client_error() || status.is_server_error(),
            Side::Handlers => status.is_server_error(),
        };
        if let Some(status) = status.filter(is_error) {
            span.record("error.type", status.as_str());
            span.record("otel.status_code", "ERROR");
        } else if let Some(error) = finished.error_type {
            span.record("error.type", error);
            span.record("otel.status_code", "ERROR");
        }
    }

    #[inline]
    pub(crate) fn call_ended(&self, outcome: CallOutcome, attempts: u32, reason: Option<&str>) {
        if let Some(watched) = self.0.as_ref().filter(|_| WATCHED) {
            watched.call_ended(outcome, attempts, reason);
        }
    }
}

impl Watched {
    #[inline(never)]
    fn call_ended(&self, outcome: CallOutcome, attempts: u32, reason: Option<&str>) {
        self.call.record("outcome", outcome.as_str());
        self.call.record("attempts", i64::from(attempts));
        if let Some(reason) = reason {
            self.call.record("reason", reason);
        }
        if matches!(outcome, CallOutcome::Failed | CallOutcome::Exhausted) {
            self.call.record("otel.status_code", "ERROR");
        }
    }
}

fn attempt_span(call: &Span, attempt: u32, head: &Parts, side: Side) -> Span {
    let method = known(&head.method);
    let original = (method == OTHER).then(|| head.method.as_str());
    tracing::info_span!(
        target: TARGET,
        parent: call,
        "attempt",
        attempt = i64::from(attempt),
        http.request.method = method,
        http.request.method_original = original,
        http.request.resend_count = (attempt > 1).then(|| i64::from(attempt) - 1),
        server.address = head.uri.host(),
        server.port = head.uri.port_u16().map(i64::from),
        url.scheme = head.uri.scheme_str(),
        http.response.status_code = Empty,
        error.type = Empty,
        otel.name = if method == OTHER { "HTTP" } else { method },
        otel.kind = match side {
            Side::Client => "client",
            Side::Handlers => "internal",
        },
        otel.status_code = Empty,
    )
}

/// What the conventions have for methods that they do not know.
const OTHER: &str = "_OTHER";

/// The method, if it is among those that OpenTelemetry's conventions know: what strangers make up is
/// no name for a span.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "CONNECT" => "CONNECT",
        "DELETE" => "DELETE",
        "GET" => "GET",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        "POST" => "POST",
        "PUT" => "PUT",
        "QUERY" => "QUERY",
        "TRACE" => "TRACE",
        _ => OTHER,
    }
}
