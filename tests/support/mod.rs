//! What the tests share: an inner service that follows a script and watches how it is used.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::missing_panics_doc)]

pub mod client;
pub mod h2;
pub mod ledger;
pub mod log;
pub mod origin;
pub mod recorder;
pub mod script;
pub mod source;
pub mod wire;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use std::{future::Future, time::Duration};
use tower::{Service, ServiceExt};
use tower_retry_budget::{
    Exhausted, RetryInfo, RetryPolicy,
    budget::TokenBudget,
    policy::{Backoff, RetryPolicyBuilder},
};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Body = Full<Bytes>;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// A GET without a body, to a dependency with a name.
pub fn get() -> http::Request<Body> {
    request("GET", "")
}

pub fn request(method: &str, body: &'static str) -> http::Request<Body> {
    let request = http::Request::builder().method(method);
    let request = request.uri("http://search:8080/find?q=1");
    request.body(Full::from(body)).expect("a valid request")
}

/// A policy without chance: fixed waits of 10 ms, and of 1 s when throttled.
pub fn steady() -> RetryPolicyBuilder {
    RetryPolicy::builder()
        .backoff(Backoff::fixed(10 * MS))
        .throttled_backoff(Backoff::fixed(SECOND))
}

/// A budget that no test uses up by accident.
pub fn ample() -> TokenBudget {
    let ample = TokenBudget::builder().cap(100_000).initial(100_000);
    ample.build().expect("a valid budget")
}

/// Readies a clone of the service and calls it.
pub async fn send<S, B>(service: &S, request: http::Request<B>) -> Result<S::Response, S::Error>
where
    S: Service<http::Request<B>> + Clone,
{
    service.clone().oneshot(request).await
}

/// Readies this very instance and calls it.
pub async fn call<S, B>(service: &mut S, request: http::Request<B>) -> Result<S::Response, S::Error>
where
    S: Service<http::Request<B>>,
{
    service.ready().await?.call(request).await
}

pub fn exhausted<B>(response: &http::Response<B>) -> &Exhausted {
    let details = response.extensions().get();
    details.unwrap_or_else(|| panic!("not exhausted: {}", response.status()))
}

pub fn info<B>(response: &http::Response<B>) -> RetryInfo {
    *response.extensions().get().expect("no RetryInfo")
}

pub async fn text<B>(response: http::Response<B>) -> String
where
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let body = response.into_body().collect().await;
    let bytes = body.expect("a whole body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

pub async fn json<B>(response: http::Response<B>) -> serde_json::Value
where
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    serde_json::from_str(&text(response).await).expect("valid JSON")
}

/// Runs `future`, and says how long it took on the clock of the test.
pub async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = tokio::time::Instant::now();
    let output = future.await;
    (output, start.elapsed())
}
