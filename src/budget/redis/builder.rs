use super::{
    Inner, RedisBudget,
    shared::Shared,
    store::{Given, Link, Own, RedisStore, Store},
    task::Task,
};
use crate::{
    budget::{TokenBudget, TokenBudgetBuilder, token::rule::Rule},
    config_error::ConfigError,
    observe::Observe,
    reason::Cause,
};
use redis::{Client, aio::ConnectionLike};
use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Handle, sync::mpsc};

/// The floor of the fleet's cap: small beside what a fleet sends, and ten times a single process's.
const DEFAULT_CAP: u64 = 100;

/// One retry a second for a whole fleet is nothing that a server would notice.
const DEFAULT_TRICKLE: Duration = Duration::from_secs(1);

/// A process that has never reached the store takes itself for one of so many.
const DEFAULT_PROCESSES: u64 = 10;

/// Many times what a call takes in one data centre, and no longer than anybody notices.
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection is made in the background: nobody waits for it.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const DEFAULT_NAMESPACE: &str = "tower-retry-budget";

/// Builds a [`RedisBudget`].
#[must_use = "a builder does nothing until it is built"]
pub struct RedisBudgetBuilder {
    source: Source,
    fleet: TokenBudgetBuilder,
    gate: Option<TokenBudgetBuilder>,
    namespace: String,
    expected_processes: u64,
    command_timeout: Duration,
    connect_timeout: Duration,
    observer: Option<Arc<dyn Observe>>,
}

enum Source {
    Url(String),
    Connection(Box<dyn FnOnce(Settings) -> Arc<dyn Store> + Send>),
}

/// What a store is made with.
struct Settings {
    process: String,
    namespace: String,
    rule: Rule,
    command_timeout: Duration,
}

impl Settings {
    fn store(self, link: impl Link) -> Arc<dyn Store> {
        Arc::new(RedisStore::new(
            link,
            self.process,
            self.namespace,
            self.rule,
            self.command_timeout,
        ))
    }
}

impl RedisBudgetBuilder {
    pub(super) fn url(url: &str) -> Self {
        Self::new(Source::Url(url.to_owned()))
    }

