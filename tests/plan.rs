//! The arithmetic of schedules: exact, and never more than fits.

mod support;

use proptest::prelude::*;
use std::time::Duration;
use support::{
    MS, SECOND, ample, exhausted, get,
    script::{Reply, Script},
    send, timed,
};
use tower::Layer;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy,
    policy::{
        Backoff, Jitter, Warning,
        plan::{Bound, MOST_ATTEMPTS, Plan, Tiers},
    },
    reason::StopReason,
};

fn backoff(base: Duration, cap: Duration, jitter: Jitter) -> Backoff {
    let builder = Backoff::builder().base(base).cap(cap).jitter(jitter);
    builder.build().expect("a valid back-off")
}

#[test]
fn covers_a_recovery_window_with_as_few_retries_as_it_takes() {
    let plan = Plan::new(backoff(2 * SECOND, 600 * SECOND, Jitter::None));
    for (window, retries, covered) in [
        (60, 5, 62),
        (300, 8, 510),
        (900, 9, 1022),
        (3600, 14, 4022),
        (14400, 32, 14822),
    ] {
        let schedule = plan.cover(window * SECOND);
        assert_eq!(schedule.max_attempts() - 1, retries, "{window} s");
        assert_eq!(schedule.span(), covered * SECOND, "{window} s");
        assert_eq!(schedule.bound(), Bound::Recovery);
        assert_eq!(schedule.limit(), None);
    }
}

#[test]
fn fits_a_promised_window_with_the_mean_of_the_jitter_and_under_a_hard_cap() {
    let plan = Plan::new(backoff(2 * SECOND, 300 * SECOND, Jitter::Full));
    let fit = |plan: &Plan, window| {
        let schedule = plan.fit(window * SECOND);
        let last = schedule.span().as_secs();
        (schedule.max_attempts(), last, schedule.bound())
    };
    assert_eq!(fit(&plan, 900), (13, 855, Bound::Window));
    assert_eq!(fit(&plan, 7200), (55, 7155, Bound::Window));
    let capped = plan.max_attempts(16);
    assert_eq!(fit(&capped, 7200), (16, 1305, Bound::MaxAttempts));
}

#[test]
fn fits_a_latency_budget_in_which_every_attempt_uses_its_time_out() {
    let plan = Plan::new(backoff(100 * MS, 5 * SECOND, Jitter::Full)).attempt_timeout(2 * SECOND);
    let schedule = plan.fit_latency(10 * SECOND);
    assert_eq!(schedule.max_attempts(), 4);
    assert_eq!(schedule.longest(), 8_700 * MS);
    assert_eq!(schedule.bound(), Bound::Latency);
    let more = plan.fit_latency(11_500 * MS);
    assert_eq!((more.max_attempts(), more.longest()), (5, 11_500 * MS));
    assert_eq!(plan.fit_latency(SECOND).max_attempts(), 1);
}

#[test]
fn a_lower_cap_of_the_back_off_makes_more_attempts_fit() {
    let fit = |cap| {
        let plan = Plan::new(backoff(2 * SECOND, cap, Jitter::None));
        plan.fit(3600 * SECOND).max_attempts()
    };
    assert!(fit(30 * SECOND) > 100);
    assert!(fit(100_000 * SECOND) < 15);
}

#[test]
fn ends_where_the_dependency_has_recovered() {
    let plan = Plan::new(backoff(SECOND, 60 * SECOND, Jitter::None)).recovery(10 * SECOND);
    let schedule = plan.fit(3600 * SECOND);
    assert_eq!(schedule.bound(), Bound::Recovery);
    assert_eq!(schedule.span(), 15 * SECOND);
    assert_eq!(plan.fit(9 * SECOND).bound(), Bound::Window);
}

