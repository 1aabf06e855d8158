//! When attempts begin, one after the other, for ever.

use super::PlannedAttempt;
use crate::policy::{Backoff, Jitter, backoff::scale};
use std::time::Duration;

/// The attempts of a back-off. `length` says how long an attempt that begins at an offset may take.
pub(in crate::policy) struct Delays<'a, F> {
    backoff: &'a Backoff,
    length: F,
    last: PlannedAttempt,
}

impl<'a, F: Fn(Duration) -> Duration> Delays<'a, F> {
    pub(in crate::policy) fn new(backoff: &'a Backoff, length: F) -> Self {
        let last = PlannedAttempt::default();
        Self {
            backoff,
            length,
            last,
        }
    }

    /// Goes on after an attempt.
    pub(super) fn continued(mut self, last: Option<PlannedAttempt>) -> Self {
        self.last = last.unwrap_or_default();
        self
    }
}

impl<F: Fn(Duration) -> Duration> Iterator for Delays<'_, F> {
    type Item = PlannedAttempt;

    fn next(&mut self) -> Option<PlannedAttempt> {
        let last = self.last;
        let attempt = last.attempt.checked_add(1)?;
        if attempt == 1 {
            let length = (self.length)(Duration::ZERO);
            self.last = PlannedAttempt {
                attempt,
                latest_end: length,
                ..last
            };
            return Some(self.last);
        }
        let wait = mean(self.backoff, attempt - 1, last.wait);
        let longest_wait = self.backoff.upper_bound(attempt - 1);
        let latest_offset = last.latest_end.saturating_add(longest_wait);
        let length = (self.length)(latest_offset);
        self.last = PlannedAttempt {
            attempt,
            wait,
            longest_wait,
            offset: last.offset.saturating_add(wait),
            latest_offset,
            latest_end: latest_offset.saturating_add(length),
        };
        Some(self.last)
    }
}

/// The delay before a retry on average. `previous` is the one before.
///
/// Of an injected ratio nothing is known: it counts as 1. Decorrelated jitter is taken as if the delay
/// before had been its average, which at the cap is a little more than the truth.
fn mean(backoff: &Backoff, retry: u32, previous: Duration) -> Duration {
    let bound = backoff.upper_bound(retry);
    match backoff.jitter() {
        Jitter::None | Jitter::Injected(_) => bound,
        Jitter::Full => bound / 2,
        Jitter::Equal => bound - bound / 4,
        Jitter::Share(share) => scale(bound, 1.0 - share / 2.0),
        Jitter::Decorrelated => {
            let low = backoff.base().min(bound);
            let high = previous.max(backoff.base()).saturating_mul(3).min(bound);
            low + (high.saturating_sub(low)) / 2
        }
    }
}
