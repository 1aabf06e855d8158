//! The chain: an edge client, two services and a leaf.

use crate::report::{Event, Hop, Report};
use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HyperClient, Error},
    rt::TokioExecutor,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_retry_budget::{
    ConfigError, DeadlineLayer, RetryBudgetLayer, RetryPolicy, body::ResponseBody,
    budget::TokenBudget, deadline::DEADLINE_REMAINING_MS, policy::Backoff,
};

/// What each of the callers allows a call. The edge's is what counts, if the others know of it.
pub(crate) const TOTAL_TIMEOUT: Duration = Duration::from_secs(3);

type Body = Empty<Bytes>;
type Client = BoxCloneSyncService<Request<Body>, Response<ResponseBody<Incoming>>, Error>;

pub(crate) struct Chain {
    edge: Caller,
    leaf_is_down: Arc<AtomicBool>,
    report: Report,
}

impl Chain {
    /// Starts the servers, the last one first.
    pub(crate) async fn start(cooperate: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let report = Report::new();
        let leaf_is_down = Arc::new(AtomicBool::new(false));
        let leaf = serve(leaf(report.clone(), Arc::clone(&leaf_is_down))).await?;
        let to_leaf = Caller::new(Hop::B, leaf, &report)?;
        let b = serve(service(Hop::B, to_leaf, &report, cooperate)).await?;
        let to_b = Caller::new(Hop::A, b, &report)?;
        let a = serve(service(Hop::A, to_b, &report, cooperate)).await?;
        let edge = Caller::new(Hop::Edge, a, &report)?;
        Ok(Self {
            edge,
            leaf_is_down,
            report,
        })
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn leaf_goes_down(&self) {
        self.report.leaf_goes_down();
        self.leaf_is_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn leaf_comes_back(&self) {
        self.leaf_is_down.store(false, Ordering::SeqCst);
        self.report.leaf_comes_back();
    }

    /// Makes a call at the edge.
    pub(crate) fn call(&self, number: u32) -> JoinHandle<()> {
        let (edge, report) = (self.edge.clone(), self.report.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            report.add(Event::received(Hop::Edge, number, None));
            let status = edge.ask(number).await;
            report.answered(number, started, status.is_success());
        })
    }
}

/// What a hop calls the next one with.
#[derive(Clone)]
struct Caller {
    client: Client,
    next: SocketAddr,
}

impl Caller {
    fn new(hop: Hop, next: SocketAddr, report: &Report) -> Result<Self, ConfigError> {
        let client = HyperClient::builder(TokioExecutor::new())
            // It would send what the layer does not know of.
            .retry_canceled_requests(false)
            .build_http();
        let report = report.clone();
        let client = ServiceBuilder::new()
            .layer(BoxCloneSyncService::layer())
            .layer(retries()?)
            .map_request(move |request: Request<_>| {
                report.add(Event::sent(hop, number(request.uri())));
                request
            })
            .service(client);
        Ok(Self { client, next })
    }

    async fn ask(&self, number: u32) -> StatusCode {
        let request = Request::get(format!("http://{}/{number}", self.next));
        let request = request.body(Body::new()).expect("a valid request");
        match self.client.clone().oneshot(request).await {
            Ok(response) => response.status(),
            Err(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// The layer around each client: the defaults, but for waits that suit a run of five seconds, and a
/// budget that never runs out.
fn retries() -> Result<RetryBudgetLayer, ConfigError> {
    let policy = RetryPolicy::builder()
        .max_attempts(3)
        .total_timeout(TOTAL_TIMEOUT)
        .backoff(Backoff::fixed(Duration::from_millis(10)))
        .build()?;
    let ample = TokenBudget::builder().cap(100_000).initial(100_000);
    Ok(RetryBudgetLayer::new()
        .policy(policy)
        .budget(ample.build()?))
}

/// A service that asks the next one, and says no more than `502` when that fails.
fn service(hop: Hop, next: Caller, report: &Report, cooperate: bool) -> Router {
    let report = report.clone();
    let handler = async move |uri: Uri, headers: HeaderMap| {
        let number = number(&uri);
        report.add(Event::received(hop, number, time_left(&headers)));
        match next.ask(number).await {
            status if status.is_success() => StatusCode::OK,
            _ => StatusCode::BAD_GATEWAY,
        }
    };
    let app = Router::new().fallback(handler);
    if cooperate {
        // The one line.
        app.layer(DeadlineLayer::new())
    } else {
        app
    }
}

fn leaf(report: Report, is_down: Arc<AtomicBool>) -> Router {
    Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
        let number = number(&uri);
        report.add(Event::received(Hop::Leaf, number, time_left(&headers)));
        if is_down.load(Ordering::SeqCst) {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::OK
        }
    })
}

async fn serve(app: Router) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// The call that a request belongs to: its path, the same at every hop.
fn number(uri: &Uri) -> u32 {
    let number = uri.path().trim_start_matches('/').parse();
    number.expect("a path that is a number")
}

fn time_left(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(DEADLINE_REMAINING_MS)?.to_str().ok()?;
    value.parse().ok().map(Duration::from_millis)
}
