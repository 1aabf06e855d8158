//! The store that the fleet's accounts are kept in, and what may go wrong with it.

use super::protocol::{Call, Reply};
use crate::{
    budget::{Key, token::rule::Rule},
    clock,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Script, ServerErrorKind,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, time::timeout};

pub(super) type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply, StoreError>> + Send + 'a>>;

/// Makes the calls of one process.
pub(super) trait Store: Send + Sync + 'static {
    /// Ends by itself, within its own limits of time. Never calls the store a second time unless it
    /// is certain that it did not do anything the first time.
    fn call<'a>(&'a self, key: &'a Key, call: Call) -> Answer<'a>;
}

/// A call that got no reply.
#[derive(Clone, Debug)]
pub(super) struct StoreError {
    pub(super) error: Arc<RedisError>,
    /// Whether it is certain that the call had no effect: it was never sent, or the server has
    /// refused it.
    pub(super) not_applied: bool,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StoreError {
    fn not_sent(error: impl Into<Arc<RedisError>>) -> Self {
        Self {
            error: error.into(),
            not_applied: true,
        }
    }

    /// Of a call that was handed to a connection, which may have repeated it unless it `sends_once`.
    fn sent(error: RedisError, sends_once: bool) -> Self {
        Self {
            // What the server refuses it has not done: the script writes last, in one step.
            not_applied: sends_once && error.code().is_some(),
            error: Arc::new(error),
        }
    }

    /// A short name for what went wrong.
    pub(super) fn kind(&self) -> &'static str {
        if self.error.is_timeout() {
            "timeout"
        } else if self.error.is_io_error() {
            "connection"
        } else if self.error.code().is_some() {
            "refused"
        } else {
            "other"
        }
    }

    fn timed_out(doing: &'static str) -> RedisError {
        io::Error::new(io::ErrorKind::TimedOut, doing).into()
    }
}

/// A store that is reached through a Redis connection.
pub(super) struct RedisStore<L> {
    link: L,
    script: Script,
    process: String,
    namespace: String,
    rule: Rule,
    command_timeout: Duration,
}

impl<L: Link> RedisStore<L> {
    pub(super) fn new(
        link: L,
        process: String,
        namespace: String,
        rule: Rule,
        command_timeout: Duration,
    ) -> Self {
        Self {
            link,
            script: Script::new(include_str!("fleet.lua")),
            process,
            namespace,
            rule,
            command_timeout,
        }
    }

    fn command(&self, verb: &'static str, script: &str, key: &Key, call: &Call) -> Cmd {
        let version = super::protocol::VERSION;
        let mut command = redis::cmd(verb);
        command
            .arg(script)
            .arg(1)
            .arg(format!("{{{}:{version}:{key}}}", self.namespace))
            .arg(&self.process)
            .arg(&call.arguments(&self.rule)[..]);
        command
    }

    async fn send(&self, connection: &mut L::Connection, key: &Key, call: &Call) -> Sent {
        let known = self.command("EVALSHA", self.script.get_hash(), key, call);
        match known.query_async::<[u64; 7]>(connection).await {
            // The server does not know the script and has done nothing: after a failover, say.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let whole = self.command("EVAL", include_str!("fleet.lua"), key, call);
                whole.query_async(connection).await
            }
            sent => sent,
        }
    }
}

type Sent = Result<[u64; 7], RedisError>;

impl<L: Link> Store for RedisStore<L> {
    fn call<'a>(&'a self, key: &'a Key, call: Call) -> Answer<'a> {
        Box::pin(async move {
            let mut connection = self.link.connection().await.map_err(StoreError::not_sent)?;
            let sent = self.send(&mut connection, key, &call);
            let sent = timeout(self.command_timeout, sent)
                .await
                .unwrap_or_else(|_| Err(StoreError::timed_out("no reply in time")));
            match sent {
                Ok(reply) => Ok(reply.into()),
                Err(error) => {
                    self.link.failed(&error).await;
                    Err(StoreError::sent(error, L::SENDS_ONCE))
                }
            }
        })
    }
}

/// Where connections come from.
pub(super) trait Link: Send + Sync + 'static {
    type Connection: ConnectionLike + Send;

    /// Whether a call is sent at most once. A client of a cluster repeats those that were cut off.
    const SENDS_ONCE: bool;

    /// A connection, or why there is none.
    fn connection(&self) -> impl Future<Output = Result<Self::Connection, Arc<RedisError>>> + Send;

    /// A call over a connection has ended like this.
    fn failed(&self, error: &RedisError) -> impl Future<Output = ()> + Send;
}

/// A connection that the user has, and that connects anew by itself.
pub(super) struct Given<C>(pub(super) C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Link for Given<C> {
    type Connection = C;

    const SENDS_ONCE: bool = false;

    async fn connection(&self) -> Result<C, Arc<RedisError>> {
        Ok(self.0.clone())
    }

    async fn failed(&self, _: &RedisError) {}
}

/// A connection of the budget's own. When it is to be made anew is decided by those who call: one
/// attempt for each of theirs, or one for all who wait at the same time.
pub(super) struct Own {
    client: Client,
    connect_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    failed: Option<(Instant, Arc<RedisError>)>,
}

impl Own {
    pub(super) fn new(client: Client, connect_timeout: Duration) -> Self {
        Self {
            client,
            connect_timeout,
            state: Mutex::default(),
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        // The handshake too: a server that is frozen takes connections and says nothing.
        timeout(self.connect_timeout, connecting)
            .await
            .unwrap_or_else(|_| Err(StoreError::timed_out("not connected in time")))
    }
}

impl Link for Own {
    type Connection = MultiplexedConnection;

    const SENDS_ONCE: bool = true;

    async fn connection(&self) -> Result<MultiplexedConnection, Arc<RedisError>> {
        let asked = clock::now();
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok(connection.clone());
        }
        if let Some((at, error)) = &state.failed {
            if *at >= asked {
                return Err(error.clone());
            }
        }
        match self.connect().await {
            Ok(connection) => {
                state.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                let error = Arc::new(error);
                state.failed = Some((clock::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// What the server says leaves the connection as it is, unless it is that another server is
    /// wanted; after anything else, a time-out included, a new one is made.
    async fn failed(&self, error: &RedisError) {
        let refused = error.code().is_some();
        if !refused || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            self.state.lock().await.connection = None;
        }
    }
}