#[test]
fn ends_where_one_more_attempt_gains_too_little() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Plan::new(backoff(SECOND, SECOND, Jitter::None));
    let measured = plan.clone().gains([0.9, 0.06, 0.005, 0.0049, 0.02])?;
    let schedule = measured.fit(60 * SECOND);
    assert_eq!(
        (schedule.max_attempts(), schedule.bound()),
        (3, Bound::Gain)
    );
    let strict = plan.clone().gains_over(0.05, [0.9, 0.06, 0.005])?;
    assert_eq!(strict.fit(60 * SECOND).max_attempts(), 2);
    let unmeasured = plan.clone().gains([0.9, 0.06])?;
    assert_eq!(unmeasured.fit(60 * SECOND).max_attempts(), 61);
    for wrong in [vec![-0.1], vec![f64::NAN], vec![0.6, 0.6]] {
        assert!(plan.clone().gains(wrong).is_err());
    }
    Ok(())
}

#[test]
fn prints_a_table() {
    let schedule = Plan::new(backoff(2 * SECOND, 300 * SECOND, Jitter::Full)).fit(900 * SECOND);
    let table = schedule.to_string();
    let last = table.lines().find(|line| line.starts_with("     13"));
    assert_eq!(
        last,
        Some("     13       2m30s     5m00s      14m15s          28m30s  *")
    );
    assert!(table.contains("13 attempts, the last one begins at 14m15s"));
}

#[test]
fn a_policy_prints_its_own_schedule_and_warns_of_what_does_not_fit() {
    let policy = RetryPolicy::builder()
        .max_attempts(4)
        .attempt_timeout(3 * SECOND)
        .total_timeout(10 * SECOND);
    let policy = policy.build().expect("a valid policy");
    let schedule = policy.schedule();
    assert_eq!(schedule.max_attempts(), 4);
    assert_eq!(schedule.longest(), 12_350 * MS);
    let warning = Warning::AttemptsDoNotFit {
        fit: 3,
        max_attempts: 4,
    };
    assert_eq!(policy.warnings(), [warning]);
    let room = policy.to_builder().total_timeout(12_350 * MS).build();
    assert_eq!(room.expect("a valid policy").warnings(), []);
    let long = policy.to_builder().total_timeout(901 * SECOND).build();
    let long = long.expect("a valid policy");
    assert_eq!(long.warnings(), [Warning::WindowTooLong]);
    assert_eq!(RetryPolicy::default().schedule().max_attempts(), 3);
    assert_eq!(RetryPolicy::never().schedule().max_attempts(), 1);
}

/// 503 and 500, so that both back-offs are used.
#[tokio::test(start_paused = true)]
async fn gives_up_within_a_tenth_of_the_window_that_was_planned() {
    for window in [60, 300, 900] {
        let window = window * SECOND;
        let plan = Plan::new(backoff(SECOND, window / 10, Jitter::None));
        let policy = RetryPolicy::for_window(window, &plan).build();
        let layer = RetryBudgetLayer::new()
            .policy(policy.expect("a valid policy"))
            .budget(ample());
        let script = Script::new([503, 500, 503].map(Reply::Status));
        for _ in 0..MOST_ATTEMPTS {
            script.then(500);
        }
        let service = layer.layer(script.clone());
        let (response, took) = timed(send(&service, get())).await;
        let response = response.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        let last = *script.offsets().last().expect("attempts");
        assert!(took <= window && took >= window * 9 / 10, "{took:?}");
        assert_eq!(last, plan.fit(window).span());
    }
}

prop_compose! {
    fn any_plan()(
        base in 0_u64..20_000,
        factor in 1.0..4.0_f64,
        cap in 1_u64..600_000,
        jitter in 0..4,
        timeout in proptest::option::of(1_u64..60_000),
        most in 1..60_u32,
    ) -> Plan {
        let jitter = match jitter {
            0 => Jitter::None,
            1 => Jitter::Full,
            2 => Jitter::Share(0.3),
            _ => Jitter::Decorrelated,
        };
        let backoff = Backoff::builder()
            .base(Duration::from_millis(base))
            .factor(factor)
            .cap(Duration::from_millis(cap))
            .jitter(jitter);
        let plan = Plan::new(backoff.build().expect("valid")).max_attempts(most);
        match timeout {
            Some(timeout) => plan.attempt_timeout(Duration::from_millis(timeout)),
            None => plan,
        }
    }
}

