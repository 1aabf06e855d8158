//! Request bodies: what arrives, how long it says it is, and when it can be sent again.

use super::{
    client, exhausted, info, quick, retry,
    server::{Reply, Seen, Server, closed},
    support::BoxError,
};
use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Channel, Full};
use serde_json::json;
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tower::ServiceExt;
use tower_retry_budget::{body::BodyFactory, reason::SkipReason, reqwest::RequestBuilderExt};

const LARGE: usize = 100 * 1024;

fn moved() -> Reply {
    Reply::with(307, "location", "/new")
}

/// Every request is a PUT of this body, and says how long it is.
fn assert_all(seen: &[Seen], paths: &[&str], body: &[u8]) {
    let actual: Vec<_> = seen.iter().map(|seen| &*seen.path).collect();
    assert_eq!(actual, paths);
    let len = body.len().to_string();
    for seen in seen {
        assert_eq!(seen.method, Method::PUT);
        assert_eq!(seen.header("content-length"), Some(&*len));
        assert!(seen.body == body, "{} bytes", seen.body.len());
    }
}

#[tokio::test]
async fn a_redirected_put_carries_its_body_along() {
    for body in ["value".to_owned(), "v".repeat(LARGE)] {
        let server = Server::new([moved()]).await;
        let client = client();
        let request = client.put(server.url("/old")).body(body.clone());
        let response = request.send_with(&retry(client)).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(response.url().as_str(), server.url("/new"));
        assert_all(&server.seen(), &["/old", "/new"], body.as_bytes());
    }
}

#[tokio::test]
async fn a_redirected_put_is_repeated_from_the_start() {
    let large = "v".repeat(LARGE);
    for (body, limit) in [("value", 64 * 1024), (&*large, 2 * LARGE)] {
        let server = Server::new([moved(), 503.into(), moved()]).await;
        let client = client();
        let policy = quick().replay_limit(limit).build();
        let request = client.put(server.url("/old")).body(body.to_owned());
        let request = request.policy(policy.expect("a valid policy"));
        let response = request.send_with(&retry(client)).await;
        assert_eq!(info(&response.expect("a response")).attempts, 2);
        assert_all(
            &server.seen(),
            &["/old", "/new", "/old", "/new"],
            body.as_bytes(),
        );
    }
}

#[tokio::test]
async fn a_redirected_put_over_plain_http_types_carries_its_body_along() {
    let server = Server::new([moved()]).await;
    let body = Full::<Bytes>::from("v".repeat(LARGE));
    let request = http::Request::put(server.url("/old")).body(body);
    let response = retry(client()).oneshot(request.expect("a request")).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_all(
        &server.seen(),
        &["/old", "/new"],
        "v".repeat(LARGE).as_bytes(),
    );
}

#[tokio::test]
async fn json_arrives_whole_each_time() {
    let server = Server::new([503, 502]).await;
    let client = client();
    let request = client
        .put(server.url("/"))
        .json(&json!({ "name": "value" }));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 3);
    assert_all(&server.seen(), &["/"; 3], br#"{"name":"value"}"#);
    for kind in server.headers("content-type") {
        assert_eq!(kind.as_deref(), Some("application/json"));
    }
}

#[tokio::test]
async fn a_post_without_a_body_looks_as_it_does_without_the_layer() {
    let server = Server::new([200, 503]).await;
    let client = client();
    let request = || client.post(server.url("/")).header("idempotency-key", "1");
    let plain = request().send().await.expect("a response");
    assert_eq!(plain.status(), 200);
    let response = request().send_with(&retry(client.clone())).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    let lengths = server.headers("content-length");
    assert_eq!(
        lengths,
        [lengths[0].clone(), lengths[0].clone(), lengths[0].clone()]
    );
    assert_eq!(server.headers("transfer-encoding"), [None, None, None]);
}

