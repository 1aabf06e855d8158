//! The command line.

use clap::Parser;

/// Retry storms, simulated with the real layer.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Runs this scenario only; may be given more than once.
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// The first of the three seeds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.scenario.is_empty() || self.scenario.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn seeds(&self) -> Vec<u64> {
        (0..3).map(|more| self.seed.wrapping_add(more)).collect()
    }
}
