//! What the budget's user has to be allowed in Redis, as the documentation says.

#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{sync::Arc, time::Instant};
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

async fn mode(server: &RedisServer, allowed: &[&str]) -> Option<StoreMode> {
    let mut admin = server.connect().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("budget").arg("reset").arg("on");
    user.arg(">secret")
        .arg("~{tower-retry-budget:*")
        .arg(allowed);
    user.exec_async(&mut admin).await.expect("a valid rule");
    let url = format!("redis://budget:secret@127.0.0.1:{}", server.port());
    let budget = Arc::new(RedisBudget::builder(&url).build().expect("a valid URL"));
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
