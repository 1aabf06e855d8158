//! The rules of one call: attempts, times, back-off, what is retryable, replay, and what exhaustion
//! looks like.
//!
//! A [`RetryPolicy`] is a value, cheap to clone and always valid. The layer has one; a request may
//! bring its own as an extension, or get one from the layer's
//! [`policy_fn`](crate::RetryBudgetLayer::policy_fn).
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::policy::RetryPolicy;
//!
//! let policy = RetryPolicy::default();
//! assert_eq!(policy.max_attempts(), 3);
//!
//! let policy = RetryPolicy::builder()
//!     .max_attempts(4)
//!     .total_timeout(Duration::from_secs(10))
//!     .attempt_timeout(Duration::from_secs(2))
//!     .build()?;
//! assert_eq!(policy.max_attempts(), 4);
//!
//! // For one request only:
//! let mut request = http::Request::get("http://search/").body(()).unwrap();
//! request.extensions_mut().insert(RetryPolicy::never());
//!
//! assert!(RetryPolicy::builder().max_attempts(0).build().is_err());
//! # Ok::<_, tower_retry_budget::ConfigError>(())
//! ```

pub mod adaptive;
pub mod backoff;
mod builder;
mod classify;
mod credentials;
#[cfg(feature = "serde")]
mod data;
mod idempotency;
pub mod plan;
mod planned;
mod preset;
pub mod retry_after;
mod status;
mod verdict;
mod warning;

#[cfg(feature = "serde")]
pub(crate) use self::data::PolicyData;
pub(crate) use self::{
    adaptive::{Adaptive, Allowed},
    classify::{ErrorView, RequestView, ResultView},
    credentials::Refreshing,
    idempotency::is_idempotent,
};
pub use self::{
    adaptive::{AdaptiveLimits, AdaptiveLimitsBuilder, CircuitState, Health},
    backoff::{Backoff, BackoffBuilder, Jitter},
    builder::RetryPolicyBuilder,
    classify::{Classify, Outcome},
    credentials::Credentials,
    idempotency::Idempotent,
    preset::Preset,
    retry_after::{Hint, Unit, VendorField},
    status::StatusTable,
    verdict::Verdict,
    warning::Warning,
};
use crate::{
    client::{ErrorType, Trust},
    reason::Cause,
};
use builder::Settings;
use http::request::Parts;
use std::{
    any::Any,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// The rules of one call. See the [module](self) for how to set them, and the
/// [builder](RetryPolicyBuilder) for the defaults.
#[derive(Clone, Debug)]
pub struct RetryPolicy(Arc<Settings>);

static DEFAULT: LazyLock<RetryPolicy> =
    LazyLock::new(|| RetryPolicy(Arc::new(Settings::default())));
static NEVER: LazyLock<RetryPolicy> = LazyLock::new(|| RetryPolicy(Arc::new(Settings::never())));

/// The default total time-out.
pub(crate) const DEFAULT_TOTAL_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for RetryPolicy {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

/// What the layer answers when it gives up on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnExhausted {
    /// A `503` in problem+json (RFC 9457) with the reason and the history of the attempts.
    #[default]
    Respond,
    /// The last real response or error, when there is one in hand at the decision; else the same
    /// `503`.
    PassThrough,
    /// A `503` without details for the peer. They are in the response's extensions, for whoever
    /// wraps this service, and in the log.
    Terse,
}

/// On which side of the wire the layer stands: it decides what a policy leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    /// Around a server's own handlers.
    Handlers,
}

/// How long a call may take in all, as far as the policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TotalTimeout {
    /// Cuts every call.
    Always(Duration),
    /// Cuts only calls that may be retried whatever happens.
    WhenReplayable(Duration),
    Never,
}

impl RetryPolicy {
    /// Starts from the defaults.
    pub fn builder() -> RetryPolicyBuilder {
        RetryPolicyBuilder::new(Settings::default())
    }

    /// One attempt, no time-out: the layer only watches. The cheapest policy. A call under it returns
    /// its own outcome, unless a [`Deadline`](crate::Deadline) cuts it.
    pub fn never() -> Self {
        NEVER.clone()
    }

    /// Starts from this policy.
    pub fn to_builder(&self) -> RetryPolicyBuilder {
        RetryPolicyBuilder::new(Settings::clone(&self.0))
    }

