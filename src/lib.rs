//! A tower layer that retries HTTP requests within a budget, a deadline and the server's own
//! `Retry-After`.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod body;
pub mod budget;
mod call;
mod client;
mod clock;
mod config_error;
pub mod deadline;
mod decide;
mod drain;
mod exhausted;
pub mod future;
mod layer;
mod observe;
pub mod policy;
pub mod reason;
mod service;
mod shared;
mod template;
mod timer;
mod waiting;

#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use self::client::reqwest;
pub use self::{
    config_error::ConfigError,
    deadline::Deadline,
    exhausted::{AttemptRecord, Exhausted, RetryInfo},
    layer::RetryBudgetLayer,
    policy::{OnExhausted, RetryPolicy},
    service::RetryBudget,
};
