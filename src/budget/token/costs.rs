//! What a retry costs, by the failure that it is an answer to.

use crate::{budget::milli::COST, reason::Cause};

/// The largest cost, in milli-tokens: as much as the largest ratio earns with one success.
pub(in crate::budget) const MAX_COST: u32 = 1_000_000;

const CAUSES: usize = 8;

/// Milli-tokens for each [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::budget) struct Costs([u32; CAUSES]);

impl Costs {
    pub(in crate::budget) fn of(&self, cause: Cause) -> u32 {
        self.0[place(cause)]
    }

    pub(in crate::budget) fn set(&mut self, cause: Cause, milli_tokens: u32) {
        self.0[place(cause)] = milli_tokens;
    }

    /// A cost that is more than `most`, if there is one.
    pub(in crate::budget) fn above(&self, most: u32) -> Option<u32> {
        self.0.into_iter().find(|cost| *cost > most)
    }
}

/// A whole token, whatever the cause.
impl Default for Costs {
    fn default() -> Self {
        Self([COST; CAUSES])
    }
}

/// Less than `CAUSES`.
const fn place(cause: Cause) -> usize {
    match cause {
        Cause::Throttled => 0,
        Cause::Unavailable => 1,
        Cause::Timeout => 2,
        Cause::ServerError => 3,
        Cause::Unprocessed => 4,
        Cause::Transport => 5,
        Cause::Other => 6,
        Cause::Credentials => 7,
    }
}
