//! Where events are kept: one SQLite file.
//!
//! SQLite and not a Redis stream, because a dispatcher has to keep what it was handed before it says 202,
//! and a file needs no second server to be right about that. Its log is written ahead and synced at every
//! commit, so neither SIGKILL nor a power cut takes an event back. A stream would be the choice for
//! several dispatchers that share the work; this is one.
//!
//! One thread owns the connection. What others ask for while it works is done in one transaction, and
//! committed once for all of them: a thousand deliveries do not wait for thousands of syncs.

use crate::clock::now_ms;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, sync::mpsc, thread, time::Duration};
use tokio::sync::oneshot;
use tower_retry_budget::{DeliveryRecord, RetryState};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many requests are done in one transaction at most.
const BATCH: usize = 256;

/// How long a process that ends may still have the file.
const WAIT: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce(&Transaction<'_>) -> Done + Send>;

/// What is to be told once the transaction is committed.
type Done = Box<dyn FnOnce(bool) + Send>;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS deliveries (
        id TEXT PRIMARY KEY,
        endpoint TEXT NOT NULL,
        class TEXT NOT NULL,
        body TEXT NOT NULL,
        received_ms INTEGER NOT NULL,
        outcome TEXT,
        not_before_ms INTEGER NOT NULL,
        state TEXT NOT NULL,
        record TEXT
    ) STRICT;
    CREATE INDEX IF NOT EXISTS due ON deliveries (endpoint, not_before_ms) WHERE outcome IS NULL;
    CREATE INDEX IF NOT EXISTS dead ON deliveries (received_ms) WHERE outcome NOTNULL AND outcome <> 'delivered';
    CREATE TABLE IF NOT EXISTS quarantine (endpoint TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
";

/// One event on its way to one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) endpoint: String,
    pub(crate) class: String,
    pub(crate) body: String,
    /// How far it has come: what a restart does not take from it, nor give it again.
    pub(crate) state: RetryState,
}

/// What is known of one event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Known {
    id: String,
    endpoint: String,
    class: String,
    received_ms: i64,
    /// `null` while it waits or is under way.
    outcome: Option<String>,
    record: Option<Value>,
}

/// How many events of an endpoint there are.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) waiting: u32,
    pub(crate) delivered: u32,
    pub(crate) dead: u32,
    /// Since when the oldest waits.
    pub(crate) oldest_ms: Option<i64>,
    pub(crate) quarantined: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Store(mpsc::Sender<Work>);

impl Store {
    /// Opens the file, or makes it. No two processes have it at once: each would deliver what the other
    /// does.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(WAIT)?;
        connection.pragma_update(None, "locking_mode", "exclusive")?;
        let wal = connection.pragma_update(None, "journal_mode", "wal");
        wal.map_err(|error| format!("{}: {error}", path.display()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch(SCHEMA)?;
        let (asks, asked) = mpsc::channel::<Work>();
        thread::Builder::new().name("store".into()).spawn(move || {
            while let Ok(first) = asked.recv() {
                let works = std::iter::once(first).chain(asked.try_iter());
                commit(&mut connection, works.take(BATCH));
            }
        })?;
        Ok(Self(asks))
    }

    /// Does something within a transaction, and answers when that is committed.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let (tell, told) = oneshot::channel();
        let work: Work = Box::new(move |transaction| {
            let result = work(transaction);
            Box::new(move |committed| {
                let result: Result<T, Failure> = match committed {
                    true => result.map_err(Into::into),
                    false => Err("not committed".into()),
                };
                // Whoever asked may have gone.
                _ = tell.send(result);
            })
        });
        self.0.send(work).map_err(|_| "the store is closed")?;
        told.await?
    }

