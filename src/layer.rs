use crate::{
    body::ReplayMemory,
    budget::{Budget, BudgetScope, Key, TokenBudget},
    control::{ControlCell, Gates, RetryControl},
    deadline::{Inbound, LayeredRetries, RetryHeaders},
    deadline_layer::DeadlineLayer,
    hold_off::{HoldOff, HoldOffs},
    observe::Observe,
    policy::{Adaptive, AdaptiveLimits, Health, RetryPolicy, Side},
    service::RetryBudget,
    shared::Shared,
    waiting::WaitingRoom,
};
use http::{Uri, request::Parts};
use std::{any::TypeId, borrow::Cow, sync::Arc, time::Instant};
use tower_layer::Layer;

/// Retries requests within a budget, a deadline and the server's own `Retry-After`.
///
/// The state lives in the layer: every service made from it or from its clones shares one budget,
/// one bound on replay memory and one on waiting calls.
///
/// ```
/// use std::time::Duration;
/// use tower_retry_budget::{RetryBudgetLayer, budget::TokenBudget, policy::RetryPolicy};
///
/// let layer = RetryBudgetLayer::default();
///
/// let policy = RetryPolicy::builder()
///     .max_attempts(4)
///     .total_timeout(Duration::from_secs(10))
///     .build()?;
/// let layer = RetryBudgetLayer::new()
///     .policy(policy)
///     .budget(TokenBudget::builder().ratio(0.1).build()?);
/// # let _ = layer;
/// # Ok::<_, tower_retry_budget::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryBudgetLayer {
    shared: Arc<Shared>,
}

/// How many calls of a layer may wait for a retry at once.
const MAX_WAITING: usize = 4096;

impl RetryBudgetLayer {
    /// Creates a layer for a client: everything on.
    pub fn new() -> Self {
        Self::on(
            Side::Client,
            RetryPolicy::default(),
            BudgetScope::authority(),
        )
    }

    /// Creates a layer to wrap a server's own handlers.
    ///
    /// It makes one attempt unless a policy asks for more, and then retries only 502, 503 and 504
    /// without `Retry-After`, on idempotent methods. Nothing is cut by default but at the deadline that
    /// the caller sent, an `Idempotency-Key` from outside is not trusted, all requests share one account
    /// of the budget, and a `503` has no details. Handlers see the request's headers as they came.
    ///
    /// It contains a [`DeadlineLayer`]: what that reads, enforces, hands on to the calls of the handlers
    /// and tells their callers is the same here.
    pub fn for_handlers() -> Self {
        let key = BudgetScope::fixed(Key::from_static("handlers"));
        let layer = Self::on(Side::Handlers, RetryPolicy::never(), key);
        layer.with(|shared| shared.inbound = Some(Inbound::default()))
    }

    fn on(side: Side, policy: RetryPolicy, keys: BudgetScope) -> Self {
        let shared = Shared {
            side,
            policy,
            policy_fn: None,
            budget: Arc::new(TokenBudget::default()),
            keys,
            headers: RetryHeaders::default(),
            propagate_to: None,
            layered: LayeredRetries::default(),
            hold_off: None,
            adaptive: None,
            inbound: None,
            memory: ReplayMemory::new(ReplayMemory::DEFAULT_LIMIT),
            waiting: Arc::new(WaitingRoom::new(MAX_WAITING)),
            observer: None,
            operation_fn: None,
            routes: None,
            gates: Gates::default(),
            control: ControlCell::default(),
            #[cfg(feature = "serde")]
            loaded: None,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        // Another layer from here on, so that a handle never reaches what is configured otherwise.
        shared.control = ControlCell::default();
        change(shared);
        self
    }

    /// Sets the policy of requests that neither bring their own nor get one from
    /// [`policy_fn`](Self::policy_fn).
    #[must_use]
    pub fn policy(self, policy: RetryPolicy) -> Self {
        self.with(|shared| shared.policy = policy)
    }

    /// Chooses a policy by the head of the request; `None` falls back to the layer's.
    ///
    /// A `RetryPolicy` in the request's extensions comes before it.
    #[must_use]
    pub fn policy_fn(
        self,
        choose: impl Fn(&Parts) -> Option<RetryPolicy> + Send + Sync + 'static,
    ) -> Self {
        self.with(|shared| shared.policy_fn = Some(Arc::new(choose)))
    }

    /// Sets the budget. A [`TokenBudget`] with its defaults, unless set.
    #[must_use]
    pub fn budget(self, budget: impl Budget) -> Self {
        self.shared_budget(Arc::new(budget))
    }

    /// Sets a budget that other layers have as well, or that the caller goes on looking at.
    #[must_use]
    pub fn shared_budget(self, budget: Arc<dyn Budget>) -> Self {
        self.with(|shared| shared.budget = budget)
    }

    /// Sets what the accounts of the budget are kept by. By default a client's layer keeps one for each
    /// authority, and a layer for handlers one for all requests.
    #[must_use]
    pub fn budget_scope(self, scope: BudgetScope) -> Self {
        self.with(|shared| shared.keys = scope)
    }

    /// Sets by which headers services tell each other of deadlines and retries.
    ///
    /// A client's layer writes them; a layer for handlers reads them. What is switched off here is
    /// neither written nor read.
    #[must_use]
    pub fn headers(self, headers: RetryHeaders) -> Self {
        self.with(|shared| {
            if let Some(inbound) = &mut shared.inbound {
                inbound.headers = headers.clone();
            }
            shared.headers = headers;
        })
    }

    /// Does not tell the next hop how much time is left. A header of that name that is on the request
    /// already is not touched
    /// ([`x-deadline-remaining-ms`](crate::deadline::DEADLINE_REMAINING_MS)).
    #[must_use]
    pub fn no_deadline_header(self) -> Self {
        let headers = self.shared.headers.clone().deadlines([]);
        self.headers(headers)
    }

    /// Does not tell the next hop which attempt it sees
    /// ([`x-retry-attempt`](crate::deadline::RETRY_ATTEMPT)).
    #[must_use]
    pub fn no_attempt_header(self) -> Self {
        let headers = self.shared.headers.clone().attempt(None);
        self.headers(headers)
    }

    /// Limits which hosts are told of deadlines and retries. By default every host is.
    ///
    /// Others get none of the headers, also none that the caller put there.
    #[must_use]
    pub fn propagate_to(self, tell: impl Fn(&Uri) -> bool + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.propagate_to = Some(Arc::new(tell)))
    }

