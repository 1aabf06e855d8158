//! Over hyper-util's pooled client, counted on the wire.

use crate::{
    layer,
    support::{BoxError, exhausted, info, send},
    wire::{Act, Wire},
};
use axum::{Router, extract::Request as AxumRequest, routing::any};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Channel, Empty, Full, combinators::BoxBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};
use tower_retry_budget::{
    RetryBudget,
    body::ReplayBody,
    reason::{Processed, SkipReason, StopReason},
};

type Hyper<B> = Client<HttpConnector, ReplayBody<B>>;

/// A client that never sends a request again by itself, so that counts are exact.
fn client<B>(http2: bool) -> RetryBudget<Hyper<B>>
where
    B: http_body::Body + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .http2_only(http2)
        .build_http();
    layer().layer(client)
}

fn request<B>(method: &str, address: SocketAddr, body: B) -> Request<B> {
    let request = Request::builder().method(method);
    let request = request.uri(format!("http://{address}/find?q=1"));
    request.body(body).expect("a valid request")
}

fn bodies(wire: &Wire) -> Vec<String> {
    let body = |request: String| {
        request
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
    };
    wire.requests().into_iter().filter_map(body).collect()
}

#[tokio::test]
async fn sends_on_the_wire_what_it_says_it_sent() {
    let wire = Wire::start([502, 502]).await;
    let client = client(false);
    let put = request("PUT", wire.address, Full::<Bytes>::from("abc"));
    let response = send(&client, put).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(info(&response).attempts, 3);
    let body = response.into_body().collect().await;
    assert_eq!(body.expect("a whole body").to_bytes(), "body");
    assert_eq!(bodies(&wire), ["abc", "abc", "abc"]);
    for (number, request) in wire.requests().into_iter().enumerate() {
        let request = request.to_ascii_lowercase();
        assert!(request.contains("content-length: 3\r\n"), "{request}");
        assert!(request.contains(&format!("x-retry-attempt: {};max=3\r\n", number + 1)));
        assert!(request.contains("x-deadline-remaining-ms: "));
    }
    // Each failed response was read to its end, so one connection did it all.
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn sends_once_what_may_not_be_repeated() {
    let wire = Wire::start([502]).await;
    let client = client(false);
    let post = request("POST", wire.address, Full::<Bytes>::from("abc"));
    let response = send(&client, post).await.expect("a response");
    assert_eq!(response.status(), 502);
    assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));
    assert_eq!(wire.count(), 1);
    assert!(!wire.requests()[0].contains("x-retry-attempt"));
}

#[tokio::test]
async fn stops_when_the_attempts_are_used_up() {
    let wire = Wire::start([500; 9]).await;
    let client = client(false);
    for calls in 1..=3 {
        let get = request("GET", wire.address, Empty::<Bytes>::new());
        let response = send(&client, get).await.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        assert_eq!(wire.count(), 3 * calls);
    }
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_is_retried_for_a_get_and_not_for_a_post() {
    let wire = Wire::start([Act::Close]).await;
    let client = client(false);
    let get = request("GET", wire.address, Full::<Bytes>::default());
    let response = send(&client, get).await.expect("a response");
    assert_eq!(info(&response).attempts, 2);
    assert_eq!((wire.count(), wire.connections()), (2, 2));

    let wire = Wire::start([Act::Close]).await;
    let post = request("POST", wire.address, Full::<Bytes>::from("abc"));
    send(&client, post).await.expect_err("a broken connection");
    assert_eq!(wire.count(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_retried_whatever_the_method() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let post = request("POST", address, Full::<Bytes>::from("abc"));
    let response = send(&client(false), post).await.expect("a response");
    assert_eq!(exhausted(&response).attempts(), 3);
    assert_eq!(exhausted(&response).processed(), Processed::No);
    let error_type = exhausted(&response).error_type();
    assert_eq!(error_type, Some("connection_refused"));
}

#[tokio::test]
async fn takes_the_bodies_that_people_use() {
    // A stream without a length.
    let wire = Wire::start([502]).await;
    let (mut chunks, body) = Channel::<Bytes, BoxError>::new(2);
    for chunk in ["ab", "c"] {
        let sent = chunks.send_data(Bytes::from(chunk)).await;
        sent.expect("an open body");
    }
    drop(chunks);
    let put = request("PUT", wire.address, axum::body::Body::new(body));
    let response = send(&client(false), put).await.expect("a response");
    assert_eq!(info(&response).attempts, 2);
    for request in wire.requests() {
        assert!(request.contains("transfer-encoding: chunked"), "{request}");
        assert!(request.ends_with("0\r\n\r\n"));
    }
    assert_eq!(bodies(&wire)[0], "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");

    // axum's body with a length.
    let wire = Wire::start([502]).await;
    let put = request("PUT", wire.address, axum::body::Body::from("abc"));
    send(&client(false), put).await.expect("a response");
    assert_eq!(bodies(&wire), ["abc", "abc"]);

    // A boxed one.
    let wire = Wire::start([502]).await;
    let body: BoxBody<Bytes, BoxError> = Full::from("abc").map_err(Into::into).boxed();
    let put = request("PUT", wire.address, body);
    send(&client(false), put).await.expect("a response");
    assert_eq!(bodies(&wire), ["abc", "abc"]);
}

/// A server that speaks both, fails `failures` times and notes what it saw.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<(Version, HeaderMap, Bytes)>>>,
}

impl Server {
    async fn start(http2: bool, failures: usize) -> Self {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let handler = move |request: AxumRequest| async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            let mut seen = noted.lock().expect("not poisoned");
            seen.push((head.version, head.headers, body));
            if seen.len() <= failures {
                return StatusCode::BAD_GATEWAY;
            }
            StatusCode::OK
        };
        let app = Router::new().route("/find", any(handler));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(app.clone());
                let stream = TokioIo::new(stream);
                tokio::spawn(async move {
                    if http2 {
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(stream, service)
                            .await
                    } else {
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(stream, service)
                            .await
                    }
                });
            }
        });
        Self { address, seen }
    }
}

#[tokio::test]
async fn retries_over_both_versions_of_http() {
    for (http2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let server = Server::start(http2, 2).await;
        let client = client(http2);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "6".parse().expect("a valid header"));
        let body = Full::<Bytes>::from("abc");
        let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
        let put = request("PUT", server.address, Box::pin(body));
        let response = send(&client, put).await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(info(&response).attempts, 3);
        let seen = server.seen.lock().expect("not poisoned");
        assert_eq!(seen.len(), 3);
        for (number, (used, headers, body)) in seen.iter().enumerate() {
            assert_eq!((*used, &body[..]), (version, &b"abc"[..]));
            let attempt = headers["x-retry-attempt"].to_str().expect("text");
            assert_eq!(attempt, format!("{};max=3", number + 1));
        }
    }
}

#[tokio::test]
async fn repeats_no_post_over_either_version() {
    for http2 in [false, true] {
        let server = Server::start(http2, 1).await;
        let post = request("POST", server.address, Full::<Bytes>::from("abc"));
        let response = send(&client(http2), post).await.expect("a response");
        assert_eq!(response.status(), 502);
        assert_eq!(server.seen.lock().expect("not poisoned").len(), 1);
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_sends_nothing_more() {
    let wire = Wire::start([503, 503]).await;
    let client = client(false);
    let get = request("GET", wire.address, Empty::<Bytes>::new());
    // The layer waits for a second after a 503.
    let call = client.clone().oneshot(get);
    let answer = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(answer.is_err());
    assert_eq!(wire.count(), 1);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(wire.count(), 1);
}
