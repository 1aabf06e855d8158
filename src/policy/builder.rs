use super::{
    Backoff, Classify, Credentials, OnExhausted, RetryPolicy, StatusTable, retry_after::VendorField,
};
use crate::{ConfigError, client::ErrorType, deadline::LEAST_REMAINING};
use http::{HeaderName, request::Parts};
use std::{error::Error, fmt, sync::Arc, time::Duration};

/// The shortest time-out that can be set: with less left nothing is sent.
pub(super) const SHORTEST_TIMEOUT: Duration = LEAST_REMAINING;

type InstanceFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// What a policy says. Valid once it is inside a [`RetryPolicy`].
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) max_attempts: u32,
    /// `None` leaves it to the side; `Some(None)` is no limit.
    pub(super) total_timeout: Option<Option<Duration>>,
    pub(super) attempt_timeout: Option<AttemptTimeout>,
    pub(super) last_attempt_uncapped: bool,
    pub(super) min_attempt: Duration,
    pub(super) backoff: Backoff,
    pub(super) throttled_backoff: Backoff,
    pub(super) max_retry_after: Duration,
    pub(super) defer_waits_over: Option<Duration>,
    pub(super) replay_limit: usize,
    pub(super) statuses: Option<StatusTable>,
    pub(super) classifier: Option<Arc<dyn Classify>>,
    pub(super) error_types: Vec<ErrorType>,
    pub(super) trust_proof: bool,
    pub(super) no_redirects: bool,
    pub(super) trust_methods: bool,
    pub(super) trust_idempotency_key: Option<bool>,
    pub(super) idempotency_keys: bool,
    pub(super) credentials: Option<Credentials>,
    pub(super) vendor_fields: Vec<VendorField>,
    pub(super) on_exhausted: Option<OnExhausted>,
    pub(super) instance: Option<Arc<InstanceFn>>,
}

/// How long one attempt may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AttemptTimeout {
    Fixed(Duration),
    /// Of what is left until the deadline; no limit where there is no deadline.
    Share(f64),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            total_timeout: None,
            attempt_timeout: None,
            last_attempt_uncapped: false,
            min_attempt: Duration::from_millis(10),
            backoff: Backoff::default(),
            throttled_backoff: Backoff::throttled(),
            max_retry_after: Duration::from_secs(60),
            defer_waits_over: None,
            replay_limit: 64 * 1024,
            statuses: None,
            classifier: None,
            error_types: Vec::new(),
            trust_proof: true,
            no_redirects: false,
            trust_methods: true,
            trust_idempotency_key: None,
            idempotency_keys: false,
            credentials: None,
            vendor_fields: Vec::new(),
            on_exhausted: None,
            instance: None,
        }
    }
}

