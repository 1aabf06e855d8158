//! What is sent again, and how often.

use super::{
    builder, client, exhausted, info, quick, retry,
    server::{Reply, Server, closed, serve},
};
use axum::{Router, routing::any};
use http::{Method, StatusCode};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{io::AsyncReadExt, net::TcpListener, task::JoinSet};
use tower_retry_budget::{
    RetryInfo, RetryPolicy,
    reason::{Processed, SkipReason, StopReason},
    reqwest::RequestBuilderExt,
};

#[tokio::test]
async fn saves_a_request_that_was_answered_with_503() {
    let server = Server::new([503]).await;
    let client = client();
    let request = client.get(server.url("/find")).header("x-name", "value");
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(response.text().await.expect("a body"), "hello");
    let name = Some("value".to_owned());
    assert_eq!(server.headers("x-name"), [name.clone(), name]);
    let numbers = ["1;max=3", "2;max=3"].map(|number| Some(number.to_owned()));
    assert_eq!(server.headers("x-retry-attempt"), numbers);
}

#[tokio::test]
async fn waits_as_long_as_the_server_asked() {
    let server = Server::new([Reply::with(503, "retry-after", "1")]).await;
    let client = client();
    let request = client.get(server.url("/"));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(response.expect("a response").status(), 200);
    let seen = server.seen();
    let wait = seen[1].at - seen[0].at;
    assert!(wait >= Duration::from_millis(990), "{wait:?}");
    assert!(wait < Duration::from_millis(2500), "{wait:?}");
}

#[tokio::test]
async fn does_not_repeat_a_post_that_was_answered() {
    let server = Server::always(503).await;
    let client = client();
    let request = client.post(server.url("/"));
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn repeats_a_post_whose_connection_was_refused_only_where_nobody_follows_redirects() {
    let closed = &closed().await;
    let client = builder().redirect(reqwest::redirect::Policy::none());
    let client = client.build().expect("a client");
    let request = || client.post(closed).body("once");
    let error = request().send_with(&retry(client.clone())).await;
    assert!(error.expect_err("the only attempt").is_connect());
    let policy = quick().no_redirects().build().expect("a valid policy");
    let request = request().policy(policy);
    let response = request.send_with(&retry(client.clone())).await;
    let response = response.expect("the layer's own");
    let exhausted = exhausted(&response);
    assert_eq!(exhausted.reason(), StopReason::MaxAttempts);
    assert_eq!(exhausted.attempts(), 3);
    assert_eq!(exhausted.processed(), Processed::No);
    assert_eq!(exhausted.error_type(), Some("connection_refused"));
    let error = exhausted.error().expect("a known error");
    let error = error.downcast_ref::<reqwest::Error>();
    assert!(error.expect("reqwest's own").is_connect());
}

/// A server that reads a little, and hangs up.
async fn rude() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 64]).await;
        }
    });
    (format!("http://{address}/"), count)
}

#[tokio::test]
async fn repeats_a_get_but_no_post_when_the_server_hung_up() {
    for (method, times) in [(Method::GET, 3), (Method::POST, 1)] {
        let (url, count) = rude().await;
        let client = client();
        let request = client.request(method, url);
        let result = request.send_with(&retry(client)).await;
        match times {
            1 => assert!(result.expect_err("reqwest's own").is_request()),
            _ => assert_eq!(exhausted(&result.expect("the layer's own")).attempts(), 3),
        }
        assert_eq!(count.load(Ordering::SeqCst), times);
    }
}

#[tokio::test]
async fn sends_as_often_as_the_policy_says_and_not_more() {
    let server = Server::always(503).await;
    let client = client();
    let request = client.get(server.url("/"));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(exhausted(&response.expect("a response")).attempts(), 3);
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn is_multiplied_by_retries_of_reqwests_own() {
    let server = Server::always(503).await;
    let own = reqwest::retry::for_host("127.0.0.1")
        .no_budget()
        .max_retries_per_request(2)
        .classify_fn(|attempt| match attempt.status() {
            Some(StatusCode::SERVICE_UNAVAILABLE) => attempt.retryable(),
            _ => attempt.success(),
        });
    let client = builder().retry(own).build().expect("a client");
    let request = client.get(server.url("/"));
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("a response");
    assert_eq!(
        exhausted(&response).attempts(),
        3,
        "all that the layer sees"
    );
    assert_eq!(server.count(), 9);
}

#[tokio::test]
async fn does_not_repeat_what_goes_round_in_circles() {
    let circle = || Reply::with(302, "location", "/again");
    let server = Server::new([circle(), circle(), circle(), circle()]).await;
    let twice = reqwest::redirect::Policy::limited(2);
    let client = builder().redirect(twice).build().expect("a client");
    let request = client.get(server.url("/"));
    let error = request.send_with(&retry(client)).await;
    assert!(error.expect_err("reqwest's own").is_redirect());
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn obeys_the_policy_of_one_request() {
    let server = Server::always(503).await;
    let client = client();
    let retry = retry(client.clone());
    let request = client.get(server.url("/")).policy(RetryPolicy::never());
    let response = request.send_with(&retry).await.expect("a response");
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn serves_many_calls_at_once_through_one_reference() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let app = Router::new().route(
        "/{name}",
        any(async move |request: axum::extract::Request| {
            let name = request.uri().path().to_owned();
            let first = seen.lock().expect("no panic").insert(name);
            if first {
                StatusCode::BAD_GATEWAY
            } else {
                StatusCode::OK
            }
        }),
    );
    let url = serve(app).await;
    let client = client();
    let retry = &retry(client.clone());
    let mut calls = JoinSet::new();
    for number in 0..20 {
        calls.spawn(client.get(format!("{url}/{number}")).send_with(retry));
    }
    for response in calls.join_all().await {
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        let info = response.extensions().get::<RetryInfo>();
        assert_eq!(info.expect("a retry").attempts, 2);
    }
}
