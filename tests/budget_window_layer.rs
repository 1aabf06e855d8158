//! Window budgets, and tower's own behind two closures, end to end on paused time.

mod support;

use http::Response;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use support::script::{Reply, Script};
use support::{MS, SECOND, exhausted, get, info, send, steady, timed};
use tokio::{task::JoinSet, time::sleep};
use tower::{
    Layer,
    retry::budget::{Budget as _, TpsBudget},
};
use tower_retry_budget::{
    RetryBudgetLayer,
    body::ResponseBody,
    budget::{Budget, FnBudget, Key, WindowBudget},
    reason::StopReason,
};

fn layer(budget: Arc<dyn Budget>) -> RetryBudgetLayer {
    RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .shared_budget(budget)
}

fn key() -> Key {
    Key::from_uri(get().uri())
}

fn balance(budget: &WindowBudget) -> f64 {
    let now = tokio::time::Instant::now().into_std();
    budget.snapshot(&key(), now).balance()
}

/// Three retries to begin with, and one for ten successes of a minute.
fn three() -> Arc<WindowBudget> {
    let builder = WindowBudget::builder().ratio(0.1).allowance(3);
    Arc::new(builder.build().expect("a valid budget"))
}

async fn answer(
    layer: &RetryBudgetLayer,
    script: &Script,
) -> Response<ResponseBody<support::Body>> {
    let service = layer.layer(script.clone());
    send(&service, get()).await.expect("a response")
}

#[tokio::test(start_paused = true)]
async fn the_budget_bites() {
    let script = Script::always(500);
    let service = layer(Arc::new(WindowBudget::attempts())).layer(script.clone());
    let mut calls = JoinSet::new();
    for _ in 0..1000 {
        let service = service.clone();
        calls.spawn(async move { send(&service, get()).await.expect("a response") });
    }
    for response in calls.join_all().await {
        assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    }
    // A tenth of them, where 2000 would have been sent.
    assert_eq!(script.count(), 1100);
}

#[tokio::test(start_paused = true)]
async fn a_call_earns_once_and_its_retry_does_not() {
    let (budget, script) = (three(), Script::new([500]));
    let layer = layer(budget.clone());
    assert_eq!(info(&answer(&layer, &script).await).attempts, 2);
    assert_eq!(balance(&budget), 2.0);
    for _ in 0..10 {
        assert_eq!(answer(&layer, &script).await.status(), 200);
    }
    assert_eq!(balance(&budget), 3.0);
}

#[tokio::test(start_paused = true)]
async fn settles_in_the_documented_state_when_each_call_takes_one_retry() {
    let budget = Arc::new(WindowBudget::finagle());
    let (layer, script) = (layer(budget.clone()), Script::new::<Reply>([]));
    let mut retried = 0;
    for _ in 0..1000 {
        script.then(500);
        let response = answer(&layer, &script).await;
        retried += u32::from(response.status() == 200);
        sleep(5 * MS).await;
    }
    // Under ten seconds: a hundred, and a fifth of the calls.
    assert!((298..=300).contains(&retried), "{retried}");
    assert!(balance(&budget) < 1.0);
}

