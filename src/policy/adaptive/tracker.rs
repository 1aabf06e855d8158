//! What is kept of the attempts of each dependency: counts and a histogram for each fifth of a sliding
//! window, and what is usual.

use super::{
    AdaptiveLimits, CircuitState, Health,
    histogram::{Slot, Usual, Window, bucket, duration},
};
use crate::budget::{Account, Key, KeyMap};
use std::{
    array,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// The window slides by this part of it.
const SLOTS: u32 = 5;

/// An account that was idle for so long, and for the window, makes room for another.
const IDLE: Duration = Duration::from_secs(60);

/// The adaptive limits of a layer, and the health that they go by.
#[derive(Debug)]
pub(crate) struct Adaptive {
    limits: AdaptiveLimits,
    accounts: KeyMap<Box<Recent>>,
}

/// What a call is allowed, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// `None` while the breaker is open.
    pub(crate) attempts: Option<u32>,
    pub(crate) health: Health,
    pub(crate) circuit: CircuitState,
}

impl Adaptive {
    pub(crate) fn new(limits: AdaptiveLimits) -> Self {
        let slot = slot_length(&limits);
        let idle = limits.window.max(IDLE);
        let max_keys = limits.max_keys;
        Self {
            limits,
            accounts: KeyMap::new(
                max_keys,
                move |now| Box::new(Recent::new(now, slot)),
                move |recent, now| recent.is_idle(idle, now),
            ),
        }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn limits(&self) -> &AdaptiveLimits {
        &self.limits
    }

    /// How many of `base` attempts a call to `key` may make.
    pub(crate) fn allowed(&self, key: &Key, base: u32, now: Instant) -> Allowed {
        let health = self.health(key, now).unwrap_or_default();
        let circuit = self.limits.circuit.as_ref();
        let circuit = circuit.map_or(CircuitState::Closed, |state| state(key));
        let attempts = match circuit {
            CircuitState::Closed => Some(self.limits.limit(base, &health)),
            CircuitState::HalfOpen => Some(1),
            CircuitState::Open { .. } => None,
        };
        Allowed {
            attempts,
            health,
            circuit,
        }
    }

    /// How `key` did of late; `None` if nothing is kept of it.
    pub(crate) fn health(&self, key: &Key, now: Instant) -> Option<Health> {
        self.accounts
            .with_existing(key, |recent| recent.map(|recent| recent.health(now)))
    }

    /// Counts an attempt that ended.
    pub(crate) fn record(&self, key: &Key, failed: bool, took: Duration, now: Instant) {
        self.accounts.with(key, now, |recent, account| {
            // Strangers who share one account for want of room would answer for each other.
            if account == Account::Own {
                recent.learn(&self.limits, now);
                recent.record(failed, took, now);
            }
        });
    }
}

fn slot_length(limits: &AdaptiveLimits) -> Duration {
    limits.window / SLOTS
}

/// The recent attempts towards one dependency.
struct Recent {
    began: Instant,
    slot: Duration,
    slots: [Slot; SLOTS as usize],
    /// The slot up to which was learnt what is usual.
    learnt: AtomicU32,
    usual: Usual,
}

impl Recent {
    fn new(began: Instant, slot: Duration) -> Self {
        Self {
            began,
            slot,
            slots: array::from_fn(|_| Slot::default()),
            learnt: AtomicU32::new(0),
            usual: Usual::default(),
        }
    }

    /// The number of the slot of time, from 1.
    fn number(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.began).as_nanos();
        let number = since / self.slot.as_nanos().max(1);
        u32::try_from(number)
            .unwrap_or(u32::MAX - 1)
            .saturating_add(1)
    }

    fn record(&self, failed: bool, took: Duration, now: Instant) {
        let number = self.number(now);
        let slot = &self.slots[(number % SLOTS) as usize];
        slot.attempts.increment(number);
        if failed {
            slot.failures.increment(number);
        }
        slot.took[bucket(took)].increment(number);
    }

    fn health(&self, now: Instant) -> Health {
        let window = self.window(self.number(now));
        Health {
            usual_p99: self.usual.get().map(duration),
            ..window.health()
        }
    }

    /// The sum of the slots that end with `last`.
    fn window(&self, last: u32) -> Window {
        let first = last.saturating_sub(SLOTS - 1).max(1);
        let mut window = Window::default();
        for number in first..=last {
            let slot = &self.slots[(number % SLOTS) as usize];
            let attempts = slot.attempts.get(number);
            if attempts == 0 {
                continue;
            }
            window.attempts = window.attempts.saturating_add(attempts);
            window.failures = window.failures.saturating_add(slot.failures.get(number));
            for (sum, took) in window.took.iter_mut().zip(&slot.took) {
                *sum = sum.saturating_add(took.get(number));
            }
        }
        window
    }

