//! What each setting accepts and refuses.

use crate::support::{KEY, fail, start};
use crate::{balance, build};
use std::time::Duration;
use tower_retry_budget::budget::WindowBudget;

const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[test]
fn accepts_the_largest_counts_and_refuses_one_more() {
    let most = u64::from(u32::MAX);
    let budget = build(WindowBudget::builder().allowance(most));
    let now = start();
    assert_eq!(balance(&budget, now), f64::from(u32::MAX));
    assert!(fail(&budget, &KEY, now));
    let budget = build(WindowBudget::builder().allowance(0).min_sample(most));
    assert_eq!(balance(&budget, now), f64::from(u32::MAX) / 5.0);
    let error = WindowBudget::builder().allowance(most + 1).build();
    let error = error.unwrap_err();
    assert_eq!(
        (error.setting, error.value.as_str()),
        ("allowance", "4294967296")
    );
}

#[test]
fn refuses_what_a_setting_cannot_be_and_names_it() {
    let new = WindowBudget::builder;
    let mut refused = vec![
        (new().min_sample(1 << 32), "min_sample"),
        (new().max_keys(0), "max_keys"),
    ];
    for window in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        Duration::from_micros(1001),
        YEAR + Duration::from_millis(1),
        Duration::MAX,
    ] {
        refused.push((new().window(window), "window"));
    }
    for ratio in [f64::NAN, f64::INFINITY, -0.1, 0.0005, 1000.5, 1.0 / 3.0] {
        refused.push((new().ratio(ratio), "ratio"));
    }
    for (builder, setting) in refused {
        let error = builder.build().unwrap_err();
        assert_eq!(error.setting, setting, "{error}");
    }
}

#[test]
fn accepts_the_bounds_and_the_noise_of_floats() {
    let new = WindowBudget::builder;
    for builder in [
        new().ratio(0.1 + 0.2),
        new().ratio(0.0).allowance(0),
        new().ratio(1000.0).max_keys(1),
        new().window(Duration::from_millis(1)),
        new().window(YEAR),
    ] {
        assert!(builder.build().is_ok());
    }
}
