use super::{
    Inner, Metrics,
    labels::{Labels, NameFn},
    layers::Layers,
};
use crate::budget::Key;
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, Once},
};

/// What every metric begins with, unless told otherwise.
pub const DEFAULT_PREFIX: &str = "tower_retry_";

/// Sets up [`Metrics`].
pub struct MetricsBuilder {
    prefix: Cow<'static, str>,
    max_dependencies: usize,
    name: Option<Box<NameFn>>,
}

impl MetricsBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: DEFAULT_PREFIX.into(),
            max_dependencies: 100,
            name: None,
        }
    }

    /// Sets what every name begins with. [`DEFAULT_PREFIX`] by default.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Cow<'static, str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how many dependencies, and how many operations, have labels of their own. 100 by default.
    #[must_use]
    pub fn max_dependencies(mut self, dependencies: usize) -> Self {
        self.max_dependencies = dependencies;
        self
    }

    /// Names the dependency of an account; `None` leaves it the account's own name. Names are bounded as
    /// keys are. Of several accounts with one name the first one's balance is shown.
    #[must_use]
    pub fn dependency_fn(
        mut self,
        name: impl Fn(&Key) -> Option<Cow<'static, str>> + Send + Sync + 'static,
    ) -> Self {
        self.name = Some(Box::new(name));
        self
    }

    /// Builds the observer.
    pub fn build(self) -> Metrics {
        Metrics(Arc::new(Inner {
            labels: Labels::new(&self.prefix, self.max_dependencies, self.name),
            prefix: self.prefix,
            described: Once::new(),
            layers: Layers::new(),
            configs: Mutex::default(),
        }))
    }
}

impl fmt::Debug for MetricsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsBuilder")
            .field("prefix", &self.prefix)
            .field("max_dependencies", &self.max_dependencies)
            .field("dependency_fn", &self.name.is_some())
            .finish()
    }
}
