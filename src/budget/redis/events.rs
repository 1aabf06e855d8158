//! What is told of a shared budget's store.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

/// A store that comes and goes is not told of more often.
const QUIET: Duration = Duration::from_secs(10);

/// Tells once when a store is lost, and once when it is found.
#[derive(Debug, Default)]
pub(super) struct StoreEvents {
    told: Option<Instant>,
    /// Whether what was told last is that it is lost.
    lost: bool,
}

impl StoreEvents {
    pub(super) fn lost(&mut self, error: &impl Display, now: Instant) {
        let told = self.told.map(|told| now.saturating_duration_since(told));
        if told.is_some_and(|ago| ago < QUIET) {
            return;
        }
        self.told = Some(now);
        self.lost = true;
        tracing::warn!(
            target: "tower_retry_budget",
            mode = "local_share",
            error = %error,
            "the budget's store does not answer: retries go by the local share"
        );
    }

    pub(super) fn found(&mut self) {
        if std::mem::take(&mut self.lost) {
            tracing::info!(target: "tower_retry_budget", mode = "fleet", "the budget's store answers again");
        }
    }
}
