mod builder;
mod rule;
mod slots;

pub use self::builder::WindowBudgetBuilder;
use self::{rule::Rule, slots::Window};
use super::{
    Budget, Key, NotSupported, Permit, Settled, Snapshot, Withdrawal,
    keyed::{self, Account, KeyMap, lock},
    milli::COST,
};
use crate::reason::{Cause, StopReason};
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Instant,
};

/// A budget that allows retries as a share of the traffic in a rolling window, for each [`Key`].
///
/// # The rule
///
/// In a window, at most
///
/// > `allowance + ratio * max(counted, min_sample)`
///
/// retries are granted, where `counted` are the first attempts that ended in the window, all of
/// them or those without failure. Every retry that was sent counts in full, succeed or not; one that
/// was never sent is given back.
///
/// | preset | ratio | of | window | allowance | sample |
/// |---|---|---|---|---|---|
/// | [`finagle`](Self::finagle) | 0.2 | attempts | 10 s | 100 | 0 |
/// | [`successes`](Self::successes) | 0.2 | successes | 60 s | 10 | 0 |
/// | [`attempts`](Self::attempts) | 0.1 | attempts | 60 s | 0 | 50 |
///
/// So with a share *p* of failing first attempts, the retries per call stay in the long run within
/// `ratio` when attempts are counted and within `ratio * (1 - p)` when successes are, beside the
/// allowance.
///
/// # When to choose it
///
/// [`TokenBudget`](super::TokenBudget), the default, gives retries back that succeed, so it mends
/// more of what fails at random, and adds nothing to the load of an outage once it is drained. A
/// window is for those who want a share that is easy to state and to check on a dashboard, or the
/// numbers that another client of theirs has. Counting attempts, it adds `ratio` to the load of an
/// outage for as long as that lasts. The allowance is for each process and each window: Finagle's
/// is 10 retries per second, which is no limit at all for a fleet of small clients.
///
/// # How it slides
///
/// The window is looked at in 64 slots. What is uncertain within a slot is decided against the
/// retry: a retry counts in full for one window and fades over one slot more, what earns retries
/// counts for a window at most and fades over the last slot of it. Hence:
///
/// - Never more: at the time of each retry that is granted, the rule holds for the window that ends
///   there, counted exactly.
/// - Little less: a retry may count until two slots, a 32nd of the window, after it has left it, and
///   what earned one may cease to count two slots before. Of a share that is used all the time, 63/65
///   or 97 % are granted.
/// - No steps: the balance follows time without a jump, at the end of a slot or of a window, and is
///   never reset.
///
/// # Exactness
///
/// All sums are integers: `ratio(0.6)` allows exactly 6 retries for 10 counted. A month idle costs
/// no more than one window. Time that runs backwards counts as no time. Check and take are one step:
/// threads that race for 100 retries get 100.
///
/// # Memory
///
/// A key costs about 800 bytes, and up to twice that just after a table has grown, however much
/// traffic there is and however long the window. 4096 keys (`max_keys`) have an account of their
/// own. When there is no room, a key is forgotten only if it has not been used for a window and two
/// slots, so that nothing of it counts any more; otherwise new keys share one account, which works by
/// the same rule, until there is room.
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Instant};
/// use tower_retry_budget::{
///     RetryBudgetLayer,
///     budget::{Budget, Key, WindowBudget},
/// };
///
/// let budget = Arc::new(WindowBudget::finagle());
/// let (key, now) = (Key::from_static("search"), Instant::now());
/// assert_eq!(budget.snapshot(&key, now).balance(), 100.0);
/// for _ in 0..20 {
///     budget.deposit(&key, false, now);
/// }
/// assert_eq!(budget.snapshot(&key, now).balance(), 104.0);
///
/// let layer = RetryBudgetLayer::new().shared_budget(budget);
/// ```
///
/// Customised: one retry for ten successes of the last 30 s, and three besides.
///
/// ```
/// # use std::{sync::Arc, time::{Duration, Instant}};
/// # use tower_retry_budget::{
/// #     budget::{Budget, Key, WindowBudget, Withdrawal},
/// #     reason::Cause,
/// # };
/// let budget = WindowBudget::builder()
///     .of_successes()
///     .ratio(0.1)
///     .window(Duration::from_secs(30))
///     .allowance(3)
///     .build()?;
/// let budget = Arc::new(budget);
/// let (key, now) = (Key::from_static("search"), Instant::now());
/// for _ in 0..3 {
///     let retry = budget.clone().withdraw(&key, Cause::Transport, now);
///     let Withdrawal::Granted(mut permit) = retry else {
///         panic!("three are allowed without any traffic");
///     };
///     permit.sent();
/// }
/// let fourth = budget.clone().withdraw(&key, Cause::Transport, now);
/// assert!(matches!(fourth, Withdrawal::Denied(_)));
///
/// let later = now + Duration::from_secs(31);
/// assert_eq!(budget.snapshot(&key, later).balance(), 3.0);
/// # Ok::<(), tower_retry_budget::ConfigError>(())
/// ```
pub struct WindowBudget {
    rule: Rule,
    accounts: KeyMap<Mutex<Window>>,
}

