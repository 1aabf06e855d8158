use crate::policy::Backoff;
use std::{
    fmt::{self, Write},
    time::Duration,
};

/// When the attempts of a call begin: the answer of a [`Plan`](super::Plan), or of a
/// [policy](crate::RetryPolicy::schedule). Prints as a table.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(in crate::policy) backoff: Backoff,
    pub(in crate::policy) attempt_timeout: Option<Duration>,
    /// Never empty.
    pub(in crate::policy) attempts: Vec<PlannedAttempt>,
    pub(in crate::policy) bound: Bound,
    pub(in crate::policy) limit: Option<Duration>,
}

/// One attempt of a [`Schedule`].
///
/// The average counts the waits alone, as if attempts failed at once. The worst case counts the longest
/// waits, and for every attempt its whole time-out if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedAttempt {
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// The wait before it, on average.
    pub wait: Duration,
    /// The wait before it at most.
    pub longest_wait: Duration,
    /// When it begins, on average, after the first attempt began.
    pub offset: Duration,
    /// When it begins at the latest.
    pub latest_offset: Duration,
    /// When it ends at the latest.
    pub latest_end: Duration,
}

/// What ended a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// One more attempt would begin after the window.
    Window,
    /// One more attempt might end after the latency budget.
    Latency,
    /// The time that the dependency takes to recover is covered.
    Recovery,
    /// One more attempt gains too little.
    Gain,
    /// There are as many attempts as there may be.
    MaxAttempts,
}

impl Bound {
    /// Returns the bound as a schedule prints it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "one more would begin after the window",
            Self::Latency => "one more might end too late",
            Self::Recovery => "the time to recover is covered",
            Self::Gain => "one more would gain too little",
            Self::MaxAttempts => "no more are allowed",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Schedule {
    /// How many attempts there are, the first included.
    pub fn max_attempts(&self) -> u32 {
        self.attempts.last().map_or(1, |last| last.attempt)
    }

    /// The attempts, the first one first.
    pub fn attempts(&self) -> &[PlannedAttempt] {
        &self.attempts
    }

    /// When the last attempt begins, on average.
    pub fn span(&self) -> Duration {
        self.attempts
            .last()
            .map_or(Duration::ZERO, |last| last.offset)
    }

    /// When the last attempt ends at the latest.
    pub fn longest(&self) -> Duration {
        self.attempts
            .last()
            .map_or(Duration::ZERO, |last| last.latest_end)
    }

    /// What ended it.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// How long a call under it may take in all; what would come later falls away.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "attempt        wait   at most   begins at   at the latest"
        )?;
        for planned in &self.attempts {
            let late = self
                .limit
                .is_some_and(|limit| planned.latest_offset > limit);
            writeln!(
                f,
                "{:>7}  {:>10}{:>10}{:>12}{:>16}{}",
                planned.attempt,
                text(planned.wait),
                text(planned.longest_wait),
                text(planned.offset),
                text(planned.latest_offset),
                if late { "  *" } else { "" },
            )?;
        }
        let attempts = self.max_attempts();
        let plural = if attempts == 1 { "" } else { "s" };
        let (span, bound) = (text(self.span()), self.bound);
        write!(
            f,
            "{attempts} attempt{plural}, the last one begins at {span}: {bound}"
        )?;
        if let Some(limit) = self.limit {
            write!(
                f,
                "\n* not made when it comes to that: all ends at {}",
                text(limit)
            )?;
        }
        Ok(())
    }
}

/// A time as a person writes it: `450ms`, `2.5s`, `14m15s`, `1h02m`.
fn text(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut text = String::new();
    // Writing to a string does not fail.
    _ = match seconds {
        0 if time.is_zero() => write!(text, "0s"),
        0 => write!(text, "{}ms", time.as_micros().div_ceil(1000)),
        1..60 if time.subsec_millis() > 0 => {
            let tenths = time.as_millis() / 100;
            write!(text, "{}.{}s", tenths / 10, tenths % 10)
        }
        1..60 => write!(text, "{seconds}s"),
        60..3600 => write!(text, "{}m{:02}s", seconds / 60, seconds % 60),
        _ => write!(text, "{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    };
    text
}
