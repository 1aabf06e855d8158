//! Who shares a budget with whom.

use crate::support::{exhausted, get, script::Script, send, steady};
use std::sync::Arc;
use tower::Layer;
use tower_retry_budget::{RetryBudgetLayer, budget::TokenBudget, reason::StopReason};

fn ten() -> TokenBudget {
    let ten = TokenBudget::builder().cap(10).initial(10).no_trickle();
    ten.build().expect("a valid budget")
}

fn layer() -> RetryBudgetLayer {
    RetryBudgetLayer::new().policy(steady().build().expect("a valid policy"))
}

/// How many requests 50 services made by `layer` send for a failing call each.
async fn fifty(layer: &RetryBudgetLayer) -> usize {
    let script = Script::always(500);
    for _ in 0..50 {
        let service = layer.layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        let reason = exhausted(&response).reason();
        assert!(matches!(
            reason,
            StopReason::MaxAttempts | StopReason::Budget
        ));
    }
    script.count()
}

#[tokio::test(start_paused = true)]
async fn all_services_of_a_layer_share_its_budget() {
    let layer = layer().budget(ten());
    assert_eq!(fifty(&layer).await, 50 + 10);
    assert_eq!(fifty(&layer).await, 50);
    // So do those of its clones, also when they are configured further.
    let policy = steady().max_attempts(5).build().expect("a valid policy");
    assert_eq!(fifty(&layer.clone().policy(policy)).await, 50);
}

#[tokio::test(start_paused = true)]
async fn all_clones_of_a_service_share_its_budget() {
    let script = Script::always(500);
    let service = layer().budget(ten()).layer(script.clone());
    for _ in 0..50 {
        send(&service.clone(), get()).await.expect("a response");
    }
    assert_eq!(script.count(), 50 + 10);
}

#[tokio::test(start_paused = true)]
async fn layers_share_a_budget_when_they_are_told_to() {
    let budget = Arc::new(ten());
    let one = layer().shared_budget(budget.clone());
    let other = RetryBudgetLayer::new().shared_budget(budget);
    assert_eq!(fifty(&one).await, 50 + 10);
    assert_eq!(fifty(&other).await, 50);
}

#[tokio::test(start_paused = true)]
async fn layers_do_not_share_a_budget_by_themselves() {
    assert_eq!(fifty(&layer().budget(ten())).await, 50 + 10);
    assert_eq!(fifty(&layer().budget(ten())).await, 50 + 10);
    // Nor do layers with the default budget, which starts with five retries.
    assert_eq!(fifty(&layer()).await, 50 + 5);
    assert_eq!(fifty(&layer()).await, 50 + 5);
}
