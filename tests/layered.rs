//! Layers that know of each other: what is inherited, what is told, and who retries.

mod support;

use http::{Request, Response};
use http_body_util::Full;
use std::{convert::Infallible, time::Duration};
use support::{
    Body, MS, SECOND, ample, exhausted, get, info,
    script::{Reply, Script},
    send, steady, timed,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_retry_budget::{
    Deadline, DeadlineLayer, RetryBudgetLayer,
    deadline::{Inherited, LayeredRetries, RETRY_ATTEMPT, RETRY_EXHAUSTED},
    reason::{SkipReason, StopReason},
};

fn client() -> RetryBudgetLayer {
    let policy = steady().build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// A handler that makes one call through `client` and hands on its status.
fn handler(
    client: tower_retry_budget::RetryBudget<Script>,
) -> impl Service<
    Request<Body>,
    Response = Response<Body>,
    Error = Infallible,
    Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
> + Clone {
    service_fn(move |_| {
        let client = client.clone();
        async move {
            let response = send(&client, get()).await.expect("a response");
            let status = if response.status().is_success() {
                200
            } else {
                502
            };
            let response = Response::builder().status(status);
            Ok(response.body(Full::default()).expect("a valid response"))
        }
    })
}

fn inbound(headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = get();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        request
            .headers_mut()
            .append(name, value.parse().expect("a value"));
    }
    request
}

#[tokio::test(start_paused = true)]
async fn skips_its_retries_under_a_caller_that_retries() {
    let leaf = Script::always(500);
    let server = DeadlineLayer::new().layer(handler(client().layer(leaf.clone())));
    let request = inbound(&[("x-retry-attempt", "1;max=3")]);
    let response = send(&server, request).await.expect("a response");
    assert_eq!(response.status(), 502);
    assert_eq!(leaf.count(), 1);
    assert_eq!(leaf.seen()[0].header("x-retry-attempt"), Some("1;max=3"));
    assert!(!response.headers().contains_key(RETRY_EXHAUSTED));
}

#[tokio::test(start_paused = true)]
async fn retries_under_a_caller_that_does_not_and_tells_nobody() {
    let leaf = Script::always(500);
    let server = DeadlineLayer::new().layer(handler(client().layer(leaf.clone())));
    let response = send(&server, get()).await.expect("a response");
    assert_eq!(leaf.count(), 3);
    assert!(!response.headers().contains_key(RETRY_EXHAUSTED));
}

#[tokio::test(start_paused = true)]
async fn tells_a_caller_that_asked_that_a_call_was_given_up() {
    let leaf = Script::always(500);
    let client = client().layered_retries(LayeredRetries::WithinDeadline);
    let server = DeadlineLayer::new().layer(handler(client.layer(leaf.clone())));
    let request = inbound(&[("x-retry-attempt", "1;max=3")]);
    let response = send(&server, request).await.expect("a response");
    assert_eq!(leaf.count(), 3);
    let marker = &response.headers()[RETRY_EXHAUSTED];
    assert_eq!(marker, "reason=max_attempts, attempts=3, elapsed-ms=20");
}

#[tokio::test(start_paused = true)]
async fn does_not_ask_again_where_the_layer_below_gave_up() {
    for (reason, sent) in [
        ("max_attempts", 1),
        ("budget", 1),
        ("overloaded", 3),
        ("new", 3),
    ] {
        let reply = || {
            let response = Response::builder().status(502);
            let response = response.header(RETRY_EXHAUSTED, format!("reason={reason}"));
            Reply::Response(response.body(Body::default()).expect("a valid response"))
        };
        let leaf = Script::new([reply(), reply(), reply()]);
        let response = send(&client().layer(leaf.clone()), get()).await;
        let response = response.expect("a response");
        assert_eq!(leaf.count(), sent, "{reason}");
        if sent == 1 {
            assert_eq!(response.status(), 502);
            assert_eq!(info(&response).skipped, Some(SkipReason::FinalAnswer));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_of_two_layers_in_one_stack_leaves_the_retries_to_the_outer() {
    let leaf = Script::always(500);
    let stack = client().layer(client().layer(leaf.clone()));
    let response = send(&stack, get()).await.expect("a response");
    assert_eq!(response.status(), 503);
    assert_eq!(leaf.count(), 3);
    let attempts: Vec<_> = leaf
        .seen()
        .iter()
        .map(|seen| seen.header("x-retry-attempt").map(String::from))
        .collect();
    let told = ["1;max=3", "2;max=3", "3;max=3"].map(|told| Some(told.to_owned()));
    assert_eq!(attempts, told);
}

#[tokio::test(start_paused = true)]
async fn an_inherited_deadline_shortens_the_call_and_is_passed_on() {
    let leaf = Script::new([Reply::Hang]);
    let server = DeadlineLayer::new().layer(handler(client().layer(leaf.clone())));
    let request = inbound(&[("x-deadline-remaining-ms", "300")]);
    let (response, took) = timed(send(&server, request)).await;
    assert_eq!(response.expect("a response").status(), 502);
    // 5 % of it are kept back for the way of the answer.
    assert_eq!(took, 285 * MS);
    assert_eq!(
        leaf.seen()[0].header("x-deadline-remaining-ms"),
        Some("285")
    );
    assert_eq!(leaf.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn cuts_a_handler_off_at_the_deadline() {
    let script = Script::new([Reply::Hang, Reply::Hang]);
    for layered in [0, 1] {
        let request = inbound(&[
            ("x-deadline-remaining-ms", "2000"),
            ("x-retry-attempt", "1;max=2"),
        ]);
        let (details, marker, took) = if layered == 0 {
            let server = DeadlineLayer::new().layer(script.clone());
            let (response, took) = timed(send(&server, request)).await;
            let response = response.expect("a response");
            let marker = response.headers().get(RETRY_EXHAUSTED).cloned();
            (exhausted(&response).clone(), marker, took)
        } else {
            let server = RetryBudgetLayer::for_handlers().layer(script.clone());
            let (response, took) = timed(send(&server, request)).await;
            let response = response.expect("a response");
            let marker = response.headers().get(RETRY_EXHAUSTED).cloned();
            (exhausted(&response).clone(), marker, took)
        };
        assert_eq!(took, 1950 * MS);
        assert_eq!(details.reason(), StopReason::DeadlineReached);
        let marker = marker.expect("the caller asked");
        assert_eq!(
            marker,
            "reason=deadline_reached, attempts=1, elapsed-ms=1950"
        );
        assert_eq!(script.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_what_is_over_before_any_work() {
    for left in ["0", "1", "2"] {
        let script = Script::always(200);
        let request = || inbound(&[("x-deadline-remaining-ms", left)]);
        let server = DeadlineLayer::new().layer(script.clone());
        let response = send(&server, request()).await.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
        assert_eq!(exhausted(&response).attempts(), 0);
        let server = RetryBudgetLayer::for_handlers().layer(script.clone());
        let response = send(&server, request()).await.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
        assert_eq!(script.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn believes_nobody_at_the_edge() {
    let leaf = Script::always(500);
    let server = DeadlineLayer::new()
        .edge()
        .layer(handler(client().layer(leaf.clone())));
    let forged = [
        ("x-deadline-remaining-ms", "1"),
        ("x-retry-attempt", "9;max=9"),
    ];
    let response = send(&server, inbound(&forged)).await.expect("a response");
    assert_eq!(response.status(), 502);
    assert_eq!(leaf.count(), 3);
    assert!(!response.headers().contains_key(RETRY_EXHAUSTED));
}

#[tokio::test(start_paused = true)]
async fn hands_on_what_it_inherited_where_a_task_does_not() {
    let server = DeadlineLayer::new().layer(service_fn(|request: Request<Body>| async move {
        let inherited: Inherited = *request.extensions().get().expect("inherited");
        assert_eq!(inherited.attempt().map(|attempt| attempt.number()), Some(2));
        let here = Deadline::current().expect("a deadline");
        assert_eq!(inherited.deadline(), Some(here));
        let bare = tokio::spawn(async { Deadline::current() }).await;
        assert_eq!(bare.expect("no panic"), None);
        let scoped = tokio::spawn(Deadline::scope(async { Deadline::current() })).await;
        assert_eq!(scoped.expect("no panic"), Some(here));
        let (one, two) = tokio::join!(async { Deadline::current() }, async { Deadline::current() });
        assert_eq!((one, two), (Some(here), Some(here)));
        let shorter = Deadline::after(SECOND)
            .limit(async { Deadline::current() })
            .await;
        assert!(shorter.expect("a deadline").remaining() <= SECOND);
        let longer = Deadline::after(Duration::MAX)
            .limit(async { Deadline::current() })
            .await;
        assert_eq!(longer, Some(here));
        Ok::<_, Infallible>(Response::new(Body::default()))
    }));
    let headers = [
        ("x-deadline-remaining-ms", "5000"),
        ("x-retry-attempt", "2;max=3"),
    ];
    let response = send(&server, inbound(&headers)).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(RETRY_ATTEMPT, "x-retry-attempt");
}

#[tokio::test(start_paused = true)]
async fn remembers_in_front_of_a_worker_what_is_inherited() {
    let leaf = Script::always(500);
    let buffered = tower::buffer::Buffer::new(client().layer(leaf.clone()), 8);
    let captured = Deadline::capture_layer().layer(buffered.clone());
    for (captures, sent) in [(true, 1), (false, 3)] {
        let before = leaf.count();
        let (captured, buffered) = (captured.clone(), buffered.clone());
        let server = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
            let (captured, buffered) = (captured.clone(), buffered.clone());
            async move {
                let status = if captures {
                    captured.oneshot(get()).await.expect("a response").status()
                } else {
                    buffered.oneshot(get()).await.expect("a response").status()
                };
                assert!(status.is_server_error());
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        }));
        let request = inbound(&[("x-retry-attempt", "1;max=3")]);
        send(&server, request).await.expect("a response");
        assert_eq!(leaf.count() - before, sent);
    }
}

#[tokio::test(start_paused = true)]
async fn asks_again_where_the_layer_below_ran_out_of_the_attempts_own_time() {
    let reply = || {
        let response = Response::builder().status(503);
        let response = response.header(RETRY_EXHAUSTED, "reason=deadline_reached");
        Reply::Response(response.body(Body::default()).expect("a valid response"))
    };
    for (policy, sent) in [
        (
            steady().total_timeout(10 * SECOND).attempt_timeout(SECOND),
            2,
        ),
        (steady().total_timeout(10 * SECOND), 1),
    ] {
        let policy = policy.build().expect("a valid policy");
        let leaf = Script::new([reply()]);
        let service = client().policy(policy).layer(leaf.clone());
        send(&service, get()).await.expect("a response");
        assert_eq!(leaf.count(), sent);
    }
}