    pub(super) fn connection(
        connection: impl ConnectionLike + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::new(Source::Connection(Box::new(|settings| {
            settings.store(Given(connection))
        })))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            fleet: TokenBudget::builder()
                .cap(DEFAULT_CAP)
                .trickle(DEFAULT_TRICKLE),
            gate: None,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            expected_processes: DEFAULT_PROCESSES,
            command_timeout: DEFAULT_COMMAND_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            observer: None,
        }
    }

    /// Sets the tokens earned by each first attempt of the fleet that ends without failure. Defaults to
    /// 0.2.
    ///
    /// As [`TokenBudgetBuilder::ratio`].
    pub fn ratio(self, tokens: f64) -> Self {
        self.fleet(|fleet| fleet.ratio(tokens))
    }

    /// Sets the tokens that the fleet's cap never falls below. Defaults to 100.
    ///
    /// The cap is `ratio` times the first attempts that the fleet made in the busier of this second and
    /// the last, and not less than this.
    pub fn cap(self, tokens: u64) -> Self {
        self.fleet(|fleet| fleet.cap(tokens))
    }

    /// Sets the tokens that a key starts with which the store does not know. Defaults to 5, or to the
    /// cap when that is less.
    pub fn initial(self, tokens: u64) -> Self {
        self.fleet(|fleet| fleet.initial(tokens))
    }

    /// Sets the time in which one token comes in for the whole fleet, up to the cap. Defaults to 1 s.
    pub fn trickle(self, per_token: Duration) -> Self {
        self.fleet(|fleet| fleet.trickle(per_token))
    }

    /// Lets no tokens come in without traffic.
    pub fn no_trickle(self) -> Self {
        self.fleet(TokenBudgetBuilder::no_trickle)
    }

    /// Sets the tokens that every first attempt adds to the fleet's ceiling. Defaults to 0.5.
    ///
    /// As [`TokenBudgetBuilder::ceiling_ratio`].
    pub fn ceiling_ratio(self, tokens: f64) -> Self {
        self.fleet(|fleet| fleet.ceiling_ratio(tokens))
    }

    /// Sets no ceiling on the volume of retries that succeed.
    pub fn no_ceiling(self) -> Self {
        self.fleet(TokenBudgetBuilder::no_ceiling)
    }

    /// Sets what a retry of such a failure costs, in thousandths of a token. Defaults to 1000 for every
    /// [`Cause`].
    ///
    /// As [`TokenBudgetBuilder::cost`].
    pub fn cost(self, cause: Cause, milli_tokens: u32) -> Self {
        self.fleet(|fleet| fleet.cost(cause, milli_tokens))
    }

    /// Sets how many keys have an account of their own at a time. Defaults to 4096.
    ///
    /// Those beyond share one that the store is not told of. One that made room for another key stays in the
    /// store until it expires there. Each key costs this process about a kilobyte.
    pub fn max_keys(self, keys: usize) -> Self {
        self.fleet(|fleet| fleet.max_keys(keys))
    }

    fn fleet(mut self, set: impl FnOnce(TokenBudgetBuilder) -> TokenBudgetBuilder) -> Self {
        self.fleet = set(self.fleet);
        self
    }

    /// Sets the first gate: what this process may do by itself, however much the fleet has left.
    ///
    /// By default the fleet's rule with the cap and the start of one process, 10 and 5. Costs and the
    /// number of keys are the fleet's.
    pub fn gate(mut self, rule: TokenBudgetBuilder) -> Self {
        self.gate = Some(rule);
        self
    }

    /// Sets the first part of the names of all keys in the store. Defaults to `tower-retry-budget`.
    ///
    /// Processes share a budget when they share the namespace and the [`Key`](crate::budget::Key).
    /// Not empty, and without braces.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Sets how many processes there are taken to be by one that never reached the store. Defaults to 10.
    ///
    /// Its local share then starts with nothing and gets one part in so many of the trickle. Not zero.
    pub fn expected_processes(mut self, processes: u64) -> Self {
        self.expected_processes = processes;
        self
    }

    /// Sets how long a command may take before the store counts as silent. Defaults to 100 ms.
    ///
    /// No call waits that long: a retry waits 50 ms for the store at the most. Not zero.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// Sets how long connecting may take, the handshake included. Defaults to 1 s.
    ///
    /// No call waits for it. Without effect for a connection of the user's own. Not zero.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets who is told when the store fails, is lost and is found: the same observer as the layer's, say.
    /// `tracing` is told in any case.
    pub fn observe(mut self, observer: impl Observe) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the budget and starts its task, which connects in the background when the first key is
    /// used.
    ///
    /// A store that cannot be reached is no error: retries go by the local share until it can.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range, if the URL is none that the `redis` crate
    /// takes, or outside of a Tokio runtime.
    pub fn build(self) -> Result<RedisBudget, ConfigError> {
        let runtime = Handle::try_current().map_err(|_| {
            ConfigError::new("build", "no runtime", "to be called within a Tokio runtime")
        })?;
        let rule = self.fleet.rule()?;
        let gate = self.gate_rule(&rule)?;
        let expected = self.expected_processes;
        if expected == 0 {
            let processes = "at least one process";
            return Err(ConfigError::new("expected_processes", expected, processes));
        }
        for (setting, timeout) in [
            ("command_timeout", self.command_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if timeout.is_zero() {
                return Err(ConfigError::new(
                    setting,
                    timeout,
                    "a time of more than zero",
                ));
            }
        }
        if self.namespace.is_empty() || self.namespace.contains(['{', '}']) {
            let expected = "a name without braces";
            return Err(ConfigError::new("namespace", self.namespace, expected));
        }
        let settings = Settings {
            process: identity(),
            namespace: self.namespace,
            rule,
            command_timeout: self.command_timeout,
        };
        let store = match self.source {
            Source::Connection(store) => store(settings),
            Source::Url(url) => settings.store(Own::new(open(&url)?, self.connect_timeout)),
        };
        let shared = Shared::new(rule, gate, expected, self.fleet.key_limit());
        Ok(RedisBudget::start(shared, store, self.observer, &runtime))
    }

    fn gate_rule(&self, fleet: &Rule) -> Result<Rule, ConfigError> {
        let gate = match &self.gate {
            Some(gate) => gate.rule()?,
            None => {
                let process = Rule::default();
                Rule {
                    floor: process.floor.min(fleet.floor),
                    initial: process.initial.min(fleet.floor),
                    ..*fleet
                }
            }
        };
        Ok(Rule {
            costs: fleet.costs,
            ..gate
        })
    }
}

impl RedisBudget {
    /// Returns a builder for the Redis or Valkey server at `url`: `redis://user:password@host:6379/0`.
    ///
    /// `rediss://` needs one of the TLS features of the `redis` crate, and a Unix socket is
    /// `redis+unix:///path`. For a cluster see [`with_connection`](Self::with_connection).
    pub fn builder(url: &str) -> RedisBudgetBuilder {
        RedisBudgetBuilder::url(url)
    }

    /// Returns a builder for a connection that there is already, such as a `ConnectionManager`, or a
    /// `ClusterConnection` for a cluster.
    ///
    /// It has to connect anew by itself.
    pub fn with_connection(
        connection: impl ConnectionLike + Clone + Send + Sync + 'static,
    ) -> RedisBudgetBuilder {
        RedisBudgetBuilder::connection(connection)
    }

    pub(super) fn start(
        shared: Shared,
        store: Arc<dyn Store>,
        observer: Option<Arc<dyn Observe>>,
        runtime: &Handle,
    ) -> Self {
        let shared = Arc::new(shared);
        let (wakes, woken) = mpsc::unbounded_channel();
        runtime.spawn(Task::new(shared.clone(), store, woken, observer).run());
        Self(Arc::new(Inner { shared, wakes }))
    }
}

/// The URL is left out of the error: it may hold a password.
fn open(url: &str) -> Result<Client, ConfigError> {
    Client::open(url).map_err(|error| {
        let expected = "a URL like `redis://host:6379`; `rediss` needs a TLS feature of `redis`";
        ConfigError::new("url", error.category(), expected)
    })
}

/// Tells this budget from those of other processes, and of other starts of this one.
fn identity() -> String {
    // Keyed by the system's randomness, and anew for each.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random() ^ fastrand::u64(..))
}

impl fmt::Debug for RedisBudgetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBudgetBuilder")
            .field("fleet", &self.fleet)
            .field("gate", &self.gate)
            .field("namespace", &self.namespace)
            .field("expected_processes", &self.expected_processes)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
