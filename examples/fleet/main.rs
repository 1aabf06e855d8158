//! One retry budget for a fleet of processes: `cargo run --release --features redis --example fleet`.
//!
//! Starts a Redis server of its own, a server that plays the dependency, and processes (of this same
//! program) that call it. The dependency goes down twice. Before the second time Redis freezes, and it
//! thaws in the middle of the outage.
//!
//! A row is printed for every second, and every claim is checked: the exit status is 0 only if all of
//! them hold. `--plot FILE.svg` draws the run.

mod args;
mod claims;
mod dependency;
mod fleet;
mod plot;
mod process;
mod redis_server;
mod report;
mod schedule;

use args::{Args, Parsed};
use dependency::Dependency;
use fleet::Fleet;
use redis_server::{Observer, RedisServer};
use report::{Report, Row};
use schedule::{Event, Schedule};
use std::{error::Error, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// How often a process tells of itself, and the ledger in Redis is read.
const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u32 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match args::parse(std::env::args().skip(1))? {
        Parsed::Help => {
            println!("{}", args::HELP);
            Ok(())
        }
        Parsed::Process(settings) => process::run(settings).await,
        Parsed::Run(args) => tokio::select! {
            ended = run(&args) => ended,
            // What was started ends with this process's values, and a signal would skip that.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        },
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let redis = RedisServer::start()?;
    let dependency = Dependency::start().await?;
    let schedule = Schedule::new(args.seconds);
    println!(
        "{} processes, {} calls a second each, up to 3 attempts a call, one budget with a cap of {}",
        args.processes,
        process::CALLS_PER_SECOND,
        process::cap(args.processes),
    );
    println!("in the Redis on port {}.\n", redis.port());
    let mut fleet = Fleet::start(args.processes, dependency.address(), &redis.url())?;
    let mut report = Report::new(args.processes, schedule);
    observe(&redis, &dependency, &fleet, &mut report).await?;
    report.end(&fleet.stop().await?);
    if let Some(file) = &args.plot {
        plot::draw(&report, file)?;
        println!("\nDrawn to {}.", file.display());
    }
    claims::check(&report)
}

/// Runs the schedule, and prints a row for every second.
async fn observe(
    redis: &RedisServer,
    dependency: &Dependency,
    fleet: &Fleet,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut observer = Observer::new(&redis.url())?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ticks.tick().await;
    Report::print_head();
    for second in 0..report.schedule().seconds() {
        let event = report.schedule().event(second);
        if let Some(event) = event {
            match event {
                Event::Down => dependency.go_down(),
                Event::Up => dependency.come_up(),
                Event::Freeze => redis.freeze()?,
                Event::Thaw => redis.thaw()?,
            }
            println!("        | {event}");
        }
        let frozen = report.schedule().is_frozen(second);
        for _ in 0..TICKS_PER_SECOND {
            ticks.tick().await;
            if !frozen {
                report.add(observer.look().await);
            }
        }
        report.second(&Row {
            second,
            frozen,
            told: fleet.told(),
        });
    }
    Ok(())
}
