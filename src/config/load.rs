//! How a configuration comes into force.

use super::{
    RetryConfig,
    budget::BudgetData,
    limits::{AdaptiveData, HoldOffData},
};
use crate::{
    RetryControl,
    budget::{Budget, BudgetScope},
    control::Gates,
    deadline::{LayeredRetries, RetryHeaders},
    hold_off::HoldOffs,
    layer::RetryBudgetLayer,
    observe,
    policy::{Adaptive, AdaptiveLimits, RetryPolicy},
    shared::{Routed, Routes, Shared},
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The configuration of a layer that has one.
pub(crate) struct Loaded {
    hash: String,
    /// What the configuration leaves open.
    own: Arc<Own>,
    budgets: BTreeMap<String, (BudgetData, Arc<dyn Budget>)>,
    adaptive: Option<AdaptiveData>,
    hold_off: Option<HoldOffData>,
    /// Whether the observer knows.
    told: AtomicBool,
}

/// What a layer had before its first configuration.
struct Own {
    policy: RetryPolicy,
    budget: Arc<dyn Budget>,
    keys: BudgetScope,
    gates: Gates,
    layered: LayeredRetries,
    adaptive: Option<Arc<Adaptive>>,
    hold_off: Option<Arc<HoldOffs>>,
    headers: RetryHeaders,
    inbound: Option<RetryHeaders>,
}

impl Own {
    fn of(shared: &Shared) -> Self {
        let inbound = shared.inbound.as_ref();
        Self {
            policy: shared.policy.clone(),
            budget: Arc::clone(&shared.budget),
            keys: shared.keys.clone(),
            gates: shared.gates,
            layered: shared.layered,
            adaptive: shared.adaptive.clone(),
            hold_off: shared.hold_off.clone(),
            headers: shared.headers.clone(),
            inbound: inbound.map(|inbound| inbound.headers.clone()),
        }
    }
}

impl RetryBudgetLayer {
    /// Creates a layer for a client by a configuration.
    #[must_use]
    pub fn from_config(config: &RetryConfig) -> Self {
        Self::new().config(config)
    }

    /// Configures the layer. What the configuration does not say stays as it is; what a setter says
    /// afterwards holds until the next [`reload`](RetryControl::reload).
    ///
    /// Its budgets are the layer's own: another layer with the same configuration has others.
    #[must_use]
    pub fn config(self, config: &RetryConfig) -> Self {
        self.with(|shared| {
            // Not the budgets of the layer that this one is a clone of.
            let own = shared.loaded.take().map(|loaded| Arc::clone(&loaded.own));
            apply(shared, config, own, None);
            observe::configured(config.hash(), config.effective());
        })
    }
}

impl RetryControl {
    /// Puts a configuration into force: all of it at once, for calls that begin.
    ///
    /// Calls under way, asleep ones among them, end by the old one and settle with the budgets that they
    /// withdrew from. A budget whose name and settings are the same keeps its accounts; any other begins
    /// anew. What [`swap`](Self::swap) and [`gates`](Self::gates) have set is gone.
    pub fn reload(&self, config: &RetryConfig) {
        let changed = self.change(|shared| {
            let before = shared.loaded.take();
            let own = before.as_ref().map(|before| Arc::clone(&before.own));
            let own = own.unwrap_or_else(|| Arc::new(Own::of(self.layer())));
            apply(shared, config, Some(own), before.as_deref());
            if before.is_some_and(|before| before.hash == config.hash()) {
                return None;
            }
            shared
                .loaded
                .clone()
                .map(|loaded| (loaded, shared.observer.clone()))
        });
        if let Some((loaded, observer)) = changed {
            observe::configured(config.hash(), config.effective());
            loaded.told.store(true, Ordering::Relaxed);
            if let Some(observer) = observer {
                observer.configuration_changed(config.hash());
            }
        }
    }
}

fn apply(
    shared: &mut Shared,
    config: &RetryConfig,
    own: Option<Arc<Own>>,
    before: Option<&Loaded>,
) {
    let own = own.unwrap_or_else(|| Arc::new(Own::of(shared)));
    let (data, parts) = (&config.0.effective, &config.0.parts);
    let budgets = budgets(&data.budgets, before);
    let policy = |name: Option<&String>| parts.policies.get(name?).cloned();
    let budget = |name: Option<&String>| Some(Arc::clone(&budgets.get(name?)?.1));

    shared.policy = policy(data.policy.as_ref()).unwrap_or_else(|| own.policy.clone());
    shared.budget = budget(data.budget.as_ref()).unwrap_or_else(|| Arc::clone(&own.budget));
    shared.gates = data.gates.unwrap_or(own.gates);
    shared.layered = data.layered_retries.map_or(own.layered, Into::into);
    // What is the same goes on with what it knows.
    if before.is_none_or(|before| before.adaptive != data.adaptive) {
        shared.adaptive = adaptive(parts.adaptive.as_ref(), own.adaptive.as_ref());
    }
    if before.is_none_or(|before| before.hold_off != data.hold_off) {
        shared.hold_off = hold_off(data.hold_off, own.hold_off.as_ref());
    }
    shared.keys = if parts.aliases.is_empty() {
        own.keys.clone()
    } else {
        own.keys.with_aliases(&parts.aliases)
    };
    shared.headers = parts.headers.clone().unwrap_or_else(|| own.headers.clone());
    if let Some(inbound) = &mut shared.inbound {
        let headers = parts.headers.clone().or_else(|| own.inbound.clone());
        inbound.headers = headers.unwrap_or_default();
    }
    let routes = parts.routes.iter().map(|(hosts, route)| {
        let (policy, budget) = (policy(route.policy.as_ref()), budget(route.budget.as_ref()));
        (hosts.clone(), policy, budget)
    });
    let routes: Vec<_> = routes.collect();
    shared.routes = (!routes.is_empty()).then(|| Routes {
        budgets: routes.iter().filter_map(|route| route.2.clone()).collect(),
        choose: Arc::new(move |uri| {
            let host = uri.host().unwrap_or_default();
            let route = routes.iter().find(|(hosts, ..)| hosts.contains(host));
            let routed = route.map(|(_, policy, budget)| Routed {
                policy: policy.clone(),
                budget: budget.clone(),
            });
            routed.unwrap_or_default()
        }),
    });
    let same = before.filter(|before| before.hash == config.hash());
    let told = same.is_some_and(|before| before.told.load(Ordering::Relaxed));
    shared.loaded = Some(Arc::new(Loaded {
        hash: config.hash().to_owned(),
        own,
        budgets,
        adaptive: data.adaptive.clone(),
        hold_off: data.hold_off,
        told: AtomicBool::new(told),
    }));
}

fn adaptive(limits: Option<&AdaptiveLimits>, own: Option<&Arc<Adaptive>>) -> Option<Arc<Adaptive>> {
    let Some(limits) = limits else {
        return own.cloned();
    };
    let circuit = own.map(|own| own.limits());
    let limits = limits.clone().with_circuit_of(circuit);
    Some(Arc::new(Adaptive::new(limits)))
}

fn hold_off(data: Option<HoldOffData>, own: Option<&Arc<HoldOffs>>) -> Option<Arc<HoldOffs>> {
    let Some(data) = data else {
        return own.cloned();
    };
    let setting = data.apply(own.map(|own| own.setting()));
    Some(Arc::new(HoldOffs::new(setting)))
}

/// The budgets, those that have not changed with all that they hold.
fn budgets(
    data: &BTreeMap<String, BudgetData>,
    before: Option<&Loaded>,
) -> BTreeMap<String, (BudgetData, Arc<dyn Budget>)> {
    let budgets = data.iter().map(|(name, data)| {
        let known = before.and_then(|before| before.budgets.get(name));
        let same = known.filter(|(known, _)| known == data);
        let budget = same.map(|(_, budget)| Arc::clone(budget));
        let budget = budget.unwrap_or_else(|| data.build().expect("it was checked"));
        (name.clone(), (data.clone(), budget))
    });
    budgets.collect()
}

impl Shared {
    /// Tells the observer of the configuration, if that has not happened yet.
    #[inline]
    pub(crate) fn announce(&self) {
        if let Some(loaded) = &self.loaded {
            self.tell(loaded);
        }
    }

    #[inline(never)]
    fn tell(&self, loaded: &Loaded) {
        // Looked at first, so that calls do not fight for the line.
        if loaded.told.load(Ordering::Relaxed) || loaded.told.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(observer) = &self.observer {
            observer.configuration_changed(&loaded.hash);
        }
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}