    /// Keeps a new event. `false` if there is one of that id already, which stays as it is.
    pub(crate) async fn accept(&self, delivery: Delivery) -> Result<bool, Failure> {
        self.run(move |db| {
            let state = text(&delivery.state);
            let new = db
                .prepare_cached(
                    "INSERT INTO deliveries VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?5, ?6, NULL)
                 ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    delivery.id,
                    delivery.endpoint,
                    delivery.class,
                    delivery.body,
                    now_ms(),
                    state
                ])?;
            Ok(new == 1)
        })
        .await
    }

    /// The events of an endpoint that are due, the one that is due longest first, but for `busy`.
    pub(crate) async fn due(
        &self,
        endpoint: &str,
        busy: Vec<String>,
        most: usize,
    ) -> Result<Vec<Delivery>, Failure> {
        let endpoint = endpoint.to_owned();
        self.run(move |db| {
            let mut query = db.prepare_cached(
                "SELECT id, endpoint, class, body, state FROM deliveries
                 WHERE endpoint = ?1 AND outcome IS NULL AND not_before_ms <= ?2
                 ORDER BY not_before_ms LIMIT ?3",
            )?;
            let most_with_busy = i64::try_from(most + busy.len()).unwrap_or(i64::MAX);
            let found = query.query_map(params![endpoint, now_ms(), most_with_busy], delivery)?;
            let free = found.filter(|found| match found {
                Ok(found) => !busy.contains(&found.id),
                Err(_) => true,
            });
            free.take(most).collect()
        })
        .await
    }

    /// Keeps how far a delivery has come.
    pub(crate) async fn keep(&self, id: String, state: RetryState) -> Result<(), Failure> {
        self.run(move |db| {
            db.prepare_cached("UPDATE deliveries SET state = ?2 WHERE id = ?1")?
                .execute(params![id, text(&state)])?;
            Ok(())
        })
        .await
    }

    /// Keeps that a delivery goes on later.
    pub(crate) async fn postpone(
        &self,
        id: String,
        state: RetryState,
        not_before_ms: i64,
    ) -> Result<(), Failure> {
        self.run(move |db| {
            db.prepare_cached(
                "UPDATE deliveries SET state = ?2, not_before_ms = ?3 WHERE id = ?1",
            )?
            .execute(params![id, text(&state), not_before_ms])?;
            Ok(())
        })
        .await
    }

    /// Keeps what became of a delivery.
    pub(crate) async fn finish(&self, id: String, record: DeliveryRecord) -> Result<(), Failure> {
        self.run(move |db| {
            db.prepare_cached("UPDATE deliveries SET outcome = ?2, record = ?3 WHERE id = ?1")?
                .execute(params![id, record.outcome.as_str(), text(&record)])?;
            Ok(())
        })
        .await
    }

    /// The endpoint is gone for good: nothing more is sent to it, and what waits for it is dead.
    pub(crate) async fn quarantine(
        &self,
        endpoint: String,
        record: DeliveryRecord,
    ) -> Result<(), Failure> {
        self.run(move |db| {
            let record = text(&record);
            db.execute(
                "INSERT INTO quarantine VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![endpoint, record],
            )?;
            bury(db, &endpoint, &record)
        })
        .await
    }

    /// Buries what came for an endpoint after it was found gone. `true` if it is.
    pub(crate) async fn is_gone(&self, endpoint: &str) -> Result<bool, Failure> {
        let endpoint = endpoint.to_owned();
        self.run(move |db| {
            let record: Option<String> = db
                .prepare_cached("SELECT record FROM quarantine WHERE endpoint = ?1")?
                .query_row([&endpoint], |row| row.get(0))
                .optional()?;
            if let Some(record) = &record {
                bury(db, &endpoint, record)?;
            }
            Ok(record.is_some())
        })
        .await
    }

    /// Has dead letters delivered anew, with all attempts and the same ids: one, or all of an endpoint.
    /// Returns how many there were.
    pub(crate) async fn replay(&self, which: Replay) -> Result<usize, Failure> {
        self.run(move |db| {
            const AGAIN: &str = "UPDATE deliveries
                SET outcome = NULL, record = NULL, state = ?2, not_before_ms = ?3
                WHERE outcome NOTNULL AND outcome <> 'delivered' AND ";
            let fresh = text(&RetryState::new());
            let (condition, name) = match &which {
                Replay::One(id) => ("id = ?1", id),
                Replay::Endpoint(endpoint) => ("endpoint = ?1", endpoint),
            };
            // Whoever replays says that the endpoint is there again.
            let released = match &which {
                Replay::One(_) => "endpoint = (SELECT endpoint FROM deliveries WHERE id = ?1)",
                Replay::Endpoint(_) => "endpoint = ?1",
            };
            db.execute(&format!("DELETE FROM quarantine WHERE {released}"), [name])?;
            db.execute(
                &format!("{AGAIN} {condition}"),
                params![name, fresh, now_ms()],
            )
        })
        .await
    }

    pub(crate) async fn find(&self, id: String) -> Result<Option<Known>, Failure> {
        self.run(move |db| {
            db.prepare_cached(
                "SELECT id, endpoint, class, received_ms, outcome, record FROM deliveries
                 WHERE id = ?1",
            )?
            .query_row([id], known)
            .optional()
        })
        .await
    }

    /// The dead letters, the latest first.
    pub(crate) async fn dead(&self, most: u32) -> Result<Vec<Known>, Failure> {
        self.run(move |db| {
            db.prepare_cached(
                "SELECT id, endpoint, class, received_ms, outcome, record FROM deliveries
                 WHERE outcome NOTNULL AND outcome <> 'delivered'
                 ORDER BY received_ms DESC, id LIMIT ?1",
            )?
            .query_map([most], known)?
            .collect()
        })
        .await
    }

    pub(crate) async fn counts(&self) -> Result<BTreeMap<String, Counts>, Failure> {
        self.run(|db| {
            let mut counts = BTreeMap::<String, Counts>::new();
            let mut query = db.prepare_cached(
                "SELECT endpoint, SUM(outcome IS NULL), SUM(outcome IS 'delivered'),
                        SUM(outcome NOTNULL AND outcome <> 'delivered'),
                        MIN(CASE WHEN outcome IS NULL THEN received_ms END)
                 FROM deliveries GROUP BY endpoint",
            )?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let count = Counts {
                    waiting: row.get(1)?,
                    delivered: row.get(2)?,
                    dead: row.get(3)?,
                    oldest_ms: row.get(4)?,
                    quarantined: false,
                };
                counts.insert(row.get(0)?, count);
            }
            let mut query = db.prepare_cached("SELECT endpoint FROM quarantine")?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                counts.entry(row.get(0)?).or_default().quarantined = true;
            }
            Ok(counts)
        })
        .await
    }
}

