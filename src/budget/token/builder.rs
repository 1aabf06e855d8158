use super::{
    TokenBudget,
    costs::{Costs, MAX_COST},
    rule::{self, Rule},
};
use crate::{
    budget::{
        keyed,
        milli::{TOKEN, checked},
    },
    config_error::ConfigError,
    reason::Cause,
};
use std::time::Duration;

/// Builds a [`TokenBudget`]. The default of each setting is that of [`TokenBudget::default`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct TokenBudgetBuilder {
    ratio: Option<f64>,
    cap: u64,
    initial: Option<u64>,
    trickle: Option<Duration>,
    ceiling_ratio: Ceiling,
    costs: Costs,
    max_keys: usize,
}

#[derive(Clone, Copy, Debug)]
enum Ceiling {
    Default,
    Ratio(f64),
    Off,
}

impl TokenBudgetBuilder {
    pub(super) fn new() -> Self {
        Self {
            ratio: None,
            cap: rule::DEFAULT_CAP,
            initial: None,
            trickle: Some(rule::DEFAULT_TRICKLE),
            ceiling_ratio: Ceiling::Default,
            costs: Costs::default(),
            max_keys: keyed::DEFAULT_LIMIT,
        }
    }

    /// Sets the tokens earned by each first attempt that ends without failure. Defaults to 0.2.
    ///
    /// This is the share of retries that a dependency sees at most in the long run, and the cap as
    /// a share of the first attempts of a second. 0 to 1000 in whole thousandths: 0.6 is exactly
    /// 0.6. With 0, only [`trickle`](Self::trickle) fills the budget.
    pub fn ratio(mut self, tokens: f64) -> Self {
        self.ratio = Some(tokens);
        self
    }

    /// Sets the tokens that the cap never falls below, however little traffic there is. Defaults to 10.
    ///
    /// The ceiling starts at three times as much. At most [`u32::MAX`]. With 0 the cap follows the
    /// traffic alone: a dependency that is asked less than `1 / ratio` times a second is never
    /// retried.
    pub fn cap(mut self, tokens: u64) -> Self {
        self.cap = tokens;
        self
    }

    /// Sets the tokens that a new key starts with. Defaults to 5, or to the [`cap`](Self::cap) when that is
    /// less.
    ///
    /// At most the cap. With 0, retries are earned before they are spent.
    pub fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Sets the time in which one token comes in without any traffic, up to the cap. Defaults to 10 s.
    ///
    /// Not zero.
    pub fn trickle(mut self, per_token: Duration) -> Self {
        self.trickle = Some(per_token);
        self
    }

    /// Lets no tokens come in without traffic.
    ///
    /// A key that fails every time is then never retried again until a first attempt succeeds, and
    /// one that was drained keeps its place among [`max_keys`](Self::max_keys) for good.
    pub fn no_trickle(mut self) -> Self {
        self.trickle = None;
        self
    }

    /// Sets the tokens that every first attempt, failed or not, adds to the ceiling. Defaults to 0.5.
    ///
    /// The ceiling pays for every retry, also for those that the balance gets back, and so bounds
    /// the retries per first attempt in the long run. Validated as [`ratio`](Self::ratio) is.
    pub fn ceiling_ratio(mut self, tokens: f64) -> Self {
        self.ceiling_ratio = Ceiling::Ratio(tokens);
        self
    }

    /// Sets no ceiling: retries that succeed are free, in any number, unless they answer an
    /// overload signal.
    pub fn no_ceiling(mut self) -> Self {
        self.ceiling_ratio = Ceiling::Off;
        self
    }

