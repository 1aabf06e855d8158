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

/// What a server says when it has not run the script, or not gone on at its first write. Any other error
/// may come after that: the script writes the account first, and then says when it expires.
const REFUSALS: [&str; 7] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOAUTH",
    "OOM",
    "READONLY",
];

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
        let refused = error.code().is_some_and(|code| REFUSALS.contains(&code));
        Self {
            not_applied: sends_once && refused,
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
            let connection = self.link.connection().await;
            let (mut connection, number) = connection.map_err(StoreError::not_sent)?;
            let sent = self.send(&mut connection, key, &call);
            let sent = timeout(self.command_timeout, sent)
                .await
                .unwrap_or_else(|_| Err(StoreError::timed_out("no reply in time")));
            match sent {
                Ok(reply) => Ok(reply.into()),
                Err(error) => {
                    self.link.failed(number, &error).await;
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

    /// A connection and its number, or why there is none.
    fn connection(
        &self,
    ) -> impl Future<Output = Result<(Self::Connection, u64), Arc<RedisError>>> + Send;

    /// A call over the connection of this number has ended like this.
    fn failed(&self, number: u64, error: &RedisError) -> impl Future<Output = ()> + Send;
}

/// A connection that the user has, and that connects anew by itself.
pub(super) struct Given<C>(pub(super) C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Link for Given<C> {
    type Connection = C;

    const SENDS_ONCE: bool = false;

    async fn connection(&self) -> Result<(C, u64), Arc<RedisError>> {
        Ok((self.0.clone(), 0))
    }

    async fn failed(&self, _: u64, _: &RedisError) {}
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
    /// How many connections there have been.
    number: u64,
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

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Arc<RedisError>> {
        let asked = clock::now();
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.number));
        }
        if let Some((at, error)) = &state.failed {
            if *at >= asked {
                return Err(error.clone());
            }
        }
        match self.connect().await {
            Ok(connection) => {
                state.connection = Some(connection.clone());
                state.number = state.number.saturating_add(1);
                Ok((connection, state.number))
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
    async fn failed(&self, number: u64, error: &RedisError) {
        let refused = error.code().is_some();
        if refused && error.kind() != ErrorKind::Server(ServerErrorKind::ReadOnly) {
            return;
        }
        let mut state = self.state.lock().await;
        // Another call may have failed before, and a new one been made.
        if state.number == number {
            state.connection = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_for_refused_only_what_cannot_have_been_written() {
        let says = |code: &str| redis::make_extension_error(code.to_owned(), None);
        for (code, refused) in [
            ("LOADING", true),
            ("OOM", true),
            ("NOPERM", false),
            ("ERR", false),
        ] {
            assert_eq!(
                StoreError::sent(says(code), true).not_applied,
                refused,
                "{code}"
            );
            assert!(!StoreError::sent(says(code), false).not_applied, "{code}");
        }
    }
}
