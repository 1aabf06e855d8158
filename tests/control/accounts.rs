//! An operator may forget or empty the account of one dependency.

use super::layer;
use crate::support::{get, ledger::Ledger, script::Script, send, steady};
use std::{sync::Arc, time::Instant};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer,
    budget::{Budget, FnBudget, Key, NotSupported, Permit, TokenBudget, WindowBudget, Withdrawal},
    reason::Cause,
};

const SEARCH: Key = Key::from_static("search");
const OTHER: Key = Key::from_static("other");

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn spend(budget: &Arc<impl Budget>, key: &Key) -> Option<Permit> {
    match budget.clone().withdraw(key, Cause::ServerError, now()) {
        Withdrawal::Granted(mut permit) => {
            permit.sent();
            Some(permit)
        }
        _ => None,
    }
}

/// What is left of an account.
fn left(budget: &impl Budget, key: &Key) -> f64 {
    budget.account(key, now()).expect("an account").balance()
}

#[tokio::test(start_paused = true)]
async fn an_account_of_tokens_begins_anew() {
    let budget = Arc::new(TokenBudget::default());
    let control = RetryBudgetLayer::new()
        .shared_budget(budget.clone())
        .control();
    for key in [&SEARCH, &OTHER] {
        while let Some(permit) = spend(&budget, key) {
            drop(permit);
        }
    }
    control.reset(&SEARCH).unwrap();
    assert_eq!(
        (left(&*budget, &SEARCH), left(&*budget, &OTHER)),
        (5.0, 0.0)
    );
    // And no account is made for a key without one.
    control.reset(&Key::from_static("unknown")).unwrap();
    assert_eq!(budget.keys(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_account_of_tokens_is_emptied_and_fills_again() {
    let budget = Arc::new(TokenBudget::default());
    let control = RetryBudgetLayer::new()
        .shared_budget(budget.clone())
        .control();
    budget.deposit(&OTHER, true, now());
    control.drain(&SEARCH).unwrap();
    assert!(spend(&budget, &SEARCH).is_none());
    assert!(spend(&budget, &OTHER).is_some());
    for _ in 0..5 {
        budget.deposit(&SEARCH, false, now());
    }
    assert!(spend(&budget, &SEARCH).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_window_begins_anew() {
    let budget = Arc::new(WindowBudget::successes());
    let control = RetryBudgetLayer::new()
        .shared_budget(budget.clone())
        .control();
    while let Some(permit) = spend(&budget, &SEARCH) {
        drop(permit);
    }
    control.reset(&SEARCH).unwrap();
    assert_eq!(left(&*budget, &SEARCH), 10.0);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_emptied_until_it_has_passed() {
    let budget = Arc::new(WindowBudget::successes());
    let control = RetryBudgetLayer::new()
        .shared_budget(budget.clone())
        .control();
    let sent = spend(&budget, &SEARCH);
    control.drain(&SEARCH).unwrap();
    assert_eq!(left(&*budget, &SEARCH), 0.0);
    assert!(spend(&budget, &SEARCH).is_none());
    for _ in 0..5 {
        budget.deposit(&SEARCH, false, now());
    }
    assert!(spend(&budget, &SEARCH).is_some() && spend(&budget, &SEARCH).is_none());
    tokio::time::advance(std::time::Duration::from_secs(62)).await;
    assert_eq!(left(&*budget, &SEARCH), 10.0);
    drop(sent);
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_goes_back_into_an_account_that_was_emptied() {
    let budget = Arc::new(TokenBudget::default());
    let control = RetryBudgetLayer::new()
        .shared_budget(budget.clone())
        .control();
    let Withdrawal::Granted(unsent) = budget.clone().withdraw(&SEARCH, Cause::Other, now()) else {
        panic!("a new account has retries");
    };
    control.drain(&SEARCH).unwrap();
    drop(unsent);
    assert_eq!(left(&*budget, &SEARCH), 1.0);
}

#[tokio::test(start_paused = true)]
async fn says_so_where_a_budget_has_no_accounts() {
    let control = RetryBudgetLayer::new()
        .budget(FnBudget::new(|| (), || true))
        .control();
    assert_eq!(control.reset(&SEARCH), Err(NotSupported));
    assert_eq!(control.drain(&SEARCH), Err(NotSupported));
}

#[tokio::test(start_paused = true)]
async fn finds_the_budget_that_was_swapped_in() {
    let layer = layer(steady()).shared_budget(Ledger::new([]));
    let control = layer.control();
    assert_eq!(control.drain(&SEARCH), Err(NotSupported));
    let budget = Arc::new(TokenBudget::default());
    control.swap(steady().build().unwrap(), budget.clone());
    control.drain(&Key::from_uri(get().uri())).unwrap();
    let script = Script::always(502);
    send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(script.count(), 1);
}
