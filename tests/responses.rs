//! What becomes of the responses to attempts, over real connections.

mod support;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use support::{
    Body, MS, SECOND,
    client::{bounded, http, http1, layer, quick, request},
    exhausted, info, json,
    origin::{BOTH, Origin},
    script::{Reply, Script},
    send, text, timed,
    wire::{Conn, Wire, answer, chunked, status},
};
use tower::{Layer, ServiceBuilder};
use tower_retry_budget::{OnExhausted, RetryInfo, policy::Backoff, reason::StopReason};

fn get(uri: &str) -> http::Request<Body> {
    request("GET", uri, Body::default())
}

#[tokio::test]
async fn a_failed_response_is_read_to_its_end_so_that_its_connection_serves_the_retry() {
    let ten_kb = "x".repeat(10_000);
    for failure in [answer(503, "", &ten_kb), chunked(503, &ten_kb), status(503)] {
        let wire = Wire::answers([failure.clone(), failure, answer(200, "", "ok")]).await;
        let service = layer(quick()).layer(http1());
        let response = bounded(send(&service, get(&wire.uri()))).await;
        let response = response.expect("a response");
        assert_eq!(info(&response).attempts, 3);
        assert_eq!(text(response).await, "ok");
        assert_eq!(wire.connections(), 1);
    }
}

#[tokio::test]
async fn a_hundred_retries_need_no_more_than_one_connection() {
    let wire = Wire::answers(vec![chunked(500, "sorry"); 101]).await;
    let policy = quick().backoff(Backoff::fixed(2 * MS)).max_attempts(101);
    let service = layer(policy).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).attempts(), 101);
    assert_eq!(wire.count(), 101);
    assert_eq!(wire.connections(), 1);
}

