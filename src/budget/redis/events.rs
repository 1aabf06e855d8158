//! What is told of a shared budget's store.

use super::store::StoreError;
use crate::{budget::StoreMode, observe::Observe};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A store that comes and goes is not told of more often.
const QUIET: Duration = Duration::from_secs(10);

/// Tells once when a store is lost, and once when it is found.
pub(super) struct StoreEvents {
    observer: Option<Arc<dyn Observe>>,
    /// What the observer was told last.
    mode: Option<StoreMode>,
    told: Option<Instant>,
    /// Whether what was told last is that it is lost.
    lost: bool,
}

impl StoreEvents {
    pub(super) fn new(observer: Option<Arc<dyn Observe>>) -> Self {
        Self {
            observer,
            mode: None,
            told: None,
            lost: false,
        }
    }

    /// A call has failed.
    pub(super) fn failed(&self, error: &StoreError) {
        if let Some(observer) = &self.observer {
            observer.store_failed(error.kind());
        }
    }

    fn is_in(&mut self, mode: StoreMode) {
        let Some(observer) = &self.observer else {
            return;
        };
        if self.mode.replace(mode) != Some(mode) {
            observer.store_mode_changed(mode);
        }
    }

    pub(super) fn lost(&mut self, error: &StoreError, now: Instant) {
        self.is_in(StoreMode::LocalShare);
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
        self.is_in(StoreMode::Fleet);
        if std::mem::take(&mut self.lost) {
            tracing::info!(target: "tower_retry_budget", mode = "fleet", "the budget's store answers again");
        }
    }
}
