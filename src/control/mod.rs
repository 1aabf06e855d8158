//! What an operator may change while calls go by, and how a rollout begins.
//!
//! [`RetryControl`] is a handle on a layer and on all services made from it, before or after:
//!
//! ```
//! use std::sync::Arc;
//! use tower_retry_budget::{RetryBudgetLayer, RetryPolicy, budget::{Key, TokenBudget}};
//!
//! let layer = RetryBudgetLayer::new();
//! let control = layer.control();
//!
//! control.retries_off();
//! control.retries_on();
//!
//! let search = Key::from_uri(&http::Uri::from_static("http://search:8080"));
//! control.retries_off_for(&search)?;
//! control.retries_on_for(&search);
//!
//! let policy = RetryPolicy::builder().max_attempts(2).build()?;
//! control.swap(policy, Arc::new(TokenBudget::builder().ratio(0.1).build()?));
//! # Ok::<_, tower_retry_budget::ConfigError>(())
//! ```
//!
//! # What it binds
//!
//! - **Switched off**: no retry is decided on or sent any more. A call whose attempt fails has that
//!   outcome as its answer, untouched ([`SkipReason::Disabled`]). A call that sleeps before a retry ends at
//!   once, and since its response is gone, it is [`StopReason::Disabled`]; so is one that another process
//!   began ([`RetryState`](crate::RetryState)) and that has used an attempt. Retries that were not sent go
//!   back to the budget. A retry that another thread is handing over at that moment is still sent.
//! - **Swapped** or reloaded: the next call. One that is under way ends by the rules that it began with,
//!   and settles with the budget that it withdrew from.
//! - **Reset** and drained: the next decision.
//!
//! Take the handle once the layer is configured, and before it is used: a setter makes another layer, with
//! a control of its own, and a call that sleeps since before the first handle was taken notices only when
//! its wait is over. (It sends nothing then.) While no handle is taken, all this costs a look at a pointer.
//!
//! # Gates
//!
//! A service that does not retry yet is better shown first what would happen. Each [`Gate`] has a
//! [`Mode`]: `Enforce` by default, `Off` when it is not there, and `Observe`, which on the wire is the
//! same as `Off`, to the byte, and counts what would have been decided: as
//! [`Observe::shadow`](crate::observe::Observe::shadow), and as the metric `shadow_total`.
//!
//! ```
//! use tower_retry_budget::{RetryBudgetLayer, control::{Gate, Gates, Mode}};
//!
//! let gates = Gates::default().with(Gate::Retry, Mode::Observe);
//! let layer = RetryBudgetLayer::new().gates(gates);
//! # let _ = layer;
//! ```
//!
//! | gate | `Off` | `Observe` counts |
//! |---|---|---|
//! | [`Retry`](Gate::Retry) | one attempt, as under a policy of one: the next hop is told that nobody retries, and no body is kept. [Adaptive limits](crate::policy::adaptive) and a hold-off of first attempts go with it: no call is refused or held back | the cause of the failure after which a retry would have been sent, or the stop reason for which the call would have been given up. By the tables, without a classifier of one's own, and without asking the budget |
//! | [`Budget`](Gate::Budget) | no deposit, no withdrawal: retries are limited by the policy alone | the reason of each denial. Deposits and withdrawals go on. A budget that [shuts down](StopReason::ShuttingDown) is obeyed |
//! | [`Deadline`](Gate::Deadline) | no call is refused, cut or stopped for its deadline, and the next hop is told of none. Handlers still inherit what the caller sent. An attempt's own time-out remains | `deadline_reached`, `deadline_too_close` or `retry_after_too_long`, once for a call |
//! | [`Skipping`](Gate::Skipping) | retries here although a layer above retries, or one below has given up | `owned_above` or `final_answer`, for each failure so retried |
//!
//! With [`RetryControl::gates`] they change for the next call; retries that are not enforced any more are
//! switched off for calls under way too. A call that another process began and attempted is refused behind a
//! retry gate that is not enforced: what it still has to send are retries.

mod gates;
mod switch;

pub use self::gates::{Gate, Gates, Mode};
pub(crate) use self::switch::{Sleeper, Switch};
#[cfg(doc)]
use crate::reason::SkipReason;
#[cfg(doc)]
use crate::reason::StopReason;
use crate::{
    ConfigError,
    budget::{Budget, Key, NotSupported},
    clock,
    policy::RetryPolicy,
    shared::Shared,
};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A handle that changes a layer while it is in use. See the [module](self) for what binds when.
///
/// Got from [`RetryBudgetLayer::control`](crate::RetryBudgetLayer::control). Clones are the same handle;
/// dropping them changes nothing.
#[derive(Clone, Debug)]
pub struct RetryControl {
    layer: Arc<Shared>,
    control: Arc<Control>,
}

impl RetryControl {
    pub(crate) fn of(layer: &Arc<Shared>) -> Self {
        let control = layer.control.taken.get_or_init(|| {
            let control = Control::default();
            control.switch.set_gate(!layer.gates.retry.enforces());
            Arc::new(control)
        });
        Self {
            layer: Arc::clone(layer),
            control: Arc::clone(control),
        }
    }

