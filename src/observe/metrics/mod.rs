//! What calls do, as metrics over the [`metrics`](::metrics) facade.
//!
//! ```
//! use tower_retry_budget::{RetryBudgetLayer, observe::metrics::Metrics};
//!
//! // First the recorder, of whatever exporter there is; then the first call.
//! let metrics = Metrics::new();
//! let layer = RetryBudgetLayer::new().observe(metrics.clone());
//!
//! // Before each scrape, for what changes while nothing happens:
//! metrics.refresh();
//! ```
//!
//! Handles and descriptions are made at their first use and kept, so the recorder has to be installed
//! before the first call. One [`Metrics`] may serve several layers.
//!
//! # The metrics
//!
//! Each name begins with a prefix, `tower_retry_` unless set otherwise. A series appears when there is
//! something to write into it.
//!
#![doc = include_str!("metrics.md")]
//!
//! The durations of a service behind handlers include what its handlers took. Where
//! [`operation_fn`](crate::RetryBudgetLayer::operation_fn) names operations, every metric with a
//! `dependency` has an `operation` too, except for the budget's balance and cap.
//!
//! # Labels are bounded
//!
//! The first 100 dependencies have a label of their own, all others are `other`
//! ([`max_dependencies`](MetricsBuilder::max_dependencies)), and so it is with operations; not more than
//! ten series are kept for each of the dependencies in all. A function can name
//! [dependencies](MetricsBuilder::dependency_fn). The number of an attempt is `1` to `4`, or `5+`. The
//! balance and the cap of an account that was evicted are 0.
//!
//! # What to compute
//!
//! - Logical success, what callers see: `calls_total{outcome=~"success|final_answer"}` over `calls_total`
//!   without `cancelled`.
//! - Physical success, what the dependency does: `attempts_total{outcome=~"success|final_answer"}` over
//!   `attempts_total` without `cancelled`. What lies between the two is what retries mend.
//! - Success rate by attempt: `success_total` over `sum by (attempt) (attempts_total)`. Retries help where
//!   that of attempt 2 is well over zero, and only add load where it is near it.
//! - A budget that is kept in each process: `sum()` over processes. That of a fleet is the same in all of
//!   them: `max()`, not `sum()`.
//!
#![doc = include_str!("incident.md")]

mod builder;
mod labels;
mod layers;
mod names;
mod series;

pub use self::{
    builder::{DEFAULT_PREFIX, MetricsBuilder},
    names::{ALL, Kind, Metric},
};
use self::{
    labels::Labels,
    layers::Layers,
    series::{Series, attempt, lock},
};
use super::{
    Adapted, AttemptFinished, CallOutcome, CallView, Observe, Phase, RetryScheduled, Shadow,
    Skipped,
};
use crate::{
    Exhausted,
    budget::StoreMode,
    clock,
    reason::{Cause, StopReason},
};
use ::metrics::{Label, gauge};
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, Once},
    time::{Duration, Instant},
};

/// How many configurations are told apart.
const MAX_CONFIGS: usize = 100;

/// An observer that writes metrics. A clone writes the same ones.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    prefix: Cow<'static, str>,
    labels: Labels,
    described: Once,
    layers: Layers,
    configs: Mutex<Vec<String>>,
}

impl Metrics {
    /// Creates an observer with the defaults.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> MetricsBuilder {
        MetricsBuilder::new()
    }

    /// Writes the gauges that change while nothing happens: balances, the oldest wait, hold-offs, and the
    /// bytes kept. While calls go by that is done once a second.
    pub fn refresh(&self) {
        self.refresh_at(clock::now());
    }

    /// Returns the full name of each histogram, and the upper bounds of buckets that suit it.
    pub fn buckets(&self) -> impl Iterator<Item = (String, &'static [f64])> {
        let histograms = ALL.iter().filter(|metric| metric.kind == Kind::Histogram);
        histograms.map(|metric| (format!("{}{}", self.0.prefix, metric.name), metric.buckets))
    }

    fn describe(&self) {
        self.0.described.call_once(|| {
            for metric in ALL {
                let name = format!("{}{}", self.0.prefix, metric.name);
                match metric.kind {
                    Kind::Counter => ::metrics::describe_counter!(name, metric.unit, metric.help),
                    Kind::Gauge => ::metrics::describe_gauge!(name, metric.unit, metric.help),
                    Kind::Histogram => {
                        ::metrics::describe_histogram!(name, metric.unit, metric.help);
                    }
                }
            }
        });
    }

    fn refresh_at(&self, now: Instant) {
        let (kept, budgets) = self.0.layers.look();
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
        self.gauge(&names::REPLAY_BYTES, vec![]).set(kept as f64);
        for series in self.0.labels.all() {
            series.refresh(now);
            if let Some(key) = &series.key {
                let accounts = budgets.iter().filter_map(|budget| budget.account(key, now));
                // Of several budgets for one dependency, the one that is the first to deny.
                let least = accounts
                    .map(|account| (account.balance(), account.cap()))
                    .min_by(|(a, _), (b, _)| a.total_cmp(b));
                series.account(least);
            }
        }
    }

    fn gauge(&self, metric: &Metric, labels: Vec<Label>) -> ::metrics::Gauge {
        gauge!(self.0.labels.base(vec![]).name(metric), labels)
    }

    fn ended(&self, call: &CallView<'_>, outcome: CallOutcome) -> Arc<Series> {
        let series = self.0.labels.of(call);
        let (index, name) = (outcome as usize, outcome.as_str());
        if let Some(since) = call.waiting_since {
            series.wait_ended(since);
        }
        if let Some(calls) = series.calls(index, name) {
            calls.increment(1);
        }
        if let Some(duration) = series.call_duration(index, name) {
            duration.record(call.elapsed());
        }
        series.attempts_per_call().record(call.attempts);
        if !call.waited.is_zero() {
            series.wait().record(call.waited);
        }
        if let Some(remaining) = call.remaining() {
            series.remaining().record(remaining);
        }
        if self.0.layers.is_due(call.at) {
            self.refresh_at(call.at);
        }
        series
    }
}

