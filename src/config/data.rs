//! What a configuration says, as it is written, and what that makes.

use super::{
    budget::BudgetData,
    error::ConfigFileError,
    limits::{AdaptiveData, HoldOffData},
};
use crate::{
    budget::{Hosts, Key},
    control::Gates,
    deadline::{DeadlineHeader, LayeredRetries, RetryHeaders},
    policy::{AdaptiveLimits, PolicyData, RetryPolicy},
};
use http::HeaderName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields in the order in which they are written, names in theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Data {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) policies: BTreeMap<String, PolicyData>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) budgets: BTreeMap<String, BudgetData>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) routes: BTreeMap<String, RouteData>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) aliases: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gates: Option<Gates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) adaptive: Option<AdaptiveData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold_off: Option<HoldOffData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layered_retries: Option<Layered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<HeadersData>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteData {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Layered {
    Skip,
    SkipRetried,
    WithinDeadline,
}

impl From<Layered> for LayeredRetries {
    fn from(layered: Layered) -> Self {
        match layered {
            Layered::Skip => Self::Skip,
            Layered::SkipRetried => Self::SkipRetried,
            Layered::WithinDeadline => Self::WithinDeadline,
        }
    }
}

/// `none` is no header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HeadersData {
    deadlines: Option<Vec<String>>,
    attempt: Option<String>,
    exhausted: Option<String>,
}

/// What the data makes, but for the budgets, of which every layer has its own.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) policies: BTreeMap<String, RetryPolicy>,
    pub(super) routes: Vec<(Hosts, RouteData)>,
    pub(super) aliases: Vec<(Hosts, Key)>,
    pub(super) adaptive: Option<AdaptiveLimits>,
    pub(super) headers: Option<RetryHeaders>,
}

impl Data {
    /// Checks all that it says.
    pub(super) fn check(&self) -> Result<Parts, ConfigFileError> {
        let mut policies = BTreeMap::new();
        for (name, policy) in &self.policies {
            let policy = policy.build().map_err(|(setting, error)| {
                let message = format!("{}: expected {}", error.value, error.expected);
                ConfigFileError::new(format!("policies.{name}.{setting}"), message)
            })?;
            policies.insert(name.clone(), policy);
        }
        for (name, budget) in &self.budgets {
            budget.check(&format!("budgets.{name}"))?;
        }
        self.names("", self.policy.as_ref(), self.budget.as_ref())?;
        for (hosts, route) in &self.routes {
            let path = format!("routes.{hosts}.");
            self.names(&path, route.policy.as_ref(), route.budget.as_ref())?;
        }
        let aliases = by_precision("aliases", &self.aliases)?.into_iter();
        let headers = self.headers.as_ref().map(HeadersData::build);
        Ok(Parts {
            policies,
            routes: by_precision("routes", &self.routes)?,
            aliases: aliases
                .map(|(hosts, name)| (hosts, Key::new(name)))
                .collect(),
            adaptive: self
                .adaptive
                .as_ref()
                .map(AdaptiveData::check)
                .transpose()?,
            headers: headers.transpose()?,
        })
    }

    /// Checks that what is named is there.
    fn names(
        &self,
        path: &str,
        policy: Option<&String>,
        budget: Option<&String>,
    ) -> Result<(), ConfigFileError> {
        if let Some(name) = policy.filter(|name| !self.policies.contains_key(*name)) {
            let message = format!("there is no policy {name:?}");
            return Err(ConfigFileError::new(format!("{path}policy"), message));
        }
        if let Some(name) = budget.filter(|name| !self.budgets.contains_key(*name)) {
            let message = format!("there is no budget {name:?}");
            return Err(ConfigFileError::new(format!("{path}budget"), message));
        }
        Ok(())
    }

    /// The same with every default of its policies and budgets written out.
    pub(super) fn effective(&self, parts: &Parts) -> Self {
        let policies = self.policies.iter().map(|(name, data)| {
            let effective = parts
                .policies
                .get(name)
                .map(|policy| data.effective(policy));
            (name.clone(), effective.unwrap_or_else(|| data.clone()))
        });
        let budgets = self.budgets.iter();
        Self {
            policies: policies.collect(),
            budgets: budgets
                .map(|(name, data)| (name.clone(), data.clone().effective()))
                .collect(),
            adaptive: self.adaptive.clone().map(AdaptiveData::effective),
            hold_off: self.hold_off.map(HoldOffData::effective),
            headers: self.headers.clone().map(HeadersData::effective),
            ..self.clone()
        }
    }
}

/// Reads patterns, and puts those first that name more.
fn by_precision<T: Clone>(
    field: &'static str,
    patterns: &BTreeMap<String, T>,
) -> Result<Vec<(Hosts, T)>, ConfigFileError> {
    let mut read: Vec<(Hosts, T)> = Vec::with_capacity(patterns.len());
    for (pattern, of) in patterns {
        let path = || format!("{field}.{pattern}");
        let hosts = Hosts::parse(field, pattern).map_err(|error| {
            let message = format!("{}: expected {}", error.value, error.expected);
            ConfigFileError::new(path(), message)
        })?;
        if read.iter().any(|(known, _)| *known == hosts) {
            return Err(ConfigFileError::new(path(), "is there twice"));
        }
        read.push((hosts, of.clone()));
    }
    read.sort_by_key(|(hosts, _)| std::cmp::Reverse(hosts.precision()));
    Ok(read)
}

const NONE: &str = "none";

impl HeadersData {
    fn build(&self) -> Result<RetryHeaders, ConfigFileError> {
        let mut headers = RetryHeaders::default();
        if let Some(deadlines) = &self.deadlines {
            let read = deadlines.iter().enumerate().map(|(place, name)| {
                let name = header(&format!("deadlines[{place}]"), name)?;
                let grpc = DeadlineHeader::grpc_timeout();
                Ok(if *grpc.name() == name {
                    grpc
                } else {
                    DeadlineHeader::millis(name)
                })
            });
            headers = headers.deadlines(read.collect::<Result<Vec<_>, ConfigFileError>>()?);
        }
        let optional = |field, name: &str| match name {
            NONE => Ok(None),
            name => header(field, name).map(Some),
        };
        if let Some(name) = &self.attempt {
            headers = headers.attempt(optional("attempt", name)?);
        }
        if let Some(name) = &self.exhausted {
            headers = headers.exhausted(optional("exhausted", name)?);
        }
        Ok(headers)
    }

    fn effective(self) -> Self {
        use crate::deadline::{DEADLINE_REMAINING_MS, RETRY_ATTEMPT, RETRY_EXHAUSTED};

        let name = |given: Option<String>, default: HeaderName| {
            given.map_or_else(|| default.to_string(), |name| name.to_ascii_lowercase())
        };
        let deadlines = self.deadlines;
        let deadlines = deadlines.unwrap_or_else(|| vec![DEADLINE_REMAINING_MS.to_string()]);
        let lower = deadlines.iter().map(|name| name.to_ascii_lowercase());
        Self {
            deadlines: Some(lower.collect()),
            attempt: Some(name(self.attempt, RETRY_ATTEMPT)),
            exhausted: Some(name(self.exhausted, RETRY_EXHAUSTED)),
        }
    }
}

fn header(field: &str, name: &str) -> Result<HeaderName, ConfigFileError> {
    name.parse().map_err(|_| {
        let message = format!("{name:?}: expected the name of a header");
        ConfigFileError::new(format!("headers.{field}"), message)
    })
}
