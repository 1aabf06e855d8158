//! What a retry costs by the failure that it answers, and what is counted of it.

#[path = "support/budget.rs"]
mod support;

use proptest::{collection::vec, prelude::*};
use support::{KEY, balance, build, ceiling, drain, fail, start, succeed, withdraw};
use tower_retry_budget::{
    budget::{Budget, TokenBudget, TokenBudgetBuilder},
    reason::Cause,
};

const CAUSES: [Cause; 7] = [
    Cause::Throttled,
    Cause::Unavailable,
    Cause::Timeout,
    Cause::ServerError,
    Cause::Unprocessed,
    Cause::Transport,
    Cause::Other,
];

/// Starts with ten tokens, and gets more by success alone.
fn ten() -> TokenBudgetBuilder {
    TokenBudget::builder().initial(10).no_trickle()
}

fn prices() -> TokenBudgetBuilder {
    ten()
        .cost(Cause::Timeout, 2500)
        .cost(Cause::Throttled, 500)
        .cost(Cause::Unprocessed, 0)
}

#[test]
fn costs_a_token_for_every_cause_unless_set() {
    for cause in CAUSES {
        let budget = build(ten());
        let now = start();
        withdraw(&budget, &KEY, cause, now).unwrap().sent();
        assert_eq!(balance(&budget, now), 9.0, "{cause}");
    }
}

#[test]
fn costs_what_is_set_for_that_cause_and_no_other() {
    for (n, priced) in (1..).zip(CAUSES) {
        let budget = build(ten().cost(priced, 1000 + n));
        let now = start();
        for cause in CAUSES {
            let before = balance(&budget, now);
            withdraw(&budget, &KEY, cause, now).unwrap().sent();
            let cost = if cause == priced { 1000 + n } else { 1000 };
            let paid = (before - balance(&budget, now)) * 1000.0;
            assert_eq!(paid.round(), f64::from(cost), "{cause}");
        }
    }
}

#[test]
fn grants_a_retry_when_its_own_cost_is_there_whole() {
    let budget = build(prices());
    let now = start();
    for _ in 0..4 {
        withdraw(&budget, &KEY, Cause::Timeout, now).unwrap().sent();
    }
    assert!(withdraw(&budget, &KEY, Cause::Timeout, now).is_none());
    assert_eq!(balance(&budget, now), 0.0);
    for _ in 0..4 {
        budget.deposit(&KEY, false, now);
    }
    assert!(withdraw(&budget, &KEY, Cause::ServerError, now).is_none());
    withdraw(&budget, &KEY, Cause::Throttled, now)
        .unwrap()
        .sent();
    let left = (balance(&budget, now) * 1000.0).round();
    assert_eq!(left, 300.0);
    assert!(withdraw(&budget, &KEY, Cause::Throttled, now).is_none());
    withdraw(&budget, &KEY, Cause::Unprocessed, now)
        .unwrap()
        .sent();
}

#[test]
fn gives_back_what_the_retry_cost() {
    for cause in CAUSES {
        let budget = build(prices());
        let now = start();
        drop(withdraw(&budget, &KEY, cause, now).unwrap());
        assert_eq!((balance(&budget, now), ceiling(&budget, now)), (10.0, 30.0));
        assert!(succeed(&budget, &KEY, cause, now));
        let left = match cause {
            Cause::Timeout => 7.5,
            Cause::Throttled => 9.5,
            Cause::Unavailable => 9.0,
            _ => 10.0,
        };
        assert_eq!(balance(&budget, now), left, "{cause}");
    }
}

#[test]
fn takes_one_from_the_ceiling_whatever_the_cost() {
    for cause in CAUSES {
        let budget = build(prices());
        let now = start();
        withdraw(&budget, &KEY, cause, now).unwrap().sent();
        assert_eq!(ceiling(&budget, now), 29.0, "{cause}");
    }
}

