use crate::{
    body::ReplayMemory,
    budget::Budget,
    clock::{self, millis},
    observe::CallView,
};
use std::{
    ptr::addr_eq,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How often the gauges that change by themselves are written while calls go by.
const REFRESH: Duration = Duration::from_secs(1);

/// The layers that were seen, and when they were last looked at.
pub(super) struct Layers {
    known: RwLock<Vec<Layer>>,
    /// Since when `looked` counts.
    epoch: Instant,
    /// In milliseconds.
    looked: AtomicU64,
}

/// What is looked at of a layer. It is not kept alive.
struct Layer {
    memory: Weak<ReplayMemory>,
    budget: Weak<dyn Budget>,
}

impl Layers {
    pub(super) fn new() -> Self {
        Self {
            known: RwLock::default(),
            epoch: clock::now(),
            looked: AtomicU64::new(0),
        }
    }

    /// Gets to know the layer of a call.
    pub(super) fn meet(&self, call: &CallView<'_>) {
        let (memory, budget) = (&call.shared.memory, call.budget());
        let is_known = |layers: &[Layer]| {
            layers.iter().any(|layer| {
                layer.memory.as_ptr() == Arc::as_ptr(memory)
                    && addr_eq(layer.budget.as_ptr(), Arc::as_ptr(budget))
            })
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if is_known(&known) {
            return;
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !is_known(&known) {
            known.push(Layer {
                memory: Arc::downgrade(memory),
                budget: Arc::downgrade(budget),
            });
        }
    }

    /// Whether it is time to look again. Only one of those who ask is told so.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let since = millis(now.saturating_duration_since(self.epoch));
        let last = self.looked.load(Ordering::Relaxed);
        since >= last.saturating_add(millis(REFRESH))
            && self
                .looked
                .compare_exchange(last, since, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The bytes kept over all layers, and the budgets. Layers that are gone are forgotten.
    pub(super) fn look(&self) -> (usize, Vec<Arc<dyn Budget>>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|layer| layer.memory.strong_count() > 0);
        let (mut kept, mut seen, mut budgets) = (0, Vec::new(), Vec::new());
        for layer in known.iter() {
            // Layers made from one another share their memory, and may share a budget.
            if !seen.contains(&layer.memory.as_ptr()) {
                seen.push(layer.memory.as_ptr());
                kept += layer.memory.upgrade().map_or(0, |memory| memory.in_use());
            }
            budgets.extend(layer.budget.upgrade());
        }
        (kept, budgets)
    }
}
