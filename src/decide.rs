//! What happened, and what is left: send again after a wait, or stop, or let the outcome stand.
//!
//! No clock and no I/O. What costs something to ask, the memory limits and the budget, is asked
//! afterwards, in that order, so that a retry refused for a reason in here costs nothing.

use crate::reason::{Processed, SkipReason, StopReason};
use std::time::Duration;

/// What a call may repeat, fixed before its first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayClass {
    /// One attempt, whatever happens.
    Never(SkipReason),
    /// Only what was provably not processed.
    IfUnprocessed,
    /// Any failure.
    Full,
}

/// One attempt that ended, and what is left of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) class: ReplayClass,
    pub(crate) failure: bool,
    pub(crate) processed: Processed,
    /// Whether the body can be sent again.
    pub(crate) replayable: bool,
    pub(crate) attempts: u32,
    pub(crate) max_attempts: u32,
    pub(crate) circuit_open: bool,
    /// The shortest wait that the server asked for.
    pub(crate) hint: Option<Duration>,
    pub(crate) max_retry_after: Duration,
    pub(crate) backoff: Duration,
    /// What is added to a wait that the server asked for. Whether it fits is decided without it.
    pub(crate) spread: Duration,
    /// The time left until the deadline.
    pub(crate) remaining: Option<Duration>,
    pub(crate) min_attempt: Duration,
}

/// Waits that a server asked for are spread upwards by at most this part, so that the callers of one
/// dependency do not all come back at the same instant.
const HINT_SPREAD: f64 = 0.2;

