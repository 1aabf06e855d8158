//! The one place that reads the clock.
//!
//! Tokio's clock, so that paused time reaches every part; handed on as std's `Instant`, so that
//! tokio stays out of the signatures.

use std::time::{Duration, Instant};

/// Reads the clock once.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Whole milliseconds, as logs and the `503` count.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
