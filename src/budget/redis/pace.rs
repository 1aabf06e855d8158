//! When a key makes its calls. Pure: no clock, no lock.

use std::time::{Duration, Instant};

/// Over how long the first calls of new keys are spread, and the interval until the first reply.
pub(super) const FIRST: Duration = Duration::from_secs(1);

/// The calls of one key: one per interval while there is something to tell, and early ones in place
/// of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// When the next call is due. `None` while there is nothing to tell.
    due: Option<Instant>,
    interval: Duration,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self {
            due: None,
            interval: FIRST,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Sets the interval, as the store says it. A shorter one begins at once.
    pub(super) fn set(&mut self, interval: Duration, now: Instant) {
        if interval < self.interval {
            let soonest = now.checked_add(interval);
            self.due = self.due.map(|due| soonest.map_or(due, |at| due.min(at)));
        }
        self.interval = interval;
    }

    /// There is something to tell. Returns when the call is due if none was.
    ///
    /// `spread` is from 0 to 1: processes that see the same outage do not all call at once.
    pub(super) fn wake(&mut self, spread: f32, now: Instant) -> Option<Instant> {
        if self.due.is_some() {
            return None;
        }
        self.due = now.checked_add(self.interval.mul_f32(spread.clamp(0.0, 1.0)));
        self.due
    }

    /// Sets when the next call is due, whatever was before.
    pub(super) fn defer(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// Whether a call may be made ahead of its time: at most one interval ahead, so that there are
    /// never more than two in one, nor more in the long run than intervals.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        let ahead = self.due.map(|due| due.saturating_duration_since(now));
        ahead.is_none_or(|ahead| ahead <= self.interval)
    }

    /// A call is made now. The next is due one interval after the one that this was or replaced, and
    /// up to a tenth later: that keeps keys and processes apart.
    pub(super) fn called(&mut self, jitter: f32, now: Instant) {
        let from = self.due.map_or(now, |due| due.max(now));
        let wait = self.interval.mul_f32(1.0 + 0.1 * jitter.clamp(0.0, 1.0));
        self.due = from.checked_add(wait);
    }
}
