//! What a chain is made of.

#![allow(
    unreachable_pub,
    reason = "as in `support`: shared by the files beside it"
)]

use crate::support::{
    BoxError, MS, SECOND, ample,
    client::{Http, http1, request},
};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::Full;
use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    DeadlineLayer, RetryBudget, RetryBudgetLayer, RetryPolicy,
    body::{ReplayBody, ResponseBody},
    deadline::{DEADLINE_REMAINING_MS, RETRY_ATTEMPT, RetryHeaders},
    policy::{Backoff, RetryPolicyBuilder},
};

/// The longest chain takes a second or two; a machine that does other things takes longer.
const HANGS: Duration = Duration::from_secs(25);

/// Runs a chain that must not hang.
pub async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, future).await.expect("it hangs")
}

/// A policy with waits so short that what is counted comes soon.
pub fn eager(attempts: u32) -> RetryPolicyBuilder {
    RetryPolicy::builder()
        .max_attempts(attempts)
        .backoff(Backoff::fixed(MS))
        .throttled_backoff(Backoff::fixed(MS))
}

/// A client's layer with this policy, and a budget that is not used up.
pub fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// A request, or the sending of one, and what was said with it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub headers: HeaderMap,
}

impl Seen {
    pub fn text(&self, name: impl AsRef<str>) -> Option<&str> {
        let value = self.headers.get(name.as_ref())?;
        Some(value.to_str().expect("a readable header"))
    }

    pub fn attempt(&self) -> Option<&str> {
        self.text(RETRY_ATTEMPT)
    }

    /// The time left, by the header.
    pub fn left(&self) -> Option<Duration> {
        let millis = self.text(DEADLINE_REMAINING_MS)?;
        Some(Duration::from_millis(millis.parse().expect("a number")))
    }
}

/// What is written down of requests, in order.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<Seen>>>);

impl Notes {
    fn note(&self, headers: &HeaderMap) {
        let (at, headers) = (Instant::now(), headers.clone());
        self.lock().push(Seen { at, headers });
    }