impl Settings {
    pub(super) fn never() -> Self {
        Self {
            max_attempts: 1,
            total_timeout: Some(None),
            ..Self::default()
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max_attempts", &self.max_attempts)
            .field("total_timeout", &self.total_timeout)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("last_attempt_uncapped", &self.last_attempt_uncapped)
            .field("min_attempt", &self.min_attempt)
            .field("backoff", &self.backoff)
            .field("throttled_backoff", &self.throttled_backoff)
            .field("max_retry_after", &self.max_retry_after)
            .field("defer_waits_over", &self.defer_waits_over)
            .field("replay_limit", &self.replay_limit)
            .field("statuses", &self.statuses)
            .field("classifier", &self.classifier.is_some())
            .field("trust_methods", &self.trust_methods)
            .field("trust_idempotency_key", &self.trust_idempotency_key)
            .field("idempotency_keys", &self.idempotency_keys)
            .field("credentials", &self.credentials.is_some())
            .field("vendor_fields", &self.vendor_fields)
            .field("on_exhausted", &self.on_exhausted)
            .finish_non_exhaustive()
    }
}

/// Builds a [`RetryPolicy`].
///
/// | setting | default |
/// |---|---|
/// | [`max_attempts`](Self::max_attempts) | 3 |
/// | [`total_timeout`](Self::total_timeout) | 30 s, for calls that can be retried |
/// | [`attempt_timeout`](Self::attempt_timeout) | none |
/// | [`min_attempt`](Self::min_attempt) | 10 ms |
/// | [`backoff`](Self::backoff) | full jitter, 50 ms doubling to 20 s |
/// | [`throttled_backoff`](Self::throttled_backoff) | equal jitter, 1 s doubling to 20 s |
/// | [`max_retry_after`](Self::max_retry_after) | 60 s |
/// | [`defer_waits_over`](Self::defer_waits_over) | none |
/// | [`replay_limit`](Self::replay_limit) | 64 KiB |
/// | [`statuses`](Self::statuses) | 408 425 429 500 502 503 504 |
/// | [`on_exhausted`](Self::on_exhausted) | [`OnExhausted::Respond`] |
///
/// Around handlers ([`RetryBudgetLayer::for_handlers`](crate::RetryBudgetLayer::for_handlers)) what
/// is left unset is narrower: no total time-out, 502, 503 and 504 only, [`OnExhausted::Terse`], and
/// no trust in an `Idempotency-Key`.
#[derive(Clone, Debug)]
#[must_use]
pub struct RetryPolicyBuilder {
    settings: Settings,
}

impl RetryPolicyBuilder {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings }
    }

    #[cfg(feature = "serde")]
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    #[cfg(feature = "serde")]
    pub(super) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Sets how many times the request is sent at most, the first time included: 3 means one attempt
    /// and two retries. At least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// Sets how long a call may take until the response head, with all its attempts and waits.
    ///
    /// Set, it cuts every call, also one that would not be retried. Unset, it is 30 s and applies
    /// only to idempotent calls whose body is known to fit the replay limit. `None` and
    /// `Duration::MAX` mean no limit. At least 1 ms.
    pub fn total_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        let limit = limit.into().filter(|limit| *limit != Duration::MAX);
        self.settings.total_timeout = Some(limit);
        self
    }

    /// Sets how long each attempt may take until the response head. None by default.
    ///
    /// It applies to every call, also to one that gets a single attempt. A time-out proves nothing
    /// about what the server did, so only an idempotent request is retried after it. `None` and
    /// `Duration::MAX` mean no limit. At least 1 ms.
    pub fn attempt_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        let limit = limit.into().filter(|limit| *limit != Duration::MAX);
        self.settings.attempt_timeout = limit.map(AttemptTimeout::Fixed);
        self
    }

    /// Limits each attempt to a share of what is left until the deadline, more than 0 and at most 1.
    ///
    /// Without a deadline there is no limit.
    pub fn attempt_timeout_share(mut self, share: f64) -> Self {
        self.settings.attempt_timeout = Some(AttemptTimeout::Share(share));
        self
    }

    /// Lets the last attempt take all the time that is left, whatever the attempt time-out.
    pub fn last_attempt_uncapped(mut self) -> Self {
        self.settings.last_attempt_uncapped = true;
        self
    }

    /// Sets the least time that must be left for a retry after its wait. 10 ms by default.
    ///
    /// Waits are planned so that it is left. A retry whose wait took longer, because a timer was late
    /// or the inner service was not ready, is still sent while half of it is left.
    pub fn min_attempt(mut self, least: Duration) -> Self {
        self.settings.min_attempt = least;
        self
    }

    /// Sets the waits between attempts.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets the waits after `429` and `503`.
    pub fn throttled_backoff(mut self, backoff: Backoff) -> Self {
        self.settings.throttled_backoff = backoff;
        self
    }

    /// Sets the longest wait that a server may ask for. 60 s by default.
    ///
    /// A longer one stops the call at once: it is never cut short, since that would be to retry
    /// earlier than asked.
    pub fn max_retry_after(mut self, longest: Duration) -> Self {
        self.settings.max_retry_after = longest;
        self
    }

    /// Sets how long the call sleeps at most before one attempt. Without limit by default.
    ///
    /// A longer wait is handed over: the call ends with [`Deferred`](crate::reason::StopReason::Deferred),
    /// and its response has a [`RetryState`](crate::RetryState) that says when it is to be tried again. A
    /// queue keeps that and resumes the call with it. The retry is paid for by the budget when it is
    /// deferred, and nobody gives that back.
    pub fn defer_waits_over(mut self, longest: impl Into<Option<Duration>>) -> Self {
        self.settings.defer_waits_over = longest.into();
        self
    }

    /// Sets how many bytes of the request body are kept for another attempt. 64 KiB by default.
    ///
    /// A longer body streams on, and the call is not retried once a byte of it was read.
    pub fn replay_limit(mut self, bytes: usize) -> Self {
        self.settings.replay_limit = bytes;
        self
    }

    /// Sets which statuses are failures that another attempt might mend.
    pub fn statuses(mut self, statuses: StatusTable) -> Self {
        self.settings.statuses = Some(statuses);
        self
    }

    /// Sets who is asked first what an outcome means.
    pub fn classifier(mut self, classifier: impl Classify) -> Self {
        self.settings.classifier = Some(Arc::new(classifier));
        self
    }

    /// Makes a type of error known, so that its source chain is searched for the errors that the
    /// crate recognises, and so that it is kept in [`Exhausted`](crate::Exhausted).
    pub fn error_type<E: Error + Send + Sync + 'static>(mut self) -> Self {
        self.settings.error_types.push(ErrorType::of::<E>());
        self
    }

    /// Takes no error for proof that nothing was processed, so that only idempotent requests are
    /// retried.
    ///
    /// For stacks in which an attempt may be more than one request, such as a layer inside that
    /// follows redirects: the second of them may fail to connect after the first was processed.
    pub fn no_proof(mut self) -> Self {
        self.settings.trust_proof = false;
        self
    }

    /// States that the reqwest client inside follows no redirects
    /// (`reqwest::redirect::Policy::none()`), so that its failure to connect proves that nothing was
    /// processed.
    ///
    /// Without this it proves nothing: a POST may have been processed and answered with a redirect to
    /// a server that refuses connections, and reqwest does not say which of the two requests failed.
    pub fn no_redirects(mut self) -> Self {
        self.settings.no_redirects = true;
        self
    }

    /// Sets whether a request may be repeated because of its method: GET, HEAD, OPTIONS, TRACE, PUT, DELETE
    /// and QUERY, which RFC 9110 calls idempotent. True by default.
    pub fn trust_methods(mut self, trust: bool) -> Self {
        self.settings.trust_methods = trust;
        self
    }

    /// Sets whether a request with an `Idempotency-Key` may be repeated whatever its method.
    pub fn trust_idempotency_key(mut self, trust: bool) -> Self {
        self.settings.trust_idempotency_key = Some(trust);
        self
    }

    /// Gives every request that could not be repeated otherwise an `Idempotency-Key` of its own (a random
    /// UUID), the same on each of its attempts. Off by default.
    ///
    /// With it the request may be repeated after any failure, so this is for servers that honour the key
    /// ([draft-ietf-httpapi-idempotency-key-header]) and for no others. A key that the caller set stays,
    /// and an [`Idempotent`](super::Idempotent) extension is obeyed. It trusts keys on the server side too.
    ///
    /// [draft-ietf-httpapi-idempotency-key-header]:
    ///     https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
    pub fn idempotency_keys(mut self) -> Self {
        self.settings.idempotency_keys = true;
        self.settings.trust_idempotency_key = Some(true);
        self
    }

    /// Sets how credentials are refreshed when a server refuses them. By default `401` and `403` are final
    /// answers.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.credentials = Some(credentials);
        self
    }

    /// Reads a vendor's field beside `Retry-After`. May be called more than once.
    pub fn retry_after_field(mut self, field: VendorField) -> Self {
        self.settings.vendor_fields.push(field);
        self
    }

    /// Sets what the layer answers when it gives up.
    pub fn on_exhausted(mut self, answer: OnExhausted) -> Self {
        self.settings.on_exhausted = Some(answer);
        self
    }

    /// Names the request header whose value identifies the request in the `503` (`instance`).
    pub fn instance_header(self, name: HeaderName) -> Self {
        self.instance_fn(move |request| {
            let value = request.headers.get(&name)?;
            value.to_str().ok().map(String::from)
        })
    }

    /// Sets how to find the id that identifies the request in the `503` (`instance`).
    pub fn instance_fn(
        mut self,
        read: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.settings.instance = Some(Arc::new(read));
        self
    }

    /// Builds the policy.
    ///
    /// # Errors
    ///
    /// When `max_attempts` is 0, a time-out is shorter than 1 ms, or a share is not more than 0 and
    /// at most 1.
    pub fn build(self) -> Result<RetryPolicy, ConfigError> {
        let settings = self.settings;
        if settings.max_attempts == 0 {
            let expected = "at least 1: the first attempt counts";
            return Err(ConfigError::new("max_attempts", 0, expected));
        }
        if let Some(Some(limit)) = settings.total_timeout {
            at_least_shortest("total_timeout", limit)?;
        }
        match settings.attempt_timeout {
            Some(AttemptTimeout::Fixed(limit)) => at_least_shortest("attempt_timeout", limit)?,
            Some(AttemptTimeout::Share(share)) if !(share > 0.0 && share <= 1.0) => {
                let expected = "more than 0 and at most 1";
                return Err(ConfigError::new("attempt_timeout_share", share, expected));
            }
            _ => {}
        }
        Ok(RetryPolicy(Arc::new(settings)))
    }
}

fn at_least_shortest(setting: &'static str, limit: Duration) -> Result<(), ConfigError> {
    if limit < SHORTEST_TIMEOUT {
        return Err(ConfigError::new(setting, limit, "at least 1 ms, or none"));
    }
    Ok(())
}
