//! The scenarios, by name.

mod blip;
mod brooker;
mod cascade;
mod chain;
mod client_side;
mod collapse;
mod outage;
pub(crate) mod own;
mod random;
mod server_side;
mod storm;
mod vectors;

use crate::{
    progress::Progress,
    report::Report,
    rules::Rule,
    sim::{Run, Server, Setup},
};
use std::{ops::Range, time::Duration};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Something that can be simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether it takes less than a second, or a few in a debug build.
    pub(crate) is_quick: bool,
    pub(crate) run: fn(&Lab<'_>) -> Report,
}

/// All of them, in the order in which they are run.
pub(crate) const ALL: &[Scenario] = &[
    outage::SCENARIO,
    random::FAILURES,
    random::OVERLOAD,
    blip::SCENARIO,
    brooker::RANDOM_FAILURES,
    collapse::SCENARIO,
    cascade::SCENARIO,
    chain::LAYERS,
    vectors::VECTORS,
    vectors::ARITHMETIC,
    server_side::METASTABLE,
    server_side::SLOW,
    client_side::PARTIAL,
    server_side::RESTART,
    server_side::CRASH_LOOP,
    server_side::SCALE_OUT,
    client_side::HERD,
    chain::CHAIN,
    client_side::FLEET,
];

/// What a scenario is run with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lab<'a> {
    pub(crate) scenario: &'static str,
    pub(crate) seeds: &'a [u64],
    pub(crate) progress: &'a Progress,
}

impl Lab<'_> {
    /// Runs the same with every seed.
    pub(crate) fn runs(
        &self,
        setup: &Setup,
        rule: Rule,
        server: impl Fn(u64) -> Box<dyn Server>,
    ) -> Vec<Run> {
        let run = |&seed: &u64| {
            self.progress.run(self.scenario, &rule.to_string());
            setup.run(rule, server(seed), seed)
        };
        self.seeds.iter().map(run).collect()
    }
}

/// One number of each run.
pub(crate) fn each(runs: &[Run], number: impl Fn(&Run) -> f64) -> Vec<f64> {
    runs.iter().map(number).collect()
}

pub(crate) fn seconds(range: Range<u32>) -> Range<Duration> {
    SECOND * range.start..SECOND * range.end
}
