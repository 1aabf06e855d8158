//! What OpenTelemetry is handed of a call: one span, and a span for each attempt inside of it.
//!
//! One subscriber for the whole process, as in `support::log`; the tests tell their traces apart.

mod support;

use http::{Request, Response};
use opentelemetry::{
    SpanId, TraceId, Value,
    trace::{SpanKind, Status, TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};
use support::{
    Body, MS, SECOND, ample, get, request,
    script::{Reply, Script},
    send, steady,
};
use tower::{Layer, ServiceBuilder};
use tower_retry_budget::{RetryBudgetLayer, body::ReplayBody, policy::RetryPolicyBuilder};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Registry, layer::SubscriberExt};

fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = Registry::default().with(layer);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets one");
        exporter
    })
}

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// The ids that a layer inside would propagate, one for each attempt.
type Propagated = Arc<Mutex<Vec<SpanId>>>;

struct Traced {
    call: SpanData,
    attempts: Vec<SpanData>,
    propagated: Vec<SpanId>,
}

/// Makes a call inside a trace of its own, or drops it after a while.
async fn traced(layer: RetryBudgetLayer, script: Script, request: Request<Body>) -> Traced {
    let exporter = exporter();
    let root = tracing::info_span!("test");
    let trace = root.context().span().span_context().trace_id();
    let propagated = Propagated::default();
    let service = ServiceBuilder::new()
        .layer(layer)
        .map_request({
            let propagated = Arc::clone(&propagated);
            move |request: Request<ReplayBody<Body>>| {
                let current = tracing::Span::current().context();
                let id = current.span().span_context().span_id();
                propagated.lock().expect("no panic").push(id);
                request
            }
        })
        .service(script);
    let call = send(&service, request);
    _ = tokio::time::timeout(SECOND, call.instrument(root)).await;
    let (call, attempts) = of(trace, exporter);
    let propagated = propagated.lock().expect("no panic").clone();
    Traced {
        call,
        attempts,
        propagated,
    }
}

fn of(trace: TraceId, exporter: &InMemorySpanExporter) -> (SpanData, Vec<SpanData>) {
    let mut spans = exporter.get_finished_spans().expect("not shut down");
    spans.retain(|span| span.span_context.trace_id() == trace);
    let (mut calls, mut attempts): (Vec<_>, Vec<_>) = spans
        .into_iter()
        .filter(|span| span.name != "test")
        .partition(|span| span.name == "retry_budget");
    attempts.sort_by_key(|span| span.start_time);
    assert_eq!(calls.len(), 1);
    (calls.remove(0), attempts)
}

fn attributes(span: &SpanData) -> BTreeMap<String, Value> {
    let attributes = span.attributes.iter();
    attributes
        .map(|pair| (pair.key.to_string(), pair.value.clone()))
        .collect()
}

#[tokio::test]
async fn hands_over_siblings_of_which_each_has_a_context_of_its_own() {
    let script = Script::new([503, 200]);
    let policy = steady().throttled_backoff(tower_retry_budget::policy::Backoff::fixed(MS));
    let traced = traced(layer(policy), script, get()).await;
    let (call, attempts) = (&traced.call, &traced.attempts);
    assert_eq!(attempts.len(), 2);
    let ids: Vec<_> = attempts
        .iter()
        .map(|span| span.span_context.span_id())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids, traced.propagated);
    for attempt in attempts {
        assert_eq!(attempt.parent_span_id, call.span_context.span_id());
        assert_eq!(attempt.span_kind, SpanKind::Client);
        assert_eq!(attempt.name, "GET");
        let attributes = attributes(attempt);
        assert_eq!(attributes["http.request.method"], "GET".into());
        assert_eq!(attributes["server.address"], "search".into());
        assert_eq!(attributes["server.port"], 8080.into());
        assert_eq!(attributes["url.scheme"], "http".into());
        assert!(
            !format!("{attributes:?}").contains("find"),
            "{attributes:?}"
        );
    }
    let (first, second) = (attributes(&attempts[0]), attributes(&attempts[1]));
    assert_eq!(first["http.response.status_code"], 503.into());
    assert_eq!(first["error.type"], "503".into());
    assert!(!first.contains_key("http.request.resend_count"));
    assert!(matches!(attempts[0].status, Status::Error { .. }));
    assert_eq!(second["http.response.status_code"], 200.into());
    assert_eq!(second["http.request.resend_count"], 1.into());
    assert!(!second.contains_key("error.type"));
    assert_eq!(attempts[1].status, Status::Unset);

    let attributes = attributes(call);
    assert_eq!(call.span_kind, SpanKind::Internal);
    assert_eq!(attributes["dependency"], "http://search:8080".into());
    assert_eq!(attributes["outcome"], "success".into());
    assert_eq!(attributes["attempts"], 2.into());
    assert_eq!(attributes["max_attempts"], 3.into());
    assert_eq!(call.status, Status::Unset);
}

#[tokio::test]
async fn hands_over_why_a_call_was_given_up() {
    let reset = Reply::io(std::io::ErrorKind::ConnectionReset);
    let policy = steady().max_attempts(2);
    let traced = traced(layer(policy), Script::new([reset, 500.into()]), get()).await;
    let call = attributes(&traced.call);
    assert_eq!(call["outcome"], "exhausted".into());
    assert_eq!(call["reason"], "max_attempts".into());
    assert!(matches!(traced.call.status, Status::Error { .. }));
    let first = attributes(&traced.attempts[0]);
    assert!(first.contains_key("error.type"));
    assert!(!first.contains_key("http.response.status_code"));
    // The decision record is in the span of the call.
    let records = traced.call.events.iter();
    let records = records.filter(|event| event.name == "retries exhausted");
    assert_eq!(records.count(), 1);
}

#[tokio::test]
async fn ends_the_spans_of_a_call_that_is_dropped() {
    let traced = traced(layer(steady()), Script::new([Reply::Hang]), get()).await;
    assert_eq!(attributes(&traced.call)["outcome"], "cancelled".into());
    assert_eq!(traced.attempts.len(), 1);
    let attempt = attributes(&traced.attempts[0]);
    assert_eq!(attempt["error.type"], "cancelled".into());
}

#[tokio::test]
async fn names_no_span_after_what_a_stranger_makes_up() {
    let script = Script::always(404);
    let traced = traced(layer(steady()), script, request("BREW", "")).await;
    let attempt = attributes(&traced.attempts[0]);
    assert_eq!(traced.attempts[0].name, "HTTP");
    assert_eq!(attempt["http.request.method"], "_OTHER".into());
    assert_eq!(attempt["http.request.method_original"], "BREW".into());
    let call = attributes(&traced.call);
    assert_eq!(call["http.request.method"], "_OTHER".into());
    assert_eq!(call["reason"], "final_answer".into());
}

#[tokio::test]
async fn runs_the_inner_service_inside_its_attempt_to_the_end() {
    let exporter = exporter();
    let root = tracing::info_span!("test");
    let trace = root.context().span().span_context().trace_id();
    let inner = tower::service_fn(|_: Request<ReplayBody<Body>>| async {
        tokio::time::sleep(MS).await;
        // In a later poll, and when it is dropped.
        tracing::info!("inside");
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let service = layer(steady()).layer(inner);
    let call = send(&service, get());
    call.instrument(root).await.expect("a response");
    let (_, attempts) = of(trace, exporter);
    let events = attempts[0].events.iter();
    assert_eq!(events.filter(|event| event.name == "inside").count(), 1);
}
