//! The budget on a paused clock, with a store that does as it is told.

mod leases;
mod silence;

use super::{
    RedisBudget,
    protocol::{Call, Purse, Reply},
    shared::Shared,
    store::{Answer, Store, StoreError},
};
use crate::{
    budget::{
        Budget, Key, Permit, StoreMode, TokenBudget, TokenBudgetBuilder, Withdrawal, milli::TOKEN,
    },
    clock,
    reason::{Cause, StopReason},
};
use redis::RedisError;
use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

const KEY: Key = Key::from_static("search");
const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(125);

/// What the store does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answer,
    Hang,
    /// Takes the call and loses the reply.
    LoseReply,
    Refuse,
}

/// A fleet with one balance, which it keeps as the script does.
struct Fake {
    live: u64,
    does: Mutex<Does>,
    balance: Mutex<u64>,
    /// The last call that was applied, and its lease.
    applied: Mutex<(u64, Purse)>,
    calls: Mutex<Vec<(Instant, Key, Call)>>,
}

impl Fake {
    /// Of two processes.
    fn new(tokens: u64) -> Arc<Self> {
        Self::with(2, tokens)
    }

    fn with(live: u64, tokens: u64) -> Arc<Self> {
        Arc::new(Self {
            live,
            does: Mutex::new(Does::Answer),
            balance: Mutex::new(tokens * TOKEN),
            applied: Mutex::default(),
            calls: Mutex::default(),
        })
    }

    fn set(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    fn calls(&self) -> Vec<(Instant, Key, Call)> {
        self.calls.lock().unwrap().clone()
    }

    fn balance(&self) -> u64 {
        *self.balance.lock().unwrap()
    }

    fn apply(&self, call: &Call) -> Purse {
        let mut balance = self.balance.lock().unwrap();
        let mut applied = self.applied.lock().unwrap();
        if call.sequence <= applied.0 {
            return applied.1;
        }
        *applied = (call.sequence, Purse::EMPTY);
        let came = call.report.earned + call.report.back.balance;
        *balance = (*balance + came).saturating_sub(call.report.owed.balance);
        if *balance < call.need {
            return Purse::EMPTY;
        }
        let lease = call
            .want
            .balance
            .min(call.need.max(*balance / (2 * self.live)));
        *balance -= lease;
        applied.1 = Purse {
            balance: lease,
            ceiling: call.want.ceiling,
        };
        applied.1
    }

    fn answer(&self, call: &Call) -> Reply {
        let lease = self.apply(call);
        Reply {
            lease,
            left: Purse {
                balance: self.balance(),
                ceiling: 300 * TOKEN,
            },
            cap: 100 * TOKEN,
            live: self.live,
            interval: INTERVAL,
        }
    }
}

fn failed(not_applied: bool) -> StoreError {
    let error = io::Error::from(io::ErrorKind::TimedOut);
    StoreError {
        error: Arc::new(RedisError::from(error)),
        not_applied,
    }
}

impl Store for Fake {
    fn call<'a>(&'a self, key: &'a Key, call: Call) -> Answer<'a> {
        let now = clock::now();
        self.calls.lock().unwrap().push((now, key.clone(), call));
        let does = *self.does.lock().unwrap();
        Box::pin(async move {
            match does {
                Does::Answer => Ok(self.answer(&call)),
                Does::Hang => {
                    sleep(100 * MS).await;
                    Err(failed(false))
                }
                Does::LoseReply => {
                    self.apply(&call);
                    sleep(100 * MS).await;
                    Err(failed(false))
                }
                Does::Refuse => Err(failed(true)),
            }
        })
    }
}

/// A budget of ten expected processes, and a gate that lets all through.
fn budget(store: &Arc<Fake>) -> Arc<RedisBudget> {
    let rule = TokenBudget::builder().cap(100);
    budget_by(&rule.trickle(Duration::from_secs(1)), store)
}

fn budget_by(rule: &TokenBudgetBuilder, store: &Arc<Fake>) -> Arc<RedisBudget> {
    let rule = rule.rule().unwrap();
    let gate = TokenBudget::builder().cap(10_000).initial(10_000).rule();
    let shared = Shared::new(rule, gate.unwrap(), 10, 64);
    let runtime = Handle::current();
    Arc::new(RedisBudget::start(shared, store.clone(), None, &runtime))
}

async fn ask(budget: &Arc<RedisBudget>, key: &Key) -> Result<Permit, StopReason> {
    match budget.clone().withdraw(key, Cause::Timeout, clock::now()) {
        Withdrawal::Granted(permit) => Ok(permit),
        Withdrawal::Denied(reason) => Err(reason),
        Withdrawal::Pending(asked) => asked.await,
    }
}

/// Asks for a retry and lets it fail.
async fn spend(budget: &Arc<RedisBudget>) -> bool {
    let Ok(mut permit) = ask(budget, &KEY).await else {
        return false;
    };
    permit.sent();
    true
}

/// A failed first attempt, and time enough to tell of it.
async fn sync(budget: &RedisBudget, key: &Key) {
    budget.deposit(key, true, clock::now());
    sleep(Duration::from_secs(2)).await;
}

fn mode(budget: &RedisBudget, key: &Key) -> Option<StoreMode> {
    budget.snapshot(key, clock::now()).mode()
}
