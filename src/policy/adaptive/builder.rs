use super::{AdaptiveLimits, CircuitState, Step, THOUSAND};
use crate::{
    budget::{Key, MAX_KEYS, milli},
    config_error::ConfigError,
};
use std::{sync::Arc, time::Duration};

/// Builds [`AdaptiveLimits`].
#[derive(Clone, Debug)]
pub struct AdaptiveLimitsBuilder {
    limits: AdaptiveLimits,
    error_rates: Vec<(f64, f64)>,
    latencies: Vec<(f64, f64)>,
}

/// The settings, as data.
pub(crate) struct Defaults {
    pub(crate) error_rates: [(f64, f64); 2],
    pub(crate) latencies: [(f64, f64); 2],
    pub(crate) min_sample: u32,
    pub(crate) min_latency_sample: u32,
    pub(crate) window: Duration,
    pub(crate) baseline: Duration,
    pub(crate) max_keys: usize,
}

/// A quarter of the attempts failing is an outage in the making; a twentieth is more than any
/// dependency in health shows.
const ERROR_RATES: [(f64, f64); 2] = [(0.25, 0.3), (0.05, 0.6)];

/// A queue that is filling shows as a multiple of the usual duration, long before anything fails.
const LATENCIES: [(f64, f64); 2] = [(5.0, 0.4), (2.0, 0.7)];

/// One failure of fewer than 20 is 5 % already.
const MIN_SAMPLE: u32 = 20;

/// The 99th percentile of fewer than 100 is the slowest of them.
const MIN_LATENCY_SAMPLE: u32 = 100;

/// As long as budgets look back for what a dependency does now.
const WINDOW: Duration = Duration::from_secs(10);

/// Longer than most incidents, and shorter than the time from one deployment to the next.
const BASELINE: Duration = Duration::from_secs(30 * 60);

pub(super) fn defaults() -> AdaptiveLimits {
    AdaptiveLimitsBuilder::new()
        .build()
        .expect("the defaults are valid")
}

impl AdaptiveLimitsBuilder {
    pub(crate) const DEFAULTS: Defaults = Defaults {
        error_rates: ERROR_RATES,
        latencies: LATENCIES,
        min_sample: MIN_SAMPLE,
        min_latency_sample: MIN_LATENCY_SAMPLE,
        window: WINDOW,
        baseline: BASELINE,
        max_keys: MAX_KEYS,
    };

    pub(super) fn new() -> Self {
        let defaults = Self::DEFAULTS;
        Self {
            limits: AdaptiveLimits {
                error_rates: Vec::new(),
                latencies: Vec::new(),
                min_sample: defaults.min_sample,
                min_latency_sample: defaults.min_latency_sample,
                window: defaults.window,
                baseline: defaults.baseline,
                max_keys: defaults.max_keys,
                circuit: None,
            },
            error_rates: defaults.error_rates.to_vec(),
            latencies: defaults.latencies.to_vec(),
        }
    }

    /// Sets from which part of failed attempts on (0 to 1) which part of the attempts is left (0 to 1).
    /// The highest that is reached counts. `[(0.25, 0.3), (0.05, 0.6)]` by default; none switches it
    /// off.
    #[must_use]
    pub fn error_rates(mut self, steps: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.error_rates = steps.into_iter().collect();
        self
    }

    /// Sets from which multiple of the usual 99th percentile on (1 or more) which part of the attempts
    /// is left (0 to 1), of those that the error rate leaves. `[(5.0, 0.4), (2.0, 0.7)]` by default;
    /// none switches it off.
    #[must_use]
    pub fn latencies(mut self, steps: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.latencies = steps.into_iter().collect();
        self
    }

    /// Sets how many attempts within the window it takes to judge by the error rate. 20 by default.
    #[must_use]
    pub fn min_sample(mut self, attempts: u32) -> Self {
        self.limits.min_sample = attempts;
        self
    }

    /// Sets how many attempts within the window it takes to judge by the 99th percentile, or to learn
    /// from it. 100 by default.
    #[must_use]
    pub fn min_latency_sample(mut self, attempts: u32) -> Self {
        self.limits.min_latency_sample = attempts;
        self
    }