/// What is added to a wait that began as `length`, for a `ratio` from 0 to 1.
pub(crate) fn spread(length: Duration, ratio: f64) -> Duration {
    length.mul_f64(HINT_SPREAD * ratio.clamp(0.0, 1.0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The outcome is the call's answer.
    LetStand(SkipReason),
    Stop(StopReason),
    RetryAfter(Duration),
}

/// Decides, cheapest reason first.
pub(crate) fn decide(now: &Situation) -> Decision {
    if let Some(skip) = not_retryable(now) {
        return Decision::LetStand(skip);
    }
    if now.attempts >= now.max_attempts {
        return Decision::Stop(StopReason::MaxAttempts);
    }
    if now.circuit_open {
        return Decision::Stop(StopReason::CircuitOpen);
    }
    let latest = now
        .remaining
        .map(|remaining| remaining.checked_sub(now.min_attempt));
    let hint = now.hint.unwrap_or_default();
    if !hint.is_zero() && (hint > now.max_retry_after || !fits(hint, latest)) {
        return Decision::Stop(StopReason::RetryAfterTooLong);
    }
    let wait = hint.max(now.backoff);
    if !fits(wait, latest) {
        return Decision::Stop(StopReason::DeadlineTooClose);
    }
    let spread = wait.saturating_add(now.spread);
    Decision::RetryAfter(match latest.flatten() {
        Some(latest) => spread.min(latest),
        None => spread,
    })
}

fn not_retryable(now: &Situation) -> Option<SkipReason> {
    match now.class {
        _ if !now.failure => Some(SkipReason::FinalAnswer),
        ReplayClass::Never(skip) => Some(skip),
        ReplayClass::IfUnprocessed if now.processed != Processed::No => {
            Some(SkipReason::NotIdempotent)
        }
        _ if !now.replayable => Some(SkipReason::NotReplayable),
        _ => None,
    }
}

/// `latest` is `None` without a deadline, and `Some(None)` when not even an attempt without a wait
/// would fit.
fn fits(wait: Duration, latest: Option<Option<Duration>>) -> bool {
    latest.is_none_or(|latest| latest.is_some_and(|latest| wait <= latest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn failed() -> Situation {
        Situation {
            class: ReplayClass::Full,
            failure: true,
            processed: Processed::Unknown,
            replayable: true,
            attempts: 1,
            max_attempts: 3,
            circuit_open: false,
            hint: None,
            max_retry_after: 60_000 * MS,
            backoff: 20 * MS,
            spread: Duration::ZERO,
            remaining: Some(1_000 * MS),
            min_attempt: 10 * MS,
        }
    }

    #[test]
    fn lets_an_outcome_stand_that_no_attempt_would_mend() {
        let stand = |change: fn(&mut Situation)| {
            let mut now = failed();
            change(&mut now);
            decide(&now)
        };
        assert_eq!(
            stand(|now| now.failure = false),
            Decision::LetStand(SkipReason::FinalAnswer)
        );
        assert_eq!(
            stand(|now| now.class = ReplayClass::IfUnprocessed),
            Decision::LetStand(SkipReason::NotIdempotent)
        );
        assert_eq!(
            stand(|now| now.replayable = false),
            Decision::LetStand(SkipReason::NotReplayable)
        );
        let never = stand(|now| now.class = ReplayClass::Never(SkipReason::Disabled));
        assert_eq!(never, Decision::LetStand(SkipReason::Disabled));
    }

    #[test]
    fn repeats_what_is_not_idempotent_only_on_proof() {
        let mut now = failed();
        now.class = ReplayClass::IfUnprocessed;
        now.processed = Processed::No;
        assert_eq!(decide(&now), Decision::RetryAfter(20 * MS));
    }

    #[test]
    fn stops_for_the_cheapest_reason_first() {
        let mut now = failed();
        now.remaining = Some(5 * MS);
        now.hint = Some(3_600_000 * MS);
        now.attempts = 3;
        assert_eq!(decide(&now), Decision::Stop(StopReason::MaxAttempts));
        now.attempts = 2;
        assert_eq!(decide(&now), Decision::Stop(StopReason::RetryAfterTooLong));
        now.hint = None;
        assert_eq!(decide(&now), Decision::Stop(StopReason::DeadlineTooClose));
    }

    #[test]
    fn counts_the_first_attempt() {
        for max_attempts in 1..4 {
            let mut now = failed();
            now.max_attempts = max_attempts;
            now.attempts = 1;
            while let Decision::RetryAfter(_) = decide(&now) {
                now.attempts += 1;
            }
            assert_eq!(now.attempts, max_attempts);
        }
    }

    #[test]
    fn needs_room_for_the_wait_and_for_an_attempt_after_it() {
        let mut now = failed();
        now.remaining = Some(30 * MS);
        assert_eq!(decide(&now), Decision::RetryAfter(20 * MS));
        now.remaining = Some(30 * MS - Duration::from_nanos(1));
        assert_eq!(decide(&now), Decision::Stop(StopReason::DeadlineTooClose));
        now.remaining = None;
        assert_eq!(decide(&now), Decision::RetryAfter(20 * MS));
    }

    #[test]
    fn takes_a_hint_of_zero_for_leave_to_use_its_own_back_off() {
        let mut now = failed();
        now.hint = Some(Duration::ZERO);
        assert_eq!(decide(&now), Decision::RetryAfter(20 * MS));
        now.remaining = Some(5 * MS);
        assert_eq!(decide(&now), Decision::Stop(StopReason::DeadlineTooClose));
    }

    #[test]
    fn decides_whether_a_hint_fits_before_it_is_spread() {
        let mut now = failed();
        now.hint = Some(990 * MS);
        now.spread = spread(990 * MS, 1.0);
        assert_eq!(decide(&now), Decision::RetryAfter(990 * MS));
        now.remaining = None;
        assert_eq!(decide(&now), Decision::RetryAfter(1_188 * MS));
    }

    proptest! {
        #[test]
        fn never_comes_back_earlier_than_asked_or_later_than_fits(
            hint in proptest::option::of(0_u64..=u64::MAX),
            backoff in 0_u64..100_000,
            ratio in -1.0..2.0_f64,
            remaining in proptest::option::of(0_u64..=u64::MAX),
            min_attempt in 0_u64..1_000,
        ) {
            let now = Situation {
                hint: hint.map(Duration::from_secs),
                max_retry_after: Duration::MAX,
                backoff: Duration::from_millis(backoff),
                spread: spread(hint.map(Duration::from_secs).unwrap_or_default(), ratio),
                remaining: remaining.map(Duration::from_millis),
                min_attempt: Duration::from_millis(min_attempt),
                ..failed()
            };
            match decide(&now) {
                Decision::RetryAfter(wait) => {
                    prop_assert!(wait >= now.hint.unwrap_or_default().max(now.backoff));
                    if let Some(remaining) = now.remaining {
                        prop_assert!(wait + now.min_attempt <= remaining);
                    }
                }
                Decision::Stop(_) => prop_assert!(now.remaining.is_some()),
                Decision::LetStand(skip) => prop_assert!(false, "{skip}"),
            }
        }
    }
}
