//! What goes to the script and what comes back. Names and order are those of `fleet.lua`.

use crate::budget::{
    milli::TOKEN,
    token::rule::{CEILING_CAPS, MAX_TOKENS, Rule},
};
use std::time::Duration;

/// The version of the account's fields and of the script's arguments. Part of every Redis key, so
/// that two versions of the crate never write into the same account.
pub(super) const VERSION: u32 = 1;

/// Milli-tokens of the two accounts that a retry is paid from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Purse {
    pub(super) balance: u64,
    pub(super) ceiling: u64,
}

impl Purse {
    pub(super) const EMPTY: Self = Self {
        balance: 0,
        ceiling: 0,
    };

    pub(super) fn add(&mut self, other: Self) {
        self.balance = self.balance.saturating_add(other.balance);
        self.ceiling = self.ceiling.saturating_add(other.ceiling);
    }

    /// Takes all of `price`, or nothing.
    pub(super) fn take(&mut self, price: Self) -> bool {
        match (
            self.balance.checked_sub(price.balance),
            self.ceiling.checked_sub(price.ceiling),
        ) {
            (Some(balance), Some(ceiling)) => {
                *self = Self { balance, ceiling };
                true
            }
            _ => false,
        }
    }

    /// Takes off both what they have in common.
    pub(super) fn cancel(&mut self, other: &mut Self) {
        let balance = self.balance.min(other.balance);
        let ceiling = self.ceiling.min(other.ceiling);
        for purse in [self, other] {
            purse.balance -= balance;
            purse.ceiling -= ceiling;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }
}

/// What a process has to tell of one key since it last did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// First attempts that ended, and what they earned.
    pub(super) attempts: u64,
    pub(super) earned: u64,
    /// Leases that were not used, and retries that were given back.
    pub(super) back: Purse,
    /// Spent without a lease, from the local share.
    pub(super) owed: Purse,
}

impl Report {
    pub(super) fn add(&mut self, other: Self) {
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.earned = self.earned.saturating_add(other.earned);
        self.back.add(other.back);
        self.owed.add(other.owed);
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Grows from call to call of one account. A call with one that was seen is not applied again.
    pub(super) sequence: u64,
    pub(super) report: Report,
    /// The time that the report is about.
    pub(super) span: Duration,
    /// The lease asked for, and the least that is of use.
    pub(super) want: Purse,
    pub(super) need: u64,
    /// What the last reply said that the account holds, for the case that it is lost.
    pub(super) seen: Option<Purse>,
}

impl Call {
    /// The script's arguments after the identity of the process.
    pub(super) fn arguments(&self, rule: &Rule) -> [i64; 20] {
        let report = &self.report;
        let seen = self.seen.map(|seen| (seen.balance, seen.ceiling));
        let (seen, seen_ceiling) = seen.unzip();
        let trickle = rule.trickle.map_or(0, |nanos| (nanos.get() / 1000).max(1));
        let span = u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX);
        [
            number(self.sequence),
            number(report.attempts),
            number(span),
            number(report.earned),
            number(report.back.balance),
            number(report.back.ceiling),
            number(report.owed.balance),
            number(report.owed.ceiling),
            number(self.want.balance),
            number(self.want.ceiling),
            number(self.need),
            seen.map_or(-1, number),
            seen_ceiling.map_or(-1, number),
            number(rule.ratio),
            number(rule.floor),
            number(rule.initial),
            number(trickle),
            rule.ceiling_ratio.map_or(-1, number),
            number(MAX_TOKENS * TOKEN),
            number(CEILING_CAPS),
        ]
    }
}

/// Lua's numbers are exact up to 2^53, about nine thousand times the largest ceiling.
fn number(amount: u64) -> i64 {
    const EXACT: i64 = 1 << 53;

    i64::try_from(amount).map_or(EXACT, |amount| amount.min(EXACT))
}

/// The script's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) lease: Purse,
    /// What is left after the lease.
    pub(super) left: Purse,
    pub(super) cap: u64,
    /// Processes that called of late, this one among them. Never zero.
    pub(super) live: u64,
    pub(super) interval: Duration,
}

impl From<[u64; 7]> for Reply {
    fn from(reply: [u64; 7]) -> Self {
        let [balance, ceiling, left, left_ceiling, cap, live, interval] = reply;
        Self {
            lease: Purse { balance, ceiling },
            left: Purse {
                balance: left,
                ceiling: left_ceiling,
            },
            cap,
            live: live.max(1),
            interval: Duration::from_millis(interval.clamp(1, 3_600_000)),
        }
    }
}
