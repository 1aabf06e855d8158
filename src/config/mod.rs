//! The configuration as data: from TOML, JSON or any other format of serde, or from the environment.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_retry_budget::{RetryBudgetLayer, config::RetryConfig};
//!
//! let config = RetryConfig::from_deserializer(toml::Deserializer::parse(r#"
//!     policy = "interactive"
//!     budget = "careful"
//!
//!     [policies.interactive]
//!     max_attempts = 3
//!     total_timeout = "2s"
//!     backoff = { base = "25ms", jitter = "full" }
//!
//!     [policies.storage]
//!     preset = "metered_api"
//!
//!     [budgets.careful]
//!     ratio = 0.1
//!
//!     [aliases]
//!     "*.s3.amazonaws.com" = "s3"
//!
//!     [routes."*.s3.amazonaws.com"]
//!     policy = "storage"
//!
//!     [gates]
//!     skipping = "observe"
//! "#)?)?;
//! let layer = RetryBudgetLayer::from_config(&config);
//!
//! // Later, with what the file says then:
//! let control = layer.control();
//! control.reload(&config);
//!
//! // A slip is refused with its place.
//! let slip = RetryConfig::from_json(r#"{"policies": {"interactive": {"max_atempts": 3}}}"#);
//! assert_eq!(slip.unwrap_err().path, "policies.interactive.max_atempts");
//! # Ok(())
//! # }
//! ```
//!
//! # What it may say
//!
//! Everything is optional. What a configuration does not say is left to the layer: to its defaults, and to
//! what its setters were given before the configuration. Unknown fields are refused.
//!
//! | field | what it is |
//! |---|---|
//! | `policy`, `budget` | the names of those that apply where no route says otherwise |
//! | `policies.NAME` | a policy: `preset` (`internal_call`, `metered_api`, `paid_work`, `side_effect`, `batch_step`, `connection_errors`), and the settings of [`RetryPolicyBuilder`] by name: `max_attempts`, `total_timeout`, `attempt_timeout`, `attempt_timeout_share`, `last_attempt_uncapped`, `min_attempt`, `backoff` and `throttled_backoff` (`base`, `factor`, `cap`, `jitter`: `none`, `full`, `equal`, `decorrelated` or a share), `max_retry_after`, `defer_waits_over`, `replay_limit`, `statuses` (a list, or `default`, `apis`, `webhooks`, `handlers`, `connection_errors_only`), `trust_proof`, `no_redirects`, `trust_methods`, `trust_idempotency_key`, `idempotency_keys`, `on_exhausted` (`respond`, `pass_through`, `terse`), `instance_header` |
//! | `budgets.NAME` | a budget of the `kind` `token` (the default), with the settings of [`TokenBudgetBuilder`]: `ratio`, `cap`, `initial`, `trickle`, `ceiling_ratio`, `costs.CAUSE` in thousandths, `max_keys`; or `window`, with those of [`WindowBudgetBuilder`]: `of` (`successes`, `attempts`), `ratio`, `window`, `allowance`, `min_sample`, `max_keys` |
//! | `routes.HOSTS` | the `policy` and the `budget` of requests to a host, or to all below a domain (`*.s3.amazonaws.com`). The most precise pattern counts, alone |
//! | `aliases.HOSTS` | the name of the account that these hosts share, as with [`BudgetScope::alias`]. The most precise pattern counts; those that the layer's scope had are replaced |
//! | `gates` | the [`Mode`] of each [`Gate`]: `retry`, `budget`, `deadline`, `skipping`; `enforce`, `observe` or `off` |
//! | `adaptive` | [adaptive limits](crate::policy::adaptive), by the names of [`AdaptiveLimitsBuilder`]: `error_rates` and `latencies` (lists of a threshold and what is left), `min_sample`, `min_latency_sample`, `window`, `baseline`, `max_keys`. The circuit breaker is the layer's |
//! | `hold_off` | a [`HoldOff`]: `longest`, `first_attempts`, `max_keys`. Whose a tenant's calls are is the layer's |
//! | `layered_retries` | `skip`, `skip_retried` or `within_deadline` |
//! | `headers` | `deadlines`, a list of names; `attempt` and `exhausted`, a name or `none`. In place of [all](crate::deadline::RetryHeaders) |
//!
//! Durations are whole numbers with a unit (`ns`, `us`, `ms`, `s`, `m`, `h`, `d`), as many as it takes:
//! `250ms`, `15m`, `1h30m`. Where there need not be a limit, `none` says so.
//!
//! A policy of a request's own, and the layer's [`policy_fn`](crate::RetryBudgetLayer::policy_fn), come
//! before those of a configuration.
//!
//! # In force
//!
//! The [effective](RetryConfig::effective) configuration, with every default written out, is logged once
//! when it comes into force, at `info` and with its [hash](RetryConfig::hash). Observers are told of the
//! hash ([`configuration_changed`](crate::observe::Observe::configuration_changed)) at the first call, or at
//! the reload; so the metric `config_info` shows which processes of a fleet run by which configuration.
//!
//! With [`RetryControl::reload`] calls that begin see all of the new configuration, calls under way
//! and asleep end by the old one, and a budget whose name and settings have not changed keeps its balances.
//!
//! [`AdaptiveLimitsBuilder`]: crate::policy::AdaptiveLimitsBuilder
//! [`HoldOff`]: crate::HoldOff
//! [`BudgetScope::alias`]: crate::budget::BudgetScope::alias
//! [`Gate`]: crate::control::Gate
//! [`Mode`]: crate::control::Mode
//! [`RetryControl::reload`]: crate::RetryControl::reload
//! [`RetryPolicyBuilder`]: crate::policy::RetryPolicyBuilder
//! [`TokenBudgetBuilder`]: crate::budget::TokenBudgetBuilder
//! [`WindowBudgetBuilder`]: crate::budget::WindowBudgetBuilder

