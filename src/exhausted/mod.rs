//! What is told of a call that was given up: the [`Exhausted`] details and the `503`.

mod problem;
mod record;

pub(crate) use problem::{respond, whole_seconds};
pub use record::{AttemptEntry, Delivery, DeliveryRecord};

use crate::{
    budget::Key,
    client::KeptError,
    deadline::Marker,
    reason::{Processed, SkipReason, StopReason},
};
use http::StatusCode;
use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

/// How many attempts a history remembers: the latest ones.
pub(crate) const MAX_HISTORY: usize = 16;

/// Why and when the layer gave up on a call, and what happened in it.
///
/// In the extensions of the response that the layer made, and under
/// [`OnExhausted::PassThrough`](crate::policy::OnExhausted::PassThrough) of the last real response.
///
/// ```
/// # fn show<B>(response: http::Response<B>) {
/// if let Some(exhausted) = response.extensions().get::<tower_retry_budget::Exhausted>() {
///     eprintln!("{exhausted}, last status {:?}", exhausted.last_status());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Exhausted(Arc<Details>);

#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) reason: StopReason,
    pub(crate) dependency: Key,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) elapsed: Duration,
    pub(crate) waited: Duration,
    pub(crate) last: Ending,
    pub(crate) error: Option<KeptError>,
    pub(crate) retryable: bool,
    pub(crate) processed: Processed,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) instance: Option<String>,
    pub(crate) history: History,
}

impl Details {
    /// A call that was given up before anything else was known of it.
    pub(crate) fn new(reason: StopReason, dependency: Key) -> Self {
        Self {
            reason,
            dependency,
            attempts: 0,
            max_attempts: 1,
            elapsed: Duration::ZERO,
            waited: Duration::ZERO,
            last: Ending::default(),
            error: None,
            retryable: true,
            processed: Processed::No,
            retry_after: None,
            instance: None,
            history: History::default(),
        }
    }
}

impl Exhausted {
    pub(crate) fn new(details: Details) -> Self {
        Self(Arc::new(details))
    }

    /// What is told of it upwards.
    pub(crate) fn marker(&self) -> Marker {
        Marker {
            reason: self.reason(),
            attempts: self.attempts(),
            elapsed: self.elapsed(),
        }
    }

    /// Why the layer stopped.
    pub fn reason(&self) -> StopReason {
        self.0.reason
    }

    /// The dependency that was called.
    pub fn dependency(&self) -> &Key {
        &self.0.dependency
    }

    /// How often the request was sent, the first time included. 0 when it was refused at once.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// How often it might have been sent.
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts
    }

    /// The time from the start of the call to the end.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed
    }

    /// The part of it that was spent waiting between attempts.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// The status of the last attempt, if that ended with a response.
    pub fn last_status(&self) -> Option<StatusCode> {
        self.0.last.status
    }

    /// A short name of the error that the last attempt ended with, or the name of its type.
    pub fn error_type(&self) -> Option<&'static str> {
        self.0.last.error_type
    }

    /// The error that the last attempt ended with, if its type is known to the crate or was
    /// [registered](crate::policy::RetryPolicyBuilder::error_type) with the policy.
    pub fn error(&self) -> Option<&Arc<dyn std::error::Error + Send + Sync>> {
        self.0.error.as_ref()
    }

    /// Whether somebody may try again after [`retry_after`](Self::retry_after): the last failure was
    /// transient, and repeating the request is safe.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the server may have processed the request.
    pub fn processed(&self) -> Processed {
        self.0.processed
    }

    /// How long the caller is asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The id of the request, if the policy says where to find it.
    pub fn instance(&self) -> Option<&str> {
        self.0.instance.as_deref()
    }

    /// The attempts, the first one first. Of a long call only the latest 16.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &AttemptRecord> {
        self.0.history.0.iter()
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.attempts();
        let plural = if attempts == 1 { "" } else { "s" };
        let elapsed = self.elapsed().as_millis();
        let reason = self.reason();
        write!(
            f,
            "gave up after {attempts} attempt{plural} in {elapsed} ms ({reason})"
        )
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) status: Option<StatusCode>,
    pub(crate) error_type: Option<&'static str>,
}

/// One attempt of a call that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    pub(crate) attempt: u32,
    pub(crate) ending: Ending,
    pub(crate) elapsed: Duration,
    pub(crate) wait: Duration,
}

impl AttemptRecord {
    /// The number of the attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The status that it was answered with, if it was.
    pub fn status(&self) -> Option<StatusCode> {
        self.ending.status
    }

    /// A short name of the error that it ended with, or the name of its type.
    pub fn error_type(&self) -> Option<&'static str> {
        self.ending.error_type
    }

    /// How long it took.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How long the next attempt was waited for: the back-off, and the inner service's readiness.
    pub fn wait(&self) -> Duration {
        self.wait
    }
}

/// The latest attempts of a call. Allocates nothing until one failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(VecDeque<AttemptRecord>);

impl History {
    pub(crate) fn push(&mut self, record: AttemptRecord) {
        if self.0.len() == MAX_HISTORY {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    /// Notes the wait that follows the last attempt.
    pub(crate) fn wait(&mut self, wait: Duration) {
        if let Some(last) = self.0.back_mut() {
            last.wait = wait;
        }
    }
}

/// How many attempts a call took, in the extensions of its response.
///
/// On every response that took more than one attempt, on every call that was given up, and on the
/// failures of calls that the layer might have retried but did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryInfo {
    /// How often the request was sent.
    pub attempts: u32,
    /// The time from the start of the call to the response head.
    pub elapsed: Duration,
    /// The part of it that was spent waiting between attempts.
    pub waited: Duration,
    /// Why a failure was not retried.
    pub skipped: Option<SkipReason>,
}
