//! Accounts apart, and exact totals under threads.

use crate::support::{KEY, balance, build, ceiling, drain, fail, start, withdraw};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};
use tower_retry_budget::{
    budget::{Key, TokenBudget},
    reason::Cause,
};

#[test]
fn keeps_one_key_from_spending_the_retries_of_another() {
    let budget = Arc::new(TokenBudget::default());
    let now = start();
    let other = Key::from_static("reports");
    assert_eq!(drain(&budget, &KEY, now), 5);
    assert_eq!(drain(&budget, &other, now), 5);
    assert_eq!(budget.keys(), 2);
}

#[test]
fn shows_a_key_that_was_not_used_and_makes_no_account_for_it() {
    let budget = TokenBudget::default();
    let snapshot = budget.snapshot(&KEY, start());
    assert_eq!(
        (snapshot.balance(), snapshot.cap(), snapshot.ceiling()),
        (5.0, 10.0, 30.0)
    );
    assert_eq!(budget.keys(), 0);
}

/// Runs `ask` in 8 threads at once, 10 000 times in each.
fn race(ask: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                (0..10_000).for_each(&ask);
            });
        }
    });
}

#[test]
fn grants_a_hundred_to_eight_threads_that_ask_for_eighty_thousand() {
    let builder = TokenBudget::builder().cap(100).initial(100);
    let budget = build(builder.no_trickle());
    let now = start();
    let granted = AtomicU32::new(0);
    race(|_| {
        if fail(&budget, &KEY, now) {
            granted.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(granted.into_inner(), 100);
    assert_eq!((balance(&budget, now), ceiling(&budget, now)), (0.0, 200.0));
}

#[test]
fn loses_no_token_when_threads_give_back_what_others_take() {
    let builder = TokenBudget::builder().cap(100).initial(100);
    let budget = build(builder.no_trickle());
    let now = start();
    let (failed, succeeded) = (AtomicU32::new(0), AtomicU32::new(0));
    race(|n| {
        let Some(mut permit) = withdraw(&budget, &KEY, Cause::Transport, now) else {
            return;
        };
        match n % 400 {
            0 => {
                permit.sent();
                failed.fetch_add(1, Ordering::Relaxed);
            }
            1 => {
                permit.sent();
                permit.succeeded(now);
                succeeded.fetch_add(1, Ordering::Relaxed);
            }
            _ => drop(permit),
        }
    });
    let (failed, succeeded) = (failed.into_inner(), succeeded.into_inner());
    assert!(failed > 0 && succeeded > 0);
    assert_eq!(balance(&budget, now), f64::from(100 - failed));
    assert_eq!(ceiling(&budget, now), f64::from(300 - failed - succeeded));
    assert_eq!(
        drain(&budget, &KEY, now),
        (100 - failed).min(300 - failed - succeeded)
    );
}
