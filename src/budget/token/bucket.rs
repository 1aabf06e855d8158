//! The state of one key's account. Pure: no clock, no lock.

use super::rule::Rule;
use crate::{
    budget::{
        Settled,
        milli::{TOKEN, nanos},
        snapshot::{Counts, Snapshot},
    },
    reason::{Cause, RetryOutcome},
};
use std::time::Instant;

/// Nanoseconds in the second over which first attempts are counted.
const SECOND: u64 = 1_000_000_000;

/// Milli-tokens, and what is needed to say how many of them there are at a given time.
///
/// Every operation first brings the state up to `now`, in constant time. A `now` before the last one
/// counts as no time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::budget) struct Bucket {
    /// At most `limit`.
    balance: u64,
    /// At most three times `limit`. Stays as it was made when the rule has no ceiling.
    ceiling: u64,
    /// The cap as the last deposit found it. A cap that has shrunk since then takes effect at the
    /// next one; until then, what was taken can be given back whole.
    limit: u64,
    /// The part of a milli-token that has trickled in, in billionths of a second times a thousand:
    /// a milli-token is there when it reaches the nanoseconds per token.
    trickled: u64,
    last: Instant,
    /// Nanoseconds from the start of the second being counted until `last`. Less than `SECOND`.
    into_second: u64,
    /// First attempts in the second being counted, and in the one before it.
    this_second: u32,
    last_second: u32,
    counts: Counts,
}

impl Bucket {
    pub(in crate::budget) fn new(rule: &Rule, now: Instant) -> Self {
        Self {
            balance: rule.initial,
            ceiling: Rule::ceiling(rule.floor),
            limit: rule.floor,
            trickled: 0,
            last: now,
            into_second: 0,
            this_second: 0,
            last_second: 0,
            counts: Counts::default(),
        }
    }

    /// A first attempt ended.
    pub(in crate::budget) fn deposit(&mut self, rule: &Rule, failed: bool, now: Instant) {
        self.advance(rule, now);
        self.count(rule, failed);
    }

    /// Counts a first attempt that ended since the last operation, before anything else
    /// [changed](Self::steady_for).
    pub(in crate::budget) fn count(&mut self, rule: &Rule, failed: bool) {
        self.this_second = self.this_second.saturating_add(1);
        let cap = self.cap(rule);
        let earned = if failed { 0 } else { rule.ratio };
        self.balance = self.balance.saturating_add(earned).min(cap);
        if let Some(earned) = rule.ceiling_ratio {
            let most = Rule::ceiling(cap);
            self.ceiling = self.ceiling.saturating_add(earned).min(most);
        }
        self.limit = cap;
    }

    /// Takes what a retry costs from the balance and one token from the ceiling, if both have as
    /// much, and returns the cost.
    pub(in crate::budget) fn withdraw(
        &mut self,
        rule: &Rule,
        cause: Cause,
        now: Instant,
    ) -> Option<u32> {
        self.advance(rule, now);
        let cost = rule.costs.of(cause);
        // A ceiling on volume: a retry is one request more, however little it costs.
        let ceiling = match rule.ceiling_ratio {
            Some(_) => self.ceiling.checked_sub(TOKEN),
            None => Some(self.ceiling),
        };
        match (self.balance.checked_sub(cost.into()), ceiling) {
            (Some(balance), Some(ceiling)) => {
                self.balance = balance;
                self.ceiling = ceiling;
                self.counts.spent();
                Some(cost)
            }
            _ => {
                self.counts.denied();
                None
            }
        }
    }

    /// Learns what became of a retry that was withdrawn.
    pub(in crate::budget) fn settle(&mut self, rule: &Rule, settled: Settled, now: Instant) {
        self.advance(rule, now);
        match settled.outcome {
            RetryOutcome::NotSent => {
                self.refund(settled.cost);
                if rule.ceiling_ratio.is_some() {
                    self.ceiling = raised(self.ceiling, TOKEN, Rule::ceiling(self.limit));
                }
            }
            // A server that says "too much" is not helped by a retry that got through: another
            // call went without its place.
            RetryOutcome::Succeeded if !settled.cause.is_overload_signal() => {
                self.refund(settled.cost);
            }
            RetryOutcome::Succeeded | RetryOutcome::Failed => {}
        }
    }

    /// Takes all tokens. The ceiling, which bounds volume, stays as it is.
    pub(in crate::budget) fn drain(&mut self, rule: &Rule, now: Instant) {
        self.advance(rule, now);
        self.balance = 0;
        self.trickled = 0;
    }

