//! The handles of the metrics of one dependency.

use super::names::{self, Metric};
use crate::budget::Key;
use ::metrics::{Counter, Gauge, Histogram, Label, SharedString};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

/// From here on the numbers of attempts are one label.
const MANY: u32 = 5;

/// The label of an attempt, and its place among the handles.
pub(super) fn attempt(number: u32) -> (usize, &'static str) {
    match number {
        0 | 1 => (0, "1"),
        2 => (1, "2"),
        3 => (2, "3"),
        4 => (3, "4"),
        MANY.. => (4, "5+"),
    }
}

/// The name and the labels that all metrics of one dependency begin with.
#[derive(Clone)]
pub(super) struct Base {
    pub(super) prefix: Arc<str>,
    pub(super) labels: Vec<Label>,
}

impl Base {
    pub(super) fn name(&self, metric: &Metric) -> SharedString {
        format!("{}{}", self.prefix, metric.name).into()
    }

    fn labels(&self, more: &[(&'static str, &'static str)]) -> Vec<Label> {
        let more = more.iter();
        let more = more.map(|(name, value)| Label::from_static_parts(name, value));
        self.labels.iter().cloned().chain(more).collect()
    }
}

/// A handle, made at its first use.
type Once<T> = OnceLock<T>;

/// One handle for each value of a label, or of two.
pub(super) struct Many<T>([Once<T>; 32]);

impl<T> Many<T> {
    const fn new() -> Self {
        Self([const { OnceLock::new() }; 32])
    }

    fn at(&self, index: usize, make: impl FnOnce() -> T) -> Option<&T> {
        Some(self.0.get(index)?.get_or_init(make))
    }
}

/// What is written for one dependency, or for one operation of it.
pub(super) struct Series {
    base: Base,
    /// Whose account in the budget is shown.
    pub(super) key: Option<Key>,
    calls: Many<Counter>,
    attempts: Many<Counter>,
    retries: Many<Counter>,
    success: Many<Counter>,
    exhausted: Many<Counter>,
    skipped: Many<Counter>,
    call_duration: Many<Histogram>,
    attempt_duration: Many<Histogram>,
    attempts_per_call: Once<Histogram>,
    denied: Once<Counter>,
    spent: Once<Counter>,
    wait: Once<Histogram>,
    retry_after: Once<Histogram>,
    remaining: Once<Histogram>,
    balance: Once<Gauge>,
    cap: Once<Gauge>,
    waiting: Once<Gauge>,
    oldest: Once<Gauge>,
    hold_off: Once<Gauge>,
    adaptive_limit: Once<Gauge>,
    adaptive_error_ratio: Once<Gauge>,
    adaptive_latency_ratio: Once<Gauge>,
    /// The calls that wait, by when they began to.
    waits: Mutex<BTreeMap<Instant, u32>>,
    held_until: Mutex<Option<Instant>>,
}

macro_rules! once {
    ($($field:ident: $handle:ty = $make:ident($metric:ident);)*) => {$(
        pub(super) fn $field(&self) -> &$handle {
            self.$field.get_or_init(|| {
                ::metrics::$make!(self.base.name(&names::$metric), self.base.labels(&[]))
            })
        }
    )*};
}

macro_rules! many {
    ($($field:ident($label:literal): $handle:ty = $make:ident($metric:ident);)*) => {$(
        /// `index` is the place of `value` among the values of the label.
        pub(super) fn $field(&self, index: usize, value: &'static str) -> Option<&$handle> {
            self.$field.at(index, || {
                let labels = self.base.labels(&[($label, value)]);
                ::metrics::$make!(self.base.name(&names::$metric), labels)
            })
        }
    )*};
}

