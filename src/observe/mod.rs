//! What a call tells of itself while it runs.
//!
//! Everything is told through one trait, [`Observe`], from the transitions of a call and from nowhere
//! else, so that each thing is told once. `tracing` gets it always; whoever else wants to know is added
//! with [`RetryBudgetLayer::observe`](crate::RetryBudgetLayer::observe), beside those that are there.
//!
//! # The order of things
//!
//! ```text
//! call_started
//!   [first_attempt_held]
//!   attempt_started  attempt_finished  [deposited | settled]        once per attempt
//!   [malformed_hint]  [held_off]                                    after a failure
//!   [shadow]                                                        where a gate is only observed
//!   [retry_scheduled | budget_denied]  [not_ready]                  between two attempts
//! succeeded | skipped | stopped | cancelled                         exactly one, at the end
//! ```
//!
//! A call that is dropped in mid-attempt finishes that attempt as
//! [`Cancelled`](AttemptOutcome::Cancelled) first. A retry that was scheduled and is never sent is settled
//! as not sent before the call ends.
//!
//! # In traces
//!
//! A call is a span, `retry_budget`, and each attempt is a span inside of it, `attempt`. Attempts are
//! siblings: a layer inside that propagates the context sends another span id with each of them. The
//! inner service runs inside the span of its attempt, from its call to the head of its response.
//!
//! An attempt is named and filled as OpenTelemetry's conventions have it for HTTP clients:
//! `http.request.method`, `http.request.resend_count` (from the second attempt on), `server.address`,
//! `server.port`, `url.scheme`, `http.response.status_code` and `error.type`; `otel.name`, `otel.kind` and
//! `otel.status_code` are there for `tracing-opentelemetry`. There is no `url.full`: neither path nor query
//! string, header or body is ever written. A call has the `dependency`, `max_attempts`, and at its end
//! `attempts`, `outcome` and the `reason`.
//!
//! Spans are `info`, with the target `tower_retry_budget::call`. Events have the target
//! `tower_retry_budget`: at `info` the calls that were given up, at `debug` every retry and every failure
//! that was let stand, at `trace` other answers. A call that fails has one of these records, which says
//! why it was not retried. The directive `tower_retry_budget::call=off` keeps the events and makes no spans.
//!
//! # An observer of one's own
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use tower_retry_budget::{
//!     Exhausted, RetryBudgetLayer,
//!     observe::{CallView, Observe},
//! };
//!
//! #[derive(Default)]
//! struct GivenUp(AtomicU64);
//!
//! impl Observe for GivenUp {
//!     fn stopped(&self, _: &CallView<'_>, _: &Exhausted) {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!     }
//! }
//!
//! let layer = RetryBudgetLayer::new().observe(GivenUp::default());
//! ```

mod event;
mod log;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics;
mod watch;

pub use self::event::{
    Adapted, AttemptFinished, AttemptOutcome, CallOutcome, CallView, Phase, RetryScheduled, Shadow,
    ShadowDecision, Skipped,
};
#[cfg(feature = "serde")]
pub(crate) use self::log::configured;
pub(crate) use self::{
    log::{Tracing, malformed_deadline, not_persisted, not_refreshed, stopped},
    watch::{WATCHED, Watch, call_span},
};
use crate::{
    Exhausted,
    budget::{Key, Settled, StoreMode},
    reason::{Cause, StopReason},
};
use std::{error::Error, sync::Arc, time::Duration};

/// Learns what happens to calls.
///
/// Every method has an empty default. They run inside `Future::poll`, or inside the drop of a call that
/// is cancelled: they must be short, and must neither block nor panic. `()` observes nothing.
pub trait Observe: Send + Sync + 'static {
    /// A call began. Nothing was sent yet, unless another process began it.
    fn call_started(&self, _call: &CallView<'_>) {}

    /// It was found out how many attempts the call is allowed: once before the first one, and again
    /// before a retry if it has become less. Only where limits are
    /// [adaptive](crate::RetryBudgetLayer::adaptive).
    fn adapted(&self, _call: &CallView<'_>, _adapted: &Adapted) {}

    /// The first attempt of this process is held back for about `wait`: the dependency asked others to
    /// wait, or the call is one that another process began.
    fn first_attempt_held(&self, _call: &CallView<'_>, _wait: Duration) {}

    /// An attempt is being sent; [`attempts`](CallView::attempts) is its number. `retry` is what a
    /// retry is an answer to, `None` for the first attempt.
    fn attempt_started(&self, _call: &CallView<'_>, _retry: Option<Cause>) {}

    /// An attempt ended.
    fn attempt_finished(&self, _call: &CallView<'_>, _attempt: &AttemptFinished) {}

    /// The budget was told of a first attempt that ended.
    fn deposited(&self, _call: &CallView<'_>, _failed: bool) {}

    /// The budget was told what became of a retry. `account` is the key that paid for it.
    fn settled(&self, _account: &Key, _settled: &Settled) {}

    /// A `Retry-After` could not be read; the policy's own back-off applies.
    fn malformed_hint(&self, _call: &CallView<'_>) {}

    /// A `Retry-After` holds back other calls to the dependency, or to one tenant of it, for `wait`.
    fn held_off(&self, _call: &CallView<'_>, _wait: Duration) {}

    /// A retry was granted, and is sent after its wait unless the call ends before.
    fn retry_scheduled(&self, _call: &CallView<'_>, _retry: &RetryScheduled) {}

    /// The budget denied a retry of a failure of kind `cause`. The call stops for `reason` next.
    fn budget_denied(&self, _call: &CallView<'_>, _cause: Cause, _reason: StopReason) {}

    /// A gate that is only observed would have decided otherwise than what happens.
    fn shadow(&self, _call: &CallView<'_>, _shadow: &Shadow) {}

    /// The inner service failed to get ready for a retry. The call stops next.
    fn not_ready(&self, _call: &CallView<'_>, _error: Option<&(dyn Error + 'static)>) {}

    /// The call ended: with a success.
    fn succeeded(&self, _call: &CallView<'_>) {}

    /// The call ended: with an outcome, other than a success, that is its answer.
    fn skipped(&self, _call: &CallView<'_>, _skipped: &Skipped) {}

    /// The call ended: it was given up.
    fn stopped(&self, _call: &CallView<'_>, _exhausted: &Exhausted) {}

    /// The call ended: its future was dropped while it was `during` that phase.
    fn cancelled(&self, _call: &CallView<'_>, _during: Phase) {}

    /// A budget that is shared by a fleet went over to another way of working. Told by the budget.
    fn store_mode_changed(&self, _mode: StoreMode) {}

    /// The store of a shared budget failed, with an error of this kind. Told by the budget.
    fn store_failed(&self, _kind: &'static str) {}

    /// Another configuration is in force, which `hash` tells from others.
    fn configuration_changed(&self, _hash: &str) {}
}

impl Observe for () {}

macro_rules! hand_on {
    ($($event:ident($($arg:ident: $type:ty),*);)*) => {
        /// Tells both, the first one first.
        impl<A: Observe, B: Observe> Observe for (A, B) {
            $(fn $event(&self, $($arg: $type),*) {
                self.0.$event($($arg),*);
                self.1.$event($($arg),*);
            })*
        }

        impl<O: Observe + ?Sized> Observe for Arc<O> {
            $(fn $event(&self, $($arg: $type),*) {
                (**self).$event($($arg),*);
            })*
        }
    };
}

// All of them: what is missing here is told to nobody.
hand_on! {
    call_started(call: &CallView<'_>);
    adapted(call: &CallView<'_>, adapted: &Adapted);
    first_attempt_held(call: &CallView<'_>, wait: Duration);
    attempt_started(call: &CallView<'_>, retry: Option<Cause>);
    attempt_finished(call: &CallView<'_>, attempt: &AttemptFinished);
    deposited(call: &CallView<'_>, failed: bool);
    settled(account: &Key, settled: &Settled);
    malformed_hint(call: &CallView<'_>);
    held_off(call: &CallView<'_>, wait: Duration);
    retry_scheduled(call: &CallView<'_>, retry: &RetryScheduled);
    budget_denied(call: &CallView<'_>, cause: Cause, reason: StopReason);
    shadow(call: &CallView<'_>, shadow: &Shadow);
    not_ready(call: &CallView<'_>, error: Option<&(dyn Error + 'static)>);
    succeeded(call: &CallView<'_>);
    skipped(call: &CallView<'_>, skipped: &Skipped);
    stopped(call: &CallView<'_>, exhausted: &Exhausted);
    cancelled(call: &CallView<'_>, during: Phase);
    store_mode_changed(mode: StoreMode);
    store_failed(kind: &'static str);
    configuration_changed(hash: &str);
}
