use super::{Budget, Key, Permit, Settled, Withdrawal, milli::COST};
use crate::reason::{Cause, StopReason};
use std::{fmt, sync::Arc, time::Instant};

/// A budget made of two closures, for one that already exists elsewhere.
///
/// `deposit` is called for each first attempt that ended without failure, which is where tower's own
/// examples call it; `withdraw` is asked for each retry, and says whether it may be sent. Both run
/// inside `Future::poll` and must not block.
///
/// # What it cannot do
///
/// - No refunds: a retry that was withdrawn and then never sent, because the caller went away during
///   the wait, stays spent.
/// - No keys: all dependencies share the one account, so that a noisy one starves the others. Give
///   each layer a budget of its own.
/// - No injected time: what is inside reads its own clock.
///
/// What it counts is as exact as what is inside: tower's `TpsBudget` rounds its ratio to one over a
/// whole number, and 60 % act as 100 %. [`WindowBudget::finagle`](super::WindowBudget::finagle) has
/// the same numbers, and none of these limits.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tower::retry::budget::{Budget as _, TpsBudget};
/// use tower_retry_budget::{RetryBudgetLayer, budget::FnBudget};
///
/// // A fifth of the successes of the last 10 s, and one retry per second besides.
/// let tps = Arc::new(TpsBudget::new(Duration::from_secs(10), 1, 0.2));
/// let budget = FnBudget::new(
///     { let tps = tps.clone(); move || tps.deposit() },
///     { let tps = tps.clone(); move || tps.withdraw() },
/// );
/// let layer = RetryBudgetLayer::new().budget(budget);
///
/// for _ in 0..10 {
///     assert!(tps.withdraw());
/// }
/// assert!(!tps.withdraw());
/// ```
pub struct FnBudget<D, W> {
    deposit: D,
    withdraw: W,
}

impl<D, W> FnBudget<D, W>
where
    D: Fn() + Send + Sync + 'static,
    W: Fn() -> bool + Send + Sync + 'static,
{
    /// Creates a budget of a deposit and a withdrawal.
    pub fn new(deposit: D, withdraw: W) -> Self {
        Self { deposit, withdraw }
    }
}

impl<D, W> Budget for FnBudget<D, W>
where
    D: Fn() + Send + Sync + 'static,
    W: Fn() -> bool + Send + Sync + 'static,
{
    fn deposit(&self, _: &Key, failed: bool, _: Instant) {
        if !failed {
            (self.deposit)();
        }
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: Instant) -> Withdrawal {
        if (self.withdraw)() {
            Withdrawal::Granted(Permit::new(self, key.clone(), cause, COST))
        } else {
            Withdrawal::Denied(StopReason::Budget)
        }
    }

    /// Does nothing: there is no closure for it.
    fn settle(&self, _: &Key, _: Settled, _: Instant) {}
}

impl<D, W> fmt::Debug for FnBudget<D, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnBudget").finish_non_exhaustive()
    }
}
