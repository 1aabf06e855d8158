use crate::{
    observe::AttemptOutcome,
    reason::{Cause, Processed},
};
use http::HeaderName;
use std::time::Duration;

/// What a classifier says of one outcome.
///
/// Three questions are kept apart: whether another attempt might mend it ([`retry`](Self::retry)),
/// whether it says "too much" (its [`Cause`]), and whether the server may have processed the request
/// ([`unprocessed`](Self::unprocessed)). A verdict is not a decision: attempts, deadline, idempotency
/// and budget still have their say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    kind: Kind,
    processed: Processed,
    after: Option<Duration>,
    without_header: Option<HeaderName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Success,
    FinalAnswer,
    /// An error that no further attempt will mend, as far as anybody knows.
    FinalError,
    LocalOverload,
    Retry(Cause),
}

impl Verdict {
    /// The call succeeded.
    pub const fn success() -> Self {
        Self::of(Kind::Success)
    }

    /// The outcome stands: another attempt would not change it.
    pub const fn final_answer() -> Self {
        Self::of(Kind::FinalAnswer)
    }

    /// A failure that another attempt might mend.
    ///
    /// The server may have processed the request, unless [`unprocessed`](Self::unprocessed) says
    /// otherwise; only an idempotent request is retried then.
    pub const fn retry(cause: Cause) -> Self {
        Self::of(Kind::Retry(cause))
    }

    pub(crate) const fn final_error() -> Self {
        Self::of(Kind::FinalError)
    }

    /// Turned away inside this process, so nothing was processed.
    pub(crate) const fn local_overload() -> Self {
        Self::of(Kind::LocalOverload).unprocessed()
    }

    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            processed: Processed::Unknown,
            after: None,
            without_header: None,
        }
    }

    /// Adds proof that the server did not process the request, so that it may be repeated whatever
    /// its method.
    #[must_use]
    pub const fn unprocessed(mut self) -> Self {
        self.processed = Processed::No;
        self
    }

    /// Sets the shortest wait before the next attempt, in place of what `Retry-After` says.
    ///
    /// It is treated as a server's hint: never shortened, and the call stops when it does not fit.
    #[must_use]
    pub const fn after(mut self, wait: Duration) -> Self {
        self.after = Some(wait);
        self
    }

    /// Leaves a header out of all later attempts, such as `Expect` after a `417`.
    #[must_use]
    pub fn without_header(mut self, name: HeaderName) -> Self {
        self.without_header = Some(name);
        self
    }

    /// Whether the outcome is a failure, whatever the method of the request.
    pub const fn is_failure(&self) -> bool {
        matches!(self.kind, Kind::Retry(_))
    }

    /// The kind of failure, if the outcome is one.
    pub const fn cause(&self) -> Option<Cause> {
        match self.kind {
            Kind::Retry(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether the server may have processed the request.
    pub const fn processed(&self) -> Processed {
        self.processed
    }

    pub(crate) const fn outcome(&self) -> AttemptOutcome {
        match self.kind {
            Kind::Success => AttemptOutcome::Success,
            Kind::FinalAnswer => AttemptOutcome::FinalAnswer,
            Kind::FinalError => AttemptOutcome::FinalError,
            Kind::LocalOverload => AttemptOutcome::Refused,
            Kind::Retry(_) => AttemptOutcome::Failure,
        }
    }

    /// Whether the outcome earns the budget nothing. An error earns nothing even where no retry
    /// would mend it.
    pub(crate) const fn earns_nothing(&self) -> bool {
        !matches!(self.kind, Kind::Success | Kind::FinalAnswer)
    }

    pub(crate) const fn is_local_overload(&self) -> bool {
        matches!(self.kind, Kind::LocalOverload)
    }

    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.kind, Kind::Success)
    }

    pub(crate) const fn wait(&self) -> Option<Duration> {
        self.after
    }

    pub(crate) fn take_header_to_drop(&mut self) -> Option<HeaderName> {
        self.without_header.take()
    }
}
