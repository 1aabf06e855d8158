//! Whose metrics are kept apart: a bounded number of dependencies, and of operations.

use super::series::{Base, Series};
use crate::{budget::Key, observe::CallView};
use ::metrics::Label;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

/// What all that found no place of its own is called.
const OTHER: &str = "other";

pub(super) type NameFn = dyn Fn(&Key) -> Option<Cow<'static, str>> + Send + Sync;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Key(Key),
    Text(Cow<'static, str>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Id {
    dependency: Name,
    operation: Option<Cow<'static, str>>,
}

/// The series that there are.
pub(super) struct Labels {
    prefix: Arc<str>,
    limit: usize,
    name: Option<Box<NameFn>>,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    series: HashMap<Id, Arc<Series>>,
    dependencies: HashSet<Name>,
    operations: HashSet<Cow<'static, str>>,
}

impl Labels {
    pub(super) fn new(prefix: &str, limit: usize, name: Option<Box<NameFn>>) -> Self {
        Self {
            prefix: prefix.into(),
            limit,
            name,
            known: RwLock::default(),
        }
    }

    /// The prefix, for metrics that belong to no dependency.
    pub(super) fn base(&self, labels: Vec<Label>) -> Base {
        Base {
            prefix: Arc::clone(&self.prefix),
            labels,
        }
    }

    /// The series of a call.
    pub(super) fn of(&self, call: &CallView<'_>) -> Arc<Series> {
        self.find(call.dependency, call.operation)
    }

    fn find(&self, key: &Key, operation: Option<&str>) -> Arc<Series> {
        let named = self.name.as_ref().and_then(|name| name(key));
        let id = Id {
            dependency: named.map_or_else(|| Name::Key(key.clone()), Name::Text),
            operation: operation.map(|name| Cow::Owned(name.to_owned())),
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.series.get(&id) {
            return Arc::clone(series);
        }
        let id = known.place(id, self.limit);
        if let Some(series) = known.series.get(&id) {
            return Arc::clone(series);
        }
        drop(known);
        self.make(id, key)
    }

    fn make(&self, id: Id, key: &Key) -> Arc<Series> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Others may have taken the last place meanwhile.
        let id = known.place(id, self.limit);
        if let Some(series) = known.series.get(&id) {
            return Arc::clone(series);
        }
        let other = id.dependency == OTHER_NAME;
        let label = match &id.dependency {
            Name::Key(key) => Label::new("dependency", key.to_string()),
            Name::Text(name) => Label::new("dependency", name.clone()),
        };
        let operation = id.operation.clone();
        let operation = operation.map(|name| Label::new("operation", name));
        // The account belongs to the dependency, and is shown once.
        let key = (!other && operation.is_none()).then(|| key.clone());
        let labels = [label].into_iter().chain(operation).collect();
        let series = Arc::new(Series::new(self.base(labels), key));
        if !other {
            known.dependencies.insert(id.dependency.clone());
        }
        known.operations.extend(id.operation.clone());
        known.series.insert(id, Arc::clone(&series));
        series
    }

    /// All series that there are.
    pub(super) fn all(&self) -> Vec<Arc<Series>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.series.values().cloned().collect()
    }
}

const OTHER_NAME: Name = Name::Text(Cow::Borrowed(OTHER));

/// How many series there may be for each dependency that has its own label.
const OPERATIONS_EACH: usize = 10;

impl Known {
    /// Where a call finds its series: under its own names, as long as there is room for them.
    fn place(&self, id: Id, limit: usize) -> Id {
        let room = self.series.len() < limit.saturating_mul(OPERATIONS_EACH);
        let has_place = |known: bool, len: usize| known || (room && len < limit);
        let Id {
            mut dependency,
            mut operation,
        } = id;
        let known = self.dependencies.contains(&dependency);
        if !has_place(known, self.dependencies.len()) {
            dependency = OTHER_NAME;
        }
        if let Some(name) = &operation {
            let known = self.operations.contains(name);
            if !room || !has_place(known, self.operations.len()) {
                operation = Some(Cow::Borrowed(OTHER));
            }
        }
        Id {
            dependency,
            operation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_keys_make_at_most_101_series() {
        let labels = Labels::new("", 100, None);
        for n in 0..1_000_000 {
            let uri = format!("http://h{n}").parse().unwrap();
            labels.find(&Key::from_uri(&uri), None);
        }
        assert_eq!(labels.all().len(), 101);
        let (first, last) = (Key::from_static("first"), Key::from_static("last"));
        let other = labels.find(&first, None);
        assert!(Arc::ptr_eq(&other, &labels.find(&last, None)));
        assert!(other.key.is_none(), "the rest has no account of its own");
    }

    #[test]
    fn operations_of_many_dependencies_stay_within_ten_times_as_many() {
        let labels = Labels::new("", 10, None);
        for n in 0..10_000_u32 {
            let key = Key::new(format!("k{}", n % 100));
            labels.find(&key, Some(&format!("o{}", n / 100)));
        }
        assert!(
            labels.all().len() <= 10 * OPERATIONS_EACH + 11,
            "{}",
            labels.all().len()
        );
    }
}
