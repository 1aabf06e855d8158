//! What a retry costs, what is given back, and what the ceiling bounds.

use crate::support::{KEY, balance, build, ceiling, fail, start, succeed, withdraw};
use std::time::Duration;
use tower_retry_budget::{
    budget::{Budget, TokenBudget},
    reason::Cause,
};

const CAUSES: [Cause; 7] = [
    Cause::Throttled,
    Cause::Unavailable,
    Cause::Timeout,
    Cause::ServerError,
    Cause::Unprocessed,
    Cause::Transport,
    Cause::Other,
];

#[test]
fn denies_at_once_when_nothing_is_left() {
    let budget = build(TokenBudget::builder().initial(0));
    // `withdraw` asserts that the answer is neither pending nor another reason.
    assert!(withdraw(&budget, &KEY, Cause::Other, start()).is_none());
}

#[test]
fn gives_a_retry_back_when_it_succeeds_unless_it_answered_an_overload_signal() {
    for cause in CAUSES {
        let budget = build(TokenBudget::builder().no_trickle());
        let now = start();
        assert!(succeed(&budget, &KEY, cause, now));
        let left = if cause.is_overload_signal() { 4.0 } else { 5.0 };
        assert_eq!(balance(&budget, now), left, "{cause}");
        assert_eq!(ceiling(&budget, now), 29.0, "the ceiling pays for all");
    }
}

#[test]
fn gives_nothing_back_when_a_retry_fails() {
    for cause in CAUSES {
        let budget = build(TokenBudget::builder().no_trickle());
        let now = start();
        let mut permit = withdraw(&budget, &KEY, cause, now).unwrap();
        permit.sent();
        drop(permit);
        assert_eq!(
            (balance(&budget, now), ceiling(&budget, now)),
            (4.0, 29.0),
            "{cause}"
        );
    }
}

#[test]
fn restores_balance_and_ceiling_when_a_retry_was_not_sent() {
    for cause in CAUSES {
        let budget = build(TokenBudget::builder().no_trickle());
        let now = start();
        let permit = withdraw(&budget, &KEY, cause, now);
        assert_eq!(
            (balance(&budget, now), ceiling(&budget, now)),
            (4.0, 29.0),
            "{cause}"
        );
        drop(permit);
        assert_eq!(
            (balance(&budget, now), ceiling(&budget, now)),
            (5.0, 30.0),
            "{cause}"
        );
    }
}

#[test]
fn does_not_pass_the_cap_when_retries_come_back_to_a_full_balance() {
    let budget = build(TokenBudget::builder().initial(10).no_trickle());
    let now = start();
    let held: Vec<_> = (0..10)
        .map(|_| withdraw(&budget, &KEY, Cause::Other, now))
        .collect();
    for _ in 0..50 {
        budget.deposit(&KEY, false, now);
    }
    assert_eq!(balance(&budget, now), 10.0);
    drop(held);
    assert_eq!((balance(&budget, now), ceiling(&budget, now)), (10.0, 30.0));
}

#[test]
fn settles_in_the_documented_state_when_calls_are_saved_by_one_retry() {
    let budget = build(TokenBudget::builder().no_trickle());
    let mut now = start();
    for n in 0..1000 {
        now += Duration::from_millis(100);
        let failed = n % 10 < 3;
        budget.deposit(&KEY, failed, now);
        assert!(!failed || succeed(&budget, &KEY, Cause::ServerError, now));
    }
    assert_eq!(balance(&budget, now), 10.0);
}

#[test]
fn bounds_free_retries_to_one_for_two_calls() {
    let budget = build(TokenBudget::builder().no_trickle());
    let mut now = start();
    let mut granted = 0;
    for _ in 0..1000 {
        now += Duration::from_millis(100);
        budget.deposit(&KEY, true, now);
        granted += u32::from(succeed(&budget, &KEY, Cause::ServerError, now));
    }
    // 59 until the ceiling of 30 is used up, then every second.
    assert_eq!(granted, 59 + 470);
    assert_eq!(balance(&budget, now), 5.0);
}

#[test]
fn bounds_free_retries_by_the_ceiling_ratio_and_by_nothing_without_it() {
    let granted = |builder| {
        let budget = build(builder);
        let now = start();
        (0..1000)
            .filter(|_| succeed(&budget, &KEY, Cause::Other, now))
            .count()
    };
    assert_eq!(granted(TokenBudget::builder()), 30);
    assert_eq!(granted(TokenBudget::builder().cap(7)), 21);
    assert_eq!(granted(TokenBudget::builder().no_ceiling()), 1000);
    let budget = build(TokenBudget::builder().ceiling_ratio(0.125).no_trickle());
    let now = start();
    while succeed(&budget, &KEY, Cause::Other, now) {}
    budget.deposit(&KEY, false, now);
    assert_eq!(ceiling(&budget, now), 0.125);
    assert_eq!(
        ceiling(&build(TokenBudget::builder().no_ceiling()), now),
        f64::INFINITY
    );
}

#[test]
fn takes_nothing_from_either_account_when_one_of_them_lacks() {
    let budget = build(TokenBudget::builder().cap(1).no_trickle());
    let now = start();
    for _ in 0..3 {
        assert!(succeed(&budget, &KEY, Cause::Other, now));
    }
    assert!(!succeed(&budget, &KEY, Cause::Other, now));
    assert_eq!((balance(&budget, now), ceiling(&budget, now)), (1.0, 0.0));

    let budget = build(TokenBudget::builder().cap(1).no_trickle());
    assert!(fail(&budget, &KEY, now));
    assert!(!fail(&budget, &KEY, now));
    assert_eq!((balance(&budget, now), ceiling(&budget, now)), (0.0, 2.0));
}
