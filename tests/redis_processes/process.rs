//! One process of the fleet: this test binary once more.

use std::{
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tower_retry_budget::{
    budget::{Budget, Key, RedisBudget, TokenBudget, Withdrawal},
    reason::Cause,
};

pub(crate) const KEY: Key = Key::from_static("search");

const URL: &str = "RETRY_BUDGET_TEST_URL";
const CAP: &str = "RETRY_BUDGET_TEST_CAP";
const TRICKLE: &str = "RETRY_BUDGET_TEST_TRICKLE_MS";
const RUNS: &str = "RETRY_BUDGET_TEST_RUNS_MS";

/// The rule of all processes of one test.
#[derive(Clone, Copy)]
pub(crate) struct Fleet<'a> {
    pub(crate) url: &'a str,
    pub(crate) cap: u64,
    /// The time for one token, or zero for no trickle.
    pub(crate) trickle: Duration,
}

impl Fleet<'_> {
    pub(crate) fn budget(&self) -> Arc<RedisBudget> {
        // The gate of one process is not what is looked at here.
        let gate = TokenBudget::builder()
            .cap(100_000)
            .initial(100_000)
            .no_ceiling();
        let builder = RedisBudget::builder(self.url)
            .cap(self.cap)
            .no_ceiling()
            .gate(gate);
        let builder = match self.trickle.is_zero() {
            true => builder.no_trickle(),
            false => builder.trickle(self.trickle),
        };
        Arc::new(builder.build().expect("valid settings"))
    }

    /// Starts a process whose dependency fails for so long.
    pub(crate) fn start(&self, runs: Duration) -> Process {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "is_a_process_of_the_fleet", "--nocapture"])
            .env(URL, self.url)
            .env(CAP, self.cap.to_string())
            .env(TRICKLE, self.trickle.as_millis().to_string())
            .env(RUNS, runs.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn();
        Process(child.expect("a child"))
    }
}

pub(crate) struct Process(Child);

impl Process {
    /// Waits for its end and returns the retries that it was granted.
    pub(crate) fn granted(self) -> u64 {
        let output = self.0.wait_with_output().expect("its output");
        let output = String::from_utf8(output.stdout).expect("text");
        let granted = output.lines().find_map(|line| {
            let (_, granted) = line.split_once("granted=")?;
            granted.split_whitespace().next()?.parse().ok()
        });
        granted.unwrap_or_else(|| panic!("no count in {output:?}"))
    }

    /// By SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("a child that runs");
        self.0.wait().expect("a child that was killed");
    }
}

/// What a child does. Nothing in the parent.
pub(crate) async fn run() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let number = |name| -> u64 {
        let value = std::env::var(name).expect("set with the URL");
        value.parse().expect("a number")
    };
    let fleet = Fleet {
        url: &url,
        cap: number(CAP),
        trickle: Duration::from_millis(number(TRICKLE)),
    };
    let budget = fleet.budget();
    let until = Instant::now() + Duration::from_millis(number(RUNS));
    let mut granted = 0;
    while Instant::now() < until {
        let now = Instant::now().into_std();
        budget.deposit(&KEY, true, now);
        let permit = match budget.clone().withdraw(&KEY, Cause::ServerError, now) {
            Withdrawal::Granted(permit) => Ok(permit),
            Withdrawal::Denied(reason) => Err(reason),
            Withdrawal::Pending(asked) => asked.await,
            other => panic!("{other:?}"),
        };
        if let Ok(mut permit) = permit {
            permit.sent();
            granted += 1;
        }
        sleep(Duration::from_millis(20)).await;
    }
    budget.drain().await;
    println!("\ngranted={granted}\n");
}
