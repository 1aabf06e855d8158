//! What the clients are: the crate's own layer, with its own budget or with a peer's rule in its
//! place, and tower's retries.
//!
//! All of them have the same policy: attempts, back-off and time-outs. What differs is what limits
//! the retries over many calls.

mod budgets;
mod envoy;
mod policy;
mod tower_retry;

pub(crate) use self::budgets::{Aws, Grpc};
pub(crate) use self::policy::{Limit, Policy, Waits};
use self::{
    budgets::{Breaker, Bucket, Refunding},
    envoy::Envoy,
    tower_retry::TowerRetry,
};
use crate::sim::{Body, Link};
use http::{Request, StatusCode};
use std::{fmt, sync::Arc, time::Duration};
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    HoldOff, RetryBudget, RetryBudgetLayer,
    budget::{Budget, TokenBudget, WindowBudget},
};

/// What limits the retries of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// One attempt for each call.
    NoRetries,
    /// As many attempts as the policy allows, whatever happens.
    Unlimited,
    /// `tower::retry` with its `TpsBudget`: a fifth of the successes of 10 s, and 10 retries per
    /// second.
    TowerTps,
    /// A fifth of the calls of 10 s, and 10 retries per second.
    Finagle,
    /// A tenth of a token for each success, at most 5 of them.
    BucketOfSuccesses,
    /// A tenth of a token for each call begun, at most 5 of them, full to begin with.
    BucketOfCalls,
    /// 10 tokens, less one for each failure, a tenth more for each success; retries above 5.
    Grpc,
    /// 500 tokens, 14 for a retry, given back where it succeeds; 1 more for each first success.
    Aws,
    /// A fifth of what is under way, at least 3.
    Envoy,
    /// Retries while at most a tenth of the calls fail.
    Breaker,
    /// A tenth of a token for each success, at most 10 of them, given back where the retry succeeds,
    /// whatever was retried.
    RefundAll,
    /// What this crate does unless told otherwise.
    Default,
    /// The same, but every retry that succeeds is given back, whatever it was of.
    DefaultRefundingAll,
    /// What this crate does, and a `Retry-After` holds for all calls of a client.
    HoldOff,
    /// A retry for ten calls of 5 s, and nothing besides.
    TenthOfCalls,
    /// This crate's rule, in one budget for all clients together.
    Fleet,
    /// This crate's rule with other numbers.
    Own { ratio: f64, cap: u64, initial: u64 },
}

/// The cap of the budget that a fleet shares, as a budget in a store would have it.
const FLEET_CAP: u64 = 100;

impl Rule {
    /// One client each for so many processes.
    pub(crate) fn clients(
        self,
        processes: usize,
        policy: &Policy,
        seed: u64,
        mut link: impl FnMut() -> Link,
    ) -> Vec<Client> {
        let retry = policy.retry(seed, self == Self::NoRetries);
        if self == Self::TowerTps {
            let tower = (0..processes).map(|_| TowerRetry::new(link(), policy, seed));
            return tower
                .map(|client| Client::Tower(Box::new(client)))
                .collect();
        }
        let shared: Option<Arc<dyn Budget>> = (self == Self::Fleet).then(|| {
            let fleet = TokenBudget::builder().cap(FLEET_CAP).initial(5).build();
            Arc::new(fleet.expect("valid numbers")) as Arc<dyn Budget>
        });
        let clients = (0..processes).map(|_| {
            let link = link();
            let budget = shared.clone().unwrap_or_else(|| self.budget(&link));
            let layer = RetryBudgetLayer::new()
                .policy(retry.clone())
                .shared_budget(budget);
            let layer = match self {
                Self::HoldOff => layer.hold_off(HoldOff::new()),
                Self::Unlimited => layer.max_waiting(usize::MAX),
                _ => layer,
            };
            Client::Layer(Box::new(layer.layer(link)))
        });
        clients.collect()
    }

    /// A budget for one process.
    pub(crate) fn budget(self, link: &Link) -> Arc<dyn Budget> {
        match self {
            Self::NoRetries | Self::Unlimited | Self::TowerTps => Arc::new(unlimited()),
            Self::Finagle => Arc::new(WindowBudget::finagle()),
            Self::BucketOfSuccesses => Arc::new(Bucket::of_successes()),
            Self::BucketOfCalls => Arc::new(Bucket::of_calls()),
            Self::Grpc => Arc::new(Grpc::default()),
            Self::Aws => Arc::new(Aws::default()),
            Self::Envoy => Arc::new(Envoy::new(link.under_way())),
            Self::Breaker => Arc::new(Breaker::default()),
            Self::RefundAll => Arc::new(Bucket::refunding()),
            Self::DefaultRefundingAll => Arc::new(Refunding::default()),
            Self::TenthOfCalls => {
                let tenth = WindowBudget::builder()
                    .of_attempts()
                    .ratio(0.1)
                    .allowance(0);
                let tenth = tenth.window(Duration::from_secs(5));
                Arc::new(tenth.build().expect("valid numbers"))
            }
            Self::Default | Self::HoldOff | Self::Fleet => Arc::new(TokenBudget::default()),
            Self::Own {
                ratio,
                cap,
                initial,
            } => {
                let own = TokenBudget::builder()
                    .ratio(ratio)
                    .cap(cap)
                    .initial(initial);
                Arc::new(own.build().expect("numbers that were checked"))
            }
        }
    }
}

/// A budget that never ends.
fn unlimited() -> TokenBudget {
    let most = u64::from(u32::MAX);
    let budget = TokenBudget::builder().cap(most).initial(most).no_ceiling();
    budget.build().expect("valid numbers")
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::NoRetries => "no retries",
            Self::Unlimited => "retries, no budget",
            Self::TowerTps => "tower::retry, TpsBudget",
            Self::Finagle => "Finagle 20 % + 10/s",
            Self::BucketOfSuccesses => "bucket, 0.1 per success",
            Self::BucketOfCalls => "bucket, 0.1 per call",
            Self::Grpc => "gRPC 10 / 0.1",
            Self::Aws => "AWS 500 / 14",
            Self::Envoy => "Envoy 20 %, min 3",
            Self::Breaker => "breaker at 10 %",
            Self::RefundAll => "bucket 0.1, refunds all",
            Self::Default => "this crate",
            Self::DefaultRefundingAll => "this crate, refunds all",
            Self::HoldOff => "this crate, hold-off",
            Self::TenthOfCalls => "budget of 10 %",
            Self::Fleet => "this crate, one budget",
            Self::Own { .. } => "your policy",
        };
        f.pad(name)
    }
}

/// A process that calls.
#[derive(Clone)]
pub(crate) enum Client {
    Layer(Box<RetryBudget<Link>>),
    Tower(Box<TowerRetry>),
}

impl Client {
    /// Makes one call, and says what came of it.
    pub(crate) async fn call(&mut self, request: Request<Body>) -> StatusCode {
        match self {
            Self::Layer(service) => {
                let Ok(service) = ServiceExt::<Request<Body>>::ready(&mut **service).await;
                let Ok(response) = service.call(request).await;
                response.status()
            }
            Self::Tower(service) => service.call(request).await,
        }
    }
}
