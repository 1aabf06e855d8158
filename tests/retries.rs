//! How often a request is sent, and what the caller gets.

mod support;

use std::{io::ErrorKind, time::Duration};
use support::{
    MS, SECOND, ample, exhausted, get, info, json, request,
    script::{Reply, Script},
    send, steady, text, timed,
};
use tower::Layer;
use tower_retry_budget::{
    OnExhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    policy::Idempotent,
    reason::{Processed, SkipReason, StopReason},
};

fn layer() -> RetryBudgetLayer {
    let policy = steady().build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

#[tokio::test(start_paused = true)]
async fn saves_a_request_whose_first_attempt_failed() {
    let script = Script::new([502]);
    let service = layer().layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(info(&response).waited, 10 * MS);
    assert_eq!(took, 10 * MS);
    assert_eq!(script.offsets(), [Duration::ZERO, 10 * MS]);
}

#[tokio::test(start_paused = true)]
async fn leaves_a_success_untouched() {
    let script = Script::always(200);
    let service = layer().layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert!(response.extensions().get::<RetryInfo>().is_none());
    assert_eq!(text(response).await, "status 200");
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn sends_exactly_as_often_as_the_policy_says_the_first_time_included() {
    for max in 1..=4_u32 {
        let policy = steady().max_attempts(max).build().expect("a valid policy");
        let script = Script::always(500);
        let service = layer().policy(policy).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(script.count(), max as usize);
        if max == 1 {
            // Nothing was retried, so there is nothing to be exhausted.
            assert_eq!(response.status(), 500);
        } else {
            assert_eq!(response.status(), 503);
            assert_eq!(exhausted(&response).attempts(), max);
            assert_eq!(exhausted(&response).max_attempts(), max);
            assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn explains_itself_when_it_gives_up() {
    let script = Script::always(502);
    let service = layer().layer(script);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert!(response.headers().contains_key("retry-after"));
    let body = json(response).await;
    assert_eq!(body["reason"], "max_attempts");
    assert_eq!(body["dependency"], "http://search:8080");
    assert_eq!(body["attempts"], 3);
    assert_eq!(body["waited_ms"], 20);
    assert_eq!(body["last_status"], 502);
    assert_eq!(body["history"][2]["wait_ms"], 0);
    assert_eq!(body["history"][1]["wait_ms"], 10);
}

#[tokio::test(start_paused = true)]
async fn does_not_repeat_what_may_have_been_processed() {
    for method in ["POST", "PATCH"] {
        let script = Script::always(503);
        let service = layer().layer(script.clone());
        let response = send(&service, request(method, "abc")).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 503);
        assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
        assert_eq!(text(response).await, "status 503");
        assert_eq!(script.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn repeats_anything_that_was_provably_not_processed() {
    let script = Script::new([Reply::io(ErrorKind::ConnectionRefused)]);
    let service = layer().layer(script.clone());
    let response = send(&service, request("POST", "abc")).await;
    assert_eq!(response.expect("a response").status(), 200);
    let bodies: Vec<_> = script.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, [Some("abc".into()), Some("abc".into())]);
}

#[tokio::test(start_paused = true)]
async fn obeys_the_requests_own_word_on_idempotency() {
    let script = Script::new([500]);
    let service = layer().layer(script.clone());
    let mut post = request("POST", "abc");
    post.extensions_mut().insert(Idempotent(true));
    let response = send(&service, post).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(script.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn hands_on_the_last_outcome_when_asked_to() {
    let policy = steady().on_exhausted(OnExhausted::PassThrough);
    let policy = policy.build().expect("a valid policy");
    let service = layer().policy(policy.clone()).layer(Script::always(502));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 502);
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(text(response).await, "status 502");

    let reset = || Reply::io(ErrorKind::ConnectionReset);
    let service = layer().policy(policy);
    let service = service.layer(Script::new([reset(), reset(), reset()]));
    let error = send(&service, get()).await.expect_err("the last error");
    assert!(error.is::<std::io::Error>());
}

#[tokio::test(start_paused = true)]
async fn waits_as_long_as_the_server_asks_and_not_much_longer() {
    let script = Script::new([Reply::retry_after(429, "7")]);
    let service = layer().layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    let wait = script.offsets()[1];
    assert!(
        wait >= 7 * SECOND && wait <= 7 * SECOND + 1_401 * MS,
        "{wait:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn stops_at_once_when_the_server_asks_for_too_much() {
    let script = Script::new([Reply::retry_after(503, "86400")]);
    let service = layer().layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
    assert_eq!(response.headers()["retry-after"], "86400");
    assert_eq!(took, Duration::ZERO);
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cuts_a_call_at_its_deadline() {
    let policy = steady().total_timeout(SECOND).build();
    let service = layer().policy(policy.expect("a valid policy"));
    let script = Script::new([Reply::Hang]);
    let service = service.layer(script.clone());
    let (response, took) = timed(send(&service, request("POST", ""))).await;
    let response = response.expect("a response");
    assert_eq!(took, SECOND);
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::DeadlineReached);
    assert_eq!(details.processed(), Processed::Unknown);
    assert_eq!(details.retry_after(), None);
    assert_eq!(script.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn retries_an_attempt_that_was_cut() {
    let policy = steady().attempt_timeout(SECOND).build();
    let script = Script::new([Reply::Hang]);
    let service = layer().policy(policy.expect("a valid policy"));
    let service = service.layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_eq!(took, SECOND + 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn takes_its_policy_from_the_request_then_from_the_function() {
    let layer = layer().policy_fn(|head| {
        let once = head.uri.path() == "/once";
        once.then(RetryPolicy::never)
    });
    let script = Script::always(500);
    let service = layer.layer(script.clone());
    let mut once = get();
    *once.uri_mut() = http::Uri::from_static("http://search/once");
    send(&service, once.clone()).await.expect("a response");
    assert_eq!(script.count(), 1);
    let twice = steady().max_attempts(2).build().expect("a valid policy");
    once.extensions_mut().insert(twice);
    send(&service, once).await.expect("a response");
    assert_eq!(script.count(), 3);
    assert!(
        script.seen()[1]
            .head
            .extensions
            .get::<RetryPolicy>()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn tells_the_server_how_much_time_is_left_and_which_attempt_it_sees() {
    let policy = steady().total_timeout(10 * SECOND).build();
    let service = layer().policy(policy.expect("a valid policy"));
    let script = Script::new([Reply::after_ms(500, Reply::Status(500))]);
    let service = service.layer(script.clone());
    send(&service, get()).await.expect("a response");
    let seen = script.seen();
    assert_eq!(seen[0].header("x-deadline-remaining-ms"), Some("10000"));
    assert_eq!(seen[0].header("x-retry-attempt"), Some("1;max=3"));
    assert_eq!(seen[1].header("x-deadline-remaining-ms"), Some("9490"));
    assert_eq!(seen[1].header("x-retry-attempt"), Some("2;max=3"));
}

#[tokio::test(start_paused = true)]
async fn sends_a_retry_whose_wait_fills_all_the_time_there_is() {
    // The hint fits, and the spread on top of it is cut to what the deadline leaves. A timer fires
    // late, in whole milliseconds; begin between two of them.
    let policy = steady().total_timeout(1_020 * MS).build();
    let service = layer().policy(policy.expect("a valid policy"));
    tokio::time::advance(MS / 3).await;
    for _ in 0..20 {
        let service = service
            .clone()
            .layer(Script::new([Reply::retry_after(503, "1")]));
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
}
