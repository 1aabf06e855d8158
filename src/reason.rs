//! The enums that every part of the crate may name: why a call stopped, why a failure was not
//! retried, what a retry is for, and what became of it.
//!
//! The strings that [`as_str`](StopReason::as_str) returns are the same everywhere they appear: in
//! the `503`, in traces, and in metrics. They are covered by semver.

use std::fmt;

/// Why the layer stopped a call that it might have retried, or cut one at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// As many attempts were made as the policy allows.
    MaxAttempts,
    /// The deadline passed: nothing is sent or waited for after it.
    DeadlineReached,
    /// The next attempt, with the wait before it, would not fit into what is left of the deadline.
    DeadlineTooClose,
    /// The only attempt that the call was allowed ran into its attempt time-out.
    AttemptTimeout,
    /// The server asked for a longer wait than the policy or the deadline allows.
    RetryAfterTooLong,
    /// The next attempt is longer away than the call [is to sleep](crate::policy::RetryPolicyBuilder::defer_waits_over):
    /// it goes on when it is resumed.
    Deferred,
    /// The budget of the dependency had no retry left.
    Budget,
    /// The budget shared by the whole fleet had no retry left.
    FleetBudget,
    /// A circuit breaker is open.
    CircuitOpen,
    /// A local limit was reached: too many calls waiting, or the inner service refused.
    Overloaded,
    /// The process is shutting down.
    ShuttingDown,
    /// Retries were [switched off](crate::RetryControl::retries_off) while the call waited for one.
    Disabled,
}

impl StopReason {
    /// Every reason there is.
    pub const ALL: &'static [Self] = &[
        Self::MaxAttempts,
        Self::DeadlineReached,
        Self::DeadlineTooClose,
        Self::AttemptTimeout,
        Self::RetryAfterTooLong,
        Self::Deferred,
        Self::Budget,
        Self::FleetBudget,
        Self::CircuitOpen,
        Self::Overloaded,
        Self::ShuttingDown,
        Self::Disabled,
    ];

    /// Finds the reason that [`as_str`](Self::as_str) writes like this.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == name)
    }

    /// Whether a layer above, told of this reason, does not retry either.
    ///
    /// It does where another replica may be well: after a local limit, an open breaker or a single
    /// attempt that was cut.
    pub const fn forbids_retry_above(self) -> bool {
        match self {
            Self::MaxAttempts
            | Self::DeadlineReached
            | Self::DeadlineTooClose
            | Self::RetryAfterTooLong
            | Self::Deferred
            | Self::Budget
            | Self::FleetBudget
            | Self::Disabled => true,
            Self::AttemptTimeout | Self::CircuitOpen | Self::Overloaded | Self::ShuttingDown => {
                false
            }
        }
    }

    /// Returns the reason as it is written in the `503`, in traces and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::DeadlineReached => "deadline_reached",
            Self::DeadlineTooClose => "deadline_too_close",
            Self::AttemptTimeout => "attempt_timeout",
            Self::RetryAfterTooLong => "retry_after_too_long",
            Self::Deferred => "deferred",
            Self::Budget => "budget",
            Self::FleetBudget => "fleet_budget",
            Self::CircuitOpen => "circuit_open",
            Self::Overloaded => "overloaded",
            Self::ShuttingDown => "shutting_down",
            Self::Disabled => "disabled",
        }
    }
}

/// Why a failed call was not retryable. Such a call's own outcome is returned untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// The request may have been processed, and repeating it is not known to be safe.
    NotIdempotent,
    /// The request body could not be sent again: too large, or its source failed.
    NotReplayable,
    /// A caller above retries this call already.
    OwnedAbove,
    /// The policy allows one attempt, the request cannot be repeated (CONNECT, upgrades), or retries are
    /// switched off ([`RetryControl`](crate::RetryControl), [`Gates`](crate::control::Gates)).
    Disabled,
    /// The outcome is an answer, not a failure that another attempt might mend.
    FinalAnswer,
    /// `410 Gone`: what was asked for is gone for good. Whoever keeps a list of endpoints can take this
    /// one off it (RFC 9110, section 15.5.11).
    Gone,
}

impl SkipReason {
    /// Every reason there is.
    pub const ALL: &'static [Self] = &[
        Self::NotIdempotent,
        Self::NotReplayable,
        Self::OwnedAbove,
        Self::Disabled,
        Self::FinalAnswer,
        Self::Gone,
    ];

    /// Returns the reason as it is written in traces and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotIdempotent => "not_idempotent",
            Self::NotReplayable => "not_replayable",
            Self::OwnedAbove => "owned_above",
            Self::Disabled => "disabled",
            Self::FinalAnswer => "final_answer",
            Self::Gone => "gone",
        }
    }
}

/// What kind of failure a retry is an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// `429 Too Many Requests`. An overload signal.
    Throttled,
    /// `503 Service Unavailable`. An overload signal.
    Unavailable,
    /// A time-out: `408`, `504`, tower's `Elapsed`, or this layer's attempt time-out. An overload
    /// signal.
    Timeout,
    /// Any other retryable status.
    ServerError,
    /// Nothing was processed: the connection was refused or never established, or the stream was
    /// refused.
    Unprocessed,
    /// The connection broke while the request was under way.
    Transport,
    /// `401` or `403`, and the credentials were refreshed. Never withdrawn from a budget.
    Credentials,
    /// A user's classifier called it retryable and named no other cause.
    Other,
}

impl Cause {
    /// Every cause there is.
    pub const ALL: &'static [Self] = &[
        Self::Throttled,
        Self::Unavailable,
        Self::Timeout,
        Self::ServerError,
        Self::Unprocessed,
        Self::Transport,
        Self::Credentials,
        Self::Other,
    ];

    /// Returns the cause as it is written in traces and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::ServerError => "server_error",
            Self::Unprocessed => "unprocessed",
            Self::Transport => "transport",
            Self::Credentials => "credentials",
            Self::Other => "other",
        }
    }

    /// Whether the failure says "too much". A retry of such a failure is never given back to the
    /// budget, however it ends.
    pub const fn is_overload_signal(self) -> bool {
        matches!(self, Self::Throttled | Self::Unavailable | Self::Timeout)
    }

    /// Whether the server asked for less (`429`, `503`): the throttled back-off applies.
    pub const fn is_throttled(self) -> bool {
        matches!(self, Self::Throttled | Self::Unavailable)
    }
}

/// Whether the server may have processed the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Processed {
    /// There is proof that it did not: the request may be repeated whatever its method.
    No,
    /// There is no proof either way.
    Unknown,
}

impl Processed {
    /// Returns `no` or `unknown`, as in the `503`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of a retry that a budget had granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryOutcome {
    /// It was never sent.
    NotSent,
    /// It was sent, and ended without failure.
    Succeeded,
    /// It was sent, and failed or was abandoned.
    Failed,
}

macro_rules! display_as_str {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
display_as_str!(StopReason, SkipReason, Cause, Processed);
