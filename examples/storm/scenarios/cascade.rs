//! "Addressing Cascading Failures", Site Reliability Engineering, chapter 22: a server a hundredth
//! over its capacity.
//!
//! All that reach it in one millisecond do so in the order in which the timer wakes them, and those who
//! come back would be the first of them each time. So it is chance who is rejected.

use super::{Lab, SECOND, Scenario, each, seconds};
use crate::{
    report::{Figure, Report, Table, mean},
    rules::{Limit, Policy, Rule, Waits},
    sim::{Delay, Setup, shedding},
};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "sre-cascade",
    about: "10,100 calls per second to a server that rejects above 10,000, retried 1 s later",
    is_quick: false,
    run,
};

const OFFERED: f64 = 10_100.0;
const CAPACITY: f64 = 10_000.0;

/// The load of published rates: 0.03 of what is offered.
const TOLERANCE: f64 = 0.03 * OFFERED;

fn run(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut table = Table::new([
        "requests per second at the server",
        "in second 10",
        "at the end",
        "success",
    ]);
    let mut figures = Vec::new();
    let cases = [
        ("retried for ever", Rule::Unlimited, 10_000, 30),
        ("3 attempts", Rule::Unlimited, 3, 60),
        ("3 attempts, budget of 10 %", Rule::TenthOfCalls, 3, 40),
        ("3 attempts, this crate", Rule::Default, 3, 30),
    ];
    for (name, rule, attempts, end) in cases {
        let mut setup = Setup::new(OFFERED, 1, SECOND * end);
        let policy = Policy::default()
            .attempts(attempts)
            .waits(Waits::Fixed(SECOND));
        setup.policy = policy.total_timeout(Limit::None);
        // Those that are retried for ever do not end.
        setup.patience = SECOND / 10;
        let runs = lab.runs(&setup, rule, |seed| {
            shedding(seed, CAPACITY, Delay::None, 0.0, 0.05)
        });
        let tenth = each(&runs, |run| run.arrived(&seconds(9..10)) as f64);
        let last = each(&runs, |run| {
            run.arrived(&seconds(end - 10..end)) as f64 / 10.0
        });
        let success = each(&runs, |run| run.success(seconds(5..end - 5)));
        table.row([
            name.into(),
            format!("{:.0}", mean(&tenth)),
            format!("{:.0}", mean(&last)),
            match attempts {
                3 => format!("{:.2} %", mean(&success)),
                _ => "-".into(),
            },
        ]);
        match (rule, attempts) {
            (Rule::Unlimited, 3) => figures.push(Figure::new(
                format!("{name}, requests per second"),
                12_700.0,
                TOLERANCE,
                last,
            )),
            (Rule::Unlimited, _) => {
                let growth = each(&runs, |run| {
                    let late = run.arrived(&seconds(end - 5..end)) as f64 / 5.0;
                    let early = run.arrived(&seconds(5..10)) as f64 / 5.0;
                    (late - early) / f64::from(end - 10)
                });
                figures.push(Figure::new(
                    format!("{name}, growth per second"),
                    100.0,
                    10.0,
                    growth,
                ));
            }
            (Rule::TenthOfCalls, _) => figures.push(Figure::new(
                format!("{name}, requests per second"),
                11_100.0,
                TOLERANCE,
                last,
            )),
            _ => {}
        }
    }
    report.table(table);
    report.note(
        "The budget bounds the loop, it does not remove it: a hundredth too much stays too much.",
    );
    report.figures_last(figures);
    report
}
