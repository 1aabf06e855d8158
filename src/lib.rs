//! A tower layer that retries HTTP requests within a budget, a deadline and the server's own
//! `Retry-After`.

#[allow(dead_code, unused_imports)] // Until the layer uses it.
pub mod body;
pub mod budget;
mod clock;
mod config_error;
pub mod policy;
pub mod reason;

pub use self::config_error::ConfigError;