    /// Learns what is usual from the slots that are over, once for each.
    fn learn(&self, limits: &AdaptiveLimits, now: Instant) {
        let over = self.number(now).saturating_sub(1);
        let learnt = self.learnt.load(Ordering::Relaxed);
        if over <= learnt
            || self
                .learnt
                .compare_exchange(learnt, over, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        // The last one in which anything ended: after it there was nothing to learn.
        let ended = self.slots.iter().map(|slot| slot.attempts.slot());
        let Some(last) = ended
            .filter(|slot| (learnt + 1..=over).contains(slot))
            .max()
        else {
            return;
        };
        let window = self.window(last);
        let health = window.health();
        if health.attempts >= limits.min_latency_sample.max(1)
            && !health.failed_at_least(limits.unwell_from())
        {
            let weight = self.slot.div_duration_f64(limits.baseline);
            self.usual.learn(window.p99(), weight);
        }
    }

    fn is_idle(&self, idle: Duration, now: Instant) -> bool {
        let slots = idle.as_nanos().div_ceil(self.slot.as_nanos().max(1));
        let last = self.slots.iter().map(|slot| slot.attempts.slot()).max();
        let quiet = self.number(now).saturating_sub(last.unwrap_or(0));
        u128::from(quiet) > slots
    }
}

#[cfg(test)]
mod tests {
    use super::{super::histogram::BUCKETS, *};
    use crate::clock;
    use std::{sync::Arc, thread};

    const MS: Duration = Duration::from_millis(1);

    /// `cargo test --all-features --lib million_dependencies -- --nocapture` prints it.
    #[test]
    fn a_million_dependencies_stay_within_sixteen_mebibytes() {
        let now = clock::now();
        let mut adaptive = None;
        let info = allocation_counter::measure(|| {
            let tracked = Adaptive::new(AdaptiveLimits::default());
            for n in 0..1_000_000_u32 {
                // A hundred seconds in all, so that some are forgotten meanwhile.
                let key = Key::new(format!("k{n}"));
                tracked.record(&key, true, MS, now + MS / 10 * n);
            }
            adaptive = Some(tracked);
        });
        println!("a million dependencies: {} KiB", info.bytes_current >> 10);
        assert!(info.bytes_max < 16 << 20, "{} bytes", info.bytes_max);
        assert!(adaptive.is_some());
    }

    #[test]
    fn counts_exactly_whatever_threads_do() {
        let adaptive = Arc::new(Adaptive::new(AdaptiveLimits::default()));
        let (key, now) = (Key::from_static("search"), clock::now());
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (adaptive, key) = (Arc::clone(&adaptive), key.clone());
                thread::spawn(move || {
                    for n in 0..10_000_u32 {
                        // All of them begin the same slots.
                        let at = now + MS * (n / 2);
                        adaptive.record(&key, thread == 0, MS * 10, at);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let health = adaptive.health(&key, now + MS * 5000).unwrap();
        assert_eq!((health.attempts, health.failures), (40_000, 10_000));
    }

    #[test]
    fn rounds_durations_up_by_a_fifth_at_most() {
        let bound = |took| duration(bucket(took) as f64);
        for ms in [1, 2, 3, 7, 64, 100, 999, 30_000, 50_000] {
            let (took, bound) = (MS * ms, bound(MS * ms));
            let rounding = bound.div_duration_f64(took);
            assert!(
                (0.9999..1.19).contains(&rounding),
                "{took:?} became {bound:?}"
            );
        }
        assert_eq!(bound(Duration::ZERO), MS);
        assert_eq!(bound(Duration::from_nanos(1)), MS);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn slides_by_fifths_and_forgets_whatever_the_gap() {
        let adaptive = Adaptive::new(AdaptiveLimits::default());
        let (key, start) = (Key::from_static("search"), clock::now());
        let second = Duration::from_secs(1);
        for n in 0..10 {
            adaptive.record(&key, false, MS, start + second * n);
        }
        let attempts = |after: u32| {
            adaptive
                .health(&key, start + second * after)
                .unwrap()
                .attempts
        };
        assert_eq!([attempts(9), attempts(10), attempts(12)], [10, 8, 6]);
        assert_eq!([attempts(19), attempts(30), attempts(u32::MAX)], [0, 0, 0]);
    }
}
