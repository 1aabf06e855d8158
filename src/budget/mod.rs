//! Budgets: what limits retries over many calls.
//!
//! A budget fills with traffic ([`deposit`](Budget::deposit)), is spent by retries
//! ([`withdraw`](Budget::withdraw)), and learns what became of each of them
//! ([`settle`](Budget::settle), by the [`Permit`]). One budget lives in the layer and is shared by
//! every service made from it; several layers may share one on purpose.
//!
//! Which one:
//!
//! - [`TokenBudget`], the default, earns retries by success and gets them back when they succeed. It
//!   mends the most, adds next to nothing to an outage, and can make some failures cost more than
//!   others.
//! - [`WindowBudget`] allows a share of the traffic in a rolling window: easy to state, and with
//!   presets for what Finagle, tower, Linkerd and others do.
//! - [`FnBudget`] wraps any budget that has a deposit and a withdrawal, such as tower's.
//! - [`RedisBudget`] is the token rule over a whole fleet, with a Redis that the processes share.
//!
//! The first three need no store; each limits the process it is in. What the accounts are kept by is the
//! [`BudgetScope`].

mod closures;
mod hash;
mod key;
mod keyed;
pub(crate) mod milli;
mod permit;
#[cfg(feature = "redis")]
mod redis;
mod scope;
mod snapshot;
mod token;
mod window;

pub(crate) use self::keyed::{Account, DEFAULT_LIMIT as MAX_KEYS, KeyMap};
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::redis::{RedisBudget, RedisBudgetBuilder};
#[cfg(feature = "serde")]
pub(crate) use self::scope::Hosts;
pub use self::{
    closures::FnBudget,
    key::Key,
    permit::{Permit, Settled},
    scope::BudgetScope,
    snapshot::{Snapshot, StoreMode},
    token::{TokenBudget, TokenBudgetBuilder},
    window::{WindowBudget, WindowBudgetBuilder},
};
use crate::reason::{Cause, StopReason};
use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Instant};

/// What limits retries over many calls, one account per [`Key`].
///
/// Implementations decide on the spot and never block: the methods run inside `Future::poll`. Only a
/// budget that asks a shared store answers [`Withdrawal::Pending`]. Check and take are one step.
/// `now` comes from the caller, may be injected in tests, and may go backwards; an implementation
/// treats that as no time passed.
pub trait Budget: Send + Sync + 'static {
    /// Records one first attempt that ended. `failed` is true when its outcome was a failure.
    ///
    /// Called once per call whose first attempt ended, whether or not that call may be retried, and
    /// never for a retry, nor for an attempt that was turned away inside this process.
    fn deposit(&self, key: &Key, failed: bool, now: Instant);

    /// Asks for one retry of a failure of kind `cause`.
    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, now: Instant) -> Withdrawal;

    /// Learns what became of a retry. Called by the [`Permit`], exactly once for each.
    fn settle(&self, key: &Key, settled: Settled, now: Instant);

    /// Returns what the account of `key` holds, for those who watch.
    ///
    /// `None` where it has no account of its own, be it none yet, or none any more. By default nothing is
    /// told. Changes nothing.
    fn account(&self, _key: &Key, _now: Instant) -> Option<Snapshot> {
        None
    }

    /// Makes the account of `key` what a new one is: what it earned and what it spent is forgotten.
    ///
    /// A retry that is under way settles with what there is then.
    ///
    /// # Errors
    ///
    /// [`NotSupported`], unless the budget can do it. By default it cannot.
    fn reset_account(&self, _key: &Key, _now: Instant) -> Result<(), NotSupported> {
        Err(NotSupported)
    }

    /// Takes all that the account of `key` holds: no retry is granted until it has earned one again.
    ///
    /// A retry that is under way and is given back is one that it holds again.
    ///
    /// # Errors
    ///
    /// [`NotSupported`], unless the budget can do it. By default it cannot.
    fn drain_account(&self, _key: &Key, _now: Instant) -> Result<(), NotSupported> {
        Err(NotSupported)
    }
}

/// The budget cannot reset or drain a single account.
///
/// [`TokenBudget`] and [`WindowBudget`] can. An [`FnBudget`] has no accounts, and that of a
/// [`RedisBudget`] belongs to the whole fleet: delete its key in the store, and each process goes on with
/// what it had last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSupported;

impl fmt::Display for NotSupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the budget cannot reset or drain a single account")
    }
}

impl std::error::Error for NotSupported {}

/// The answer to [`Budget::withdraw`].
#[non_exhaustive]
pub enum Withdrawal {
    /// The retry may be sent.
    Granted(Permit),
    /// The retry may not be sent, and this is the reason that the caller is told.
    Denied(StopReason),
    /// A shared store is being asked. Dropping the future withdraws nothing.
    ///
    /// The future has to end by itself, soon and whatever the store does: only the deadline of the
    /// call ends it otherwise, and a call need not have one.
    Pending(Pin<Box<dyn Future<Output = Result<Permit, StopReason>> + Send>>),
}

impl fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(permit) => f.debug_tuple("Granted").field(permit).finish(),
            Self::Denied(reason) => f.debug_tuple("Denied").field(reason).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}
