//! Delivers what the store has, an endpoint at a time and all endpoints at once.

use crate::{
    clock::now_ms,
    settings::{Endpoint, Settings},
    sign::{Sign, Signed},
    store::{Delivery, Failure, Store},
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tower::{Layer, ServiceExt};
use tower_retry_budget::{
    ConfigError, Delivery as Outcome, DeliveryRecord, Persist, RetryBudget, RetryBudgetLayer,
    RetryPolicy, RetryState,
    body::ReplayBody,
    budget::{BudgetScope, Key, Snapshot, TokenBudget},
    policy::Idempotent,
    reason::StopReason,
};

type Http = Client<HttpConnector, ReplayBody<Full<Bytes>>>;

/// How many deliveries to one endpoint are under way at most. What is broken holds its own places and
/// nobody else's.
const PLACES: usize = 16;

/// How often an endpoint is looked at whether anything is due.
const LOOK: Duration = Duration::from_millis(100);

/// How long deliveries under way may take to end when the process is to stop.
const GRACE: Duration = Duration::from_secs(10);

/// An answer's body is read so far, for as long, so that its connection can be used again.
const ANSWER: usize = 64 * 1024;
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The endpoint that a request goes to, for the budget.
#[derive(Clone)]
struct To(Key);

pub(crate) struct Dispatcher {
    pub(crate) store: Store,
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    pub(crate) classes: BTreeMap<String, RetryPolicy>,
    budget: Arc<TokenBudget>,
    client: RetryBudget<Sign<Http>>,
    in_flight: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// How often something came.
    news: watch::Sender<u64>,
}

impl Dispatcher {
    pub(crate) fn new(store: Store, settings: &Settings) -> Result<Self, Failure> {
        let budget = Arc::new(budget()?);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let layer = RetryBudgetLayer::new()
            .shared_budget(budget.clone())
            // Endpoints are strangers: they are told of no deadline and no retries.
            .propagate_to(|_| false)
            // One account for each endpoint, also where two are on one host.
            .budget_scope(BudgetScope::key_fn(|head| {
                head.extensions.get::<To>().map(|to| to.0.clone())
            }));
        Ok(Self {
            store,
            endpoints: settings.endpoints.clone(),
            classes: settings.policies()?,
            budget,
            client: layer.layer(Sign(client)),
            in_flight: Mutex::default(),
            news: watch::Sender::default(),
        })
    }

    /// Delivers until it is told to stop, and lets what is under way end.
    pub(crate) async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let mut endpoints = JoinSet::new();
        for name in self.endpoints.keys().cloned() {
            endpoints.spawn(Arc::clone(&self).serve(name, stop.clone()));
        }
        while endpoints.join_next().await.is_some() {}
    }

    async fn serve(self: Arc<Self>, endpoint: String, mut stop: watch::Receiver<bool>) {
        let mut deliveries = JoinSet::new();
        let mut news = self.news.subscribe();
        while !*stop.borrow() {
            while deliveries.try_join_next().is_some() {}
            if self.begin(&endpoint, &mut deliveries).await == 0 {
                tokio::select! {
                    _ = news.changed() => {}
                    _ = deliveries.join_next(), if !deliveries.is_empty() => {}
                    () = tokio::time::sleep(LOOK) => {}
                    _ = stop.changed() => {}
                }
            }
        }
        // What does not end in time is cut off. It is kept how far it had come, as after a SIGKILL.
        _ = timeout(GRACE, async {
            while deliveries.join_next().await.is_some() {}
        })
        .await;
    }

    /// Begins what is due, as far as there is room. Returns how many that were.
    async fn begin(self: &Arc<Self>, endpoint: &str, deliveries: &mut JoinSet<()>) -> usize {
        let busy: Vec<_> = self
            .busy()
            .get(endpoint)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let room = PLACES.saturating_sub(busy.len());
        if room == 0 || self.store.is_gone(endpoint).await.unwrap_or(true) {
            return 0;
        }
        let due = self
            .store
            .due(endpoint, busy, room)
            .await
            .unwrap_or_default();
        let begun = due.len();
        for delivery in due {
            let flight = Flight::begin(self, &delivery);
            let dispatcher = Arc::clone(self);
            deliveries.spawn(async move {
                let id = delivery.id.clone();
                if let Err(error) = dispatcher.deliver(delivery).await {
                    // It stays as it was kept, and is tried again.
                    tracing::warn!(id, error, "the store failed");
                    tokio::time::sleep(LOOK).await;
                }
                drop(flight);
            });
        }
        begun
    }

    /// Makes one call of the layer, and keeps what became of it.
    async fn deliver(&self, delivery: Delivery) -> Result<(), Failure> {
        let Delivery {
            id,
            endpoint,
            class,
            body,
            state,
        } = delivery;
        let answer = match self.request(&id, &endpoint, &class, body, state) {
            Ok(request) => self.client.clone().oneshot(request).await,
            Err(error) => return Err(error),
        };
        let record = DeliveryRecord::of(&answer);
        let state = answer.as_ref().ok().and_then(|response| {
            let state = response.extensions().get::<RetryState>();
            state.copied()
        });
        read(answer).await;
        match (record.outcome, state) {
            (Outcome::Stopped(reason), Some(state)) if comes_again(reason) => {
                let not_before = record.not_before_ms.and_then(|at| i64::try_from(at).ok());
                let not_before = not_before.unwrap_or_else(|| now_ms() + 1000);
                self.store.postpone(id, state, not_before).await
            }
            (outcome, _) => {
                tracing::info!(id, endpoint, outcome = outcome.as_str(), "ended");
                if record.last_status == Some(StatusCode::GONE.as_u16()) {
                    self.store.quarantine(endpoint, record.clone()).await?;
                }
                self.store.finish(id, record).await
            }
        }
    }

    fn request(
        &self,
        id: &str,
        endpoint: &str,
        class: &str,
        body: String,
        state: RetryState,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let to = self.endpoints.get(endpoint).ok_or("no such endpoint")?;
        let policy = self.classes.get(class).ok_or("no such class")?;
        let body = Bytes::from(body);
        let store = self.store.clone();
        let kept = id.to_owned();
        let request = Request::post(to.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .extension(policy.clone())
            // Receivers know an event by its id, the same on each attempt: to repeat it does no harm.
            .extension(Idempotent(true))
            .extension(To(Key::new(endpoint.to_owned())))
            .extension(state)
            .extension(Persist::new(move |state| {
                let (store, id) = (store.clone(), kept.clone());
                async move { store.keep(id, state).await }
            }))
            .extension(Signed {
                id: HeaderValue::from_str(id)?,
                secret: to.secret.clone(),
                body: body.clone(),
            });
        Ok(request.body(Full::new(body))?)
    }

    /// Something is due: looks for it at once.
    pub(crate) fn look(&self) {
        self.news
            .send_modify(|times| *times = times.wrapping_add(1));
    }

    /// How many deliveries to an endpoint are under way.
    pub(crate) fn in_flight(&self, endpoint: &str) -> usize {
        self.busy().get(endpoint).map_or(0, BTreeSet::len)
    }

    pub(crate) fn account(&self, endpoint: &str) -> Snapshot {
        let now = tokio::time::Instant::now().into_std();
        self.budget.snapshot(&Key::new(endpoint.to_owned()), now)
    }

    fn busy(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an endpoint that is down is asked at most, and what a backlog is worked off with: five retries a
/// second and twenty at once, besides what deliveries at the first attempt earn.
fn budget() -> Result<TokenBudget, ConfigError> {
    TokenBudget::builder()
        .initial(20)
        .cap(50)
        .trickle(Duration::from_millis(200))
        .build()
}

/// Whether a delivery that the layer gave up is tried again later, within its window: what stopped it
/// says nothing of the delivery itself.
fn comes_again(reason: StopReason) -> bool {
    matches!(
        reason,
        StopReason::Deferred
            | StopReason::Budget
            | StopReason::CircuitOpen
            | StopReason::Overloaded
            | StopReason::ShuttingDown
    )
}

async fn read<B, E>(answer: Result<Response<B>, E>)
where
    B: http_body::Body,
    B::Error: Into<Failure>,
{
    if let Ok(response) = answer {
        let body = Limited::new(response.into_body(), ANSWER);
        _ = timeout(ANSWER_TIME, body.collect()).await;
    }
}

/// A delivery under way: not to be begun a second time.
struct Flight {
    dispatcher: Arc<Dispatcher>,
    endpoint: String,
    id: String,
}

impl Flight {
    fn begin(dispatcher: &Arc<Dispatcher>, delivery: &Delivery) -> Self {
        let (endpoint, id) = (delivery.endpoint.clone(), delivery.id.clone());
        let mut busy = dispatcher.busy();
        busy.entry(endpoint.clone()).or_default().insert(id.clone());
        drop(busy);
        Self {
            dispatcher: Arc::clone(dispatcher),
            endpoint,
            id,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ids) = self.dispatcher.busy().get_mut(&self.endpoint) {
            ids.remove(&self.id);
        }
    }
}
