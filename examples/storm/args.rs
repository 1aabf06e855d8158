//! The command line.

use crate::scenarios::{self, Scenario};
use clap::Parser;
use std::path::PathBuf;

/// Simulates retry storms: the crate's own layer, and what others do, on a clock that does not wait.
///
/// Prints a table for each scenario, and published figures beside those measured. The exit status is 1
/// where a published figure is missed, and 2 where an argument or a file is not understood. The same
/// seed prints the same bytes.
#[derive(Debug, Parser)]
#[command(name = "storm")]
pub(crate) struct Args {
    /// Runs this scenario only; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = scenario)]
    scenario: Vec<Scenario>,

    /// Sets the first of the three seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Lists the scenarios, and runs none
    #[arg(long)]
    pub(crate) list: bool,

    /// Writes the charts of the scenarios into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,

    /// Runs what this file describes, with its policy and with the default
    #[arg(long, value_name = "FILE.toml", conflicts_with = "scenario")]
    pub(crate) config: Option<PathBuf>,
}

impl Args {
    /// What is to be run: all of them, unless some were named. A debug build is some ten times slower,
    /// and runs those by itself that take no time.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let all = scenarios::ALL.iter().copied();
        match &self.scenario[..] {
            [] if self.is_cut_short() => all.filter(|scenario| scenario.is_quick).collect(),
            [] => all.collect(),
            chosen => chosen.to_vec(),
        }
    }

    pub(crate) fn is_cut_short(&self) -> bool {
        cfg!(debug_assertions) && self.scenario.is_empty() && self.config.is_none()
    }

    pub(crate) fn seeds(&self) -> Vec<u64> {
        (0..3).map(|more| self.seed.wrapping_add(more)).collect()
    }
}

fn scenario(name: &str) -> Result<Scenario, String> {
    let known = scenarios::ALL.iter().find(|known| known.name == name);
    known
        .copied()
        .ok_or_else(|| String::from("no such scenario: --list names them"))
}