/// Which dead letters are delivered anew.
#[derive(Clone, Debug)]
pub(crate) enum Replay {
    One(String),
    Endpoint(String),
}

fn commit(connection: &mut Connection, works: impl Iterator<Item = Work>) {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let Ok(transaction) = transaction else {
        // Dropped unanswered: whoever asked is told that the store did not do it.
        return works.for_each(drop);
    };
    let done: Vec<Done> = works.map(|work| work(&transaction)).collect();
    let committed = transaction.commit().is_ok();
    for done in done {
        done(committed);
    }
}

/// What waits for an endpoint that is gone is dead, for the reason that the endpoint gave.
fn bury(db: &Transaction<'_>, endpoint: &str, record: &str) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE deliveries
         SET outcome = 'terminal_response',
             record = json_set(?2, '$.attempts', coalesce(json_extract(state, '$.attempts'), 0))
         WHERE endpoint = ?1 AND outcome IS NULL",
        params![endpoint, record],
    )?;
    Ok(())
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let state: String = row.get(4)?;
    Ok(Delivery {
        id: row.get(0)?,
        endpoint: row.get(1)?,
        class: row.get(2)?,
        body: row.get(3)?,
        state: serde_json::from_str(&state).map_err(|error| {
            let kind = rusqlite::types::Type::Text;
            rusqlite::Error::FromSqlConversionFailure(4, kind, error.into())
        })?,
    })
}

fn known(row: &Row<'_>) -> rusqlite::Result<Known> {
    let record: Option<String> = row.get(5)?;
    Ok(Known {
        id: row.get(0)?,
        endpoint: row.get(1)?,
        class: row.get(2)?,
        received_ms: row.get(3)?,
        outcome: row.get(4)?,
        record: record.and_then(|record| serde_json::from_str(&record).ok()),
    })
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("states and records are plain data")
}