#[test]
fn bounds_retries_that_cost_nothing_by_the_ceiling_alone() {
    let free = |builder: TokenBudgetBuilder| {
        let budget = build(builder.cost(Cause::Unprocessed, 0));
        let now = start();
        (0..1000)
            .filter(|_| withdraw(&budget, &KEY, Cause::Unprocessed, now).is_some_and(spent))
            .count()
    };
    assert_eq!(free(ten()), 30);
    assert_eq!(free(TokenBudget::builder().initial(0)), 30);
    assert_eq!(free(ten().no_ceiling()), 1000);
}

fn spent(mut permit: tower_retry_budget::budget::Permit) -> bool {
    permit.sent();
    true
}

/// A bucket of 500 in which a failure costs 5 and a time-out 10: the numbers of AWS's clients.
#[test]
fn grants_a_hundred_failing_retries_or_fifty_time_outs_at_the_prices_of_aws() {
    let aws = || {
        let builder = TokenBudget::builder().cap(500).initial(500).no_trickle();
        let builder = builder.no_ceiling().cost(Cause::ServerError, 5000);
        build(builder.cost(Cause::Timeout, 10_000))
    };
    let now = start();
    assert_eq!(drain(&aws(), &KEY, now), 100);
    let budget = aws();
    let time_outs = (0..1000)
        .filter(|_| withdraw(&budget, &KEY, Cause::Timeout, now).is_some_and(spent))
        .count();
    assert_eq!(time_outs, 50);
}

#[test]
fn accepts_the_largest_cost_and_refuses_one_more() {
    let most = 1_000_000;
    let budget = build(ten().cap(1000).initial(1000).cost(Cause::ServerError, most));
    let now = start();
    assert!(fail(&budget, &KEY, now));
    assert_eq!(balance(&budget, now), 0.0);
    for cause in CAUSES {
        for cost in [most + 1, u32::MAX] {
            let error = ten().cost(cause, cost).build().unwrap_err();
            assert_eq!((error.setting, error.value), ("cost", cost.to_string()));
        }
        assert!(ten().cost(cause, most).build().is_ok());
    }
}

#[test]
fn counts_what_was_spent_denied_and_refunded() {
    let budget = build(ten());
    let now = start();
    let counts = || {
        let seen = budget.snapshot(&KEY, now);
        (seen.spent(), seen.denied(), seen.refunded())
    };
    assert_eq!(counts(), (0, 0, 0));
    assert!(fail(&budget, &KEY, now));
    assert_eq!(counts(), (1, 0, 0));
    assert!(succeed(&budget, &KEY, Cause::ServerError, now));
    assert_eq!(counts(), (2, 0, 1), "given back by its success");
    assert!(succeed(&budget, &KEY, Cause::Throttled, now));
    assert_eq!(counts(), (3, 0, 1), "not so after an overload signal");
    drop(withdraw(&budget, &KEY, Cause::Throttled, now));
    assert_eq!(counts(), (4, 0, 2), "but when it was never sent");
    assert_eq!(drain(&budget, &KEY, now), 8);
    assert_eq!(counts(), (12, 1, 2));
    budget.deposit(&KEY, false, now);
    assert_eq!(counts(), (12, 1, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the prices: no thousandth appears or is lost.
    #[test]
    fn the_balance_is_what_was_paid_and_given_back(
        costs in vec(0..3000_u32, 7),
        asked in vec((0..7_usize, 0..3_u8), 0..200),
    ) {
        let builder = CAUSES.into_iter().zip(&costs);
        let builder = builder.fold(ten().no_ceiling(), |b, (cause, cost)| b.cost(cause, *cost));
        let budget = build(builder);
        let now = start();
        let mut milli = 10_000;
        for (cause, outcome) in asked {
            let (cause, cost) = (CAUSES[cause], i64::from(costs[cause]));
            let granted = withdraw(&budget, &KEY, cause, now);
            prop_assert_eq!(granted.is_some(), cost <= milli);
            let Some(mut permit) = granted else { continue };
            milli -= cost;
            match outcome {
                0 => {
                    drop(permit);
                    milli += cost;
                }
                1 => {
                    permit.sent();
                    permit.succeeded(now);
                    milli += if cause.is_overload_signal() { 0 } else { cost };
                }
                _ => permit.sent(),
            }
            prop_assert_eq!((balance(&budget, now) * 1000.0).round(), milli as f64);
        }
    }
}
