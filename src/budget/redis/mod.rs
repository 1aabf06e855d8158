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

/// A budget that many processes share through Redis or Valkey. Needs the feature `redis`.
///
/// ```no_run
/// use tower_retry_budget::{RetryBudgetLayer, budget::RedisBudget};
///
/// # async fn start() -> Result<(), tower_retry_budget::ConfigError> {
/// let budget = RedisBudget::builder("redis://127.0.0.1:6379").build()?;
/// let layer = RetryBudgetLayer::new().budget(budget.clone());
///
/// // At shutdown: what was leased and not used goes back.
/// budget.drain().await;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// # The rule
///
/// That of [`TokenBudget`](super::TokenBudget), over all processes with the same
/// [`namespace`](RedisBudgetBuilder::namespace) and the same [`Key`], with a floor cap of **100** and a
/// trickle of one token a **second** for all of them together. A key that Redis does not know starts with
/// **5**. The cap follows the first attempts of the whole fleet.
///
/// A token budget of this process alone stays the first gate
/// ([`gate`](RedisBudgetBuilder::gate)): no process takes all that the fleet has. A retry that the gate
/// denies is told [`Budget`](StopReason::Budget), one that the fleet denies
/// [`FleetBudget`](StopReason::FleetBudget).
///
/// # How it works
///
/// First attempts never wait for Redis. A retry is paid from a *lease*: tokens that Redis has taken off
/// the fleet's balance for this process. Each key in use makes one call of one script per interval, which
/// tells what became of its attempts, gives back what was not used, and asks for as much as was wanted
/// of late. A lease is at most one in `2n` of the balance for `n` live processes, or one token, and never
/// more than the balance. A retry that finds no lease asks at once, in place of the key's next call and at
/// most twice in an interval; it waits at most 50 ms, and not past its deadline. A lease of a process that
/// dies is lost, and comes in again by the rule.
///
/// All time is Redis's own, so the clocks of the processes do not matter. The `now` that the methods are given
/// is that of Tokio's clock, by which the task sleeps. Each call has a number that the
/// script remembers for a minute, so that one whose reply was lost, or that a cluster's client sent
/// twice, is not counted twice.
///
/// # When Redis does not answer
///
/// Whether it is slow, frozen, gone, refuses, or was restarted empty: first attempts pass, no call fails
/// by it, and retries go by the *local share*: the last balance divided by the last number of processes,
/// filled by this process's own attempts and its part of the trickle. A process that never had an answer
/// starts with nothing and one in [`expected_processes`](RedisBudgetBuilder::expected_processes) of the
/// trickle. What is spent so is told to Redis afterwards, and paid from the
/// fleet's balance before anything is leased; what that does not cover is paid by what comes in next. Until all
/// processes have told, up to about half a cap more may be spent. One key asks after 100 ms, and then after twice
/// as long, up to 2 s; when it has an answer, all others ask within an interval. One `warn` event says that
/// the store is lost, one `info` event that it is found, and [`mode`](Snapshot::mode) says which rule is in
/// force. Redis that comes back empty is told the balance that was seen last, at most the floor cap.
///
/// # Load and accuracy
///
/// For `n` live processes the interval is `max(125 ms, n / 400 s)`: a key costs Redis at most 8 calls a
/// second for each process and about 400 over all of them, whatever the traffic. With 1000 processes and
/// 100 000 requests a second to one dependency that is one call for 250 requests: the interval is 2.5 s,
/// a call carries what happened to 250 requests, and 400 calls a second are a few per cent of one Redis
/// core. In exchange, what Redis knows is up to 2.5 s old: after the traffic has changed the cap
/// follows within an interval and the second over which it is counted. The cap is 20 000 tokens and a lease
/// at most 10, so that a process that dies takes at most 10 tokens with it, and no more than half of the
/// balance is leased before it is asked for again. An idle key costs nothing; its account in Redis is gone
/// after the time in which it would have filled up and a minute.
///
/// A key is one hash with 13 fields and one of about 70 bytes for each process. Its name is
/// `{namespace:version:key}`, so that each lives in one slot: many dependencies spread over a cluster by
/// themselves. One dependency is one slot. One with more processes than a node takes calls from is split by
/// the [namespace](RedisBudgetBuilder::namespace): a part of the fleet each, with a part of the cap and of
/// the trickle.
///
/// # Operating it
///
/// - **Versions**: Redis 6 and later, Valkey. The script asks for the time and then writes, which the
///   servers before Redis 5 do not replicate.
/// - **ACL**: `+evalsha +eval +time +hmget +hset +hgetall +hkeys +hdel +pexpire` on `~{tower-retry-budget:*`;
///   a database other than 0 asks for `+select` as well, and a cluster's client for `+cluster`. The refusal
///   of `CLIENT SETINFO`, with which clients introduce themselves, does no harm.
/// - **Eviction**: with a `maxmemory-policy` that evicts keys, an account may be dropped while it is in use.
///   The next call restores it from what its process saw last, at most the floor cap, so that the fleet's
///   memory of an outage may be lost in the middle of it. Use `noeviction`, or an instance of its own.
/// - **Failover**: replication is asynchronous, so a new primary may have missed the last calls. Tokens spent
///   in them are there again, at most what was leased in that time. If its clock is behind, no
///   time passes for the account, and who is live is learnt anew within an interval.
/// - **Persistence** is not needed.
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

    /// The balance is the fleet's, the same in all processes: dashboards take its maximum, not its sum.
    fn account(&self, key: &Key, now: Instant) -> Option<Snapshot> {
        let shared = self.shared();
        shared.with_existing(key, |account| account.snapshot(&shared.rule, now))
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
