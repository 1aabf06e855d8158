//! What travels: under which names, to which hosts, into which tasks and bodies, and how much is kept
//! back.

mod support;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use std::{convert::Infallible, time::Duration};
use support::{
    Body, MS, SECOND, ample, get,
    ledger::Ledger,
    script::{Reply, Script},
    send, steady, timed,
};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_retry_budget::{
    Deadline, DeadlineLayer, RetryBudgetLayer,
    body::DeadlineExceeded,
    deadline::{CoverBodyLayer, DeadlineHeader, RetryHeaders},
};

fn client() -> RetryBudgetLayer {
    let policy = steady().total_timeout(10 * SECOND).build();
    let policy = policy.expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

fn with(headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = get();
    for (name, value) in headers {
        let name: HeaderName = name.parse().expect("a name");
        let value = value.parse().expect("a value");
        request.headers_mut().append(name, value);
    }
    request
}

#[tokio::test(start_paused = true)]
async fn tells_only_the_hosts_that_are_to_know() {
    let forged = || {
        with(&[
            ("x-deadline-remaining-ms", "77"),
            ("x-retry-attempt", "7;max=9"),
            ("x-retry-exhausted", "reason=budget"),
            ("x-other", "kept"),
        ])
    };
    for (known, told) in [("search", true), ("elsewhere", false)] {
        let script = Script::new([500, 200]);
        let layer = client().propagate_to(move |uri| uri.host() == Some(known));
        send(&layer.layer(script.clone()), forged()).await.unwrap();
        let seen = script.seen();
        assert_eq!(seen.len(), 2, "retried all the same");
        for (seen, attempt) in seen.iter().zip(["1;max=3", "2;max=3"]) {
            let expected = told.then_some(attempt);
            assert_eq!(seen.header("x-retry-attempt"), expected);
            assert_eq!(seen.header("x-deadline-remaining-ms").is_some(), told);
            assert_eq!(seen.header("x-other"), Some("kept"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn uses_the_names_and_codecs_that_are_set_and_no_others() {
    let name = |name| HeaderName::from_static(name);
    let headers = RetryHeaders::default()
        .deadlines([
            DeadlineHeader::millis(name("x-left")),
            DeadlineHeader::grpc_timeout(),
            DeadlineHeader::envoy(),
        ])
        .attempt(name("x-try"))
        .exhausted(name("x-gave-up"));
    let leaf = Script::always(500);
    let own = client().headers(headers.clone());
    let own = own.layered_retries(tower_retry_budget::deadline::LayeredRetries::WithinDeadline);
    let own = own.layer(leaf.clone());
    let server = DeadlineLayer::new().headers(headers);
    let server = server.layer(service_fn(move |_: Request<Body>| {
        let own = own.clone();
        async move { send(&own, get()).await }
    }));
    let request = with(&[
        ("x-left", "5000"),
        ("grpc-timeout", "4S"),
        ("x-envoy-expected-rq-timeout-ms", "3000"),
        ("x-deadline-remaining-ms", "1"),
        ("x-try", "1;max=2"),
    ]);
    let response = send(&server, request).await.unwrap();
    assert!(response.headers().contains_key("x-gave-up"));
    assert!(!response.headers().contains_key("x-retry-exhausted"));
    let seen = &leaf.seen()[0];
    // The shortest of the three, less 50 ms.
    assert_eq!(seen.header("x-left"), Some("2950"));
    assert_eq!(seen.header("grpc-timeout"), Some("2950000u"));
    assert_eq!(seen.header("x-envoy-expected-rq-timeout-ms"), Some("2950"));
    assert_eq!(seen.header("x-try"), Some("1;max=3"));
    assert_eq!(seen.header("x-retry-attempt"), None);
    assert_eq!(seen.header("x-deadline-remaining-ms"), None);
}

#[tokio::test(start_paused = true)]
async fn a_limit_bounds_a_job_that_nobody_asked_for() {
    let script = Script::new([Reply::Hang]);
    let service = client().layer(script.clone());
    let job = async {
        send(&service, get())
            .await
            .map(|response| response.status())
    };
    let (status, took) = timed(Deadline::after(300 * MS).limit(job)).await;
    assert_eq!(status.unwrap(), 503);
    assert_eq!(took, 300 * MS);
    assert_eq!(Deadline::current(), None);
    let long = Deadline::after(60 * SECOND).limit(async { send(&service, get()).await });
    long.await.unwrap();
    let told = script.seen()[1]
        .header("x-deadline-remaining-ms")
        .map(String::from);
    assert_eq!(
        told.as_deref(),
        Some("10000"),
        "the policy's own is earlier"
    );
}

/// What a handler has of the time that it is told.
async fn left(layer: DeadlineLayer, told: u64) -> Option<Duration> {
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        let mut response = Response::new(Body::default());
        response.extensions_mut().insert(Deadline::current());
        Ok::<_, Infallible>(response)
    }));
    let request = with(&[("x-deadline-remaining-ms", &told.to_string())]);
    let response = send(&service, request).await.expect("a response");
    let deadline = response.extensions().get::<Option<Deadline>>()?;
    deadline.map(|deadline| deadline.remaining())
}

#[tokio::test(start_paused = true)]
async fn keeps_back_a_twentieth_between_two_bounds() {
    for (told, kept) in [
        (3, 2_000),
        (40, 2_000),
        (41, 2_050),
        (100, 5_000),
        (999, 49_950),
        (1_000, 50_000),
        (1_001, 50_000),
        (600_000, 50_000),
    ] {
        let expected = Duration::from_millis(told) - Duration::from_micros(kept);
        assert_eq!(left(DeadlineLayer::new(), told).await, Some(expected));
    }
    // Over before the handler could begin.
    assert_eq!(left(DeadlineLayer::new(), 2).await, None);
    let none = DeadlineLayer::new().reserve(Duration::ZERO, Duration::ZERO);
    assert_eq!(left(none, 2).await, Some(2 * MS));
    // Bounds that cross are one.
    let crossed = DeadlineLayer::new().reserve(30 * MS, 10 * MS);
    assert_eq!(left(crossed, 100).await, Some(90 * MS));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_over_keeps_no_permit() {
    let script = Script::always(200);
    let limited = ConcurrencyLimitLayer::new(1).layer(script.clone());
    let mut deadline = DeadlineLayer::new().layer(limited.clone());
    let mut handlers = RetryBudgetLayer::for_handlers().layer(limited.clone());
    for _ in 0..3 {
        let over = || with(&[("x-deadline-remaining-ms", "0")]);
        let response = support::call(&mut deadline, over()).await.unwrap();
        assert_eq!(response.status(), 503);
        let response = support::call(&mut handlers, over()).await.unwrap();
        assert_eq!(response.status(), 503);
        // The one permit is free, although both services live.
        let free = tokio::time::timeout(SECOND, send(&limited, get())).await;
        assert_eq!(free.expect("a permit").unwrap().status(), 200);
    }
    assert_eq!(script.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_cut_is_dropped_with_its_permit_before_the_answer_is_sent() {
    let script = Script::new([Reply::Hang]);
    let limited = ConcurrencyLimitLayer::new(1).layer(script.clone());
    let service = DeadlineLayer::new().layer(limited.clone());
    let future = service.oneshot(with(&[("x-deadline-remaining-ms", "100")]));
    let mut future = std::pin::pin!(future);
    let response = future.as_mut().await.unwrap();
    assert_eq!(response.status(), 503);
    // The future is still there.
    assert_eq!(script.in_flight(), 0);
    assert_eq!(send(&limited, get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn two_layers_in_one_stack_that_share_a_budget_count_a_call_once() {
    let ledger = Ledger::new([]);
    let layer = || client().shared_budget(ledger.clone());
    for (status, failed) in [(200, false), (500, true)] {
        let stack = layer().layer(layer().layer(Script::always(status)));
        send(&stack, get()).await.unwrap();
        assert_eq!(ledger.deposits().last(), Some(&failed));
    }
    assert_eq!(ledger.deposits(), [false, true]);
    assert_eq!(ledger.withdrawals().len(), 2);
    assert_eq!(ledger.settled().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn somebodys_retry_does_not_deposit_and_a_first_attempt_does() {
    for (attempt, deposits) in [("1;max=3", 1), ("2;max=3", 0), ("1", 1), ("2", 0), ("x", 1)] {
        let ledger = Ledger::new([]);
        let own = client()
            .shared_budget(ledger.clone())
            .layer(Script::always(200));
        let server = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
            let own = own.clone();
            async move { send(&own, get()).await }
        }));
        send(&server, with(&[("x-retry-attempt", attempt)]))
            .await
            .unwrap();
        assert_eq!(ledger.deposits().len(), deposits, "{attempt}");
    }
}

/// Sends so many frames, with so long a wait before each.
fn streams(frames: u32, wait: Duration) -> impl http_body::Body<Data = Bytes, Error = Infallible> {
    let stream = tokio_stream::iter(0..frames);
    let stream = tokio_stream::StreamExt::then(stream, move |_| async move {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(http_body::Frame::data(Bytes::from_static(b"x")))
    });
    Box::pin(StreamBody::new(stream))
}

#[tokio::test(start_paused = true)]
async fn a_body_is_cut_with_an_error_where_it_is_covered() {
    for covered in [true, false] {
        let stream = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(streams(10, 100 * MS)))
        });
        let request = || with(&[("x-deadline-remaining-ms", "500")]);
        let ((length, error), took) = timed(async {
            if covered {
                let service = DeadlineLayer::new().layer(CoverBodyLayer::new().layer(stream));
                let response = send(&service, request()).await.unwrap();
                let mut body = std::pin::pin!(response.into_body());
                let mut length = 0;
                loop {
                    match body.frame().await {
                        Some(Ok(_)) => length += 1,
                        Some(Err(error)) => break (length, Some(error)),
                        None => break (length, None),
                    }
                }
            } else {
                let service = DeadlineLayer::new().layer(stream);
                let response = send(&service, request()).await.unwrap();
                let body = response.into_body().collect().await.unwrap();
                (body.to_bytes().len(), None)
            }
        })
        .await;
        if covered {
            assert_eq!((length, took), (4, 475 * MS));
            assert!(error.expect("cut").is::<DeadlineExceeded>());
        } else {
            assert_eq!((length, took), (10, SECOND));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_covered_body_that_is_done_in_time_is_whole() {
    for told in [Some("5000"), None] {
        let service = CoverBodyLayer::new().layer(service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(streams(3, 10 * MS)))
        }));
        let service = DeadlineLayer::new().layer(service);
        let request = told.map_or_else(get, |told| with(&[("x-deadline-remaining-ms", told)]));
        let response = send(&service, request).await.unwrap();
        assert_eq!(support::text(response).await, "xxx");
    }
}

#[tokio::test(start_paused = true)]
async fn a_covered_body_that_never_waits_is_cut_too_but_not_its_last_frame() {
    let service = CoverBodyLayer::new().layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(streams(1_000, Duration::ZERO)))
    }));
    let service = DeadlineLayer::new().layer(service);
    let request = || with(&[("x-deadline-remaining-ms", "500")]);
    let response = send(&service, request()).await.unwrap();
    let mut body = std::pin::pin!(response.into_body());
    assert!(body.frame().await.unwrap().is_ok());
    // A slow reader: whenever it asks, there is more.
    tokio::time::advance(SECOND).await;
    let error = body.frame().await.unwrap().expect_err("cut");
    assert!(error.is::<DeadlineExceeded>());

    let service = CoverBodyLayer::new().layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("whole")))
    }));
    let service = DeadlineLayer::new().layer(service);
    let response = send(&service, request()).await.unwrap();
    tokio::time::advance(SECOND).await;
    assert_eq!(support::text(response).await, "whole");
}

