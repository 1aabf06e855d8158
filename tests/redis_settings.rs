//! What the builder of a fleet budget refuses, and what a Redis that refuses the client does to calls.
#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, RedisBudgetBuilder, StoreMode, Withdrawal},
    reason::{Cause, StopReason},
};

const KEY: Key = Key::from_static("search");

const URL: &str = "redis://127.0.0.1:1";

#[tokio::test]
async fn refuses_what_a_setting_cannot_be_and_names_it() {
    type Set = fn(RedisBudgetBuilder) -> RedisBudgetBuilder;
    let cases: [(&str, Set); 9] = [
        ("expected_processes", |it| it.expected_processes(0)),
        ("command_timeout", |it| it.command_timeout(Duration::ZERO)),
        ("connect_timeout", |it| it.connect_timeout(Duration::ZERO)),
        ("namespace", |it| it.namespace("")),
        ("namespace", |it| it.namespace("a}b")),
        ("ratio", |it| it.ratio(f64::NAN)),
        ("ratio", |it| it.ratio(-0.1)),
        ("cap", |it| it.cap(u64::MAX)),
        ("trickle", |it| it.trickle(Duration::ZERO)),
    ];
    for (setting, set) in cases {
        let refused = set(RedisBudget::builder(URL)).build().unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(setting), "{setting}: {text}");
    }
}

#[tokio::test]
async fn refuses_a_url_without_telling_its_password() {
    for url in [
        "",
        "not a url",
        "http://user:hunter2@localhost",
        "redis://user:hunter2@",
        "redis://user:hunter2@localhost:99999",
        "redis://user:hunter2@localhost/database",
    ] {
        let refused = RedisBudget::builder(url).build().unwrap_err();
        let text = format!("{refused} {refused:?}");
        assert!(text.contains("url"), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let builder = RedisBudget::builder("redis://user:hunter2@127.0.0.1:1");
    assert!(!format!("{builder:?}").contains("hunter2"));
    let budget = builder.build().expect("a valid URL");
    assert!(!format!("{budget:?}").contains("hunter2"));
}

#[test]
fn refuses_to_be_built_outside_a_runtime() {
    let refused = RedisBudget::builder(URL).build().unwrap_err();
    assert!(refused.to_string().contains("runtime"), "{refused}");
}

#[tokio::test]
async fn accepts_the_longest_times() {
    let server = RedisServer::start();
    let budget = RedisBudget::builder(&server.url())
        .command_timeout(Duration::MAX)
        .connect_timeout(Duration::MAX)
        .trickle(Duration::MAX)
        .build()
        .expect("valid settings");
    is_granted(&Arc::new(budget), &KEY).await;
}

#[tokio::test]
async fn is_let_in_by_the_password_and_by_no_other() {
    let server = RedisServer::with(&["--requirepass", "hunter2"]);
    let with = |login: &str, path: &str| {
        let url = format!("redis://{login}127.0.0.1:{}{path}", server.port());
        Arc::new(RedisBudget::builder(&url).build().expect("a valid URL"))
    };
    let right = with(":hunter2@", "");
    is_granted(&right, &KEY).await;
    assert_eq!(mode(&right), Some(StoreMode::Fleet));
    for (login, path) in [("", ""), (":wrong@", ""), (":hunter2@", "/999")] {
        let budget = with(login, path);
        assert_eq!(asks(&budget).await, Err(StopReason::FleetBudget));
        sleep(Duration::from_millis(200)).await;
        assert_eq!(mode(&budget), Some(StoreMode::LocalShare), "{login}{path}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_costs_only_its_own_dependency_the_fleet() {
    let server = RedisServer::start();
    server
        .run(&["SET", "{tower-retry-budget:1:search}", "mine"])
        .await;
    let budget = RedisBudget::builder(&server.url());
    let budget = Arc::new(budget.build().expect("valid settings"));
    assert_eq!(asks(&budget).await, Err(StopReason::FleetBudget));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(mode(&budget), Some(StoreMode::LocalShare));
    let other = Key::from_static("other");
    is_granted(&budget, &other).await;
    // It heals when the intruder has gone.
    server.run(&["DEL", "{tower-retry-budget:1:search}"]).await;
    let end = Instant::now() + Duration::from_secs(5);
    while mode(&budget) != Some(StoreMode::Fleet) {
        assert!(Instant::now() < end, "not healed");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn is_drained_twice_and_by_a_frozen_redis_in_time() {
    let server = RedisServer::start();
    let budget = RedisBudget::builder(&server.url());
    let budget = Arc::new(budget.build().expect("valid settings"));
    is_granted(&budget, &KEY).await;
    server.freeze();
    for _ in 0..2 {
        let began = Instant::now();
        tokio::join!(budget.drain(), budget.drain());
        assert!(began.elapsed() < Duration::from_millis(250));
    }
    assert_eq!(asks(&budget).await, Err(StopReason::ShuttingDown));
    server.thaw();
}

#[test]
fn goes_on_with_its_share_when_its_runtime_has_ended() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let server = RedisServer::start();
    let (first, second) = (runtime(), runtime());
    let budget = first.block_on(async { RedisBudget::builder(&server.url()).build() });
    let budget = Arc::new(budget.expect("valid settings"));
    first.block_on(is_granted(&budget, &KEY));
    drop(first);
    second.block_on(async {
        for _ in 0..10 {
            let began = Instant::now();
            _ = asks(&budget).await;
            assert!(began.elapsed() < Duration::from_millis(250));
        }
        let drained = tokio::time::timeout(Duration::from_secs(1), budget.drain());
        drained.await.expect("nothing to wait for");
    });
}

/// Asks until there is a lease: on a busy machine the first connection may take longer than a retry waits.
async fn is_granted(budget: &Arc<RedisBudget>, key: &Key) {
    let end = Instant::now() + Duration::from_secs(3);
    while asks_for(budget, key).await.is_err() {
        assert!(Instant::now() < end, "no lease");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn asks(budget: &Arc<RedisBudget>) -> Result<(), StopReason> {
    asks_for(budget, &KEY).await
}

async fn asks_for(budget: &Arc<RedisBudget>, key: &Key) -> Result<(), StopReason> {
    let now = Instant::now().into_std();
    budget.deposit(key, true, now);
    let permit = match budget.clone().withdraw(key, Cause::ServerError, now) {
        Withdrawal::Granted(permit) => permit,
        Withdrawal::Denied(reason) => return Err(reason),
        Withdrawal::Pending(asked) => asked.await?,
        other => panic!("{other:?}"),
    };
    let mut permit = permit;
    permit.sent();
    Ok(())
}

fn mode(budget: &RedisBudget) -> Option<StoreMode> {
    budget.snapshot(&KEY, Instant::now().into_std()).mode()
}
