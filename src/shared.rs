//! What all calls through one layer share.

use crate::{
    body::ReplayMemory,
    budget::{Budget, BudgetScope},
    control::{ControlCell, Gates},
    deadline::{Inbound, LayeredRetries, RetryHeaders},
    hold_off::HoldOffs,
    observe::Observe,
    policy::{Adaptive, RetryPolicy, Side},
    waiting::WaitingRoom,
};
use http::{Uri, request::Parts};
use std::{borrow::Cow, fmt, sync::Arc};

pub(crate) type PropagateFn = dyn Fn(&Uri) -> bool + Send + Sync;

pub(crate) type OperationFn = dyn Fn(&Parts) -> Option<Cow<'static, str>> + Send + Sync;

pub(crate) type PolicyFn = dyn Fn(&Parts) -> Option<RetryPolicy> + Send + Sync;

/// What requests to some hosts have of their own.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) choose: Arc<RouteFn>,
    /// All budgets that it may choose.
    pub(crate) budgets: Vec<Arc<dyn Budget>>,
}

/// What one request has of its own, by its route.
#[derive(Default)]
pub(crate) struct Routed {
    pub(crate) policy: Option<RetryPolicy>,
    pub(crate) budget: Option<Arc<dyn Budget>>,
}

pub(crate) type RouteFn = dyn Fn(&Uri) -> Routed + Send + Sync;

/// The layer's configuration and the state behind it. The state is in `Arc`s of its own, so that a
/// layer that is cloned and configured further still shares it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) side: Side,
    pub(crate) policy: RetryPolicy,
    pub(crate) policy_fn: Option<Arc<PolicyFn>>,
    pub(crate) budget: Arc<dyn Budget>,
    pub(crate) keys: BudgetScope,
    /// What the next hop is told; for handlers, nothing.
    pub(crate) headers: RetryHeaders,
    /// Which hosts are told.
    pub(crate) propagate_to: Option<Arc<PropagateFn>>,
    pub(crate) layered: LayeredRetries,
    pub(crate) hold_off: Option<Arc<HoldOffs>>,
    pub(crate) adaptive: Option<Arc<Adaptive>>,
    /// How a server's requests are received. `None` on the client side.
    pub(crate) inbound: Option<Inbound>,
    pub(crate) memory: Arc<ReplayMemory>,
    pub(crate) waiting: Arc<WaitingRoom>,
    /// Who is told of all that happens, besides `tracing`.
    pub(crate) observer: Option<Arc<dyn Observe>>,
    pub(crate) operation_fn: Option<Arc<OperationFn>>,
    pub(crate) routes: Option<Routes>,
    pub(crate) gates: Gates,
    pub(crate) control: ControlCell,
    #[cfg(feature = "serde")]
    pub(crate) loaded: Option<Arc<crate::config::Loaded>>,
}

impl Shared {
    /// Whether the host that a request goes to is told of deadlines and retries.
    pub(crate) fn tells(&self, uri: &Uri) -> bool {
        self.propagate_to.as_ref().is_none_or(|tell| tell(uri))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("side", &self.side)
            .field("policy", &self.policy)
            .field("policy_fn", &self.policy_fn.is_some())
            .field("keys", &self.keys)
            .field("headers", &self.headers)
            .field("layered", &self.layered)
            .field("adaptive", &self.adaptive)
            .field("inbound", &self.inbound)
            .field("observer", &self.observer.is_some())
            .field("gates", &self.gates)
            .finish_non_exhaustive()
    }
}
