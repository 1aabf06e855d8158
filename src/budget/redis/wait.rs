//! A retry that waits for the store.

use super::{
    RedisBudget,
    account::{Decision, Wait},
    shared::Wake,
};
use crate::{
    budget::{Key, Permit, Settled},
    clock,
    reason::{Cause, RetryOutcome, StopReason},
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::timeout_at;

/// How long a retry waits for a lease at the most. Then the local share decides.
pub(super) const LONGEST: Duration = Duration::from_millis(50);

/// What the first gate has granted and the fleet has not yet. Dropped, it goes back.
pub(super) struct Held {
    pub(super) budget: Arc<RedisBudget>,
    pub(super) key: Key,
    pub(super) cause: Cause,
    pub(super) cost: u32,
    pub(super) granted: bool,
}

impl Held {
    pub(super) fn into_permit(mut self) -> Permit {
        self.granted = true;
        Permit::new(self.budget.clone(), self.key.clone(), self.cause, self.cost)
    }

    /// Waits for answers until one of them decides.
    pub(super) async fn wait(self, mut wait: Wait) -> Result<Permit, StopReason> {
        let until = tokio::time::Instant::from_std(clock::now()) + LONGEST;
        let notify = wait.answered.clone();
        loop {
            // Listened for before it is decided, or an answer in between would be missed.
            let mut answered = pin!(notify.notified());
            answered.as_mut().enable();
            if self.budget.shared().is_draining() {
                return Err(StopReason::ShuttingDown);
            }
            match self.decide(Some(wait.noted)) {
                Decision::Granted => return Ok(self.into_permit()),
                Decision::Denied => return Err(StopReason::FleetBudget),
                Decision::Wait(next) => wait = next,
            }
            if wait.ask {
                self.budget.wake(Wake::Ask(self.key.clone()));
            }
            if timeout_at(until, answered).await.is_err() {
                return match self.give_up() {
                    Decision::Granted => Ok(self.into_permit()),
                    _ => Err(StopReason::FleetBudget),
                };
            }
        }
    }

    pub(super) fn decide(&self, noted: Option<u64>) -> Decision {
        let shared = self.budget.shared();
        let now = clock::now();
        let decided = shared.with_existing(&self.key, |account| {
            account.withdraw(&shared.rule, self.cost, noted, now)
        });
        // An account is not forgotten while somebody waits for it.
        decided.unwrap_or(Decision::Denied)
    }

    fn give_up(&self) -> Decision {
        let shared = self.budget.shared();
        let now = clock::now();
        let decided = shared.with_existing(&self.key, |account| {
            account.give_up(&shared.rule, self.cost, now)
        });
        decided.unwrap_or(Decision::Denied)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let settled = Settled {
            outcome: RetryOutcome::NotSent,
            cause: self.cause,
            cost: self.cost,
            at: None,
        };
        let shared = self.budget.shared();
        shared.with_existing(&self.key, |account| {
            account.gate.settle(&shared.gate, settled, clock::now());
        });
    }
}
