use super::{
    status::{self, StatusTable},
    verdict::Verdict,
};
use crate::{
    client::{self, ErrorType, Recognised, Trust, recognise},
    reason::{Cause, Processed},
};
use http::{Extensions, HeaderMap, Method, Response, StatusCode, Uri, header::RETRY_AFTER};
use std::{any::Any, error::Error, fmt, time::Duration};

/// Says what an outcome means.
///
/// Implemented by every `Fn(&Outcome<'_>) -> Option<Verdict>`. `None` leaves the outcome to the
/// policy's status table and to the crate's own recognition of errors.
///
/// It is asked once per attempt of a call that could be retried. It is not asked for calls that get
/// one attempt whatever happens: nothing is kept of their request that it could look at.
///
/// ```
/// use http::StatusCode;
/// use tower_retry_budget::policy::{Outcome, RetryPolicy, Verdict};
/// use tower_retry_budget::reason::Cause;
///
/// // A gateway that says 404 while it is still warming up.
/// let policy = RetryPolicy::builder()
///     .classifier(|outcome: &Outcome<'_>| {
///         let warming_up = outcome.status() == Some(StatusCode::NOT_FOUND)
///             && outcome.response_headers()?.contains_key("x-warming-up");
///         warming_up.then(|| Verdict::retry(Cause::Other))
///     })
///     .build()?;
/// # let _ = policy;
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
pub trait Classify: Send + Sync + 'static {
    /// Returns the verdict, or `None` for the default one.
    fn classify(&self, outcome: &Outcome<'_>) -> Option<Verdict>;
}

impl<F> Classify for F
where
    F: Fn(&Outcome<'_>) -> Option<Verdict> + Send + Sync + 'static,
{
    fn classify(&self, outcome: &Outcome<'_>) -> Option<Verdict> {
        self(outcome)
    }
}

/// How one attempt ended, and what of the call a classifier may look at.
pub struct Outcome<'a> {
    pub(crate) request: RequestView<'a>,
    pub(crate) result: ResultView<'a>,
    pub(crate) attempt: u32,
    pub(crate) elapsed: Duration,
    pub(crate) remaining: Option<Duration>,
}

/// The head of the request as the caller sent it.
#[derive(Clone, Copy)]
pub(crate) struct RequestView<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
}

#[derive(Clone, Copy)]
pub(crate) enum ResultView<'a> {
    Response(ResponseView<'a>),
    Error(ErrorView<'a>),
    /// The attempt ran into its time limit and was dropped.
    Cut,
}

#[derive(Clone, Copy)]
pub(crate) struct ResponseView<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
}

impl<'a, R> From<&'a Response<R>> for ResponseView<'a> {
    fn from(response: &'a Response<R>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ErrorView<'a> {
    value: &'a dyn Any,
    error: Option<&'a (dyn Error + 'static)>,
    pub(crate) recognised: Option<Recognised>,
}

impl<'a> ErrorView<'a> {
    pub(crate) fn new(value: &'a dyn Any, more: &[ErrorType], trust: Trust) -> Self {
        let error = client::as_error(value, more);
        let recognised = error.and_then(|(error, vouched)| {
            let outermost = vouched;
            recognise(error, Trust { outermost, ..trust })
        });
        Self {
            value,
            error: error.map(|(error, _)| error),
            recognised,
        }
    }
}

impl<'a> Outcome<'a> {
    /// The request's method.
    pub fn method(&self) -> &'a Method {
        self.request.method
    }

    /// The request's URI.
    pub fn uri(&self) -> &'a Uri {
        self.request.uri
    }

    /// The request's headers, as the caller set them.
    pub fn request_headers(&self) -> &'a HeaderMap {
        self.request.headers
    }

    /// The request's extensions, as the caller set them.
    pub fn request_extensions(&self) -> &'a Extensions {
        self.request.extensions
    }

    /// The response's status, if there was a response.
    pub fn status(&self) -> Option<StatusCode> {
        self.response().map(|response| response.status)
    }

    /// The response's headers, if there was a response.
    pub fn response_headers(&self) -> Option<&'a HeaderMap> {
        self.response().map(|response| response.headers)
    }

    /// The response's extensions, if there was a response.
    pub fn response_extensions(&self) -> Option<&'a Extensions> {
        self.response().map(|response| response.extensions)
    }

    /// The error, if its type is known to the crate or was
    /// [registered](super::RetryPolicyBuilder::error_type) with the policy.
    pub fn error(&self) -> Option<&'a (dyn Error + 'static)> {
        match self.result {
            ResultView::Error(view) => view.error,
            _ => None,
        }
    }

    /// The error as a `T`: the inner service's own error type, or the first `T` in its source chain.
    pub fn downcast_error<T: 'static + Error>(&self) -> Option<&'a T> {
        let ResultView::Error(view) = self.result else {
            return None;
        };
        view.value
            .downcast_ref()
            .or_else(|| client::find(view.error?))
    }

    /// The inner service's error as a `T`, which need not be a `std::error::Error`.
    pub fn downcast_service_error<T: 'static>(&self) -> Option<&'a T> {
        match self.result {
            ResultView::Error(view) => view.value.downcast_ref(),
            _ => None,
        }
    }

    /// Whether the attempt was cut off by this layer's attempt time-out.
    pub fn is_attempt_timeout(&self) -> bool {
        matches!(self.result, ResultView::Cut)
    }

    /// The number of the attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The time since the call began.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The time left until the call's deadline, if it has one.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    fn response(&self) -> Option<ResponseView<'a>> {
        match self.result {
            ResultView::Response(response) => Some(response),
            _ => None,
        }
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("method", self.method())
            .field("status", &self.status())
            .field("error", &self.error())
            .field("attempt", &self.attempt)
            .field("elapsed", &self.elapsed)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

/// The verdict when no user's classifier has one.
pub(super) fn by_default(
    result: ResultView<'_>,
    statuses: &StatusTable,
    retry_after_is_final: bool,
) -> Verdict {
    match result {
        ResultView::Response(response) => {
            let (status, headers) = (response.status, response.headers);
            if statuses.contains(status) {
                if retry_after_is_final && headers.contains_key(RETRY_AFTER) {
                    return Verdict::final_answer();
                }
                return Verdict::retry(status::cause(status));
            }
            if status.as_u16() < 400 {
                Verdict::success()
            } else {
                Verdict::final_answer()
            }
        }
        ResultView::Error(error) => by_recognition(error.recognised),
        ResultView::Cut => Verdict::retry(Cause::Timeout),
    }
}

fn by_recognition(recognised: Option<Recognised>) -> Verdict {
    match recognised.map(|recognised| recognised.kind) {
        Some(client::Kind::Transient(cause, Processed::No)) => Verdict::retry(cause).unprocessed(),
        Some(client::Kind::Transient(cause, _)) => Verdict::retry(cause),
        Some(client::Kind::LocalOverload) => Verdict::local_overload(),
        Some(client::Kind::Permanent) | None => Verdict::final_error(),
    }
}
