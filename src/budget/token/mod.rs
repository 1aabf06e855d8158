mod account;
pub(super) mod bucket;
mod builder;
pub(super) mod costs;
pub(super) mod rule;

pub use self::builder::TokenBudgetBuilder;
use self::{
    account::{Terms, TokenAccount},
    bucket::Bucket,
    rule::Rule,
};
use super::{
    Budget, Key, NotSupported, Permit, Settled, Snapshot, Withdrawal,
    keyed::{self, Account, KeyMap},
};
use crate::{
    clock,
    reason::{Cause, StopReason},
};
use std::{fmt, sync::Arc, time::Instant};

/// A budget of tokens for each [`Key`], earned by success and spent by retries. The default.
///
/// # The rule
///
/// Per key, with the defaults:
///
/// - A first attempt that ends without failure earns **0.2** tokens (`ratio`). One that fails earns
///   nothing.
/// - A retry costs **one** token (`cost`, for each cause), which must be there whole. It is given
///   back when the retry succeeds, unless what was retried was an overload signal (429, 503, a
///   time-out); and when it was never sent. A retry that fails is spent.
/// - The balance is capped at 0.2 times the first attempts in the busier of the current second and
///   the one before it, but never at less than **10** (`cap`). First attempts count when they end,
///   failed or not. When the cap falls, the next first attempt that ends cuts the balance down to
///   it.
/// - A new key starts with **5** tokens (`initial`), and one more trickles in every **10 s**
///   (`trickle`).
/// - A second account, the *ceiling*, bounds the volume whatever comes of it: every first attempt
///   adds **0.5** (`ceiling_ratio`), every retry takes one, succeed or not and whatever it costs. Only a retry that was
///   not sent is given back to it. It starts at three times the floor cap (**30**), holds at most
///   three times the cap, and trickles alike. A retry needs a whole token in both.
///
/// So with a share *p* of failing first attempts and a share *q* of failing retries, the retries per
/// call stay in the long run, beside what trickles in, within `0.2 * (1 - p) / q` where they are
/// given back, within `0.2 * (1 - p)` where they are not, and always within 0.5.
///
/// # Why these numbers
///
/// From this crate's own simulation (`cargo run --release --example storm`) of a client with 1000 requests per second and two retries for
/// each call:
///
/// - `ratio` 0.2 with refunds: when 20 % of the attempts fail at random, with no overload, 99.2 % of
///   the calls succeed (79.8 % without retries); at 30 % it is 97.3 %. Where nothing is given back,
///   since the failures are overload signals, it is 92.5 % and 79.5 %.
/// - No refund after an overload signal: against a server that is asked for 5 to 20 % more than it
///   can do, calls succeed within 4 points of not retrying at all. Giving all retries back loses
///   7 to 8 points, retrying without a budget 30 to 38.
/// - A cap that follows the traffic: of the calls of a 50 ms blip in which every answer fails,
///   99.4 % succeed in the end, as many as without any budget. With a fixed cap of 10 it is 3 %.
/// - `cap` 10, `initial` 5 and the trickle: in a full outage the added load is 20 % over the first
///   second, 2 % over the first ten, and none after that. A fifth of the traffic plus ten retries a
///   second would keep it at 21 % for good.
/// - `ceiling_ratio` 0.5: retries that succeed are free by the first rule alone. At 30 % failures the
///   0.39 retries per call fit under the ceiling; what needs more than one retry for two calls is
///   not mended by retrying.
///
/// # What it cannot do
///
/// Each process has its own floor, and the floors add up over a fleet: 1000 small clients with a
/// cap of 10 each may together send 10 000 retries into the first second of an outage. In the
/// simulation above, split over that many clients, the first second sees 2.90 attempts per call, and
/// the first ten 1.96. No rule that is local to a process can bound that: a budget that the fleet shares does.
///
/// With a cap of 0, a dependency with a single call under way can retry only if `initial`, the
/// trickle or an earlier success paid for it: a failed first attempt raises the cap but earns
/// nothing.
///
/// # Exactness
///
/// All sums are in whole thousandths of a token and saturate: `ratio(0.6)` earns exactly 6 tokens in
/// 10 successes, the trickle is exact however often the budget is used in between, and a month idle
/// costs no more than a second. Time that runs backwards counts as no time. Check and take are one
/// step: threads that race for 100 tokens get 100. Successes are counted without a lock, so that threads
/// do not wait for each other as long as all is well; whoever looks at an account finds all of them in it.
///
/// # Memory
///
/// A key costs about 180 bytes, and up to twice that just after a table has grown. 4096 keys
/// (`max_keys`) have an account of their own, about 1.5 megabytes, and requests without an authority
/// have one beside them. When there is no room, a key is
/// forgotten only if it has been idle long enough to hold at least what a new one starts with;
/// otherwise new keys share one account, which works by the same rule, until there is room. No
/// number of different keys costs more.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Instant};
/// use tower_retry_budget::{
///     budget::{Budget, Key, TokenBudget, Withdrawal},
///     reason::{Cause, StopReason},
/// };
///
/// let budget = Arc::new(TokenBudget::default());
/// let (key, now) = (Key::from_static("search"), Instant::now());
/// for _ in 0..5 {
///     let Withdrawal::Granted(mut permit) = budget.clone().withdraw(&key, Cause::ServerError, now)
///     else {
///         panic!("a new key has five retries");
///     };
///     permit.sent(); // and failed
/// }
/// let sixth = budget.clone().withdraw(&key, Cause::ServerError, now);
/// assert!(matches!(sixth, Withdrawal::Denied(StopReason::Budget)));
/// ```
///
/// Customised: one retry for ten successes, nothing to begin with, nothing for waiting.
///
/// ```
/// # use std::{sync::Arc, time::Instant};
/// # use tower_retry_budget::{
/// #     budget::{Budget, Key, TokenBudget, Withdrawal},
/// #     reason::Cause,
/// # };
/// let budget = TokenBudget::builder()
///     .ratio(0.1)
///     .initial(0)
///     .no_trickle()
///     .build()?;
/// let budget = Arc::new(budget);
/// let (key, now) = (Key::from_static("search"), Instant::now());
/// for _ in 0..10 {
///     budget.deposit(&key, false, now);
/// }
/// assert_eq!(budget.snapshot(&key, now).balance(), 1.0);
///
/// let retry = budget.clone().withdraw(&key, Cause::Transport, now);
/// assert!(matches!(retry, Withdrawal::Granted(_)));
/// # Ok::<(), tower_retry_budget::ConfigError>(())
/// ```
pub struct TokenBudget {
    terms: Terms,
    accounts: KeyMap<TokenAccount>,
}

