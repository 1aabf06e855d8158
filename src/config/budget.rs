//! Budgets as data.

use super::{
    error::ConfigFileError,
    span::{Limit, Span},
    values::OrNone,
};
use crate::{
    ConfigError,
    budget::{Budget, TokenBudget, WindowBudget},
    reason::Cause,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Token,
    Window,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Of {
    #[default]
    Successes,
    Attempts,
}

/// The settings of both kinds, flat, so that an error in one of them knows its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BudgetData {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trickle: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_ratio: Option<OrNone>,
    /// In thousandths of a token.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    costs: BTreeMap<String, u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<Of>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowance: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_sample: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

/// The default of either kind.
const RATIO: f64 = 0.2;
const MAX_KEYS: usize = 4096;

impl BudgetData {
    /// The same with every default written out. The unit test holds them to those of the builders.
    pub(super) fn effective(mut self) -> Self {
        self.ratio.get_or_insert(RATIO);
        self.max_keys.get_or_insert(MAX_KEYS);
        match self.kind {
            Kind::Token => {
                let cap = *self.cap.get_or_insert(10);
                self.initial.get_or_insert(5.min(cap));
                let trickle = Some(Duration::from_secs(10));
                self.trickle.get_or_insert(Limit(trickle));
                self.ceiling_ratio.get_or_insert(OrNone(Some(0.5)));
            }
            Kind::Window => {
                self.of.get_or_insert_default();
                self.window.get_or_insert(Span(Duration::from_secs(60)));
                self.allowance.get_or_insert(10);
                self.min_sample.get_or_insert(0);
            }
        }
        self
    }

    /// Checks the settings of the budget at `path`.
    pub(super) fn check(&self, path: &str) -> Result<(), ConfigFileError> {
        if let Some(setting) = self.foreign() {
            let message = match self.kind {
                Kind::Token => "is a setting of a budget of the kind \"window\"",
                Kind::Window => "is a setting of a budget of the kind \"token\"",
            };
            return Err(ConfigFileError::new(format!("{path}.{setting}"), message));
        }
        for cause in self.costs.keys() {
            if cause_of(cause).is_none() {
                let known: Vec<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
                let message = format!("no such cause: expected one of {}", known.join(", "));
                return Err(ConfigFileError::new(
                    format!("{path}.costs.{cause}"),
                    message,
                ));
            }
        }
        match self.build() {
            Ok(_) => Ok(()),
            Err(error) if error.setting == "cost" => {
                let message = format!("{}: expected {}", error.value, error.expected);
                Err(ConfigFileError::new(format!("{path}.costs"), message))
            }
            Err(error) => Err(ConfigFileError::setting(path, &error)),
        }
    }

    /// A setting that the kind does not have.
    fn foreign(&self) -> Option<&'static str> {
        let token = [
            ("cap", self.cap.is_some()),
            ("initial", self.initial.is_some()),
            ("trickle", self.trickle.is_some()),
            ("ceiling_ratio", self.ceiling_ratio.is_some()),
            ("costs", !self.costs.is_empty()),
        ];
        let window = [
            ("of", self.of.is_some()),
            ("window", self.window.is_some()),
            ("allowance", self.allowance.is_some()),
            ("min_sample", self.min_sample.is_some()),
        ];
        let foreign = match self.kind {
            Kind::Token => window.as_slice(),
            Kind::Window => token.as_slice(),
        };
        let set = foreign.iter().find(|setting| setting.1);
        set.map(|setting| setting.0)
    }

    /// Builds a budget that nothing has been earned of yet.
    pub(super) fn build(&self) -> Result<Arc<dyn Budget>, ConfigError> {
        let max_keys = self.max_keys.unwrap_or(MAX_KEYS);
        let ratio = self.ratio.unwrap_or(RATIO);
        match self.kind {
            Kind::Token => {
                let mut builder = TokenBudget::builder().ratio(ratio).max_keys(max_keys);
                if let Some(cap) = self.cap {
                    builder = builder.cap(cap);
                }
                if let Some(initial) = self.initial {
                    builder = builder.initial(initial);
                }
                match self.trickle {
                    Some(Limit(Some(trickle))) => builder = builder.trickle(trickle),
                    Some(Limit(None)) => builder = builder.no_trickle(),
                    None => {}
                }
                match self.ceiling_ratio {
                    Some(OrNone(Some(ratio))) => builder = builder.ceiling_ratio(ratio),
                    Some(OrNone(None)) => builder = builder.no_ceiling(),
                    None => {}
                }
                for (cause, cost) in &self.costs {
                    if let Some(cause) = cause_of(cause) {
                        builder = builder.cost(cause, *cost);
                    }
                }
                Ok(Arc::new(builder.build()?))
            }
            Kind::Window => {
                let mut builder = WindowBudget::builder().ratio(ratio).max_keys(max_keys);
                if self.of == Some(Of::Attempts) {
                    builder = builder.of_attempts();
                }
                if let Some(Span(window)) = self.window {
                    builder = builder.window(window);
                }
                if let Some(allowance) = self.allowance {
                    builder = builder.allowance(allowance);
                }
                if let Some(sample) = self.min_sample {
                    builder = builder.min_sample(sample);
                }
                Ok(Arc::new(builder.build()?))
            }
        }
    }
}

fn cause_of(name: &str) -> Option<Cause> {
    let mut causes = Cause::ALL.iter().copied();
    causes.find(|cause| cause.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{budget::Key, clock};

    /// What is written out as a default is the default.
    #[test]
    fn the_defaults_are_those_of_the_builders() {
        for kind in [Kind::Token, Kind::Window] {
            let plain = BudgetData {
                kind,
                ..BudgetData::default()
            };
            let full = plain.clone().effective();
            let (plain, full) = (plain.build().unwrap(), full.build().unwrap());
            let (key, start) = (Key::from_static("k"), clock::now());
            for second in 0..90 {
                let now = start + Duration::from_secs(second);
                for budget in [&plain, &full] {
                    budget.deposit(&key, second % 3 == 0, now);
                    drop(budget.clone().withdraw(&key, Cause::Other, now));
                }
                assert_eq!(plain.account(&key, now), full.account(&key, now));
            }
        }
    }
}
