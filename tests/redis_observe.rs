//! Whoever watches is told when the fleet's store is found, fails and is lost.

#[path = "support/redis.rs"]
mod server;

use server::RedisServer;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, StoreMode},
    observe::Observe,
    reason::Cause,
};

#[derive(Clone, Default)]
struct Told {
    modes: Arc<Mutex<Vec<StoreMode>>>,
    errors: Arc<Mutex<Vec<&'static str>>>,
}

impl Observe for Told {
    fn store_mode_changed(&self, mode: StoreMode) {
        self.modes.lock().expect("nobody panics").push(mode);
    }

    fn store_failed(&self, kind: &'static str) {
        self.errors.lock().expect("nobody panics").push(kind);
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Uses the budget until the observer was told of so many modes.
async fn until(budget: &Arc<RedisBudget>, told: &Told, modes: usize) {
    let key = Key::from_static("search");
    for _ in 0..400 {
        if told.modes.lock().expect("nobody panics").len() >= modes {
            return;
        }
        budget.deposit(&key, true, now());
        drop(budget.clone().withdraw(&key, Cause::ServerError, now()));
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("not told within 10 s: {:?}", told.modes);
}

#[tokio::test]
async fn tells_once_of_each_change_and_of_every_error() {
    let mut server = RedisServer::start();
    let told = Told::default();
    let budget = RedisBudget::builder(&server.url()).observe(told.clone());
    let budget = Arc::new(budget.build().expect("valid settings"));
    until(&budget, &told, 1).await;
    assert!(told.errors.lock().expect("nobody panics").is_empty());
    let key = Key::from_static("search");
    let account = Budget::account(&*budget, &key, now());
    assert!(account.is_some_and(|account| account.mode() == Some(StoreMode::Fleet)));

    server.kill();
    until(&budget, &told, 2).await;
    server.restart();
    until(&budget, &told, 3).await;
    let modes = told.modes.lock().expect("nobody panics").clone();
    assert_eq!(
        modes,
        [StoreMode::Fleet, StoreMode::LocalShare, StoreMode::Fleet]
    );
    let errors = told.errors.lock().expect("nobody panics").clone();
    assert!(
        errors
            .iter()
            .all(|kind| ["connection", "timeout"].contains(kind)),
        "{errors:?}"
    );
    assert!(!errors.is_empty());
}
