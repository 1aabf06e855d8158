//! One budget for a fleet, in a real Redis: what processes share, and what it keeps of them.

#[path = "support/redis.rs"]
mod server;

use redis::AsyncCommands;
use server::RedisServer;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use tower_retry_budget::{
    budget::{
        Budget, Key, Permit, RedisBudget, RedisBudgetBuilder, Snapshot, StoreMode, Withdrawal,
    },
    reason::{Cause, StopReason},
};

const KEY: Key = Key::from_static("search");
const ACCOUNT: &str = "{tower-retry-budget:1:search}";

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn build(builder: RedisBudgetBuilder) -> Arc<RedisBudget> {
    Arc::new(builder.build().expect("valid settings"))
}

fn budget(server: &RedisServer) -> Arc<RedisBudget> {
    build(RedisBudget::builder(&server.url()).no_trickle())
}

async fn withdraw(budget: &Arc<RedisBudget>) -> Result<Permit, StopReason> {
    match budget.clone().withdraw(&KEY, Cause::ServerError, now()) {
        Withdrawal::Granted(permit) => Ok(permit),
        Withdrawal::Denied(reason) => Err(reason),
        Withdrawal::Pending(asked) => asked.await,
        other => panic!("{other:?}"),
    }
}

/// Asks `times` times, long enough apart for a call in between, and returns what was granted.
async fn spend(budget: &Arc<RedisBudget>, times: u32) -> u32 {
    let mut granted = 0;
    for _ in 0..times {
        if let Ok(mut permit) = withdraw(budget).await {
            permit.sent();
            granted += 1;
        }
        sleep(Duration::from_millis(40)).await;
    }
    granted
}

#[tokio::test]
async fn leases_on_the_first_failure() {
    let server = RedisServer::start();
    let budget = budget(&server);
    assert_eq!(spend(&budget, 20).await, 5);
    let snapshot = budget.snapshot(&KEY, now());
    assert_eq!(snapshot.mode(), Some(StoreMode::Fleet));
}

#[tokio::test]
async fn four_processes_share_one_allowance() {
    let server = RedisServer::start();
    let budgets: [_; 4] = std::array::from_fn(|_| {
        let builder = RedisBudget::builder(&server.url());
        build(builder.no_trickle().cap(10).initial(10))
    });
    let [a, b, c, d] = &budgets;
    let (a, b, c, d) = tokio::join!(spend(a, 60), spend(b, 60), spend(c, 60), spend(d, 60));
    println!("{a} + {b} + {c} + {d} of 10");
    assert_eq!(a + b + c + d, 10);
}

#[tokio::test]
async fn a_key_that_never_expires_heals() {
    let server = RedisServer::start();
    let budget = budget(&server);
    spend(&budget, 1).await;
    let mut connection = server.connect().await;
    let (): () = connection.persist(ACCOUNT).await.expect("a key");
    let ttl: i64 = connection.pttl(ACCOUNT).await.expect("a key");
    assert_eq!(ttl, -1);
    budget.deposit(&KEY, true, now());
    sleep(Duration::from_millis(1300)).await;
    let ttl: i64 = connection.pttl(ACCOUNT).await.expect("a key");
    println!("expires in {ttl} ms");
    assert!((1..=3_600_000).contains(&ttl));
}

#[tokio::test]
async fn clients_agree_whose_clocks_do_not() {
    let server = RedisServer::start();
    let clients = [0, 300].map(|ahead| {
        let url = server.url();
        // A runtime of its own has a clock of its own.
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(client(&url, Duration::from_secs(ahead)))
        })
    });
    let [one, other] = clients.map(|client| client.join().expect("no panic"));
    println!("{one:?} {other:?}");
    assert_eq!(one.0 + other.0, 5);
    assert_eq!(one.1.balance(), other.1.balance());
    assert_eq!(one.1.cap(), other.1.cap());
    assert_eq!(one.1.live(), 2);
    assert_eq!(other.1.live(), 2);
}

async fn client(url: &str, ahead: Duration) -> (u32, Snapshot) {
    tokio::time::pause();
    tokio::time::advance(ahead).await;
    tokio::time::resume();
    let budget = build(RedisBudget::builder(url).no_trickle());
    let granted = spend(&budget, 40).await;
    budget.deposit(&KEY, true, now());
    sleep(Duration::from_millis(600)).await;
    (granted, budget.snapshot(&KEY, now()))
}

#[tokio::test]
async fn a_lost_key_starts_from_what_was_seen_last() {
    let server = RedisServer::start();
    let knows = budget(&server);
    assert_eq!(spend(&knows, 3).await, 3);
    sleep(Duration::from_millis(400)).await;
    let mut connection = server.connect().await;
    let (): () = connection.del(ACCOUNT).await.expect("a key");
    let rest = spend(&knows, 30).await;
    println!("{rest} after the loss");
    assert!(rest <= 5, "no more than was seen, and what was leased");

    let (): () = connection.del(ACCOUNT).await.expect("a key");
    let knows_nothing = budget(&server);
    assert_eq!(spend(&knows_nothing, 30).await, 5);
}

#[tokio::test]
async fn a_million_keys_take_bounded_memory_and_no_more_keys_in_redis() {
    let server = RedisServer::start();
    let budget = build(RedisBudget::builder(&server.url()).max_keys(512));
    let before = resident();
    for host in 0..1_000_000 {
        budget.deposit(&Key::new(format!("host-{host}")), true, now());
        if host % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sleep(Duration::from_millis(1500)).await;
    let mut connection = server.connect().await;
    let keys: u64 = redis::cmd("DBSIZE")
        .query_async(&mut connection)
        .await
        .expect("a size");
    let grown = resident().saturating_sub(before) / 1024;
    let overflowed = budget.overflowed();
    println!(
        "{} keys here, {keys} in Redis, {overflowed} overflowed, {grown} KiB more",
        budget.keys()
    );
    assert!(budget.keys() <= 512);
    // Those that had a place here, at some time.
    assert!(keys + overflowed <= 1_000_000);
    assert!(grown < 32 * 1024, "{grown} KiB");
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = pages.split_whitespace().nth(1).expect("two numbers");
    pages.parse::<usize>().expect("a number") * 4096
}
