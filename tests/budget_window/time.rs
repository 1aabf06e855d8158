//! Idle times, clocks that run backwards, and the ends of time.

use crate::support::{KEY, drain, fail, start, withdraw};
use crate::{SECOND, balance, build, cap, deposit, whole_seconds};
use std::{sync::Arc, time::Duration};
use tower_retry_budget::{budget::WindowBudget, reason::Cause};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn begins_anew_after_a_month_idle() {
    let budget = Arc::new(WindowBudget::finagle());
    let now = start();
    deposit(&budget, 1000, false, now);
    assert_eq!(drain(&budget, &KEY, now), 300);
    let now = now + 30 * DAY;
    assert_eq!((balance(&budget, now), cap(&budget, now)), (100.0, 100.0));
    assert_eq!(drain(&budget, &KEY, now), 100);
}

#[test]
fn does_no_more_work_for_a_month_than_for_a_window() {
    // A month is 2.6 * 10^12 slots of a window of 64 ms.
    let budget = build(whole_seconds().window(Duration::from_millis(64)));
    let now = start();
    for month in 0..1000 {
        deposit(&budget, 1, false, now + 30 * DAY * month);
    }
    assert_eq!(cap(&budget, now + 30 * DAY * 999), 0.2);
}

#[test]
fn takes_time_that_runs_backwards_as_no_time() {
    let budget = build(whole_seconds().allowance(10));
    let now = start() + 1000 * SECOND;
    assert_eq!(drain(&budget, &KEY, now), 10);
    for back in [0, 1, 64, 66, 900] {
        let then = now - back * SECOND;
        assert!(!fail(&budget, &KEY, then));
        deposit(&budget, 5, false, then);
        assert!(fail(&budget, &KEY, then));
    }
    // All of it was counted at the latest time that was seen.
    assert_eq!(cap(&budget, now + 63 * SECOND), 15.0);
    assert_eq!(balance(&budget, now + 65 * SECOND), 0.0);
    assert_eq!(balance(&budget, now + 66 * SECOND), 10.0);
}

#[test]
fn gives_a_retry_back_however_the_clock_has_run_meanwhile() {
    let budget = build(whole_seconds().allowance(1));
    let now = start() + 1000 * SECOND;
    for (withdrawn, settled) in [(0, -500), (-500, 0), (-500, -900), (20, 0), (50, 50)] {
        let at = |offset: i64| match u64::try_from(offset) {
            Ok(ahead) => now + Duration::from_secs(ahead),
            Err(_) => now - Duration::from_secs(offset.unsigned_abs()),
        };
        let held = withdraw(&budget, &KEY, Cause::Other, at(withdrawn)).unwrap();
        assert_eq!(balance(&budget, at(withdrawn)), 0.0);
        held.give_back(at(settled));
        assert_eq!(balance(&budget, at(settled)), 1.0);
    }
}

#[test]
fn a_window_longer_than_the_host_is_up_begins_with_the_account() {
    let budget = build(whole_seconds().window(DAY).allowance(3));
    let now = tokio::time::Instant::now().into_std();
    assert_eq!(drain(&budget, &KEY, now), 3);
    assert_eq!(balance(&budget, now + DAY), 0.0);
    assert_eq!(balance(&budget, now + DAY + DAY / 32), 3.0);
}

#[test]
fn survives_the_ends_of_time() {
    let now = start();
    let mut end = now;
    for shift in (0..64).rev() {
        let step = Duration::from_secs(1 << shift);
        end = end.checked_add(step).unwrap_or(end);
    }
    for window in [Duration::from_millis(1), 10 * SECOND, 366 * DAY] {
        for count in [0, 1, u64::from(u32::MAX)] {
            let builder = whole_seconds().window(window).ratio(1000.0);
            let budget = build(builder.allowance(count).min_sample(count));
            let held = withdraw(&budget, &KEY, Cause::Other, now);
            for now in [now, end, now, end] {
                deposit(&budget, 1, false, now);
                fail(&budget, &KEY, now);
                let snapshot = budget.snapshot(&KEY, now);
                assert!(snapshot.balance() <= snapshot.cap());
            }
            if let Some(held) = held {
                held.give_back(end);
            }
        }
    }
}
