//! Adaptive limits and hold-offs as data.

use super::{error::ConfigFileError, span::Span};
use crate::{
    ConfigError, HoldOff,
    policy::{AdaptiveLimits, AdaptiveLimitsBuilder},
};
use serde::{Deserialize, Serialize};

/// The settings of [`AdaptiveLimits`] but for the circuit breaker, which is code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AdaptiveData {
    #[serde(skip_serializing_if = "Option::is_none")]
    error_rates: Option<Vec<(f64, f64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latencies: Option<Vec<(f64, f64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_sample: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_latency_sample: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

impl AdaptiveData {
    /// The same with every default written out.
    pub(super) fn effective(mut self) -> Self {
        let defaults = AdaptiveLimitsBuilder::DEFAULTS;
        self.error_rates
            .get_or_insert_with(|| defaults.error_rates.to_vec());
        self.latencies
            .get_or_insert_with(|| defaults.latencies.to_vec());
        self.min_sample.get_or_insert(defaults.min_sample);
        self.min_latency_sample
            .get_or_insert(defaults.min_latency_sample);
        self.window.get_or_insert(Span(defaults.window));
        self.baseline.get_or_insert(Span(defaults.baseline));
        self.max_keys.get_or_insert(defaults.max_keys);
        self
    }

    pub(super) fn check(&self) -> Result<AdaptiveLimits, ConfigFileError> {
        self.build().map_err(|error| {
            let message = format!("{}: expected {}", error.value, error.expected);
            ConfigFileError::new(format!("adaptive.{}", error.setting), message)
        })
    }

    fn build(&self) -> Result<AdaptiveLimits, ConfigError> {
        let mut builder = AdaptiveLimits::builder();
        if let Some(steps) = &self.error_rates {
            builder = builder.error_rates(steps.iter().copied());
        }
        if let Some(steps) = &self.latencies {
            builder = builder.latencies(steps.iter().copied());
        }
        if let Some(attempts) = self.min_sample {
            builder = builder.min_sample(attempts);
        }
        if let Some(attempts) = self.min_latency_sample {
            builder = builder.min_latency_sample(attempts);
        }
        if let Some(window) = self.window {
            builder = builder.window(window.0);
        }
        if let Some(time) = self.baseline {
            builder = builder.baseline(time.0);
        }
        if let Some(keys) = self.max_keys {
            builder = builder.max_keys(keys);
        }
        builder.build()
    }
}

/// The settings of [`HoldOff`] but for whose a tenant's calls are, which is code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HoldOffData {
    #[serde(skip_serializing_if = "Option::is_none")]
    longest: Option<Span>,
    first_attempts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

impl HoldOffData {
    /// The same with every default written out.
    pub(super) fn effective(mut self) -> Self {
        self.longest.get_or_insert(Span(HoldOff::LONGEST));
        self.max_keys.get_or_insert(HoldOff::MAX_KEYS);
        self
    }

    /// Sets it on top of what the layer has.
    pub(super) fn apply(self, own: Option<&HoldOff>) -> HoldOff {
        let mut hold_off = own.map_or_else(HoldOff::new, HoldOff::with_same_tenants);
        if let Some(longest) = self.longest {
            hold_off = hold_off.longest(longest.0);
        }
        if let Some(keys) = self.max_keys {
            hold_off = hold_off.max_keys(keys);
        }
        match self.first_attempts {
            true => hold_off.first_attempts(),
            false => hold_off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written out is what the builders have.
    #[test]
    fn the_defaults_are_those_of_the_builders() {
        let written = AdaptiveData::default().effective().build().unwrap();
        let default = AdaptiveLimits::default();
        assert_eq!(format!("{written:?}"), format!("{default:?}"));
        let written = HoldOffData::default().effective().apply(None);
        assert_eq!(format!("{written:?}"), format!("{:?}", HoldOff::new()));
    }
}
