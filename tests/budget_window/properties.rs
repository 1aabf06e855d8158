//! What holds of the window budget in every sequence of events.

use crate::support::{KEY, start, withdraw};
use crate::{SECOND, balance, build, deposit, whole_seconds};
use proptest::{collection::vec, prelude::*};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Permit, WindowBudget},
    reason::Cause,
};

const WINDOW: Duration = Duration::from_secs(64);
const SLOT: Duration = SECOND;

#[derive(Clone, Copy, Debug)]
enum Event {
    FirstAttempt {
        failed: bool,
    },
    Send,
    /// A retry whose caller goes away after the next few events.
    Hold,
    GiveBack,
    Wait(Duration),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let wait = prop_oneof![
        8 => 0..1_500_000_000_u64,
        2 => 0..70_000_000_000_u64,
        // Exactly from one slot to the next, and around it.
        1 => (1..66_u64, 0..3_u64).prop_map(|(slots, nanos)| slots * 1_000_000_000 + nanos - 1),
    ];
    let event = prop_oneof![
        6 => any::<bool>().prop_map(|failed| Event::FirstAttempt { failed }),
        9 => Just(Event::Send),
        1 => Just(Event::Hold),
        1 => Just(Event::GiveBack),
        4 => wait.prop_map(|nanos| Event::Wait(Duration::from_nanos(nanos))),
    ];
    vec(event, 0..400)
}

/// Every instant at which something happened.
struct Log {
    now: Instant,
    base: Vec<Instant>,
    retries: Vec<Instant>,
    held: Vec<(Permit, Instant)>,
}

