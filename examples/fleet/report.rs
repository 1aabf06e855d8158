//! What happened, second by second.

use crate::{
    process::{self, Told},
    redis_server::Look,
    schedule::Schedule,
};
use std::ops::Range;

/// How long the average of the script calls is taken over.
const AVERAGED: usize = 10;

pub(crate) struct Report {
    processes: u32,
    schedule: Schedule,
    seconds: Vec<Second>,
    last_look: Option<Look>,
    sound_looks: u32,
    unsound_looks: u32,
    end: Totals,
}

/// What there is to add of a second that has passed.
pub(crate) struct Row {
    pub(crate) second: u32,
    pub(crate) frozen: bool,
    pub(crate) told: Vec<Told>,
}

/// The state at the end of a second. All counts are since the beginning.
#[derive(Clone, Copy, Default)]
pub(crate) struct Second {
    pub(crate) totals: Totals,
    /// In tokens: by Redis's ledger, or while it is frozen the sum of the local shares.
    pub(crate) balance: f64,
    /// Processes that go by the fleet's account.
    pub(crate) in_fleet: u32,
    pub(crate) script_calls: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) unanswered: u64,
    pub(crate) attempts: u64,
    pub(crate) spent: u64,
}

impl Totals {
    fn of(told: &[Told]) -> Self {
        told.iter().fold(Self::default(), |sum, told| Self {
            calls: sum.calls + told.calls,
            unanswered: sum.unanswered + told.unanswered,
            attempts: sum.attempts + told.attempts,
            spent: sum.spent + told.spent,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            unanswered: self.unanswered - before.unanswered,
            attempts: self.attempts - before.attempts,
            spent: self.spent - before.spent,
        }
    }
}

impl Report {
    pub(crate) fn new(processes: u32, schedule: Schedule) -> Self {
        Self {
            processes,
            schedule,
            seconds: Vec::new(),
            last_look: None,
            sound_looks: 0,
            unsound_looks: 0,
            end: Totals::default(),
        }
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn processes(&self) -> u32 {
        self.processes
    }

    pub(crate) fn cap(&self) -> u32 {
        process::cap(self.processes)
    }

    /// Adds what Redis said, if it answered.
    pub(crate) fn add(&mut self, look: Option<Look>) {
        let Some(look) = look else {
            return;
        };
        match look.ledger {
            Some(ledger) if ledger.is_sound() => self.sound_looks += 1,
            Some(_) => self.unsound_looks += 1,
            None => {}
        }
        self.last_look = Some(look);
    }

    pub(crate) fn end(&mut self, told: &[Told]) {
        self.end = Totals::of(told);
    }

    pub(crate) fn print_head() {
        println!(
            " second | calls  attempts  spent | balance  mode                     | Redis calls"
        );
    }

    /// Adds a second, and prints it.
    pub(crate) fn second(&mut self, row: &Row) {
        let in_fleet = row.told.iter().map(|told| u32::from(told.is_fleet)).sum();
        let ledger = self.last_look.and_then(|look| look.ledger);
        let second = Second {
            totals: Totals::of(&row.told),
            balance: match ledger {
                Some(ledger) if !row.frozen => thousandths(ledger.balance),
                _ => row.told.iter().map(|told| told.balance).sum(),
            },
            in_fleet,
            script_calls: self.last_look.map_or(0, |look| look.script_calls),
        };
        self.seconds.push(second);

        let totals = self.in_seconds(row.second..row.second + 1);
        let mode = match self.processes - in_fleet {
            0 => "fleet".to_owned(),
            alone if in_fleet == 0 => format!("local_share (all {alone})"),
            alone => format!("fleet {in_fleet}, local_share {alone}"),
        };
        let script_calls = match row.frozen {
            true => "-".to_owned(),
            false => self.script_calls(row.second).to_string(),
        };
        println!(
            " {:>6} | {:>5}  {:>8}  {:>5} | {:>7.1}  {mode:<23}  | {script_calls:>11}",
            row.second, totals.calls, totals.attempts, totals.spent, second.balance,
        );
    }

    pub(crate) fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// What was counted in the seconds of a range.
    pub(crate) fn in_seconds(&self, range: Range<u32>) -> Totals {
        let at_end = |seconds: u32| self.at_end_of(seconds).totals;
        at_end(range.end).since(at_end(range.start))
    }

    /// The script calls that Redis ran in a second. Those that were sent to it while it was frozen
    /// count in the second that it thawed in.
    pub(crate) fn script_calls(&self, second: u32) -> u64 {
        self.at_end_of(second + 1).script_calls - self.at_end_of(second).script_calls
    }

    /// The most script calls in any 10 seconds on end, per second and process.
    pub(crate) fn most_script_calls(&self) -> f64 {
        let last = self.seconds.len().saturating_sub(AVERAGED);
        let calls = (0..=last).filter_map(|from| {
            let before = from
                .checked_sub(1)
                .map_or(0, |at| self.seconds[at].script_calls);
            Some(self.seconds.get(from + AVERAGED - 1)?.script_calls - before)
        });
        calls.max().map_or(f64::NAN, |calls| {
            // Counts of a run are far below where that would be inexact.
            calls as f64 / AVERAGED as f64 / f64::from(self.processes)
        })
    }

    /// How many times the ledger was read, and how many of them it was overdrawn or did not add up.
    pub(crate) fn looks(&self) -> (u32, u32) {
        (self.sound_looks + self.unsound_looks, self.unsound_looks)
    }

    /// Whether in all of the seconds no process went by the fleet's account.
    pub(crate) fn is_alone(&self, range: Range<u32>) -> bool {
        self.slice(range).iter().all(|second| second.in_fleet == 0)
    }

    /// Whether by the end of one of the seconds all processes went by the fleet's account.
    pub(crate) fn is_fleet(&self, range: Range<u32>) -> bool {
        let all = self.processes;
        self.slice(range)
            .iter()
            .any(|second| second.in_fleet == all)
    }

    /// What was counted to the very end, after the last second too.
    pub(crate) fn at_end(&self) -> Totals {
        self.end
    }

    fn slice(&self, range: Range<u32>) -> &[Second] {
        let range = range.start as usize..(range.end as usize).min(self.seconds.len());
        self.seconds.get(range).unwrap_or_default()
    }

    fn at_end_of(&self, seconds: u32) -> Second {
        let last = (seconds as usize).checked_sub(1);
        let second = last.and_then(|last| self.seconds.get(last));
        second.copied().unwrap_or_default()
    }
}

fn thousandths(amount: i64) -> f64 {
    amount as f64 / 1000.0
}
