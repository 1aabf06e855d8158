//! What each setting accepts and refuses.

use crate::support::{KEY, balance, build, fail, start};
use std::time::Duration;
use tower_retry_budget::budget::TokenBudget;

#[test]
fn accepts_the_largest_cap_and_refuses_one_more() {
    let most = u64::from(u32::MAX);
    let budget = build(TokenBudget::builder().cap(most).initial(most));
    let now = start();
    assert_eq!(balance(&budget, now), f64::from(u32::MAX));
    assert!(fail(&budget, &KEY, now));
    let error = TokenBudget::builder().cap(most + 1).build().unwrap_err();
    assert_eq!((error.setting, error.value.as_str()), ("cap", "4294967296"));
}

#[test]
fn refuses_what_a_setting_cannot_be_and_names_it() {
    let new = TokenBudget::builder;
    let mut refused = vec![
        (new().initial(11), "initial"),
        (new().cap(3).initial(4), "initial"),
        (new().trickle(Duration::ZERO), "trickle"),
        (new().max_keys(0), "max_keys"),
    ];
    for ratio in [f64::NAN, f64::INFINITY, -0.1, 0.0005, 1000.5, 1.0 / 3.0] {
        refused.push((new().ratio(ratio), "ratio"));
        refused.push((new().ceiling_ratio(ratio), "ceiling_ratio"));
    }
    for (builder, setting) in refused {
        let error = builder.build().unwrap_err();
        assert_eq!(error.setting, setting, "{error}");
    }
}

#[test]
fn accepts_the_bounds_and_the_noise_of_floats() {
    let new = TokenBudget::builder;
    for builder in [
        new().ratio(0.1 + 0.2).ceiling_ratio(0.1 + 0.7),
        new().ratio(0.0).ceiling_ratio(0.0).cap(0).initial(0),
        new().ratio(1000.0).ceiling_ratio(1000.0),
        new().cap(11).initial(11).max_keys(1),
        new().trickle(Duration::from_nanos(1)),
        new().trickle(Duration::MAX),
    ] {
        assert!(builder.build().is_ok());
    }
    let few = build(new().cap(3));
    assert_eq!(
        balance(&few, start()),
        3.0,
        "starts with the cap when that is less"
    );
}
