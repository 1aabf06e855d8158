//! A thousand processes and one key: Redis is called at the pace that its script sets.

#[path = "support/redis.rs"]
mod server;

use redis::aio::MultiplexedConnection;
use server::RedisServer;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, interval, sleep};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, Withdrawal},
    reason::Cause,
};

const PROCESSES: usize = 1000;
const WARM_UP: Duration = Duration::from_secs(10);
const WATCHED: usize = 20;
/// Seconds over which the pace is held.
const WINDOW: usize = 10;

/// Two calls a second, all of which fail and ask for a retry, for as long as it is not dropped.
async fn process(budget: Arc<RedisBudget>) {
    let key = Key::from_static("down");
    sleep(Duration::from_millis(fastrand::u64(..500))).await;
    loop {
        let now = Instant::now().into_std();
        budget.deposit(&key, fastrand::u8(..10) > 0, now);
        let asked = match budget.clone().withdraw(&key, Cause::ServerError, now) {
            Withdrawal::Granted(permit) => Some(permit),
            Withdrawal::Pending(asked) => asked.await.ok(),
            _ => None,
        };
        if let Some(mut permit) = asked {
            permit.sent();
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// How often the script ran so far.
async fn calls(connection: &mut MultiplexedConnection) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .expect("a server that runs");
    let calls = stats
        .split_once("cmdstat_evalsha:calls=")
        .and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok());
    calls.expect("a script that ran")
}

async fn balance_adds_up(connection: &mut MultiplexedConnection) {
    let fields = ["balance", "earned", "back", "leased", "owed"];
    let [balance, earned, back, leased, owed]: [i64; 5] = redis::cmd("HMGET")
        .arg("{tower-retry-budget:1:down}")
        .arg(&fields)
        .query_async(connection)
        .await
        .expect("an account");
    assert!(balance >= 0);
    assert_eq!(balance, earned + back - leased - owed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_processes_call_less_than_500_times_a_second() {
    let server = RedisServer::start();
    let mut connection = server.connect().await;
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..PROCESSES {
        let budget = RedisBudget::with_connection(connection.clone())
            .command_timeout(Duration::from_secs(1))
            .build();
        processes.spawn(process(Arc::new(budget.expect("valid settings"))));
    }
    sleep(WARM_UP).await;
    let mut second = interval(Duration::from_secs(1));
    let mut seen = Vec::new();
    for _ in 0..=WATCHED {
        second.tick().await;
        seen.push(calls(&mut connection).await);
        balance_adds_up(&mut connection).await;
    }
    let most = seen
        .windows(WINDOW + 1)
        .map(|window| window[WINDOW] - window[0])
        .max();
    let most = most.expect("a window");
    println!("at most {most} calls in {WINDOW} s of {PROCESSES} processes");
    assert!((3000..5000).contains(&most), "{most}");
}