    /// Switches all retries off, those included that calls sleep for.
    pub fn retries_off(&self) {
        self.control.switch.set_all(true);
    }

    /// Switches retries on again. Keys that were switched off by themselves stay off.
    pub fn retries_on(&self) {
        self.control.switch.set_all(false);
    }

    /// Switches the retries of one key off, those included that calls sleep for.
    ///
    /// # Errors
    ///
    /// When 1024 other keys are off already. Nothing changes then.
    pub fn retries_off_for(&self, key: &Key) -> Result<(), ConfigError> {
        if self.control.switch.set_key(key, true) {
            return Ok(());
        }
        let expected = "at most 1024 keys";
        Err(ConfigError::new("retries_off_for", key, expected))
    }

    /// Switches the retries of one key on again. They stay off while [all](Self::retries_off) are.
    pub fn retries_on_for(&self, key: &Key) {
        self.control.switch.set_key(key, false);
    }

    /// Whether no retry to `key` is sent at present.
    pub fn is_off(&self, key: &Key) -> bool {
        self.control.switch.is_off(key)
    }

    /// Puts another policy and another budget in the place of the layer's, both at once: no call sees the
    /// one without the other.
    ///
    /// Policies of single requests, of [`policy_fn`](crate::RetryBudgetLayer::policy_fn) and of the routes
    /// of a configuration still come before it.
    pub fn swap(&self, policy: RetryPolicy, budget: Arc<dyn Budget>) {
        self.change(|shared| {
            shared.policy = policy;
            shared.budget = budget;
        });
    }

    /// Changes the modes of the gates.
    pub fn gates(&self, gates: Gates) {
        self.change(|shared| shared.gates = gates);
    }

    /// Makes the accounts of `key` what new ones are, in each budget that the layer has.
    ///
    /// # Errors
    ///
    /// When one of them cannot do it. The others have done it.
    pub fn reset(&self, key: &Key) -> Result<(), NotSupported> {
        let now = clock::now();
        self.each_budget(|budget| budget.reset_account(key, now))
    }

    /// Empties the accounts of `key`, in each budget that the layer has: retries to it have to be earned
    /// again.
    ///
    /// # Errors
    ///
    /// When one of the budgets cannot do it. The others have done it.
    pub fn drain(&self, key: &Key) -> Result<(), NotSupported> {
        let now = clock::now();
        self.each_budget(|budget| budget.drain_account(key, now))
    }

    /// What the layer was made with.
    #[cfg(feature = "serde")]
    pub(crate) fn layer(&self) -> &Shared {
        &self.layer
    }

    fn each_budget(
        &self,
        act: impl Fn(&dyn Budget) -> Result<(), NotSupported>,
    ) -> Result<(), NotSupported> {
        let shared = self.layer.in_force();
        let routed = shared.routes.iter().flat_map(|routes| &routes.budgets);
        // All of them, whatever the first one says.
        std::iter::once(&shared.budget)
            .chain(routed)
            .map(|budget| act(&**budget))
            .fold(Ok(()), Result::and)
    }

    /// Changes what is in force for the next call.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        let slot = &self.control.in_force;
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        let known = slot.as_ref().unwrap_or(&self.layer);
        let mut shared = Shared::clone(known);
        // What calls hold knows of the switch alone, so that nothing holds itself.
        shared.control = ControlCell {
            taken: Arc::default(),
            switch: Some(Arc::clone(&self.control.switch)),
        };
        let changed = change(&mut shared);
        let off = !shared.gates.retry.enforces();
        *slot = Some(Arc::new(shared));
        drop(slot);
        self.control.switch.set_gate(off);
        changed
    }
}

/// What a handle changes.
#[derive(Debug, Default)]
pub(crate) struct Control {
    switch: Arc<Switch>,
    /// What calls begin with, once it is not the layer's own any more.
    in_force: RwLock<Option<Arc<Shared>>>,
}

/// Where calls find the control of their layer, if anybody took it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlCell {
    taken: Arc<OnceLock<Arc<Control>>>,
    switch: Option<Arc<Switch>>,
}

impl ControlCell {
    /// The switch, if there is one.
    #[inline]
    pub(crate) fn switch(&self) -> Option<&Arc<Switch>> {
        let taken = || self.taken.get().map(|control| &control.switch);
        self.switch.as_ref().or_else(taken)
    }
}

impl Shared {
    /// What a call that begins now goes by.
    #[inline]
    pub(crate) fn in_force(self: &Arc<Self>) -> Arc<Self> {
        let changed = self.control.taken.get().and_then(|control| {
            let in_force = control.in_force.read();
            in_force.unwrap_or_else(PoisonError::into_inner).clone()
        });
        changed.unwrap_or_else(|| Arc::clone(self))
    }

    /// Whether no retry to `key` may be sent.
    #[inline]
    pub(crate) fn retries_off(&self, key: &Key) -> bool {
        !self.gates.retry.enforces()
            || self
                .control
                .switch()
                .is_some_and(|switch| switch.is_off(key))
    }
}
