//! What is leased, asked for, told and given back while the store answers, and at the end.

use super::*;

#[tokio::test(start_paused = true)]
async fn grants_from_a_lease_that_it_asks_for_at_once() {
    let store = Fake::new(8);
    let budget = budget(&store);
    let began = clock::now();
    assert!(spend(&budget).await);
    assert!(clock::now() - began < 5 * MS);
    assert_eq!(store.balance(), 7 * TOKEN);
    assert_eq!(store.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lets_waiting_retries_share_one_call() {
    let store = Fake::new(100);
    let budget = budget(&store);
    let asked: Vec<_> = (0..5)
        .map(|_| budget.clone().withdraw(&KEY, Cause::Timeout, clock::now()))
        .collect();
    for withdrawal in asked {
        let Withdrawal::Pending(asked) = withdrawal else {
            panic!("nothing was leased yet");
        };
        assert!(asked.await.is_ok());
    }
    assert_eq!(store.calls().len(), 1);
    assert_eq!(store.balance(), 95 * TOKEN);
}

#[tokio::test(start_paused = true)]
async fn gives_back_to_the_gate_what_nobody_waits_for_any_more() {
    let store = Fake::new(8);
    store.set(Does::Hang);
    let budget = budget(&store);
    let gate = |budget: &RedisBudget| {
        let shared = budget.shared();
        let now = clock::now();
        shared.with_existing(&KEY, |account| {
            account.gate.snapshot(&shared.gate, now).balance()
        })
    };
    let asked = budget.clone().withdraw(&KEY, Cause::Timeout, clock::now());
    assert_eq!(gate(&budget), Some(9999.0));
    drop(asked);
    assert_eq!(gate(&budget), Some(10_000.0));
}

#[tokio::test(start_paused = true)]
async fn is_silent_where_there_is_nothing_to_tell() {
    let store = Fake::new(8);
    let budget = budget(&store);
    sync(&budget, &KEY).await;
    let calls = store.calls().len();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(store.calls().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn calls_no_more_than_eight_times_a_second() {
    let store = Fake::new(1_000_000);
    let budget = budget(&store);
    let end = clock::now() + Duration::from_secs(30);
    while clock::now() < end {
        spend(&budget).await;
        sleep(7 * MS).await;
    }
    let calls: Vec<_> = store.calls().into_iter().map(|(at, ..)| at).collect();
    let most = calls
        .iter()
        .map(|from| {
            let within = |at: &&Instant| **at >= *from && **at < *from + Duration::from_secs(10);
            calls.iter().filter(within).count()
        })
        .max();
    assert!(
        most.is_some_and(|most| (60..=80).contains(&most)),
        "{most:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn gives_its_leases_back_when_it_is_drained() {
    let store = Fake::new(100);
    let budget = budget(&store);
    let permits = [ask(&budget, &KEY).await, ask(&budget, &KEY).await];
    drop(permits);
    assert!(store.balance() < 100 * TOKEN, "leased");
    budget.drain().await;
    assert_eq!(store.balance(), 100 * TOKEN);
    assert_eq!(
        ask(&budget, &KEY).await.err(),
        Some(StopReason::ShuttingDown)
    );
}

#[tokio::test(start_paused = true)]
async fn is_drained_in_a_tenth_of_a_second_whatever_the_store_does() {
    let store = Fake::new(100);
    store.set(Does::Hang);
    let budget = budget(&store);
    let waiting = budget.clone();
    let waiting = tokio::spawn(async move { ask(&waiting, &KEY).await.err() });
    sleep(10 * MS).await;
    let began = clock::now();
    budget.drain().await;
    assert!(clock::now() - began <= 101 * MS);
    assert_eq!(waiting.await.unwrap(), Some(StopReason::ShuttingDown));
    // Once is enough.
    timeout(MS, budget.drain()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ends_its_task_with_its_last_clone() {
    let store = Fake::new(100);
    let budget = budget(&store);
    sync(&budget, &KEY).await;
    let clone = RedisBudget::clone(&budget);
    drop(budget);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&store), 2);
    drop(clone);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&store), 1);
}

#[test]
fn keeps_an_account_in_less_than_a_kilobyte() {
    let size = size_of::<std::sync::Mutex<crate::budget::redis::account::Account>>();
    assert!(size + size_of::<Key>() <= 1024, "{size} bytes");
}
