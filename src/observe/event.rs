use crate::{
    budget::{Budget, Key, Snapshot},
    control::Gate,
    policy::{CircuitState, Health},
    reason::{Cause, SkipReason, StopReason},
    shared::Shared,
};
use http::{Method, StatusCode};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The call that an event is about, as it stands at that event.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CallView<'a> {
    /// The dependency: the key of its account in the budget.
    pub dependency: &'a Key,
    /// The method of the request.
    pub method: &'a Method,
    /// What the call is for, where
    /// [`operation_fn`](crate::RetryBudgetLayer::operation_fn) names it.
    pub operation: Option<&'a str>,
    /// How often the request was sent so far. 0 before the first attempt.
    pub attempts: u32,
    /// How often it may be sent.
    pub max_attempts: u32,
    /// When the call began.
    pub started: Instant,
    /// When the event happened.
    pub at: Instant,
    /// After which nothing is sent or waited for.
    pub deadline: Option<Instant>,
    /// The time spent waiting between attempts, without a wait that goes on.
    pub waited: Duration,
    /// Since when the call waits to be sent, or did until this event.
    pub waiting_since: Option<Instant>,
    /// How long the server, or what others were told by it, last asked the call to wait.
    pub hint: Option<Duration>,
    /// The budget of its route, where that is not the layer's.
    pub(crate) routed: Option<&'a Arc<dyn Budget>>,
    pub(crate) shared: &'a Shared,
}

impl<'a> CallView<'a> {
    /// A call of one attempt, of which no more is known.
    pub(crate) fn of_one_attempt(
        dependency: &'a Key,
        method: &'a Method,
        at: Instant,
        shared: &'a Shared,
    ) -> Self {
        Self {
            routed: None,
            dependency,
            method,
            operation: None,
            attempts: 1,
            max_attempts: 1,
            started: at,
            at,
            deadline: None,
            waited: Duration::ZERO,
            waiting_since: None,
            hint: None,
            shared,
        }
    }

    /// Returns the time from the beginning of the call to this event.
    pub fn elapsed(&self) -> Duration {
        self.at.saturating_duration_since(self.started)
    }

    /// Returns the time from this event to the deadline, if the call has one.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.saturating_duration_since(self.at))
    }

    /// Returns what the dependency's account in the budget holds, if the budget
    /// [tells](crate::budget::Budget::account).
    pub fn account(&self) -> Option<Snapshot> {
        self.budget().account(self.dependency, self.at)
    }

    /// What limits its retries over many calls.
    pub(crate) fn budget(&self) -> &Arc<dyn Budget> {
        self.routed.unwrap_or(&self.shared.budget)
    }
}

impl fmt::Debug for CallView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallView")
            .field("dependency", self.dependency)
            .field("method", self.method)
            .field("operation", &self.operation)
            .field("attempts", &self.attempts)
            .field("max_attempts", &self.max_attempts)
            .field("started", &self.started)
            .field("at", &self.at)
            .field("deadline", &self.deadline)
            .field("waited", &self.waited)
            .field("waiting_since", &self.waiting_since)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

/// How many attempts a call is allowed, where limits are
/// [adaptive](crate::policy::adaptive), and what that follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapted {
    /// The attempts of the policy.
    pub base: u32,
    /// Those that are allowed. 0 while the breaker is open.
    pub limit: u32,
    /// How the dependency does.
    pub health: Health,
    /// Where its breaker stands.
    pub circuit: CircuitState,
}

/// One attempt that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptFinished {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What kind of failure it was, if it was one.
    pub cause: Option<Cause>,
    /// The status that it was answered with, if it was.
    pub status: Option<StatusCode>,
    /// A short name of the error that it ended with, or the name of its type.
    pub error_type: Option<&'static str>,
    /// How long it took.
    pub elapsed: Duration,
}

