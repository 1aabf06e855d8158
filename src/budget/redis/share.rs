//! What one process may spend while the store does not answer: its part of what the fleet had.
//! Pure: no clock, no lock.

use super::protocol::{Purse, Reply};
use crate::budget::{
    milli::{TOKEN, nanos},
    token::rule::Rule,
};
use std::time::Instant;

/// One part in `parts` of the fleet's account, as it was when the store answered last.
///
/// It is filled by this process's own first attempts and its part of the trickle, up to its part of
/// the cap. The next reply makes it anew, and what was spent of it is told to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    purse: Purse,
    cap: u64,
    parts: u64,
    /// The part of a milli-token that has trickled in, in nanoseconds times a thousand.
    trickled: u128,
    last: Instant,
}

impl Share {
    /// The share of a process that never got a reply: nothing but what trickles in and is earned.
    pub(super) fn unsynced(rule: &Rule, parts: u64, now: Instant) -> Self {
        let cap = rule.floor / parts.max(1);
        Self {
            purse: Purse {
                balance: 0,
                ceiling: Rule::ceiling(cap),
            },
            cap,
            parts: parts.max(1),
            trickled: 0,
            last: now,
        }
    }

    /// The share of what a reply says is left, less what was spent and the store does not know of yet.
    pub(super) fn of(reply: &Reply, owed: Purse, now: Instant) -> Self {
        let parts = reply.live.max(1);
        let share = |left: u64, owed: u64| (left / parts).saturating_sub(owed);
        Self {
            purse: Purse {
                balance: share(reply.left.balance, owed.balance),
                ceiling: share(reply.left.ceiling, owed.ceiling),
            },
            cap: reply.cap / parts,
            parts,
            trickled: 0,
            last: now,
        }
    }

    /// A first attempt ended and earned so much. Returns what of it there was room for.
    pub(super) fn deposit(&mut self, rule: &Rule, earned: u64, now: Instant) -> u64 {
        self.advance(rule, now);
        let before = self.purse.balance;
        self.add(Purse {
            balance: earned,
            ceiling: rule.ceiling_ratio.unwrap_or(0),
        });
        self.purse.balance.saturating_sub(before)
    }

    /// Takes all of `price`, or nothing.
    pub(super) fn take(&mut self, rule: &Rule, price: Purse, now: Instant) -> bool {
        self.advance(rule, now);
        self.purse.take(price)
    }

    /// What there is at `now`.
    pub(super) fn purse(mut self, rule: &Rule, now: Instant) -> Purse {
        self.advance(rule, now);
        self.purse
    }

    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    fn advance(&mut self, rule: &Rule, now: Instant) {
        let Some(elapsed) = now.checked_duration_since(self.last) else {
            return;
        };
        self.last = now;
        let Some(per_token) = rule.trickle else {
            return;
        };
        let per_token = u128::from(per_token.get()) * u128::from(self.parts);
        let trickled = u128::from(nanos(elapsed)) * u128::from(TOKEN) + self.trickled;
        self.trickled = trickled % per_token;
        let gained = u64::try_from(trickled / per_token).unwrap_or(u64::MAX);
        self.add(Purse {
            balance: gained,
            ceiling: gained,
        });
    }

    fn add(&mut self, more: Purse) {
        let most = Purse {
            balance: self.cap,
            ceiling: Rule::ceiling(self.cap),
        };
        let raised = |held: u64, by: u64, most: u64| held.max(held.saturating_add(by).min(most));
        self.purse = Purse {
            balance: raised(self.purse.balance, more.balance, most.balance),
            ceiling: raised(self.purse.ceiling, more.ceiling, most.ceiling),
        };
    }
}
