//! What each preset sends, over real connections.

mod support;

use support::{
    Body,
    client::{bounded, http1, request},
    exhausted, info, send,
    wire::{Refusing, Wire, answer, status},
};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    policy::{Backoff, Preset, StatusTable},
    reason::{SkipReason, StopReason},
};

/// The preset, without its waits and with a budget that is not used up.
fn quick(preset: Preset) -> RetryBudgetLayer {
    let policy = preset
        .builder()
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none());
    layer(policy.build().expect("a valid policy"))
}

fn layer(policy: RetryPolicy) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(policy)
        .budget(support::ample())
}

/// Sends a request to a server that always answers so, and returns the answer and how often it was sent.
async fn sent(
    preset: Preset,
    method: &str,
    key: bool,
    answer: String,
) -> (http::Response<impl http_body::Body>, usize) {
    let wire = Wire::answers(vec![answer; 20]).await;
    let mut request = request(method, &wire.uri(), Body::from("abc"));
    if key {
        let value = http::HeaderValue::from_static("k1");
        request.headers_mut().insert("idempotency-key", value);
    }
    let response = bounded(send(&quick(preset).layer(http1()), request)).await;
    (response.expect("a response"), wire.count())
}

#[tokio::test]
async fn an_internal_call_is_tried_seven_times() {
    for code in [500, 503, 504] {
        let (response, count) = sent(Preset::InternalCall, "GET", false, status(code)).await;
        assert_eq!(count, 7, "{code}");
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    }
    let (_, count) = sent(Preset::InternalCall, "POST", false, status(503)).await;
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_metered_api_is_tried_four_times_and_asked_to_lead() {
    for code in [500, 429, 520, 529] {
        let (_, count) = sent(Preset::MeteredApi, "GET", false, status(code)).await;
        assert_eq!(count, 4, "{code}");
    }
    let long = answer(429, "retry-after: 91\r\n", "");
    let (response, count) = sent(Preset::MeteredApi, "GET", false, long).await;
    assert_eq!(count, 1);
    let reason = exhausted(&response).reason();
    assert_eq!(reason, StopReason::RetryAfterTooLong);
    let wire = Wire::answers([answer(429, "retry-after: 1\r\n", "")]).await;
    let get = request("GET", &wire.uri(), Body::default());
    let service = quick(Preset::MeteredApi).layer(http1());
    let response = bounded(send(&service, get)).await.expect("a response");
    assert!(info(&response).waited >= support::SECOND);
}

#[tokio::test]
async fn paid_work_is_repeated_once_and_only_when_it_was_refused() {
    for code in [429, 503, 529] {
        let (_, count) = sent(Preset::PaidWork, "POST", true, status(code)).await;
        assert_eq!(count, 2, "{code}");
    }
    for code in [500, 504, 408] {
        let (response, count) = sent(Preset::PaidWork, "POST", true, status(code)).await;
        assert_eq!((count, response.status().as_u16()), (1, code));
    }
    let (_, count) = sent(Preset::PaidWork, "POST", false, status(503)).await;
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_side_effect_is_repeated_only_with_an_idempotency_key() {
    for method in ["POST", "PUT", "DELETE"] {
        let (_, count) = sent(Preset::SideEffect, method, false, status(503)).await;
        assert_eq!(count, 1, "{method}");
        let (_, count) = sent(Preset::SideEffect, method, true, status(503)).await;
        assert_eq!(count, 3, "{method}");
    }
    // Not even on proof that nothing was processed.
    let refusing = Refusing::new();
    let post = request("POST", &refusing.uri(), Body::default());
    let service = quick(Preset::SideEffect).layer(http1());
    assert!(bounded(send(&service, post)).await.is_err());
}

#[tokio::test]
async fn a_batch_step_is_repeated_once() {
    let (_, count) = sent(Preset::BatchStep, "PUT", false, status(500)).await;
    assert_eq!(count, 2);
}

#[tokio::test]
async fn connection_errors_only_takes_any_response_for_the_answer() {
    for code in [429, 500, 503] {
        let (response, count) = sent(Preset::ConnectionErrors, "GET", false, status(code)).await;
        assert_eq!((count, response.status().as_u16()), (1, code));
    }
    let wire = Wire::serve(|mut conn| async move {
        conn.request().await?;
        if conn.number < 3 {
            return conn.reset();
        }
        conn.send(status(200)).await
    })
    .await;
    let get = request("GET", &wire.uri(), Body::default());
    let service = quick(Preset::ConnectionErrors).layer(http1());
    let response = bounded(send(&service, get)).await.expect("a response");
    assert_eq!((info(&response).attempts, wire.count()), (3, 3));
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_named_so_and_not_asked_again() {
    let webhooks = RetryPolicy::builder().statuses(StatusTable::webhooks());
    let service = layer(webhooks.build().expect("a valid policy")).layer(http1());
    for (code, skipped) in [(410, SkipReason::Gone), (404, SkipReason::FinalAnswer)] {
        let wire = Wire::answers([status(code)]).await;
        let post = request("POST", &wire.uri(), Body::default());
        let response = bounded(send(&service, post)).await.expect("a response");
        assert_eq!(response.status().as_u16(), code);
        assert_eq!(info(&response).skipped, Some(skipped));
        assert_eq!(wire.count(), 1);
    }
    assert_eq!(SkipReason::Gone.as_str(), "gone");
}
