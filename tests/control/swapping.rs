//! Policy and budget change together, for calls that begin.

use super::{built, layer, sleepy};
use crate::support::{MS, get, ledger::Ledger, recorder::Recorder, script::Script, send, steady};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use tokio::time::sleep;
use tower::Layer;
use tower_retry_budget::{
    RetryPolicy,
    budget::{Budget, Key, Permit, Settled, Withdrawal},
    control::{Gate, Gates, Mode},
    observe::{CallView, Observe},
    policy::Backoff,
    reason::{Cause, RetryOutcome, StopReason},
};

#[tokio::test(start_paused = true)]
async fn the_next_call_has_the_new_policy_and_the_new_budget() {
    let (old, new) = (Ledger::new([]), Ledger::new([]));
    let layer = layer(steady().max_attempts(2)).shared_budget(old.clone());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    control.swap(built(steady().max_attempts(4)), new.clone());
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 4);
    assert_eq!((old.withdrawals().len(), new.withdrawals().len()), (0, 3));
    assert_eq!((old.deposits().len(), new.deposits().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_ends_by_the_old_ones_and_settles_with_them() {
    let (old, new) = (Ledger::new([]), Ledger::new([]));
    let layer = layer(sleepy().max_attempts(3)).shared_budget(old.clone());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let swap = async {
        sleep(300 * MS).await;
        control.swap(built(steady().max_attempts(9)), new.clone());
    };
    let (response, ()) = tokio::join!(send(&service, get()), swap);
    response.unwrap();
    assert_eq!(script.count(), 3);
    assert_eq!(old.settled(), [RetryOutcome::Failed; 2]);
    assert!(new.withdrawals().is_empty() && new.settled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_policy_of_its_own_keeps_it() {
    let layer = layer(steady());
    let control = layer.control();
    control.swap(built(steady().max_attempts(5)), Ledger::new([]));
    let script = Script::always(502);
    let mut request = get();
    request.extensions_mut().insert(RetryPolicy::never());
    send(&layer.layer(script.clone()), request).await.unwrap();
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_set_by_one_change_stays_through_the_next() {
    let layer = layer(steady());
    let control = layer.control();
    let ledger = Ledger::new([]);
    control.swap(built(steady().max_attempts(5)), ledger.clone());
    control.gates(Gates::default().with(Gate::Budget, Mode::Off));
    let script = Script::always(502);
    send(&layer.layer(script.clone()), get()).await.unwrap();
    assert_eq!(script.count(), 5);
    assert!(ledger.withdrawals().is_empty());
}

/// Denies everything, and knows how many attempts the policies have that belong to it.
struct Belongs(u32);

impl Budget for Belongs {
    fn deposit(&self, _: &Key, _: bool, _: std::time::Instant) {}

    fn withdraw(self: Arc<Self>, key: &Key, cause: Cause, _: std::time::Instant) -> Withdrawal {
        // The cost tells the observer which budget it was.
        let cost = self.0;
        Withdrawal::Granted(Permit::new(self, key.clone(), cause, cost))
    }

    fn settle(&self, _: &Key, _: Settled, _: std::time::Instant) {}
}

/// Sees which policy a call has, and which budget its retry was withdrawn from.
#[derive(Default)]
struct Pairs {
    attempts: AtomicU32,
    seen: [AtomicU32; 2],
    mixed: AtomicBool,
}

impl Observe for Pairs {
    fn call_started(&self, call: &CallView<'_>) {
        self.attempts.store(call.max_attempts, Ordering::SeqCst);
    }

    fn settled(&self, _: &Key, settled: &Settled) {
        let policy = self.attempts.load(Ordering::SeqCst);
        self.mixed
            .fetch_or(policy != settled.cost, Ordering::SeqCst);
        self.seen[policy as usize % 2].fetch_add(1, Ordering::SeqCst);
    }
}

/// One thread swaps as fast as it can, another calls.
#[test]
fn no_call_sees_the_one_without_the_other() {
    let quick = |attempts| {
        let policy = steady().backoff(Backoff::none());
        built(policy.max_attempts(attempts))
    };
    let pairs = Arc::new(Pairs::default());
    let layer = tower_retry_budget::RetryBudgetLayer::new()
        .policy(quick(2))
        .budget(Belongs(2))
        .observe(pairs.clone());
    let control = layer.control();
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = {
        let stop = stop.clone();
        let (two, three) = (quick(2), quick(3));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                control.swap(three.clone(), Arc::new(Belongs(3)));
                control.swap(two.clone(), Arc::new(Belongs(2)));
            }
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let service = layer.layer(Script::always(502));
        let both = || {
            pairs
                .seen
                .iter()
                .all(|seen| seen.load(Ordering::SeqCst) > 200)
        };
        while !both() {
            send(&service, get()).await.unwrap();
        }
    });
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(!pairs.mixed.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn observers_see_the_account_of_the_budget_in_force() {
    let recorder = Recorder::default();
    let layer = layer(steady()).observe(recorder.clone());
    let control = layer.control();
    let denies = Ledger::new([crate::support::ledger::Answer::Deny(StopReason::Budget)]);
    control.swap(built(steady()), denies);
    send(&layer.layer(Script::always(502)), get())
        .await
        .unwrap();
    let told = recorder.take();
    assert!(
        told.contains(&"budget_denied server_error budget".to_owned()),
        "{told:?}"
    );
}
