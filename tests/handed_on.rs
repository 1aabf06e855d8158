//! Where deadlines, ownership and hold-offs get lost, or reach somebody they are not meant for.

mod support;

use http::{Request, Response};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use support::{
    Body, MS, SECOND, ample, get, request,
    script::{Reply, Script},
    send, steady, timed,
};
use tower::{Layer, service_fn};
use tower_retry_budget::{
    Deadline, DeadlineLayer, HoldOff, RetryBudgetLayer, RetryInfo, RetryPolicy,
    body::BodyFactory,
    budget::BudgetScope,
    deadline::{LayeredRetries, RetryHeaders},
    policy::Backoff,
};

fn client() -> RetryBudgetLayer {
    let policy = steady().build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

fn with(headers: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = get();
    for (name, value) in headers {
        let value = http::HeaderValue::from_static(value);
        request.headers_mut().append(*name, value);
    }
    request
}

fn to(uri: &'static str) -> Request<Body> {
    let mut request = get();
    *request.uri_mut() = http::Uri::from_static(uri);
    request
}

fn plain(status: u16) -> Response<Body> {
    let response = Response::builder().status(status);
    response.body(Body::default()).expect("a valid response")
}

#[tokio::test(start_paused = true)]
async fn a_dependency_is_not_held_back_for_another_that_shares_its_budget() {
    let script = Script::new([Reply::retry_after(503, "5")]);
    let layer = client().budget_scope(BudgetScope::one("all"));
    let layer = layer.hold_off(HoldOff::new().first_attempts());
    let service = layer.layer(script.clone());
    let mut told = to("http://search/");
    told.extensions_mut().insert(RetryPolicy::never());
    send(&service, told).await.expect("a response");
    let (_, took) = timed(send(&service, to("http://cart/"))).await;
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_hold_off_holds_back_a_retry_that_was_waiting_already() {
    let policy = steady().backoff(Backoff::fixed(SECOND)).build();
    let layer = client().policy(policy.expect("a valid policy"));
    let script = Script::new([Reply::Status(500), Reply::retry_after(503, "10")]);
    let service = layer.hold_off(HoldOff::new()).layer(script.clone());
    let waiting = tokio::spawn({
        let service = service.clone();
        async move { send(&service, get()).await }
    });
    tokio::time::sleep(500 * MS).await;
    let mut told = get();
    told.extensions_mut().insert(RetryPolicy::never());
    send(&service, told).await.expect("a response");
    waiting.await.expect("no panic").expect("a response");
    let offsets = script.offsets();
    let retry = offsets[2];
    assert!(retry >= 10 * SECOND + 500 * MS, "{offsets:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_that_is_held_back_waits_for_a_hold_off_that_came_later() {
    let script = Script::new([
        Reply::after_ms(1_500, Reply::retry_after(503, "10")),
        Reply::retry_after(503, "2"),
    ]);
    let service = client().policy(RetryPolicy::never());
    let service = service.hold_off(HoldOff::new().first_attempts());
    let service = service.layer(script.clone());
    let slow = tokio::spawn({
        let service = service.clone();
        async move { send(&service, get()).await }
    });
    tokio::task::yield_now().await;
    send(&service, get()).await.expect("a response");
    // Held back for two seconds from here; after one and a half of them the other is told of ten.
    send(&service, get()).await.expect("a response");
    slow.await.expect("no panic").expect("a response");
    let offsets = script.offsets();
    assert!(offsets[2] >= 11 * SECOND + 500 * MS, "{offsets:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_server_asked_for_is_heeded_by_others_though_it_gave_up_below() {
    let mut asks = Response::builder().status(503);
    let headers = asks.headers_mut().expect("valid");
    headers.insert("retry-after", http::HeaderValue::from_static("5"));
    let marker = http::HeaderValue::from_static("reason=budget, attempts=1");
    headers.insert("x-retry-exhausted", marker);
    let asks = asks.body(Body::default()).expect("a valid response");
    let script = Script::new([Reply::Response(asks)]);
    let service = client().hold_off(HoldOff::new().first_attempts());
    let service = service.layer(script.clone());
    send(&service, get()).await.expect("a response");
    let (_, took) = timed(send(&service, get())).await;
    assert!(took >= 5 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_in_hand_is_sent_by_a_first_attempt_that_was_held_back_when_its_factory_fails() {
    let script = Script::new([Reply::retry_after(503, "1")]);
    let service = client().hold_off(HoldOff::new().first_attempts());
    let service = service.layer(script.clone());
    let mut told = get();
    told.extensions_mut().insert(RetryPolicy::never());
    send(&service, told).await.expect("a response");
    let mut held = request("PUT", "abc");
    let fails = BodyFactory::new(|| Err::<Body, _>(std::io::Error::other("gone")));
    held.extensions_mut().insert(fails);
    let response = send(&service, held).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(script.seen()[1].body.as_deref(), Some(&b"abc"[..]));
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_call_that_is_never_retried_is_untouched_also_when_it_was_held_back() {
    let script = Script::new([Reply::retry_after(503, "1"), Reply::Status(500)]);
    let service = client().policy(RetryPolicy::never());
    let service = service.hold_off(HoldOff::new().first_attempts());
    let service = service.layer(script.clone());
    let told = send(&service, get()).await.expect("a response");
    assert!(told.extensions().get::<RetryInfo>().is_none());
    let held = send(&service, get()).await.expect("a response");
    assert!(held.extensions().get::<RetryInfo>().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_handler_inherit_the_time_that_its_own_layer_leaves_it() {
    let leaf = Script::new([Reply::Status(200)]);
    let client = client().layer(leaf.clone());
    let policy = RetryPolicy::builder().total_timeout(100 * MS);
    let policy = policy.build().expect("a valid policy");
    let server = RetryBudgetLayer::for_handlers().policy(policy);
    let server = server.layer(service_fn(move |_| {
        let client = client.clone();
        async move { send(&client, get()).await }
    }));
    send(&server, get()).await.expect("a response");
    let told: u64 = leaf.seen()[0]
        .header("x-deadline-remaining-ms")
        .map_or(u64::MAX, |told| told.parse().expect("a number"));
    assert!(told <= 100, "{told}");
}

/// A layer for handlers that retries, around a proxy: the request goes on as it came, extensions and
/// all.
async fn proxied(method: &str, onward: &'static str, leaf: &Script) {
    let client = client().layer(leaf.clone());
    let policy = steady().build().expect("a valid policy");
    let server = RetryBudgetLayer::for_handlers().policy(policy);
    let server = server.layer(service_fn(move |request: Request<_>| {
        let client = client.clone();
        async move {
            let mut request = request.map(|_| Body::default());
            *request.method_mut() = onward.parse().expect("a method");
            send(&client, request).await
        }
    }));
    send(&server, request(method, ""))
        .await
        .expect("a response");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_its_own_layer_retries_tells_the_next_hop_who_retries() {
    let leaf = Script::new([502, 200]);
    proxied("GET", "GET", &leaf).await;
    let seen = leaf.seen();
    let told: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("x-retry-attempt"))
        .collect();
    assert_eq!(told, [Some("1;max=3"), Some("2;max=3")]);
}

#[tokio::test(start_paused = true)]
async fn a_get_with_the_extensions_of_a_post_that_nobody_retries_is_retried() {
    let leaf = Script::new([502, 200]);
    proxied("POST", "GET", &leaf).await;
    assert_eq!(leaf.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_deadline_holds_at_the_edge_too() {
    let server = DeadlineLayer::new().edge();
    let server = server.layer(service_fn(|_: Request<Body>| async {
        tokio::time::sleep(5 * SECOND).await;
        Ok::<_, Infallible>(plain(200))
    }));
    let mut own = get();
    own.extensions_mut().insert(Deadline::after(100 * MS));
    let (response, took) = timed(send(&server, own)).await;
    assert_eq!(response.expect("a response").status(), 503);
    assert_eq!(took, 100 * MS);
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_handler_at_the_edge_inherit_the_servers_own_deadline() {
    let leaf = Script::new([Reply::Status(200)]);
    let client = client().layer(leaf.clone());
    let server = RetryBudgetLayer::for_handlers().edge();
    let server = server.layer(service_fn(move |_| {
        let client = client.clone();
        async move { send(&client, get()).await }
    }));
    let mut own = get();
    own.extensions_mut().insert(Deadline::after(100 * MS));
    send(&server, own).await.expect("a response");
    let seen = &leaf.seen()[0];
    assert_eq!(seen.header("x-deadline-remaining-ms"), Some("100"));
}

#[tokio::test(start_paused = true)]
async fn a_header_does_not_lengthen_what_the_task_has_inherited() {
    let left = Arc::new(Mutex::new(None));
    let server = DeadlineLayer::new().layer(service_fn({
        let left = Arc::clone(&left);
        move |_: Request<Body>| {
            *left.lock().expect("no panic") = Deadline::current().map(|at| at.remaining());
            async { Ok::<_, Infallible>(plain(200)) }
        }
    }));
    for headers in [&[][..], &[("x-deadline-remaining-ms", "5000")]] {
        let job = send(&server, with(headers));
        let job = Deadline::after(100 * MS).limit(job);
        job.await.expect("a response");
        let left = left.lock().expect("no panic").take();
        assert!(left.is_some_and(|left| left <= 100 * MS), "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_in_the_same_task_inherits_who_retries() {
    let leaf = Script::always(500);
    let client = client().layer(leaf.clone());
    let inside = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
        let client = client.clone();
        async move { send(&client, get()).await }
    }));
    // It makes a request of its own for the router inside of it.
    let outside = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
        let inside = inside.clone();
        async move { send(&inside, get()).await }
    }));
    let response = send(&outside, with(&[("x-retry-attempt", "1;max=3")])).await;
    response.expect("a response");
    assert_eq!(leaf.count(), 1);
    assert_eq!(leaf.seen()[0].header("x-retry-attempt"), Some("1;max=3"));
}

#[tokio::test(start_paused = true)]
async fn a_hop_that_never_retries_passes_on_who_does() {
    for layered in [
        LayeredRetries::Skip,
        LayeredRetries::SkipRetried,
        LayeredRetries::WithinDeadline,
    ] {
        let leaf = Script::new([500]);
        let client = client().policy(RetryPolicy::never());
        let client = client.layered_retries(layered).layer(leaf.clone());
        let server = DeadlineLayer::new().layer(service_fn(move |_: Request<Body>| {
            let client = client.clone();
            async move { send(&client, get()).await }
        }));
        let request = with(&[("x-retry-attempt", "1;max=3")]);
        send(&server, request).await.expect("a response");
        let told = leaf.seen()[0].header("x-retry-attempt").map(String::from);
        assert_eq!(told.as_deref(), Some("1;max=3"), "{layered:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edge_that_knows_no_headers_hides_what_an_upstream_said() {
    for headers in [
        RetryHeaders::none(),
        RetryHeaders::default().exhausted(http::HeaderName::from_static("x-gave-up")),
    ] {
        let server = DeadlineLayer::new().headers(headers).edge();
        let server = server.layer(service_fn(|_: Request<Body>| async {
            let mut response = plain(503);
            let marker = http::HeaderValue::from_static("reason=budget");
            response.headers_mut().insert("x-retry-exhausted", marker);
            Ok::<_, Infallible>(response)
        }));
        let request = with(&[("x-retry-attempt", "1;max=3")]);
        let response = send(&server, request).await.expect("a response");
        assert!(!response.headers().contains_key("x-retry-exhausted"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_nothing_has_no_say_in_the_retries() {
    let mut says = plain(503);
    let marker = http::HeaderValue::from_static("reason=budget");
    says.headers_mut().insert("x-retry-exhausted", marker);
    let leaf = Script::new([Reply::Response(says)]);
    let client = client().propagate_to(|_| false).layer(leaf.clone());
    let response = send(&client, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_cut_cleans_up_in_its_own_scope() {
    struct Guard(Arc<Mutex<Option<bool>>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            *self.0.lock().expect("no panic") = Some(Deadline::current().is_some());
        }
    }
    let scoped = Arc::new(Mutex::new(None));
    let server = DeadlineLayer::new().layer(service_fn({
        let scoped = Arc::clone(&scoped);
        move |_: Request<Body>| {
            let guard = Guard(Arc::clone(&scoped));
            async move {
                tokio::time::sleep(5 * SECOND).await;
                drop(guard);
                Ok::<_, Infallible>(plain(200))
            }
        }
    }));
    let request = with(&[("x-deadline-remaining-ms", "100")]);
    send(&server, request).await.expect("a response");
    assert_eq!(*scoped.lock().expect("no panic"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn what_was_captured_outside_does_not_hide_what_a_server_inside_was_told() {
    let leaf = Script::always(500);
    let client = client().layer(leaf.clone());
    let server = DeadlineLayer::new().layer(service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { send(&client, request).await }
    }));
    let server = Deadline::capture_layer().layer(server);
    let job = send(&server, with(&[("x-retry-attempt", "1;max=3")]));
    let job = Deadline::after(10 * SECOND).limit(job);
    job.await.expect("a response");
    assert_eq!(leaf.count(), 1);
}
