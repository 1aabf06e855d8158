//! The numbers of a token budget, validated. Milli-tokens throughout.

use super::costs::Costs;
use crate::budget::milli::{TOKEN, nanos};
use std::{num::NonZeroU64, time::Duration};

/// One retry for five successes: enough to retry one failure in six calls for as long as it lasts
/// even if nothing is ever given back, and a fifth of the load at the very worst.
pub(super) const DEFAULT_RATIO: u64 = 200;

/// Small enough to be spent in the first instants of an outage, large enough for a client that sends
/// too little for the ratio to mean anything.
pub(super) const DEFAULT_CAP: u64 = 10;

/// Half the floor cap: a process that starts into an outage has some retries, not all.
pub(super) const DEFAULT_INITIAL: u64 = 5;

/// One token in this time keeps a client with a request a minute able to retry, and adds nothing
/// that a server would notice.
pub(super) const DEFAULT_TRICKLE: Duration = Duration::from_secs(10);

/// One retry for two first attempts, given back or not: what bounds the load when all retries
/// succeed and are thus free.
pub(super) const DEFAULT_CEILING_RATIO: u64 = 500;

/// The ceiling holds as much as this many caps: refunds make retries cheaper than the ratio, and a
/// short burst of them is no harm.
pub(in crate::budget) const CEILING_CAPS: u64 = 3;

/// The largest cap, in tokens.
pub(in crate::budget) const MAX_TOKENS: u64 = u32::MAX as u64;

/// How a bucket fills and what it holds, in milli-tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::budget) struct Rule {
    /// Earned by a first attempt that ends without failure.
    pub(in crate::budget) ratio: u64,
    /// What the cap never falls below.
    pub(in crate::budget) floor: u64,
    /// The balance of a new bucket, at most `floor`.
    pub(in crate::budget) initial: u64,
    /// Nanoseconds per token; `None` for no trickle.
    pub(in crate::budget) trickle: Option<NonZeroU64>,
    /// Added to the ceiling by every first attempt; `None` for no ceiling.
    pub(in crate::budget) ceiling_ratio: Option<u64>,
    /// What a retry costs the balance.
    pub(in crate::budget) costs: Costs,
}

impl Rule {
    /// The cap of a bucket that saw so many first attempts in the busier of two seconds.
    pub(in crate::budget) fn cap(&self, first_attempts: u32) -> u64 {
        self.ratio
            .saturating_mul(u64::from(first_attempts))
            .min(MAX_TOKENS * TOKEN)
            .max(self.floor)
    }

    /// The most that the ceiling holds beside a cap.
    pub(in crate::budget) fn ceiling(cap: u64) -> u64 {
        cap.saturating_mul(CEILING_CAPS)
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            ratio: DEFAULT_RATIO,
            floor: DEFAULT_CAP * TOKEN,
            initial: DEFAULT_INITIAL * TOKEN,
            trickle: trickle(DEFAULT_TRICKLE),
            ceiling_ratio: Some(DEFAULT_CEILING_RATIO),
            costs: Costs::default(),
        }
    }
}

/// Turns the time per token into nanoseconds. Longer than `u64` holds (584 years) is as long.
pub(in crate::budget) fn trickle(per_token: Duration) -> Option<NonZeroU64> {
    NonZeroU64::new(nanos(per_token))
}
