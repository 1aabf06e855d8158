//! How many retries the traffic of a window allows.

use crate::support::{KEY, drain, fail, start, succeed, withdraw};
use crate::{SECOND, balance, build, cap, deposit, whole_seconds};
use std::sync::Arc;
use tower_retry_budget::{
    budget::{Key, WindowBudget},
    reason::Cause,
};

#[test]
fn grants_finagles_hundred_without_traffic_and_four_more_after_twenty_requests() {
    let budget = Arc::new(WindowBudget::finagle());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 100);
    deposit(&budget, 20, false, now);
    assert_eq!(drain(&budget, &KEY, now), 4);
    // Failed or not: requests are counted.
    deposit(&budget, 20, true, now);
    assert_eq!(drain(&budget, &KEY, now), 4);
}

#[test]
fn grants_a_fifth_of_the_successes_and_ten() {
    let budget = Arc::new(WindowBudget::successes());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 10);
    deposit(&budget, 1000, true, now);
    assert_eq!(drain(&budget, &KEY, now), 0);
    deposit(&budget, 1000, false, now);
    assert_eq!(drain(&budget, &KEY, now), 200);
}

#[test]
fn grants_a_tenth_of_the_attempts_and_of_fifty_when_there_were_less() {
    let budget = Arc::new(WindowBudget::attempts());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 5);
    deposit(&budget, 50, true, now);
    assert_eq!(drain(&budget, &KEY, now), 0);
    deposit(&budget, 10, false, now);
    assert_eq!(drain(&budget, &KEY, now), 1);
    deposit(&budget, 940, true, now);
    assert_eq!(drain(&budget, &KEY, now), 94);
    assert_eq!(cap(&budget, now), 100.0);
}

#[test]
fn allows_exactly_the_ratio() {
    for tenths in 0..=10_u32 {
        let budget = build(whole_seconds().ratio(f64::from(tenths) / 10.0));
        let now = start();
        deposit(&budget, 10, false, now);
        assert_eq!(drain(&budget, &KEY, now), tenths);
    }
}

#[test]
fn keeps_fractions_of_a_retry() {
    let budget = build(whole_seconds().ratio(0.4));
    let now = start();
    deposit(&budget, 2, false, now);
    assert!(!fail(&budget, &KEY, now), "0.8 is no whole retry");
    deposit(&budget, 1, false, now);
    assert!(fail(&budget, &KEY, now));
    assert!(!fail(&budget, &KEY, now));
    assert_eq!(balance(&budget, now), 0.2);
    deposit(&budget, 99_997, false, now);
    assert_eq!(balance(&budget, now), 39_999.0);
}

#[test]
fn lets_the_only_request_retry_when_attempts_count_in_full() {
    let budget = build(whole_seconds().of_attempts().ratio(1.0));
    let now = start();
    deposit(&budget, 1, true, now);
    assert!(fail(&budget, &KEY, now));
    assert!(!fail(&budget, &KEY, now));

    let budget = build(whole_seconds().of_successes().ratio(1.0));
    deposit(&budget, 1, true, now);
    assert!(!fail(&budget, &KEY, now), "no success paid for it");
}

#[test]
fn lets_a_dependency_that_is_asked_once_a_minute_retry() {
    for budget in [
        WindowBudget::finagle(),
        WindowBudget::successes(),
        WindowBudget::attempts(),
    ] {
        let budget = Arc::new(budget);
        for minute in 0..100 {
            let now = start() + 60 * SECOND * minute;
            deposit(&budget, 1, true, now);
            assert!(fail(&budget, &KEY, now), "{budget:?}");
        }
    }
}

#[test]
fn counts_a_retry_that_was_sent_whatever_came_of_it() {
    let budget = Arc::new(WindowBudget::attempts());
    let now = start();
    assert!(fail(&budget, &KEY, now));
    for cause in [Cause::ServerError, Cause::Throttled] {
        assert!(succeed(&budget, &KEY, cause, now));
    }
    assert_eq!(balance(&budget, now), 2.0);
    let snapshot = budget.snapshot(&KEY, now);
    assert_eq!(snapshot.refunded(), 0);
    assert_eq!(snapshot.cap(), 5.0, "a retry is no attempt");
}

#[test]
fn gives_back_a_retry_that_was_not_sent_and_counts_it() {
    let budget = Arc::new(WindowBudget::attempts());
    let now = start();
    let held: Vec<_> = (0..5)
        .map(|_| withdraw(&budget, &KEY, Cause::Other, now).unwrap())
        .collect();
    assert!(!fail(&budget, &KEY, now));
    drop(held);
    assert_eq!(balance(&budget, now), 5.0);
    let seen = budget.snapshot(&KEY, now);
    assert_eq!((seen.spent(), seen.denied(), seen.refunded()), (5, 1, 5));
    assert_eq!(seen.ceiling(), f64::INFINITY);
}

#[test]
fn recovers_from_a_drain_by_first_attempts_that_succeed() {
    for budget in [
        WindowBudget::finagle(),
        WindowBudget::successes(),
        WindowBudget::attempts(),
    ] {
        let budget = Arc::new(budget);
        let now = start();
        drain(&budget, &KEY, now);
        deposit(&budget, 1000, false, now);
        deposit(&budget, 1, true, now);
        assert!(fail(&budget, &KEY, now), "{budget:?}");
    }
}

#[test]
fn keeps_one_key_from_spending_the_retries_of_another() {
    let budget = Arc::new(WindowBudget::successes());
    let now = start();
    let other = Key::from_static("reports");
    assert_eq!(budget.keys(), 0);
    assert_eq!(balance(&budget, now), 10.0, "and makes no account");
    assert_eq!(drain(&budget, &KEY, now), 10);
    assert_eq!(drain(&budget, &other, now), 10);
    assert_eq!(budget.keys(), 2);
}

#[test]
fn lets_keys_without_room_share_one_account() {
    let budget = build(whole_seconds().allowance(3).max_keys(1));
    let now = start();
    deposit(&budget, 1, false, now);
    let keys: Vec<_> = (0..3).map(|n| Key::new(format!("host {n}"))).collect();
    let granted = |key| fail(&budget, key, now);
    assert_eq!(keys.iter().filter(|key| granted(key)).count(), 3);
    assert!(!keys.iter().any(granted), "three for all of them");
    assert_eq!(budget.snapshot(&keys[0], now).balance(), 0.0);
    assert_eq!((budget.keys(), budget.overflowed()), (1, 6));
    // Once the first key counts for nothing any more, another takes its place.
    let later = now + 66 * SECOND;
    assert!(fail(&budget, &keys[1], later));
    assert_eq!((budget.keys(), budget.overflowed()), (1, 6));
}
