//! What keys cost in memory.

use crate::SECOND;
use crate::support::{fail, start};
use std::sync::Arc;
use tower_retry_budget::budget::{Budget, Key, WindowBudget};

const MIB: u64 = 1 << 20;

fn key(host: u32) -> Key {
    Key::new(format!("host {host}"))
}

#[test]
fn many_different_keys_stay_within_sixteen_mebibytes() {
    let start = start();
    let info = allocation_counter::measure(|| {
        let budget = Arc::new(WindowBudget::finagle());
        for n in 0..100_000 {
            // A hundred seconds in all, so that keys are forgotten and made anew meanwhile.
            let now = start + SECOND / 1000 * n;
            budget.deposit(&key(n), true, now);
            fail(&budget, &key(n), now);
        }
        assert!((4000..=4096).contains(&budget.keys()));
        assert!(budget.overflowed() > 50_000);
    });
    let most = info.bytes_max;
    assert!(most < 16 * MIB, "{most} bytes at once");
    assert_eq!(info.bytes_current, 0, "freed with the budget");
}

#[test]
fn a_key_costs_as_much_as_documented_however_much_traffic_it_has() {
    let start = start();
    let mut budget = None;
    let info = allocation_counter::measure(|| {
        let filled = WindowBudget::finagle();
        (0..4096).for_each(|n| filled.deposit(&key(n), false, start));
        budget = Some(filled);
    });
    let each = info.bytes_current / 4096;
    assert!((700..1550).contains(&each), "{each} bytes");
    let budget = budget.expect("just made");
    let info = allocation_counter::measure(|| {
        let key = Key::from_static("host 7");
        for n in 0..10_000 {
            budget.deposit(&key, false, start + SECOND / 100 * n);
        }
    });
    assert_eq!(info.count_total, 0);
}
