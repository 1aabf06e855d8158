//! A retry storm, with and without a budget: `cargo run --release --example storm`.
//!
//! Clients with the crate's own layer call a simulated server, which is down, slow, overloaded or
//! unlucky for a while; so do clients with what others use in its place. All of it runs on tokio's
//! paused clock, on one thread, and the same seed prints the same bytes.
//!
//! `--list` names the scenarios, `--scenario NAME` runs one of them, `--plot DIR` writes charts, and
//! `--config FILE.toml` runs a scenario of your own: see `config.rs` and `example.toml`.
//!
//! The plots of the README are made by
//! `cargo run --release --example storm -- --scenario metastable --scenario fleet --plot assets`.

mod args;
mod config;
mod plot;
mod progress;
mod report;
mod rules;
mod scenarios;
mod sim;

use args::Args;
use clap::Parser;
use config::Config;
use progress::Progress;
use report::Report;
use scenarios::Lab;
use std::{error::Error, process::ExitCode};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for. Whether every published figure was met.
fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    if args.list {
        for scenario in scenarios::ALL {
            println!("{:<17} {}", scenario.name, scenario.about);
        }
        return Ok(true);
    }
    let own = args.config.as_deref().map(Config::read).transpose()?;
    let seeds = args.seeds();
    println!(
        "seeds {}",
        seeds
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    );
    let scenarios = match own {
        Some(_) => Vec::new(),
        None => args.scenarios(),
    };
    if args.is_cut_short() {
        println!("the quick scenarios only: this is a debug build, and --release runs all of them");
    }
    let progress = Progress::new(scenarios.len().max(1));
    let lab = |scenario| Lab {
        scenario,
        seeds: &seeds,
        progress: &progress,
    };
    let mut reports = Vec::new();
    if let Some(config) = &own {
        let report = scenarios::own::run(&lab("yours"), config);
        finish(args, &progress, "yours", "what the file describes", &report)?;
        reports.push(("yours", report));
    }
    for scenario in scenarios {
        let report = (scenario.run)(&lab(scenario.name));
        finish(args, &progress, scenario.name, scenario.about, &report)?;
        reports.push((scenario.name, report));
    }
    Ok(summary(&reports))
}

/// Prints the report of a scenario, and writes its charts.
fn finish(
    args: &Args,
    progress: &Progress,
    name: &str,
    about: &str,
    report: &Report,
) -> Result<(), Box<dyn Error>> {
    progress.scenario();
    print!("\n== {name}: {about}\n{report}");
    if let Some(into) = &args.plot {
        std::fs::create_dir_all(into)?;
        for chart in &report.charts {
            chart.write(into)?;
        }
    }
    Ok(())
}

/// Says how many figures and claims there were, and names those that were not met.
fn summary(reports: &[(&str, Report)]) -> bool {
    let figures = || {
        reports
            .iter()
            .flat_map(|(name, report)| report.figures().map(move |figure| (name, figure)))
    };
    let claims = || {
        reports
            .iter()
            .flat_map(|(name, report)| report.claims().map(move |claim| (name, claim)))
    };
    let tested = figures().filter(|(_, figure)| figure.is_tested()).count();
    let met = figures()
        .filter(|(_, figure)| figure.is_tested() && figure.holds())
        .count();
    let holding = claims().filter(|(_, claim)| claim.holds).count();
    println!(
        "\n== in all: {met} of {tested} published figures within their tolerance, {holding} of {} claims hold",
        claims().count()
    );
    for (name, figure) in figures().filter(|(_, figure)| !figure.holds()) {
        println!("  missed: {name}: {}", figure.what);
    }
    for (name, claim) in claims().filter(|(_, claim)| !claim.holds) {
        println!(
            "  does not hold: {name}: {} ({})",
            claim.what, claim.measured
        );
    }
    met == tested
}
