//! Calls through a layer with a fleet budget, to a dependency that always fails.

use crate::server::RedisServer;
use http::{Request, Response, StatusCode};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    body::{ReplayBody, ResponseBody},
    budget::{BudgetScope, Key, RedisBudget, StoreMode, TokenBudget},
    policy::Backoff,
};

/// All that there is: nothing is earned, nothing trickles in.
pub(crate) const TOKENS: u64 = 20;

/// What a call may take at the most, whatever Redis does.
const LONGEST: Duration = Duration::from_millis(250);

const KEY: Key = Key::from_static("down");

const ACCOUNT: &str = "{tower-retry-budget:1:down}";

type Body = http_body_util::Empty<bytes::Bytes>;

pub(crate) struct Traffic {
    service: BoxCloneService<Request<Body>, Response<ResponseBody<Body>>, Infallible>,
    budget: RedisBudget,
    sent: Arc<AtomicU64>,
    calls: AtomicU64,
}

impl Traffic {
    pub(crate) fn new(url: &str) -> Self {
        let gate = TokenBudget::builder().cap(1000).initial(1000);
        let budget = RedisBudget::builder(url)
            .cap(TOKENS)
            .initial(TOKENS)
            .no_trickle()
            .gate(gate)
            .build()
            .expect("valid settings");
        let policy = RetryPolicy::builder()
            .max_attempts(2)
            .backoff(Backoff::none())
            .build()
            .expect("valid settings");
        let layer = RetryBudgetLayer::new()
            .policy(policy)
            .budget(budget.clone())
            .budget_scope(BudgetScope::one("down"));
        let sent = Arc::new(AtomicU64::new(0));
        let count = sent.clone();
        let down = service_fn(move |_: Request<ReplayBody<Body>>| {
            count.fetch_add(1, Ordering::Relaxed);
            let mut response = Response::new(Body::new());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            async { Ok::<_, Infallible>(response) }
        });
        Self {
            service: BoxCloneService::new(layer.layer(down)),
            budget,
            sent,
            calls: AtomicU64::new(0),
        }
    }

    async fn call(&self) {
        let before = self.sent.load(Ordering::Relaxed);
        let began = Instant::now();
        let request = Request::get("http://down/").body(Body::new());
        let response = self.service.clone().oneshot(request.expect("valid")).await;
        let Ok(response) = response;
        assert!(response.status().is_server_error());
        let took = began.elapsed();
        assert!(took < LONGEST, "{took:?}");
        let attempts = self.sent.load(Ordering::Relaxed) - before;
        assert!(
            (1..=2).contains(&attempts),
            "the first attempt is always sent"
        );
        self.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// One call after the other, one every 50 ms.
    pub(crate) async fn calls(&self, count: u32) {
        for _ in 0..count {
            self.call().await;
        }
    }

    pub(crate) async fn run(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.call().await;
        }
    }

    pub(crate) async fn until_fleet(&self, at_most: Duration) {
        let end = Instant::now() + at_most;
        while self.mode() != Some(StoreMode::Fleet) {
            assert!(Instant::now() < end, "the fleet's rule is not back");
            self.call().await;
        }
    }

    pub(crate) fn mode(&self) -> Option<StoreMode> {
        self.budget.snapshot(&KEY, Instant::now().into_std()).mode()
    }

    pub(crate) fn retries(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) - self.calls.load(Ordering::Relaxed)
    }
}

/// By Redis's own ledger nothing came from nowhere.
pub(crate) async fn ledger_adds_up(server: &RedisServer) {
    let mut connection = server.connect().await;
    let fields = ["balance", "earned", "back", "leased", "owed"];
    let [balance, earned, back, leased, owed]: [i64; 5] = redis::cmd("HMGET")
        .arg(ACCOUNT)
        .arg(&fields)
        .query_async(&mut connection)
        .await
        .expect("an account");
    assert_eq!(balance, earned + back - leased - owed);
    assert!(balance >= 0);
}