#[tokio::test(start_paused = true)]
async fn what_a_covered_body_calls_inherits_as_the_handler_did() {
    let service = CoverBodyLayer::new().layer(service_fn(|_: Request<Body>| async {
        let stream = tokio_stream::StreamExt::map(tokio_stream::once(()), |()| {
            let left = Deadline::current().map(|deadline| deadline.remaining().as_millis());
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(format!("{left:?}"))))
        });
        Ok::<_, Infallible>(Response::new(Box::pin(StreamBody::new(stream))))
    }));
    let service = DeadlineLayer::new().layer(service);
    let request = with(&[("x-deadline-remaining-ms", "500")]);
    let response = send(&service, request).await.unwrap();
    assert_eq!(support::text(response).await, "Some(475)");
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn an_axum_handler_extracts_what_it_inherited() {
    use axum::{Router, routing::get};
    use tower_retry_budget::deadline::Inherited;

    async fn handler(inherited: Inherited) -> String {
        let left = inherited
            .deadline()
            .map(|deadline| deadline.remaining().as_millis());
        let attempt = inherited.attempt().map(|attempt| attempt.number());
        format!("{left:?} {attempt:?}")
    }
    let told = [
        ("x-deadline-remaining-ms", "500"),
        ("x-retry-attempt", "2;max=3"),
    ];
    let app = || Router::new().route("/find", get(handler));
    for (app, headers, expected) in [
        (
            app().layer(DeadlineLayer::new()),
            &told[..],
            "Some(475) Some(2)",
        ),
        (
            app().layer(RetryBudgetLayer::for_handlers()),
            &told,
            "Some(475) Some(2)",
        ),
        (app().layer(DeadlineLayer::new()), &[], "None None"),
        (app().layer(DeadlineLayer::new().edge()), &told, "None None"),
        (app(), &told, "None None"),
    ] {
        let request = with(headers).map(axum::body::Body::new);
        let response = app.oneshot(request).await.unwrap();
        assert_eq!(support::text(response).await, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_handler_never_has_more_time_than_its_caller_or_the_longest(
        told in any::<u64>(),
        near in 0_u64..2_000,
        longest in 0_u64..10_000,
        least in 0_u64..200,
        most in 0_u64..200,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        for told in [told, near] {
            let longest = Duration::from_millis(longest);
            let reserve = [least, most].map(Duration::from_millis);
            let layer = DeadlineLayer::new().longest(longest).reserve(reserve[0], reserve[1]);
            if let Some(left) = runtime.block_on(left(layer, told)) {
                prop_assert!(!left.is_zero());
                let whole = Duration::from_millis(told).min(longest);
                prop_assert!(left <= whole);
                prop_assert!(left + reserve[0].max(reserve[1]) >= whole);
            }
        }
    }
}
