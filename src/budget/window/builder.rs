use super::{
    WindowBudget,
    rule::{self, Base, Rule},
};
use crate::{
    budget::{keyed, milli::checked},
    config_error::ConfigError,
};
use std::time::Duration;

/// Builds a [`WindowBudget`]. The default of each setting is that of [`WindowBudget::successes`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct WindowBudgetBuilder {
    base: Base,
    ratio: Option<f64>,
    window: Option<Duration>,
    allowance: u64,
    min_sample: u64,
    max_keys: usize,
}

impl WindowBudgetBuilder {
    pub(super) fn new() -> Self {
        Self {
            base: Rule::SUCCESSES.base,
            ratio: None,
            window: None,
            allowance: Rule::SUCCESSES.allowance,
            min_sample: Rule::SUCCESSES.min_sample,
            max_keys: keyed::DEFAULT_LIMIT,
        }
    }

    /// Counts the first attempts that ended without failure. The default.
    ///
    /// In an outage the window runs empty, and what is left are the allowance and the sample.
    pub fn of_successes(mut self) -> Self {
        self.base = Base::Successes;
        self
    }

    /// Counts all first attempts that ended, failed or not.
    ///
    /// In an outage the ratio is what is added to the load, for as long as it lasts.
    pub fn of_attempts(mut self) -> Self {
        self.base = Base::Attempts;
        self
    }

    /// Sets the retries allowed for each of what is counted. Defaults to 0.2.
    ///
    /// 0 to 1000 in whole thousandths: 0.6 is exactly 0.6.
    pub fn ratio(mut self, retries: f64) -> Self {
        self.ratio = Some(retries);
        self
    }

    /// Sets the length of the window. Defaults to 60 s.
    ///
    /// 1 ms to 366 days in whole milliseconds.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the retries allowed in a window beside those of the ratio, without any traffic.
    /// Defaults to 10.
    ///
    /// At most [`u32::MAX`]. With 0, and no [`min_sample`](Self::min_sample), retries are earned
    /// before they are spent, and a dependency that is asked less than `1 / ratio` times in a window
    /// is never retried.
    pub fn allowance(mut self, retries: u64) -> Self {
        self.allowance = retries;
        self
    }

    /// Sets what is counted at least, if the window has seen less of it. Defaults to 0.
    ///
    /// A share of a few is a matter of chance. At a ratio of 0.1 and a sample of 50, a window allows 5
    /// retries until it has seen 50 attempts, and a tenth of the attempts from there on. Unlike the
    /// [`allowance`](Self::allowance) this adds nothing to the share of a busy dependency. At most
    /// [`u32::MAX`].
    pub fn min_sample(mut self, counted: u64) -> Self {
        self.min_sample = counted;
        self
    }

    /// Sets how many keys have an account of their own; those beyond share one. Defaults to 4096.
    ///
    /// Not zero. Each key costs about 800 to 1500 bytes.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Builds the budget.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range, which each setter states.
    pub fn build(self) -> Result<WindowBudget, ConfigError> {
        let ratio = match self.ratio {
            None => Rule::SUCCESSES.ratio,
            Some(given) => checked("ratio", given)?,
        };
        let slot = match self.window {
            None => Rule::SUCCESSES.slot,
            Some(window) if is_valid(window) => rule::slot(window),
            Some(window) => {
                return Err(ConfigError::new(
                    "window",
                    window,
                    "1 ms to 366 days in whole milliseconds",
                ));
            }
        };
        for (setting, given) in [
            ("allowance", self.allowance),
            ("min_sample", self.min_sample),
        ] {
            if given > rule::MAX_COUNT {
                return Err(ConfigError::new(setting, given, "at most 4294967295"));
            }
        }
        if self.max_keys == 0 {
            return Err(ConfigError::new(
                "max_keys",
                self.max_keys,
                "at least one key",
            ));
        }
        let rule = Rule {
            base: self.base,
            ratio,
            allowance: self.allowance,
            min_sample: self.min_sample,
            slot,
        };
        Ok(WindowBudget::new(rule, self.max_keys))
    }
}

fn is_valid(window: Duration) -> bool {
    (rule::MIN_WINDOW..=rule::MAX_WINDOW).contains(&window)
        && window.subsec_nanos() % 1_000_000 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_the_successes_preset_when_nothing_is_set() {
        let built = WindowBudgetBuilder::new().build().unwrap();
        assert_eq!(built.rule, Rule::SUCCESSES);
    }

    #[test]
    fn builds_the_other_presets_from_their_numbers() {
        let finagle = WindowBudgetBuilder::new()
            .of_attempts()
            .window(Duration::from_secs(10))
            .allowance(100);
        assert_eq!(finagle.build().unwrap().rule, Rule::FINAGLE);
        let attempts = WindowBudgetBuilder::new()
            .of_attempts()
            .ratio(0.1)
            .allowance(0)
            .min_sample(50);
        assert_eq!(attempts.build().unwrap().rule, Rule::ATTEMPTS);
    }

    #[test]
    fn divides_every_window_without_rest() {
        for window in [1, 7, 999, 60_000, 31_622_399_999] {
            let window = Duration::from_millis(window);
            let slots = rule::SLOTS as u64;
            assert_eq!(Duration::from_nanos(rule::slot(window) * slots), window);
        }
    }
}
