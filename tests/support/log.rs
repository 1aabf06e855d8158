//! Keeps what a test's own thread logs.
//!
//! There is one subscriber for the whole process: with one for each test, an event that another
//! test's thread reaches first, without a subscriber, may be switched off for all of them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::{Debug, Write},
    sync::Once,
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt},
};

/// The fields of one event, by name, with its text under `message`.
pub type Fields = BTreeMap<String, String>;

/// Everything that this thread logs from when this is made until it is dropped.
pub struct Log(());

#[derive(Default)]
struct Kept {
    events: Vec<(Level, Fields)>,
    spans: Vec<Fields>,
}

thread_local! {
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// To be called by whatever logs first in a process in which some test listens.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = Registry::default().with(Keeper);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets one");
    });
}

impl Log {
    /// Listens to the crate on this thread.
    pub fn listen() -> Self {
        install();
        KEPT.set(Some(Kept::default()));
        Self(())
    }

    /// The events with this text.
    pub fn events(&self, message: &str) -> Vec<Fields> {
        self.look(|kept| {
            let events = kept.events.iter().map(|(_, fields)| fields);
            let found = events.filter(|fields| fields["message"] == message);
            found.cloned().collect()
        })
    }

    /// The level and the text of every event, in order.
    pub fn messages(&self) -> Vec<(Level, String)> {
        self.look(|kept| {
            let events = kept.events.iter();
            events
                .map(|(level, fields)| (*level, fields["message"].clone()))
                .collect()
        })
    }

    /// The fields of every span.
    pub fn spans(&self) -> Vec<Fields> {
        self.look(|kept| kept.spans.clone())
    }

    /// All that was written, to look for what must not be in it.
    pub fn everything(&self) -> String {
        self.look(|kept| {
            let mut all = String::new();
            let events = kept.events.iter().map(|(_, fields)| fields);
            for fields in events.chain(&kept.spans) {
                writeln!(all, "{fields:?}").expect("a string takes everything");
            }
            all
        })
    }

    fn look<T>(&self, at: impl FnOnce(&Kept) -> T) -> T {
        KEPT.with_borrow(|kept| at(kept.as_ref().expect("listening")))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        KEPT.set(None);
    }
}

fn keep(fields: impl FnOnce(&mut Reader), put: impl FnOnce(&mut Kept, Fields)) {
    KEPT.with_borrow_mut(|kept| {
        if let Some(kept) = kept {
            let mut reader = Reader::default();
            fields(&mut reader);
            put(kept, reader.0);
        }
    });
}

struct Keeper;

fn is_ours(target: &str) -> bool {
    target.starts_with("tower_retry_budget")
}

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_new_span(&self, attrs: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if is_ours(attrs.metadata().target()) {
            keep(
                |reader| attrs.record(reader),
                |kept, fields| kept.spans.push(fields),
            );
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if is_ours(metadata.target()) {
            let level = *metadata.level();
            keep(
                |reader| event.record(reader),
                |kept, fields| kept.events.push((level, fields)),
            );
        }
    }
}

#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}