    /// Sets how far back attempts count. 10 s by default. What ended longer ago is forgotten in fifths.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.limits.window = window;
        self
    }

    /// Sets over how long a time the usual 99th percentile is averaged. 30 minutes by default.
    #[must_use]
    pub fn baseline(mut self, time: Duration) -> Self {
        self.limits.baseline = time;
        self
    }

    /// Sets for how many dependencies health is kept. 4096 by default. Where there is no room, calls
    /// have the policy's attempts.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.limits.max_keys = keys;
        self
    }

    /// Sets who says where the circuit breaker of a dependency stands. It is asked before the first
    /// attempt of a call and before each retry, and must be quick. By default there is no breaker.
    #[must_use]
    pub fn circuit(mut self, state: impl Fn(&Key) -> CircuitState + Send + Sync + 'static) -> Self {
        self.limits.circuit = Some(Arc::new(state));
        self
    }

    /// Builds the limits.
    ///
    /// # Errors
    ///
    /// If a threshold or a factor is out of its range or finer than a thousandth, if a higher threshold
    /// leaves more than a lower one, if the window is shorter than 100 ms or longer than an hour, or if
    /// the baseline is not longer than the window.
    pub fn build(self) -> Result<AdaptiveLimits, ConfigError> {
        let mut limits = self.limits;
        limits.error_rates = steps("error_rates", &self.error_rates, 1..=THOUSAND)?;
        limits.latencies = steps("latencies", &self.latencies, THOUSAND..=u64::MAX)?;
        let window = limits.window;
        if !(SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) {
            let expected = "a duration from 100 ms to an hour";
            return Err(ConfigError::new("window", window, expected));
        }
        if limits.baseline <= window {
            let expected = "a duration longer than the window";
            return Err(ConfigError::new("baseline", limits.baseline, expected));
        }
        Ok(limits)
    }
}

/// A fifth of it is as short as a timer can be relied on.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);

const LONGEST_WINDOW: Duration = Duration::from_secs(3600);

fn steps(
    setting: &'static str,
    given: &[(f64, f64)],
    range: std::ops::RangeInclusive<u64>,
) -> Result<Vec<Step>, ConfigError> {
    let mut steps = Vec::with_capacity(given.len());
    for &(from, factor) in given {
        let step = Step {
            from: milli::checked(setting, from)?,
            factor: milli::checked(setting, factor)?,
        };
        if !range.contains(&step.from) || step.factor > THOUSAND {
            let expected = match setting {
                "error_rates" => "rates over 0 and up to 1, and factors from 0 to 1",
                _ => "multiples of 1 or more, and factors from 0 to 1",
            };
            return Err(ConfigError::new(setting, (from, factor), expected));
        }
        steps.push(step);
    }
    steps.sort_by_key(|step| step.from);
    if !steps.is_sorted_by(|low, high| low.from < high.from && low.factor >= high.factor) {
        let expected =
            "different thresholds, of which a higher one leaves no more than a lower one";
        return Err(ConfigError::new(setting, given, expected));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_makes_no_sense_and_names_the_setting() {
        let build = |change: fn(AdaptiveLimitsBuilder) -> AdaptiveLimitsBuilder| {
            let built = change(AdaptiveLimits::builder()).build();
            built.map(|_| ()).map_err(|error| error.setting)
        };
        assert_eq!(build(|b| b.error_rates([]).latencies([])), Ok(()));
        assert_eq!(build(|b| b.error_rates([(1.0, 0.0)])), Ok(()));
        for wrong in [
            [(0.0, 0.5)],
            [(1.5, 0.5)],
            [(0.5, 1.5)],
            [(0.5, f64::NAN)],
            [(-0.1, 0.5)],
            [(0.1234, 0.5)],
        ] {
            let built = AdaptiveLimits::builder().error_rates(wrong).build();
            assert_eq!(built.unwrap_err().setting, "error_rates", "{wrong:?}");
        }
        let rising = |b: AdaptiveLimitsBuilder| b.error_rates([(0.1, 0.3), (0.2, 0.6)]);
        assert_eq!(build(rising), Err("error_rates"));
        let twice = |b: AdaptiveLimitsBuilder| b.error_rates([(0.1, 0.3), (0.1, 0.3)]);
        assert_eq!(build(twice), Err("error_rates"));
        assert_eq!(build(|b| b.latencies([(0.9, 0.5)])), Err("latencies"));
        assert_eq!(build(|b| b.window(Duration::ZERO)), Err("window"));
        assert_eq!(build(|b| b.window(Duration::MAX)), Err("window"));
        assert_eq!(build(|b| b.baseline(WINDOW)), Err("baseline"));
    }
}
