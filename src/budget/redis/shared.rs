//! The accounts of one process, used by its calls and by the task that talks to the store.

use super::account::Account;
use crate::budget::{
    Key, Snapshot,
    keyed::{self, KeyMap, lock},
    token::rule::Rule,
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct Shared {
    /// The rule of the fleet's accounts, and that of the first gate.
    pub(super) rule: Rule,
    pub(super) gate: Rule,
    expected: u64,
    accounts: KeyMap<Mutex<Account>>,
    draining: AtomicBool,
}

/// What the task is told.
#[derive(Debug)]
pub(super) enum Wake {
    /// A key has something to tell, and its call is due then.
    Due(Key, Instant),
    /// A key wants a lease now.
    Ask(Key),
    /// All leases go back. Answered when that is done, or given up.
    Drain(oneshot::Sender<()>),
}

impl Shared {
    pub(super) fn new(rule: Rule, gate: Rule, expected: u64, max_keys: usize) -> Self {
        let accounts = KeyMap::new(
            max_keys,
            move |now| Mutex::new(Account::new(&gate, &rule, expected, now)),
            move |account, now| lock(account).is_refilled(&gate, now),
        );
        Self {
            rule,
            gate,
            expected,
            accounts,
            draining: AtomicBool::new(false),
        }
    }

    /// Uses the account of `key`, made now if it is new, or the one for all keys without a place.
    pub(super) fn with<R>(
        &self,
        key: &Key,
        now: Instant,
        use_it: impl FnOnce(&mut Account, keyed::Account) -> R,
    ) -> R {
        self.accounts
            .with(key, now, |account, whose| use_it(&mut lock(account), whose))
    }

    /// Uses the account of `key` if it has one.
    pub(super) fn with_existing<R>(
        &self,
        key: &Key,
        use_it: impl FnOnce(&mut Account) -> R,
    ) -> Option<R> {
        self.accounts
            .with_existing(key, |account| Some(use_it(&mut lock(account?))))
    }

    pub(super) fn for_each(&self, mut use_it: impl FnMut(&Key, &mut Account)) {
        self.accounts
            .for_each(|key, account| use_it(key, &mut lock(account)));
    }

    pub(super) fn snapshot(&self, key: &Key, now: Instant) -> Snapshot {
        let known = self
            .accounts
            .look(key, |account| lock(account).snapshot(&self.rule, now));
        known.unwrap_or_else(|| {
            Account::new(&self.gate, &self.rule, self.expected, now).snapshot(&self.rule, now)
        })
    }

    pub(super) fn keys(&self) -> usize {
        self.accounts.len()
    }

    pub(super) fn overflowed(&self) -> u64 {
        self.accounts.overflowed()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on nothing is granted, and nobody waits.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.for_each(|_, account| account.release());
    }
}
