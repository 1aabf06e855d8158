//! Time-outs, of reqwest and of the layer.

use super::{
    builder, client, exhausted, info, quick, retry,
    server::{Reply, Server},
    support::MS,
};
use tokio::time::Instant;
use tower_retry_budget::{
    Deadline,
    reason::{Processed, StopReason},
    reqwest::RequestBuilderExt,
};

/// Longer than any limit here, shorter than a test may take.
fn slow() -> Reply {
    Reply::after(2000 * MS)
}

#[tokio::test]
async fn a_requests_own_time_out_limits_each_attempt() {
    let server = Server::new([slow(), slow()]).await;
    let client = client();
    let request = client.get(server.url("/")).timeout(150 * MS);
    let started = Instant::now();
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 3);
    assert!(started.elapsed() >= 300 * MS, "two attempts were cut");
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn a_clients_time_out_starts_anew_with_each_attempt() {
    let server = Server::new([slow(), slow()]).await;
    let client = builder().timeout(150 * MS).build().expect("a client");
    let request = client.get(server.url("/"));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 3);
}

#[tokio::test]
async fn a_time_out_of_reqwests_is_a_time_out() {
    let server = Server::new([slow(), slow(), slow()]).await;
    let client = client();
    let request = client.get(server.url("/")).timeout(100 * MS);
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("the layer's own");
    let exhausted = exhausted(&response);
    assert_eq!(exhausted.attempts(), 3);
    assert_eq!(exhausted.error_type(), Some("timeout"));
    assert_eq!(exhausted.processed(), Processed::Unknown);
    let error = exhausted.error().expect("a known error");
    let error = error.downcast_ref::<reqwest::Error>();
    assert!(error.expect("reqwest's own").is_timeout());
}

#[tokio::test]
async fn a_post_that_timed_out_is_not_repeated() {
    let server = Server::new([slow()]).await;
    let client = client();
    let request = client.post(server.url("/")).timeout(100 * MS);
    let error = request.send_with(&retry(client)).await;
    assert!(error.expect_err("reqwest's own").is_timeout());
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn the_policys_limit_of_an_attempt_is_told_to_the_server() {
    let server = Server::new([slow()]).await;
    let client = client();
    let policy = quick().attempt_timeout(250 * MS).build();
    let request = client.get(server.url("/"));
    let request = request.policy(policy.expect("a valid policy"));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    for left in server.headers("x-deadline-remaining-ms") {
        let left: u64 = left.expect("a header").parse().expect("digits");
        assert!((1..=250).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn the_deadline_of_a_request_ends_the_call() {
    let server = Server::new([slow()]).await;
    let client = client();
    let request = client.get(server.url("/"));
    let request = request.extension(Deadline::after(200 * MS));
    let started = Instant::now();
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("the layer's own");
    assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
    assert!(started.elapsed() < 1000 * MS);
    assert_eq!(response.url().as_str(), server.url("/"));
}
