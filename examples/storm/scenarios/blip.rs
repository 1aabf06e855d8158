//! A blip, in which every answer fails.

use super::{Lab, Scenario, each};
use crate::{
    report::{Figure, Report, Table, mean},
    rules::{Policy, Rule},
    sim::{Delay, Run, Setup, ample},
};
use http::StatusCode;
use std::time::Duration;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "blip",
    about: "every answer fails for 50 or 100 ms: which of the calls begun meanwhile succeed in the end",
    is_quick: false,
    run,
};

/// 20 ms on average.
const LATENCY: Delay = Delay::Even(Duration::from_millis(10), Duration::from_millis(30));

/// One blip is only so many calls: there is one in each of these, and one run has many.
const EVERY: Duration = Duration::from_secs(4);
const FIRST: Duration = Duration::from_secs(10);

/// From here on the spread of the latency matters little.
const RPS_OF_MODEL: f64 = 1000.0;

/// Calls per second, the length of the blip, blips in a run, and what was published.
type Blip = (f64, Duration, u32, &'static [(Rule, Option<f64>)]);

const BLIPS: &[Blip] = &[
    (
        1000.0,
        Duration::from_millis(50),
        12,
        &[
            (Rule::NoRetries, None),
            (Rule::Unlimited, Some(99.4)),
            (Rule::TowerTps, None),
            (Rule::RefundAll, Some(8.0)),
            (Rule::Default, Some(99.4)),
        ],
    ),
    (
        5000.0,
        Duration::from_millis(50),
        4,
        &[(Rule::Unlimited, Some(99.2)), (Rule::Default, Some(99.2))],
    ),
    (
        200.0,
        Duration::from_millis(100),
        40,
        &[
            (Rule::Unlimited, Some(91.0)),
            (Rule::TowerTps, None),
            (Rule::Default, Some(80.0)),
        ],
    ),
];

fn run(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut table = Table::new(["calls per second", "blip", "rule", "saved"]);
    let mut figures = Vec::new();
    for &(rps, length, blips, rules) in BLIPS {
        for &(rule, published) in rules {
            let mut setup = Setup::new(rps, 1, FIRST + EVERY * blips);
            setup.policy = Policy::model();
            let runs = lab.runs(&setup, rule, |seed| {
                ample(seed, LATENCY, move |ask, _| match is_blip(ask.at, length) {
                    true => StatusCode::INTERNAL_SERVER_ERROR,
                    false => StatusCode::OK,
                })
            });
            let saved = each(&runs, |run| saved(run, length));
            let length = length.as_millis();
            table.row([
                format!("{rps}"),
                format!("{length} ms"),
                rule.to_string(),
                format!("{:.1} %", mean(&saved)),
            ]);
            if let Some(published) = published {
                let what = format!("{rps} per second, {length} ms, {rule}, saved %");
                let exact = rps >= RPS_OF_MODEL && rule != Rule::RefundAll;
                figures.push(match exact {
                    true => Figure::success(what, published, saved),
                    false => Figure::beside(what, published, saved),
                });
            }
        }
    }
    report.table(table);
    report.note(
        "A quiet client in a long blip is where the default saves less than retrying without a budget.\n\
         How many are saved depends on how late the last attempt is: on the spread of the latency, which was\n\
         not published. Where that decides, the published figure stands beside ours, and is not a test.",
    );
    report.figures_last(figures);
    report
}

fn is_blip(at: Duration, length: Duration) -> bool {
    let since = at.saturating_sub(FIRST).as_nanos() % EVERY.as_nanos();
    at >= FIRST && since < length.as_nanos()
}

/// Which part of the calls begun in a blip succeeded.
fn saved(run: &Run, length: Duration) -> f64 {
    let begun = run.calls.iter().filter(|call| is_blip(call.begun, length));
    let (mut all, mut saved) = (0_u32, 0_u32);
    for call in begun {
        all += 1;
        saved += u32::from(call.succeeded);
    }
    100.0 * f64::from(saved) / f64::from(all)
}
