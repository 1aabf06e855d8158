//! The state of one key's account. Pure: no clock, no lock.

use super::rule::{Base, Rule, SLOTS};
use crate::{
    budget::{
        Settled,
        milli::{TOKEN, nanos},
        snapshot::{Counts, Snapshot},
    },
    reason::RetryOutcome,
};
use std::time::Instant;

/// The slot in which retries fade: the last one of the window ended before it began.
const RETRIES_FADE: usize = SLOTS + 1;

/// The slot in which the base fades: the first one that the end of the window is about to reach.
const BASE_FADES: usize = SLOTS - 1;

const LEN: usize = SLOTS + 2;

/// What a window has seen, in slots counted back from the current one.
///
/// A slot says how much happened in it, not when. Where that leaves a doubt, it is decided against
/// the retry: a retry counts whole for at least a window and then fades over one slot, while the base
/// counts for a window at most and fades over the last slot of it. So what is granted would also be
/// granted by a count that knew every instant. What is denied would be denied by one whose window is
/// two slots longer for retries and two slots shorter for the base. Both fade with time, so nothing
/// jumps where one slot turns into the next.
///
/// Every operation first brings the state up to `now`, in at most [`LEN`] steps. A `now` before the
/// last one counts as no time passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// A ring in which `current` is the newest, and the one after it the oldest.
    slots: [Slot; LEN],
    current: usize,
    /// Nanoseconds from the start of the current slot until `last`. Less than a slot.
    into_slot: u64,
    last: Instant,
    /// Sums over the slots that count whole.
    base: u64,
    retries: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    base: u32,
    retries: u32,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            slots: [Slot::default(); LEN],
            current: 0,
            into_slot: 0,
            last: now,
            base: 0,
            retries: 0,
            counts: Counts::default(),
        }
    }

    /// A first attempt ended.
    pub(super) fn deposit(&mut self, rule: &Rule, failed: bool, now: Instant) {
        self.advance(rule, now);
        if failed && rule.base == Base::Successes {
            return;
        }
        let slot = &mut self.slots[self.current];
        // A slot that is full counts for less than it saw.
        if let Some(base) = slot.base.checked_add(1) {
            slot.base = base;
            self.base += 1;
        }
    }

    /// Counts a retry, if the window allows one more, and returns when.
    pub(super) fn withdraw(&mut self, rule: &Rule, now: Instant) -> Option<Instant> {
        self.advance(rule, now);
        let wanted = self.spent(rule) + unit(rule);
        // A slot that is full cannot count one more.
        match self.slots[self.current].retries.checked_add(1) {
            Some(retries) if wanted <= allowed(rule, self.weighed_base(rule)) => {
                self.slots[self.current].retries = retries;
                self.retries += 1;
                self.counts.spent();
                Some(self.last)
            }
            _ => {
                self.counts.denied();
                None
            }
        }
    }

    /// Learns what became of a retry. One that was not sent is taken out of the slot it was counted
    /// in; one that was sent stays, whatever came of it.
    pub(super) fn settle(&mut self, rule: &Rule, settled: Settled, now: Instant) {
        self.advance(rule, now);
        let (RetryOutcome::NotSent, Some(at)) = (settled.outcome, settled.at) else {
            return;
        };
        let Some(back) = self.slots_since(rule, at) else {
            return;
        };
        let slot = &mut self.slots[(self.current + LEN - back) % LEN];
        if let Some(retries) = slot.retries.checked_sub(1) {
            slot.retries = retries;
            if back < RETRIES_FADE {
                self.retries -= 1;
            }
            self.counts.refunded();
        }
    }

    /// Counts all that the window still allows as spent.
    pub(super) fn drain(&mut self, rule: &Rule, now: Instant) {
        self.advance(rule, now);
        let left = allowed(rule, self.weighed_base(rule)).saturating_sub(self.spent(rule));
        let left = u32::try_from(left / unit(rule)).unwrap_or(u32::MAX);
        let slot = &mut self.slots[self.current];
        let room = left.min(u32::MAX - slot.retries);
        slot.retries += room;
        self.retries += u64::from(room);
    }

    /// Whether nothing is counted any more, as in a new account.
    pub(super) fn is_refilled(&self, rule: &Rule, now: Instant) -> bool {
        let idle = nanos(now.saturating_duration_since(self.last));
        // The longest that anything counts.
        idle / rule.slot >= LEN as u64
    }

    /// What there is to look at, as of `now`.
    pub(super) fn snapshot(mut self, rule: &Rule, now: Instant) -> Snapshot {
        self.advance(rule, now);
        let cap = allowed(rule, self.weighed_base(rule));
        let slot = u128::from(rule.slot);
        let milli = |weighed: u128| u64::try_from(weighed / slot).unwrap_or(u64::MAX);
        Snapshot {
            balance: milli(cap.saturating_sub(self.spent(rule))),
            cap: milli(cap),
            ceiling: None,
            counts: self.counts,
            fleet: None,
        }
    }

    /// The retries that count, in thousandths of a retry times nanoseconds in a slot.
    fn spent(&self, rule: &Rule) -> u128 {
        let fading = self.back(RETRIES_FADE).retries;
        self.weighed(rule, self.retries, fading) * u128::from(TOKEN)
    }

    /// The base that counts, times nanoseconds in a slot.
    fn weighed_base(&self, rule: &Rule) -> u128 {
        self.weighed(rule, self.base, self.back(BASE_FADES).base)
    }

    fn weighed(&self, rule: &Rule, whole: u64, fading: u32) -> u128 {
        let left = rule.slot - self.into_slot;
        u128::from(whole) * u128::from(rule.slot) + u128::from(fading) * u128::from(left)
    }

    /// The slot that began so many before the current one. At most `LEN - 1`.
    fn back(&self, slots: usize) -> &Slot {
        &self.slots[(self.current + LEN - slots) % LEN]
    }

    /// How many slots before the current one that was, unless it has left the ring.
    fn slots_since(&self, rule: &Rule, at: Instant) -> Option<usize> {
        // The account may be another one than at the time, and younger.
        let since = nanos(self.last.checked_duration_since(at)?);
        let back = since.saturating_sub(self.into_slot).div_ceil(rule.slot);
        usize::try_from(back).ok().filter(|back| *back < LEN)
    }

    fn advance(&mut self, rule: &Rule, now: Instant) {
        let Some(elapsed) = now.checked_duration_since(self.last) else {
            return;
        };
        self.last = now;
        let into_slot = self.into_slot.saturating_add(nanos(elapsed));
        if into_slot < rule.slot {
            self.into_slot = into_slot;
            return;
        }
        self.into_slot = into_slot % rule.slot;
        // After one turn of the ring there is nothing left to count.
        for _ in 0..(into_slot / rule.slot).min(LEN as u64) {
            self.turn();
        }
    }

    /// Begins the next slot, in the place of the oldest.
    fn turn(&mut self) {
        self.base -= u64::from(self.back(BASE_FADES - 1).base);
        self.retries -= u64::from(self.back(RETRIES_FADE - 1).retries);
        self.current = (self.current + 1) % LEN;
        self.slots[self.current] = Slot::default();
    }
}

/// One retry, in thousandths of a retry times nanoseconds in a slot.
fn unit(rule: &Rule) -> u128 {
    u128::from(TOKEN) * u128::from(rule.slot)
}

/// The retries that so much of a base allows, in the unit of [`Window::spent`].
///
/// Far from overflow: a base of 2^39 in slots of 2^49 ns at a ratio of 2^20.
fn allowed(rule: &Rule, base: u128) -> u128 {
    let sample = u128::from(rule.min_sample) * u128::from(rule.slot);
    u128::from(rule.allowance) * unit(rule) + u128::from(rule.ratio) * base.max(sample)
}
