//! What a call does where a gate is not enforced, or retries were switched off meanwhile.

use super::Call;
use crate::{
    control::{Gate, Gates, Mode, Sleeper},
    deadline::Ownership,
    decide::{Decision, ReplayClass, Situation, decide},
    observe::{Shadow, ShadowDecision},
    reason::{Cause, SkipReason, StopReason},
};
use std::{
    task::Context,
    time::{Duration, Instant},
};

/// What a call knows of the gates that it is not held to. None of it while all are enforced.
pub(crate) struct Gated {
    gates: Gates,
    /// What might have been repeated.
    class: ReplayClass,
    /// Whether its body would have been kept.
    fits: bool,
    /// When it would have been cut. `None` once that was counted.
    deadline: Option<Instant>,
    /// Why it would have been left to another layer. `None` once that was counted.
    skips: Option<SkipReason>,
}

impl Gated {
    pub(crate) fn new(gates: Gates) -> Option<Box<Self>> {
        let gated = Self {
            gates,
            class: ReplayClass::Never(SkipReason::Disabled),
            fits: false,
            deadline: None,
            skips: None,
        };
        (!gates.all_enforce()).then(|| Box::new(gated))
    }

    /// Who retries the call in the place of this layer, as far as it is held to that.
    pub(crate) fn above(&mut self, above: Option<Ownership>) -> Option<Ownership> {
        if self.gates.skipping.enforces() {
            return above;
        }
        self.skips = above.map(|_| SkipReason::OwnedAbove);
        None
    }

    /// What may be repeated.
    pub(crate) fn class(&mut self, class: ReplayClass, fits: bool) -> ReplayClass {
        self.class = class;
        self.fits = fits;
        match class {
            ReplayClass::Never(_) => class,
            _ if self.gates.retry.enforces() => class,
            _ => ReplayClass::Never(SkipReason::Disabled),
        }
    }

    /// When the call is cut.
    pub(crate) fn deadline(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        if self.gates.deadline.enforces() {
            return deadline;
        }
        self.deadline = deadline.filter(|_| self.gates.deadline.observes());
        None
    }
}

impl<S, B> Call<S, B> {
    /// Whether no retry may be sent, whatever was decided when the call began.
    #[inline]
    pub(super) fn retries_off(&self) -> bool {
        self.shared.retries_off(&self.key)
    }

    /// What may be repeated now.
    pub(super) fn class_now(&self) -> ReplayClass {
        match self.class {
            ReplayClass::IfUnprocessed | ReplayClass::Full if self.retries_off() => {
                ReplayClass::Never(SkipReason::Disabled)
            }
            class => class,
        }
    }

    /// An error when retries are off and it is one that the call waits for. Wakes the call when that
    /// changes.
    pub(crate) fn poll_switch(&mut self, cx: &mut Context<'_>) -> Result<(), StopReason> {
        let Some(switch) = self.shared.control.switch() else {
            return Ok(());
        };
        if self.progress.attempts == 0 {
            return Ok(());
        }
        let sleeper = self.sleeper.get_or_insert_with(|| Sleeper::new(switch));
        // First this, then the look: a change in between wakes the call again.
        sleeper.register(cx.waker());
        if self.retries_off() {
            return Err(StopReason::Disabled);
        }
        Ok(())
    }

    /// Whether the budget is neither filled nor asked.
    pub(super) fn has_no_budget(&self) -> bool {
        let mode = self.gated.as_ref().map(|gated| gated.gates.budget);
        mode == Some(Mode::Off)
    }

    /// Whether a retry is sent that the budget has denied.
    pub(super) fn overrules_budget(&self, reason: StopReason, now: Instant) -> bool {
        let gated = self.gated.as_ref();
        let observes = gated.is_some_and(|gated| gated.gates.budget.observes());
        if !observes || reason == StopReason::ShuttingDown {
            return false;
        }
        self.shadow(Gate::Budget, ShadowDecision::Stop(reason), now);
        true
    }

    /// Whether the call is retried although a layer below has given up.
    pub(super) fn overrules_below(&mut self) -> bool {
        match &mut self.gated {
            Some(gated) if !gated.gates.skipping.enforces() => {
                gated.skips.get_or_insert(SkipReason::FinalAnswer);
                true
            }
            _ => false,
        }
    }

    /// Whether retries are not sent, and counted.
    pub(super) fn observes_retries(&self) -> bool {
        let gated = self.gated.as_ref();
        gated.is_some_and(|gated| gated.gates.retry.observes())
    }

    /// Counts a deadline that would have cut the call by now, or with less than `least` left.
    #[inline]
    pub(super) fn observe_deadline(&mut self, least: Duration, now: Instant) {
        if let Some(gated) = &mut self.gated {
            let passed = |deadline: &mut Instant| {
                let left = deadline.saturating_duration_since(now);
                left < least || left.is_zero()
            };
            if gated.deadline.take_if(passed).is_some() {
                let decision = ShadowDecision::Stop(StopReason::DeadlineReached);
                self.shadow(Gate::Deadline, decision, now);
            }
        }
    }

    /// Counts what gates that are only observed would have made of an attempt that ended.
    #[inline]
    pub(super) fn observe_decision(
        &mut self,
        situation: &Situation,
        cause: Option<Cause>,
        now: Instant,
    ) {
        if self.gated.is_some() {
            self.gates_would(*situation, cause.unwrap_or(Cause::Other), now);
        }
    }

    #[cold]
    fn gates_would(&mut self, mut situation: Situation, cause: Cause, now: Instant) {
        let Some(gated) = &mut self.gated else {
            return;
        };
        let gates = gated.gates;
        if gates.retry.observes() {
            situation.class = gated.class;
            situation.replayable = gated.fits;
        }
        let decision = decide(&situation);
        if matches!(decision, Decision::LetStand(_)) {
            return;
        }
        let skips = gated.skips.take().filter(|_| gates.skipping.observes());
        let deadline = gated.deadline;
        if let Some(reason) = skips {
            self.shadow(Gate::Skipping, ShadowDecision::Skip(reason), now);
        }
        if gates.retry.observes() {
            let decision = match decision {
                Decision::Stop(reason) => ShadowDecision::Stop(reason),
                _ => ShadowDecision::Retry(cause),
            };
            self.shadow(Gate::Retry, decision, now);
        }
        if let (Some(deadline), Decision::RetryAfter(_)) = (deadline, decision) {
            situation.remaining = Some(deadline.saturating_duration_since(now));
            if let Decision::Stop(reason) = decide(&situation) {
                if let Some(gated) = &mut self.gated {
                    gated.deadline = None;
                }
                self.shadow(Gate::Deadline, ShadowDecision::Stop(reason), now);
            }
        }
    }

    fn shadow(&self, gate: Gate, decision: ShadowDecision, now: Instant) {
        let shadow = Shadow { gate, decision };
        self.tell(now, |observer, call| observer.shadow(call, &shadow));
    }
}