/// How an attempt ended, as the policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// With a success.
    Success,
    /// With an answer that another attempt would not change.
    FinalAnswer,
    /// With a failure: another attempt might mend it. A time-out is one.
    Failure,
    /// With an error that no further attempt will mend.
    FinalError,
    /// It was turned away inside this process, and not sent.
    Refused,
    /// The call was dropped meanwhile.
    Cancelled,
}

impl AttemptOutcome {
    /// Every outcome there is.
    pub const ALL: &'static [Self] = &[
        Self::Success,
        Self::FinalAnswer,
        Self::Failure,
        Self::FinalError,
        Self::Refused,
        Self::Cancelled,
    ];

    /// Returns the outcome as it is written in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::FinalAnswer => "final_answer",
            Self::Failure => "failure",
            Self::FinalError => "final_error",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallOutcome {
    /// With a success.
    Success,
    /// With an answer that is no failure, such as a 404.
    FinalAnswer,
    /// With a failure that was not retryable.
    Failed,
    /// It was given up.
    Exhausted,
    /// It was dropped before it had an answer.
    Cancelled,
}

impl CallOutcome {
    /// Every outcome there is.
    pub const ALL: &'static [Self] = &[
        Self::Success,
        Self::FinalAnswer,
        Self::Failed,
        Self::Exhausted,
        Self::Cancelled,
    ];

    /// Returns the outcome as it is written in traces and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::FinalAnswer => "final_answer",
            Self::Failed => "failed",
            Self::Exhausted => "exhausted",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A retry that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryScheduled {
    /// What kind of failure it is an answer to.
    pub cause: Cause,
    /// The status of the attempt that failed, if it was answered.
    pub status: Option<StatusCode>,
    /// A short name of the error that it ended with, or the name of its type.
    pub error_type: Option<&'static str>,
    /// How long the call waits, from the end of the attempt.
    pub wait: Duration,
    /// How long the server asked it to wait.
    pub hint: Option<Duration>,
    /// Whether it was withdrawn from the budget. One with refreshed credentials is not.
    pub withdrawn: bool,
}

/// An outcome, other than a success, that is the call's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Why it was not retried.
    pub reason: SkipReason,
    /// Its status, if it is a response.
    pub status: Option<StatusCode>,
    /// A short name of the error, or the name of its type, if it is one.
    pub error_type: Option<&'static str>,
}

impl Skipped {
    /// Returns how the call ended: with an answer, or with a failure.
    pub fn outcome(&self) -> CallOutcome {
        let answered = self.status.is_some_and(|status| !status.is_server_error());
        let is_answer = matches!(self.reason, SkipReason::FinalAnswer | SkipReason::Gone);
        if is_answer && answered {
            CallOutcome::FinalAnswer
        } else {
            CallOutcome::Failed
        }
    }
}

/// What a gate that is only observed would have decided. See [`control`](crate::control#gates).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shadow {
    /// The gate.
    pub gate: Gate,
    /// What it would have decided.
    pub decision: ShadowDecision,
}

/// What would have been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShadowDecision {
    /// To retry a failure of this kind.
    Retry(Cause),
    /// To give the call up.
    Stop(StopReason),
    /// To let its outcome stand.
    Skip(SkipReason),
}

impl ShadowDecision {
    /// Returns the decision as it is written in metrics: the cause, the stop reason or the skip reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry(cause) => cause.as_str(),
            Self::Stop(reason) => reason.as_str(),
            Self::Skip(reason) => reason.as_str(),
        }
    }
}

/// What a call was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// An attempt was under way.
    Attempt,
    /// A shared budget was being asked, or credentials were refreshed.
    Asking,
    /// The body of a failed response was read to its end.
    Draining,
    /// It waited for the time of the next attempt.
    Waiting,
    /// The inner service was getting ready for the next attempt.
    Readying,
}

impl Phase {
    /// Returns the phase as it is written in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Asking => "asking",
            Self::Draining => "draining",
            Self::Waiting => "waiting",
            Self::Readying => "readying",
        }
    }
}
