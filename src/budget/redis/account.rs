//! What one process knows and owes of one key. Pure: no clock, no I/O.

use super::{
    pace::Pace,
    protocol::{Call, Purse, Reply, Report},
    share::Share,
};
use crate::{
    budget::{
        Settled,
        milli::TOKEN,
        snapshot::{Counts, Fleet, Snapshot, StoreMode},
        token::{bucket::Bucket, rule::Rule},
    },
    reason::RetryOutcome,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// How long a call whose outcome is unknown is repeated as it was. The script remembers the calls of
/// a process for twice as long. Then what it told is given up; what came after it is not.
const REPEATED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Account {
    /// The first gate: this process alone, by the rule of a token budget.
    pub(super) gate: Bucket,
    /// What may be spent on the spot. Retries that are given back go here.
    lease: Purse,
    report: Report,
    /// When the report began.
    since: Option<Instant>,
    /// The call that is under way, or whose outcome is not known.
    sent: Option<Sent>,
    sequence: u64,
    seen: Option<(Reply, Instant)>,
    share: Share,
    contact: Contact,
    pub(super) pace: Pace,
    /// Asked for since the last call, granted or not, and the most for one retry.
    wanted: Purse,
    need: u64,
    /// Whether the task was told of it, and has not made the call yet.
    asked: bool,
    counts: Counts,
    answered: Arc<Notify>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    call: Call,
    first: Instant,
    repeated: bool,
}

/// What is known of the store, as far as this key is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contact {
    /// Not asked yet.
    New,
    /// Answers. `dry` when it had nothing to lease the last time.
    Answers { dry: bool },
    /// A call is under way. `slow` when somebody has waited for it in vain.
    Asked { slow: bool },
    /// Did not answer the last call. The local share stands in for it.
    Silent,
}

/// What becomes of a retry that is asked for.
#[derive(Debug)]
pub(super) enum Decision {
    Granted,
    Denied,
    /// Decide again after the next answer.
    Wait(Wait),
}

#[derive(Debug)]
pub(super) struct Wait {
    pub(super) answered: Arc<Notify>,
    /// Whether a call has to be asked for: none is under way.
    pub(super) ask: bool,
    /// The call that was last made when the retry was noted as wanted.
    pub(super) noted: u64,
}

impl Account {
    pub(super) fn new(gate: &Rule, rule: &Rule, expected: u64, now: Instant) -> Self {
        Self {
            gate: Bucket::new(gate, now),
            lease: Purse::EMPTY,
            report: Report::default(),
            since: None,
            sent: None,
            sequence: 0,
            seen: None,
            share: Share::unsynced(rule, expected, now),
            contact: Contact::New,
            pace: Pace::new(),
            wanted: Purse::EMPTY,
            need: 0,
            asked: false,
            counts: Counts::default(),
            answered: Arc::new(Notify::new()),
        }
    }

    pub(super) fn deposit(&mut self, rule: &Rule, failed: bool, now: Instant) {
        let mut earned = if failed { 0 } else { rule.ratio };
        let kept = self.share.deposit(rule, earned, now);
        if matches!(
            self.contact,
            Contact::Silent | Contact::Asked { slow: true }
        ) {
            // What a full share could not take must not pay for what is spent of it later.
            earned = kept;
        }
        self.since.get_or_insert(now);
        self.report.add(Report {
            attempts: 1,
            earned,
            ..Report::default()
        });
    }

    /// Asks for one retry that the gate has granted. `noted` is that of the last [`Wait`].
    pub(super) fn withdraw(
        &mut self,
        rule: &Rule,
        cost: u32,
        noted: Option<u64>,
        now: Instant,
    ) -> Decision {
        let price = price(rule, cost);
        if noted != Some(self.sequence) {
            self.want(price);
        }
        if self.lease.take(price) {
            return self.granted();
        }
        match self.contact {
            Contact::Silent | Contact::Asked { slow: true } => self.try_share(rule, price, now),
            Contact::Asked { slow: false } => self.wait(false),
            Contact::New | Contact::Answers { dry: false } if self.pace.may_ask(now) => {
                let ask = !std::mem::replace(&mut self.asked, true);
                self.wait(ask)
            }
            Contact::New | Contact::Answers { .. } => self.denied(),
        }
    }

