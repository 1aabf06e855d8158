//! Peers' rules as budgets of the crate's own trait: what the layer asks, whatever is inside.

use crate::sim::lock;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, Permit, Settled, TokenBudget, Withdrawal},
    reason::{Cause, RetryOutcome, StopReason},
};

/// What a retry of these budgets is said to cost. They count by themselves.
const COST: u32 = 1000;

pub(super) fn answer(budget: Arc<dyn Budget>, key: &Key, cause: Cause, grant: bool) -> Withdrawal {
    match grant {
        true => Withdrawal::Granted(Permit::new(budget, key.clone(), cause, COST)),
        false => Withdrawal::Denied(StopReason::Budget),
    }
}

/// Tokens in tenths, earned by calls or by successes, one for each retry.
pub(super) struct Bucket {
    tenths: Mutex<u64>,
    cap: u64,
    failures_earn: bool,
    /// Gives back retries that succeed, and adds a tenth for every second, which is when it last did.
    refunds: Option<Mutex<Instant>>,
}

impl Bucket {
    /// Starts full: with the traffic of a simulation it is full when it matters.
    fn new(tokens: u64, failures_earn: bool) -> Self {
        let cap = tokens * 10;
        Self {
            tenths: Mutex::new(cap),
            cap,
            failures_earn,
            refunds: None,
        }
    }

    pub(super) fn of_successes() -> Self {
        Self::new(5, false)
    }

    pub(super) fn of_calls() -> Self {
        Self::new(5, true)
    }

    pub(super) fn refunding() -> Self {
        let now = tokio::time::Instant::now().into_std();
        Self {
            refunds: Some(Mutex::new(now)),
            ..Self::new(10, false)
        }
    }

    fn trickle(&self, now: Instant) {
        if let Some(last) = &self.refunds {
            let mut last = lock(last);
            let seconds = now.saturating_duration_since(*last).as_secs();
            *last += Duration::from_secs(seconds);
            self.add(seconds);
        }
    }

    fn add(&self, tenths: u64) {
        let mut held = lock(&self.tenths);
        *held = (*held + tenths).min(self.cap);
    }
}

impl Budget for Bucket {
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        if !failed || self.failures_earn {
            self.add(1);
        }
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, now: Instant) -> Withdrawal {
        self.trickle(now);
        let grant = {
            let mut held = lock(&self.tenths);
            let grant = *held >= 10;
            *held -= if grant { 10 } else { 0 };
            grant
        };
        answer(self, key, cause, grant)
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        let unsent = settled.outcome == RetryOutcome::NotSent;
        if unsent || (self.refunds.is_some() && settled.outcome == RetryOutcome::Succeeded) {
            self.add(10);
        }
    }
}

/// gRPC's retry throttling (proposal A6), `maxTokens` 10 and `tokenRatio` 0.1.
#[derive(Debug)]
pub(crate) struct Grpc {
    tenths: Mutex<u64>,
}

impl Grpc {
    const MAX: u64 = 100;

    /// Every attempt counts, retries too.
    fn ended(&self, failed: bool) {
        let mut held = lock(&self.tenths);
        *held = match failed {
            true => held.saturating_sub(10),
            false => (*held + 1).min(Self::MAX),
        };
    }
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            tenths: Mutex::new(Self::MAX),
        }
    }
}

impl Budget for Grpc {
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        self.ended(failed);
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        let grant = *lock(&self.tenths) > Self::MAX / 2;
        answer(self, key, cause, grant)
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        match settled.outcome {
            RetryOutcome::NotSent => {}
            RetryOutcome::Succeeded => self.ended(false),
            _ => self.ended(true),
        }
    }
}

/// The token bucket of AWS' SDKs: 500 tokens, given back by a retry that succeeds.
pub(crate) struct Aws {
    tokens: Mutex<u64>,
    cost: fn(Cause) -> u64,
}

impl Aws {
    const MAX: u64 = 500;

    /// With the prices of 2.0: 5 for a retry, 10 after a time-out.
    pub(crate) fn older() -> Self {
        Self {
            cost: |cause| if cause == Cause::Timeout { 10 } else { 5 },
            ..Self::default()
        }
    }

    fn add(&self, tokens: u64) {
        let mut held = lock(&self.tokens);
        *held = (*held + tokens).min(Self::MAX);
    }
}

impl Default for Aws {
    /// With the price of 2.1.
    fn default() -> Self {
        Self {
            tokens: Mutex::new(Self::MAX),
            cost: |_| 14,
        }
    }
}

impl Budget for Aws {
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        if !failed {
            self.add(1);
        }
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        let cost = (self.cost)(cause);
        let grant = {
            let mut held = lock(&self.tokens);
            let left = held.checked_sub(cost);
            *held = left.unwrap_or(*held);
            left.is_some()
        };
        answer(self, key, cause, grant)
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        if settled.outcome != RetryOutcome::Failed {
            self.add((self.cost)(settled.cause));
        }
    }
}

/// A breaker for retries: none while there is more than one failure for ten calls, over all calls so
/// far. Failed retries are failures too.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Calls, and failures.
    seen: Mutex<(u64, u64)>,
}

impl Budget for Breaker {
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        let mut seen = lock(&self.seen);
        seen.0 += 1;
        seen.1 += u64::from(failed);
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        let (calls, failures) = *lock(&self.seen);
        answer(self, key, cause, failures * 10 <= calls)
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        lock(&self.seen).1 += u64::from(settled.outcome == RetryOutcome::Failed);
    }
}

/// The crate's default, told that no failure says "too much".
#[derive(Debug, Default)]
pub(super) struct Refunding(Arc<TokenBudget>);

impl Budget for Refunding {
    fn deposit(&self, key: &Key, failed: bool, now: Instant) {
        self.0.deposit(key, failed, now);
    }

    fn withdraw(self: Arc<Self>, key: &Key, _: Cause, now: Instant) -> Withdrawal {
        Arc::clone(&self.0).withdraw(key, Cause::ServerError, now)
    }

    /// The permits are those of the budget inside.
    fn settle(&self, _: &Key, _: Settled, _: Instant) {}
}
