//! The configuration as data.

#[path = "../support/mod.rs"]
mod support;

mod formats;
mod in_force;
mod logged;
mod refused;
mod reloading;

use tower_retry_budget::config::{ConfigFileError, RetryConfig};

/// Reads TOML.
fn read(text: &str) -> Result<RetryConfig, ConfigFileError> {
    let deserializer = toml::Deserializer::parse(text).expect("valid TOML");
    RetryConfig::from_deserializer(deserializer)
}

fn toml(text: &str) -> RetryConfig {
    // Before anything is logged.
    support::log::install();
    read(text).unwrap_or_else(|error| panic!("{error}"))
}
