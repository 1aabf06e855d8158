//! A chain of services: each handler calls the next one through a layer of its own.

use super::network::{Body, Link, lock};
use http::{Request, Response, StatusCode, Uri};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_retry_budget::{
    DeadlineLayer, RetryBudgetLayer, body::ReplayBody, deadline::DEADLINE_REMAINING_MS,
};

pub(crate) type Boxed = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// An attempt that left a hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// 0 is the edge.
    pub(crate) hop: usize,
    pub(crate) call: u32,
    pub(crate) at: Duration,
    /// The time that the attempt says is left.
    pub(crate) left: Option<Duration>,
}

/// Every attempt of every hop.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    start: Instant,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Watch {
    pub(crate) fn new(start: Instant) -> Self {
        let sent = Arc::default();
        Self { start, sent }
    }

    pub(crate) fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *lock(&self.sent))
    }

    fn see<B>(&self, hop: usize, request: &Request<B>) {
        let left = request.headers().get(DEADLINE_REMAINING_MS);
        let left = left.and_then(|left| left.to_str().ok()?.parse().ok());
        lock(&self.sent).push(Sent {
            hop,
            call: request
                .uri()
                .path()
                .trim_start_matches('/')
                .parse()
                .unwrap_or(0),
            at: self.start.elapsed(),
            left: left.map(Duration::from_millis),
        });
    }
}

/// What the hops of a chain are.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// The layers: the edge's and those of the services between it and the leaf.
    pub(crate) layers: Vec<RetryBudgetLayer>,
    /// How long a handler works before it calls the next one.
    pub(crate) work: Duration,
    /// Whether the services have a `DeadlineLayer`.
    pub(crate) cooperate: bool,
}

impl Chain {
    /// Builds it from the leaf to the edge.
    pub(crate) fn build(self, leaf: Link, watch: &Watch) -> Boxed {
        let mut next = BoxCloneSyncService::new(leaf);
        for (hop, layer) in self.layers.into_iter().enumerate().rev() {
            let client = caller(hop, &layer, next, watch.clone());
            next = match (hop, self.cooperate) {
                (0, _) => client,
                (_, true) => bodiless(DeadlineLayer::new().layer(handler(client, self.work))),
                (_, false) => handler(client, self.work),
            };
        }
        next
    }
}

/// The layer around the way to the next hop.
fn caller(hop: usize, layer: &RetryBudgetLayer, next: Boxed, watch: Watch) -> Boxed {
    let inner = ServiceBuilder::new()
        .map_request(move |request: Request<ReplayBody<Body>>| {
            watch.see(hop, &request);
            request.map(|_| Body::new())
        })
        .service(next);
    bodiless(layer.layer(inner))
}

fn bodiless<S, B>(service: S) -> Boxed
where
    S: tower::Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service.map_response(|response| response.map(|_| Body::new())))
}

/// Works, asks the next hop, and says no more than `502` when that fails.
fn handler(client: Boxed, work: Duration) -> Boxed {
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            sleep(work).await;
            let status = ask(client, request.uri().clone()).await;
            let mut response = Response::new(Body::new());
            *response.status_mut() = match status.is_success() {
                true => StatusCode::OK,
                false => StatusCode::BAD_GATEWAY,
            };
            Ok(response)
        }
    }))
}

pub(crate) async fn ask(client: Boxed, uri: Uri) -> StatusCode {
    let mut request = Request::new(Body::new());
    *request.uri_mut() = uri;
    let Ok(response) = client.oneshot(request).await;
    response.status()
}