/// Answers the first request with the head of a failure and whatever `go_on` sends, and the others
/// with a success.
async fn fails_at_length<F, T>(head: &'static str, go_on: F) -> Wire
where
    F: Fn(Conn) -> T + Clone + Send + 'static,
    T: Future<Output = std::io::Result<()>> + Send + 'static,
{
    Wire::serve(move |mut conn| {
        let go_on = go_on.clone();
        async move {
            conn.request().await?;
            if conn.number > 1 {
                return conn.send(answer(200, "", "ok")).await;
            }
            conn.send(format!("HTTP/1.1 500 Scripted\r\n{head}\r\n"))
                .await?;
            go_on(conn).await
        }
    })
    .await
}

/// Sends a GET that is retried over a second connection, and returns how long that took.
async fn retried_elsewhere(wire: &Wire) -> Duration {
    let service = layer(quick()).layer(http1());
    let (response, took) = timed(bounded(send(&service, get(&wire.uri())))).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(text(response).await, "ok");
    assert_eq!(wire.connections(), 2);
    took
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_to_read_is_dropped_at_once() {
    let wire = fails_at_length("content-length: 1048576\r\n", |_conn| pending()).await;
    let took = retried_elsewhere(&wire).await;
    assert!(took < 250 * MS, "{took:?}");
}

#[tokio::test]
async fn a_body_that_turns_out_too_long_to_read_is_dropped() {
    let wire = fails_at_length("transfer-encoding: chunked\r\n", |mut conn| async move {
        let chunk = format!("{:x}\r\n{}\r\n", 8192, "x".repeat(8192));
        loop {
            conn.send(&chunk).await?;
        }
    })
    .await;
    retried_elsewhere(&wire).await;
}

#[tokio::test]
async fn a_body_that_never_ends_costs_50_ms_and_no_more() {
    let wire = fails_at_length("transfer-encoding: chunked\r\n", |mut conn| async move {
        conn.send("5\r\nhello\r\n").await?;
        pending().await
    })
    .await;
    let took = retried_elsewhere(&wire).await;
    assert!(took >= 49 * MS && took < 300 * MS, "{took:?}");
}

#[tokio::test]
async fn a_body_that_never_ends_does_not_use_up_the_time_of_the_retry() {
    let wire = fails_at_length("transfer-encoding: chunked\r\n", |mut conn| async move {
        conn.send("5\r\nhello\r\n").await?;
        pending().await
    })
    .await;
    // 30 ms to spare, less than what a drain may take.
    let policy = quick().total_timeout(SECOND).min_attempt(970 * MS);
    let service = layer(policy).layer(http1());
    let (response, took) = timed(bounded(send(&service, get(&wire.uri())))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200, "{:?}", exhausted(&response));
    assert!(took < 300 * MS, "{took:?}");
}

/// A body that counts how many of its kind there are.
struct Counted<B> {
    body: B,
    alive: Arc<AtomicUsize>,
}

impl<B> Counted<B> {
    fn new(body: B, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        let alive = Arc::clone(alive);
        Self { body, alive }
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[tokio::test]
async fn a_failed_response_is_gone_before_the_next_attempt_begins() {
    let failures = [answer(503, "", "busy"), chunked(500, "sorry"), status(502)];
    let wire = Wire::answers(failures).await;
    let alive = Arc::<AtomicUsize>::default();
    let at_start = Arc::<Mutex<Vec<usize>>>::default();
    let service = ServiceBuilder::new()
        .layer(layer(quick().max_attempts(4)))
        .map_request({
            let (alive, at_start) = (Arc::clone(&alive), Arc::clone(&at_start));
            move |request: http::Request<_>| {
                let mut at_start = at_start.lock().expect("no panic");
                at_start.push(alive.load(Ordering::SeqCst));
                request
            }
        })
        .map_response({
            let alive = Arc::clone(&alive);
            move |response: Response<_>| response.map(|body| Counted::new(body, &alive))
        })
        .service(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(*at_start.lock().expect("no panic"), [0; 4]);
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(response);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_response_that_breaks_off_after_its_head_was_handed_over_is_the_callers_to_see() {
    let wire = Wire::serve(|mut conn| async move {
        conn.request().await?;
        if conn.number == 1 {
            conn.send("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nH")
                .await?;
            // Only once the head and its first byte have arrived.
            tokio::time::sleep(20 * MS).await;
            return conn.reset();
        }
        conn.send(answer(200, "", "Hello World")).await
    })
    .await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a head");
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let first = bounded(body.frame()).await.expect("a frame").expect("data");
    assert_eq!(first.into_data().expect("data"), "H");
    let error = bounded(body.frame()).await.expect("a frame");
    assert!(error.is_err());
    assert!(bounded(body.frame()).await.is_none());
    // Long enough for a retry.
    tokio::time::sleep(30 * MS).await;
    assert_eq!((wire.count(), wire.connections()), (1, 1));
}

#[tokio::test]
async fn the_last_response_is_handed_on_with_its_body() {
    let failure = || {
        let body = r#"{"error":"overloaded"}"#;
        let response = Response::builder().status(503);
        let response = response.header("content-type", "application/json");
        Reply::Response(response.body(Body::from(body)).expect("a response"))
    };
    for version in BOTH {
        let script = Script::new([failure(), failure(), failure()]);
        let origin = Origin::serve(version, script).await;
        let policy = quick().on_exhausted(OnExhausted::PassThrough);
        let service = layer(policy).layer(http(version));
        let response = bounded(send(&service, get(&origin.uri()))).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 503);
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        assert_eq!(response.headers()["content-length"], "22");
        assert!(!response.body().is_own());
        assert_eq!(json(response).await["error"], "overloaded");
        assert_eq!(origin.script().count(), 3);
    }
}

#[tokio::test]
async fn the_layers_own_answer_has_its_own_body_and_length() {
    let wire = Wire::answers(vec![answer(503, "x-from: upstream\r\n", "busy"); 3]).await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert!(response.body().is_own());
    assert!(!response.headers().contains_key("x-from"));
    let declared = response.headers().get("content-length").cloned();
    let hint = response.body().size_hint().exact();
    let body = text(response).await;
    assert!(body.contains("max_attempts"), "{body}");
    assert_eq!(hint, Some(body.len() as u64));
    if let Some(declared) = declared {
        assert_eq!(declared, body.len().to_string().as_str());
    }
}

#[tokio::test]
async fn a_response_streams_through_as_it_comes() {
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = Arc::new(Mutex::new(Some(wait)));
    let wire = Wire::serve(move |mut conn| {
        let wait = wait.lock().expect("no panic").take();
        async move {
            conn.request().await?;
            conn.send(status(500)).await?;
            conn.request().await?;
            conn.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            conn.send("5\r\nfirst\r\n").await?;
            if let Some(wait) = wait {
                _ = wait.await;
            }
            conn.send("6\r\nsecond\r\n0\r\n\r\n").await
        }
    })
    .await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).attempts, 2);
    let mut body = response.into_body();
    let first = bounded(body.frame()).await.expect("a frame").expect("data");
    assert_eq!(first.into_data().expect("data"), "first");
    go.send(()).expect("the server waits");
    let rest = bounded(body.collect()).await.expect("the rest").to_bytes();
    assert_eq!(rest, "second");
}

#[tokio::test]
async fn trailers_of_a_response_pass_through_and_are_not_looked_at() {
    // What gRPC calls a failure is an answer here: its status comes after the head.
    let wire = Wire::answers([
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status\r\n\r\n\
         0\r\ngrpc-status: 14\r\n\r\n",
    ])
    .await;
    let service = layer(quick()).layer(http1());
    let response = bounded(send(&service, get(&wire.uri()))).await;
    let response = response.expect("a response");
    assert!(response.extensions().get::<RetryInfo>().is_none());
    let body = bounded(response.into_body().collect()).await;
    let body = body.expect("a whole body");
    let trailers = body.trailers().expect("trailers");
    assert_eq!(trailers["grpc-status"], "14");
    assert_eq!(wire.count(), 1);
}
