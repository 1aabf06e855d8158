//! One key's account as many threads use it.
//!
//! Nearly all that happens to an account is that a call has succeeded, and that only adds. So successes
//! are counted beside the bucket, without its lock, and brought in by the next one who looks at it.

use super::{bucket::Bucket, rule::Rule};
use crate::budget::keyed::lock;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How many successes may wait to be brought in: few enough to add up under the lock.
const MOST: u32 = 256;

/// A [`Bucket`], and the successes that it does not know of yet.
///
/// They are those since the bucket was last brought up to date and before the time at which anything
/// but a deposit changes it. Within that time it makes no difference when they happened, so the sums are
/// the same as if each had taken the lock.
pub(super) struct TokenAccount {
    bucket: Mutex<Bucket>,
    waiting: AtomicU32,
    /// Until when successes may wait, [since the epoch](Terms::since_epoch). Changed under the lock.
    steady_until: AtomicU64,
}

/// What all accounts of a budget go by.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) rule: Rule,
    /// When the budget was made.
    pub(super) epoch: Instant,
}

impl Terms {
    /// The time since the budget was made as a number that grows with it, in fewer steps than its
    /// nanoseconds would take: it is asked for with every deposit.
    fn since_epoch(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.epoch);
        since.as_secs() << 30 | u64::from(since.subsec_nanos())
    }
}

