//! The token rule over a fleet keeps its numbers: what is earned, what is the most, and what is granted.

#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, RedisBudgetBuilder, TokenBudget, Withdrawal},
    reason::Cause,
};

const KEY: Key = Key::from_static("search");

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Without a trickle and a ceiling, and with a gate that lets all through.
fn build(
    server: &RedisServer,
    rule: impl FnOnce(RedisBudgetBuilder) -> RedisBudgetBuilder,
) -> Arc<RedisBudget> {
    let gate = TokenBudget::builder()
        .cap(1_000_000)
        .initial(1_000_000)
        .no_ceiling();
    let builder = RedisBudget::builder(&server.url())
        .no_trickle()
        .no_ceiling()
        .gate(gate);
    Arc::new(rule(builder).build().expect("valid settings"))
}

/// A retry that is sent and fails.
async fn spend(budget: &Arc<RedisBudget>) -> bool {
    let permit = match budget.clone().withdraw(&KEY, Cause::Timeout, now()) {
        Withdrawal::Granted(permit) => Ok(permit),
        Withdrawal::Denied(reason) => Err(reason),
        Withdrawal::Pending(asked) => asked.await,
        other => panic!("{other:?}"),
    };
    permit.map(|mut permit| permit.sent()).is_ok()
}

/// Spends all that there is.
async fn drain(budget: &Arc<RedisBudget>) -> u32 {
    let (mut granted, mut denied) = (0, 0);
    while denied < 30 {
        match spend(budget).await {
            true => (granted, denied) = (granted + 1, 0),
            false => denied += 1,
        }
        sleep(Duration::from_millis(20)).await;
    }
    granted
}

/// What all that was told of in a second has made of the balance, leases included.
async fn told(budget: &RedisBudget) -> (f64, f64) {
    // A failure earns nothing, and is told of.
    budget.deposit(&KEY, true, now());
    sleep(Duration::from_millis(1300)).await;
    let snapshot = budget.snapshot(&KEY, now());
    (snapshot.balance(), snapshot.cap())
}

#[tokio::test]
async fn a_quiet_day_stores_no_more_than_the_cap() {
    let server = RedisServer::start();
    let budget = build(&server, |rule| rule.cap(20).initial(0));
    for _ in 0..5 {
        for _ in 0..200_000 {
            budget.deposit(&KEY, false, now());
        }
        sleep(Duration::from_millis(200)).await;
    }
    // While the traffic of the last second holds the cap up, it does; a quiet second later it is 20.
    sleep(Duration::from_millis(2500)).await;
    let (balance, cap) = told(&budget).await;
    assert!(
        balance <= cap && (cap - 20.0).abs() < 1.0,
        "{balance} of {cap}"
    );
    let granted = drain(&budget).await;
    assert!((19..=20).contains(&granted), "{granted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_at_once_are_granted_what_there_is_and_no_more() {
    let server = RedisServer::start();
    let budget = build(&server, |rule| rule.cap(100).initial(100));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let budget = Arc::clone(&budget);
        tasks.spawn(async move {
            let mut granted = 0;
            for _ in 0..1250 {
                granted += u32::from(spend(&budget).await);
                tokio::task::yield_now().await;
            }
            granted
        });
    }
    let granted: u32 = tasks.join_all().await.into_iter().sum();
    let left = drain(&budget).await;
    println!("{granted} by eight, {left} by one");
    assert_eq!(granted + left, 100);
}

#[tokio::test]
async fn a_part_of_a_token_is_earned_exactly() {
    let server = RedisServer::start();
    let budget = build(&server, |rule| rule.ratio(0.4).cap(10_000).initial(0));
    for _ in 0..3 {
        budget.deposit(&KEY, false, now());
    }
    let (balance, _) = told(&budget).await;
    assert!((balance - 1.2).abs() < 1e-9, "{balance}");
    for _ in 0..9_997 {
        budget.deposit(&KEY, false, now());
    }
    let (balance, _) = told(&budget).await;
    assert!((balance - 4000.0).abs() < 1e-9, "{balance}");
}

#[tokio::test]
async fn recovers_by_first_attempts_alone_after_it_was_drained() {
    let server = RedisServer::start();
    let budget = build(&server, |rule| rule.cap(100).initial(5));
    assert_eq!(drain(&budget).await, 5);
    for _ in 0..50 {
        budget.deposit(&KEY, false, now());
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(drain(&budget).await, 10, "a fifth of fifty");
}
