//! Where a time limit belongs: inside the layer, outside of it, or in the layer's own policy.
//!
//! A server on loopback never answers the first request that it gets, and answers the second at once.
//! The same limit of 200 ms is put in four places, and the numbers show what each place means:
//!
//! - **tower's `Timeout` inside** limits one attempt. The layer sees an `Elapsed`, counts it as a
//!   time-out, and sends the request again;
//! - **tower's `Timeout` outside** limits the whole call, with all attempts and waits. It ends the
//!   call by dropping it: one request was sent, and nobody says how the attempt ended;
//! - **`attempt_timeout`** does what a `Timeout` inside does, and also tells the server how long the
//!   attempt may take (`x-deadline-remaining-ms`);
//! - **`total_timeout`** does what a `Timeout` outside does, but answers with a `503` that explains
//!   itself, and sends no retry that could not end in time.
//!
//! A client wants a limit on each attempt *and* one on the whole call: the last case.
//!
//! ```text
//! cargo run --example tower_timeouts
//! ```

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, time::Instant};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, timeout::error::Elapsed};
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer,
    body::ReplayBody,
    policy::{Backoff, RetryPolicy, RetryPolicyBuilder},
};

const LIMIT: Duration = Duration::from_millis(200);

type Hyper = Client<HttpConnector, ReplayBody<Full<Bytes>>>;

/// A server that does not answer its first `hang` requests.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicU32>,
}

impl Server {
    async fn start(hang: u32) -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        let app = axum::Router::new().fallback(move || async move {
            if count.fetch_add(1, Ordering::SeqCst) < hang {
                std::future::pending::<()>().await;
            }
        });
        tokio::spawn(async { axum::serve(listener, app).await });
        Ok(Self { address, requests })
    }
}

/// What one call came to.
struct Report {
    outcome: String,
    requests: u32,
    millis: u128,
}

/// Starts a server that hangs `hang` times, and makes one call to it through `service`.
async fn call<S, B>(what: &str, hang: u32, mut service: S) -> Result<Report, BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let server = Server::start(hang).await?;
    let uri = format!("http://{}/", server.address);
    let request = Request::get(uri).body(Full::default())?;
    let start = Instant::now();
    let ready = service.ready().await.map_err(Into::into)?;
    let outcome = match ready.call(request).await.map_err(Into::into) {
        Ok(response) => match response.extensions().get::<Exhausted>() {
            Some(exhausted) => format!("503, {exhausted}"),
            None => response.status().as_u16().to_string(),
        },
        Err(error) if error.is::<Elapsed>() => "error: elapsed".to_owned(),
        Err(error) => return Err(error),
    };
    let report = Report {
        outcome,
        requests: server.requests.load(Ordering::SeqCst),
        millis: start.elapsed().as_millis(),
    };
    println!(
        "{what:<38} {:>4} ms, requests sent: {}, {}",
        report.millis, report.requests, report.outcome
    );
    Ok(report)
}

fn hyper() -> Hyper {
    Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http()
}

fn policy() -> RetryPolicyBuilder {
    RetryPolicy::builder().backoff(Backoff::fixed(Duration::from_millis(20)))
}

fn layer(policy: RetryPolicyBuilder) -> Result<RetryBudgetLayer, BoxError> {
    Ok(RetryBudgetLayer::new().policy(policy.build()?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    println!("The first request is never answered. The limit is {LIMIT:?}.\n");

    let stack = ServiceBuilder::new().layer(layer(policy())?).timeout(LIMIT);
    let inside = call("Timeout inside", 1, stack.service(hyper())).await?;
    assert_eq!((inside.outcome.as_str(), inside.requests), ("200", 2));
    assert!(inside.millis >= 220, "the limit, then the wait");

    let stack = ServiceBuilder::new().timeout(LIMIT).layer(layer(policy())?);
    let outside = call("Timeout outside", 1, stack.service(hyper())).await?;
    assert_eq!(outside.requests, 1);
    assert_eq!(outside.outcome, "error: elapsed");

    let stack = ServiceBuilder::new().layer(layer(policy().attempt_timeout(LIMIT))?);
    let attempt = call("attempt_timeout", 1, stack.service(hyper())).await?;
    assert_eq!((attempt.outcome.as_str(), attempt.requests), ("200", 2));

    let stack = ServiceBuilder::new().layer(layer(policy().total_timeout(LIMIT))?);
    let total = call("total_timeout", 1, stack.service(hyper())).await?;
    assert_eq!(total.requests, 1);
    assert!(total.outcome.ends_with("(deadline_reached)"));

    println!("\nNow no request is answered.\n");

    // Three attempts, each as long as the limit: the call takes three times as long.
    let stack = ServiceBuilder::new().layer(layer(policy())?).timeout(LIMIT);
    let inside = call("Timeout inside", 9, stack.service(hyper())).await?;
    assert_eq!(inside.requests, 3);
    assert!(inside.millis >= 640, "three limits and two waits");

    // Both: each attempt is limited, and so is the call.
    let both = policy().attempt_timeout(LIMIT).total_timeout(2 * LIMIT);
    let stack = ServiceBuilder::new().layer(layer(both)?);
    let both = call(
        "attempt_timeout and twice that in all",
        9,
        stack.service(hyper()),
    )
    .await?;
    assert_eq!(both.requests, 2);
    assert!(both.outcome.ends_with("(deadline_reached)"));
    assert!(both.millis < inside.millis);
    Ok(())
}
