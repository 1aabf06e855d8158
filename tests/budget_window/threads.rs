//! Exact totals under threads.

use crate::support::{KEY, drain, fail, start, withdraw};
use crate::{balance, build, whole_seconds};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};
use tower_retry_budget::{budget::Budget, reason::Cause};

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
    let budget = build(whole_seconds().allowance(100));
    let now = start();
    let granted = AtomicU32::new(0);
    race(|_| {
        if fail(&budget, &KEY, now) {
            granted.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(granted.into_inner(), 100);
    let seen = budget.snapshot(&KEY, now);
    assert_eq!((seen.spent(), seen.denied()), (100, 79_900));
}

#[test]
fn loses_no_retry_when_threads_give_back_what_others_take() {
    let budget = build(whole_seconds().allowance(100));
    let now = start();
    let sent = AtomicU32::new(0);
    race(|n| {
        if let Some(mut permit) = withdraw(&budget, &KEY, Cause::Transport, now) {
            if n % 400 == 0 {
                permit.sent();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let sent = sent.into_inner();
    assert!(sent > 0);
    assert_eq!(balance(&budget, now), f64::from(100 - sent));
    assert_eq!(drain(&budget, &KEY, now), 100 - sent);
}

#[test]
fn counts_every_deposit_of_eight_threads() {
    let budget = build(whole_seconds().ratio(0.1));
    let now = start();
    race(|_| budget.deposit(&KEY, false, now));
    assert_eq!(drain(&budget, &KEY, now), 8000);
}
