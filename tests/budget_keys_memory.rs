//! What keys cost in memory. Apart from the others, since it counts every allocation.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tower_retry_budget::{
    budget::{Budget, Key, TokenBudget, Withdrawal},
    reason::Cause,
};

const MIB: u64 = 1 << 20;

fn key(host: u32) -> Key {
    let uri = format!("https://tenant-{host}.search.example.com:8443/find");
    Key::from_uri(&uri.parse().expect("a URI"))
}

/// Sends a call that fails, and a retry that fails.
fn fail(budget: &Arc<TokenBudget>, key: &Key, now: Instant) {
    budget.deposit(key, true, now);
    if let Withdrawal::Granted(mut permit) = budget.clone().withdraw(key, Cause::Transport, now) {
        permit.sent();
    }
}

#[test]
fn a_million_different_keys_stay_within_sixteen_mebibytes() {
    let start = tokio::time::Instant::now().into_std();
    let info = allocation_counter::measure(|| {
        let budget = Arc::new(TokenBudget::default());
        for n in 0..1_000_000 {
            // A hundred seconds in all, so that keys are forgotten and made anew meanwhile.
            let now = start + Duration::from_micros(100) * n;
            fail(&budget, &key(n), now);
        }
        assert_eq!(budget.keys(), 4096);
        assert!(budget.overflowed() > 900_000);
    });
    assert!(
        info.bytes_max < 16 * MIB,
        "{} bytes at once",
        info.bytes_max
    );
    assert_eq!(info.bytes_current, 0, "freed with the budget");
}

#[test]
fn a_key_at_the_limit_costs_a_few_hundred_bytes() {
    let start = tokio::time::Instant::now().into_std();
    let mut budget = None;
    let info = allocation_counter::measure(|| {
        let filled = Arc::new(TokenBudget::default());
        (0..4096).for_each(|n| filled.deposit(&key(n), false, start));
        budget = Some(filled);
    });
    let each = info.bytes_current / 4096;
    assert!((150..380).contains(&each), "{each} bytes");
}

#[test]
fn a_key_that_is_known_costs_no_allocation() {
    let budget = Arc::new(TokenBudget::default());
    let now = tokio::time::Instant::now().into_std();
    let uri = http::Uri::from_static("https://a-service.with-a-long-name.example.com:8443/find");
    budget.deposit(&Key::from_uri(&uri), false, now);
    let info = allocation_counter::measure(|| {
        for _ in 0..100 {
            fail(&budget, &Key::from_uri(&uri), now);
        }
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn a_host_too_long_to_keep_inline_does_allocate() {
    let uri: http::Uri = format!("https://{}.example.com/", "a".repeat(60))
        .parse()
        .unwrap();
    let info = allocation_counter::measure(|| drop(Key::from_uri(&uri)));
    assert!(info.count_total > 0);
}