#[tokio::test(start_paused = true)]
async fn recovers_by_traffic_alone_after_a_drain() {
    let (budget, script) = (three(), Script::new([500; 5]));
    let layer = layer(budget.clone());
    for status in [503, 503] {
        assert_eq!(answer(&layer, &script).await.status(), status);
    }
    assert_eq!(balance(&budget), 0.0);
    for _ in 0..1000 {
        assert_eq!(answer(&layer, &script).await.status(), 200);
    }
    script.then(500);
    assert_eq!(info(&answer(&layer, &script).await).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn counts_attempts_for_each_call_and_retries_for_all() {
    let (budget, script) = (three(), Script::new([500, 500, 500, 500]));
    let layer = layer(budget.clone());
    let first = answer(&layer, &script).await;
    assert_eq!(exhausted(&first).reason(), StopReason::MaxAttempts);
    let second = answer(&layer, &script).await;
    assert_eq!(info(&second).attempts, 2);
    assert_eq!(balance(&budget), 0.0);
}

#[tokio::test(start_paused = true)]
async fn takes_a_refusal_of_the_request_itself_for_no_failure() {
    let (budget, script) = (three(), Script::new([400; 1000]));
    let layer = layer(budget.clone());
    for _ in 0..1000 {
        assert_eq!(answer(&layer, &script).await.status(), 400);
    }
    script.then(503);
    assert_eq!(info(&answer(&layer, &script).await).attempts, 2);
}

#[tokio::test(start_paused = true)]
async fn refuses_at_once_when_there_is_no_budget() {
    let none = WindowBudget::builder().allowance(0).build();
    let script = Script::always(503);
    let layer = layer(Arc::new(none.expect("a valid budget")));
    let (response, took) = timed(answer(&layer, &script)).await;
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    assert_eq!((took, script.count()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn gives_back_a_retry_that_was_not_sent() {
    let (budget, script) = (three(), Script::always(500));
    let layer = layer(budget.clone());
    // Dropped in the wait before the retry.
    let cut = tokio::time::timeout(5 * MS, answer(&layer, &script)).await;
    cut.expect_err("it waits for 10 ms");
    assert_eq!((balance(&budget), script.count()), (3.0, 1));
}

/// Tower's budget, and the layer around it.
fn tower(ttl: u64, per_second: u32, ratio: f32) -> (Arc<TpsBudget>, RetryBudgetLayer) {
    let ttl = Duration::from_secs(ttl);
    let tps = Arc::new(TpsBudget::new(ttl, per_second, ratio));
    let (to, from) = (tps.clone(), tps.clone());
    let budget = FnBudget::new(move || to.deposit(), move || from.withdraw());
    (tps, layer(Arc::new(budget)))
}

#[tokio::test(start_paused = true)]
async fn towers_budget_limits_the_retries_of_the_layer() {
    let (_, layer) = tower(10, 1, 0.5);
    let script = Script::always(500);
    let mut reasons = Vec::new();
    for _ in 0..10 {
        reasons.push(exhausted(&answer(&layer, &script).await).reason());
    }
    // Ten to begin with are five calls of three attempts.
    assert_eq!(reasons[..5], [StopReason::MaxAttempts; 5]);
    assert_eq!(reasons[5..], [StopReason::Budget; 5]);
    assert_eq!(script.count(), 20);
}

#[tokio::test(start_paused = true)]
async fn towers_budget_is_filled_by_first_attempts_that_succeed_and_by_nothing_else() {
    let (tps, layer) = tower(10, 0, 0.5);
    let script = Script::always(500);
    assert_eq!(answer(&layer, &script).await.status(), 503);
    assert!(!tps.withdraw(), "a failure deposits nothing");

    let script = Script::new::<Reply>([]);
    for _ in 0..4 {
        assert_eq!(answer(&layer, &script).await.status(), 200);
    }
    script.then(500);
    assert_eq!(info(&answer(&layer, &script).await).attempts, 2);
    assert!(tps.withdraw(), "two for four successes");
    assert!(!tps.withdraw(), "and none for the retry that succeeded");
}

#[tokio::test(start_paused = true)]
async fn an_adapter_has_no_refunds_and_no_keys() {
    let (tps, layer) = tower(10, 1, 0.5);
    let script = Script::always(500);
    for _ in 0..10 {
        let cut = tokio::time::timeout(5 * MS, answer(&layer, &script)).await;
        cut.expect_err("it waits for 10 ms");
    }
    assert!(!tps.withdraw(), "ten retries are spent and none was sent");
    assert_eq!(script.count(), 10);
    let mut other = get();
    *other.uri_mut() = http::Uri::from_static("http://reports/");
    let response = send(&layer.layer(script), other).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
}

#[tokio::test(start_paused = true)]
async fn an_adapter_calls_each_closure_once() {
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let (deposits, withdrawals) = (counts.clone(), counts.clone());
    let budget = FnBudget::new(
        move || {
            deposits[0].fetch_add(1, Ordering::Relaxed);
        },
        move || withdrawals[1].fetch_add(1, Ordering::Relaxed) < 1,
    );
    let layer = layer(Arc::new(budget));
    let script = Script::new([200, 500, 500]);
    answer(&layer, &script).await;
    sleep(SECOND).await;
    let response = answer(&layer, &script).await;
    assert_eq!(exhausted(&response).reason(), StopReason::Budget);
    let counts = [&counts[0], &counts[1]].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 2]);
}
