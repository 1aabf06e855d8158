//! What an operator changes while calls go by.

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod gates;
mod shadows;
mod sockets;
mod swapping;
mod switching;

use support::steady;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    policy::{Backoff, RetryPolicyBuilder},
};

/// A layer with this policy.
fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    RetryBudgetLayer::new().policy(built(policy))
}

fn built(policy: RetryPolicyBuilder) -> RetryPolicy {
    policy.build().expect("a valid policy")
}

/// A policy whose retries are waited for a second.
fn sleepy() -> RetryPolicyBuilder {
    steady().backoff(Backoff::fixed(support::SECOND))
}
