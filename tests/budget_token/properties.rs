//! What holds of the token budget in every sequence of events.

use crate::support::{KEY, balance, build, ceiling, start, succeed, withdraw};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, Permit, Settled, TokenBudget, Withdrawal},
    reason::{Cause, RetryOutcome},
};

#[derive(Clone, Debug)]
enum Event {
    FirstAttempt { failed: bool },
    Withdraw(Cause),
    Settle(Index, RetryOutcome),
    Wait(Duration),
}

fn causes() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::ServerError),
        Just(Cause::Transport),
        Just(Cause::Throttled),
        Just(Cause::Timeout),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let outcomes = prop_oneof![
        Just(RetryOutcome::NotSent),
        Just(RetryOutcome::Succeeded),
        Just(RetryOutcome::Failed),
    ];
    let event = prop_oneof![
        4 => any::<bool>().prop_map(|failed| Event::FirstAttempt { failed }),
        4 => causes().prop_map(Event::Withdraw),
        3 => (any::<Index>(), outcomes).prop_map(|(at, outcome)| Event::Settle(at, outcome)),
        1 => (0..3_000_000_u64).prop_map(|micros| Event::Wait(Duration::from_micros(micros))),
    ];
    vec(event, 0..400)
}

/// What events did to a budget.
#[derive(Default)]
struct Tally {
    first_attempts: u32,
    successes: u32,
    granted: u32,
    /// Given back to the balance.
    refunded: u32,
    not_sent: u32,
    waited: Duration,
    held: Vec<(Permit, Cause)>,
}

impl Tally {
    fn apply(&mut self, budget: &Arc<TokenBudget>, event: &Event, start: Instant) {
        match event {
            Event::FirstAttempt { failed } => {
                budget.deposit(&KEY, *failed, start + self.waited);
                self.first_attempts += 1;
                self.successes += u32::from(!failed);
            }
            Event::Withdraw(cause) => {
                if let Some(permit) = withdraw(budget, &KEY, *cause, start + self.waited) {
                    self.granted += 1;
                    self.held.push((permit, *cause));
                }
            }
            Event::Settle(_, _) if self.held.is_empty() => {}
            Event::Settle(at, outcome) => {
                let (mut permit, cause) = self.held.swap_remove(at.index(self.held.len()));
                let back = match outcome {
                    RetryOutcome::NotSent => {
                        self.not_sent += 1;
                        drop(permit);
                        true
                    }
                    RetryOutcome::Succeeded => {
                        permit.sent();
                        permit.succeeded(start + self.waited);
                        !cause.is_overload_signal()
                    }
                    _ => {
                        permit.sent();
                        drop(permit);
                        false
                    }
                };
                self.refunded += u32::from(back);
            }
            Event::Wait(wait) => self.waited += *wait,
        }
    }

