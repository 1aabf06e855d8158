//! An observer that writes down all that it is told.

use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tower_retry_budget::{
    Exhausted,
    budget::{Key, Settled, StoreMode},
    observe::{
        Adapted, AttemptFinished, CallView, Observe, Phase, RetryScheduled, Shadow, Skipped,
    },
    reason::{Cause, StopReason},
};

/// What was told, one line for each event.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    /// The events since this was last asked.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines())
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no test panics while it records")
    }

    fn put(&self, line: impl Into<String>) {
        self.lines().push(line.into());
    }
}

impl Observe for Recorder {
    fn call_started(&self, call: &CallView<'_>) {
        assert_eq!((call.attempts, call.started), (0, call.at));
        self.put("call_started");
    }

    fn adapted(&self, _: &CallView<'_>, adapted: &Adapted) {
        self.put(format!("adapted {} of {}", adapted.limit, adapted.base));
    }

    fn first_attempt_held(&self, call: &CallView<'_>, wait: Duration) {
        assert_eq!(call.waiting_since, Some(call.at));
        assert!(!wait.is_zero());
        self.put("first_attempt_held");
    }

    fn attempt_started(&self, call: &CallView<'_>, retry: Option<Cause>) {
        let retry = retry.map_or("first", Cause::as_str);
        self.put(format!("attempt_started {} {retry}", call.attempts));
    }

    fn attempt_finished(&self, call: &CallView<'_>, attempt: &AttemptFinished) {
        let outcome = attempt.outcome.as_str();
        self.put(format!("attempt_finished {} {outcome}", call.attempts));
    }

    fn deposited(&self, _: &CallView<'_>, failed: bool) {
        self.put(format!("deposited failed={failed}"));
    }

    fn settled(&self, _: &Key, settled: &Settled) {
        self.put(format!("settled {:?}", settled.outcome));
    }

    fn malformed_hint(&self, _: &CallView<'_>) {
        self.put("malformed_hint");
    }

    fn held_off(&self, _: &CallView<'_>, wait: Duration) {
        self.put(format!("held_off {wait:?}"));
    }

    fn retry_scheduled(&self, call: &CallView<'_>, retry: &RetryScheduled) {
        assert_eq!(call.waiting_since.map(|since| since <= call.at), Some(true));
        self.put(format!("retry_scheduled {}", retry.cause));
    }

    fn budget_denied(&self, call: &CallView<'_>, cause: Cause, reason: StopReason) {
        assert_eq!(call.waiting_since, None);
        self.put(format!("budget_denied {cause} {reason}"));
    }

    fn shadow(&self, _: &CallView<'_>, shadow: &Shadow) {
        let decision = shadow.decision.as_str();
        self.put(format!("shadow {} {decision}", shadow.gate));
    }

    fn not_ready(&self, _: &CallView<'_>, _: Option<&(dyn Error + 'static)>) {
        self.put("not_ready");
    }

    fn succeeded(&self, call: &CallView<'_>) {
        self.put(format!("succeeded {}", call.attempts));
    }

    fn skipped(&self, _: &CallView<'_>, skipped: &Skipped) {
        self.put(format!("skipped {}", skipped.reason));
    }

    fn stopped(&self, call: &CallView<'_>, exhausted: &Exhausted) {
        assert_eq!(call.attempts, exhausted.attempts());
        assert_eq!(call.waited, exhausted.waited());
        assert_eq!(call.elapsed(), exhausted.elapsed());
        self.put(format!("stopped {}", exhausted.reason()));
    }

    fn cancelled(&self, _: &CallView<'_>, during: Phase) {
        self.put(format!("cancelled {}", during.as_str()));
    }

    fn store_mode_changed(&self, mode: StoreMode) {
        self.put(format!("store_mode_changed {}", mode.as_str()));
    }

    fn store_failed(&self, kind: &'static str) {
        self.put(format!("store_failed {kind}"));
    }

    fn configuration_changed(&self, hash: &str) {
        self.put(format!("configuration_changed {hash}"));
    }
}
