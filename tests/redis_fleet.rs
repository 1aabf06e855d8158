//! One budget for a fleet, in a real Redis: what processes share, and what it keeps of them.

#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, Permit, RedisBudget, StoreMode, Withdrawal},
    reason::{Cause, StopReason},
};

const KEY: Key = Key::from_static("search");

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn budget(server: &RedisServer) -> Arc<RedisBudget> {
    let budget = RedisBudget::builder(&server.url()).no_trickle().build();
    Arc::new(budget.expect("valid settings"))
}

async fn withdraw(budget: &Arc<RedisBudget>) -> Result<Permit, StopReason> {
    match budget.clone().withdraw(&KEY, Cause::ServerError, now()) {
        Withdrawal::Granted(permit) => Ok(permit),
        Withdrawal::Denied(reason) => Err(reason),
        Withdrawal::Pending(asked) => asked.await,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn leases_on_the_first_failure() {
    let server = RedisServer::start();
    let budget = budget(&server);
    let mut granted = 0;
    for _ in 0..20 {
        if let Ok(mut permit) = withdraw(&budget).await {
            permit.sent();
            granted += 1;
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let snapshot = budget.snapshot(&KEY, now());
    println!("{granted} {snapshot:?}");
    assert_eq!(granted, 5);
    assert_eq!(snapshot.mode(), Some(StoreMode::Fleet));
}