impl Observe for Metrics {
    fn call_started(&self, call: &CallView<'_>) {
        self.describe();
        self.0.layers.meet(call);
    }

    fn adapted(&self, call: &CallView<'_>, adapted: &Adapted) {
        let (series, health) = (self.0.labels.of(call), &adapted.health);
        series.adaptive_limit().set(adapted.limit);
        series.adaptive_error_ratio().set(health.error_rate());
        series.adaptive_latency_ratio().set(health.latency_ratio());
    }

    fn first_attempt_held(&self, call: &CallView<'_>, _: Duration) {
        if let Some(since) = call.waiting_since {
            self.0.labels.of(call).wait_began(since);
        }
    }

    fn attempt_started(&self, call: &CallView<'_>, retry: Option<Cause>) {
        if call.waiting_since.is_none() && retry.is_none() {
            return;
        }
        let series = self.0.labels.of(call);
        if let Some(since) = call.waiting_since {
            series.wait_ended(since);
        }
        if let Some(retries) =
            retry.and_then(|cause| series.retries(cause as usize, cause.as_str()))
        {
            retries.increment(1);
        }
    }

    fn attempt_finished(&self, call: &CallView<'_>, attempt: &AttemptFinished) {
        let series = self.0.labels.of(call);
        let (index, name) = (attempt.outcome as usize, attempt.outcome.as_str());
        if let Some(attempts) = series.attempts(call.attempts, index, name) {
            attempts.increment(1);
        }
        if let Some(duration) = series.attempt_duration(index, name) {
            duration.record(attempt.elapsed);
        }
    }

    fn held_off(&self, call: &CallView<'_>, wait: Duration) {
        let until = call.at.checked_add(wait);
        self.0.labels.of(call).held_until(until);
    }

    fn retry_scheduled(&self, call: &CallView<'_>, retry: &RetryScheduled) {
        let series = self.0.labels.of(call);
        if retry.withdrawn {
            series.spent().increment(1);
        }
        if let Some(since) = call.waiting_since {
            series.wait_began(since);
        }
        if let Some(hint) = retry.hint {
            series.retry_after().record(hint);
        }
    }

    fn budget_denied(&self, call: &CallView<'_>, _: Cause, _: StopReason) {
        self.0.labels.of(call).denied().increment(1);
    }

    fn shadow(&self, _: &CallView<'_>, shadow: &Shadow) {
        let labels = vec![
            Label::from_static_parts("gate", shadow.gate.as_str()),
            Label::from_static_parts("decision", shadow.decision.as_str()),
        ];
        let name = self.0.labels.base(vec![]).name(&names::SHADOW);
        ::metrics::counter!(name, labels).increment(1);
    }

    fn succeeded(&self, call: &CallView<'_>) {
        let series = self.ended(call, CallOutcome::Success);
        let (index, number) = attempt(call.attempts);
        if let Some(success) = series.success(index, number) {
            success.increment(1);
        }
    }

    fn skipped(&self, call: &CallView<'_>, skipped: &Skipped) {
        let series = self.ended(call, skipped.outcome());
        let reason = skipped.reason;
        if let Some(skipped) = series.skipped(reason as usize, reason.as_str()) {
            skipped.increment(1);
        }
    }

    fn stopped(&self, call: &CallView<'_>, exhausted: &Exhausted) {
        let series = self.ended(call, CallOutcome::Exhausted);
        let reason = exhausted.reason();
        if let Some(stopped) = series.exhausted(reason as usize, reason.as_str()) {
            stopped.increment(1);
        }
        let too_long = reason == StopReason::RetryAfterTooLong;
        if let Some(hint) = call.hint.filter(|_| too_long) {
            series.retry_after().record(hint);
        }
    }

    fn cancelled(&self, call: &CallView<'_>, _: Phase) {
        self.ended(call, CallOutcome::Cancelled);
    }

    fn store_mode_changed(&self, mode: StoreMode) {
        self.describe();
        for other in [StoreMode::Fleet, StoreMode::LocalShare] {
            let label = Label::from_static_parts("mode", other.as_str());
            let gauge = self.gauge(&names::MODE, vec![label]);
            gauge.set(if other == mode { 1.0 } else { 0.0 });
        }
    }

    fn store_failed(&self, kind: &'static str) {
        self.describe();
        let label = Label::from_static_parts("kind", kind);
        let name = self.0.labels.base(vec![]).name(&names::STORE_ERRORS);
        ::metrics::counter!(name, vec![label]).increment(1);
    }

    fn configuration_changed(&self, hash: &str) {
        self.describe();
        let mut configs = lock(&self.0.configs);
        let known = configs.iter().any(|known| known == hash);
        let hash = if known || configs.len() < MAX_CONFIGS {
            hash
        } else {
            "other"
        };
        if !configs.iter().any(|known| known == hash) {
            configs.push(hash.to_owned());
        }
        for config in configs.iter() {
            let label = Label::new("hash", config.clone());
            let gauge = self.gauge(&names::CONFIG, vec![label]);
            gauge.set(if config == hash { 1.0 } else { 0.0 });
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
