//! What first attempts earn, and what the balance is held to.

use crate::support::{KEY, balance, build, ceiling, drain, fail, start, succeed, withdraw};
use std::{sync::Arc, time::Duration};
use tower_retry_budget::{
    budget::{Budget, TokenBudget},
    reason::Cause,
};

#[test]
fn earns_exactly_the_ratio() {
    for tenths in 0..=10_u32 {
        let ratio = f64::from(tenths) / 10.0;
        let budget = build(TokenBudget::builder().ratio(ratio).initial(0).no_trickle());
        let now = start();
        for _ in 0..10 {
            budget.deposit(&KEY, false, now);
        }
        assert_eq!(drain(&budget, &KEY, now), tenths, "ratio {ratio}");
    }
}

#[test]
fn earns_nothing_from_a_first_attempt_that_failed() {
    let budget = build(TokenBudget::builder().initial(0).no_trickle());
    let now = start();
    for _ in 0..1000 {
        budget.deposit(&KEY, true, now);
    }
    assert_eq!(balance(&budget, now), 0.0);
    assert_eq!(drain(&budget, &KEY, now), 0);
}

#[test]
fn keeps_fractions_of_a_token_without_drift() {
    let builder = TokenBudget::builder().ratio(0.4).cap(1_000_000).initial(0);
    let budget = build(builder.no_trickle());
    let now = start();
    for _ in 0..3 {
        budget.deposit(&KEY, false, now);
    }
    assert!(fail(&budget, &KEY, now));
    assert!(!fail(&budget, &KEY, now));
    assert_eq!(balance(&budget, now), 0.2);
    for _ in 3..1_000_000 {
        budget.deposit(&KEY, false, now);
    }
    assert_eq!(balance(&budget, now), 399_999.0);
}

#[test]
fn earns_one_token_in_ten_successes_at_a_tenth_and_none_from_retries() {
    let builder = TokenBudget::builder().ratio(0.1).initial(1);
    let budget = build(builder.no_trickle());
    let now = start();
    assert!(succeed(&budget, &KEY, Cause::ServerError, now));
    assert_eq!(balance(&budget, now), 1.0);
    for _ in 0..10 {
        budget.deposit(&KEY, false, now);
    }
    assert_eq!(balance(&budget, now), 2.0);
}

#[test]
fn is_not_drained_or_blocked_by_answers_that_are_no_failure() {
    let budget = Arc::new(TokenBudget::default());
    let now = start();
    for _ in 0..1000 {
        budget.deposit(&KEY, false, now);
    }
    budget.deposit(&KEY, true, now);
    assert!(withdraw(&budget, &KEY, Cause::Unavailable, now).is_some());
}

#[test]
fn recovers_from_a_drain_by_first_attempts_that_succeed() {
    let budget = build(TokenBudget::builder().no_trickle());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 5);
    for _ in 0..4 {
        budget.deposit(&KEY, false, now);
    }
    assert!(!fail(&budget, &KEY, now), "0.8 is no whole token");
    budget.deposit(&KEY, false, now);
    assert!(fail(&budget, &KEY, now));
    assert!(!fail(&budget, &KEY, now));
    for _ in 0..1000 {
        budget.deposit(&KEY, false, now);
    }
    budget.deposit(&KEY, true, now);
    assert!(fail(&budget, &KEY, now));
}

#[test]
fn stores_no_more_than_the_cap_on_a_quiet_day() {
    let budget = Arc::new(TokenBudget::default());
    let mut now = start();
    for _ in 0..1_000_000 {
        now += Duration::from_micros(86_400);
        budget.deposit(&KEY, false, now);
    }
    // Twelve first attempts a second: a fifth of that is less than the floor.
    assert_eq!(balance(&budget, now), 10.0);
    assert_eq!(drain(&budget, &KEY, now), 10);
}

#[test]
fn holds_a_fifth_of_the_traffic_of_a_second_when_that_is_more() {
    let budget = Arc::new(TokenBudget::default());
    let start = start();
    for n in 0..1000 {
        let now = start + Duration::from_millis(n);
        budget.deposit(&KEY, false, now);
    }
    let now = start + Duration::from_millis(999);
    let snapshot = budget.snapshot(&KEY, now);
    assert_eq!((snapshot.cap(), snapshot.balance()), (200.0, 200.0));
    // A blip of 50 ms begins: all of its 50 calls can be retried, twice.
    assert_eq!(drain(&budget, &KEY, now), 200);
}

#[test]
fn counts_failed_first_attempts_towards_the_cap() {
    let budget = build(TokenBudget::builder().no_trickle());
    let now = start();
    for _ in 0..1000 {
        budget.deposit(&KEY, true, now);
    }
    assert_eq!(budget.snapshot(&KEY, now).cap(), 200.0);
    assert_eq!(balance(&budget, now), 5.0);
}

#[test]
fn takes_the_cap_from_the_busier_of_this_second_and_the_last() {
    let budget = Arc::new(TokenBudget::default());
    let start = start();
    let cap = |millis| {
        let now = start + Duration::from_millis(millis);
        budget.snapshot(&KEY, now).cap()
    };
    for _ in 0..100 {
        budget.deposit(&KEY, false, start);
    }
    assert_eq!(
        (cap(0), cap(999), cap(1000), cap(1999)),
        (20.0, 20.0, 20.0, 20.0)
    );
    assert_eq!(cap(2000), 10.0);
    for _ in 0..200 {
        budget.deposit(&KEY, false, start + Duration::from_millis(1500));
    }
    assert_eq!((cap(1500), cap(2999), cap(3000)), (40.0, 40.0, 10.0));
}

#[test]
fn cuts_a_balance_over_a_shrunken_cap_at_the_next_deposit_and_not_before() {
    let budget = Arc::new(TokenBudget::default());
    let start = start();
    for _ in 0..1000 {
        budget.deposit(&KEY, false, start);
    }
    let now = start + Duration::from_secs(5);
    let snapshot = budget.snapshot(&KEY, now);
    assert_eq!((snapshot.balance(), snapshot.cap()), (200.0, 10.0));
    // What is taken and given back meanwhile is not lost, and nothing trickles in on top.
    let now = now + Duration::from_secs(3600);
    drop(withdraw(&budget, &KEY, Cause::Other, now).unwrap());
    assert_eq!(balance(&budget, now), 200.0);
    budget.deposit(&KEY, true, now);
    assert_eq!((balance(&budget, now), ceiling(&budget, now)), (10.0, 30.0));
}

#[test]
fn lets_the_only_request_retry_if_something_was_there_for_it() {
    let one_each = || TokenBudget::builder().ratio(1.0).no_trickle();
    let now = start();

    let budget = build(one_each().cap(1));
    budget.deposit(&KEY, true, now);
    assert!(fail(&budget, &KEY, now), "starts with the floor");

    let budget = build(one_each().cap(0));
    budget.deposit(&KEY, true, now);
    assert!(
        !fail(&budget, &KEY, now),
        "no floor, and a failure earns nothing"
    );
    budget.deposit(&KEY, false, now);
    assert!(fail(&budget, &KEY, now));
}
