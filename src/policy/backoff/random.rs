//! The random numbers of the back-off: the thread's own, or a sequence that can be repeated.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How far apart two states of a seeded sequence are. Odd, so that all 2^64 of them come before one
/// comes again; 2^64 over the golden ratio, so that neighbours have few bits in common.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where the random numbers come from.
#[derive(Clone, Debug)]
pub(super) enum Random {
    Thread,
    /// `drawn` counts the numbers drawn so far, by all clones.
    Seeded {
        seed: u64,
        drawn: Arc<AtomicU64>,
    },
}

impl Random {
    pub(super) fn seeded(seed: u64) -> Self {
        Self::Seeded {
            seed,
            drawn: Arc::default(),
        }
    }

    /// Returns the same source at its beginning, apart from this one.
    pub(super) fn restarted(self) -> Self {
        match self {
            Self::Thread => Self::Thread,
            Self::Seeded { seed, .. } => Self::seeded(seed),
        }
    }

    /// Draws a number from 0 up to but not including 1.
    pub(super) fn draw(&self) -> f64 {
        match self {
            Self::Thread => fastrand::f64(),
            Self::Seeded { seed, drawn } => {
                // Nothing else is published with the count, so that no ordering is needed.
                let count = drawn.fetch_add(1, Ordering::Relaxed);
                // Scrambled first: else a seed near another one could be its sequence, shifted.
                let start = fastrand::Rng::with_seed(*seed).u64(..);
                let state = start.wrapping_add(count.wrapping_mul(STRIDE));
                fastrand::Rng::with_seed(state).f64()
            }
        }
    }
}