mod budget;
mod data;
mod env;
mod error;
mod limits;
mod load;
mod span;
mod values;

use self::data::{Data, Parts};
pub use self::error::ConfigFileError;
pub(crate) use self::{
    load::Loaded,
    span::{Limit, Span},
    values::{JitterData, Statuses},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// A valid configuration. See the [module](self). Cheap to clone.
///
/// With [`Deserialize`] it can be a part of a larger configuration; an error of a value then names the path
/// below this part. Serialised it is the [effective](Self::effective) one, which reads as the same again.
#[derive(Clone, Debug)]
pub struct RetryConfig(Arc<Valid>);

#[derive(Debug)]
struct Valid {
    effective: Data,
    parts: Parts,
    json: String,
    hash: String,
}

impl RetryConfig {
    /// Reads a configuration in any format of serde's.
    ///
    /// # Errors
    ///
    /// When it is malformed, has a field that there is not, or a value that cannot be.
    pub fn from_deserializer<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Self, ConfigFileError> {
        let data: Data = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            ConfigFileError::new(path, error.inner())
        })?;
        Self::new(&data)
    }

    /// Reads a configuration in JSON.
    ///
    /// # Errors
    ///
    /// As [`from_deserializer`](Self::from_deserializer), and when something follows it.
    pub fn from_json(text: &str) -> Result<Self, ConfigFileError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let config = Self::from_deserializer(&mut deserializer)?;
        let rest = deserializer.end();
        rest.map_err(|error| ConfigFileError::new("", error))?;
        Ok(config)
    }

    /// Reads a configuration from environment variables, or from any pairs like them.
    ///
    /// A name is the prefix and the path, in any case, with two underscores between its parts:
    /// `RETRY__POLICIES__SEARCH__MAX_ATTEMPTS=4` for the prefix `RETRY`. Others are left alone. A value
    /// that is valid JSON is what JSON says, anything else is text; so what cannot be in a name goes into a
    /// value: `RETRY__ALIASES={"*.s3.amazonaws.com": "s3"}`.
    ///
    /// ```
    /// use tower_retry_budget::config::RetryConfig;
    ///
    /// let config = RetryConfig::from_env("RETRY", std::env::vars())?;
    /// # let _ = config;
    /// # Ok::<_, tower_retry_budget::config::ConfigFileError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_deserializer`](Self::from_deserializer), and when one variable is a part of what another
    /// one sets whole.
    pub fn from_env<K, V>(
        prefix: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigFileError>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        Self::from_deserializer(env::read(prefix, variables)?)
    }

    fn new(data: &Data) -> Result<Self, ConfigFileError> {
        let parts = data.check()?;
        let effective = data.effective(&parts);
        let json = serde_json::to_string(&effective);
        let json = json.map_err(|error| ConfigFileError::new("", error))?;
        Ok(Self(Arc::new(Valid {
            hash: hash(json.as_bytes()),
            effective,
            parts,
            json,
        })))
    }

    /// Returns all that is in force by this configuration, as JSON: every default of a policy or a budget
    /// written out, and fields in a fixed order. What is not there is left to the layer.
    pub fn effective(&self) -> &str {
        &self.0.json
    }

    /// Returns 16 hexadecimal digits that tell this configuration from others: the FNV-1a hash, of 64 bits,
    /// of [`effective`](Self::effective). The same in every process of one version of the crate, whatever
    /// the format, the order of fields, and whether defaults were written out.
    pub fn hash(&self) -> &str {
        &self.0.hash
    }
}

/// A configuration that says nothing: all is left to the layer.
impl Default for RetryConfig {
    fn default() -> Self {
        Self::new(&Data::default()).expect("an empty configuration is valid")
    }
}

/// Whether the same is in force by both.
impl PartialEq for RetryConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.json == other.0.json
    }
}

impl Eq for RetryConfig {}

impl Serialize for RetryConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.effective.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RetryConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let data = Data::deserialize(deserializer)?;
        Self::new(&data).map_err(serde::de::Error::custom)
    }
}

/// FNV-1a: short, in every language, and nobody gains by a collision.
fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test vectors of the IETF's draft.
    #[test]
    fn hashes_as_everybody_does() {
        assert_eq!(hash(b""), "cbf29ce484222325");
        assert_eq!(hash(b"a"), "af63dc4c8601ec8c");
        assert_eq!(hash(b"foobar"), "85944171f73967e8");
    }
}