    /// Tokens that trickled in at one per 10 s, in whole milli-tokens.
    fn trickled(&self) -> f64 {
        (self.waited.as_micros() / 10_000) as f64 / 1000.0
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_balance_stays_within_zero_and_the_cap(
        events in events(),
        cap in 0..20_u64,
        ratio in 0..2000_u32,
    ) {
        let ratio = f64::from(ratio) / 1000.0;
        let budget = build(TokenBudget::builder().cap(cap).ratio(ratio));
        let (start, mut tally) = (start(), Tally::default());
        // The cap that the last deposit found.
        let mut in_force = cap as f64;
        for event in &events {
            tally.apply(&budget, event, start);
            let snapshot = budget.snapshot(&KEY, start + tally.waited);
            if let Event::FirstAttempt { .. } = event {
                in_force = snapshot.cap();
            }
            prop_assert!((0.0..=in_force).contains(&snapshot.balance()), "{snapshot:?}");
            let most = 3.0 * in_force + 1e-6;
            prop_assert!((0.0..=most).contains(&snapshot.ceiling()), "{snapshot:?}");
        }
    }

    #[test]
    fn no_token_appears_or_is_lost_below_the_cap(events in events()) {
        let most = u64::from(u32::MAX);
        let budget = build(TokenBudget::builder().cap(most).initial(5));
        let (start, mut tally) = (start(), Tally::default());
        // The account begins at its first use.
        budget.deposit(&KEY, true, start);
        for event in &events {
            tally.apply(&budget, event, start);
            let expected = 5.0 + 0.2 * f64::from(tally.successes) + tally.trickled()
                + f64::from(tally.refunded) - f64::from(tally.granted);
            prop_assert!(close(balance(&budget, start + tally.waited), expected));
        }
    }

    #[test]
    fn retries_stay_under_the_ceiling_whatever_comes_of_them(events in events()) {
        let budget = build(TokenBudget::builder().ratio(1000.0).ceiling_ratio(0.5));
        let (start, mut tally) = (start(), Tally::default());
        for event in &events {
            tally.apply(&budget, event, start);
            let sent = f64::from(tally.granted - tally.not_sent);
            let bound = 30.0 + 0.5 * f64::from(tally.first_attempts) + tally.trickled();
            prop_assert!(sent <= bound + 1e-6, "{sent} over {bound}");
        }
    }

    #[test]
    fn a_permit_dropped_before_its_retry_is_sent_changes_nothing(events in events()) {
        let budget = build(TokenBudget::builder().no_trickle());
        let (start, mut tally) = (start(), Tally::default());
        for event in &events {
            tally.apply(&budget, event, start);
            let now = start + tally.waited;
            let before = budget.snapshot(&KEY, now);
            drop(withdraw(&budget, &KEY, Cause::Throttled, now));
            let after = budget.snapshot(&KEY, now);
            prop_assert_eq!(
                (after.balance(), after.cap(), after.ceiling()),
                (before.balance(), before.cap(), before.ceiling())
            );
        }
    }

    #[test]
    fn the_trickle_does_not_depend_on_how_often_anybody_looks(
        steps in vec(0..5_000_000_000_u64, 1..100),
        per_token in 1..10_000_000_000_u64,
    ) {
        let builder = TokenBudget::builder().ratio(0.0).cap(u32::MAX.into()).initial(0);
        let budget = build(builder.trickle(Duration::from_nanos(per_token)));
        let start = start();
        budget.deposit(&KEY, true, start);
        let mut passed = 0;
        for step in steps {
            passed += step;
            let now = start + Duration::from_nanos(passed);
            budget.deposit(&KEY, true, now);
            let milli = u128::from(passed) * 1000 / u128::from(per_token);
            let expected = milli.min(u128::from(u32::MAX) * 1000) as f64 / 1000.0;
            prop_assert_eq!(balance(&budget, now), expected);
        }
    }

    #[test]
    fn the_trickle_is_held_to_the_cap_of_its_second_however_often_anybody_looks(
        looks in vec(0..30_000_u64, 0..50),
        burst in 0..200_u32,
    ) {
        let fresh = || build(TokenBudget::builder().trickle(Duration::from_millis(70)));
        let (looked_at, left_alone) = (fresh(), fresh());
        let start = start();
        for budget in [&looked_at, &left_alone] {
            (0..burst).for_each(|_| budget.deposit(&KEY, true, start));
        }
        let mut looks = looks;
        looks.sort_unstable();
        for millis in looks {
            // Settling a retry at no cost does nothing but bring the account up to date.
            let now = start + Duration::from_millis(millis);
            let permit = Permit::new(looked_at.clone(), KEY, Cause::Throttled, 0);
            permit.succeeded(now);
        }
        let end = start + Duration::from_secs(30);
        prop_assert_eq!(looked_at.snapshot(&KEY, end), left_alone.snapshot(&KEY, end));
    }

    #[test]
    fn a_permit_settles_exactly_once(
        sent in any::<bool>(),
        succeeds in any::<bool>(),
        cause in causes(),
        cost in any::<u32>(),
    ) {
        let budget = Arc::new(Ledger::default());
        let mut permit = Permit::new(budget.clone(), KEY, cause, cost);
        if sent {
            permit.sent();
            permit.sent();
        }
        if succeeds {
            permit.succeeded(start());
        } else {
            drop(permit);
        }
        let outcome = match (sent, succeeds) {
            (_, true) => RetryOutcome::Succeeded,
            (true, false) => RetryOutcome::Failed,
            (false, false) => RetryOutcome::NotSent,
        };
        let settled = budget.0.lock().unwrap();
        let seen: Vec<_> = settled.iter().map(|s| (s.outcome, s.cause, s.cost)).collect();
        prop_assert_eq!(seen, vec![(outcome, cause, cost)]);
    }
}

/// A budget that writes down what it is told.
#[derive(Default)]
struct Ledger(Mutex<Vec<Settled>>);

impl Budget for Ledger {
    fn deposit(&self, _: &Key, _: bool, _: Instant) {}

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        Withdrawal::Granted(Permit::new(self, key.clone(), cause, 1000))
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        self.0.lock().expect("no panic before").push(settled);
    }
}

