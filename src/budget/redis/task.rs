//! The one task that talks to the store for a process.

use super::{
    events::StoreEvents,
    protocol::Reply,
    shared::{Shared, Wake},
    store::{Store, StoreError},
};
use crate::{budget::Key, clock, observe::Observe};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::{
    cmp::Ordering,
    collections::{BinaryHeap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{sleep_until, timeout},
};

/// While the store does not answer, one key asks for all: after this time, and at most after that.
const FIRST_PROBE: Duration = Duration::from_millis(100);
const LAST_PROBE: Duration = Duration::from_secs(2);

/// How long the last calls may take.
const DRAIN: Duration = Duration::from_millis(100);

type Ended = (Key, Result<Reply, StoreError>);

pub(super) struct Task {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    wakes: UnboundedReceiver<Wake>,
    agenda: BinaryHeap<Due>,
    calls: FuturesUnordered<Pin<Box<dyn Future<Output = Ended> + Send>>>,
    silence: Silence,
}

/// The keys that the store did not answer for.
struct Silence {
    keys: HashSet<Key>,
    /// Those of them that wait for their turn to probe.
    queue: VecDeque<Key>,
    probe: Option<Probe>,
    probing: Option<Key>,
    events: StoreEvents,
}

#[derive(Clone, Copy)]
struct Probe {
    at: Instant,
    wait: Duration,
}

impl Task {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Arc<dyn Store>,
        wakes: UnboundedReceiver<Wake>,
        observer: Option<Arc<dyn Observe>>,
    ) -> Self {
        Self {
            shared,
            store,
            wakes,
            agenda: BinaryHeap::new(),
            calls: FuturesUnordered::new(),
            silence: Silence::new(observer),
        }
    }

    /// Runs until the budget is drained or its last clone is gone.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.next();
            tokio::select! {
                wake = self.wakes.recv() => match wake {
                    Some(Wake::Due(key, at)) => self.agenda.push(Due { at, key }),
                    Some(Wake::Ask(key)) => self.ask(&key),
                    Some(Wake::Drain(done)) => {
                        self.drain().await;
                        let _ = done.send(());
                        return;
                    }
                    None => return self.drain().await,
                },
                Some(ended) = self.calls.next() => self.ended(ended),
                () = sleep_until(next.unwrap_or_else(clock::now).into()), if next.is_some() => {
                    self.call_due();
                }
            }
        }
    }

    /// When there is something to do.
    fn next(&self) -> Option<Instant> {
        let due = self.agenda.peek().map(|due| due.at);
        let probe = self.silence.next();
        match (due, probe) {
            (Some(due), Some(probe)) => Some(due.min(probe)),
            (due, probe) => due.or(probe),
        }
    }

    fn call_due(&mut self) {
        let now = clock::now();
        while self.agenda.peek().is_some_and(|due| due.at <= now) {
            let Some(Due { at, key }) = self.agenda.pop() else {
                break;
            };
            // What was put off or made early meanwhile has another entry.
            let stands = |due: Option<Instant>| due == Some(at);
            let stands = self
                .shared
                .with_existing(&key, |account| stands(account.pace.due()));
            match stands {
                Some(true) => _ = self.call(&key, now),
                Some(false) => {}
                None => self.silence.forget(&key),
            }
        }
        while self.silence.next().is_some_and(|at| at <= now) {
            let Some(key) = self.silence.queue.pop_front() else {
                break;
            };
            match self.call(&key, now) {
                true => self.silence.probing = Some(key),
                false => self.silence.forget(&key),
            }
        }
    }

    fn ask(&mut self, key: &Key) {
        let now = clock::now();
        let asks = self
            .shared
            .with_existing(key, |account| account.takes_ask(now));
        if asks == Some(true) {
            self.call(key, now);
        }
    }

    /// Makes the call of a key, unless one is under way or there is nothing to tell.
    fn call(&mut self, key: &Key, now: Instant) -> bool {
        let call = self.shared.with_existing(key, |account| {
            let call = account.begin(fastrand::f32(), now)?;
            Some((call, account.pace.due()))
        });
        let Some((call, due)) = call.flatten() else {
            return false;
        };
        self.put_on_agenda(key, due);
        let (store, key) = (self.store.clone(), key.clone());
        self.calls.push(Box::pin(async move {
            let ended = store.call(&key, call).await;
            (key, ended)
        }));
        true
    }

    fn put_on_agenda(&mut self, key: &Key, due: Option<Instant>) {
        if let Some(at) = due {
            self.agenda.push(Due {
                at,
                key: key.clone(),
            });
        }
    }

    fn ended(&mut self, (key, ended): Ended) {
        let now = clock::now();
        match ended {
            Ok(reply) => {
                let due = self.shared.with_existing(&key, |account| {
                    account.answer(reply, now);
                    account.pace.due()
                });
                self.put_on_agenda(&key, due.flatten());
                if self.silence.broken(&key) {
                    self.call_the_others(now);
                }
            }
            Err(error) => {
                self.shared.with_existing(&key, |account| {
                    account.fail(error.not_applied);
                    account.pace.defer(None);
                });
                self.silence.begin(key, &error, now);
            }
        }
    }

    /// The store answers again: the keys that waited for that call within their intervals.
    fn call_the_others(&mut self, now: Instant) {
        for key in std::mem::take(&mut self.silence.queue) {
            let due = self.shared.with_existing(&key, |account| {
                let within = account.pace.interval().mul_f32(fastrand::f32());
                account.pace.defer(now.checked_add(within));
                account.pace.due()
            });
            match due {
                Some(due) => self.put_on_agenda(&key, due),
                None => self.silence.forget(&key),
            }
        }
    }

    /// Gives back what is leased and tells what was not told, in a bounded time.
    async fn drain(&mut self) {
        self.shared.drain();
        let all = async {
            let mut keys = Vec::new();
            self.shared.for_each(|key, _| keys.push(key.clone()));
            for key in keys {
                self.call_last(&key);
            }
            while let Some((key, ended)) = self.calls.next().await {
                let now = clock::now();
                match ended {
                    Ok(reply) => {
                        self.shared
                            .with_existing(&key, |account| account.answer(reply, now));
                        self.call_last(&key);
                    }
                    Err(error) => {
                        self.shared
                            .with_existing(&key, |account| account.fail(error.not_applied));
                    }
                }
            }
        };
        let _ = timeout(DRAIN, all).await;
    }

    fn call_last(&mut self, key: &Key) {
        let has_news = self.shared.with_existing(key, |account| {
            account.wind_up();
            account.has_news()
        });
        if has_news == Some(true) {
            self.call(key, clock::now());
        }
    }
}

