//! When what a window has seen stops to count.

use crate::support::{KEY, drain, start, withdraw};
use crate::{SECOND, balance, build, cap, deposit, whole_seconds};
use std::{sync::Arc, time::Duration};
use tower_retry_budget::{budget::WindowBudget, reason::Cause};

const HALF: Duration = Duration::from_millis(500);

#[test]
fn counts_a_retry_for_a_window_and_lets_it_fade_over_one_slot_more() {
    let budget = build(whole_seconds().allowance(100));
    let now = start();
    assert_eq!(drain(&budget, &KEY, now), 100);
    for (after, left) in [
        (64 * SECOND, 0.0),
        (65 * SECOND, 0.0),
        (65 * SECOND + HALF / 2, 25.0),
        (65 * SECOND + HALF, 50.0),
        (66 * SECOND - Duration::from_nanos(1), 99.999),
        (66 * SECOND, 100.0),
    ] {
        assert_eq!(balance(&budget, now + after), left, "{after:?}");
    }
}

#[test]
fn counts_what_earns_for_a_window_at_most_and_lets_it_fade_before() {
    let budget = build(whole_seconds().ratio(1.0));
    let now = start();
    deposit(&budget, 100, false, now);
    for (after, left) in [
        (63 * SECOND, 100.0),
        (63 * SECOND + HALF, 50.0),
        (64 * SECOND - Duration::from_nanos(1), 0.0),
        (64 * SECOND, 0.0),
    ] {
        assert_eq!(cap(&budget, now + after), left, "{after:?}");
    }
}

#[test]
fn grants_nothing_twice_around_the_end_of_a_window() {
    // A window that is reset grants its allowance just before its end, and again just after.
    let budget = build(whole_seconds().allowance(100));
    let start = start();
    assert_eq!(drain(&budget, &KEY, start + 63 * SECOND), 100);
    let mut granted = 0;
    for tenth in 630..1270 {
        granted += drain(&budget, &KEY, start + SECOND / 10 * tenth);
    }
    assert_eq!(granted, 0);
}

#[test]
fn takes_a_retry_that_was_not_sent_out_of_the_slot_it_was_counted_in() {
    let budget = build(whole_seconds().allowance(2));
    let now = start();
    let held = withdraw(&budget, &KEY, Cause::Other, now).unwrap();
    let sent = now + 30 * SECOND;
    assert_eq!(drain(&budget, &KEY, sent), 1);
    // The one that was sent is the younger one, and still counts for its own window.
    held.give_back(now + 40 * SECOND);
    assert_eq!(balance(&budget, now + 40 * SECOND), 1.0);
    assert_eq!(balance(&budget, sent + 64 * SECOND), 1.0);
    assert_eq!(balance(&budget, sent + 66 * SECOND), 2.0);
}

#[test]
fn owes_nothing_to_a_retry_given_back_after_its_window() {
    let budget = build(whole_seconds().allowance(2));
    let now = start();
    for after in [65 * SECOND + HALF, 66 * SECOND, 1000 * SECOND] {
        let later = now + 2000 * SECOND;
        let held = withdraw(&budget, &KEY, Cause::Other, later).unwrap();
        held.give_back(later + after);
        assert_eq!(balance(&budget, later + after), 2.0);
    }
    // A retry of today is not mistaken for one of yesterday.
    let later = now + 10_000 * SECOND;
    let held = withdraw(&budget, &KEY, Cause::Other, later).unwrap();
    let tomorrow = later + 86_400 * SECOND;
    assert_eq!(drain(&budget, &KEY, tomorrow), 2);
    held.give_back(tomorrow);
    assert_eq!(balance(&budget, tomorrow), 0.0);
}

#[test]
fn allows_a_share_of_the_last_window_alone_after_a_quiet_day() {
    let budget = Arc::new(WindowBudget::successes());
    let mut now = start();
    for _ in 0..100_000 {
        now += Duration::from_millis(864);
        deposit(&budget, 1, false, now);
    }
    // Some 69 in a minute, less a slot with one of them.
    let granted = drain(&budget, &KEY, now);
    assert!((23..=24).contains(&granted), "{granted}");
}