    /// How many times the request is sent at most, the first time included.
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts
    }

    /// This policy with no more attempts than that.
    pub(crate) fn at_most(self, attempts: u32) -> Self {
        let attempts = attempts.max(1);
        if self.0.max_attempts <= attempts {
            return self;
        }
        let mut settings = Settings::clone(&self.0);
        settings.max_attempts = attempts;
        Self(Arc::new(settings))
    }

    /// What this policy risks, in words. An empty list means that nothing stood out.
    pub fn warnings(&self) -> Vec<Warning> {
        warning::of(&self.0)
    }

    pub(crate) fn total_timeout(&self, side: Side) -> TotalTimeout {
        match (self.0.total_timeout, side) {
            (Some(Some(limit)), _) => TotalTimeout::Always(limit),
            (None, Side::Client) => TotalTimeout::WhenReplayable(DEFAULT_TOTAL_TIMEOUT),
            (Some(None), _) | (None, Side::Handlers) => TotalTimeout::Never,
        }
    }

    /// Whether a call under this policy is sent once, as it is, and ends when it ends.
    pub(crate) fn only_watches(&self, side: Side) -> bool {
        let settings = &*self.0;
        settings.max_attempts == 1
            && !matches!(self.total_timeout(side), TotalTimeout::Always(_))
            && settings.attempt_timeout.is_none()
            && settings.credentials.is_none()
            && !settings.idempotency_keys
    }

    /// The time limit of an attempt that begins with `remaining` left of the deadline.
    pub(crate) fn attempt_timeout(
        &self,
        attempt: u32,
        remaining: Option<Duration>,
    ) -> Option<Duration> {
        if self.0.last_attempt_uncapped && attempt == self.0.max_attempts {
            return None;
        }
        match self.0.attempt_timeout? {
            builder::AttemptTimeout::Fixed(limit) => Some(limit),
            builder::AttemptTimeout::Share(share) => {
                let limit = remaining?.mul_f64(share);
                Some(limit.max(builder::SHORTEST_TIMEOUT))
            }
        }
    }

    pub(crate) fn min_attempt(&self) -> Duration {
        self.0.min_attempt
    }

    /// The own wait before retry number `retry`, which counts from 1.
    pub(crate) fn backoff(&self, cause: Cause, retry: u32, previous: Duration) -> Duration {
        let backoff = if cause.is_throttled() {
            &self.0.throttled_backoff
        } else {
            &self.0.backoff
        };
        backoff.delay(retry, previous)
    }

    pub(crate) fn defer_waits_over(&self) -> Option<Duration> {
        self.0.defer_waits_over
    }

    pub(crate) fn max_retry_after(&self) -> Duration {
        self.0.max_retry_after
    }

    pub(crate) fn replay_limit(&self) -> usize {
        self.0.replay_limit
    }

    pub(crate) fn on_exhausted(&self, side: Side) -> OnExhausted {
        self.0.on_exhausted.unwrap_or(match side {
            Side::Client => OnExhausted::Respond,
            Side::Handlers => OnExhausted::Terse,
        })
    }

    pub(crate) fn is_idempotent(&self, request: &Parts, side: Side) -> bool {
        let trust_key = self.0.trust_idempotency_key.unwrap_or(side == Side::Client);
        is_idempotent(request, self.0.trust_methods, trust_key)
    }

    /// Gives a request that could not be repeated otherwise a key of its own, if the policy says so.
    pub(crate) fn give_key(
        &self,
        request: &mut Parts,
        side: Side,
        before: Option<Uuid>,
    ) -> Option<Uuid> {
        if !self.0.idempotency_keys || self.is_idempotent(request, side) {
            return None;
        }
        idempotency::give_key(request, before)
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.0.credentials.as_ref()
    }

    /// Reads how long the response asks to wait.
    pub(crate) fn hint(&self, headers: &http::HeaderMap, now: SystemTime) -> Hint {
        retry_after::read_with(headers, &self.0.vendor_fields, now)
    }

    /// Asks the user's classifier, then the tables.
    pub(crate) fn classify(&self, outcome: &Outcome<'_>, side: Side) -> Verdict {
        let own = self.0.classifier.as_ref();
        own.and_then(|classifier| classifier.classify(outcome))
            .unwrap_or_else(|| self.classify_by_tables(outcome.result, side))
    }

    /// Whether there is a classifier of the user's.
    pub(crate) fn has_classifier(&self) -> bool {
        self.0.classifier.is_some()
    }

    /// The verdict for a call whose request head was not kept.
    pub(crate) fn classify_by_tables(&self, result: ResultView<'_>, side: Side) -> Verdict {
        static HANDLERS: StatusTable = StatusTable::handlers();
        static CLIENT: StatusTable = StatusTable::DEFAULT;
        let handlers = side == Side::Handlers;
        let default = if handlers { &HANDLERS } else { &CLIENT };
        let statuses = self.0.statuses.as_ref().unwrap_or(default);
        classify::by_default(result, statuses, handlers)
    }

    /// Sees an error of the inner service, and what it proves.
    pub(crate) fn see_error<'a>(&self, error: &'a dyn Any) -> ErrorView<'a> {
        let trust = Trust {
            proof: self.0.trust_proof,
            reqwest: self.0.no_redirects,
            outermost: false,
        };
        ErrorView::new(error, &self.0.error_types, trust)
    }

    pub(crate) fn error_types(&self) -> &[ErrorType] {
        &self.0.error_types
    }

    /// The id of the request, for the `instance` member of the `503`.
    pub(crate) fn instance(&self, request: &Parts) -> Option<String> {
        self.0.instance.as_ref().and_then(|read| read(request))
    }
}
