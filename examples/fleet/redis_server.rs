//! The Redis server, and what it says itself of the budget in it.

use redis::{Client, RedisResult, aio::MultiplexedConnection};
use std::{
    collections::HashMap,
    error::Error,
    io::{BufRead, BufReader, ErrorKind},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tokio::time::timeout;

/// How long the server may take to answer while it is not frozen.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Ends when dropped, and takes its folder with it.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl RedisServer {
    /// Starts a server on a free port, and returns when it accepts connections.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("fleet-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                std::fs::remove_dir_all(&folder)?;
                return Err(match error.kind() {
                    ErrorKind::NotFound => {
                        "redis-server was not found: install it with `apt-get install redis-server`"
                            .into()
                    }
                    _ => format!("redis-server could not be started: {error}").into(),
                });
            }
        };
        let mut server = Self {
            child,
            port,
            folder,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), Box<dyn Error>> {
        let log = self.child.stdout.take().ok_or("its output is piped")?;
        let mut log = BufReader::new(log);
        let mut line = String::new();
        while log.read_line(&mut line)? > 0 {
            if line.contains("Ready to accept connections") {
                // The rest is read and dropped, or the server would wait for somebody to read it.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Ok(());
            }
            line.clear();
        }
        Err("redis-server ended before it was ready".into())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Stops it without closing its connections, as a hung machine would.
    pub(crate) fn freeze(&self) -> Result<(), Box<dyn Error>> {
        self.signal("-STOP")
    }

    pub(crate) fn thaw(&self) -> Result<(), Box<dyn Error>> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<(), Box<dyn Error>> {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status()?;
        match sent.success() {
            true => Ok(()),
            false => Err(format!("kill {signal} ended with {sent}").into()),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What Redis knows at one time.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// How many script calls it has been sent so far.
    pub(crate) script_calls: u64,
    /// `None` before the first call.
    pub(crate) ledger: Option<Ledger>,
}

/// The account as the budget's script keeps it, in thousandths of a token.
#[derive(Clone, Copy)]
pub(crate) struct Ledger {
    pub(crate) balance: i64,
    earned: i64,
    back: i64,
    leased: i64,
    owed: i64,
}

impl Ledger {
    fn from_fields(fields: &HashMap<String, String>) -> Option<Self> {
        let amount = |field| fields.get(field)?.parse().ok();
        Some(Self {
            balance: amount("balance")?,
            earned: amount("earned")?,
            back: amount("back")?,
            leased: amount("leased")?,
            owed: amount("owed")?,
        })
    }

    /// Whether no more was handed out than came in.
    pub(crate) fn is_sound(&self) -> bool {
        let left = self.earned + self.back - self.leased - self.owed;
        self.balance >= 0 && self.balance == left
    }
}

pub(crate) struct Observer {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl Observer {
    pub(crate) fn new(url: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            client: Client::open(url)?,
            connection: None,
        })
    }

    /// `None` if the server did not answer.
    pub(crate) async fn look(&mut self) -> Option<Look> {
        let look = timeout(LONGEST_LOOK, self.ask()).await;
        let look = look.ok().and_then(Result::ok);
        if look.is_none() {
            self.connection = None;
        }
        look
    }

    async fn ask(&mut self) -> RedisResult<Look> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => {
                let new = self.client.get_multiplexed_async_connection().await?;
                self.connection.insert(new).clone()
            }
        };
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await?;
        // The budget's is the only key.
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut connection)
            .await?;
        let ledger = match keys.first() {
            None => None,
            Some(key) => {
                let fields = redis::cmd("HGETALL")
                    .arg(key)
                    .query_async(&mut connection)
                    .await?;
                Ledger::from_fields(&fields)
            }
        };
        Ok(Look {
            script_calls: script_calls(&stats),
            ledger,
        })
    }
}

fn script_calls(stats: &str) -> u64 {
    let calls = stats.lines().find_map(|line| {
        let line = line.strip_prefix("cmdstat_evalsha:calls=")?;
        line.split(',').next()?.parse().ok()
    });
    calls.unwrap_or(0)
}