    /// Asks the local share: for a key that the store is not told of.
    pub(super) fn withdraw_alone(&mut self, rule: &Rule, cost: u32, now: Instant) -> Decision {
        let price = price(rule, cost);
        match self.lease.take(price) {
            true => self.granted(),
            false => self.try_share(rule, price, now),
        }
    }

    /// Somebody has waited for an answer in vain. Those who come after do not wait for it again.
    pub(super) fn give_up(&mut self, rule: &Rule, cost: u32, now: Instant) -> Decision {
        if let Contact::Asked { slow } = &mut self.contact {
            *slow = true;
        }
        let price = price(rule, cost);
        match self.lease.take(price) {
            true => self.granted(),
            false => self.try_share(rule, price, now),
        }
    }

    fn wait(&self, ask: bool) -> Decision {
        Decision::Wait(Wait {
            answered: self.answered.clone(),
            ask,
            noted: self.sequence,
        })
    }

    fn want(&mut self, price: Purse) {
        self.wanted.add(price);
        if price.balance > 0 {
            self.need = self.need.max(price.balance).max(TOKEN);
        }
    }

    fn try_share(&mut self, rule: &Rule, price: Purse, now: Instant) -> Decision {
        if !self.share.take(rule, price, now) {
            return self.denied();
        }
        self.report.owed.add(price);
        self.granted()
    }

    fn granted(&mut self) -> Decision {
        self.counts.spent();
        Decision::Granted
    }

    pub(super) fn denied(&mut self) -> Decision {
        self.counts.denied();
        Decision::Denied
    }

    /// Learns what became of a retry. The rule is that of the token budget.
    pub(super) fn settle(&mut self, rule: &Rule, settled: Settled) {
        let price = price(rule, settled.cost);
        let back = match settled.outcome {
            RetryOutcome::NotSent => price,
            RetryOutcome::Succeeded if !settled.cause.is_overload_signal() => Purse {
                ceiling: 0,
                ..price
            },
            RetryOutcome::Succeeded | RetryOutcome::Failed => return,
        };
        self.lease.add(back);
        self.counts.refunded();
    }

    /// There may be something to tell. Returns when a call is due, if none was.
    ///
    /// A key that the store does not answer for is called by the task, one at a time.
    pub(super) fn wake(&mut self, spread: f32, now: Instant) -> Option<Instant> {
        match self.contact {
            Contact::Silent => None,
            _ => self.pace.wake(spread, now),
        }
    }

    /// Asks for no more leases: all that is left goes back.
    pub(super) fn wind_up(&mut self) {
        self.wanted = Purse::EMPTY;
        self.need = 0;
    }

    pub(super) fn has_news(&self) -> bool {
        !(self.report.is_empty()
            && self.lease.is_empty()
            && self.wanted.is_empty()
            && self.sent.is_none())
    }

    /// Whether a call was asked for that may be made now. If it was, and may not, nobody waits for it.
    pub(super) fn takes_ask(&mut self, now: Instant) -> bool {
        if !std::mem::take(&mut self.asked) {
            return false;
        }
        let may_ask = self.contact != Contact::Silent && self.pace.may_ask(now);
        if !may_ask {
            self.answered.notify_waiters();
        }
        may_ask
    }

