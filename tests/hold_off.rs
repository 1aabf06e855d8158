//! A `Retry-After` that holds for every call to the same dependency, when asked to.

mod support;

use http::Request;
use std::time::Duration;
use support::{
    Body, MS, SECOND, ample, exhausted, get, info, request,
    script::{Reply, Script},
    send, steady, timed,
};
use tokio::task::JoinSet;
use tower::Layer;
use tower_retry_budget::{Deadline, HoldOff, RetryBudgetLayer, RetryPolicy, reason::StopReason};

fn layer(hold_off: HoldOff) -> RetryBudgetLayer {
    let policy = steady().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy).budget(ample());
    layer.hold_off(hold_off)
}

fn of(customer: &'static str) -> Request<Body> {
    let mut request = get();
    let value = http::HeaderValue::from_static(customer);
    request.headers_mut().insert("x-customer", value);
    request
}

fn by_customer() -> HoldOff {
    HoldOff::new().first_attempts().tenant_fn(|head| {
        let customer = head.headers.get("x-customer")?;
        customer.to_str().ok().map(String::from)
    })
}

#[tokio::test(start_paused = true)]
async fn holds_back_every_retry_until_the_wait_of_one_has_passed() {
    let failures = (0..19).map(|_| Reply::Status(500));
    let script = Script::new(std::iter::once(Reply::retry_after(429, "5")).chain(failures));
    let service = layer(HoldOff::new()).layer(script.clone());
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let service = service.clone();
        calls.spawn(async move { send(&service, get()).await.expect("a response").status() });
    }
    while let Some(status) = calls.join_next().await {
        assert_eq!(status.expect("no panic"), 200);
    }
    let retries = &script.offsets()[20..];
    assert_eq!(retries.len(), 20);
    let (first, last) = (retries[0], retries[19]);
    assert!(
        first >= 5 * SECOND && last <= 6 * SECOND + 10 * MS,
        "{first:?} {last:?}"
    );
    // Spread, and not all at once.
    assert!(last - first > 300 * MS, "{first:?} {last:?}");
}

#[tokio::test(start_paused = true)]
async fn holds_nobody_back_unless_it_is_asked_to() {
    let script = Script::new([Reply::retry_after(503, "5"), Reply::Status(500)]);
    let policy = steady().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy).budget(ample());
    let service = layer.layer(script.clone());
    let told = tokio::spawn({
        let service = service.clone();
        async move { send(&service, get()).await }
    });
    tokio::task::yield_now().await;
    let (response, took) = timed(send(&service, get())).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    assert_eq!(took, 10 * MS);
    told.abort();
}

#[tokio::test(start_paused = true)]
async fn lets_first_attempts_through_unless_they_are_held_back_too() {
    for (hold_off, held) in [
        (HoldOff::new(), false),
        (HoldOff::new().first_attempts(), true),
    ] {
        let script = Script::new([Reply::retry_after(503, "5")]);
        let service = layer(hold_off).layer(script.clone());
        let post = send(&service, request("POST", "abc")).await;
        assert_eq!(post.expect("a response").status(), 503);
        let (response, took) = timed(send(&service, request("POST", "abc"))).await;
        assert_eq!(response.expect("a response").status(), 200);
        let seen = script.seen();
        assert_eq!(seen[1].body.as_deref(), Some(&b"abc"[..]));
        assert_eq!(took >= 5 * SECOND, held, "{took:?}");
        assert!(took <= 6 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn holds_back_calls_that_are_never_retried_as_well() {
    let script = Script::new([Reply::retry_after(503, "2")]);
    let service = layer(HoldOff::new().first_attempts());
    let service = service.policy(RetryPolicy::never()).layer(script.clone());
    send(&service, get()).await.expect("a response");
    let (response, took) = timed(send(&service, request("PUT", "abc"))).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert!(took >= 2 * SECOND);
    assert_eq!(script.seen()[1].body.as_deref(), Some(&b"abc"[..]));
    assert_eq!(script.instances(), 2);
}

#[tokio::test(start_paused = true)]
async fn stops_at_once_a_call_that_has_no_time_to_wait() {
    let script = Script::new([Reply::retry_after(503, "5")]);
    let service = layer(HoldOff::new().first_attempts()).layer(script.clone());
    send(&service, request("POST", ""))
        .await
        .expect("a response");
    let mut hurried = get();
    hurried.extensions_mut().insert(Deadline::after(SECOND));
    let (response, took) = timed(send(&service, hurried)).await;
    let response = response.expect("a response");
    assert_eq!(took, Duration::ZERO);
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
    assert_eq!(exhausted(&response).attempts(), 0);
    assert_eq!(response.headers()["retry-after"], "5");
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_429_holds_back_its_tenant_and_a_503_the_whole_dependency() {
    for (status, held) in [(429, false), (503, true)] {
        let script = Script::new([Reply::retry_after(status, "5")]);
        let service = layer(by_customer()).layer(script.clone());
        let mut told = of("a");
        told.extensions_mut().insert(RetryPolicy::never());
        send(&service, told).await.expect("a response");
        let (_, same) = timed(send(&service, of("a"))).await;
        assert!(same >= 5 * SECOND);
        let script = Script::new([Reply::retry_after(status, "5")]);
        let service = layer(by_customer()).layer(script.clone());
        let mut told = of("a");
        told.extensions_mut().insert(RetryPolicy::never());
        send(&service, told).await.expect("a response");
        let (_, other) = timed(send(&service, of("b"))).await;
        assert_eq!(other >= 5 * SECOND, held, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_call_that_is_dropped_sends_nothing() {
    let script = Script::new([Reply::retry_after(503, "5")]);
    let service = layer(HoldOff::new().first_attempts()).max_waiting(1);
    let service = service.layer(script.clone());
    send(&service, request("POST", ""))
        .await
        .expect("a response");
    let held = tokio::time::timeout(SECOND, send(&service, get())).await;
    assert!(held.is_err());
    // Its place is free again.
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(script.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn holds_a_call_back_no_longer_than_it_would_wait_itself_however_often_others_are_told() {
    let told = (0..30).map(|_| Reply::retry_after(503, "6"));
    let script = Script::new(std::iter::once(Reply::Status(500)).chain(told));
    let policy = steady().total_timeout(None).build();
    let layer = layer(HoldOff::new()).policy(policy.expect("a valid policy"));
    let service = layer.layer(script.clone());
    let held = tokio::spawn({
        let service = service.clone();
        async move { timed(send(&service, get())).await }
    });
    tokio::task::yield_now().await;
    for _ in 0..20 {
        let mut once = request("POST", "");
        once.extensions_mut().insert(RetryPolicy::never());
        send(&service, once).await.expect("a response");
        tokio::time::advance(5 * SECOND).await;
    }
    let (response, took) = held.await.expect("no panic");
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
    assert_eq!(exhausted(&response).attempts(), 1);
    assert!(took <= 61 * SECOND, "{took:?}");
}
