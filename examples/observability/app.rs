//! A service with two dependencies, of which one can be broken, and its metrics.
//!
//! | path | |
//! |---|---|
//! | `/search`, `/prices` | what the service does: it asks a dependency |
//! | `/metrics` | for Prometheus |
//! | `POST /health/{health}` | makes search `healthy`, `flaky` or `broken` |

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, time::MissedTickBehavior};
use tower::{Layer, ServiceExt};
use tower_retry_budget::{
    DeadlineLayer, RetryBudget, RetryBudgetLayer, RetryPolicy,
    body::ReplayBody,
    budget::{Key, StoreMode},
    observe::{Observe, metrics::Metrics},
    policy::AdaptiveLimits,
};

type Failure = Box<dyn Error + Send + Sync>;

/// How search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    Healthy,
    /// One answer in ten is a failure: retries mend it.
    Flaky,
    /// A third of the answers are: the budget denies retries, and calls are given up.
    Broken,
}

impl Health {
    const ALL: [Self; 3] = [Self::Healthy, Self::Flaky, Self::Broken];

    fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Flaky => "flaky",
            Self::Broken => "broken",
        }
    }

    /// The share of answers that are a 500, and that are a 503 with a `Retry-After`.
    fn failures(self) -> (f64, f64) {
        match self {
            Self::Healthy => (0.0, 0.0),
            Self::Flaky => (0.1, 0.0),
            Self::Broken => (0.32, 0.03),
        }
    }
}

/// The service, as it runs.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    state: AppState,
}

#[derive(Clone)]
struct AppState {
    client: RetryBudget<Client<HttpConnector, ReplayBody<Body>>>,
    search: SocketAddr,
    prices: SocketAddr,
    health: Arc<AtomicU8>,
    metrics: Metrics,
    scrape: PrometheusHandle,
}

/// Installs a recorder with the buckets that suit the metrics, for the whole process.
pub(crate) fn install_recorder(metrics: &Metrics) -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in metrics.buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name), buckets)?;
    }
    builder.install_recorder()
}

impl App {
    /// Starts both dependencies and the service.
    pub(crate) async fn start(address: SocketAddr) -> Result<Self, Failure> {
        let health = Arc::new(AtomicU8::new(0));
        let search = dependency(Arc::clone(&health)).await?;
        let prices = dependency(Arc::default()).await?;

        // The ports are chance, so the dependencies get names.
        let name = move |key: &Key| {
            let port: u16 = key.to_string().rsplit(':').next()?.parse().ok()?;
            let names = [(search, "search"), (prices, "prices")];
            let named = names.iter().find(|(address, _)| address.port() == port);
            named.map(|(_, name)| (*name).into())
        };
        let metrics = Metrics::builder().dependency_fn(name).build();
        let scrape = install_recorder(&metrics)?;

        let policy = RetryPolicy::builder()
            .total_timeout(Duration::from_secs(10))
            .attempt_timeout(Duration::from_secs(2))
            .build()?;
        // From half on, which search never comes to: it is to be seen what retries do.
        let limits = AdaptiveLimits::builder()
            .error_rates([(0.5, 0.3)])
            .build()?;
        let client = RetryBudgetLayer::new()
            .policy(policy)
            .adaptive(limits)
            .observe(metrics.clone())
            .layer(Client::builder(TokioExecutor::new()).build_http());

        let state = AppState {
            client,
            search,
            prices,
            health,
            metrics,
            scrape,
        };
        let app = Router::new()
            .route("/search", get(ask_search))
            .route("/prices", get(ask_prices))
            .route("/metrics", get(metrics_page))
            .route("/health/{health}", post(set_health))
            .layer(DeadlineLayer::new())
            .with_state(state.clone());
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, state })
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.state.set_health(health);
    }

    pub(crate) fn scrape(&self) -> String {
        self.state.scrape()
    }

    /// One call to search, as a handler makes it.
    pub(crate) async fn search(&self) -> Response {
        self.state.ask(self.state.search).await
    }

    /// Has a hundred users a second ask for both, for as long as it is polled.
    pub(crate) async fn traffic(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            for dependency in [self.state.search, self.state.prices] {
                let state = self.state.clone();
                tokio::spawn(async move { drop(state.ask(dependency).await) });
            }
        }
    }
}

impl AppState {
    async fn ask(&self, dependency: SocketAddr) -> Response {
        let request = Request::get(format!("http://{dependency}/find?q=secret"));
        let request = match request.body(Body::empty()) {
            Ok(request) => request,
            Err(error) => return refuse(&error),
        };
        match self.client.clone().oneshot(request).await {
            Ok(response) => response.map(Body::new),
            Err(error) => refuse(&error),
        }
    }

    fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
        // There is no shared budget in this example. One on Redis tells this by itself when its store
        // does not answer.
        if health == Health::Broken {
            self.metrics.store_failed("timeout");
            self.metrics.store_mode_changed(StoreMode::LocalShare);
        } else {
            self.metrics.store_mode_changed(StoreMode::Fleet);
        }
    }

    fn scrape(&self) -> String {
        self.metrics.refresh();
        self.scrape.render()
    }
}

fn refuse(error: &dyn Error) -> Response {
    (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
}

async fn ask_search(State(state): State<AppState>) -> Response {
    state.ask(state.search).await
}

async fn ask_prices(State(state): State<AppState>) -> Response {
    state.ask(state.prices).await
}

async fn metrics_page(State(state): State<AppState>) -> impl IntoResponse {
    let plain = "text/plain; version=0.0.4";
    ([(header::CONTENT_TYPE, plain)], state.scrape())
}

async fn set_health(State(state): State<AppState>, Path(name): Path<String>) -> StatusCode {
    match Health::ALL.into_iter().find(|health| health.name() == name) {
        Some(health) => {
            state.set_health(health);
            StatusCode::NO_CONTENT
        }
        None => StatusCode::NOT_FOUND,
    }
}

/// A dependency on a free port of the loopback interface.
async fn dependency(health: Arc<AtomicU8>) -> std::io::Result<SocketAddr> {
    let answer = move || {
        let health = Health::ALL.get(usize::from(health.load(Ordering::Relaxed)));
        let (errors, throttled) = health.map_or((0.0, 0.0), |health| health.failures());
        let chance = fastrand::f64();
        std::future::ready(if chance < errors {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        } else if chance < errors + throttled {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                [(header::RETRY_AFTER, "2")],
            )
                .into_response()
        } else if chance > 0.98 {
            // Nothing is wrong with this answer, and it is not retried.
            StatusCode::NOT_FOUND.into_response()
        } else {
            "found".into_response()
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/find", get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}
