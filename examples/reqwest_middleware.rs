//! The layer as a middleware of `reqwest-middleware`: `cargo run --example reqwest_middleware`.
//!
//! It stands where it is added: middleware added before it sees calls, middleware added after it sees
//! attempts. It starts the server that it calls, and fails when the call does not go as it says.

use axum::{Router, http::StatusCode, routing::put};
use http::{Extensions, Request, Response};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next, Result};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    ConfigError, Exhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    body::ReplayBody,
    reqwest::{into_http_response, into_reqwest_request, into_reqwest_response},
};

struct RetryMiddleware(RetryBudgetLayer);

impl RetryMiddleware {
    fn new() -> std::result::Result<Self, ConfigError> {
        // The layer has to be told that this is an error to look into.
        let policy = RetryPolicy::builder().error_type::<Error>().build()?;
        Ok(Self(RetryBudgetLayer::new().policy(policy)))
    }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<reqwest::Response> {
        let url = request.url().clone();
        let mut request = Request::<reqwest::Body>::try_from(request)?;
        // What was set with `with_extension`: a policy, a deadline.
        request.extensions_mut().extend(extensions.clone());
        let attempts = Attempts { next };
        let response = self.0.layer(attempts).oneshot(request).await?;
        Ok(into_reqwest_response(response, &url))
    }
}

/// The rest of the chain, once for each attempt.
#[derive(Clone)]
struct Attempts<'a> {
    next: Next<'a>,
}

impl<'a> Service<Request<ReplayBody<reqwest::Body>>> for Attempts<'a> {
    type Response = Response<reqwest::Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response>> + Send + 'a>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<reqwest::Body>>) -> Self::Future {
        let next = self.next.clone();
        Box::pin(async move {
            // Each attempt has its own, as each has its own head.
            let mut extensions = request.extensions().clone();
            let request = into_reqwest_request(request)?;
            let response = next.run(request, &mut extensions).await?;
            Ok(into_http_response(response))
        })
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let hits = Arc::new(AtomicU32::new(0));
    let url = start_server(Arc::clone(&hits)).await?;

    let client = reqwest::Client::builder()
        .no_proxy() // the server is on this machine
        .retry(reqwest::retry::never())
        .build()?;
    let client = ClientBuilder::new(client)
        .with(RetryMiddleware::new()?)
        .build();
    let response = client.put(url).body("value").send().await?;

    let info = response.extensions().get::<RetryInfo>().copied();
    println!("{} after {info:?}", response.status());
    assert_eq!(response.status(), 200);
    assert_eq!(info.map(|info| info.attempts), Some(2));
    assert_eq!(response.text().await?, "value");
    assert_eq!(hits.load(Ordering::SeqCst), 2);

    // Nobody listens there any more. The layer sees through the middleware's error, and knows that
    // even a POST may be repeated.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await?
        .local_addr()?;
    let response = client.post(format!("http://{closed}/")).send().await?;
    let exhausted = response.extensions().get::<Exhausted>();
    let exhausted = exhausted.ok_or("not exhausted")?;
    println!("{}: {exhausted}", response.status());
    assert_eq!(exhausted.error_type(), Some("connection_refused"));
    assert_eq!(exhausted.attempts(), 3);
    Ok(())
}

async fn start_server(hits: Arc<AtomicU32>) -> std::io::Result<String> {
    let answer = async move |body: String| match hits.fetch_add(1, Ordering::SeqCst) {
        0 => Err(StatusCode::BAD_GATEWAY),
        _ => Ok(body),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", put(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}
