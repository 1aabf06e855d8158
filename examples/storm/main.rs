//! A storm, with and without a budget: `cargo run --release --example storm`.

mod args;
mod plot;
mod progress;
mod report;
mod rules;
mod scenarios;
mod sim;

use args::Args;
use clap::Parser;
use progress::Progress;
use scenarios::{ALL, Lab};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen: Vec<_> = ALL.iter().filter(|scenario| args.wants(scenario.name)).collect();
    let progress = Progress::new(chosen.len());
    let seeds = args.seeds();
    let mut missed = 0;
    for scenario in chosen {
        let lab = Lab { scenario: scenario.name, seeds: &seeds, progress: &progress };
        let report = (scenario.run)(&lab);
        progress.scenario();
        println!("\n== {}: {}", scenario.name, scenario.about);
        print!("{report}");
        missed += report.figures().filter(|figure| !figure.holds()).count();
    }
    println!("\nmissed {missed}");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
