//! What the dispatcher is started with.

use crate::store::Failure;
use clap::Parser;
use http::Uri;
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};
use tower_retry_budget::{
    ConfigError, RetryPolicy,
    policy::{Backoff, Jitter, StatusTable, plan::Plan},
};

/// Accepts events over HTTP, keeps them, and delivers them to webhooks.
///
/// Without arguments it shows itself for some seconds, with two endpoints of its own that it breaks, and
/// ends.
#[derive(Clone, Debug, Parser)]
#[command(name = "webhooks")]
pub(crate) struct Args {
    /// Runs until it is told to stop, with a page at this address that shows what it does
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    pub(crate) serve: Option<SocketAddr>,
    /// Delivers to this endpoint, and makes none of its own. Can be given several times
    #[arg(long = "endpoint", value_name = "NAME=URL", value_parser = endpoint)]
    pub(crate) endpoints: Vec<(String, Uri)>,
    /// The secret that deliveries are signed with
    #[arg(long, default_value = "whsec_for_examples_only")]
    pub(crate) secret: String,
    /// The file that events are kept in. A new one in a temporary folder, unless given
    #[arg(long, value_name = "FILE")]
    pub(crate) database: Option<PathBuf>,
    /// How long one attempt may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) attempt_timeout: Duration,
    /// For how long events of a class are tried: CLASS=TIME. Can be given several times
    #[arg(
        long = "window",
        value_name = "CLASS=TIME",
        value_parser = window,
        default_values = ["notice=30s", "event=15m", "settlement=1d"]
    )]
    pub(crate) windows: Vec<(String, Duration)>,
}

fn split(text: &str) -> Result<(String, &str), Failure> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    if name.is_empty() {
        return Err("a name is expected before `=`".into());
    }
    Ok((name.to_owned(), value))
}

fn endpoint(text: &str) -> Result<(String, Uri), Failure> {
    let (name, url) = split(text)?;
    let url: Uri = url.parse()?;
    match (url.scheme_str(), url.authority()) {
        (Some("http"), Some(_)) => Ok((name, url)),
        _ => Err("a URL with http:// and a host is expected".into()),
    }
}

fn window(text: &str) -> Result<(String, Duration), Failure> {
    let (name, time) = split(text)?;
    Ok((name, humantime::parse_duration(time)?))
}

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: Uri,
    pub(crate) secret: String,
}

/// What the dispatcher is made of.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    pub(crate) windows: BTreeMap<String, Duration>,
    pub(crate) attempt_timeout: Duration,
}

impl Settings {
    pub(crate) fn new(args: &Args, endpoints: Vec<(String, Uri)>) -> Self {
        let endpoints = endpoints.into_iter().map(|(name, url)| {
            let secret = args.secret.clone();
            (name, Endpoint { url, secret })
        });
        Self {
            endpoints: endpoints.collect(),
            windows: args.windows.iter().cloned().collect(),
            attempt_timeout: args.attempt_timeout,
        }
    }

    /// A policy for each class of events.
    pub(crate) fn policies(&self) -> Result<BTreeMap<String, RetryPolicy>, ConfigError> {
        let policy = |(class, window): (&String, &Duration)| {
            Ok((class.clone(), policy(*window, self.attempt_timeout)?))
        };
        self.windows.iter().map(policy).collect()
    }
}

/// A wait that is longer than this goes back into the store.
const SLEEPS: Duration = Duration::from_secs(2);

/// As many attempts as the window has room for, with waits that grow from a sixtieth of a short one to a
/// tenth of it.
fn policy(window: Duration, attempt_timeout: Duration) -> Result<RetryPolicy, ConfigError> {
    let base = (window / 60).clamp(Duration::from_millis(100), Duration::from_secs(5));
    let backoff = Backoff::builder()
        .base(base)
        .cap((window / 10).max(base))
        .jitter(Jitter::Equal)
        .build()?;
    let plan = Plan::new(backoff).attempt_timeout(attempt_timeout.min(window / 4));
    RetryPolicy::for_window(window, &plan)
        .statuses(StatusTable::webhooks())
        .defer_waits_over(SLEEPS)
        .build()
}
