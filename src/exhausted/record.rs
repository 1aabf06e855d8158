//! What a queue keeps of a piece of work that was tried.

use super::{AttemptRecord, Exhausted, RetryInfo};
use crate::{
    RetryState,
    clock::millis,
    reason::{SkipReason, StopReason},
};
use http::Response;
use std::{any::type_name, fmt, time::SystemTime};

/// What became of a delivery: the outcome names of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// It was answered with a success.
    Delivered,
    /// It was answered with something that no further attempt would change, such as a 404 or a 410.
    TerminalResponse,
    /// It ended with an error that no further attempt would mend, such as a certificate that is not
    /// trusted.
    TerminalError,
    /// The layer gave up, for this reason. [`Deferred`](StopReason::Deferred) is one: it is to be tried
    /// again.
    Stopped(StopReason),
}

impl Delivery {
    /// Returns the outcome as it is written: `delivered`, `terminal_response`, `terminal_error`, or the
    /// name of the stop reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::TerminalResponse => "terminal_response",
            Self::TerminalError => "terminal_error",
            Self::Stopped(reason) => reason.as_str(),
        }
    }

    /// Finds the outcome that [`as_str`](Self::as_str) writes like this.
    pub fn from_name(name: &str) -> Option<Self> {
        let own = [Self::Delivered, Self::TerminalResponse, Self::TerminalError];
        let stopped = || StopReason::from_name(name).map(Self::Stopped);
        own.into_iter()
            .find(|outcome| outcome.as_str() == name)
            .or_else(stopped)
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The record of a delivery, for a dead-letter queue or a log of deliveries.
///
/// It has what a person asks of a dead letter: what became of it, how often and for how long it was
/// tried, how each attempt ended, and whether trying again may help. With the feature `serde` it is
/// serialised, with times as whole milliseconds. It has nothing of the request or the response but the
/// status, and the id that [`instance_header`](crate::policy::RetryPolicyBuilder::instance_header) names.
///
/// ```
/// use http::Response;
/// use tower_retry_budget::{Delivery, DeliveryRecord};
///
/// let answer: Result<_, std::io::Error> = Ok(Response::builder().status(410).body(())?);
/// let record = DeliveryRecord::of(&answer);
/// assert_eq!(record.outcome, Delivery::TerminalResponse);
/// assert_eq!((record.attempts, record.last_status), (1, Some(410)));
/// # Ok::<_, http::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DeliveryRecord {
    /// What became of it.
    pub outcome: Delivery,
    /// Whether trying again may help: the last failure was transient, and repeating the request is
    /// safe.
    pub retryable: bool,
    /// The dependency, where the layer gave up.
    pub dependency: Option<String>,
    /// How often it was sent, in all processes that tried.
    pub attempts: u32,
    /// How often it might have been sent, where the layer gave up.
    pub max_attempts: Option<u32>,
    /// The status of the last attempt, if that was answered.
    pub last_status: Option<u16>,
    /// A short name of the error that the last attempt ended with, or the name of its type.
    pub error_type: Option<String>,
    /// Why a failure was not retryable.
    pub skipped: Option<String>,
    /// The id of the request, if the policy says where to find it.
    pub instance: Option<String>,
    /// How long this process tried, in milliseconds.
    pub elapsed_ms: u64,
    /// The part of it that was spent waiting, in milliseconds.
    pub waited_ms: u64,
    /// When it was first tried, in milliseconds since 1970, for a call with a
    /// [`RetryState`](crate::RetryState).
    pub first_attempted_at_ms: Option<u64>,
    /// When it was recorded, in milliseconds since 1970.
    pub recorded_at_ms: u64,
    /// Before when it is not to be tried again, in milliseconds since 1970.
    pub not_before_ms: Option<u64>,
    /// The attempts of this process, of a long call the latest 16, where the layer gave up.
    pub history: Vec<AttemptEntry>,
}

/// One attempt of a [`DeliveryRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct AttemptEntry {
    /// Its number; 1 is the first.
    pub attempt: u32,
    /// The status that it was answered with, if it was.
    pub status: Option<u16>,
    /// A short name of the error that it ended with, or the name of its type.
    pub error_type: Option<String>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// How long the next one was waited for, in milliseconds.
    pub wait_ms: u64,
}

impl DeliveryRecord {
    /// Records the answer of a call through the layer, now.
    pub fn of<B, E: 'static>(answer: &Result<Response<B>, E>) -> Self {
        let mut record = Self {
            outcome: Delivery::TerminalError,
            retryable: false,
            dependency: None,
            attempts: 1,
            max_attempts: None,
            last_status: None,
            error_type: None,
            skipped: None,
            instance: None,
            elapsed_ms: 0,
            waited_ms: 0,
            first_attempted_at_ms: None,
            recorded_at_ms: since_1970(SystemTime::now()),
            not_before_ms: None,
            history: Vec::new(),
        };
        match answer {
            Ok(response) => record.answered(response),
            Err(_) => record.error_type = Some(type_name::<E>().into()),
        }
        record
    }

    fn answered<B>(&mut self, response: &Response<B>) {
        let (status, extensions) = (response.status(), response.extensions());
        self.outcome = match status.is_success() {
            true => Delivery::Delivered,
            false => Delivery::TerminalResponse,
        };
        self.last_status = Some(status.as_u16());
        if let Some(info) = extensions.get::<RetryInfo>() {
            self.attempts = info.attempts;
            self.elapsed_ms = millis(info.elapsed);
            self.waited_ms = millis(info.waited);
            self.skipped = info.skipped.map(SkipReason::as_str).map(Into::into);
        }
        if let Some(exhausted) = extensions.get::<Exhausted>() {
            self.stopped(exhausted);
        }
        if let Some(state) = extensions.get::<RetryState>() {
            self.attempts = state.attempts();
            self.first_attempted_at_ms = state.first_attempted_at().map(since_1970);
            self.not_before_ms = state.not_before().map(since_1970);
        }
    }

    fn stopped(&mut self, exhausted: &Exhausted) {
        self.outcome = Delivery::Stopped(exhausted.reason());
        self.retryable = exhausted.is_retryable();
        self.dependency = Some(exhausted.dependency().to_string());
        self.attempts = exhausted.attempts();
        self.max_attempts = Some(exhausted.max_attempts());
        self.last_status = exhausted.last_status().map(|status| status.as_u16());
        self.error_type = exhausted.error_type().map(Into::into);
        self.instance = exhausted.instance().map(Into::into);
        let wait = exhausted.retry_after().unwrap_or_default();
        let not_before = exhausted
            .retry_after()
            .map(|_| self.recorded_at_ms.saturating_add(millis(wait)));
        self.not_before_ms = not_before;
        self.history = exhausted.history().map(entry).collect();
    }
}

fn entry(record: &AttemptRecord) -> AttemptEntry {
    AttemptEntry {
        attempt: record.attempt(),
        status: record.status().map(|status| status.as_u16()),
        error_type: record.error_type().map(Into::into),
        elapsed_ms: millis(record.elapsed()),
        wait_ms: millis(record.wait()),
    }
}

fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, millis)
}

#[cfg(feature = "serde")]
mod wire {
    use super::Delivery;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    impl Serialize for Delivery {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(self.as_str())
        }
    }

    /// A name that this version does not know is an error.
    impl<'de> Deserialize<'de> for Delivery {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
            Self::from_name(&name)
                .ok_or_else(|| D::Error::custom(format_args!("no outcome is called `{name}`")))
        }
    }
}