    /// Makes the next call, if there is something to tell and none is under way.
    pub(super) fn begin(&mut self, jitter: f32, now: Instant) -> Option<Call> {
        if matches!(self.contact, Contact::Asked { .. }) {
            return None;
        }
        if !self.has_news() && self.contact != Contact::Silent {
            self.pace.defer(None);
            return None;
        }
        self.pace.called(jitter, now);
        self.asked = false;
        let probe = self.contact == Contact::Silent;
        self.contact = Contact::Asked { slow: probe };
        if let Some(sent) = &mut self.sent {
            if now.saturating_duration_since(sent.first) < REPEATED {
                sent.repeated = true;
                return Some(sent.call);
            }
        }
        self.sequence = self.sequence.saturating_add(1);
        let mut call = Call {
            sequence: self.sequence,
            report: Report::default(),
            span: Duration::ZERO,
            want: Purse::EMPTY,
            need: 0,
            seen: self.seen.map(|(reply, _)| reply.left),
        };
        // A probe says nothing: what is told to a store that does not answer may be lost.
        if !probe {
            call.report = std::mem::take(&mut self.report);
            call.report.back.add(std::mem::take(&mut self.lease));
            let since = self.since.take().unwrap_or(now);
            call.span = now.saturating_duration_since(since);
            call.want = std::mem::take(&mut self.wanted);
            call.need = std::mem::take(&mut self.need);
        }
        self.sent = Some(Sent {
            call,
            first: now,
            repeated: false,
        });
        Some(call)
    }

    /// The store has answered.
    pub(super) fn answer(&mut self, reply: Reply, now: Instant) {
        let asked = self
            .sent
            .take()
            .is_some_and(|sent| !sent.call.want.is_empty());
        self.contact = Contact::Answers {
            dry: asked && reply.lease.is_empty(),
        };
        self.lease.add(reply.lease);
        // What was spent without a lease while this one was on its way is paid from it.
        self.lease.cancel(&mut self.report.owed);
        self.seen = Some((reply, now));
        self.share = Share::of(&reply, self.report.owed, now);
        self.pace.set(reply.interval, now);
        self.answered.notify_waiters();
    }

    /// The call has failed. Unless it is certain that it was not `applied`, it will be repeated as it
    /// was, and the script will know it again.
    pub(super) fn fail(&mut self, not_applied: bool) {
        self.contact = Contact::Silent;
        if let Some(sent) = self.sent.take_if(|sent| not_applied && !sent.repeated) {
            let mut report = sent.call.report;
            // What was to go back is still this process's to spend.
            self.lease.add(std::mem::take(&mut report.back));
            self.report.add(report);
            self.since = Some(sent.first.checked_sub(sent.call.span).unwrap_or(sent.first));
            self.wanted.add(sent.call.want);
            self.need = self.need.max(sent.call.need);
        }
        self.answered.notify_waiters();
    }

    /// Ends the wait of all who wait for an answer.
    pub(super) fn release(&self) {
        self.answered.notify_waiters();
    }

    /// Whether forgetting it loses nothing, and making it anew gives nobody more.
    pub(super) fn is_refilled(&self, gate: &Rule, now: Instant) -> bool {
        !self.has_news()
            && !matches!(self.contact, Contact::Asked { .. })
            && Arc::strong_count(&self.answered) == 1
            && self.gate.is_refilled(gate, now)
    }

    /// What there is to look at, as of `now`. A key that the store has not told of is shown by the
    /// local share.
    pub(super) fn snapshot(&self, rule: &Rule, now: Instant) -> Snapshot {
        let share = self.share.purse(rule, now);
        let (purse, cap) = match (self.mode(), self.seen) {
            (StoreMode::Fleet, Some((reply, _))) => (reply.left, reply.cap),
            _ => (share, self.share.cap()),
        };
        Snapshot {
            balance: purse.balance,
            cap,
            ceiling: rule.ceiling_ratio.map(|_| purse.ceiling),
            counts: self.counts,
            fleet: Some(Fleet {
                leased: self.lease.balance,
                mode: self.mode(),
                live: self.seen.map_or(0, |(reply, _)| reply.live),
                synced: self.seen.map(|(_, at)| now.saturating_duration_since(at)),
            }),
        }
    }

    pub(super) fn mode(&self) -> StoreMode {
        match self.contact {
            Contact::Answers { .. } | Contact::Asked { slow: false } if self.seen.is_some() => {
                StoreMode::Fleet
            }
            _ => StoreMode::LocalShare,
        }
    }
}

/// What one retry takes from the balance and from the ceiling.
fn price(rule: &Rule, cost: u32) -> Purse {
    Purse {
        balance: cost.into(),
        ceiling: rule.ceiling_ratio.map_or(0, |_| TOKEN),
    }
}
