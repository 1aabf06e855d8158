//! What the program is asked for.

use crate::{
    process::Settings,
    schedule::{DEFAULT_SECONDS, LEAST_SECONDS},
};
use std::{error::Error, path::PathBuf};

pub(crate) const HELP: &str = "\
One retry budget for a fleet of processes, shared through Redis.

Usage: cargo run --release --features redis --example fleet -- [OPTIONS]

Options:
  --processes N     How many processes share the budget, 2 to 64 [default: 8]
  --seconds N       How long they run, 20 to 600 [default: 28]
  --plot FILE.svg   Draw the run
  --help            Print this

Needs redis-server. Exits with 0 if everything it claims was so.";

/// Makes this program one of the processes. Not for the user.
pub(crate) const PROCESS: &str = "--as-process";

const DEFAULT_PROCESSES: u32 = 8;

pub(crate) struct Args {
    pub(crate) processes: u32,
    pub(crate) seconds: u32,
    pub(crate) plot: Option<PathBuf>,
}

pub(crate) enum Parsed {
    Help,
    Run(Args),
    Process(Settings),
}

pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Parsed, Box<dyn Error>> {
    let mut parsed = Args {
        processes: DEFAULT_PROCESSES,
        seconds: DEFAULT_SECONDS,
        plot: None,
    };
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(Parsed::Help),
            PROCESS => return Ok(Parsed::Process(serde_json::from_str(&value()?)?)),
            "--processes" => parsed.processes = within(&arg, &value()?, 2, 64)?,
            "--seconds" => parsed.seconds = within(&arg, &value()?, LEAST_SECONDS, 600)?,
            "--plot" => parsed.plot = Some(value()?.into()),
            _ => return Err(format!("unknown argument {arg}; see --help").into()),
        }
    }
    Ok(Parsed::Run(parsed))
}

fn within(arg: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or(format!("{arg} takes a number from {least} to {most}"))
}
