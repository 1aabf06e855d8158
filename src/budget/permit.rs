use super::{Budget, Key};
use crate::{
    clock,
    observe::Observe,
    reason::{Cause, RetryOutcome},
};
use std::{fmt, sync::Arc, time::Instant};

/// Proof that a retry was withdrawn from a budget.
///
/// It settles with its budget exactly once. Dropped before [`sent`](Permit::sent), the retry counts
/// as never sent and is given back; dropped after it, as failed.
#[must_use = "a permit that is dropped at once gives its retry back"]
pub struct Permit {
    budget: Arc<dyn Budget>,
    key: Key,
    cause: Cause,
    cost: u32,
    /// When it was withdrawn, for a budget that needs to know.
    at: Option<Instant>,
    observer: Option<Arc<dyn Observe>>,
    /// What a drop from here on tells the budget; `None` once it has been told.
    outcome: Option<RetryOutcome>,
}

impl Permit {
    /// Creates a permit for one retry that `budget` has granted, at `cost` milli-tokens.
    ///
    /// For implementations of [`Budget`]: the cost comes back in [`Settled::cost`].
    pub fn new(budget: Arc<dyn Budget>, key: Key, cause: Cause, cost: u32) -> Self {
        Self {
            budget,
            key,
            cause,
            cost,
            at: None,
            observer: None,
            outcome: Some(RetryOutcome::NotSent),
        }
    }

    /// Says when the retry was withdrawn, which comes back in [`Settled::at`].
    pub(super) fn withdrawn_at(mut self, at: Instant) -> Self {
        self.at = Some(at);
        self
    }

    /// Says who is told when it is settled.
    pub(crate) fn observed(&mut self, observer: Option<&Arc<dyn Observe>>) {
        self.observer = observer.cloned();
    }

    /// Marks the retry as sent. From now on it is spent, whatever happens to the caller.
    pub fn sent(&mut self) {
        if self.outcome.is_some() {
            self.outcome = Some(RetryOutcome::Failed);
        }
    }

    /// Settles a retry that ended without failure.
    pub fn succeeded(mut self, now: Instant) {
        self.settle(RetryOutcome::Succeeded, now);
    }

    /// Settles a retry that was handed over but refused before it was sent.
    pub fn give_back(mut self, now: Instant) {
        self.settle(RetryOutcome::NotSent, now);
    }

    fn settle(&mut self, outcome: RetryOutcome, now: Instant) {
        self.outcome = None;
        let settled = Settled {
            outcome,
            cause: self.cause,
            cost: self.cost,
            at: self.at,
        };
        self.budget.settle(&self.key, settled, now);
        if let Some(observer) = &self.observer {
            observer.settled(&self.key, &settled);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.settle(outcome, clock::now());
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("key", &self.key)
            .field("cause", &self.cause)
            .field("cost", &self.cost)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// What became of a retry, for what, and at what cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Whether the retry was sent, and how it ended.
    pub outcome: RetryOutcome,
    /// The failure that it was an answer to.
    pub cause: Cause,
    /// What was withdrawn for it, in milli-tokens.
    pub cost: u32,
    /// When it was withdrawn, if the budget said so.
    pub(super) at: Option<Instant>,
}