proptest! {
    #[test]
    fn the_plan_fits_and_one_more_attempt_would_not(plan in any_plan(), window in 1_u64..10_000_000) {
        let window = Duration::from_millis(window);
        let fit = plan.fit(window);
        prop_assert!(fit.span() <= window);
        let longer = plan.clone().max_attempts(fit.max_attempts() + 1).cover(Duration::MAX);
        if fit.bound() == Bound::Window {
            prop_assert!(longer.span() > window);
        }

        let latency = plan.fit_latency(window);
        prop_assert!(latency.max_attempts() == 1 || latency.longest() <= window);
        let longer = plan.clone().max_attempts(latency.max_attempts() + 1).cover(Duration::MAX);
        if latency.bound() == Bound::Latency {
            prop_assert!(longer.longest() > window);
        }

        let cover = plan.cover(window);
        let shorter = cover.attempts().iter().rev().nth(1);
        if cover.bound() == Bound::Recovery {
            prop_assert!(cover.span() >= window);
        }
        prop_assert!(shorter.is_none_or(|shorter| shorter.offset < window));
    }

    #[test]
    fn attempts_begin_in_order_and_never_later_than_the_latest(plan in any_plan()) {
        let schedule = plan.cover(Duration::MAX);
        for pair in schedule.attempts().windows(2) {
            prop_assert_eq!(pair[1].attempt, pair[0].attempt + 1);
            prop_assert!(pair[1].offset >= pair[0].offset);
            prop_assert!(pair[1].latest_offset >= pair[0].latest_end);
        }
        for planned in schedule.attempts() {
            prop_assert!(planned.wait <= planned.longest_wait);
            prop_assert!(planned.offset <= planned.latest_offset);
        }
    }

    #[test]
    fn tiers_never_exceed_their_totals(
        attempts in 1..=u32::MAX,
        nanos in any::<u64>(),
        seconds in any::<u64>(),
        reserve in 0.0..0.999_f64,
        wishes in proptest::collection::vec(1..=u32::MAX, 0..6),
    ) {
        let time = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos));
        let tiers = Tiers::new(attempts, time).reserve(reserve).divide(wishes.clone());
        let tiers = tiers.expect("valid");
        let product: u128 = tiers.iter().map(|tier| u128::from(tier.max_attempts)).product();
        prop_assert!(product <= u128::from(attempts));
        let mut time = time;
        for (tier, wish) in tiers.iter().zip(&wishes) {
            prop_assert_eq!(tier.total_timeout, time);
            let used = tier.attempt_timeout.checked_mul(tier.max_attempts);
            prop_assert!(used.is_some_and(|used| used <= time));
            prop_assert!(tier.max_attempts >= 1 && tier.max_attempts <= *wish);
            // One more would exceed the total, unless it is not wished for.
            let more = product / u128::from(tier.max_attempts) * (u128::from(tier.max_attempts) + 1);
            prop_assert!(tier.max_attempts == *wish || more > u128::from(attempts));
            time = tier.attempt_timeout;
        }
    }
}

#[test]
fn a_naive_split_multiplies_and_tiers_do_not() {
    let tiers = Tiers::new(8, 10 * SECOND).divide([2, 2, 4]);
    let attempts: Vec<_> = tiers
        .expect("valid")
        .iter()
        .map(|tier| tier.max_attempts)
        .collect();
    assert_eq!(attempts, [1, 2, 4]);
    assert!(Tiers::new(0, SECOND).divide([1]).is_err());
    assert!(Tiers::new(8, SECOND).divide([1, 0]).is_err());
    assert!(Tiers::new(8, SECOND).reserve(1.0).divide([1]).is_err());
}
