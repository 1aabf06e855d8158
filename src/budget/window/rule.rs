//! The numbers of a window budget, validated.

use std::time::Duration;

/// A window is looked at in so many slots. Each is a key's memory, and each makes the window less
/// coarse: see [`Window`](super::slots::Window). A whole millisecond is so many parts exactly.
pub(super) const SLOTS: usize = 64;

/// Shorter than a retry takes, a window holds nothing.
pub(super) const MIN_WINDOW: Duration = Duration::from_millis(1);

/// Longer than most processes live.
pub(super) const MAX_WINDOW: Duration = Duration::from_secs(366 * 86_400);

/// The largest allowance and the largest sample.
pub(super) const MAX_COUNT: u64 = u32::MAX as u64;

/// What retries are a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// First attempts that ended without failure.
    Successes,
    /// First attempts that ended.
    Attempts,
}

/// How many retries a window allows, by what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) base: Base,
    /// Thousandths of a retry for each of the base.
    pub(super) ratio: u64,
    /// Retries in a window beside those of the ratio.
    pub(super) allowance: u64,
    /// What the base counts as, if there is less of it.
    pub(super) min_sample: u64,
    /// Nanoseconds in one of the slots of a window. Never zero.
    pub(super) slot: u64,
}

impl Rule {
    pub(super) const FINAGLE: Self = Self {
        base: Base::Attempts,
        ratio: 200,
        // Ten per second.
        allowance: 100,
        min_sample: 0,
        slot: slot(Duration::from_secs(10)),
    };

    pub(super) const SUCCESSES: Self = Self {
        base: Base::Successes,
        ratio: 200,
        allowance: 10,
        min_sample: 0,
        slot: slot(Duration::from_secs(60)),
    };

    pub(super) const ATTEMPTS: Self = Self {
        base: Base::Attempts,
        ratio: 100,
        allowance: 0,
        min_sample: 50,
        slot: slot(Duration::from_secs(60)),
    };
}

/// The nanoseconds in a slot of a valid window.
pub(super) const fn slot(window: Duration) -> u64 {
    const NANOS: u64 = 1_000_000_000;

    let nanos = window.as_secs().saturating_mul(NANOS);
    nanos.saturating_add(window.subsec_nanos() as u64) / SLOTS as u64
}
