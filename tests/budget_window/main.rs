//! What the window budget allows, when it stops to count, and what it refuses.

mod allowing;
mod memory;
mod properties;
mod settings;
mod sliding;
#[path = "../support/budget.rs"]
mod support;
mod threads;
mod time;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use support::KEY;
use tower_retry_budget::budget::{Budget, WindowBudget, WindowBudgetBuilder};

const SECOND: Duration = Duration::from_secs(1);

fn build(builder: WindowBudgetBuilder) -> Arc<WindowBudget> {
    Arc::new(builder.build().expect("valid settings"))
}

/// A window of 64 s, so that a slot is a second, with no allowance.
fn whole_seconds() -> WindowBudgetBuilder {
    let builder = WindowBudget::builder().window(64 * SECOND);
    builder.allowance(0)
}

fn balance(budget: &WindowBudget, now: Instant) -> f64 {
    budget.snapshot(&KEY, now).balance()
}

fn cap(budget: &WindowBudget, now: Instant) -> f64 {
    budget.snapshot(&KEY, now).cap()
}

fn deposit(budget: &WindowBudget, times: u32, failed: bool, now: Instant) {
    for _ in 0..times {
        budget.deposit(&KEY, failed, now);
    }
}
