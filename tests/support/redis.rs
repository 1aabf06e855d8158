//! A Redis server of the test's own: on a free port, with its data in a temporary folder.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Ends with its last use, and takes its data with it.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    dir: PathBuf,
    extra: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more of its own command line.
    pub(crate) fn with(extra: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("retry-budget-redis-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a temporary folder");
        let extra: Vec<_> = extra.iter().map(ToString::to_string).collect();
        let port = free_port();
        let child = spawn(port, &dir, &extra);
        Self {
            child,
            port,
            dir,
            extra,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn connect(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a valid URL");
        let connection = client.get_multiplexed_async_connection().await;
        connection.expect("a server that has just started")
    }

    /// Runs one command.
    pub(crate) async fn run(&self, command: &[&str]) {
        let mut connection = self.connect().await;
        let (name, arguments) = command.split_first().expect("a command");
        let ran = redis::cmd(name)
            .arg(arguments)
            .exec_async(&mut connection)
            .await;
        ran.expect("a command that the server takes");
    }

    /// Stops it without closing its connections, as a hung machine would.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    /// Kills it with all that it holds. Nothing was written to disk.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child that runs");
        self.child.wait().expect("a child that was killed");
    }

    /// Starts it again on the same port, empty.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.port, &self.dir, &self.extra);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.expect("a shell's kill").success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener").port()
}

#[allow(
    clippy::zombie_processes,
    reason = "waited for by `RedisServer`, unless the test fails here"
)]
fn spawn(port: u16, dir: &Path, extra: &[String]) -> Child {
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir)
        .args(extra)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("no redis-server ({error}): install it with `apt-get install redis-server`")
        });
    let log = child.stdout.take().expect("its output is piped");
    let mut log = BufReader::new(log);
    let mut line = String::new();
    while log.read_line(&mut line).expect("text") > 0 {
        if line.contains("Ready to accept connections") {
            // The rest is read and dropped, or the server would wait for somebody to read it.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return child;
        }
        line.clear();
    }
    _ = child.wait();
    panic!("redis-server ended before it was ready");
}
