//! One budget over real processes, whose dependency fails. The account in Redis is the judge.

mod process;
#[path = "../support/redis.rs"]
mod server;

use process::{Fleet, KEY};
use redis::AsyncCommands;
use server::RedisServer;
use std::{collections::HashMap, time::Duration};
use tokio::time::{Instant, sleep};
use tower_retry_budget::budget::Budget;

const ACCOUNT: &str = "{tower-retry-budget:1:search}";

#[tokio::test]
async fn is_a_process_of_the_fleet() {
    process::run().await;
}

/// What Redis says of the account, in milli-tokens.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    balance: i64,
    earned: i64,
    leased: i64,
    back: i64,
    owed: i64,
}

impl Ledger {
    /// Reads it and looks for a balance that is overdrawn or does not add up.
    async fn read(server: &RedisServer) -> Self {
        let mut connection = server.connect().await;
        let fields: HashMap<String, String> = connection.hgetall(ACCOUNT).await.expect("a hash");
        let field = |name| {
            fields
                .get(name)
                .map_or(0, |it| it.parse().expect("a number"))
        };
        let ledger = Self {
            balance: field("balance"),
            earned: field("earned"),
            leased: field("leased"),
            back: field("back"),
            owed: field("owed"),
        };
        assert!(ledger.balance >= 0, "{ledger:?}");
        let sum = ledger.earned + ledger.back - ledger.leased - ledger.owed;
        assert_eq!(ledger.balance, sum, "{ledger:?}");
        ledger
    }

    /// Looks again and again for so long.
    async fn watch(server: &RedisServer, time: Duration) -> Self {
        let until = Instant::now() + time;
        loop {
            let ledger = Self::read(server).await;
            if Instant::now() >= until {
                return ledger;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn eight_processes_use_what_was_earned_and_never_more() {
    let server = RedisServer::start();
    let fleet = Fleet {
        url: &server.url(),
        cap: 100,
        trickle: Duration::from_millis(50),
    };
    let processes: Vec<_> = (0..8).map(|_| fleet.start(seconds(8))).collect();
    Ledger::watch(&server, seconds(7)).await;
    let granted: Vec<_> = processes.into_iter().map(|it| it.granted()).collect();
    let ledger = Ledger::read(&server).await;
    let used: u64 = granted.iter().sum();
    println!(
        "{used} of {} used: {granted:?} {ledger:?}",
        ledger.earned / 1000
    );
    let used = i64::try_from(used).expect("a small number") * 1000;
    assert!(used <= ledger.earned, "more than was earned");
    assert!(used * 10 >= ledger.earned * 9, "less than nine tenths");
}

#[tokio::test]
async fn a_kill_is_made_good_by_the_trickle() {
    let server = RedisServer::start();
    let fleet = Fleet {
        url: &server.url(),
        cap: 20,
        trickle: Duration::from_millis(50),
    };
    let killed = fleet.start(seconds(20));
    let others: Vec<_> = (0..7).map(|_| fleet.start(seconds(4))).collect();
    Ledger::watch(&server, seconds(3)).await;
    killed.kill();
    for other in others {
        other.granted();
    }
    // As long as the cap takes to trickle in, and until no traffic of the last two seconds raises it.
    sleep(Duration::from_millis(2300)).await;
    let budget = fleet.budget();
    let now = Instant::now().into_std();
    budget.deposit(&KEY, true, now);
    budget.drain().await;
    let ledger = Ledger::read(&server).await;
    println!("{ledger:?}");
    assert_eq!(ledger.balance, 20_000);
}

#[tokio::test]
async fn a_ninth_process_gets_its_share() {
    let server = RedisServer::start();
    let fleet = Fleet {
        url: &server.url(),
        cap: 100,
        trickle: Duration::from_millis(20),
    };
    let eight: Vec<_> = (0..8).map(|_| fleet.start(seconds(9))).collect();
    let before = Ledger::watch(&server, seconds(3)).await;
    let ninth = fleet.start(seconds(5)).granted();
    let after = Ledger::read(&server).await;
    let share = u64::try_from((after.earned - before.earned) / 9000).expect("some");
    for process in eight {
        process.granted();
    }
    println!("the ninth got {ninth}, an even share is {share}");
    assert!(ninth * 2 >= share, "{ninth} of {share}");
    assert!(ninth <= share * 2, "{ninth} of {share}");
}

#[tokio::test]
async fn a_deploy_in_an_outage_brings_no_fresh_allowance() {
    let server = RedisServer::start();
    let fleet = Fleet {
        url: &server.url(),
        cap: 100,
        trickle: Duration::ZERO,
    };
    let start = || (0..8).map(|_| fleet.start(seconds(3))).collect::<Vec<_>>();
    let mut granted = Vec::new();
    for process in start() {
        granted.push(process.granted());
    }
    let before = Ledger::read(&server).await;
    let mut again = Vec::new();
    for process in start() {
        again.push(process.granted());
    }
    let after = Ledger::read(&server).await;
    println!("{granted:?}, then {again:?}: {before:?} {after:?}");
    assert_eq!(before.earned, 5000);
    assert_eq!(after.earned, 5000);
    let sum = granted.iter().chain(&again).sum::<u64>();
    assert_eq!(sum, 5);
}

#[tokio::test]
async fn a_deploy_while_redis_is_frozen_brings_no_fresh_allowance() {
    let server = RedisServer::start();
    let fleet = Fleet {
        url: &server.url(),
        cap: 100,
        trickle: Duration::ZERO,
    };
    let start = |runs| (0..8).map(|_| fleet.start(runs)).collect::<Vec<_>>();
    let spent: u64 = start(seconds(2)).into_iter().map(|it| it.granted()).sum();
    assert_eq!(spent, 5);
    server.freeze();
    let again = start(seconds(7));
    sleep(seconds(3)).await;
    server.thaw();
    let granted: Vec<_> = again.into_iter().map(|it| it.granted()).collect();
    let ledger = Ledger::read(&server).await;
    println!("{granted:?} {ledger:?}");
    assert_eq!(granted, [0; 8]);
    assert_eq!(ledger.earned, 5000);
}

#[tokio::test]
async fn a_deploy_while_redis_is_lost_brings_the_first_allowance_once_for_all() {
    let mut server = RedisServer::start();
    let url = server.url();
    let fleet = Fleet {
        url: &url,
        cap: 100,
        trickle: Duration::ZERO,
    };
    let start = |runs| (0..8).map(|_| fleet.start(runs)).collect::<Vec<_>>();
    let spent: u64 = start(seconds(2)).into_iter().map(|it| it.granted()).sum();
    assert_eq!(spent, 5);
    server.kill();
    let again = start(seconds(7));
    sleep(seconds(3)).await;
    server.restart();
    let granted: Vec<_> = again.into_iter().map(|it| it.granted()).collect();
    let ledger = Ledger::read(&server).await;
    println!("{granted:?} {ledger:?}");
    assert_eq!(granted.iter().sum::<u64>(), 5);
    assert_eq!(ledger.earned, 5000);
}
