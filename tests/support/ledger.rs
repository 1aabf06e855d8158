//! A budget that answers by a script, and writes down all that it is told.

use super::MS;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, Permit, Settled, Withdrawal},
    reason::{Cause, RetryOutcome, StopReason},
};

/// What a retry costs, in milli-tokens.
const COST: u32 = 1000;

/// What the budget says to one withdrawal.
pub enum Answer {
    Grant,
    Deny(StopReason),
    /// Asks a store first, which takes this long to grant or to deny.
    Later(Duration, Result<(), StopReason>),
    /// Asks a store that never answers.
    Never,
}

impl Answer {
    pub fn granted_after(ms: u32) -> Self {
        Self::Later(ms * MS, Ok(()))
    }

    pub fn denied_after(ms: u32, reason: StopReason) -> Self {
        Self::Later(ms * MS, Err(reason))
    }
}

/// The budget. Grants whatever is asked when the script is used up.
#[derive(Default)]
pub struct Ledger {
    answers: Mutex<VecDeque<Answer>>,
    deposits: Mutex<Vec<bool>>,
    withdrawals: Mutex<Vec<Cause>>,
    settled: Mutex<Vec<RetryOutcome>>,
    asking: Arc<AtomicUsize>,
}

impl Ledger {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        })
    }

    /// Whether each first attempt that ended failed.
    pub fn deposits(&self) -> Vec<bool> {
        lock(&self.deposits).clone()
    }

    /// What each retry that was asked for is an answer to.
    pub fn withdrawals(&self) -> Vec<Cause> {
        lock(&self.withdrawals).clone()
    }

    /// What became of each retry that was granted.
    pub fn settled(&self) -> Vec<RetryOutcome> {
        lock(&self.settled).clone()
    }

    /// How many withdrawals wait for the store.
    pub fn asking(&self) -> usize {
        self.asking.load(Ordering::SeqCst)
    }
}

impl Budget for Ledger {
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        lock(&self.deposits).push(failed);
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        lock(&self.withdrawals).push(cause);
        let answer = lock(&self.answers).pop_front().unwrap_or(Answer::Grant);
        let key = key.clone();
        let (after, answer) = match answer {
            Answer::Grant => return Withdrawal::Granted(Permit::new(self, key, cause, COST)),
            Answer::Deny(reason) => return Withdrawal::Denied(reason),
            Answer::Later(after, answer) => (Some(after), answer),
            Answer::Never => (None, Ok(())),
        };
        let asking = Asking::new(&self.asking);
        Withdrawal::Pending(Box::pin(async move {
            let _asking = asking;
            match after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
            answer.map(|()| Permit::new(self, key, cause, COST))
        }))
    }

    fn settle(&self, _: &Key, settled: Settled, _: Instant) {
        assert_eq!(settled.cost, COST);
        lock(&self.settled).push(settled.outcome);
    }
}

/// A question on its way to the store.
struct Asking(Arc<AtomicUsize>);

impl Asking {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds a lock")
}
