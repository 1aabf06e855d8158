//! What one would build of tower alone: its `Retry` around its `Timeout`, with its `TpsBudget`.

use super::Policy;
use crate::sim::{Body, Link};
use http::{Request, Response, StatusCode};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tower::{
    Service, ServiceExt,
    retry::{
        self, Retry,
        budget::{Budget as _, TpsBudget},
    },
    timeout::{Timeout, error::Elapsed},
};
use tower_retry_budget::policy::Backoff;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<Response<Body>, BoxError>;

/// As good as no time-out.
const LONG: Duration = Duration::from_secs(3600);

#[derive(Clone)]
pub(crate) struct TowerRetry(Retry<Attempts, Timeout<Link>>);

impl TowerRetry {
    pub(super) fn new(link: Link, policy: &Policy, seed: u64) -> Self {
        let attempts = Attempts {
            made: 1,
            most: policy.most_attempts(),
            waits: policy.backoff(seed),
            waited: Duration::ZERO,
            budget: Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2)),
        };
        let link = Timeout::new(link, policy.attempt_timeout.unwrap_or(LONG));
        Self(Retry::new(attempts, link))
    }

    pub(super) async fn call(&mut self, request: Request<Body>) -> StatusCode {
        let outcome = match self.0.ready().await {
            Ok(service) => service.call(request).await,
            Err(error) => Err(error),
        };
        outcome.map_or(StatusCode::GATEWAY_TIMEOUT, |response| response.status())
    }
}

#[derive(Clone)]
struct Attempts {
    made: u32,
    most: u32,
    waits: Backoff,
    waited: Duration,
    budget: Arc<TpsBudget>,
}

impl retry::Policy<Request<Body>, Response<Body>, BoxError> for Attempts {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(&mut self, _: &mut Request<Body>, outcome: &mut Outcome) -> Option<Self::Future> {
        let failed = match outcome {
            Ok(response) => response.status().is_server_error(),
            Err(error) => error.is::<Elapsed>(),
        };
        if !failed {
            self.budget.deposit();
            return None;
        }
        if self.made == self.most || !self.budget.withdraw() {
            return None;
        }
        self.waited = self.waits.delay(self.made, self.waited);
        self.made += 1;
        let wait = self.waited;
        Some(Box::pin(tokio::time::sleep(wait)))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }
}
