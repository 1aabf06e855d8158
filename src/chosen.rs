//! Which policy and which budget a request goes by.

use crate::{budget::Budget, call::Resume, policy::RetryPolicy, shared::Shared};
use http::request::Parts;
use std::sync::Arc;

/// What a request has of its own: nearly all go by what the layer has.
pub(crate) struct Chosen {
    /// Its policy, where that is not the layer's.
    pub(crate) policy: Option<RetryPolicy>,
    /// The budget of its route, where that is not the layer's.
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
            .or(routed.policy);
        Self {
            policy,
            budget: routed.budget,
        }
    }
}
