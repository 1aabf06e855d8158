//! Whose retries use up whose budget.

mod support;

use http::{Request, Uri};
use std::sync::Arc;
use support::{Body, exhausted, script::Script, send, steady};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer,
    budget::{BudgetScope, TokenBudget},
    reason::StopReason,
};

/// A layer whose accounts hold two retries each, and never more.
fn layer(scope: BudgetScope) -> RetryBudgetLayer {
    let budget = TokenBudget::builder().cap(2).initial(2).no_trickle();
    let budget = budget.ratio(0.0).build().expect("a valid budget");
    let policy = steady().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy);
    layer.shared_budget(Arc::new(budget)).budget_scope(scope)
}

fn to(uri: &'static str) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.uri_mut() = Uri::from_static(uri);
    request
}

/// How often each request is sent, one after the other, to a server that always fails.
async fn sent(layer: &RetryBudgetLayer, uris: &[&'static str]) -> Vec<usize> {
    let script = Script::always(500);
    let mut counts = Vec::new();
    for uri in uris {
        let before = script.count();
        let response = send(&layer.layer(script.clone()), to(uri)).await;
        let response = response.expect("a response");
        let reason = exhausted(&response).reason();
        let count = script.count() - before;
        let full = count == 3;
        assert_eq!(reason == StopReason::MaxAttempts, full, "{reason}");
        counts.push(count);
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn one_dependency_does_not_use_up_the_retries_of_another() {
    let layer = layer(BudgetScope::authority());
    let uris = [
        "http://a/1",
        "http://a/2",
        "http://b/1",
        "http://b:81/1",
        "https://b/1",
    ];
    assert_eq!(sent(&layer, &uris).await, [3, 1, 3, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn all_share_one_account_when_asked_to() {
    let layer = layer(BudgetScope::one("all"));
    assert_eq!(sent(&layer, &["http://a/", "http://b/"]).await, [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_sick_route_leaves_the_others_theirs() {
    let layer = layer(BudgetScope::route_fn(|head| {
        Some(head.uri.path().to_owned())
    }));
    let uris = [
        "http://a/sick",
        "http://a/sick?x",
        "http://a/well",
        "http://b/sick",
    ];
    assert_eq!(sent(&layer, &uris).await, [3, 1, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn several_hosts_of_one_dependency_share_an_account() {
    let scope = BudgetScope::authority().alias("*.store", "store");
    let layer = layer(scope.expect("a valid pattern"));
    let uris = ["http://eu.store/", "http://us.store:81/", "http://store/"];
    assert_eq!(sent(&layer, &uris).await, [3, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn handlers_share_an_account_until_they_are_told_apart() {
    let policy = steady().max_attempts(3).build().expect("a valid policy");
    let handlers = || {
        let budget = TokenBudget::builder().cap(2).initial(2).no_trickle();
        let budget = budget.ratio(0.0).build().expect("a valid budget");
        let layer = RetryBudgetLayer::for_handlers().policy(policy.clone());
        layer.budget(budget)
    };
    let count = async |layer: &RetryBudgetLayer| {
        let script = Script::always(502);
        for uri in ["/a", "/b"] {
            send(&layer.layer(script.clone()), to(uri))
                .await
                .expect("a response");
        }
        script.count()
    };
    assert_eq!(count(&handlers()).await, 4);
    let apart = BudgetScope::route_fn(|head| Some(head.uri.path().to_owned()));
    assert_eq!(count(&handlers().budget_scope(apart)).await, 6);
}