impl Series {
    pub(super) fn new(base: Base, key: Option<Key>) -> Self {
        Self {
            base,
            key,
            calls: Many::new(),
            attempts: Many::new(),
            retries: Many::new(),
            success: Many::new(),
            exhausted: Many::new(),
            skipped: Many::new(),
            call_duration: Many::new(),
            attempt_duration: Many::new(),
            attempts_per_call: Once::new(),
            denied: Once::new(),
            spent: Once::new(),
            wait: Once::new(),
            retry_after: Once::new(),
            remaining: Once::new(),
            balance: Once::new(),
            cap: Once::new(),
            waiting: Once::new(),
            oldest: Once::new(),
            hold_off: Once::new(),
            adaptive_limit: Once::new(),
            adaptive_error_ratio: Once::new(),
            adaptive_latency_ratio: Once::new(),
            waits: Mutex::default(),
            held_until: Mutex::default(),
        }
    }

    once! {
        attempts_per_call: Histogram = histogram(ATTEMPTS_PER_CALL);
        denied: Counter = counter(DENIED);
        spent: Counter = counter(SPENT);
        wait: Histogram = histogram(WAIT);
        retry_after: Histogram = histogram(RETRY_AFTER);
        remaining: Histogram = histogram(REMAINING);
        balance: Gauge = gauge(BALANCE);
        cap: Gauge = gauge(CAP);
        waiting: Gauge = gauge(WAITING);
        oldest: Gauge = gauge(OLDEST_WAIT);
        hold_off: Gauge = gauge(HOLD_OFF);
        adaptive_limit: Gauge = gauge(ADAPTIVE_LIMIT);
        adaptive_error_ratio: Gauge = gauge(ADAPTIVE_ERROR_RATIO);
        adaptive_latency_ratio: Gauge = gauge(ADAPTIVE_LATENCY_RATIO);
    }

    many! {
        calls("outcome"): Counter = counter(CALLS);
        retries("cause"): Counter = counter(RETRIES);
        success("attempt"): Counter = counter(SUCCESS);
        exhausted("reason"): Counter = counter(EXHAUSTED);
        skipped("reason"): Counter = counter(SKIPPED);
        call_duration("outcome"): Histogram = histogram(CALL_DURATION);
        attempt_duration("outcome"): Histogram = histogram(ATTEMPT_DURATION);
    }

    pub(super) fn attempts(
        &self,
        number: u32,
        outcome: usize,
        outcome_name: &'static str,
    ) -> Option<&Counter> {
        let (index, number) = attempt(number);
        self.attempts.at(index * 6 + outcome, || {
            let labels = [("attempt", number), ("outcome", outcome_name)];
            let labels = self.base.labels(&labels);
            ::metrics::counter!(self.base.name(&names::ATTEMPTS_TOTAL), labels)
        })
    }

    pub(super) fn wait_began(&self, since: Instant) {
        *lock(&self.waits).entry(since).or_default() += 1;
        self.waiting().increment(1.0);
    }

    pub(super) fn wait_ended(&self, since: Instant) {
        let mut waits = lock(&self.waits);
        if let Some(calls) = waits.get_mut(&since) {
            *calls -= 1;
            if *calls == 0 {
                waits.remove(&since);
            }
            drop(waits);
            self.waiting().decrement(1.0);
        }
    }

    pub(super) fn held_until(&self, until: Option<Instant>) {
        let mut held = lock(&self.held_until);
        *held = until.max(*held);
        drop(held);
        self.hold_off().set(1.0);
    }

    /// Writes what changes by itself.
    pub(super) fn refresh(&self, now: Instant) {
        if self.waiting.get().is_some() {
            let oldest = lock(&self.waits).keys().next().copied();
            let waited = oldest.map_or(0.0, |since| {
                now.saturating_duration_since(since).as_secs_f64()
            });
            self.oldest().set(waited);
        }
        if self.hold_off.get().is_some() {
            let held = lock(&self.held_until).is_some_and(|until| until > now);
            self.hold_off().set(if held { 1.0 } else { 0.0 });
        }
    }

    /// Writes what the account holds; zero when it was evicted.
    pub(super) fn account(&self, holds: Option<(f64, f64)>) {
        match holds {
            Some((balance, cap)) => {
                self.balance().set(balance);
                self.cap().set(cap);
            }
            None if self.balance.get().is_some() => {
                self.balance().set(0.0);
                self.cap().set(0.0);
            }
            None => {}
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