impl WindowBudget {
    /// Returns a builder with the settings of [`successes`](Self::successes).
    pub fn builder() -> WindowBudgetBuilder {
        WindowBudgetBuilder::new()
    }

    /// Creates the budget that Finagle, tower and Linkerd have as their default: 20 % of the
    /// requests of the last 10 s, and 10 per second besides.
    ///
    /// They count a request when it begins, this budget when its first attempt has ended.
    pub fn finagle() -> Self {
        Self::new(Rule::FINAGLE, keyed::DEFAULT_LIMIT)
    }

    /// Creates a budget of 20 % of the successes of the last 60 s, and 10 besides.
    pub fn successes() -> Self {
        Self::new(Rule::SUCCESSES, keyed::DEFAULT_LIMIT)
    }

    /// Creates a budget of 10 % of the attempts of the last 60 s, and of 50 attempts when there
    /// were less: five retries.
    pub fn attempts() -> Self {
        Self::new(Rule::ATTEMPTS, keyed::DEFAULT_LIMIT)
    }

    fn new(rule: Rule, max_keys: usize) -> Self {
        let accounts = KeyMap::new(
            max_keys,
            |now| Mutex::new(Window::new(now)),
            move |window, now| lock(window).is_refilled(&rule, now),
        );
        Self { rule, accounts }
    }

    /// Returns what the account of `key` holds at `now`, and changes nothing.
    ///
    /// The cap is what the rule allows in the window that ends now, the balance what is left of it. A
    /// key that was not used yet is shown with what it would start with, or with the shared account
    /// when there is no room for it.
    pub fn snapshot(&self, key: &Key, now: Instant) -> Snapshot {
        self.accounts
            .look(key, |window| *lock(window))
            .unwrap_or_else(|| Window::new(now))
            .snapshot(&self.rule, now)
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

impl Budget for WindowBudget {
    fn deposit(&self, key: &Key, failed: bool, now: Instant) {
        self.accounts.with(key, now, |window, _| {
            lock(window).deposit(&self.rule, failed, now);
        });
    }

    /// Costs the same for every cause.
    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, now: Instant) -> Withdrawal {
        let granted = self.accounts.with(key, now, |window, account| {
            let at = lock(window).withdraw(&self.rule, now);
            at.map(|at| (account, at))
        });
        // The permit remembers the account that paid: the key may have one of its own by the time
        // that the retry is settled, or none any more.
        let (key, at) = match granted {
            Some((Account::Own, at)) => (key.clone(), at),
            Some((Account::Overflow, at)) => (Key::OVERFLOW, at),
            None => return Withdrawal::Denied(StopReason::Budget),
        };
        Withdrawal::Granted(Permit::new(self, key, cause, COST).withdrawn_at(at))
    }

    /// Gives back a retry that was not sent. One that was sent stays in the window until it has
    /// passed, whatever came of it.
    fn settle(&self, key: &Key, settled: Settled, now: Instant) {
        self.accounts.with_existing(key, |window| {
            if let Some(window) = window {
                lock(window).settle(&self.rule, settled, now);
            }
        });
    }

    fn account(&self, key: &Key, now: Instant) -> Option<Snapshot> {
        self.accounts.with_existing(key, |window| {
            let window = *lock(window?);
            Some(window.snapshot(&self.rule, now))
        })
    }

    fn reset_account(&self, key: &Key, now: Instant) -> Result<(), NotSupported> {
        self.accounts.with_existing(key, |window| {
            if let Some(window) = window {
                *lock(window) = Window::new(now);
            }
        });
        Ok(())
    }

    /// What is left counts as spent now. It is there again when the window has passed, and more of it as
    /// traffic earns it.
    fn drain_account(&self, key: &Key, now: Instant) -> Result<(), NotSupported> {
        self.accounts
            .with(key, now, |window, _| lock(window).drain(&self.rule, now));
        Ok(())
    }
}

impl fmt::Debug for WindowBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowBudget")
            .field("rule", &self.rule)
            .field("accounts", &self.accounts)
            .finish()
    }
}
