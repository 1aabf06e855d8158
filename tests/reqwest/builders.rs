//! From a builder to a response and back: URLs, errors, and other services around.

use super::{
    client, exhausted, info, retry,
    server::{Reply, Server},
    support::{BoxError, SECOND},
};
use bytes::Bytes;
use http_body_util::Empty;
use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_retry_budget::reqwest::{
    ClientExt, RequestBuilderExt, ReqwestFuture, ReqwestService, RetryRequest,
    into_reqwest_response,
};

#[test]
fn the_service_goes_wherever_a_client_goes() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn spawned<T: Send + 'static>() {}
    shared::<ReqwestService>();
    spawned::<ReqwestFuture>();
    spawned::<RetryRequest>();
}

#[tokio::test]
async fn a_response_says_where_it_came_from() {
    let server = Server::new([503.into(), Reply::with(302, "location", "/new?q=1")]).await;
    let client = client();
    let request = client.get(server.url("/old"));
    let response = request.send_with(&retry(client)).await;
    let response = response.expect("a response");
    assert_eq!(response.url().as_str(), server.url("/new?q=1"));
    assert_eq!(info(&response).attempts, 2);
}

#[tokio::test]
async fn a_plain_response_keeps_its_url_for_the_way_back() {
    let server = Server::new([Reply::with(302, "location", "/new")]).await;
    let request = http::Request::get(server.url("/old")).body(Empty::<Bytes>::new());
    let response = retry(client()).oneshot(request.expect("a request")).await;
    let response = reqwest::Response::from(response.expect("a response"));
    assert_eq!(response.url().as_str(), server.url("/new"));
    assert_eq!(response.text().await.expect("a body"), "hello");
}

#[tokio::test]
async fn the_layers_own_answer_has_the_url_that_was_asked_for() {
    let server = Server::always(502).await;
    let client = client();
    let request = client.get(server.url("/find?q=1"));
    let response = request.send_with(&retry(client.clone())).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).attempts(), 3);
    assert_eq!(response.url().as_str(), server.url("/find?q=1"));
    let error = response.error_for_status_ref().expect_err("a 503");
    assert_eq!(error.url(), Some(response.url()));
    let problem: serde_json::Value = response.json().await.expect("JSON");
    assert_eq!(problem["last_status"], 502);

    let url = server.url("/find").parse().expect("a URL");
    let request = http::Request::get(server.url("/find")).body(Empty::<Bytes>::new());
    let response = retry(client).oneshot(request.expect("a request")).await;
    let response = into_reqwest_response(response.expect("a response"), &url);
    assert_eq!(response.url(), &url);
}

#[tokio::test]
async fn a_uri_that_is_not_absolute_is_an_error_and_not_repeated() {
    for uri in ["/find", "search:8080"] {
        let request = http::Request::get(uri).body(Empty::<Bytes>::new());
        let error = retry(client()).oneshot(request.expect("a request")).await;
        let error = error.expect_err("reqwest's own");
        assert!(error.is_builder(), "{error:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_builder_comes_out_when_it_is_sent() {
    let client = client();
    let retry = retry(client.clone());
    let error = client.get("search").send_with(&retry).await;
    assert!(error.expect_err("relative").is_builder());
    let bad_header = client.get("http://search/").header("no name", "value");
    let error = bad_header.extension(1).send_with(&retry).await;
    let error = error.expect_err("a bad header");
    let source = std::error::Error::source(&error).expect("a source");
    assert_eq!(source.to_string(), "invalid HTTP header name");
}

#[tokio::test]
async fn a_built_request_is_sent_as_well() {
    let server = Server::new([503]).await;
    let client = client();
    let request = client.get(server.url("/")).build().expect("a request");
    let request = RetryRequest::from(request);
    let response = request.send_with(&retry(client)).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
}

#[tokio::test]
async fn other_layers_fit_around_the_service() {
    let server = Server::new([503]).await;
    let client = client();
    let stack = ServiceBuilder::new()
        .concurrency_limit(1)
        .timeout(SECOND)
        .service(retry(client.clone()));
    let response: Result<_, BoxError> = client.get(server.url("/")).send_with(&stack).await;
    assert_eq!(info(&response.expect("a response")).attempts, 2);
}

#[tokio::test]
async fn the_client_needs_no_layer() {
    let server = Server::new([503]).await;
    let client = client();
    let service = client.clone().into_service();
    let response = client.get(server.url("/")).send_with(&service).await;
    assert_eq!(response.expect("a response").status(), 503);
}

/// Takes one call for each time that it was asked whether it is ready, and not the first time.
struct Reluctant {
    asked: u32,
}

impl Clone for Reluctant {
    fn clone(&self) -> Self {
        Self { asked: 0 }
    }
}

impl Service<http::Request<reqwest::Body>> for Reluctant {
    type Response = http::Response<reqwest::Body>;
    type Error = reqwest::Error;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.asked += 1;
        if self.asked > 1 {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: http::Request<reqwest::Body>) -> Self::Future {
        assert_eq!(
            std::mem::take(&mut self.asked),
            2,
            "called without readiness of its own"
        );
        ready(Ok(http::Response::default()))
    }
}

#[tokio::test]
async fn waits_until_its_own_clone_is_ready() {
    let service = Reluctant { asked: 7 };
    let request = || client().get("http://search/find");
    let (first, second) =
        tokio::join!(request().send_with(&service), request().send_with(&service),);
    for response in [first, second] {
        let response = response.expect("a response");
        assert_eq!(response.url().as_str(), "http://search/find");
    }
}