impl TokenBudget {
    /// Returns a builder with the default settings.
    pub fn builder() -> TokenBudgetBuilder {
        TokenBudgetBuilder::new()
    }

    fn new(rule: Rule, max_keys: usize) -> Self {
        let terms = Terms {
            rule,
            epoch: clock::now(),
        };
        let accounts = KeyMap::new(
            max_keys,
            move |now| TokenAccount::new(&terms, now),
            move |account: &TokenAccount, now| {
                account.with(&terms, |bucket| bucket.is_refilled(&terms.rule, now))
            },
        );
        Self { terms, accounts }
    }

    /// Returns what the account of `key` holds at `now`, and changes nothing.
    ///
    /// A key that was not used yet is shown with what it would start with, or with the shared
    /// account when there is no room for it.
    pub fn snapshot(&self, key: &Key, now: Instant) -> Snapshot {
        self.accounts
            .look(key, |account| self.bucket(account))
            .unwrap_or_else(|| Bucket::new(&self.terms.rule, now))
            .snapshot(&self.terms.rule, now)
    }

    fn bucket(&self, account: &TokenAccount) -> Bucket {
        account.with(&self.terms, |bucket| *bucket)
    }

    /// Returns how many keys have an account of their own.
    pub fn keys(&self) -> usize {
        self.accounts.len()
    }

    /// Returns how many times a deposit or withdrawal went to the shared account, since there was no
    /// room for its key. A number that grows asks for a larger `max_keys`, or for fewer keys.
    pub fn overflowed(&self) -> u64 {
        self.accounts.overflowed()
    }
}

/// The rule that the type documents.
impl Default for TokenBudget {
    fn default() -> Self {
        Self::new(Rule::default(), keyed::DEFAULT_LIMIT)
    }
}

impl Budget for TokenBudget {
    fn deposit(&self, key: &Key, failed: bool, now: Instant) {
        self.accounts.with(key, now, |account, _| {
            account.deposit(&self.terms, failed, now);
        });
    }

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, now: Instant) -> Withdrawal {
        let Terms { rule, .. } = &self.terms;
        let granted = self.accounts.with(key, now, |account, whose| {
            let cost = account.with(&self.terms, |bucket| bucket.withdraw(rule, cause, now));
            cost.map(|cost| (whose, cost))
        });
        // The permit remembers the account that paid: the key may have one of its own by the time
        // that the retry is settled, or none any more.
        let (key, cost) = match granted {
            Some((Account::Own, cost)) => (key.clone(), cost),
            Some((Account::Overflow, cost)) => (Key::OVERFLOW, cost),
            None => return Withdrawal::Denied(StopReason::Budget),
        };
        Withdrawal::Granted(Permit::new(self, key, cause, cost))
    }

    fn settle(&self, key: &Key, settled: Settled, now: Instant) {
        let Terms { rule, .. } = &self.terms;
        // An account that was forgotten meanwhile was full enough, and is owed nothing.
        self.accounts.with_existing(key, |account| {
            if let Some(account) = account {
                account.with(&self.terms, |bucket| bucket.settle(rule, settled, now));
            }
        });
    }

    fn account(&self, key: &Key, now: Instant) -> Option<Snapshot> {
        self.accounts.with_existing(key, |account| {
            let bucket = self.bucket(account?);
            Some(bucket.snapshot(&self.terms.rule, now))
        })
    }

    fn reset_account(&self, key: &Key, now: Instant) -> Result<(), NotSupported> {
        let Terms { rule, .. } = &self.terms;
        self.accounts.with_existing(key, |account| {
            if let Some(account) = account {
                account.with(&self.terms, |bucket| *bucket = Bucket::new(rule, now));
            }
        });
        Ok(())
    }

    /// The trickle and the next success fill it again.
    fn drain_account(&self, key: &Key, now: Instant) -> Result<(), NotSupported> {
        let Terms { rule, .. } = &self.terms;
        self.accounts.with(key, now, |account, _| {
            account.with(&self.terms, |bucket| bucket.drain(rule, now));
        });
        Ok(())
    }
}

impl fmt::Debug for TokenBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBudget")
            .field("rule", &self.terms.rule)
            .field("accounts", &self.accounts)
            .finish()
    }
}