impl Log {
    fn new() -> Self {
        Self {
            now: start(),
            base: Vec::new(),
            retries: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Retries that the last `retries` saw beyond what `base` allows, in thousandths.
    fn excess(&self, rule: Numbers, retries: Duration, base: Duration) -> i64 {
        let within = |times: &[Instant], span| {
            let young = times.iter().filter(|at| self.now - **at < span);
            i64::try_from(young.count()).expect("a few hundred")
        };
        let base = within(&self.base, base).max(rule.sample);
        within(&self.retries, retries) * 1000 - rule.allowance * 1000 - rule.ratio * base
    }
}

#[derive(Clone, Copy, Debug)]
struct Numbers {
    ratio: i64,
    allowance: i64,
    sample: i64,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (0..1000_i64, 0..3_i64, 0..5_i64).prop_map(|(ratio, allowance, sample)| Numbers {
        ratio,
        allowance,
        sample,
    })
}

fn budget_of(rule: Numbers, attempts: bool) -> Arc<WindowBudget> {
    let builder = whole_seconds()
        .ratio(rule.ratio as f64 / 1000.0)
        .allowance(rule.allowance.unsigned_abs())
        .min_sample(rule.sample.unsigned_abs());
    build(if attempts {
        builder.of_attempts()
    } else {
        builder.of_successes()
    })
}

fn apply(budget: &Arc<WindowBudget>, log: &mut Log, event: Event, attempts: bool) -> Option<bool> {
    match event {
        Event::FirstAttempt { failed } => {
            deposit(budget, 1, failed, log.now);
            if attempts || !failed {
                log.base.push(log.now);
            }
        }
        Event::Wait(wait) => log.now += wait,
        Event::GiveBack => {
            if !log.held.is_empty() {
                let (permit, at) = log.held.remove(0);
                permit.give_back(log.now);
                let place = log.retries.iter().position(|retry| *retry == at);
                log.retries.remove(place.expect("it was counted"));
            }
        }
        Event::Send | Event::Hold => {
            let granted = withdraw(budget, &KEY, Cause::ServerError, log.now);
            let was_granted = granted.is_some();
            if let Some(mut permit) = granted {
                log.retries.push(log.now);
                if matches!(event, Event::Hold) {
                    log.held.push((permit, log.now));
                } else {
                    permit.sent();
                }
            }
            return Some(was_granted);
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Against a log that knows every instant.
    #[test]
    fn grants_never_more_than_an_exact_window_and_less_by_two_slots_at_most(
        events in events(),
        rule in numbers(),
        attempts in any::<bool>(),
    ) {
        let budget = budget_of(rule, attempts);
        let mut log = Log::new();
        deposit(&budget, 1, false, log.now);
        log.base.push(log.now);
        for event in events {
            match apply(&budget, &mut log, event, attempts) {
                Some(true) => prop_assert!(log.excess(rule, WINDOW, WINDOW) <= 0),
                Some(false) => {
                    let one_more = log.excess(rule, WINDOW + 2 * SLOT, WINDOW - 2 * SLOT) + 1000;
                    prop_assert!(one_more > 0, "denied for nothing");
                }
                None => {}
            }
        }
    }

    /// Neither at the end of a slot nor at that of a window.
    #[test]
    fn the_balance_follows_time_without_a_step(
        events in events(),
        rule in numbers(),
        attempts in any::<bool>(),
        look in 0..1_000_000_000_u64,
    ) {
        let budget = budget_of(rule, attempts);
        let mut log = Log::new();
        let began = log.now;
        deposit(&budget, 1, false, log.now);
        log.base.push(log.now);
        for event in events {
            apply(&budget, &mut log, event, attempts);
        }
        // What fades fades within a slot: so much a nanosecond at most, and two thousandths for
        // rounding.
        let all = (log.retries.len() * 1000) as f64 + log.base.len() as f64 * rule.ratio as f64;
        let steepest = |span: Duration| all / 1000.0 * span.as_secs_f64() / SLOT.as_secs_f64();
        let tiny = Duration::from_nanos(2);
        let slots = (log.now - began).as_secs();
        for slot in slots..slots + 70 {
            let end_of_slot = began + SLOT * u32::try_from(slot + 1).expect("a few thousand");
            let within = end_of_slot + Duration::from_nanos(look);
            for now in [end_of_slot - tiny / 2, within].map(|now| now.max(log.now)) {
                let step = (balance(&budget, now + tiny) - balance(&budget, now)).abs();
                prop_assert!(step <= steepest(tiny) + 0.0021, "{step} at {:?}", now - began);
            }
        }
        let end = log.now + WINDOW + 2 * SLOT;
        prop_assert_eq!(budget.snapshot(&KEY, end).balance(), budget.snapshot(&KEY, end).cap());
    }

    /// However often anybody looks, or asks in vain.
    #[test]
    fn the_balance_does_not_depend_on_how_often_anybody_asks(
        looks in vec(0..140_000_u64, 0..60),
        burst in 1..200_u32,
        after in 0..140_000_u64,
    ) {
        let [asked, left_alone] = [(); 2].map(|()| build(whole_seconds().ratio(1.0)));
        let start = start();
        for budget in [&asked, &left_alone] {
            deposit(budget, burst, false, start);
            withdraw(budget, &KEY, Cause::Other, start).expect("one is there").sent();
        }
        let mut looks = looks;
        looks.sort_unstable();
        for millis in looks.into_iter().filter(|millis| *millis <= after) {
            let now = start + Duration::from_millis(millis);
            deposit(&asked, 1, true, now);
            drop(withdraw(&asked, &KEY, Cause::Other, now));
        }
        let now = start + Duration::from_millis(after);
        prop_assert_eq!(balance(&asked, now), balance(&left_alone, now));
    }
}

/// A share of events in thousandths, spread evenly: whether it includes the `n`th.
fn includes(share: u32, n: u32) -> bool {
    (n + 1) * share / 1000 != n * share / 1000
}

/// Sends 20 000 calls at 1000 a second with two retries each, which fail, and returns the retries
/// per call.
fn retries_per_call(budget: &Arc<WindowBudget>, p: u32) -> f64 {
    const CALLS: u32 = 20_000;

    let start = start();
    let mut retries = 0;
    for n in 0..CALLS {
        let now = start + Duration::from_millis(n.into());
        let failed = includes(p, n);
        deposit(budget, 1, failed, now);
        for _ in 0..if failed { 2 } else { 0 } {
            if let Some(mut permit) = withdraw(budget, &KEY, Cause::ServerError, now) {
                permit.sent();
                retries += 1;
            }
        }
    }
    f64::from(retries) / f64::from(CALLS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// With p failing first attempts and a ratio of r: r of the attempts, or r(1-p), or 2p if less.
    #[test]
    fn sustained_retries_settle_under_the_closed_form_and_close_to_it(
        p in 0..=1000_u32,
        r in 0..=500_u32,
        attempts in any::<bool>(),
    ) {
        let builder = whole_seconds().window(2 * SECOND).ratio(f64::from(r) / 1000.0);
        let budget = build(if attempts { builder.of_attempts() } else { builder.of_successes() });
        let seen = retries_per_call(&budget, p);
        let (p, r) = (f64::from(p) / 1000.0, f64::from(r) / 1000.0);
        let allowed = if attempts { r } else { r * (1.0 - p) };
        prop_assert!(seen <= r + 1e-3);
        prop_assert!(seen <= allowed.min(2.0 * p) + 0.005, "{seen} over {allowed} or {p}");
        let granted = (allowed * 63.0 / 65.0).min(2.0 * p);
        prop_assert!(seen >= granted - 0.005, "{seen} under {granted}");
    }
}

#[test]
fn adds_its_share_to_an_outage_when_attempts_count_and_nothing_when_successes_do() {
    let finagle = Arc::new(WindowBudget::finagle());
    // 100 at once, and 10 a second of a thousand calls.
    let seen = retries_per_call(&finagle, 1000);
    assert!((0.20..=0.215).contains(&seen), "{seen}");
    let successes = Arc::new(WindowBudget::successes());
    assert_eq!(retries_per_call(&successes, 1000), 10.0 / 20_000.0);
}