impl TokenAccount {
    /// An account that nobody used yet.
    pub(super) fn new(terms: &Terms, now: Instant) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(&terms.rule, now)),
            waiting: AtomicU32::new(0),
            // The first one to use it finds out.
            steady_until: AtomicU64::new(0),
        }
    }

    /// A first attempt ended.
    pub(super) fn deposit(&self, terms: &Terms, failed: bool, now: Instant) {
        if failed || terms.since_epoch(now) >= self.steady_until.load(Ordering::Relaxed) {
            self.deposit_now(terms, failed, now);
        } else if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.bring_in(terms);
        }
    }

    /// Apart, so that what nearly all deposits do stays small.
    #[cold]
    fn deposit_now(&self, terms: &Terms, failed: bool, now: Instant) {
        self.with(terms, |bucket| bucket.deposit(&terms.rule, failed, now));
    }

    #[cold]
    fn bring_in(&self, terms: &Terms) {
        self.with(terms, |_| ());
    }

    /// Uses the bucket, which knows of all deposits then. Nothing in `use_it` may panic.
    pub(super) fn with<T>(&self, terms: &Terms, use_it: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut bucket = lock(&self.bucket);
        for _ in 0..self.waiting.swap(0, Ordering::Relaxed) {
            bucket.count(&terms.rule, false);
        }
        let result = use_it(&mut bucket);
        let steady_for = Duration::from_nanos(bucket.steady_for(&terms.rule));
        let steady_until = bucket.as_of().checked_add(steady_for);
        let steady_until = steady_until.map_or(0, |until| terms.since_epoch(until));
        self.steady_until.store(steady_until, Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::{Settled, token::rule},
        clock,
        reason::{Cause, RetryOutcome},
    };
    use proptest::prelude::*;
    use std::thread;

    fn terms(rule: Rule) -> Terms {
        let epoch = clock::now();
        Terms { rule, epoch }
    }

    /// The bucket with all that waits, as nobody who looks at it ever changes it.
    fn bucket(account: &TokenAccount, terms: &Terms) -> Bucket {
        account.with(terms, |bucket| *bucket)
    }

    fn waiting(account: &TokenAccount) -> u32 {
        account.waiting.load(Ordering::Relaxed)
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Deposit { failed: bool },
        Withdraw,
        Settle(RetryOutcome),
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => Just(Step::Deposit { failed: false }),
            2 => Just(Step::Deposit { failed: true }),
            2 => Just(Step::Withdraw),
            1 => Just(Step::Settle(RetryOutcome::NotSent)),
            1 => Just(Step::Settle(RetryOutcome::Succeeded)),
            1 => Just(Step::Look),
        ]
    }

    /// Nanoseconds: none, less and more than a milli-token takes, about a second, long idle.
    fn gap() -> impl Strategy<Value = u64> {
        prop_oneof![
            8 => Just(0),
            8 => 0..3_000_000_u64,
            2 => 0..30_000_000_u64,
            1 => 900_000_000..2_100_000_000_u64,
            1 => Just(3_600_000_000_000),
        ]
    }

    fn some_rule() -> impl Strategy<Value = Rule> {
        let trickle = prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::from_nanos(7)),
            Just(Duration::from_millis(3)),
            Just(rule::DEFAULT_TRICKLE),
        ];
        (trickle, any::<bool>(), 0..12_000_u64).prop_map(|(trickle, ceiling, initial)| Rule {
            initial: initial.min(Rule::default().floor),
            trickle: rule::trickle(trickle),
            ceiling_ratio: ceiling.then_some(rule::DEFAULT_CEILING_RATIO),
            ..Rule::default()
        })
    }

    proptest! {
        #[test]
        fn keeps_the_sums_of_a_bucket_that_is_told_of_everything_at_once(
            rule in some_rule(),
            steps in prop::collection::vec((gap(), step()), 1..600),
        ) {
            let terms = terms(rule);
            let mut now = terms.epoch;
            let account = TokenAccount::new(&terms, now);
            let mut told = Bucket::new(&rule, now);
            for (gap, step) in steps {
                now += Duration::from_nanos(gap);
                match step {
                    Step::Deposit { failed } => {
                        account.deposit(&terms, failed, now);
                        told.deposit(&rule, failed, now);
                    }
                    Step::Withdraw => {
                        let cause = Cause::ServerError;
                        let taken = account.with(&terms, |own| own.withdraw(&rule, cause, now));
                        prop_assert_eq!(taken, told.withdraw(&rule, cause, now));
                    }
                    Step::Settle(outcome) => {
                        let settled = Settled { cost: 1000, outcome, cause: Cause::ServerError, at: Some(now) };
                        account.with(&terms, |own| own.settle(&rule, settled, now));
                        told.settle(&rule, settled, now);
                    }
                    Step::Look => {
                        let own = bucket(&account, &terms);
                        prop_assert_eq!(own.snapshot(&rule, now), told.snapshot(&rule, now));
                    }
                }
            }
            let own = bucket(&account, &terms);
            prop_assert_eq!(own.snapshot(&rule, now), told.snapshot(&rule, now));
        }
    }

    #[test]
    fn lets_successes_wait_for_the_next_one_who_looks() {
        let terms = terms(Rule::default());
        let now = terms.epoch;
        let account = TokenAccount::new(&terms, now);
        account.deposit(&terms, false, now);
        assert_eq!(
            waiting(&account),
            0,
            "the first finds out how long they may"
        );
        account.deposit(&terms, false, now);
        account.deposit(&terms, false, now);
        assert_eq!(waiting(&account), 2);
        let balance = bucket(&account, &terms).snapshot(&terms.rule, now).balance;
        assert_eq!((balance, waiting(&account)), (5600, 0));
    }

    #[test]
    fn brings_them_in_before_time_changes_anything() {
        let terms = terms(Rule::default());
        let now = terms.epoch;
        let account = TokenAccount::new(&terms, now);
        account.deposit(&terms, false, now);
        account.deposit(&terms, false, now + Duration::from_nanos(9_999_999));
        assert_eq!(waiting(&account), 1);
        account.deposit(&terms, false, now + Duration::from_millis(10));
        assert_eq!(waiting(&account), 0, "a milli-token has trickled in");
    }

    #[test]
    fn brings_a_failure_in_at_once() {
        let terms = terms(Rule::default());
        let account = TokenAccount::new(&terms, terms.epoch);
        account.deposit(&terms, false, terms.epoch);
        account.deposit(&terms, false, terms.epoch);
        account.deposit(&terms, true, terms.epoch);
        assert_eq!(waiting(&account), 0);
    }

    #[test]
    fn lets_no_more_wait_than_add_up_at_once() {
        let terms = terms(Rule::default());
        let account = TokenAccount::new(&terms, terms.epoch);
        for _ in 0..10 * MOST {
            account.deposit(&terms, false, terms.epoch);
            assert!(waiting(&account) <= MOST);
        }
    }

    #[test]
    fn loses_none_to_a_race() {
        const EACH: u32 = 20_000;
        let terms = terms(Rule {
            trickle: None,
            ..Rule::default()
        });
        let account = TokenAccount::new(&terms, terms.epoch);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..EACH {
                        account.deposit(&terms, false, terms.epoch);
                        if number % 97 == 0 {
                            bucket(&account, &terms);
                        }
                    }
                });
            }
        });
        let snapshot = bucket(&account, &terms).snapshot(&terms.rule, terms.epoch);
        let earned = u64::from(4 * EACH) * terms.rule.ratio;
        assert_eq!(snapshot.cap, earned, "all were counted");
        assert_eq!(
            snapshot.balance, earned,
            "and none is above the cap that it raised"
        );
    }
}
