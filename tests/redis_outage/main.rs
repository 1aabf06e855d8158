//! What calls see of a Redis that is slow, frozen, gone, empty, or refuses: nothing.
//!
//! Every test has twenty tokens for all of it and a dependency that always fails, so that twenty retries
//! are sent in the end, whatever happened in between: none is lost, and none is counted twice.

mod faults;
#[path = "../support/redis.rs"]
mod server;
mod traffic;

use faults::{Proxy, black_hole, loading};
use server::RedisServer;
use std::time::Duration;
use tower_retry_budget::budget::StoreMode;
use traffic::{TOKENS, Traffic, ledger_adds_up};

/// As long as it takes to be lost or found for certain.
const WHILE: Duration = Duration::from_secs(3);

/// Spends a part of the budget, breaks the store, goes on, mends it, and spends the rest.
async fn survives(url: &str, breaks: impl AsyncFnOnce(), mends: impl AsyncFnOnce()) {
    let traffic = Traffic::new(url);
    traffic.calls(5).await;
    assert_eq!(traffic.mode(), Some(StoreMode::Fleet));
    breaks().await;
    traffic.calls(4).await;
    assert_eq!(traffic.mode(), Some(StoreMode::LocalShare));
    mends().await;
    traffic.until_fleet(WHILE).await;
    traffic.run(WHILE).await;
    assert_eq!(traffic.retries(), TOKENS);
}

#[tokio::test]
async fn frozen_and_thawed() {
    let server = RedisServer::start();
    let freeze = async || server.freeze();
    survives(&server.url(), freeze, async || server.thaw()).await;
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn frozen_for_longer_than_a_connection_takes() {
    let server = RedisServer::start();
    let traffic = Traffic::new(&server.url());
    traffic.calls(5).await;
    server.freeze();
    traffic.run(Duration::from_secs(4)).await;
    server.thaw();
    traffic.until_fleet(WHILE).await;
    traffic.run(WHILE).await;
    assert_eq!(traffic.retries(), TOKENS);
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn killed_and_restarted_empty() {
    let mut server = RedisServer::start();
    let traffic = Traffic::new(&server.url());
    traffic.calls(5).await;
    server.kill();
    traffic.calls(4).await;
    assert_eq!(traffic.mode(), Some(StoreMode::LocalShare));
    server.restart();
    traffic.until_fleet(WHILE).await;
    traffic.run(WHILE).await;
    // What it lost with its memory were at most the leases of the last moment.
    let retries = traffic.retries();
    assert!((TOKENS - 2..=TOKENS).contains(&retries), "{retries}");
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn a_black_hole_from_the_start() {
    let traffic = Traffic::new(&black_hole().await);
    traffic.run(WHILE).await;
    assert_eq!(traffic.mode(), Some(StoreMode::LocalShare));
    assert_eq!(traffic.retries(), 0);
}

#[tokio::test]
async fn still_loading_its_data() {
    let traffic = Traffic::new(&loading().await);
    traffic.run(WHILE).await;
    assert_eq!(traffic.mode(), Some(StoreMode::LocalShare));
    assert_eq!(traffic.retries(), 0);
}

#[tokio::test]
async fn a_replica_for_a_while() {
    let server = RedisServer::start();
    let replica = async || server.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let primary = async || server.run(&["REPLICAOF", "NO", "ONE"]).await;
    survives(&server.url(), replica, primary).await;
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn out_of_memory() {
    let server = RedisServer::start();
    let full = async || server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let empty = async || server.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    survives(&server.url(), full, empty).await;
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn busy_with_somebody_elses_script() {
    let server = RedisServer::with(&["--lua-time-limit", "5"]);
    let busy = async || {
        let mut other = server.connect().await;
        tokio::spawn(async move {
            let endless = redis::cmd("EVAL").arg("while true do end").arg(0).clone();
            // Ends with an error, when it is killed.
            _ = endless.exec_async(&mut other).await;
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let killed = async || server.run(&["SCRIPT", "KILL"]).await;
    survives(&server.url(), busy, killed).await;
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn without_the_script() {
    let server = RedisServer::start();
    let traffic = Traffic::new(&server.url());
    for _ in 0..5 {
        traffic.calls(2).await;
        server.run(&["SCRIPT", "FLUSH"]).await;
    }
    assert_eq!(traffic.mode(), Some(StoreMode::Fleet));
    traffic.run(WHILE).await;
    assert_eq!(traffic.mode(), Some(StoreMode::Fleet));
    assert_eq!(traffic.retries(), TOKENS);
}

#[tokio::test]
async fn with_replies_that_are_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let lose = async || proxy.lose_replies(true);
    survives(&proxy.url(), lose, async || proxy.lose_replies(false)).await;
    ledger_adds_up(&server).await;
}

#[tokio::test]
async fn closing_idle_connections() {
    let server = RedisServer::with(&["--timeout", "1"]);
    let traffic = Traffic::new(&server.url());
    for _ in 0..3 {
        traffic.calls(2).await;
        tokio::time::sleep(Duration::from_millis(2500)).await;
    }
    traffic.run(WHILE).await;
    assert_eq!(traffic.retries(), TOKENS);
    ledger_adds_up(&server).await;
}
