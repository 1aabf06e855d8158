//! The one place that reads the clock.
//!
//! Tokio's clock, so that paused time reaches every part; handed on as std's `Instant`, so that
//! tokio stays out of the signatures.

use std::time::Instant;

/// Reads the clock once.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
