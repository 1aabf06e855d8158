//! What passing time adds, and what it does not.

use crate::support::{KEY, balance, build, ceiling, drain, fail, start, withdraw};
use std::{sync::Arc, time::Duration};
use tower_retry_budget::{
    budget::{Budget, TokenBudget},
    reason::Cause,
};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn trickles_a_token_in_ten_seconds_and_not_before() {
    let budget = Arc::new(TokenBudget::default());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 5);
    assert!(!fail(
        &budget,
        &KEY,
        now + Duration::from_nanos(9_999_999_999)
    ));
    assert!(fail(&budget, &KEY, now + secs(10)));
    assert!(!fail(&budget, &KEY, now + secs(10)));
    assert_eq!(ceiling(&budget, now + secs(10)), 30.0 - 6.0 + 1.0);
    let quick = build(TokenBudget::builder().trickle(Duration::from_millis(1)));
    drain(&quick, &KEY, now);
    assert_eq!(balance(&quick, now + Duration::from_millis(7)), 7.0);
    let never = build(TokenBudget::builder().no_trickle());
    drain(&never, &KEY, now);
    assert_eq!(balance(&never, now + secs(1 << 30)), 0.0);
}

#[test]
fn holds_no_more_than_the_cap_after_a_month_idle() {
    let budget = Arc::new(TokenBudget::default());
    let start = start();
    for _ in 0..1000 {
        budget.deposit(&KEY, true, start);
    }
    // The cap of the busy second was 200, but it lasts two seconds, in which 0.2 trickle in above
    // the floor. The ceiling has 0.5 of each first attempt since the cap passed the floor.
    let now = start + secs(30 * 86_400);
    assert_eq!(
        (balance(&budget, now), ceiling(&budget, now)),
        (10.0, 505.2)
    );
    assert_eq!(drain(&budget, &KEY, now), 10);
}

#[test]
fn takes_time_that_runs_backwards_as_no_time() {
    let budget = Arc::new(TokenBudget::default());
    let now = start();
    assert_eq!(drain(&budget, &KEY, now + secs(10)), 5);
    for back in [0, 3600, 7] {
        assert!(!fail(&budget, &KEY, now + secs(10) - secs(back)));
        budget.deposit(&KEY, true, now + secs(10) - secs(back));
    }
    assert_eq!(
        balance(&budget, now + secs(15)),
        0.5,
        "counted from the latest, once"
    );
}

#[test]
fn survives_the_ends_of_time() {
    let now = start();
    let mut end = now;
    for shift in (0..64).rev() {
        end = end.checked_add(secs(1 << shift)).unwrap_or(end);
    }
    let longest = Duration::MAX;
    for trickle in [Duration::from_nanos(1), secs(10), secs(1 << 40), longest] {
        for cap in [0, 1, 10, u64::from(u32::MAX)] {
            let builder = TokenBudget::builder().ratio(1000.0).cap(cap);
            let budget = build(builder.trickle(trickle));
            drop(withdraw(&budget, &KEY, Cause::Other, now));
            for now in [now, end, now, end] {
                budget.deposit(&KEY, false, now);
                fail(&budget, &KEY, now);
                assert!(balance(&budget, now) <= budget.snapshot(&KEY, now).cap());
            }
        }
    }
}

#[test]
fn lets_a_dependency_that_is_asked_once_a_minute_retry() {
    let budget = Arc::new(TokenBudget::default());
    let mut now = start();
    for _ in 0..100 {
        now += secs(60);
        budget.deposit(&KEY, true, now);
        assert!(fail(&budget, &KEY, now));
    }
}