    pub fn all(&self) -> Vec<Seen> {
        self.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    pub fn attempts(&self) -> Vec<Option<String>> {
        let attempts = |seen: &Seen| seen.attempt().map(Into::into);
        self.lock().iter().map(attempts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.lock().expect("nobody panics while it is held")
    }
}

/// A server on loopback that writes down what comes. It stops when it is dropped.
pub struct Hop {
    address: SocketAddr,
    pub arrivals: Notes,
    /// When its answers were ready, with their headers.
    pub answers: Notes,
    live: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Hop {
    pub async fn serve(app: Router) -> Self {
        let (arrivals, answers) = (Notes::default(), Notes::default());
        let live = Arc::<AtomicUsize>::default();
        let (came, went, guard) = (arrivals.clone(), answers.clone(), Arc::clone(&live));
        let app = app.layer(middleware::from_fn(move |request: Request, next: Next| {
            let (came, went, guard) = (came.clone(), went.clone(), Live::new(&guard));
            async move {
                let _live = guard;
                came.note(request.headers());
                let response = next.run(request).await;
                went.note(response.headers());
                response
            }
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self {
            address,
            arrivals,
            answers,
            live,
            task,
        }
    }

    /// A server that always answers with this status.
    pub async fn always(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        Self::serve(Router::new().fallback(move || async move { status })).await
    }

    /// A server that fails so many times, and is well afterwards.
    pub async fn flaky(failures: usize) -> Self {
        let count = Arc::<AtomicUsize>::default();
        let answer = move || async move {
            if count.fetch_add(1, Ordering::SeqCst) < failures {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::OK
            }
        };
        Self::serve(Router::new().fallback(answer)).await
    }

    /// A server that never answers.
    pub async fn hanging() -> Self {
        let app = Router::new().fallback(std::future::pending::<StatusCode>);
        Self::serve(app).await
    }

    pub fn uri(&self) -> String {
        format!("http://{}/find?q=1", self.address)
    }

    pub fn count(&self) -> usize {
        self.arrivals.count()
    }

    /// How many handlers are at work.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A handler at work.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Sent = ReplayBody<Full<Bytes>>;

/// The client of one hop: a layer over a real connection pool.
#[derive(Clone)]
pub struct Client {
    service: RetryBudget<Stamped>,
    uri: Arc<str>,
    /// The attempts as they were sent.
    pub stamps: Notes,
}

impl Client {
    pub fn new(layer: &RetryBudgetLayer, next: &Hop) -> Self {
        let stamps = Notes::default();
        let inner = Stamped {
            inner: http1(),
            stamps: stamps.clone(),
        };
        Self {
            service: layer.layer(inner),
            uri: next.uri().into(),
            stamps,
        }
    }

    pub async fn get(&self) -> Response<ResponseBody<hyper::body::Incoming>> {
        self.call("GET").await
    }

    pub async fn call(&self, method: &str) -> Response<ResponseBody<hyper::body::Incoming>> {
        self.send(request(method, &self.uri, Full::default())).await
    }

    pub async fn send(
        &self,
        request: http::Request<Full<Bytes>>,
    ) -> Response<ResponseBody<hyper::body::Incoming>> {
        let answer = self.service.clone().oneshot(request).await;
        answer.expect("a response")
    }
}

/// A connection pool that writes down what is sent.
#[derive(Clone)]
struct Stamped {
    inner: Http<Full<Bytes>>,
    stamps: Notes,
}

impl Service<http::Request<Sent>> for Stamped {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper_util::client::legacy::Error;
    type Future = hyper_util::client::legacy::ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Sent>) -> Self::Future {
        self.stamps.note(request.headers());
        self.inner.call(request)
    }
}

/// What a server in the middle makes of the answer that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A plain 502 for whatever is no success.
    Plain,
    /// The answer itself, with its headers.
    Proxied,
}

impl Answer {
    fn to<B>(self, response: Response<B>) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self {
            Self::Plain if response.status().is_success() => StatusCode::OK.into_response(),
            Self::Plain => StatusCode::BAD_GATEWAY.into_response(),
            Self::Proxied => response.map(Body::new),
        }
    }
}

/// What a server in the middle has around its handler.
#[derive(Clone)]
pub enum Server {
    /// Nothing of this crate.
    Bare,
    Deadline(DeadlineLayer),
    Handlers(RetryBudgetLayer),
}

impl Server {
    pub fn deadline() -> Self {
        Self::Deadline(DeadlineLayer::new())
    }

    pub fn handlers() -> Self {
        Self::Handlers(RetryBudgetLayer::for_handlers())
    }

    pub fn around(&self, app: Router) -> Router {
        match self {
            Self::Bare => app,
            Self::Deadline(layer) => app.layer(layer.clone()),
            Self::Handlers(layer) => app.layer(layer.clone()),
        }
    }
}

/// A server that calls the next one, whatever it was asked.
pub async fn middle(server: &Server, client: Client, answer: Answer) -> Hop {
    let handler = move || {
        let client = client.clone();
        async move { answer.to(client.get().await) }
    };
    Hop::serve(server.around(Router::new().fallback(handler))).await
}

/// A chain: the test's own client, servers in the middle, and a leaf.
pub struct Chain {
    pub client: Client,
    /// The clients of the servers in the middle, the one nearest to the test's own first.
    pub clients: Vec<Client>,
    /// The servers in the middle, the one nearest to the test's own client first.
    pub middle: Vec<Hop>,
    pub leaf: Hop,
}

impl Chain {
    /// A chain with so many clients, each of which has a layer of its own.
    pub async fn new(
        clients: usize,
        layer: impl Fn() -> RetryBudgetLayer,
        server: &Server,
        answer: Answer,
        leaf: Hop,
    ) -> Self {
        let (mut middles, mut inner) = (Vec::new(), Vec::new());
        for _ in 1..clients {
            let next = middles.last().unwrap_or(&leaf);
            let client = Client::new(&layer(), next);
            inner.push(client.clone());
            middles.push(middle(server, client, answer).await);
        }
        let client = Client::new(&layer(), middles.last().unwrap_or(&leaf));
        middles.reverse();
        inner.reverse();
        Self {
            client,
            clients: inner,
            middle: middles,
            leaf,
        }
    }

    /// Servers that know nothing of each other.
    pub async fn deaf(clients: usize, layer: impl Fn() -> RetryBudgetLayer, leaf: Hop) -> Self {
        let layer = || layer().headers(RetryHeaders::none());
        Self::new(clients, layer, &Server::Bare, Answer::Plain, leaf).await
    }

    /// How many requests came to each server, the leaf last.
    pub fn counts(&self) -> Vec<usize> {
        self.servers().map(Hop::count).collect()
    }

    pub fn servers(&self) -> impl Iterator<Item = &Hop> {
        self.middle.iter().chain([&self.leaf])
    }

    /// All attempts of all clients.
    pub fn stamps(&self) -> Vec<Seen> {
        let clients = self.clients.iter().chain([&self.client]);
        clients.flat_map(|client| client.stamps.all()).collect()
    }

    pub fn live(&self) -> usize {
        self.servers().map(Hop::live).sum()
    }
}

/// Waits until something has made it so.
pub async fn until(so: impl Fn() -> bool) {
    let soon = async {
        while !so() {
            tokio::time::sleep(MS).await;
        }
    };
    let came = tokio::time::timeout(5 * SECOND, soon).await;
    came.expect("it never happens");
}
