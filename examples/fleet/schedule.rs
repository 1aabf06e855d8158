//! When the dependency goes down, and when Redis freezes.

use std::{fmt, ops::Range};

pub(crate) const DEFAULT_SECONDS: u32 = 28;

/// Below it the parts would be too short to show anything.
pub(crate) const LEAST_SECONDS: u32 = 20;

pub(crate) struct Schedule {
    seconds: u32,
    first_outage: Range<u32>,
    second_outage: Range<u32>,
    frozen: Range<u32>,
}

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Down,
    Up,
    Freeze,
    Thaw,
}

impl Schedule {
    pub(crate) fn new(seconds: u32) -> Self {
        // The times of a run of the default length, stretched.
        let at = |second| second * seconds / DEFAULT_SECONDS;
        Self {
            seconds,
            first_outage: at(5)..at(10),
            frozen: at(15)..at(21),
            second_outage: at(17)..at(24),
        }
    }

    pub(crate) fn seconds(&self) -> u32 {
        self.seconds
    }

    pub(crate) fn first_outage(&self) -> Range<u32> {
        self.first_outage.clone()
    }

    pub(crate) fn second_outage(&self) -> Range<u32> {
        self.second_outage.clone()
    }

    pub(crate) fn frozen(&self) -> Range<u32> {
        self.frozen.clone()
    }

    /// The part of the second outage in which Redis is frozen.
    pub(crate) fn frozen_outage(&self) -> Range<u32> {
        self.second_outage.start..self.frozen.end
    }

    pub(crate) fn is_frozen(&self, second: u32) -> bool {
        self.frozen.contains(&second)
    }

    /// What happens at the beginning of a second.
    pub(crate) fn event(&self, second: u32) -> Option<Event> {
        if second == self.first_outage.start || second == self.second_outage.start {
            Some(Event::Down)
        } else if second == self.first_outage.end || second == self.second_outage.end {
            Some(Event::Up)
        } else if second == self.frozen.start {
            Some(Event::Freeze)
        } else if second == self.frozen.end {
            Some(Event::Thaw)
        } else {
            None
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "the dependency goes down",
            Self::Up => "the dependency is up again",
            Self::Freeze => "Redis freezes (SIGSTOP)",
            Self::Thaw => "Redis thaws (SIGCONT)",
        })
    }
}
