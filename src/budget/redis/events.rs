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

    /// A call has failed, and the store does not answer now. Told at once, or by a later failure when the
    /// last time was a moment ago.
    pub(super) fn lost(&mut self, error: &StoreError, now: Instant) {
        self.is_in(StoreMode::LocalShare);
        if self.lost {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use redis::RedisError;
    use std::io;

    #[test]
    fn tells_of_a_second_loss_once_the_first_is_a_while_ago() {
        let error = StoreError {
            error: Arc::new(RedisError::from(io::Error::other("gone"))),
            not_applied: true,
        };
        let start = crate::clock::now();
        let mut events = StoreEvents::new(None);
        let lost = |events: &mut StoreEvents, after: u64| {
            events.lost(&error, start + Duration::from_secs(after));
            events.lost
        };
        assert!(lost(&mut events, 0));
        events.found();
        assert!(!lost(&mut events, 5), "told a moment ago");
        assert!(lost(&mut events, 11), "it is still lost");
    }
}
