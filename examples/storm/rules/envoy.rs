//! Envoy's retry budget: a share of what is under way.

use super::budgets::answer;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use tower_retry_budget::{
    budget::{Budget, Key, Settled, Withdrawal},
    reason::Cause,
};

/// At most a fifth of the requests under way, and 3 at least. Retries that wait count against it, and
/// not into what it is a share of.
pub(super) struct Envoy {
    under_way: Arc<AtomicUsize>,
    retries: AtomicUsize,
}

impl Envoy {
    const MIN: usize = 3;

    pub(super) fn new(under_way: Arc<AtomicUsize>) -> Self {
        Self {
            under_way,
            retries: AtomicUsize::new(0),
        }
    }
}

impl Budget for Envoy {
    fn deposit(&self, _: &Key, _: bool, _: Instant) {}

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        let most = (self.under_way.load(Ordering::Relaxed) / 5).max(Self::MIN);
        let grant = self.retries.load(Ordering::Relaxed) < most;
        self.retries
            .fetch_add(usize::from(grant), Ordering::Relaxed);
        answer(self, key, cause, grant)
    }

    fn settle(&self, _: &Key, _: Settled, _: Instant) {
        self.retries.fetch_sub(1, Ordering::Relaxed);
    }
}
