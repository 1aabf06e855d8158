//! What all calls through one layer share.

use crate::{
    body::ReplayMemory,
    budget::{Budget, Key},
    deadline::StampHeaders,
    policy::{RetryPolicy, Side},
    waiting::WaitingRoom,
};
use http::{Uri, request::Parts};
use std::{fmt, sync::Arc};

pub(crate) type PolicyFn = dyn Fn(&Parts) -> Option<RetryPolicy> + Send + Sync;

/// The layer's configuration and the state behind it. The state is in `Arc`s of its own, so that a
/// layer that is cloned and configured further still shares it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) side: Side,
    pub(crate) policy: RetryPolicy,
    pub(crate) policy_fn: Option<Arc<PolicyFn>>,
    pub(crate) budget: Arc<dyn Budget>,
    pub(crate) keys: KeyScope,
    pub(crate) headers: StampHeaders,
    pub(crate) memory: Arc<ReplayMemory>,
    pub(crate) waiting: Arc<WaitingRoom>,
}

/// What the budget's accounts are kept by.
#[derive(Clone, Debug)]
pub(crate) enum KeyScope {
    Authority,
    One(Key),
}

impl KeyScope {
    pub(crate) fn key(&self, uri: &Uri) -> Key {
        match self {
            Self::Authority => Key::from_uri(uri),
            Self::One(key) => key.clone(),
        }
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
            .finish_non_exhaustive()
    }
}
