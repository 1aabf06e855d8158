//! What the budget's user has to be allowed in Redis, as the documentation says.

#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, StoreMode, Withdrawal},
    reason::Cause,
};

const COMMANDS: &[&str] = &[
    "+evalsha", "+eval", "+time", "+hmget", "+hset", "+hgetall", "+hkeys", "+hdel", "+pexpire",
];

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn budget(server: &RedisServer, allowed: &[&str]) -> Arc<RedisBudget> {
    let mut admin = server.connect().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("budget").arg("reset").arg("on");
    user.arg(">secret")
        .arg("~{tower-retry-budget:*")
        .arg(allowed);
    user.exec_async(&mut admin).await.expect("a valid rule");
    let url = format!("redis://budget:secret@127.0.0.1:{}", server.port());
    Arc::new(
        RedisBudget::builder(&url)
            .no_trickle()
            .build()
            .expect("a valid URL"),
    )
}

async fn mode(server: &RedisServer, allowed: &[&str]) -> Option<StoreMode> {
    let budget = budget(server, allowed).await;
    let key = Key::from_static("search");
    if let Withdrawal::Pending(asked) = budget.clone().withdraw(&key, Cause::Transport, now()) {
        let _ = asked.await;
    }
    budget.snapshot(&key, now()).mode()
}

#[tokio::test]
async fn needs_the_documented_commands_on_its_own_keys_and_no_more() {
    let server = RedisServer::start();
    assert_eq!(mode(&server, COMMANDS).await, Some(StoreMode::Fleet));
    for needed in ["+evalsha", "+eval", "+time", "+hmget", "+hset", "+pexpire"] {
        let others: Vec<_> = COMMANDS
            .iter()
            .copied()
            .filter(|name| *name != needed)
            .collect();
        // The script is known to the server from here on, so that only a flush asks for `eval`.
        if needed == "+eval" {
            let mut admin = server.connect().await;
            let flush = redis::cmd("SCRIPT")
                .arg("FLUSH")
                .exec_async(&mut admin)
                .await;
            flush.expect("a server that runs");
        }
        let mode = mode(&server, &others).await;
        assert_eq!(mode, Some(StoreMode::LocalShare), "without {needed}");
    }
}

#[tokio::test]
async fn counts_once_what_was_written_before_the_refusal() {
    let server = RedisServer::start();
    let all_but_one = COMMANDS.iter().copied().filter(|name| *name != "+pexpire");
    let budget = budget(&server, &all_but_one.collect::<Vec<_>>()).await;
    let key = Key::from_static("search");
    for _ in 0..10 {
        budget.deposit(&key, false, now());
    }
    // A first call within a second, and several probes.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(
        budget.snapshot(&key, now()).mode(),
        Some(StoreMode::LocalShare)
    );
    let mut admin = server.connect().await;
    let earned = redis::cmd("HGET")
        .arg("{tower-retry-budget:1:search}")
        .arg("earned")
        .clone();
    let earned: u64 = earned.query_async(&mut admin).await.expect("an account");
    assert_eq!(earned, 5000 + 10 * 200);
}
