//! The dispatcher as a child: this test binary once more.

use crate::{app::App, settings::Args, store::Failure};
use clap::Parser;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{BufRead, BufReader, Lines},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};
use tokio::time::{sleep, timeout};

const ARGS: &str = "WEBHOOKS_TEST_ARGS";

/// Not a test: what the children run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_the_dispatcher() -> Result<(), Failure> {
    let Ok(args) = env::var(ARGS) else {
        return Ok(());
    };
    let args = Args::parse_from(args.split('\n'));
    let database = args.database.clone().ok_or("a file is expected")?;
    let app = App::start(&args, "127.0.0.1:0".parse()?, &database).await?;
    println!("\nlistening on {}", app.address);
    app.run().await
}

/// A folder with the events of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("webhooks-test-{name}-{}", std::process::id());
        let folder = env::temp_dir().join(name);
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// Starts the dispatcher, with what is in the folder.
    pub(crate) fn start(&self, args: &[String]) -> Process {
        self.try_start(args).expect("it listens")
    }

    /// Starts it; `None` if it ends instead of listening.
    pub(crate) fn try_start(&self, args: &[String]) -> Option<Process> {
        let database = self.0.join("events.sqlite");
        let mut all = vec!["webhooks".to_owned(), "--database".into()];
        all.push(database.to_str().expect("text").into());
        all.extend_from_slice(args);
        let mut child = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", "process::is_the_dispatcher", "--nocapture"])
            .env(ARGS, all.join("\n"))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = lines
            .by_ref()
            .map(|line| line.expect("text"))
            .find_map(|line| line.strip_prefix("listening on ")?.parse().ok());
        let Some(address) = address else {
            child.wait().expect("it ends");
            return None;
        };
        Some(Process {
            child,
            _output: lines,
            address,
            client: Client::builder(TokioExecutor::new()).build_http(),
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Process {
    child: Child,
    /// What it prints goes nowhere, but must be able to go.
    _output: Lines<BufReader<ChildStdout>>,
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) async fn accept(&self, endpoint: &str, id: &str) {
        let event = json!({"endpoint": endpoint, "class": "event", "id": id, "data": {"of": id}});
        let (status, answer) = self.ask("POST", "/events", &event.to_string()).await;
        assert_eq!(status, 202, "{answer}");
    }

    /// What became of an event; `None` while it is under way.
    pub(crate) async fn outcome(&self, id: &str) -> Option<Value> {
        let (status, event) = self.ask("GET", &format!("/events/{id}"), "").await;
        assert_eq!(status, 200, "{id} is lost");
        event["outcome"].is_string().then_some(event)
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()));
        let response = self.client.request(request.expect("a request")).await;
        let response = response.expect("it answers");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body");
        let answer = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        (status, answer)
    }

    /// Waits until every event has an outcome.
    pub(crate) async fn finish(&self, ids: &[String], within: Duration) -> Vec<Value> {
        let ended = async {
            let mut outcomes = Vec::new();
            for id in ids {
                loop {
                    if let Some(outcome) = self.outcome(id).await {
                        outcomes.push(outcome);
                        break;
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            }
            outcomes
        };
        timeout(within, ended).await.expect("all events end")
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        let kill = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(kill.expect("kill is there").success());
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("a child") {
                    return status;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(15), ended)
            .await
            .expect("it ends")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