    /// Sets what the layer does under a caller that retries already. By default it skips its own
    /// retries.
    #[must_use]
    pub fn layered_retries(self, layered: LayeredRetries) -> Self {
        self.with(|shared| shared.layered = layered)
    }

    /// Sets how the requests of a server are received: the same as for a [`DeadlineLayer`], which a
    /// layer [for handlers](Self::for_handlers) contains. A client's layer receives none.
    #[must_use]
    pub fn inbound(self, inbound: DeadlineLayer) -> Self {
        self.with(|shared| {
            if let Some(known) = &mut shared.inbound {
                let edge = known.edge;
                *known = inbound.into_inbound();
                // Whoever said so once does not believe strangers, in whatever order it was said.
                known.edge |= edge;
            }
        })
    }

    /// For a layer for handlers at the edge, where callers are strangers: the headers are removed from
    /// requests unread, and nobody is told anything. See [`DeadlineLayer::edge`].
    #[must_use]
    pub fn edge(self) -> Self {
        self.with(|shared| {
            if let Some(inbound) = &mut shared.inbound {
                inbound.edge = true;
            }
        })
    }

    /// Makes a `Retry-After` hold for all calls to the same dependency. Off by default.
    #[must_use]
    pub fn hold_off(self, hold_off: HoldOff) -> Self {
        self.with(|shared| shared.hold_off = Some(Arc::new(HoldOffs::new(hold_off))))
    }

    /// Lowers the attempts of a call while its dependency fails, is slower than usual, or has an open
    /// breaker. Off by default. See [`policy::adaptive`](crate::policy::adaptive).
    #[must_use]
    pub fn adaptive(self, limits: AdaptiveLimits) -> Self {
        self.with(|shared| shared.adaptive = Some(Arc::new(Adaptive::new(limits))))
    }

    /// Returns how the dependency of this key does. `None` without [`adaptive`](Self::adaptive), and
    /// where nothing is kept of it.
    pub fn health(&self, key: &Key, now: Instant) -> Option<Health> {
        let shared = self.shared.in_force();
        shared.adaptive.as_ref()?.health(key, now)
    }

    /// Sets how many bytes of request bodies are kept at most, over all calls. 64 MiB by default.
    ///
    /// Beyond it a body streams on, and its call is not retried once a byte was read.
    #[must_use]
    pub fn max_replay_bytes(self, bytes: usize) -> Self {
        self.with(|shared| shared.memory = ReplayMemory::new(bytes))
    }

    /// Sets how many calls may wait for a retry at once. 4096 by default.
    ///
    /// Beyond it a call that failed stops with
    /// [`Overloaded`](crate::reason::StopReason::Overloaded).
    #[must_use]
    pub fn max_waiting(self, calls: usize) -> Self {
        self.with(|shared| shared.waiting = Arc::new(WaitingRoom::new(calls)))
    }

    /// Adds somebody who is told of all that happens to calls, beside those added before.
    ///
    /// `tracing` is told in any case. Without an observer nothing is done for one.
    #[must_use]
    pub fn observe<O: Observe>(self, observer: O) -> Self {
        if TypeId::of::<O>() == TypeId::of::<()>() {
            return self;
        }
        self.with(|shared| {
            shared.observer = Some(match shared.observer.take() {
                Some(known) => Arc::new((known, observer)),
                None => Arc::new(observer),
            });
        })
    }

    /// Sets which decisions are enforced, which are only counted, and which are not taken. All are
    /// enforced by default. See [`control`](crate::control#gates).
    #[must_use]
    pub fn gates(self, gates: Gates) -> Self {
        self.with(|shared| shared.gates = gates)
    }

    /// Returns a handle that changes the layer, its clones and the services made from them while they are
    /// in use. See [`control`](crate::control).
    ///
    /// Take it last: a setter makes another layer, which the handle does not reach.
    #[must_use]
    pub fn control(&self) -> RetryControl {
        RetryControl::of(&self.shared)
    }

    /// Names what a call is for, by the head of its request: `GET /users/{id}`, say.
    ///
    /// Observers are told, and the metrics have it as a label. It is asked for once per call, and only if
    /// somebody listens. By default calls have no such name. The names should be few: a path with an id in
    /// it is not one.
    #[must_use]
    pub fn operation_fn(
        self,
        name: impl Fn(&Parts) -> Option<Cow<'static, str>> + Send + Sync + 'static,
    ) -> Self {
        self.with(|shared| shared.operation_fn = Some(Arc::new(name)))
    }
}

impl Default for RetryBudgetLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for RetryBudgetLayer {
    type Service = RetryBudget<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryBudget::new(inner, Arc::clone(&self.shared))
    }
}
