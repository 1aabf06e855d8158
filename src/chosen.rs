//! Which policy and which budget a request goes by.

use crate::{budget::Budget, call::Resume, policy::RetryPolicy, shared::Shared};
use http::request::Parts;
use std::sync::Arc;

/// The policy of a request, and the budget of its route, if that has one of its own.
pub(crate) struct Chosen {
    pub(crate) policy: RetryPolicy,
    pub(crate) budget: Option<Arc<dyn Budget>>,
}

impl Chosen {
    /// Chooses, where nothing is to be taken off the request before.
    pub(crate) fn early(shared: &Shared, head: &mut Parts) -> Option<Self> {
        let later = shared.inbound.is_some() || Resume::is_on(head);
        (!later).then(|| Self::of(shared, head))
    }

    #[inline]
    pub(crate) fn of(shared: &Shared, head: &mut Parts) -> Self {
        let routed = shared
            .routes
            .as_ref()
            .map(|routes| (routes.choose)(&head.uri));
        let routed = routed.unwrap_or_default();
        let policy = head
            .extensions
            .remove::<RetryPolicy>()
            .or_else(|| shared.policy_fn.as_ref()?(head))
            .or(routed.policy)
            .unwrap_or_else(|| shared.policy.clone());
        Self {
            policy,
            budget: routed.budget,
        }
    }
}