/// A share of events in thousandths, spread evenly: whether it includes the `n`th.
fn includes(share: u32, n: u32) -> bool {
    (n + 1) * share / 1000 != n * share / 1000
}

/// Sends 20 000 calls at 1000 a second with one retry each, and returns the retries per call.
fn retries_per_call(budget: &Arc<TokenBudget>, p: u32, q: u32, cause: Cause) -> f64 {
    const CALLS: u32 = 20_000;

    let start = start();
    let mut retries = 0;
    for n in 0..CALLS {
        let now = start + Duration::from_millis(n.into());
        let failed = includes(p, n);
        budget.deposit(&KEY, failed, now);
        if !failed {
            continue;
        }
        if let Some(mut permit) = withdraw(budget, &KEY, cause, now) {
            permit.sent();
            if !includes(q, retries) {
                permit.succeeded(now);
            }
            retries += 1;
        }
    }
    f64::from(retries) / f64::from(CALLS)
}

/// The balance of a whole second more or less, per call.
const SLACK: f64 = 200.0 / 20_000.0;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// With p failing first attempts, q failing retries and r earned: `r(1-p)/q`, or `p` if less.
    #[test]
    fn refunded_retries_settle_at_the_closed_form(
        p in 0..=1000_u32,
        q in 1..=1000_u32,
        r in 0..=500_u32,
    ) {
        let ratio = f64::from(r) / 1000.0;
        let budget = build(TokenBudget::builder().ratio(ratio).no_ceiling().no_trickle());
        let seen = retries_per_call(&budget, p, q, Cause::ServerError);
        let (p, q) = (f64::from(p) / 1000.0, f64::from(q) / 1000.0);
        let sustained = ratio * (1.0 - p) / q;
        // The start of 5 tokens lasts for 5/q retries.
        let slack = SLACK / q;
        prop_assert!(seen <= sustained.min(p) + slack, "{seen} over {sustained} or {p}");
        prop_assert!(seen >= sustained.min(p) - slack, "{seen} under {sustained} and {p}");
    }

    /// Without refunds: `r(1-p)`, or `p` if less. Never more than `r`.
    #[test]
    fn retries_of_overload_signals_settle_at_the_closed_form(
        p in 0..=1000_u32,
        q in 0..=1000_u32,
        r in 0..=500_u32,
    ) {
        let ratio = f64::from(r) / 1000.0;
        let budget = build(TokenBudget::builder().ratio(ratio).no_ceiling().no_trickle());
        let seen = retries_per_call(&budget, p, q, Cause::Unavailable);
        let p = f64::from(p) / 1000.0;
        let sustained = (ratio * (1.0 - p)).min(p);
        prop_assert!(seen <= ratio + SLACK);
        prop_assert!((seen - sustained).abs() <= SLACK, "{seen} for {sustained}");
    }

    /// With the default ceiling, half of the calls are retried at most, free or not.
    #[test]
    fn retries_never_exceed_one_for_two_calls(p in 0..=1000_u32, q in 0..=1000_u32) {
        let budget = build(TokenBudget::builder().no_trickle());
        let seen = retries_per_call(&budget, p, q, Cause::Transport);
        prop_assert!(seen <= 0.5 + SLACK, "{seen}");
    }
}

#[test]
fn the_ceiling_is_what_binds_when_every_retry_succeeds() {
    let budget = build(TokenBudget::builder().no_trickle());
    let now = start();
    let granted = (0..1000)
        .filter(|_| succeed(&budget, &KEY, Cause::Other, now))
        .count();
    assert_eq!((granted, balance(&budget, now)), (30, 5.0));
    assert_eq!(ceiling(&budget, now), 0.0);
}
