use super::{DEFAULT_TOTAL_TIMEOUT, builder::Settings, plan::LONGEST_WINDOW, planned};
use std::fmt;

/// A risk that a valid policy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Without an attempt time-out one hanging attempt uses up the whole total time-out, and no
    /// retry is ever made for it.
    NoAttemptTimeout,
    /// Without a total time-out a call may take as long as its attempts and the server's own waits.
    NoTotalTimeout,
    /// An attempt may take as long as the whole call, so a retry after a time-out never fits.
    AttemptTimeoutTooLong,
    /// The least time for a retry is more than the whole call may take, so none is ever made.
    MinAttemptTooLong,
    /// With the longest waits, and if every attempt uses its time-out, not all of the attempts fit the
    /// total time-out. [`RetryPolicy::schedule`](super::RetryPolicy::schedule) has the details.
    AttemptsDoNotFit {
        /// How many of them fit.
        fit: u32,
        /// How many there might be.
        max_attempts: u32,
    },
    /// A call may sleep for longer than [`LONGEST_WINDOW`](super::plan::LONGEST_WINDOW): such work belongs
    /// in a queue that outlives the process.
    WindowTooLong,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttemptsDoNotFit { fit, max_attempts } => {
                return write!(
                    f,
                    "total_timeout has room for {fit} of {max_attempts} attempts, if all are slow"
                );
            }
            Self::WindowTooLong => {
                "total_timeout is over 15 minutes: a queue outlives a deploy, a sleeping call does not"
            }
            Self::NoAttemptTimeout => {
                "no attempt_timeout: one attempt that hangs uses up the whole total_timeout"
            }
            Self::NoTotalTimeout => "no total_timeout: nothing bounds the call as a whole",
            Self::AttemptTimeoutTooLong => {
                "attempt_timeout is not shorter than total_timeout: no retry after a time-out fits"
            }
            Self::MinAttemptTooLong => {
                "min_attempt is not shorter than total_timeout: no retry is ever made"
            }
        })
    }
}

pub(super) fn of(settings: &Settings) -> Vec<Warning> {
    use super::builder::AttemptTimeout::{Fixed, Share};
    let mut warnings = Vec::new();
    if settings.max_attempts == 1 {
        return warnings;
    }
    let total = settings
        .total_timeout
        .unwrap_or(Some(DEFAULT_TOTAL_TIMEOUT));
    if total.is_none() {
        warnings.push(Warning::NoTotalTimeout);
    }
    match (settings.attempt_timeout, total) {
        (None, _) => warnings.push(Warning::NoAttemptTimeout),
        (Some(Fixed(limit)), Some(total)) if limit >= total => {
            warnings.push(Warning::AttemptTimeoutTooLong);
        }
        (Some(Share(1.0)), _) => warnings.push(Warning::AttemptTimeoutTooLong),
        _ => {}
    }
    if total.is_some_and(|total| settings.min_attempt >= total) {
        warnings.push(Warning::MinAttemptTooLong);
    }
    if let (Some(total), Some(Fixed(_))) = (total, settings.attempt_timeout) {
        let fit = planned::fit(settings, total);
        if fit < settings.max_attempts && !warnings.contains(&Warning::AttemptTimeoutTooLong) {
            let max_attempts = settings.max_attempts;
            warnings.push(Warning::AttemptsDoNotFit { fit, max_attempts });
        }
    }
    if total.is_some_and(|total| total > LONGEST_WINDOW) {
        warnings.push(Warning::WindowTooLong);
    }
    warnings
}
