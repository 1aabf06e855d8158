//! Real clients, which repeat nothing of their own accord.

use super::{BoxError, MS, SECOND, ample, origin::Version, steady};
use http::Request;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::future::Future;
use tower_retry_budget::{
    RetryBudgetLayer,
    body::ReplayBody,
    policy::{Backoff, RetryPolicyBuilder},
};

/// A policy as [`steady`], but quick after a 503 as well.
pub fn quick() -> RetryPolicyBuilder {
    steady().throttled_backoff(Backoff::fixed(10 * MS))
}

/// A layer with this policy, and a budget that is not used up.
pub fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

pub fn request<B>(method: &str, uri: &str, body: B) -> Request<B> {
    let request = Request::builder().method(method).uri(uri);
    request.body(body).expect("a valid request")
}

pub type Http<B> = Client<HttpConnector, ReplayBody<B>>;

/// A client that keeps its connections, and needs no negotiation to speak HTTP/2.
pub fn http<B>(version: Version) -> Http<B>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    builder()
        .http2_only(version == Version::Http2)
        .build(connector())
}

pub fn http1<B>() -> Http<B>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    http(Version::Http1)
}

/// How the clients are made, for one over another connector.
pub fn builder() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .retry_canceled_requests(false);
    builder
}

/// Its socket holds little, so that a peer that stops reading is felt soon.
pub fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_send_buffer_size(Some(64 * 1024));
    connector
}

/// Runs a test that must not hang.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(5 * SECOND, future).await;
    ended.expect("it hangs")
}

/// Waits until something else on this runtime has made it so.
pub async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::time::sleep(MS).await;
    }
}
