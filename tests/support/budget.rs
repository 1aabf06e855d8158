//! Asking a budget at times of the test's own choosing.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, Permit, TokenBudget, TokenBudgetBuilder, Withdrawal},
    reason::{Cause, StopReason},
};

pub(crate) const KEY: Key = Key::from_static("search");

/// The time at which a test starts: ahead of the clock, so that a permit which settles when it is
/// dropped, at the time of the clock, finds that no time has passed.
pub(crate) fn start() -> Instant {
    tokio::time::Instant::now().into_std() + Duration::from_secs(3600)
}

pub(crate) fn build(builder: TokenBudgetBuilder) -> Arc<TokenBudget> {
    Arc::new(builder.build().expect("valid settings"))
}

pub(crate) fn withdraw<B: Budget>(
    budget: &Arc<B>,
    key: &Key,
    cause: Cause,
    now: Instant,
) -> Option<Permit> {
    match budget.clone().withdraw(key, cause, now) {
        Withdrawal::Granted(permit) => Some(permit),
        Withdrawal::Denied(reason) => {
            assert_eq!(reason, StopReason::Budget);
            None
        }
        other => panic!("this budget decides on the spot, not {other:?}"),
    }
}

/// Asks for a retry, sends it, and lets it fail.
pub(crate) fn fail<B: Budget>(budget: &Arc<B>, key: &Key, now: Instant) -> bool {
    match withdraw(budget, key, Cause::ServerError, now) {
        Some(mut permit) => {
            permit.sent();
            true
        }
        None => false,
    }
}

/// Asks for a retry of a failure of kind `cause`, sends it, and lets it succeed.
pub(crate) fn succeed<B: Budget>(budget: &Arc<B>, key: &Key, cause: Cause, now: Instant) -> bool {
    match withdraw(budget, key, cause, now) {
        Some(mut permit) => {
            permit.sent();
            permit.succeeded(now);
            true
        }
        None => false,
    }
}

/// Lets retries fail until one is denied, and returns how many were granted.
pub(crate) fn drain<B: Budget>(budget: &Arc<B>, key: &Key, now: Instant) -> u32 {
    (0..)
        .find(|_| !fail(budget, key, now))
        .expect("a budget ends")
}

pub(crate) fn balance(budget: &TokenBudget, now: Instant) -> f64 {
    budget.snapshot(&KEY, now).balance()
}

pub(crate) fn ceiling(budget: &TokenBudget, now: Instant) -> f64 {
    budget.snapshot(&KEY, now).ceiling()
}
