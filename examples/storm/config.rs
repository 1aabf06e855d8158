//! A scenario of the user's own, from a file: `example.toml` has every field.
//!
//! Each number is checked as it is read, so that an error names its line.

use crate::{
    rules::{self, Limit, Rule, Waits},
    sim::{Delay, Setup, State},
};
use http::StatusCode;
use serde::Deserialize;
use std::{error::Error, fmt, ops::Range, path::Path, time::Duration};
use tower_retry_budget::budget::TokenBudget;

/// What is simulated after the outage.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// How much slower a slow server is, where the file does not say.
const DEFAULT_TIMES: f64 = 10.0;

/// A scenario as the file describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    clients: Clients,
    #[serde(default)]
    network: Network,
    pub(crate) server: Server,
    outage: Outage,
    #[serde(default)]
    policy: Policy,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
    processes: Count,
    calls_per_second: Rate,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    mean_ms: Millis,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    workers: Count,
    work_ms: Millis,
    queue: Count,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outage {
    kind: Kind,
    begins_s: Seconds,
    lasts_s: Seconds,
    times: Option<Rate>,
    status: Option<Status>,
    share: Option<Share>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Slow,
    Down,
    Failing,
}

/// What is not set is the crate's default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Unchecked")]
pub(crate) struct Policy(Unchecked);

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    max_attempts: Option<Attempts>,
    attempt_timeout_ms: Option<Timeout>,
    total_timeout_ms: Option<Timeout>,
    backoff_ms: Option<Millis>,
    ratio: Option<Ratio>,
    cap: Option<u64>,
    initial: Option<u64>,
}

/// The crate's own builder says what is wrong, and which setting it is.
impl TryFrom<Unchecked> for Policy {
    type Error = tower_retry_budget::ConfigError;

    fn try_from(policy: Unchecked) -> Result<Self, Self::Error> {
        let policy = Self(policy);
        let (ratio, cap, initial) = policy.budget();
        let budget = TokenBudget::builder()
            .ratio(ratio)
            .cap(cap)
            .initial(initial);
        budget.build().map(|_| policy)
    }
}

impl Policy {
    fn budget(self) -> (f64, u64, u64) {
        let cap = self.0.cap.unwrap_or(10);
        let initial = self.0.initial.unwrap_or(cap.min(5));
        (self.0.ratio.map_or(0.2, |ratio| ratio.0), cap, initial)
    }

    pub(crate) fn rule(self) -> Rule {
        let (ratio, cap, initial) = self.budget();
        Rule::Own {
            ratio,
            cap,
            initial,
        }
    }

    fn policy(self) -> rules::Policy {
        let limit = |Timeout(limit)| limit;
        rules::Policy {
            max_attempts: self.0.max_attempts.map(|Attempts(most)| most),
            waits: match self.0.backoff_ms {
                None => Waits::Default,
                Some(Millis(base)) => Waits::Full(base),
            },
            attempt_timeout: self.0.attempt_timeout_ms.map(limit),
            total_timeout: match self.0.total_timeout_ms {
                None => Limit::Default,
                Some(Timeout(limit)) => Limit::After(limit),
            },
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or when something in it is not understood: with line and field.
    pub(crate) fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", file.display()).into())
    }

    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    pub(crate) fn bad(&self) -> Range<Duration> {
        let begins = self.outage.begins_s.0;
        begins..begins + self.outage.lasts_s.0
    }

    pub(crate) fn rps(&self) -> f64 {
        self.clients.calls_per_second.0
    }

    pub(crate) fn rule(&self) -> Rule {
        self.policy.rule()
    }

    pub(crate) fn setup(&self) -> Setup {
        let span = self.bad().end + AFTERWARDS;
        let mut setup = Setup::new(self.rps(), self.clients.processes.0, span);
        setup.network = match self.network.mean_ms {
            Millis(Duration::ZERO) => Delay::None,
            Millis(mean) => Delay::Exponential(mean),
        };
        setup.policy = self.policy.policy();
        setup
    }

    pub(crate) fn state(&self) -> impl Fn(Duration) -> State + Send + 'static {
        let bad = self.bad();
        let status = self.outage.status.unwrap_or_default().0;
        let state = match self.outage.kind {
            Kind::Slow => State::Slow(self.outage.times.map_or(DEFAULT_TIMES, |times| times.0)),
            Kind::Down => State::Down(status),
            Kind::Failing => State::Partly(status, self.outage.share.map_or(1.0, |share| share.0)),
        };
        move |at| match bad.contains(&at) {
            true => state,
            false => State::WELL,
        }
    }
}

impl Server {
    /// Workers, the time of work, and the length of the queue.
    pub(crate) fn size(&self) -> (usize, Duration, usize) {
        (self.workers.0, self.work_ms.0, self.queue.0)
    }
}

/// A number that is out of its range.
#[derive(Debug)]
struct OutOfRange(&'static str);

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

/// A number that is checked when it is read.
macro_rules! checked {
    ($name:ident, $from:ty => $to:ty, $range:expr, $expected:literal, $convert:expr) => {
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(try_from = "toml::Value")]
        struct $name($to);

        impl TryFrom<toml::Value> for $name {
            type Error = OutOfRange;

            fn try_from(value: toml::Value) -> Result<Self, OutOfRange> {
                let convert: fn($from) -> $to = $convert;
                // A whole number will do where a fraction may stand, and not the other way round.
                let number = <$from>::deserialize(value).map_err(|_| OutOfRange($expected))?;
                match $range.contains(&number) {
                    true => Ok(Self(convert(number))),
                    false => Err(OutOfRange($expected)),
                }
            }
        }
    };
}

checked!(Count, u16 => usize, 1..=10_000, "a whole number from 1 to 10000", usize::from);
checked!(Attempts, u8 => u32, 1..=100, "a whole number from 1 to 100", u32::from);
checked!(Rate, f64 => f64, 0.1..=20_000.0, "a number from 0.1 to 20000", |number| number);
checked!(Share, f64 => f64, 0.0..=1.0, "a share from 0 to 1", |number| number);
checked!(Ratio, f64 => f64, 0.0..=1000.0, "tokens from 0 to 1000", |number| number);
checked!(Seconds, f64 => Duration, 0.1..=600.0, "seconds from 0.1 to 600", Duration::from_secs_f64);
checked!(Millis, f64 => Duration, 0.0..=60_000.0, "milliseconds from 0 to 60000", millis);
checked!(Timeout, f64 => Duration, 1.0..=600_000.0, "milliseconds from 1 to 600000", millis);

fn millis(number: f64) -> Duration {
    Duration::from_secs_f64(number / 1000.0)
}

/// No network is no delay.
impl Default for Millis {
    fn default() -> Self {
        Self(Duration::ZERO)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u16")]
struct Status(StatusCode);

impl TryFrom<u16> for Status {
    type Error = OutOfRange;

    fn try_from(code: u16) -> Result<Self, OutOfRange> {
        let status = StatusCode::from_u16(code).ok();
        let failure = status.filter(|status| status.as_u16() >= 400);
        failure
            .map(Self)
            .ok_or(OutOfRange("a status from 400 to 999"))
    }
}

impl Default for Status {
    fn default() -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE)
    }
}
