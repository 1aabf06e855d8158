//! The layer over, under and between whatever else a tower stack is made of: compiled and run, with
//! an inner service that refuses a call without readiness of its own.

#[path = "../support/mod.rs"]
mod support;

mod axum_router;
mod errors;
mod hyper_client;
mod permits;
mod sharing;
mod stacks;
mod wire;

use support::{ample, steady};
use tower_retry_budget::RetryBudgetLayer;

/// A layer with fixed waits and plenty of budget.
fn layer() -> RetryBudgetLayer {
    let policy = steady().build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}