    fn refund(&mut self, cost: u32) {
        self.balance = raised(self.balance, cost.into(), self.limit);
        self.counts.refunded();
    }

    /// Whether the account is idle and holds at least what a new one would, so that forgetting it
    /// and making it anew gives nobody more than leaving it.
    pub(in crate::budget) fn is_refilled(&self, rule: &Rule, now: Instant) -> bool {
        let mut bucket = *self;
        bucket.advance(rule, now);
        let new = Self::new(rule, now);
        bucket.busier_second() == 0
            && bucket.balance >= new.balance
            && (rule.ceiling_ratio.is_none() || bucket.ceiling >= new.ceiling)
    }

    /// What there is to look at, as of `now`.
    pub(in crate::budget) fn snapshot(mut self, rule: &Rule, now: Instant) -> Snapshot {
        self.advance(rule, now);
        Snapshot {
            balance: self.balance,
            cap: self.cap(rule),
            ceiling: rule.ceiling_ratio.map(|_| self.ceiling),
            counts: self.counts,
            fleet: None,
        }
    }

    /// The cap that the next deposit would find.
    fn cap(&self, rule: &Rule) -> u64 {
        rule.cap(self.busier_second())
    }

    fn busier_second(&self) -> u32 {
        self.this_second.max(self.last_second)
    }

    /// Up to when all is accounted for.
    pub(in crate::budget) fn as_of(&self) -> Instant {
        self.last
    }

    /// For how many nanoseconds from then on nothing changes by itself: until the next milli-token has
    /// trickled in, or the second being counted ends.
    pub(in crate::budget) fn steady_for(&self, rule: &Rule) -> u64 {
        let second = SECOND - self.into_second;
        let milli_token = rule.trickle.map_or(u64::MAX, |per_token| {
            (per_token.get() - self.trickled).div_ceil(TOKEN)
        });
        second.min(milli_token)
    }

    fn advance(&mut self, rule: &Rule, now: Instant) {
        let Some(elapsed) = now.checked_duration_since(self.last) else {
            return;
        };
        self.last = now;
        let mut elapsed = nanos(elapsed);
        if elapsed >= SECOND - self.into_second {
            elapsed = self.turn_seconds(rule, elapsed);
        }
        self.trickle(rule, elapsed);
        self.into_second += elapsed;
    }

    /// Goes over the ends of seconds, and returns what is left of `elapsed`.
    ///
    /// Trickled tokens are held to the cap of the second in which they came in, so that the result
    /// does not depend on how often anybody looked. After two seconds there is nothing to count.
    #[cold]
    fn turn_seconds(&mut self, rule: &Rule, mut elapsed: u64) -> u64 {
        for _ in 0..2 {
            let rest = SECOND - self.into_second;
            if elapsed < rest {
                return elapsed;
            }
            self.trickle(rule, rest);
            elapsed -= rest;
            self.into_second = 0;
            self.last_second = self.this_second;
            self.this_second = 0;
        }
        let within = elapsed % SECOND;
        self.trickle(rule, elapsed - within);
        within
    }

    fn trickle(&mut self, rule: &Rule, elapsed: u64) {
        let Some(per_token) = rule.trickle else {
            return;
        };
        let trickled = elapsed
            .checked_mul(TOKEN)
            .and_then(|trickled| trickled.checked_add(self.trickled));
        let gained = match trickled {
            Some(trickled) if trickled < per_token.get() => {
                self.trickled = trickled;
                return;
            }
            Some(trickled) => {
                self.trickled = trickled % per_token;
                trickled / per_token
            }
            // More than half a year at once.
            None => {
                let trickled = u128::from(elapsed) * u128::from(TOKEN) + u128::from(self.trickled);
                let per_token = u128::from(per_token.get());
                self.trickled = u64::try_from(trickled % per_token).unwrap_or(0);
                u64::try_from(trickled / per_token).unwrap_or(u64::MAX)
            }
        };
        let cap = self.cap(rule);
        self.balance = raised(self.balance, gained, cap);
        if rule.ceiling_ratio.is_some() {
            self.ceiling = raised(self.ceiling, gained, Rule::ceiling(cap));
        }
    }
}

/// Adds up to `most`. What is over it already stays, until a deposit cuts it.
fn raised(amount: u64, by: u64, most: u64) -> u64 {
    amount.max(amount.saturating_add(by).min(most))
}