impl Silence {
    fn new(observer: Option<Arc<dyn Observe>>) -> Self {
        Self {
            keys: HashSet::new(),
            queue: VecDeque::new(),
            probe: None,
            probing: None,
            events: StoreEvents::new(observer),
        }
    }

    fn next(&self) -> Option<Instant> {
        match (&self.probing, self.queue.is_empty()) {
            (None, false) => self.probe.map(|probe| probe.at),
            _ => None,
        }
    }

    /// A call for `key` has failed.
    fn begin(&mut self, key: Key, error: &StoreError, now: Instant) {
        self.events.failed(error);
        self.events.lost(error, now);
        self.keys.insert(key.clone());
        let probed = self.probing.take_if(|probing| *probing == key).is_some();
        self.queue.push_back(key);
        let wait = match self.probe {
            None => FIRST_PROBE,
            Some(probe) if probed => probe.wait.saturating_mul(2).min(LAST_PROBE),
            Some(_) => return,
        };
        // Up to a tenth later: the processes of a fleet have all lost it at the same time.
        let at = now.checked_add(wait.mul_f32(1.0 + 0.1 * fastrand::f32()));
        self.probe = at.map(|at| Probe { at, wait });
    }

    /// The account of `key` is gone, and with it what there was to ask for.
    fn forget(&mut self, key: &Key) {
        self.keys.remove(key);
        if self.keys.is_empty() {
            self.probe = None;
            self.probing = None;
        }
    }

    /// A call for `key` was answered. Whether it was not before, so that the others may try too.
    fn broken(&mut self, key: &Key) -> bool {
        let broken = self.keys.remove(key);
        if broken {
            self.probing = None;
            self.probe = None;
        }
        if self.keys.is_empty() {
            self.events.found();
        }
        broken
    }
}

/// An entry of the agenda; the earliest is the greatest.
struct Due {
    at: Instant,
    key: Key,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}
