//! Policies as data, for configurations.

use super::{
    Backoff, OnExhausted, Preset, RetryPolicy, RetryPolicyBuilder, builder::AttemptTimeout,
};
use crate::{
    ConfigError,
    config::{JitterData, Limit, Span, Statuses},
};
use http::HeaderName;
use serde::{Deserialize, Serialize};

/// The settings of a policy that are data. What is not set is the preset's, or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicyData {
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<PresetName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_timeout: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_timeout_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_uncapped: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_attempt: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<BackoffData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throttled_backoff: Option<BackoffData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retry_after: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_waits_over: Option<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statuses: Option<Statuses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_proof: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_redirects: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_methods: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust_idempotency_key: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_keys: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_exhausted: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_header: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PresetName {
    InternalCall,
    MeteredApi,
    PaidWork,
    SideEffect,
    BatchStep,
    ConnectionErrors,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::InternalCall => Self::InternalCall,
            PresetName::MeteredApi => Self::MeteredApi,
            PresetName::PaidWork => Self::PaidWork,
            PresetName::SideEffect => Self::SideEffect,
            PresetName::BatchStep => Self::BatchStep,
            PresetName::ConnectionErrors => Self::ConnectionErrors,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Respond,
    PassThrough,
    Terse,
}

impl From<Answer> for OnExhausted {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Respond => Self::Respond,
            Answer::PassThrough => Self::PassThrough,
            Answer::Terse => Self::Terse,
        }
    }
}

/// The settings of a back-off. What is not set stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BackoffData {
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<JitterData>,
}

impl BackoffData {
    fn of(backoff: &Backoff) -> Self {
        Self {
            base: Some(Span(backoff.base())),
            factor: Some(backoff.factor()),
            cap: Some(Span(backoff.cap())),
            jitter: JitterData::of(backoff.jitter()),
        }
    }

    fn apply(self, to: &Backoff) -> Result<Backoff, ConfigError> {
        let mut builder = Backoff::builder()
            .base(self.base.map_or(to.base(), |base| base.0))
            .factor(self.factor.unwrap_or(to.factor()))
            .cap(self.cap.map_or(to.cap(), |cap| cap.0));
        builder = match self.jitter {
            Some(jitter) => builder.jitter(jitter.into()),
            None => builder.jitter(to.jitter().clone()),
        };
        builder.build()
    }
}

impl PolicyData {
    /// Builds the policy.
    ///
    /// # Errors
    ///
    /// What is wrong, with the place of the setting.
    pub(crate) fn build(&self) -> Result<RetryPolicy, (String, ConfigError)> {
        let mut builder = match self.preset {
            Some(preset) => Preset::from(preset).builder(),
            None => RetryPolicy::builder(),
        };
        if let Some(backoff) = self.backoff {
            let backoff = backoff.apply(&builder.settings().backoff);
            let backoff = backoff.map_err(|error| below("backoff", error))?;
            builder = builder.backoff(backoff);
        }
        if let Some(backoff) = self.throttled_backoff {
            let backoff = backoff.apply(&builder.settings().throttled_backoff);
            let backoff = backoff.map_err(|error| below("throttled_backoff", error))?;
            builder = builder.throttled_backoff(backoff);
        }
        if let Some(name) = &self.instance_header {
            let parsed = name.parse::<HeaderName>();
            let refused = |_| ConfigError::new("instance_header", name, "the name of a header");
            let name = parsed.map_err(refused).map_err(at)?;
            builder = builder.instance_header(name);
        }
        if self.attempt_timeout.is_some() && self.attempt_timeout_share.is_some() {
            let expected = "nothing beside `attempt_timeout`";
            let share = self.attempt_timeout_share.unwrap_or_default();
            return Err(at(ConfigError::new(
                "attempt_timeout_share",
                share,
                expected,
            )));
        }
        self.times(self.rest(builder)).build().map_err(at)
    }

