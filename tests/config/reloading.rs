//! A reload binds calls that begin, and keeps what has not changed.

use super::toml;
use crate::support::{MS, SECOND, get, script::Script, send, steady, timed};
use tokio::time::sleep;
use tower::Layer;
use tower_retry_budget::{RetryBudget, RetryBudgetLayer, budget::TokenBudget, config::RetryConfig};

fn config(attempts: u32, wait: &str, budgets: &str) -> RetryConfig {
    toml(&format!(
        "policy = \"a\"\nbudget = \"b\"\n[policies.a]\nmax_attempts = {attempts}\n\
         backoff = {{ base = \"{wait}\", factor = 1, jitter = \"none\" }}\n{budgets}"
    ))
}

const B: &str = "[budgets.b]\ntrickle = \"none\"\n";

/// How many requests one call makes.
async fn sent(service: &RetryBudget<Script>) -> usize {
    let before = service.get_ref().count();
    send(service, get()).await.expect("a response");
    service.get_ref().count() - before
}

#[tokio::test(start_paused = true)]
async fn calls_that_begin_have_policy_and_budget_of_the_new_one() {
    let layer = RetryBudgetLayer::from_config(&config(2, "1ms", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    assert_eq!(sent(&service).await, 2);
    control.reload(&config(
        4,
        "1ms",
        "[budgets.b]\ninitial = 2\ntrickle = \"none\"\n",
    ));
    // Three retries, of which the new budget has two.
    assert_eq!(sent(&service).await, 3);
}

#[tokio::test(start_paused = true)]
async fn calls_that_sleep_end_by_the_old_one_and_settle_with_it() {
    let layer = RetryBudgetLayer::from_config(&config(3, "1s", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    let script = service.get_ref().clone();
    let call = {
        let service = service.clone();
        tokio::spawn(async move { timed(send(&service, get())).await })
    };
    sleep(300 * MS).await;
    let none = "[budgets.b]\ncap = 0\ntrickle = \"none\"\n";
    control.reload(&config(9, "1ms", none));
    // The new one has no retries at all.
    assert_eq!(sent(&service).await, 1);
    let (response, elapsed) = call.await.unwrap();
    response.unwrap();
    assert_eq!(elapsed, 2 * SECOND);
    assert_eq!(script.count(), 3 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_has_not_changed_keeps_its_balance() {
    let layer = RetryBudgetLayer::from_config(&config(3, "1ms", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    assert_eq!(sent(&service).await, 3);
    // Another policy, and the same budget in other words: 3 of its 5 retries are left.
    control.reload(&config(
        9,
        "1ms",
        "[budgets.b]\ntrickle = \"none\"\ncap = 10\n",
    ));
    assert_eq!(sent(&service).await, 1 + 3);
    assert_eq!(sent(&service).await, 1);
    // Reloading does not fill it, however often.
    control.reload(&config(9, "1ms", B));
    control.reload(&config(9, "1ms", B));
    assert_eq!(sent(&service).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_has_changed_begins_anew() {
    let layer = RetryBudgetLayer::from_config(&config(9, "1ms", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    assert_eq!(sent(&service).await, 1 + 5);
    control.reload(&config(
        9,
        "1ms",
        "[budgets.b]\ntrickle = \"none\"\ninitial = 4\n",
    ));
    assert_eq!(sent(&service).await, 1 + 4);
}

#[tokio::test(start_paused = true)]
async fn what_the_new_one_does_not_say_is_the_layers_again() {
    let layer = RetryBudgetLayer::new()
        .policy(steady().max_attempts(5).build().unwrap())
        .budget(TokenBudget::builder().no_trickle().build().unwrap())
        .config(&config(2, "1ms", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    assert_eq!(sent(&service).await, 2);
    control.reload(&RetryConfig::default());
    assert_eq!(sent(&service).await, 5);
    // Its budget is the one that it was.
    control.reload(&RetryConfig::default());
    assert_eq!(sent(&service).await, 1 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_a_configuration_may_get_one() {
    let layer = RetryBudgetLayer::new().policy(steady().build().unwrap());
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    assert_eq!(sent(&service).await, 3);
    control.reload(&config(2, "1ms", B));
    assert_eq!(sent(&service).await, 2);
    control.reload(&RetryConfig::default());
    assert_eq!(sent(&service).await, 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_swapped_is_gone_and_what_is_switched_off_stays_off() {
    let layer = RetryBudgetLayer::from_config(&config(2, "1ms", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    let budget = std::sync::Arc::new(TokenBudget::default());
    control.swap(steady().max_attempts(4).build().unwrap(), budget);
    assert_eq!(sent(&service).await, 4);
    control.reload(&config(2, "1ms", B));
    assert_eq!(sent(&service).await, 2);
    control.retries_off();
    control.reload(&config(3, "1ms", B));
    assert_eq!(sent(&service).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_the_new_one_leaves_open_ends_who_sleeps() {
    let layer = RetryBudgetLayer::from_config(&config(2, "1s", B));
    let control = layer.control();
    let service = layer.layer(Script::always(502));
    let call = tokio::spawn(async move { timed(send(&service, get())).await });
    sleep(300 * MS).await;
    let gates = format!("{B}[gates]\nretry = \"observe\"\n");
    control.reload(&config(2, "1s", &gates));
    let (response, elapsed) = call.await.unwrap();
    assert_eq!(
        crate::support::exhausted(&response.unwrap())
            .reason()
            .as_str(),
        "disabled"
    );
    assert_eq!(elapsed, 300 * MS);
}
