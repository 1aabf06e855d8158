mod account;
mod builder;
mod events;
mod pace;
mod protocol;
mod share;
mod shared;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod wait;

pub use self::builder::RedisBudgetBuilder;
use self::{
    account::Decision,
    shared::{Shared, Wake},
    wait::Held,
};
use super::{Budget, Key, Settled, Snapshot, Withdrawal, keyed::Account};
use crate::reason::{Cause, StopReason};
use std::{fmt, sync::Arc, time::Instant};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// A budget that many processes share through Redis or Valkey.
#[derive(Clone)]
pub struct RedisBudget(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    wakes: UnboundedSender<Wake>,
}

impl RedisBudget {
    /// Returns what the account of `key` holds, as far as this process knows at `now`.
    ///
    /// While the store answers, balance, cap and ceiling are the fleet's, as of
    /// [`synced_ago`](Snapshot::synced_ago), without what is leased. Otherwise they are the local
    /// share's. The counts are this process's own.
    pub fn snapshot(&self, key: &Key, now: Instant) -> Snapshot {
        self.shared().snapshot(key, now)
    }

    /// Returns how many keys have an account of their own.
    pub fn keys(&self) -> usize {
        self.shared().keys()
    }

    /// Returns how many times a deposit or withdrawal went to the shared account, since there was no
    /// room for its key. The store is not told of that account.
    pub fn overflowed(&self) -> u64 {
        self.shared().overflowed()
    }

    /// Ends the budget's work, for a shutdown: grants no more retries, ends the wait of those that ask
    /// for one ([`ShuttingDown`](StopReason::ShuttingDown)), gives the leases back and tells the store
    /// what it was not told yet.
    ///
    /// Returns within 100 ms, whatever the store does. First attempts go on. All clones are drained, and
    /// for good.
    ///
    /// # Cancel safety
    ///
    /// A drain that was begun goes on when the future is dropped.
    pub async fn drain(&self) {
        let (done, is_done) = oneshot::channel();
        self.shared().drain();
        self.wake(Wake::Drain(done));
        // An error says that it was drained before.
        let _ = is_done.await;
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Fails only when the task has ended: drained, or with the runtime.
    fn wake(&self, wake: Wake) {
        let _ = self.0.wakes.send(wake);
    }

    fn due(&self, key: &Key, due: Option<Instant>) {
        if let Some(due) = due {
            self.wake(Wake::Due(key.clone(), due));
        }
    }
}

impl Budget for RedisBudget {
    fn deposit(&self, key: &Key, failed: bool, now: Instant) {
        let shared = self.shared();
        let due = shared.with(key, now, |account, whose| {
            account.gate.deposit(&shared.gate, failed, now);
            account.deposit(&shared.rule, failed, now);
            match whose {
                Account::Own => account.wake(fastrand::f32(), now),
                Account::Overflow => None,
            }
        });
        self.due(key, due);
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, now: Instant) -> Withdrawal {
        let shared = self.shared();
        if shared.is_draining() {
            return Withdrawal::Denied(StopReason::ShuttingDown);
        }
        let (asked, whose, due) = shared.with(key, now, |account, whose| {
            let Some(cost) = account.gate.withdraw(&shared.gate, cause, now) else {
                account.denied();
                return (None, whose, None);
            };
            match whose {
                Account::Own => {
                    let decision = account.withdraw(&shared.rule, cost, None, now);
                    let due = account.wake(fastrand::f32(), now);
                    (Some((cost, decision)), whose, due)
                }
                Account::Overflow => {
                    let decision = account.withdraw_alone(&shared.rule, cost, now);
                    (Some((cost, decision)), whose, None)
                }
            }
        });
        let Some((cost, decision)) = asked else {
            return Withdrawal::Denied(StopReason::Budget);
        };
        self.due(key, due);
        // The permit remembers the account that paid.
        let key = match whose {
            Account::Own => key.clone(),
            Account::Overflow => Key::OVERFLOW,
        };
        let held = Held {
            budget: self,
            key,
            cause,
            cost,
            granted: false,
        };
        match decision {
            Decision::Granted => Withdrawal::Granted(held.into_permit()),
            Decision::Denied => Withdrawal::Denied(StopReason::FleetBudget),
            Decision::Wait(wait) => {
                if wait.ask {
                    held.budget.wake(Wake::Ask(held.key.clone()));
                }
                Withdrawal::Pending(Box::pin(held.wait(wait)))
            }
        }
    }

    fn settle(&self, key: &Key, settled: Settled, now: Instant) {
        let shared = self.shared();
        let due = shared.with_existing(key, |account| {
            account.gate.settle(&shared.gate, settled, now);
            account.settle(&shared.rule, settled);
            account.wake(fastrand::f32(), now)
        });
        if !key.is_overflow() {
            self.due(key, due.flatten());
        }
    }
}

impl fmt::Debug for RedisBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBudget")
            .field("rule", &self.shared().rule)
            .field("gate", &self.shared().gate)
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}
