//! One process of the fleet: a client of the dependency, with a share in the budget.

use crate::TICK;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HyperClient, Error as HyperError},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, stdin},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tower::{ServiceBuilder, ServiceExt, util::BoxCloneSyncService};
use tower_retry_budget::{
    RetryBudgetLayer,
    body::ResponseBody,
    budget::{Key, RedisBudget, StoreMode},
};

type Client =
    BoxCloneSyncService<Request<Empty<Bytes>>, Response<ResponseBody<Incoming>>, HyperError>;

pub(crate) const CALLS_PER_SECOND: u32 = 25;

/// The fleet's cap: half of what the processes could spend if each had a budget of its own, with the
/// default cap of 10.
pub(crate) fn cap(processes: u32) -> u32 {
    5 * processes
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) dependency: String,
    pub(crate) redis: String,
    pub(crate) processes: u32,
}

/// What a process tells of itself: a line of JSON.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) calls: u64,
    /// Calls that got no response at all.
    pub(crate) unanswered: u64,
    pub(crate) attempts: u64,
    pub(crate) spent: u64,
    /// The fleet's, or this process's own share of it.
    pub(crate) balance: f64,
    pub(crate) is_fleet: bool,
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    unanswered: AtomicU64,
    attempts: AtomicU64,
}

/// Calls the dependency until standard input ends.
pub(crate) async fn run(settings: Settings) -> Result<(), Box<dyn Error>> {
    let uri: Uri = settings.dependency.parse()?;
    let key = Key::from_uri(&uri);
    let budget = RedisBudget::builder(&settings.redis)
        .cap(cap(settings.processes).into())
        .expected_processes(settings.processes.into())
        .build()?;

    let counts = Arc::new(Counts::default());
    let attempts = Arc::clone(&counts);
    let client = HyperClient::builder(TokioExecutor::new())
        // It would send what the layer does not know of.
        .retry_canceled_requests(false)
        .build_http();
    let client: Client = ServiceBuilder::new()
        .layer(BoxCloneSyncService::layer())
        .layer(RetryBudgetLayer::new().budget(budget.clone()))
        .map_request(move |request: Request<_>| {
            attempts.attempts.fetch_add(1, Ordering::Relaxed);
            request
        })
        .service(client);

    let mut stop = tokio::spawn(async { stdin().read_to_end(&mut Vec::new()).await });
    let mut calls = JoinSet::new();
    let mut next_call = interval(Duration::from_secs(1) / CALLS_PER_SECOND);
    next_call.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut next_line = interval(TICK);
    loop {
        tokio::select! {
            _ = &mut stop => break,
            _ = next_call.tick() => {
                counts.calls.fetch_add(1, Ordering::Relaxed);
                let request = Request::get(&uri).body(Empty::new())?;
                let (client, counts) = (client.clone(), Arc::clone(&counts));
                calls.spawn(async move {
                    if client.oneshot(request).await.is_err() {
                        counts.unanswered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            _ = next_line.tick() => tell(&budget, &key, &counts)?,
            Some(_) = calls.join_next() => {}
        }
    }
    budget.drain().await;
    while calls.join_next().await.is_some() {}
    tell(&budget, &key, &counts)
}

fn tell(budget: &RedisBudget, key: &Key, counts: &Counts) -> Result<(), Box<dyn Error>> {
    let snapshot = budget.snapshot(key, Instant::now().into_std());
    let told = Told {
        calls: counts.calls.load(Ordering::Relaxed),
        unanswered: counts.unanswered.load(Ordering::Relaxed),
        attempts: counts.attempts.load(Ordering::Relaxed),
        spent: snapshot.spent(),
        balance: snapshot.balance(),
        is_fleet: snapshot.mode() == Some(StoreMode::Fleet),
    };
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}
