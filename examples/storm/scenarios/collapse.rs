//! Marc Brooker, 2022: a server that gets slower with load, a surge of 5 s, and clients that time out.

use super::{Lab, MS, SECOND, Scenario, each, seconds};
use crate::{
    plot::Chart,
    report::{Claim, Figure, Report, Table, mean},
    rules::{Limit, Policy, Rule, Waits},
    sim::{Arrivals, Congested, Delay, Setup},
};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "brooker-collapse",
    about: "Brooker 2022: a surge of 5 s, and work that goes on after its caller gave up",
    is_quick: true,
    run,
};

const END: u32 = 80;

fn run(lab: &Lab<'_>) -> Report {
    let mut setup = Setup::new(40.0, 1, SECOND * END);
    setup.arrivals = Arrivals::Surge {
        rps: 40.0,
        surge: 80.0,
        from: 20 * SECOND,
        to: 25 * SECOND,
    };
    setup.network = Delay::Exponential(100 * MS);
    let policy = Policy::default().attempts(3).waits(Waits::None);
    setup.policy = policy
        .attempt_timeout(3 * SECOND)
        .total_timeout(Limit::None);
    let mut report = Report::default();
    let head = [
        "rule",
        "before",
        "success in the surge",
        "from t = 45 s",
        "goodput at the end",
        "peak load",
    ];
    let mut table = Table::new(head);
    let mut figures = Vec::new();
    let mut chart = Chart::new(
        "collapse",
        "A surge of 5 s: 40 calls per second, 80 in the surge",
        20.0..25.0,
        80.0,
    );
    for rule in [
        Rule::NoRetries,
        Rule::Unlimited,
        Rule::TowerTps,
        Rule::Finagle,
        Rule::BucketOfCalls,
        Rule::Default,
    ] {
        let runs = lab.runs(&setup, rule, |seed| {
            Box::new(Congested::new(seed, SECOND, 10 * MS))
        });
        let late = each(&runs, |run| run.success(seconds(45..END - 5)));
        let goodput = each(&runs, |run| run.goodput(seconds(END - 20..END)));
        let surge = each(&runs, |run| run.success(seconds(20..25)));
        let before = each(&runs, |run| run.success(seconds(5..18)));
        let peak = each(&runs, |run| run.peak(seconds(0..END), SECOND) / 40.0);
        table.row([
            rule.to_string(),
            format!("{:.1} %", mean(&before)),
            format!("{:.1} %", mean(&surge)),
            format!("{:.1} %", mean(&late)),
            format!("{:.1}/s", mean(&goodput)),
            format!("{:.1}", mean(&peak)),
        ]);
        match rule {
            Rule::Unlimited => {
                let worst = goodput.iter().copied().fold(0.0, f64::max);
                report.claim(Claim::new(
                    "without a budget it never recovers: at most the published 12 good answers of 40 a second",
                    worst <= 12.0,
                    format!("{:.1} per second, {worst:.1} with the best seed", mean(&goodput)),
                ));
                let what = format!("{rule}, good answers per second at the end");
                figures.push(Figure::beside(what, 12.0, goodput));
            }
            Rule::BucketOfCalls | Rule::Default => {
                // At least 95 %, so anything from there to all of them.
                let what = format!("{rule}, success % from t = 45 s (over 95)");
                figures.push(Figure::new(what, 97.5, 2.5, late));
            }
            _ => {}
        }
        if let Some(run) = runs.first() {
            chart.add(rule, run, SECOND);
        }
    }
    report.table_first(table);
    report.note(
        "How the service times are spread was not published; here they are sums of four exponential times.\n\
         The spread decides how many answers come in time after the collapse: 12 per second are not reproduced,\n\
         only that it lasts.",
    );
    report.figures_last(figures);
    report.charts.push(chart);
    report
}
