//! How many attempts fit, and when each of them begins:
//! `cargo run --example plan -- --window 15m --base 2s --cap 5m --jitter full`.

use clap::{Parser, ValueEnum};
use std::{error::Error, time::Duration};
use tower_retry_budget::policy::{
    Backoff, Jitter, RetryPolicy,
    plan::{Plan, Schedule},
};

/// Prints the schedule of a back-off: how many attempts fit, and when each of them begins.
///
/// Times are written like 450ms, 2s, 15m or "1h 30m".
#[derive(Parser)]
#[command(after_help = "\
Examples:
  plan --window 15m --base 2s --cap 5m --jitter full
  plan --cover 5m --base 2s --cap 10m --jitter none
  plan --latency 10s --attempt-timeout 2s --base 100ms --cap 5s")]
struct Arguments {
    /// As many attempts as begin, on average, within this time.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15m")]
    window: Duration,
    /// As few retries as cover this recovery time with their waits, in place of a window.
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "window")]
    cover: Option<Duration>,
    /// As many attempts as end within this time though all are slow, in place of a window.
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with_all = ["window", "cover"])]
    latency: Option<Duration>,
    /// The wait before the first retry, without jitter.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "2s")]
    base: Duration,
    /// What the wait is multiplied by from one retry to the next.
    #[arg(long, default_value_t = 2.0)]
    factor: f64,
    /// What no wait exceeds.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5m")]
    cap: Duration,
    /// How the waits are made random.
    #[arg(long, value_enum, default_value = "full")]
    jitter: JitterName,
    /// How long each attempt may take.
    #[arg(long, value_parser = humantime::parse_duration)]
    attempt_timeout: Option<Duration>,
    /// How many attempts there may be, whatever fits.
    #[arg(long)]
    max_attempts: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum JitterName {
    None,
    Full,
    Equal,
    Decorrelated,
}

impl Arguments {
    fn schedule(&self) -> Result<Schedule, Box<dyn Error>> {
        let backoff = Backoff::builder()
            .base(self.base)
            .factor(self.factor)
            .cap(self.cap)
            .jitter(match self.jitter {
                JitterName::None => Jitter::None,
                JitterName::Full => Jitter::Full,
                JitterName::Equal => Jitter::Equal,
                JitterName::Decorrelated => Jitter::Decorrelated,
            })
            .build()?;
        let mut plan = Plan::new(backoff);
        if let Some(limit) = self.attempt_timeout {
            plan = plan.attempt_timeout(limit);
        }
        if let Some(attempts) = self.max_attempts {
            plan = plan.max_attempts(attempts);
        }
        Ok(match (self.cover, self.latency) {
            (Some(window), _) => plan.cover(window),
            (None, Some(total)) => plan.fit_latency(total),
            (None, None) => plan.fit(self.window),
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let schedule = Arguments::parse().schedule()?;
    println!("{schedule}");
    let policy = RetryPolicy::builder().schedule(&schedule).build()?;
    for warning in policy.warnings() {
        println!("warning: {warning}");
    }
    Ok(())
}
