use super::milli::tokens;
use std::time::Duration;

/// What one key's account in a budget holds at one time.
///
/// Balance, cap and ceiling are in tokens, one for each retry unless the budget sets other costs.
/// The counts are of retries, since the account was made: one that was idle and had to make room
/// for another key begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    pub(super) balance: u64,
    pub(super) cap: u64,
    pub(super) ceiling: Option<u64>,
    pub(super) counts: Counts,
    /// For a budget that is shared through a store.
    pub(super) fleet: Option<Fleet>,
}

impl Snapshot {
    /// Returns the tokens there are for retries.
    ///
    /// In a [`TokenBudget`](super::TokenBudget), more than the [`cap`](Self::cap) when traffic has
    /// fallen since the last first attempt ended: the next one cuts it.
    pub fn balance(&self) -> f64 {
        tokens(self.balance)
    }

    /// Returns the most that the balance may be, by the traffic of late.
    ///
    /// In a [`TokenBudget`](super::TokenBudget), that of this second and the last; in a
    /// [`WindowBudget`](super::WindowBudget), that of the window, which allows so many retries in
    /// it.
    pub fn cap(&self) -> f64 {
        tokens(self.cap)
    }

    /// Returns the tokens that the ceiling on volume has left; infinity if there is no ceiling.
    pub fn ceiling(&self) -> f64 {
        self.ceiling.map_or(f64::INFINITY, tokens)
    }

    /// Returns how many retries were granted, those included that were given back later.
    pub fn spent(&self) -> u64 {
        self.counts.spent
    }

    /// Returns how many retries were denied.
    pub fn denied(&self) -> u64 {
        self.counts.denied
    }

    /// Returns how many of the retries granted were given back: never sent, or, in a
    /// [`TokenBudget`](super::TokenBudget), ended well.
    pub fn refunded(&self) -> u64 {
        self.counts.refunded
    }

    /// Returns the tokens of a fleet's balance that this process has leased and not spent; 0 for a
    /// budget of one process.
    pub fn leased(&self) -> f64 {
        self.fleet.map_or(0.0, |fleet| tokens(fleet.leased))
    }

    /// Returns by what rule retries are granted now; `None` for a budget of one process.
    pub fn mode(&self) -> Option<StoreMode> {
        self.fleet.map(|fleet| fleet.mode)
    }

    /// Returns how many processes shared the account when the store last answered, this one among
    /// them; 0 if it never has, and for a budget of one process.
    pub fn live(&self) -> u64 {
        self.fleet.map_or(0, |fleet| fleet.live)
    }

    /// Returns the time since the store last answered for this key; `None` if it never has, and for
    /// a budget of one process.
    pub fn synced_ago(&self) -> Option<Duration> {
        self.fleet.and_then(|fleet| fleet.synced)
    }
}

/// By what rule a budget that is shared through a store grants retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreMode {
    /// By the whole fleet's account: the store answers.
    Fleet,
    /// By this process's share of what the fleet had: the store does not answer, or has not been
    /// asked yet.
    LocalShare,
}

impl StoreMode {
    /// Returns `fleet` or `local_share`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::LocalShare => "local_share",
        }
    }
}

/// What a process knows of the fleet that it shares a budget with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fleet {
    pub(super) leased: u64,
    pub(super) mode: StoreMode,
    pub(super) live: u64,
    pub(super) synced: Option<Duration>,
}

/// What happened to an account so far, in retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    spent: u64,
    denied: u64,
    refunded: u64,
}

impl Counts {
    pub(super) fn spent(&mut self) {
        self.spent = self.spent.saturating_add(1);
    }

    pub(super) fn denied(&mut self) {
        self.denied = self.denied.saturating_add(1);
    }

    pub(super) fn refunded(&mut self) {
        self.refunded = self.refunded.saturating_add(1);
    }
}
