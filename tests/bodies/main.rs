//! What attempts carry of a request body, over real connections.

mod content;
mod early;
mod large;
mod skipped;
#[path = "../support/mod.rs"]
mod support;

use support::{Body, MS, ample, steady};
use tower_retry_budget::{
    RetryBudgetLayer,
    policy::{Backoff, RetryPolicyBuilder},
};

/// As [`steady`], but quick after a 503 as well.
fn quick() -> RetryPolicyBuilder {
    steady().throttled_backoff(Backoff::fixed(10 * MS))
}

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

fn request<B>(method: &str, uri: &str, body: B) -> http::Request<B> {
    let request = http::Request::builder().method(method).uri(uri);
    request.body(body).expect("a valid request")
}

fn full(data: &'static str) -> Body {
    Body::from(data)
}
