//! How long a call may take, and how the next hop learns of it.
//!
//! Times on the wire are always *remaining* time, never an instant: the clocks of two hosts differ.
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::Deadline;
//!
//! // Whatever the policy says, this one call ends within 200 ms.
//! let mut request = http::Request::get("http://search/").body(()).unwrap();
//! request.extensions_mut().insert(Deadline::after(Duration::from_millis(200)));
//! ```

mod attempt;
mod codec;
mod cover;
mod inbound;
mod layered;
mod marker;
mod names;
mod scope;

pub use self::{
    attempt::{RETRY_ATTEMPT, RetryAttempt},
    codec::{DEADLINE_REMAINING_MS, DeadlineHeader},
    cover::{CoverBody, CoverBodyLayer, CoverFuture, CoveredBody},
    inbound::Inherited,
    layered::LayeredRetries,
    marker::RETRY_EXHAUSTED,
    names::RetryHeaders,
    scope::{Capture, CaptureLayer, Scoped},
};
pub(crate) use self::{
    inbound::{Inbound, Received},
    layered::RetriedAbove,
    marker::Marker,
    names::Ownership,
    scope::Scope,
};

use crate::clock;
use std::time::{Duration, Instant};

/// A call with less time left than this is not sent: the header that says how much is left counts in
/// whole milliseconds.
pub(crate) const LEAST_REMAINING: Duration = Duration::from_millis(1);

/// The instant after which nothing is sent or waited for.
///
/// As a request extension it can only shorten what the policy allows. A deadline too far away to be
/// an instant is no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Creates a deadline `left` from now.
    pub fn after(left: Duration) -> Self {
        Self(clock::now().checked_add(left))
    }

    /// Creates a deadline at an instant of the clock that tokio's timers use.
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The time left; zero when the deadline has passed.
    pub fn remaining(&self) -> Duration {
        match self.0 {
            Some(at) => at.saturating_duration_since(clock::now()),
            None => Duration::MAX,
        }
    }

    /// Whether the deadline has passed.
    pub fn is_expired(&self) -> bool {
        self.remaining().is_zero()
    }

    pub(crate) const fn instant(self) -> Option<Instant> {
        self.0
    }
}