#[tokio::test]
async fn bytes_over_the_limit_are_sent_once_even_where_nothing_was_processed() {
    let client = client();
    let policy = quick().replay_limit(2 * LARGE).build();
    let policy = policy.expect("a valid policy");
    let put = || async { client.put(closed().await).body("v".repeat(LARGE)) };
    let retry = retry(client.clone());
    let error = put().await.send_with(&retry).await;
    assert!(error.expect_err("reqwest's own").is_connect());
    let response = put().await.policy(policy).send_with(&retry).await;
    assert_eq!(exhausted(&response.expect("the layer's own")).attempts(), 3);
}

/// A body that comes bit by bit, and whose length nobody knows.
fn stream(pieces: usize) -> reqwest::Body {
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    tokio::spawn(async move {
        for _ in 0..pieces {
            let piece = Bytes::from(vec![b'v'; 1024]);
            if sender.send_data(piece).await.is_err() {
                return;
            }
        }
    });
    reqwest::Body::wrap(body)
}

#[tokio::test]
async fn a_stream_is_repeated_as_long_as_it_fits() {
    let server = Server::new([503]).await;
    let client = client();
    let request = client.put(server.url("/")).body(stream(8));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!(seen.header("content-length"), None);
        assert_eq!(seen.header("transfer-encoding"), Some("chunked"));
        assert_eq!(seen.body.len(), 8 * 1024);
    }
}

#[tokio::test]
async fn a_stream_that_does_not_fit_is_sent_once() {
    let server = Server::always(503).await;
    let client = client();
    let request = client.put(server.url("/")).body(stream(100));
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("the server's own");
    assert_eq!(info(&response).skipped, Some(SkipReason::NotReplayable));
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(server.count(), 1);
    assert_eq!(server.seen()[0].body.len(), LARGE);
}

#[tokio::test]
async fn a_healthy_server_gets_any_stream_in_one_attempt() {
    let server = Server::always(200).await;
    let client = client();
    let retry = retry(client.clone());
    // A form with a file in it is a stream whose length is in the head.
    let form = client
        .post(server.url("/form"))
        .header("content-type", "multipart/form-data; boundary=x")
        .header("content-length", 200 * 1024)
        .body(stream(200));
    let endless = client.post(server.url("/stream")).body(stream(200));
    for request in [form, endless] {
        let response = request.send_with(&retry).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].header("content-length"), Some("204800"));
    assert_eq!(seen[0].header("transfer-encoding"), None);
    assert!(seen.iter().all(|seen| seen.body.len() == 200 * 1024));
}

#[tokio::test]
async fn a_stream_is_not_repeated_by_a_redirect() {
    let server = Server::new([moved()]).await;
    let client = client();
    let request = client.put(server.url("/old")).body(stream(8));
    let response = request.send_with(&retry(client)).await;
    assert_eq!(response.expect("the redirect").status(), 307);
    assert_eq!(server.count(), 1);
}

/// Two pieces whose length is known before.
struct Pieces(Vec<&'static str>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop().map(|piece| Ok(Frame::data(piece.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

#[tokio::test]
async fn a_body_of_known_length_says_it_each_time() {
    let server = Server::new([503, 503]).await;
    // A box that is not `Sync`, as axum's body is not.
    let body = Pieces(vec!["two", "one, "]).boxed_unsync();
    let request = http::Request::put(server.url("/")).body(body);
    let response = retry(client()).oneshot(request.expect("a request")).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_all(&server.seen(), &["/"; 3], b"one, two");
}

#[tokio::test]
async fn a_body_that_can_be_made_anew_is_repeated_whatever_its_length() {
    let server = Server::new([503]).await;
    let client = client();
    let factory = BodyFactory::new(|| Ok::<_, BoxError>(stream(100)));
    let request = client.put(server.url("/")).body(stream(100));
    let request = request.extension(factory);
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
    assert!(server.seen().iter().all(|seen| seen.body.len() == LARGE));
}