    fn times(&self, mut builder: RetryPolicyBuilder) -> RetryPolicyBuilder {
        if let Some(limit) = self.total_timeout {
            builder = builder.total_timeout(limit.0);
        }
        if let Some(limit) = self.attempt_timeout {
            builder = builder.attempt_timeout(limit.0);
        }
        if let Some(share) = self.attempt_timeout_share {
            builder = builder.attempt_timeout_share(share);
        }
        if let Some(least) = self.min_attempt {
            builder = builder.min_attempt(least.0);
        }
        if let Some(longest) = self.max_retry_after {
            builder = builder.max_retry_after(longest.0);
        }
        if let Some(longest) = self.defer_waits_over {
            builder = builder.defer_waits_over(longest.0);
        }
        builder
    }

    fn rest(&self, mut builder: RetryPolicyBuilder) -> RetryPolicyBuilder {
        if let Some(attempts) = self.max_attempts {
            builder = builder.max_attempts(attempts);
        }
        if let Some(bytes) = self.replay_limit {
            builder = builder.replay_limit(bytes);
        }
        if let Some(statuses) = &self.statuses {
            builder = builder.statuses(statuses.0.clone());
        }
        if let Some(answer) = self.on_exhausted {
            builder = builder.on_exhausted(answer.into());
        }
        if self.idempotency_keys == Some(true) {
            builder = builder.idempotency_keys();
        }
        let settings = builder.settings_mut();
        let flags = [
            (
                self.last_attempt_uncapped,
                &mut settings.last_attempt_uncapped,
            ),
            (self.trust_proof, &mut settings.trust_proof),
            (self.no_redirects, &mut settings.no_redirects),
            (self.trust_methods, &mut settings.trust_methods),
        ];
        for (given, flag) in flags {
            *flag = given.unwrap_or(*flag);
        }
        if self.trust_idempotency_key.is_some() {
            settings.trust_idempotency_key = self.trust_idempotency_key;
        }
        builder
    }

    /// What the policy that was built of it says in all. What it leaves to the side of the layer is not
    /// there.
    pub(crate) fn effective(&self, policy: &RetryPolicy) -> Self {
        let settings = &policy.0;
        let answers = [Answer::Respond, Answer::PassThrough, Answer::Terse];
        let (timeout, share) = match settings.attempt_timeout {
            Some(AttemptTimeout::Fixed(limit)) => (Limit(Some(limit)), None),
            Some(AttemptTimeout::Share(share)) => (Limit(None), Some(share)),
            None => (Limit(None), None),
        };
        Self {
            preset: None,
            max_attempts: Some(settings.max_attempts),
            total_timeout: settings.total_timeout.map(Limit),
            attempt_timeout: share.is_none().then_some(timeout),
            attempt_timeout_share: share,
            last_attempt_uncapped: Some(settings.last_attempt_uncapped),
            min_attempt: Some(Span(settings.min_attempt)),
            backoff: Some(BackoffData::of(&settings.backoff)),
            throttled_backoff: Some(BackoffData::of(&settings.throttled_backoff)),
            max_retry_after: Some(Span(settings.max_retry_after)),
            defer_waits_over: Some(Limit(settings.defer_waits_over)),
            replay_limit: Some(settings.replay_limit),
            statuses: settings.statuses.clone().map(Statuses),
            trust_proof: Some(settings.trust_proof),
            no_redirects: Some(settings.no_redirects),
            trust_methods: Some(settings.trust_methods),
            trust_idempotency_key: settings.trust_idempotency_key,
            idempotency_keys: Some(settings.idempotency_keys),
            on_exhausted: answers
                .into_iter()
                .find(|answer| settings.on_exhausted == Some((*answer).into())),
            instance_header: self.instance_header.clone(),
        }
    }
}

fn at(error: ConfigError) -> (String, ConfigError) {
    (error.setting.to_owned(), error)
}

fn below(part: &str, error: ConfigError) -> (String, ConfigError) {
    (format!("{part}.{}", error.setting), error)
}