    /// Sets what a retry of such a failure costs, in thousandths of a token. Defaults to 1000 for every
    /// [`Cause`].
    ///
    /// As much is taken from the balance, must be there whole, and is what a retry gives back. The
    /// ceiling is one of volume: it counts every retry as one, whatever that costs. A retry that
    /// costs nothing is thus bounded by the ceiling and by the attempts of its call, and is free each
    /// time, not the first time alone: a budget does not know the attempts of a call.
    ///
    /// At most 1 000 000. A cost above what the balance holds is never granted: with little traffic
    /// that is the [`cap`](Self::cap).
    ///
    /// ```
    /// use std::{sync::Arc, time::Instant};
    /// use tower_retry_budget::{
    ///     budget::{Budget, Key, TokenBudget, Withdrawal},
    ///     reason::Cause,
    /// };
    ///
    /// // A time-out has held a place in the server for long; a refused stream has cost it nothing.
    /// let budget = TokenBudget::builder()
    ///     .cost(Cause::Timeout, 2500)
    ///     .cost(Cause::Throttled, 500)
    ///     .cost(Cause::Unprocessed, 0)
    ///     .build()?;
    /// let budget = Arc::new(budget);
    /// let (key, now) = (Key::from_static("search"), Instant::now());
    ///
    /// let retry = budget.clone().withdraw(&key, Cause::Timeout, now);
    /// assert_eq!(budget.snapshot(&key, now).balance(), 2.5);
    /// assert_eq!(budget.snapshot(&key, now).ceiling(), 29.0);
    /// drop(retry); // never sent
    /// assert_eq!(budget.snapshot(&key, now).balance(), 5.0);
    /// # Ok::<(), tower_retry_budget::ConfigError>(())
    /// ```
    pub fn cost(mut self, cause: Cause, milli_tokens: u32) -> Self {
        self.costs.set(cause, milli_tokens);
        self
    }

    /// Sets how many keys have an account of their own; those beyond share one. Defaults to 4096.
    ///
    /// Not zero. Each key costs about 180 to 370 bytes. Requests without an authority have an account
    /// besides.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Builds the budget.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range, which each setter states.
    pub fn build(self) -> Result<TokenBudget, ConfigError> {
        let rule = self.rule()?;
        Ok(TokenBudget::new(rule, self.max_keys))
    }

    /// The numbers alone, validated.
    pub(in crate::budget) fn rule(&self) -> Result<Rule, ConfigError> {
        let defaults = Rule::default();
        let ratio = match self.ratio {
            None => defaults.ratio,
            Some(given) => checked("ratio", given)?,
        };
        if self.cap > rule::MAX_TOKENS {
            return Err(ConfigError::new(
                "cap",
                self.cap,
                "at most 4294967295 tokens",
            ));
        }
        let initial = match self.initial {
            None => rule::DEFAULT_INITIAL.min(self.cap),
            Some(given) if given <= self.cap => given,
            Some(given) => return Err(ConfigError::new("initial", given, "at most the cap")),
        };
        let trickle = match self.trickle {
            None => None,
            Some(Duration::ZERO) => {
                return Err(ConfigError::new(
                    "trickle",
                    Duration::ZERO,
                    "a time per token of more than zero",
                ));
            }
            Some(per_token) => rule::trickle(per_token),
        };
        let ceiling_ratio = match self.ceiling_ratio {
            Ceiling::Default => defaults.ceiling_ratio,
            Ceiling::Ratio(given) => Some(checked("ceiling_ratio", given)?),
            Ceiling::Off => None,
        };
        if let Some(cost) = self.costs.above(MAX_COST) {
            return Err(ConfigError::new(
                "cost",
                cost,
                "at most 1000000 thousandths of a token",
            ));
        }
        if self.max_keys == 0 {
            return Err(ConfigError::new(
                "max_keys",
                self.max_keys,
                "at least one key",
            ));
        }
        Ok(Rule {
            ratio,
            floor: self.cap.saturating_mul(TOKEN),
            initial: initial.saturating_mul(TOKEN),
            trickle,
            ceiling_ratio,
            costs: self.costs,
        })
    }

    #[cfg(feature = "redis")]
    pub(in crate::budget) fn key_limit(&self) -> usize {
        self.max_keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_the_default_when_nothing_is_set() {
        let built = TokenBudgetBuilder::new().build().unwrap();
        assert_eq!(built.terms.rule, TokenBudget::default().terms.rule);
    }
}
