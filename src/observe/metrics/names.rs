use ::metrics::Unit;

/// What a metric is and is called. The list of them is [`ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, without the prefix.
    pub name: &'static str,
    /// Whether it counts up, goes up and down, or spreads over buckets.
    pub kind: Kind,
    /// The names of its labels. `operation` comes to those with a `dependency` where operations are
    /// named.
    pub labels: &'static [&'static str],
    /// The unit, as the facade is told of it.
    pub unit: Unit,
    /// One sentence on what it is.
    pub help: &'static str,
    /// Upper bounds that suit it, for a histogram.
    pub buckets: &'static [f64],
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Goes up only.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Is spread over buckets.
    Histogram,
}

impl Metric {
    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: Kind::Counter,
            labels,
            unit: Unit::Count,
            help,
            buckets: &[],
        }
    }

    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::Gauge,
            ..Self::counter(name, labels, help)
        }
    }

    const fn seconds(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::Histogram,
            unit: Unit::Seconds,
            buckets: SECONDS,
            ..Self::counter(name, labels, help)
        }
    }

    const fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }
}

/// From what one call in a process takes to the longest that a policy waits by default.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

const ATTEMPTS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0];

const DEPENDENCY: &[&str] = &["dependency"];

/// One metric: its constant is its place in the list.
macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $metric:expr;)*) => {
        $(pub(super) const $constant: Metric = $metric;)*

        /// Every metric there is.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    CALLS = Metric::counter("calls_total", &["dependency", "outcome"], "Calls that ended.");
    ATTEMPTS_TOTAL = Metric::counter(
        "attempts_total",
        &["dependency", "attempt", "outcome"],
        "Attempts that ended, by number and outcome.",
    );
    RETRIES = Metric::counter(
        "retries_total",
        &["dependency", "cause"],
        "Retries sent, by the kind of failure that they answer.",
    );
    SUCCESS = Metric::counter(
        "success_total",
        &["dependency", "attempt"],
        "Calls that succeeded, by the number of the attempt that did.",
    );
    ATTEMPTS_PER_CALL = Metric {
        kind: Kind::Histogram,
        buckets: ATTEMPTS,
        ..Metric::counter("attempts_per_call", DEPENDENCY, "Attempts of a call that ended.")
    };
    EXHAUSTED = Metric::counter(
        "exhausted_total",
        &["dependency", "reason"],
        "Calls given up, by stop reason.",
    );
    SKIPPED = Metric::counter(
        "skipped_total",
        &["dependency", "reason"],
        "Outcomes other than a success that were let stand, by skip reason.",
    );
    DENIED = Metric::counter(
        "budget_denied_total",
        DEPENDENCY,
        "Retries that the budget denied. They are not in retries_total.",
    );
    BALANCE = Metric::gauge(
        "budget_balance",
        DEPENDENCY,
        "Retries that the budget has left. A fleet's balance is the same in every process: max(), not sum().",
    );
    CAP = Metric::gauge("budget_cap", DEPENDENCY, "The most that the balance may be.");
    SPENT = Metric::counter(
        "budget_spent_total",
        DEPENDENCY,
        "Retries that the budget granted, those included that were not sent in the end.",
    );
    WAIT = Metric::seconds(
        "wait_seconds",
        DEPENDENCY,
        "Time that a call spent waiting for its retries, for calls that waited.",
    );
    CALL_DURATION = Metric::seconds(
        "call_duration_seconds",
        &["dependency", "outcome"],
        "Time from the call to its answer.",
    );
    ATTEMPT_DURATION = Metric::seconds(
        "attempt_duration_seconds",
        &["dependency", "outcome"],
        "Time from sending an attempt to its outcome.",
    );
    RETRY_AFTER = Metric::seconds(
        "retry_after_seconds",
        DEPENDENCY,
        "Waits that servers asked for, where a retry followed or the call stopped because of it.",
    );
    REMAINING = Metric::seconds(
        "deadline_remaining_seconds",
        DEPENDENCY,
        "Time left at the end of a call that had a deadline.",
    );
    WAITING = Metric::gauge("waiting", DEPENDENCY, "Calls that wait to send.");
    OLDEST_WAIT = Metric::gauge(
        "oldest_wait_seconds",
        DEPENDENCY,
        "How long the call that waits longest has waited.",
    )
    .unit(Unit::Seconds);
    REPLAY_BYTES = Metric::gauge(
        "replay_bytes",
        &[],
        "Request bodies kept to be sent again, over all layers.",
    )
    .unit(Unit::Bytes);
    HOLD_OFF = Metric::gauge(
        "hold_off_active",
        DEPENDENCY,
        "1 while a Retry-After holds back calls, else 0.",
    );
    MODE = Metric::gauge("budget_mode", &["mode"], "1 for the mode of the shared budget.");
    STORE_ERRORS = Metric::counter(
        "budget_store_errors_total",
        &["kind"],
        "Errors of the store of a shared budget.",
    );
    CONFIG = Metric::gauge("config_info", &["hash"], "1 for the configuration in force.");
    ADAPTIVE_LIMIT = Metric::gauge(
        "adaptive_limit",
        DEPENDENCY,
        "Attempts that a call is allowed, where limits are adaptive. 0 while a breaker is open.",
    );
    ADAPTIVE_ERROR_RATIO = Metric::gauge(
        "adaptive_error_ratio",
        DEPENDENCY,
        "The part of the recent attempts that failed, which the adaptive limit follows from.",
    );
    ADAPTIVE_LATENCY_RATIO = Metric::gauge(
        "adaptive_latency_ratio",
        DEPENDENCY,
        "How many times as long as usual the 99th percentile is, which the adaptive limit follows from.",
    );
    SHADOW = Metric::counter(
        "shadow_total",
        &["gate", "decision"],
        "What gates that are only observed would have decided.",
    );
}
