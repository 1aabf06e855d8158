//! Marc Brooker, "Fixing retries with token buckets and circuit breakers", 2022.

use super::{Lab, MS, SECOND, Scenario, each, seconds};
use crate::{
    report::{Figure, Report, Table, mean},
    rules::{Policy, Rule, Waits},
    sim::{Delay, Setup, ample},
};
use http::StatusCode;

pub(super) const RANDOM_FAILURES: Scenario = Scenario {
    name: "brooker-random",
    about: "Brooker 2022: failures that have nothing to do with load, 100 clients",
    is_quick: false,
    run: random_failures,
};

const WARM: u32 = 10;
const END: u32 = 40;

/// The rule, the probability of failure in percent, success in percent, attempts per call.
const PUBLISHED: &[(Rule, u32, f64, f64)] = &[
    (Rule::NoRetries, 20, 80.2, 1.00),
    (Rule::Unlimited, 10, 99.99, 1.111),
    (Rule::Unlimited, 20, 99.84, 1.249),
    (Rule::Unlimited, 30, 99.25, 1.419),
    (Rule::BucketOfCalls, 10, 98.5, 1.094),
    (Rule::BucketOfCalls, 20, 88.1, 1.104),
    (Rule::BucketOfCalls, 30, 77.6, 1.104),
    (Rule::Breaker, 10, 93.0, 1.033),
    (Rule::Breaker, 20, 80.1, 1.00),
];

fn random_failures(lab: &Lab<'_>) -> Report {
    let mut setup = Setup::new(1000.0, 100, SECOND * END);
    setup.network = Delay::Exponential(10 * MS);
    setup.policy = Policy::default().attempts(4).waits(Waits::None);
    let mut report = Report::default();
    let mut table = Table::new(["rule", "failures", "success", "attempts per call"]);
    let mut figures = Vec::new();
    let ours = [10, 20, 30].map(|percent| (Rule::Default, percent, None));
    let published = PUBLISHED.iter();
    let published =
        published.map(|&(rule, percent, success, load)| (rule, percent, Some((success, load))));
    for (rule, percent, published) in published.chain(ours) {
        let failing = f64::from(percent) / 100.0;
        let runs = lab.runs(&setup, rule, |seed| {
            ample(seed, Delay::None, move |_, random| {
                match random.happens(failing) {
                    true => StatusCode::INTERNAL_SERVER_ERROR,
                    false => StatusCode::OK,
                }
            })
        });
        let success = each(&runs, |run| run.success(seconds(WARM..END)));
        let load = each(&runs, |run| run.load(seconds(WARM..END)));
        table.row([
            rule.to_string(),
            format!("{percent} %"),
            format!("{:.2} %", mean(&success)),
            format!("{:.3}", mean(&load)),
        ]);
        if let Some((published_success, published_load)) = published {
            let what = format!("{rule}, {percent} % failures");
            figures.push(Figure::success(
                format!("{what}, success %"),
                published_success,
                success,
            ));
            figures.push(Figure::load(
                format!("{what}, attempts per call"),
                published_load,
                load,
            ));
        }
    }
    report.table(table);
    report.figures_last(figures);
    report
}
