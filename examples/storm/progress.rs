//! A bar on the terminal, for runs that take long. Nothing of it comes into the output.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicUsize, Ordering},
};

const WIDTH: usize = 24;

#[derive(Debug, Default)]
pub(crate) struct Progress {
    shown: bool,
    scenarios: usize,
    done: AtomicUsize,
    runs: AtomicUsize,
}

impl Progress {
    /// A bar for so many scenarios, where somebody can see it.
    pub(crate) fn new(scenarios: usize) -> Self {
        Self {
            shown: stderr().is_terminal(),
            scenarios,
            ..Self::default()
        }
    }

    /// A run within the scenario begins.
    pub(crate) fn run(&self, scenario: &str, rule: &str) {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.shown {
            let done = self.done.load(Ordering::Relaxed);
            let filled = WIDTH * done / self.scenarios.max(1);
            let bar = "#".repeat(filled) + &"-".repeat(WIDTH - filled);
            let line = format!(
                "[{bar}] {done}/{} {scenario}: {rule} (run {runs})",
                self.scenarios
            );
            // A bar that cannot be drawn is no reason to stop.
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }

    /// A scenario has ended.
    pub(crate) fn scenario(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.clear();
    }

    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
