//! tower's and tower-http's own layers, inside and outside.

use crate::{
    layer,
    support::{
        Body, BoxError, MS, SECOND, exhausted, get, info,
        ledger::Ledger,
        request,
        script::{Reply, Script},
        send, text, timed,
    },
};
use http::{Request, Response, StatusCode};
use std::time::Duration;
use tower::{
    Layer, ServiceBuilder,
    buffer::Buffer,
    timeout::{TimeoutLayer, error::Elapsed},
    util::{BoxCloneService, BoxCloneSyncService},
};
use tower_retry_budget::{
    RetryBudgetLayer,
    body::{ReplayBody, ResponseBody},
    reason::{Cause, RetryOutcome, SkipReason, StopReason},
};

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_limits_each_attempt() {
    let ledger = Ledger::new([]);
    let script = Script::new([Reply::Hang]);
    let service = ServiceBuilder::new()
        .layer(layer().shared_budget(ledger.clone()))
        .timeout(100 * MS)
        .service(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    assert_eq!(took, 110 * MS);
    assert_eq!(ledger.withdrawals(), [Cause::Timeout]);

    let script = Script::new([Reply::Hang, Reply::Hang, Reply::Hang]);
    let service = layer().layer(TimeoutLayer::new(100 * MS).layer(script));
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(took, 320 * MS);
    assert_eq!(exhausted(&response).error_type(), Some("elapsed"));
    let error = exhausted(&response).error().expect("kept");
    assert!(error.is::<Elapsed>());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_proves_nothing_so_a_post_is_not_repeated() {
    let script = Script::new([Reply::Hang]);
    let service = layer().layer(TimeoutLayer::new(100 * MS).layer(script.clone()));
    let error = send(&service, request("POST", "abc")).await;
    assert!(error.expect_err("timed out").is::<Elapsed>());
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_limits_the_whole_call() {
    let outside = |layer: RetryBudgetLayer, script: &Script| {
        ServiceBuilder::new()
            .timeout(500 * MS)
            .layer(layer)
            .service(script.clone())
    };
    // In an attempt.
    let script = Script::new([Reply::Hang]);
    let (error, took) = timed(send(&outside(layer(), &script), get())).await;
    assert!(error.expect_err("timed out").is::<Elapsed>());
    assert_eq!((script.count(), script.in_flight(), took), (1, 0, 500 * MS));

    // In a wait of a second: the retry is given back, and the caller never learns of the 503.
    let ledger = Ledger::new([]);
    let script = Script::new([503]);
    let service = outside(layer().shared_budget(ledger.clone()), &script);
    let error = send(&service, get()).await.expect_err("timed out");
    assert!(error.is::<Elapsed>());
    assert_eq!(ledger.settled(), [RetryOutcome::NotSent]);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(script.count(), 1);

    // In time.
    let script = Script::new([502]);
    let response = send(&outside(layer(), &script), get()).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_response_inside_is_retried_as_a_timeout() {
    use tower_http::timeout::TimeoutLayer;
    for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT] {
        let ledger = Ledger::new([]);
        let script = Script::new([Reply::Hang]);
        let service = ServiceBuilder::new()
            .layer(layer().shared_budget(ledger.clone()))
            .layer(TimeoutLayer::with_status_code(status, 100 * MS))
            .service(script.clone());
        let (response, took) = timed(send(&service, get())).await;
        assert_eq!(info(&response.expect("a response")).attempts, 2);
        assert_eq!(took, 110 * MS);
        assert_eq!(ledger.withdrawals(), [Cause::Timeout]);

        Script::then(&script, Reply::Hang);
        let response = send(&service, request("POST", "abc")).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), status);
        assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_response_outside_limits_the_whole_call() {
    let status = StatusCode::REQUEST_TIMEOUT;
    let script = Script::new([Reply::Status(502), Reply::Hang]);
    let service = ServiceBuilder::new()
        .layer(tower_http::timeout::TimeoutLayer::with_status_code(
            status,
            100 * MS,
        ))
        .layer(layer())
        .service(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!((response.status(), took), (status, 100 * MS));
    assert!(response.body().is_own());
    assert_eq!(text(response).await, "");
    assert_eq!((script.count(), script.in_flight()), (2, 0));

    let response = send(&service, get()).await.expect("a response");
    assert_eq!(text(response).await, "status 200");
}

#[tokio::test(start_paused = true)]
async fn a_boxed_service_goes_inside_and_outside() {
    type Inside = BoxCloneService<Request<ReplayBody<Body>>, Response<Body>, BoxError>;
    type Outside = BoxCloneService<Request<Body>, Response<ResponseBody<Body>>, BoxError>;
    type Shared = BoxCloneSyncService<Request<Body>, Response<ResponseBody<Body>>, BoxError>;
    let script = Script::new([502, 502, 502]);
    let inside: Inside = BoxCloneService::new(script.clone());
    let outside: Outside = BoxCloneService::new(layer().layer(inside));
    let response = send(&outside, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(script.count(), 3);

    let shared: Shared = BoxCloneSyncService::new(layer().layer(script.clone()));
    let response = send(&shared, request("POST", "abc")).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_eq!(script.count(), 4);
    assert_eq!(script.seen()[3].body.as_deref(), Some(&b"abc"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_buffer_outside_leaves_the_calls_apart() {
    let script = Script::new([503]);
    let service = Buffer::new(layer().layer(script.clone()), 1);
    let (first, second) = tokio::join!(timed(send(&service, get())), async {
        tokio::time::sleep(MS).await;
        timed(send(&service, get())).await
    });
    // The wait of the first call is no part of the worker.
    assert_eq!(info(&first.0.expect("a response")).attempts, 2);
    assert_eq!(first.1, SECOND);
    assert_eq!(second.0.expect("a response").status(), 200);
    assert_eq!(second.1, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_whole_stack_keeps_its_order() {
    let script = Script::new([Reply::Status(503), Reply::Hang]);
    let service = ServiceBuilder::new()
        .boxed_clone()
        .load_shed()
        .concurrency_limit(8)
        .timeout(10 * SECOND)
        .layer(layer())
        .buffer(4)
        .concurrency_limit(1)
        .timeout(100 * MS)
        .service(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    // A second for the 503, then 100 ms of an attempt without an answer, then 10 ms.
    assert_eq!(took, 1_110 * MS);
    assert_eq!(script.offsets(), [Duration::ZERO, SECOND, 1_110 * MS]);
}
