//! Counts and durations of a part of the window.
//!
//! Every number stands in one atomic word with the slot of time that it belongs to, so that a slot is
//! begun anew by whoever writes first, and no write is lost or counted into another slot.

use super::Health;
use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Steps to a doubling of the duration.
const STEPS: f64 = 4.0;

/// From 1 ms to 2^(63/4) ms, which is 55 s.
pub(super) const BUCKETS: usize = 64;

/// A part of the window.
pub(super) struct Slot {
    pub(super) attempts: Counter,
    pub(super) failures: Counter,
    pub(super) took: [Counter; BUCKETS],
}

/// The sum of some slots.
pub(super) struct Window {
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) took: [u32; BUCKETS],
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            attempts: Counter::default(),
            failures: Counter::default(),
            took: array::from_fn(|_| Counter::default()),
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            attempts: 0,
            failures: 0,
            took: [0; BUCKETS],
        }
    }
}

impl Window {
    pub(super) fn health(&self) -> Health {
        Health {
            attempts: self.attempts,
            failures: self.failures.min(self.attempts),
            p99: (self.attempts > 0).then(|| duration(self.p99())),
            usual_p99: None,
        }
    }

    /// The 99th percentile, in steps.
    pub(super) fn p99(&self) -> f64 {
        let all: u64 = self.took.iter().copied().map(u64::from).sum();
        // The nearest rank: as many as 99 of 100 are within it.
        let rank = (all * 99).div_ceil(100);
        let mut within = 0;
        let bucket = self.took.iter().position(|&count| {
            within += u64::from(count);
            within >= rank
        });
        bucket.unwrap_or(0) as f64
    }
}

/// The bucket of a duration: the smallest whose upper bound it does not pass.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the buckets; a duration is never NaN"
)]
pub(super) fn bucket(took: Duration) -> usize {
    let step = (took.as_secs_f64() * 1000.0).log2() * STEPS;
    step.ceil().clamp(0.0, BUCKETS as f64 - 1.0) as usize
}

/// The upper bound of a bucket, or what lies between two.
pub(super) fn duration(step: f64) -> Duration {
    Duration::from_secs_f64((step / STEPS).exp2() / 1000.0)
}

/// Two numbers in one word.
fn join(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

fn split(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

/// A count, and the slot of time that it belongs to.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn slot(&self) -> u32 {
        split(self.0.load(Ordering::Relaxed)).0
    }

    /// The count, if it is of this slot.
    pub(super) fn get(&self, slot: u32) -> u32 {
        match split(self.0.load(Ordering::Relaxed)) {
            (of, count) if of == slot => count,
            _ => 0,
        }
    }

    /// Counts one into this slot. Who comes too late for it counts into the one that followed.
    pub(super) fn increment(&self, slot: u32) {
        let next = |word| match split(word) {
            (of, count) if of >= slot => count.checked_add(1).map(|count| join(of, count)),
            _ => Some(join(slot, 1)),
        };
        _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// The average of the 99th percentiles in steps, which makes it one of logarithms, and how many were
/// learnt. The first ones count alike, so that none of them decides.
#[derive(Default)]
pub(super) struct Usual(AtomicU64);

impl Usual {
    /// Steps are kept in millionths.
    const SCALE: f64 = 1_000_000.0;

    pub(super) fn get(&self) -> Option<f64> {
        let (learnt, average) = split(self.0.load(Ordering::Relaxed));
        (learnt > 0).then_some(f64::from(average) / Self::SCALE)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 63 million"
    )]
    pub(super) fn learn(&self, step: f64, weight: f64) {
        let next = |word| {
            let (learnt, average) = split(word);
            let learnt = learnt.saturating_add(1);
            let weight = weight.max(1.0 / f64::from(learnt)).min(1.0);
            let average = f64::from(average);
            let moved = average + (step * Self::SCALE - average) * weight;
            Some(join(learnt, moved.round() as u32))
        };
        _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}
