//! The budgets alone.

use crate::measure::{nanos, quantile};
use std::{hint::black_box, sync::Arc, thread, time::Duration};
use tokio::time::Instant;
use tower::retry::budget::{Budget as _, TpsBudget};
use tower_retry_budget::{
    budget::{Budget, Key, TokenBudget, Withdrawal},
    reason::Cause,
};

const ROUNDS: usize = 41;
const OPERATIONS: u32 = 50_000;

/// Tokens that no round uses up.
const AMPLE: u64 = 4_000_000;

/// The account of requests without an authority, which is not looked up, and one that is.
static PLAIN: Key = Key::no_authority();
static NAMED: Key = Key::from_static("search");

/// Prints what each costs, and returns the ratios.
pub fn measure() -> Vec<(&'static str, f64)> {
    let ours = TokenBudget::builder().cap(AMPLE).initial(AMPLE).build();
    let ours = Arc::new(ours.expect("a valid budget"));
    let theirs = TpsBudget::new(Duration::from_secs(10), 50_000_000, 0.2);
    // A caller has read the clock already; theirs reads it by itself.
    let deposit = |key: &Key| {
        let now = Instant::now().into_std();
        for _ in 0..OPERATIONS {
            ours.deposit(black_box(key), false, black_box(now));
        }
    };
    let deposit_ours = || deposit(&PLAIN);
    let deposit_keyed = || deposit(&NAMED);
    let deposit_theirs = || {
        for _ in 0..OPERATIONS {
            theirs.deposit();
        }
    };
    let withdraw = |key: &Key| {
        let now = Instant::now().into_std();
        for _ in 0..OPERATIONS {
            let budget: Arc<dyn Budget> = ours.clone();
            let answer = budget.withdraw(black_box(key), Cause::ServerError, now);
            if let Withdrawal::Granted(mut permit) = answer {
                permit.sent();
                permit.succeeded(now);
            }
        }
    };
    let withdraw_ours = || withdraw(&PLAIN);
    let withdraw_keyed = || withdraw(&NAMED);
    let withdraw_theirs = || {
        for _ in 0..OPERATIONS {
            black_box(theirs.withdraw());
        }
    };
    println!("\nbudgets alone, ns               ours  theirs");
    let mut ratios = Vec::new();
    let mut compare = |name, threads, ours: &(dyn Fn() + Sync), theirs: &(dyn Fn() + Sync)| {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            for (times, work) in times.iter_mut().zip([ours, theirs]) {
                times.push(time(threads, work));
            }
        }
        let [ours, theirs] = times.map(|times| quantile(&times, 0.5));
        println!("  {name:24} {ours:9.1} {theirs:7.1}");
        ratios.push((name, ours / theirs));
    };
    compare("deposit_1_thread", 1, &deposit_ours, &deposit_theirs);
    compare("deposit_2_threads", 2, &deposit_ours, &deposit_theirs);
    compare("deposit_keyed_1_thread", 1, &deposit_keyed, &deposit_theirs);
    compare(
        "deposit_keyed_2_threads",
        2,
        &deposit_keyed,
        &deposit_theirs,
    );
    compare("withdraw_2_threads", 2, &withdraw_ours, &withdraw_theirs);
    compare(
        "withdraw_keyed_2_threads",
        2,
        &withdraw_keyed,
        &withdraw_theirs,
    );
    ratios
}

/// Nanoseconds of one operation, when so many threads do it at once.
fn time(threads: usize, work: &(dyn Fn() + Sync)) -> f64 {
    let start = Instant::now();
    if threads == 1 {
        work();
    } else {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }
    nanos(start.elapsed()) / f64::from(OPERATIONS)
}

/// What a budget at its default limit holds after it was asked for so many keys.
pub fn bytes_of_keys(keys: u32) -> i64 {
    let mut kept = None;
    let counted = allocation_counter::measure(|| {
        let budget = TokenBudget::default();
        let now = Instant::now().into_std();
        for key in 0..keys {
            let uri = format!("http://host-{key}.example.com").parse();
            let uri = uri.expect("a valid URI");
            budget.deposit(&Key::from_uri(&uri), false, now);
        }
        kept = Some(budget);
    });
    drop(kept);
    counted.bytes_current
}
